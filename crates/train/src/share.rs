//! The share of a round that another process computes: whole units, clipped and summed there.
//!
//! # Guarantee
//!
//! **The total has the same bits wherever its units are summed.** A total is defined by its units: their
//! groups in order, summed in single precision from zero, and the units in order, summed in double precision
//! ([`clip`](crate::clip)). [`Block::sum`] makes a unit's sum by [`UnitSum::add`] or its equal
//! [`UnitSum::add_rows`]; a sum in single precision travels without rounding; and the trainer hands it to
//! [`ClippedSum::absorb`](crate::clip::ClippedSum::absorb) in the order of the units, as it does with its own.
//! So nothing depends on which process summed which unit, or on how many there are, and everything that is
//! proved about the sum holds. Blocks, and the calls of [`Worker::rows`] within one, follow from the batch and
//! `chunk` alone, so a model whose results round by what else is in a call rounds the same everywhere, too.
//!
//! Each process computes with data, weights and code of the same owner. One that does otherwise is outside
//! the guarantee, as a model would be that mixes groups; [`UnitSum::receive`] bounds what damage can do.

use rayon::ThreadPool;

use crate::clip::{Counts, Rows, UnitSum};
use crate::model::{ModelError, Worker};

/// Whole units of a round, next to each other in its batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// The samples, group after group.
    pub samples: Vec<u32>,
    /// How many samples each group has.
    pub sizes: Sizes,
    /// How many groups each unit has; none is empty.
    pub units: Vec<usize>,
    /// A seed for each group, for a [random](crate::Model::is_random) model.
    pub seeds: Vec<u64>,
}

/// The samples of each group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// All groups have so many.
    Same(usize),
    /// Each has its own number: groups that are cells of a random allocation. It is an enum and no list so that
    /// how a group is summed never depends on the sizes of others.
    Each(Vec<usize>),
}

impl Default for Sizes {
    fn default() -> Self {
        Sizes::Each(Vec::new())
    }
}

/// Receives the units of a block in order: the sum of the clipped results, what became of them, and the sum of
/// their losses.
pub type UnitSink<'a> = dyn FnMut(&[f32], Counts, f32) + Send + 'a;

impl Block {
    /// The groups of all units.
    pub fn groups(&self) -> usize {
        self.units.iter().sum()
    }

    /// Whether sizes, units, seeds and samples fit together.
    fn check(&self) -> Result<(), ModelError> {
        let groups = self.groups();
        let samples = match &self.sizes {
            Sizes::Same(size) => (*size > 0).then(|| groups.checked_mul(*size)).flatten(),
            Sizes::Each(sizes) if sizes.len() != groups || sizes.contains(&0) => None,
            Sizes::Each(sizes) => sizes.iter().try_fold(0, |all: usize, size| all.checked_add(*size)),
        };
        let fits = samples == Some(self.samples.len())
            && !self.units.contains(&0)
            && (self.seeds.is_empty() || self.seeds.len() == groups);
        fits.then_some(()).ok_or_else(|| ModelError::new("a block whose groups do not fit its samples"))
    }

    /// Computes, clips to `bound` and sums the results of the block at the worker's weights, at most `chunk`
    /// groups at once, and hands on its units; on the threads of `pool`, if there is one.
    pub fn sum<W: Worker>(
        &self,
        worker: &mut W,
        bound: f64,
        chunk: usize,
        pool: Option<&ThreadPool>,
        sink: &mut UnitSink<'_>,
    ) -> Result<(), ModelError> {
        self.check()?;
        let mut unit = UnitSum::new(worker.weights_mut().len(), bound);
        match &self.sizes {
            Sizes::Same(size) => self.sum_rows(worker, *size, chunk, (&mut unit, pool), sink),
            Sizes::Each(sizes) => self.sum_cells(worker, sizes, &mut unit, sink),
        }
    }

