//! The groups of a round on all threads, with a sum that does not depend on how many there are.
//!
//! The round is cut into units of about [`CHUNK`] samples: some whole groups, or, where a model is
//! separable and a group is larger, a part of one. Threads take units from a counter in rising
//! order and add their results to the total in that same order, each waiting for its turn. The
//! unit whose turn it is has always been taken already, so somebody is computing it and nobody
//! waits for ever.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use rayon::ThreadPool;

use crate::clip::{Clipped, ClippedSum, UNIT_GROUPS, UnitSum, clip};
use crate::hook::Hook;
use crate::inner::{self, GroupResult, Inner, Scratch};
use crate::model::{Model, Worker};
use crate::plan::Plan;
use crate::sampler::Batch;
use crate::simd;

/// Samples a unit of work, about; so no more than the groups that may be summed as one unit. Part of
/// the definition of the sum: changing it changes rounding.
pub(super) const CHUNK: usize = UNIT_GROUPS as usize;

/// What the groups of one round compute.
#[derive(Clone, Copy)]
pub(super) struct Work<'a> {
    pub(super) weights: &'a [f32],
    pub(super) batch: Batch<'a>,
    pub(super) inner: Inner,
    pub(super) kind: GroupResult,
    pub(super) hook: Option<&'a Hook>,
    pub(super) bound: f64,
    /// Whether a large group may be split.
    pub(super) separable: bool,
    /// Whether its groups were drawn one by one: see [`Batch::ends`].
    pub(super) one_by_one: bool,
}

impl Work<'_> {
    /// The parts of a group that is split, or nothing.
    fn parts(&self) -> Option<usize> {
        let split = self.separable && self.inner == Inner::Gradient && self.batch.group_size > CHUNK;
        split.then(|| self.batch.group_size.div_ceil(CHUNK))
    }

    /// The number of samples of a unit of whole groups, where they are all of one size.
    fn unit_samples(&self) -> usize {
        (CHUNK / self.batch.group_size).max(1) * self.batch.group_size
    }

    fn units(&self) -> usize {
        match self.parts() {
            Some(parts) => self.batch.samples.len() / self.batch.group_size * parts,
            None if self.one_by_one => self.batch.ends.len(),
            None => self.batch.samples.len().div_ceil(self.unit_samples()),
        }
    }

    /// The samples of a unit of whole groups.
    fn unit(&self, unit: usize) -> &[u32] {
        let samples = self.batch.samples;
        if self.one_by_one {
            let start = unit.checked_sub(1).map_or(0, |before| self.batch.ends[before]);
            return &samples[start..self.batch.ends[unit]];
        }
        let start = unit * self.unit_samples();
        &samples[start..(start + self.unit_samples()).min(samples.len())]
    }
}

/// Losses of groups, from private data.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Losses {
    pub(super) sum: f64,
    pub(super) groups: u64,
}

impl Losses {
    fn add(&mut self, sum: f32, groups: usize) {
        if sum.is_finite() {
            self.sum += f64::from(sum);
            self.groups += groups as u64;
        }
    }
}

/// What one thread owns for the whole run.
struct Thread<W> {
    worker: W,
    /// The sum of a unit.
    partial: UnitSum,
    /// One group's result, where it is needed by itself.
    result: Vec<f32>,
    scratch: Scratch,
}

/// What the threads share: whose turn it is, and the total.
struct Turn {
    next: usize,
    /// A thread panicked; its turn will never pass.
    failed: bool,
    total: ClippedSum,
    /// The group that is being put together from parts.
    group: Vec<f32>,
    group_loss: f32,
    losses: Losses,
}

/// The workers of a run.
pub(super) struct Groups<W> {
    threads: Vec<Mutex<Thread<W>>>,
    turn: Mutex<Turn>,
    passed: Condvar,
}

/// A panic in a model leaves a lock poisoned; every value behind it is reset by the next round.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tells the waiting threads when the thread that holds it panics.
struct Alarm<'a>(&'a Mutex<Turn>, &'a Condvar);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            lock(self.0).failed = true;
            self.1.notify_all();
        }
    }
}

impl<W: Worker> Groups<W> {
    pub(super) fn new<'m, M: Model<Worker<'m> = W>>(plan: &Plan, model: &'m M) -> Self {
        let dimension = model.dimension();
        let config = plan.config();
        let algorithms = config.inner.algorithms();
        let vectors = algorithms.iter().map(Inner::vectors).max().unwrap_or(0);
        let sequential = algorithms.iter().any(|inner| *inner != Inner::Gradient);
        let split = model.separable() && plan.mechanism().phases().iter().any(|p| group_size(p) > CHUNK);
        let wanted = |needed: bool| if needed { dimension } else { 0 };
        let threads = (0..plan.threads()).map(|_| {
            Mutex::new(Thread {
                worker: model.worker(),
                partial: UnitSum::new(dimension, config.clipping.start),
                result: vec![0.0; wanted(sequential || split || config.hook.is_some())],
                scratch: Scratch::new(wanted(sequential), vectors),
            })
        });
        Self {
            threads: threads.collect(),
            turn: Mutex::new(Turn {
                next: 0,
                failed: false,
                total: ClippedSum::new(dimension, config.clipping.start),
                group: vec![0.0; wanted(split)],
                group_loss: 0.0,
                losses: Losses::default(),
            }),
            passed: Condvar::new(),
        }
    }

