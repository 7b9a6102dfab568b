//! The groups of a round on all threads, with a sum that does not depend on how many there are.
//!
//! The round is cut into units of about [`CHUNK`] samples: some whole groups, or, where a model is
//! separable and a group is larger, a part of one. Threads take units from a counter in rising
//! order and add their results to the total in that same order, each waiting for its turn. The
//! unit whose turn it is has always been taken already, so somebody is computing it and nobody
//! waits for ever.
//!
//! A model that delivers rows is asked on the calling thread instead; see [`batched`](super::batched), and
//! [`shared`](super::shared) for one whose units are summed by several processes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use dpsgd_kernels::each2;
use rayon::ThreadPool;

use crate::clip::{Clipped, ClippedSum, UNIT_GROUPS, UnitSum, clip};
use crate::error::TrainerError;
use crate::hook::Hook;
use crate::inner::algorithm::{Draws, Scratch};
use crate::inner::{self, GroupResult, Inner, InnerAlgorithm};
use crate::model::{Form, Model, ModelError, SampleBits, Worker};
use crate::plan::Plan;
use crate::randomness::Randomness;
use crate::sampler::{Batch, cell};
use crate::trainer::interrupt::Interrupt;

/// Samples a unit of work, about; so no more than the groups that may be summed as one unit. Part of
/// the definition of the sum: changing it changes rounding.
pub(super) const CHUNK: usize = UNIT_GROUPS as usize;

/// What the groups of one round compute.
#[derive(Clone, Copy)]
pub(super) struct Work<'a> {
    pub(super) weights: &'a [f32],
    pub(super) batch: Batch<'a>,
    pub(super) inner: &'a Inner,
    pub(super) kind: GroupResult,
    pub(super) hook: Option<&'a Hook>,
    pub(super) bound: f64,
    /// Whether a large group may be split.
    pub(super) separable: bool,
    /// Whether its workers need seeds.
    pub(super) random: bool,
    /// Whether its groups were drawn independently: see [`Batch::ends`].
    pub(super) independent_groups: bool,
    pub(super) randomness: &'a Randomness,
    pub(super) round: u64,
    /// Where a new model comes from that stops the work.
    pub(super) watched: Option<&'a Interrupt>,
}

impl<'a> Work<'a> {
    /// The parts of a group that is split, or nothing.
    fn parts(&self) -> Option<usize> {
        let split = self.separable
            && self.batch.cells.is_none()
            && matches!(self.inner, Inner::Gradient)
            && self.batch.group_size > CHUNK;
        split.then(|| self.batch.group_size.div_ceil(CHUNK))
    }

    /// The number of samples of a unit of whole groups, where they are all of one size.
    fn unit_samples(&self) -> usize {
        (CHUNK / self.batch.group_size).max(1) * self.batch.group_size
    }

    /// How many units of whole groups there are.
    pub(super) fn whole_units(&self) -> usize {
        match (self.batch.cells, self.independent_groups) {
            (Some(cells), _) => cells.len().div_ceil(self.unit_cells()),
            (None, true) => self.batch.ends.len(),
            (None, false) => self.batch.samples.len().div_ceil(self.unit_samples()),
        }
    }

    /// The number of cells of a unit: a public number, whatever they hold.
    fn unit_cells(&self) -> usize {
        (CHUNK / self.batch.group_size).max(1)
    }

    /// Where the samples of a unit of whole groups end.
    pub(super) fn end(&self, unit: usize) -> usize {
        match self.independent_groups {
            true => self.batch.ends[unit],
            false => ((unit + 1) * self.unit_samples()).min(self.batch.samples.len()),
        }
    }

    /// The samples of a unit of whole groups, and the place of its first group in the batch.
    pub(super) fn unit(&self, unit: usize) -> (&'a [u32], usize) {
        let start = unit.checked_sub(1).map_or(0, |before| self.end(before));
        (&self.batch.samples[start..self.end(unit)], start / self.batch.group_size)
    }

