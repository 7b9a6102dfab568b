//! A round of a model that delivers the results of many groups at once.
//!
//! The model's worker runs on the thread that called the trainer, chunk after chunk; the threads of the pool
//! only take norms, clip and sum ([`ClippedSum::add_rows`](crate::clip::ClippedSum::add_rows)). Units are the
//! same as for any other model, so the sum is, to the bit, the one of the same rows added one after the
//! other. (A group larger than a unit is one row here, where other separable models compute it in parts: the
//! row then differs by the rounding of the model's own mean.)

use std::num::NonZeroUsize;
use std::sync::PoisonError;

use rayon::ThreadPool;

use super::groups::{Groups, Halt, Losses, Thread, Turn, Work, finish};
use crate::clip::Rows;
use crate::inner::Inner;
use crate::model::{ModelError, Worker};

/// Where the next row belongs.
struct Place {
    unit: usize,
    /// The groups that have been added.
    added: usize,
    /// The losses of the groups of the unit.
    loss: f32,
    groups_of_unit: usize,
}

impl<W: Worker> Groups<W> {
    /// Adds all groups of the round to the total.
    pub(super) fn sum_rows(
        &mut self,
        work: &Work<'_>,
        chunk: NonZeroUsize,
        pool: Option<&ThreadPool>,
    ) -> Result<(), Halt> {
        let turn = self.turn.get_mut().unwrap_or_else(PoisonError::into_inner);
        // The trainer makes at least one worker.
        let thread = self.threads[0].get_mut().unwrap_or_else(PoisonError::into_inner);
        thread.worker.weights_mut().copy_from_slice(work.weights);
        thread.partial.reset(work.bound);
        if !matches!(work.inner, Inner::Gradient) || work.batch.cells.is_some() {
            return sum_units(work, thread, turn);
        }
        let size = work.batch.group_size;
        let mut place = Place { unit: 0, added: 0, loss: 0.0, groups_of_unit: 0 };
        for samples in work.batch.samples.chunks(chunk.get().saturating_mul(size)) {
            if work.is_interrupted() {
                return Err(Halt::Interrupted);
            }
            let before = place.added;
            let Thread { worker, partial, result, .. } = &mut *thread;
            let mut wrong = None;
            let dimension = work.weights.len();
            let expected = samples.len() / size;
            work.seed(worker, before, expected);
            worker.rows(samples, size, &mut |stretches, losses| {
                let given = place.added - before + losses.len();
                let rows = match Rows::new(stretches, losses.len(), dimension) {
                    _ if given > expected => Err(ModelError::miscounted(given, expected)),
                    rows => rows.map_err(ModelError::caused_by),
                };
                match rows {
                    Ok(_) if wrong.is_some() => {}
                    Ok(rows) => {
                        let ends = place.ends(work, losses, &mut turn.losses);
                        match work.hook {
                            None => turn.total.add_rows(partial, &rows, &ends, pool),
                            Some(_) => {
                                for row in 0..rows.count() {
                                    rows.copy(row, result);
                                    finish(result, work.hook, partial);
                                    if ends.contains(&(row + 1)) {
                                        turn.total.absorb(partial);
                                    }
                                }
                            }
                        }
                    }
                    Err(error) => wrong = wrong.take().or(Some(error)),
                }
            })?;
            if let Some(error) = wrong {
                return Err(error.into());
            }
            if place.added - before != expected {
                return Err(ModelError::miscounted(place.added - before, expected).into());
            }
        }
        Ok(())
    }
}

/// An algorithm that walks through its group, or groups of random sizes: one group after the other, on the
/// calling thread.
pub(super) fn sum_units<W: Worker>(
    work: &Work<'_>,
    thread: &mut Thread<W>,
    turn: &mut Turn,
) -> Result<(), Halt> {
    for unit in 0..work.whole_units() {
        if work.is_interrupted() {
            return Err(Halt::Interrupted);
        }
        let (losses, groups) = thread.unit(work, unit)?;
        turn.total.absorb(&mut thread.partial);
        turn.losses.add(losses, groups);
    }
    Ok(())
}

impl Place {
    /// Moves past rows with these losses; returns after which of them a unit ends, counted from 1.
    fn ends(&mut self, work: &Work<'_>, losses: &[f32], all: &mut Losses) -> Vec<usize> {
        let size = work.batch.group_size;
        let mut ends = Vec::new();
        for (row, loss) in losses.iter().enumerate() {
            self.added += 1;
            self.loss += loss;
            self.groups_of_unit += 1;
            if self.added * size == work.end(self.unit) {
                ends.push(row + 1);
                all.add(self.loss, self.groups_of_unit);
                (self.unit, self.loss, self.groups_of_unit) = (self.unit + 1, 0.0, 0);
            }
        }
        ends
    }
}