    /// U of one round; to be called on a thread of `pool`, if there is one.
    pub(super) fn sum(&mut self, work: &Work<'_>, pool: Option<&ThreadPool>) -> (&ClippedSum, Losses) {
        let turn = self.turn.get_mut().unwrap_or_else(PoisonError::into_inner);
        turn.next = 0;
        turn.failed = false;
        turn.losses = Losses::default();
        turn.total.reset(work.bound, work.one_by_one);
        let taken = AtomicUsize::new(0);
        match pool {
            Some(pool) => {
                pool.broadcast(|context| self.take_units(context.index(), work, &taken));
            }
            None => self.take_units(0, work, &taken),
        }
        let turn = self.turn.get_mut().unwrap_or_else(PoisonError::into_inner);
        (&turn.total, turn.losses)
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
            if !begun {
                thread.worker.weights_mut().copy_from_slice(work.weights);
                thread.partial.reset(work.bound);
                begun = true;
            }
            let done = match work.parts() {
                Some(parts) => self.part(&mut thread, work, unit, parts),
                None => self.whole_groups(&mut thread, work, unit),
            };
            if !done {
                return;
            }
        }
    }

    /// Waits until all earlier units have been added; nothing if one never will be.
    fn wait(&self, unit: usize) -> Option<MutexGuard<'_, Turn>> {
        let mut turn = lock(&self.turn);
        while turn.next != unit && !turn.failed {
            turn = self.passed.wait(turn).unwrap_or_else(PoisonError::into_inner);
        }
        (!turn.failed).then_some(turn)
    }

    fn pass(&self, mut turn: MutexGuard<'_, Turn>) {
        turn.next += 1;
        drop(turn);
        self.passed.notify_all();
    }

    /// A unit of whole groups; false if another thread failed.
    fn whole_groups(&self, thread: &mut Thread<W>, work: &Work<'_>, unit: usize) -> bool {
        let size = work.batch.group_size;
        let samples = work.unit(unit);
        let Thread { worker, partial, result, scratch } = thread;
        let losses = if work.inner == Inner::Gradient && work.hook.is_none() {
            partial.add_with(|scale, sum| worker.add_scaled(samples, size, scale, sum))
        } else {
            let mut losses = 0.0;
            for group in samples.chunks_exact(size) {
                losses += inner::run(work.inner, work.kind, worker, work.weights, group, scratch, result);
                finish(result, work.hook, partial);
            }
            losses
        };
        let Some(mut turn) = self.wait(unit) else { return false };
        turn.total.absorb(partial);
        turn.losses.add(losses, samples.len() / size);
        self.pass(turn);
        true
    }

    /// A part of a large group: mean gradients are put together in the order of the parts, and the
    /// last part clips the whole.
    fn part(&self, thread: &mut Thread<W>, work: &Work<'_>, unit: usize, parts: usize) -> bool {
        let size = work.batch.group_size;
        let (group, part) = (unit / parts, unit % parts);
        let start = group * size + part * CHUNK;
        let end = (start + CHUNK).min((group + 1) * size);
        let loss = thread.worker.gradient(&work.batch.samples[start..end], &mut thread.result);
        let share = (end - start) as f32 / size as f32;
        let Some(mut turn) = self.wait(unit) else { return false };
        let Turn { total, group, group_loss, losses, .. } = &mut *turn;
        if part == 0 {
            simd::each2(group, &thread.result, |sum, g| *sum = share * g);
            *group_loss = share * loss;
        } else {
            simd::each2(group, &thread.result, |sum, g| *sum += share * g);
            *group_loss += share * loss;
        }
        if part + 1 == parts {
            finish(group, work.hook, &mut thread.partial);
            total.absorb(&mut thread.partial);
            losses.add(*group_loss, 1);
        }
        self.pass(turn);
        true
    }
}

fn group_size(phase: &dpsgd_privacy::mechanism::Phase) -> usize {
    use dpsgd_privacy::mechanism::Sampling;
    match phase.sampling() {
        Sampling::Subsample { group_size, .. } | Sampling::Shuffle { group_size, .. } => group_size as usize,
        Sampling::Poisson { .. } => 1,
    }
}

/// Σ ← Σ + [B([a]_{C'})]_C, or Σ + [a]_C without a hook.
fn finish(result: &mut [f32], hook: Option<&Hook>, sum: &mut UnitSum) {
    if let Some(hook) = hook {
        if clip(result, hook.bound()) == Clipped::NotFinite {
            sum.count_not_finite();
            return;
        }
        hook.apply(result);
    }
    sum.add(result);
}