    /// The cells of a unit with their places in the batch, the empty ones left out: they add nothing.
    pub(super) fn cells(&self, unit: usize) -> impl Iterator<Item = (usize, &'a [u32])> + use<'a> {
        let (samples, ends) = (self.batch.samples, self.batch.cells.unwrap_or_default());
        let first = unit * self.unit_cells();
        let last = (first + self.unit_cells()).min(ends.len());
        (first..last)
            .map(move |place| (place, cell(samples, ends, place)))
            .filter(|(_, cell)| !cell.is_empty())
    }

    fn units(&self) -> usize {
        match self.parts() {
            Some(parts) => self.batch.samples.len() / self.batch.group_size * parts,
            None => self.whole_units(),
        }
    }

    /// Whether a new model has made the work pointless.
    pub(super) fn is_interrupted(&self) -> bool {
        self.watched.is_some_and(Interrupt::has_arrived)
    }

    /// The bits of samples from a place of a group on, where groups are of this size.
    fn bits(&self, group: usize, member: usize, size: usize) -> SampleBits<'a> {
        let Work { randomness, round, .. } = *self;
        SampleBits { randomness, round, group: group as u64, member: member as u64, size: size as u64 }
    }

    fn draws(&self, group: usize) -> Draws<'a> {
        Draws { randomness: self.randomness, round: self.round, group: group as u64 }
    }

    /// The seed of a group for a random model, by its place in the batch.
    pub(super) fn seed_of(&self, group: usize) -> Option<u64> {
        self.random.then(|| self.draws(group).seed(0))
    }

    /// Gives a worker of a random model the seeds of `groups` groups, the first of which is at place `first`
    /// of the batch.
    pub(super) fn seed(&self, worker: &mut impl Worker, first: usize, groups: usize) {
        if self.random {
            let seeds: Vec<u64> = (first..first + groups).map(|group| self.draws(group).seed(0)).collect();
            worker.seed(&seeds);
        }
    }
}

/// Why there is no sum.
pub(super) enum Halt {
    /// The model failed.
    Model(ModelError),
    /// A new model arrived, and the work may be begun again.
    Interrupted,
}

impl From<ModelError> for Halt {
    fn from(error: ModelError) -> Self {
        Halt::Model(error)
    }
}

/// Losses of groups, from private data.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Losses {
    pub(super) sum: f64,
    pub(super) groups: u64,
}

impl Losses {
    pub(super) fn add(&mut self, sum: f32, groups: usize) {
        if sum.is_finite() {
            self.sum += f64::from(sum);
            self.groups += groups as u64;
        }
    }
}

/// What one thread owns for the whole run.
pub(super) struct Thread<W> {
    pub(super) worker: W,
    /// The sum of a unit.
    pub(super) partial: UnitSum,
    /// One group's result, where it is needed by itself.
    pub(super) result: Vec<f32>,
    scratch: Scratch,
}

impl<W: Worker> Thread<W> {
    /// Adds the results of the groups of a unit to the partial sum; returns the sum of their losses and how
    /// many there are.
    pub(super) fn unit(&mut self, work: &Work<'_>, unit: usize) -> Result<(f32, usize), ModelError> {
        if work.batch.cells.is_none() {
            let ((samples, first), size) = (work.unit(unit), work.batch.group_size);
            return Ok((self.one_by_one(work, (samples, size), first)?, samples.len() / size));
        }
        let (mut losses, mut groups) = (0.0, 0);
        for (place, cell) in work.cells(unit) {
            losses += self.one_by_one(work, (cell, cell.len()), place)?;
            groups += 1;
        }
        Ok((losses, groups))
    }

    /// Adds the results of the groups of `samples`, each of `size` of them, to the partial sum, one after the
    /// other; `first` is the place of the first group in the batch. Returns the sum of their losses.
    fn one_by_one(
        &mut self,
        work: &Work<'_>,
        (samples, size): (&[u32], usize),
        first: usize,
    ) -> Result<f32, ModelError> {
        let Thread { worker, partial, result, scratch } = self;
        worker.prepare(samples, &work.bits(first, 0, size));
        if matches!(work.inner, Inner::Gradient) && work.hook.is_none() {
            work.seed(worker, first, samples.len() / size);
            return partial.add_with(|scale, sum| worker.add_scaled(samples, size, scale, sum));
        }
        let mut losses = 0.0;
        for (place, group) in samples.chunks_exact(size).enumerate() {
            work.seed(worker, first + place, 1);
            losses += inner::run(
                work.inner,
                work.kind,
                worker,
                (work.weights, group),
                (scratch, result),
                work.draws(first + place),
            )?;
            finish(result, work.hook, partial);
        }
        Ok(losses)
    }
}