    fn sum_rows<W: Worker>(
        &self,
        worker: &mut W,
        size: usize,
        chunk: usize,
        (unit, pool): (&mut UnitSum, Option<&ThreadPool>),
        sink: &mut UnitSink<'_>,
    ) -> Result<(), ModelError> {
        let (dimension, bound) = (worker.weights_mut().len(), unit.bound());
        let mut units = self.units.iter();
        // The groups that the unit still lacks, and the losses of those that it has.
        let (mut lacking, mut loss) = (units.next().copied().unwrap_or(0), 0.0);
        let mut before = 0;
        for samples in self.samples.chunks(chunk.max(1) * size) {
            let expected = samples.len() / size;
            if let Some(seeds) = self.seeds.get(before..before + expected) {
                worker.seed(seeds);
            }
            before += expected;
            let (mut given, mut wrong) = (0, None);
            worker.rows(samples, size, &mut |stretches, losses| {
                given += losses.len();
                if given > expected || wrong.is_some() {
                    return;
                }
                let rows = match Rows::new(stretches, losses.len(), dimension) {
                    Ok(rows) => rows,
                    Err(error) => return wrong = Some(ModelError::caused_by(error)),
                };
                let mut start = 0;
                while start < losses.len() {
                    let end = losses.len().min(start + lacking);
                    let part = rows.part(start..end);
                    match Rows::new(&part, end - start, dimension) {
                        Ok(part) => unit.add_rows(&part, pool),
                        Err(error) => return wrong = Some(ModelError::caused_by(error)),
                    }
                    losses[start..end].iter().for_each(|one| loss += one);
                    (lacking, start) = (lacking - (end - start), end);
                    if lacking == 0 {
                        sink(unit.values(), unit.counts(), loss);
                        unit.reset(bound);
                        (lacking, loss) = (units.next().copied().unwrap_or(0), 0.0);
                    }
                }
            })?;
            match wrong {
                Some(error) => return Err(error),
                None if given != expected => return Err(ModelError::miscounted(given, expected)),
                None => {}
            }
        }
        Ok(())
    }

    /// One cell after the other, as the trainer sums them itself.
    fn sum_cells<W: Worker>(
        &self,
        worker: &mut W,
        sizes: &[usize],
        unit: &mut UnitSum,
        sink: &mut UnitSink<'_>,
    ) -> Result<(), ModelError> {
        let bound = unit.bound();
        let (mut samples, mut group) = (&self.samples[..], 0);
        for &groups in &self.units {
            let mut loss = 0.0;
            for &size in &sizes[group..group + groups] {
                let (cell, rest) = samples.split_at(size);
                if let Some(seed) = self.seeds.get(group) {
                    worker.seed(&[*seed]);
                }
                loss += unit.add_with(|scale, sum| worker.add_scaled(cell, size, scale, sum))?;
                (samples, group) = (rest, group + 1);
            }
            sink(unit.values(), unit.counts(), loss);
            unit.reset(bound);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_do_not_fit_are_refused() {
        let block = |samples: u32, sizes, units: &[usize], seeds: &[u64]| Block {
            samples: (0..samples).collect(),
            sizes,
            units: units.to_vec(),
            seeds: seeds.to_vec(),
        };
        for (block, fine) in [
            (block(6, Sizes::Same(2), &[2, 1], &[]), true),
            (block(6, Sizes::Each(vec![1, 3, 2]), &[2, 1], &[7, 8, 9]), true),
            (block(6, Sizes::Same(2), &[2, 2], &[]), false),
            (block(6, Sizes::Same(0), &[], &[]), false),
            (block(6, Sizes::Same(2), &[3, 0], &[]), false),
            (block(6, Sizes::Each(vec![1, 3, 1]), &[2, 1], &[]), false),
            (block(6, Sizes::Each(vec![6, 0]), &[2], &[]), false),
            (block(6, Sizes::Same(2), &[3], &[1, 2]), false),
            (block(0, Sizes::Each(vec![usize::MAX, 1]), &[2], &[]), false),
        ] {
            assert_eq!(block.check().is_ok(), fine, "{block:?}");
        }
    }
}
