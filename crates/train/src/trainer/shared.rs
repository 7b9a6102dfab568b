//! A round whose units are summed by several processes.
//!
//! The trainer cuts the batch into blocks of whole units, hands some of them at a time to the worker, and absorbs
//! the sums of their units in order; see [`share`](crate::share) for why the total is the same to the bit.

use std::num::NonZeroUsize;
use std::sync::PoisonError;

use super::batched::sum_units;
use super::groups::{Groups, Halt, Thread, Work};
use crate::inner::Inner;
use crate::model::{ModelError, Worker};
use crate::share::{Block, Sizes};

impl<W: Worker> Groups<W> {
    /// Adds all groups of the round to the total, `window` blocks at a time.
    pub(super) fn sum_blocks(
        &mut self,
        work: &Work<'_>,
        chunk: NonZeroUsize,
        window: NonZeroUsize,
    ) -> Result<(), Halt> {
        let turn = self.turn.get_mut().unwrap_or_else(PoisonError::into_inner);
        // The trainer makes at least one worker.
        let thread = self.threads[0].get_mut().unwrap_or_else(PoisonError::into_inner);
        thread.worker.weights_mut().copy_from_slice(work.weights);
        thread.partial.reset(work.bound);
        // An algorithm that walks draws from the key of the run, which stays in this process; and so do hooks.
        if !matches!(work.inner, Inner::Gradient) || work.hook.is_some() {
            return sum_units(work, thread, turn);
        }
        for blocks in cut(work, chunk.get()).chunks(window.get()) {
            if work.is_interrupted() {
                return Err(Halt::Interrupted);
            }
            let expected: usize = blocks.iter().map(|block| block.units.len()).sum();
            let mut units = blocks.iter().flat_map(|block| &block.units);
            let (mut given, mut wrong) = (0, None);
            let Thread { worker, partial, .. } = &mut *thread;
            worker.units(blocks, work.bound, chunk, &mut |values, counts, loss| {
                given += 1;
                let Some(&groups) = units.next() else { return };
                match partial.receive(values, counts, groups as u64) {
                    Ok(()) if wrong.is_none() => {
                        turn.total.absorb(partial);
                        turn.losses.add(loss, groups);
                    }
                    Ok(()) => {}
                    Err(error) => wrong = wrong.take().or(Some(ModelError::caused_by(error))),
                }
            })?;
            match wrong {
                Some(error) => return Err(error.into()),
                None if given != expected => {
                    let says = format!("{given} sums of units arrived where {expected} were asked for");
                    return Err(ModelError::new(says).into());
                }
                None => {}
            }
        }
        Ok(())
    }
}

/// Blocks of at most `chunk` groups, and of at least one unit.
fn cut(work: &Work<'_>, chunk: usize) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    for unit in 0..work.whole_units() {
        let (samples, sizes, places) = match work.batch.cells {
            None => {
                let (samples, first) = work.unit(unit);
                let groups = samples.len() / work.batch.group_size;
                (samples.to_vec(), None, (first..first + groups).collect::<Vec<_>>())
            }
            Some(_) => {
                let (places, cells): (Vec<_>, Vec<_>) = work.cells(unit).unzip();
                (cells.concat(), Some(cells.into_iter().map(<[u32]>::len)), places)
            }
        };
        let groups = places.len();
        if groups == 0 {
            continue;
        }
        if blocks.last().is_none_or(|block| block.groups() + groups > chunk) {
            let sizes = match work.batch.cells {
                None => Sizes::Same(work.batch.group_size),
                Some(_) => Sizes::Each(Vec::new()),
            };
            blocks.push(Block { sizes, ..Block::default() });
        }
        if let Some(block) = blocks.last_mut() {
            block.samples.extend(samples);
            if let (Sizes::Each(all), Some(sizes)) = (&mut block.sizes, sizes) {
                all.extend(sizes);
            }
            block.units.push(groups);
            block.seeds.extend(places.into_iter().filter_map(|place| work.seed_of(place)));
        }
    }
    blocks
}