/// What the threads share: whose turn it is, and the total.
pub(super) struct Turn {
    next: usize,
    /// A thread panicked or its model failed; its turn will never pass.
    stopped: bool,
    /// The first unit, in the order of the batch, whose model failed.
    failure: Option<(usize, ModelError)>,
    /// A new model arrived before all units were done.
    interrupted: bool,
    pub(super) total: ClippedSum,
    /// The group that is being put together from parts.
    group: Vec<f32>,
    group_loss: f32,
    pub(super) losses: Losses,
}

/// The workers of a run.
pub(super) struct Groups<W> {
    pub(super) threads: Vec<Mutex<Thread<W>>>,
    pub(super) turn: Mutex<Turn>,
    passed: Condvar,
}

/// A panic in a model leaves a lock poisoned; every value it guards is reset by the next round.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tells the waiting threads when the thread that holds it panics.
struct Alarm<'a>(&'a Mutex<Turn>, &'a Condvar);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            lock(self.0).stopped = true;
            self.1.notify_all();
        }
    }
}

/// A unit that another thread's failure made pointless.
struct Pointless;

impl<W: Worker> Groups<W> {
    pub(super) fn new<M: Model<Worker = W>>(plan: &Plan, model: &Arc<M>) -> Result<Self, TrainerError> {
        let dimension = model.dimension();
        let config = plan.config();
        let algorithms = config.inner.algorithms();
        let vectors = algorithms.iter().map(InnerAlgorithm::state_vectors).max().unwrap_or(0);
        let sequential = algorithms.iter().any(|inner| *inner != Inner::Gradient);
        let split = model.separable() && plan.largest_group() > CHUNK;
        let wanted = |needed: bool| if needed { dimension } else { 0 };
        let thread = || -> Result<Mutex<Thread<W>>, TrainerError> {
            let mut worker = model.worker(plan.largest_group())?;
            let given = worker.weights_mut().len();
            if given != dimension {
                let what = "a worker of the model";
                return Err(TrainerError::Dimension { what, given, expected: dimension });
            }
            Ok(Mutex::new(Thread {
                worker,
                partial: UnitSum::new(dimension, config.clipping.start),
                result: vec![0.0; wanted(sequential || split || config.hook.is_some())],
                scratch: Scratch::new(wanted(sequential), vectors),
            }))
        };
        let workers = match model.form() {
            Form::Groups => plan.threads(),
            Form::Rows { .. } | Form::Units { .. } => 1,
        };
        Ok(Self {
            threads: (0..workers).map(|_| thread()).collect::<Result<_, _>>()?,
            turn: Mutex::new(Turn {
                next: 0,
                stopped: false,
                failure: None,
                interrupted: false,
                total: ClippedSum::new(dimension, config.clipping.start),
                group: vec![0.0; wanted(split)],
                group_loss: 0.0,
                losses: Losses::default(),
            }),
            passed: Condvar::new(),
        })
    }

    /// U of one round.
    pub(super) fn sum(
        &mut self,
        work: &Work<'_>,
        form: Form,
        pool: Option<&ThreadPool>,
    ) -> Result<(&ClippedSum, Losses), Halt> {
        let turn = self.turn.get_mut().unwrap_or_else(PoisonError::into_inner);
        turn.next = 0;
        turn.stopped = false;
        turn.failure = None;
        turn.interrupted = false;
        turn.losses = Losses::default();
        turn.total.reset(work.bound, work.independent_groups);
        match (form, pool) {
            (Form::Rows { chunk }, _) => self.sum_rows(work, chunk, pool)?,
            (Form::Units { chunk, window }, _) => self.sum_blocks(work, chunk, window)?,
            (Form::Groups, Some(pool)) => {
                let taken = AtomicUsize::new(0);
                pool.broadcast(|context| self.take_units(context.index(), work, &taken));
            }
            (Form::Groups, None) => self.take_units(0, work, &AtomicUsize::new(0)),
        }
        let turn = self.turn.get_mut().unwrap_or_else(PoisonError::into_inner);
        match turn.failure.take() {
            Some((_, error)) => Err(error.into()),
            None if turn.interrupted => Err(Halt::Interrupted),
            None => Ok((&turn.total, turn.losses)),
        }
    }

    /// U of the last round.
    pub(super) fn total(&mut self) -> &ClippedSum {
        &self.turn.get_mut().unwrap_or_else(PoisonError::into_inner).total
    }

    fn take_units(&self, thread: usize, work: &Work<'_>, taken: &AtomicUsize) {
        let _alarm = Alarm(&self.turn, &self.passed);
        let units = work.units();
        let mut begun = false;
        let mut thread = lock(&self.threads[thread]);
        loop {
            let unit = taken.fetch_add(1, Ordering::Relaxed);
            if unit >= units {
                return;
            }
            if work.is_interrupted() {
                return self.interrupt();
            }
            if !begun {
                thread.worker.weights_mut().copy_from_slice(work.weights);
                thread.partial.reset(work.bound);
                begun = true;
            }
            let done = match work.parts() {
                Some(parts) => self.part(&mut thread, work, unit, parts),
                None => self.whole_groups(&mut thread, work, unit),
            };
            match done {
                Ok(Ok(())) => {}
                Ok(Err(Pointless)) => return,
                Err(error) => return self.fail(unit, error),
            }
        }
    }

    /// Every unit before a failed one has been taken and is computed to its end, so the first failure in the
    /// order of the batch is found whatever the threads do.
    fn fail(&self, unit: usize, error: ModelError) {
        let mut turn = lock(&self.turn);
        turn.stopped = true;
        if turn.failure.as_ref().is_none_or(|(first, _)| unit < *first) {
            turn.failure = Some((unit, error));
        }
        drop(turn);
        self.passed.notify_all();
    }

    /// A unit that is not computed is one whose turn never passes.
    fn interrupt(&self) {
        let mut turn = lock(&self.turn);
        turn.stopped = true;
        turn.interrupted = true;
        drop(turn);
        self.passed.notify_all();
    }

    /// Waits until all earlier units have been added; nothing if one never will be.
    fn wait(&self, unit: usize) -> Result<MutexGuard<'_, Turn>, Pointless> {
        let mut turn = lock(&self.turn);
        while turn.next != unit && !turn.stopped {
            turn = self.passed.wait(turn).unwrap_or_else(PoisonError::into_inner);
        }
        if turn.stopped { Err(Pointless) } else { Ok(turn) }
    }

    fn pass(&self, mut turn: MutexGuard<'_, Turn>) {
        turn.next += 1;
        drop(turn);
        self.passed.notify_all();
    }

    /// A unit of whole groups.
    fn whole_groups(
        &self,
        thread: &mut Thread<W>,
        work: &Work<'_>,
        unit: usize,
    ) -> Result<Result<(), Pointless>, ModelError> {
        let (losses, groups) = thread.unit(work, unit)?;
        let Ok(mut turn) = self.wait(unit) else { return Ok(Err(Pointless)) };
        turn.total.absorb(&mut thread.partial);
        turn.losses.add(losses, groups);
        self.pass(turn);
        Ok(Ok(()))
    }

    /// A part of a large group: mean gradients are put together in the order of the parts, and the
    /// last part clips the whole.
    fn part(
        &self,
        thread: &mut Thread<W>,
        work: &Work<'_>,
        unit: usize,
        parts: usize,
    ) -> Result<Result<(), Pointless>, ModelError> {
        let size = work.batch.group_size;
        let (group, part) = (unit / parts, unit % parts);
        let start = group * size + part * CHUNK;
        let end = (start + CHUNK).min((group + 1) * size);
        if work.random {
            thread.worker.seed(&[work.draws(group).seed(part)]);
        }
        let samples = &work.batch.samples[start..end];
        thread.worker.prepare(samples, &work.bits(group, part * CHUNK, size));
        let loss = thread.worker.gradient(samples, &mut thread.result)?;
        let share = (end - start) as f32 / size as f32;
        let Ok(mut turn) = self.wait(unit) else { return Ok(Err(Pointless)) };
        let Turn { total, group, group_loss, losses, .. } = &mut *turn;
        if part == 0 {
            each2(group, &thread.result, |sum, g| *sum = share * g);
            *group_loss = share * loss;
        } else {
            each2(group, &thread.result, |sum, g| *sum += share * g);
            *group_loss += share * loss;
        }
        if part + 1 == parts {
            finish(group, work.hook, &mut thread.partial);
            total.absorb(&mut thread.partial);
            losses.add(*group_loss, 1);
        }
        self.pass(turn);
        Ok(Ok(()))
    }
}

/// Σ ← Σ + [B([a]_{C'})]_C, or Σ + [a]_C without a hook.
pub(super) fn finish(result: &mut [f32], hook: Option<&Hook>, sum: &mut UnitSum) {
    if let Some(hook) = hook {
        if clip(result, hook.bound()) == Clipped::NotFinite {
            sum.count_not_finite();
            return;
        }
        hook.apply(result);
    }
    sum.add(result);
}
