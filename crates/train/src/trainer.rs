//! Algorithm 1: one round at a time.

mod groups;
mod interrupt;
mod report;
mod saved;

use std::time::Instant;

use dpsgd_privacy::mechanism::Sampling;
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

pub use self::interrupt::Interrupt;
pub use self::report::{Diagnostics, Round};
pub use self::saved::Lacks;

use self::groups::{Groups, Work};
use self::interrupt::check_weights;
use crate::error::{RoundError, TrainerError};
use crate::model::Model;
use crate::noise::{BLOCK, Noise};
use crate::outer::{OuterState, Step};
use crate::plan::Plan;
use crate::randomness::Randomness;
use crate::sampler::{Sampler, one_by_one};
use crate::schedule::{ScheduleState, Seen};
use crate::simd;

/// The permission to spend a round's privacy: a ledger.
pub trait Charge {
    /// Why a charge was refused.
    type Error;

    /// Charges a round. It must be durable when this returns `Ok`: the round happens afterwards.
    fn charge(&mut self, round: u64) -> Result<(), Self::Error>;
}

/// Everything a run needs to go on, except its randomness, which is never stored. Public
/// parameters and functions of noised updates only.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainerState {
    /// The next round.
    pub round: u64,
    /// w.
    pub weights: Vec<f32>,
    /// The outer optimizer.
    pub outer: OuterState,
    /// The schedule of C.
    pub clipping: ScheduleState,
    /// The schedule of η.
    pub step: ScheduleState,
}

impl TrainerState {
    /// Before the first round of a plan, with the given initial w.
    pub fn first(plan: &Plan, weights: Vec<f32>) -> Self {
        Self {
            round: 0,
            outer: plan.config().outer.fresh(weights.len()),
            weights,
            clipping: ScheduleState::default(),
            step: ScheduleState::default(),
        }
    }
}

/// A run of Algorithm 1.
///
/// # Guarantee
///
/// Every round is charged before anything of it is computed; the batch is drawn, the results are
/// clipped and the noise is scaled as the plan's `Mechanism` says, whatever the model, the inner
/// algorithm, the schedules, the outer optimizer and received models do. A round draws its noise
/// once: its number is spent as soon as it is charged, even if the model then fails.
pub struct Trainer<'m, M: Model> {
    plan: Plan,
    model: &'m M,
    randomness: Randomness,
    pool: Option<ThreadPool>,
    groups: Groups<M::Worker<'m>>,
    sampler: Sampler,
    interrupt: Interrupt,
    state: TrainerState,
    /// Ū/m of the last round.
    update: Vec<f32>,
    /// ‖Ū/m‖² of each block.
    squares: Vec<f64>,
    diagnostics: Diagnostics,
}

impl<'m, M: Model> Trainer<'m, M> {
    /// A run from its first round with the given initial w.
    pub fn new(
        plan: Plan,
        model: &'m M,
        weights: Vec<f32>,
        randomness: Randomness,
    ) -> Result<Self, TrainerError> {
        let state = TrainerState::first(&plan, weights);
        Self::with_state(plan, model, state, randomness)
    }

    /// Goes on from a saved state at `next`, the first round that has not been charged.
    ///
    /// Rounds that were charged after the state was saved are lost and passed over. For shuffling
    /// a begun epoch is passed over to its end; see [`Plan::resume_at`]. `randomness` must be
    /// fresh: from the system, or from the seed with the number of continuations raised by one.
    pub fn resume(
        plan: Plan,
        model: &'m M,
        mut state: TrainerState,
        next: u64,
        randomness: Randomness,
    ) -> Result<Self, TrainerError> {
        if next < state.round || next > plan.rounds() {
            return Err(TrainerError::State(format!(
                "it was saved after {} rounds, {next} are charged, the plan has {}",
                state.round,
                plan.rounds(),
            )));
        }
        state.round = plan.resume_at(next);
        Self::with_state(plan, model, state, randomness)
    }

    fn with_state(
        plan: Plan,
        model: &'m M,
        state: TrainerState,
        randomness: Randomness,
    ) -> Result<Self, TrainerError> {
        let dimension = model.dimension();
        check_weights("the initial model", &state.weights, dimension)?;
        let samples = check_samples(&plan, model.samples())?;
        let fresh = plan.config().outer.fresh(dimension);
        for (what, given, expected) in [
            ("the outer optimizer's first vector", &state.outer.first, fresh.first.len()),
            ("the outer optimizer's second vector", &state.outer.second, fresh.second.len()),
        ] {
            if given.len() != expected {
                return Err(TrainerError::Dimension { what, given: given.len(), expected });
            }
            check_weights(what, given, expected)?;
        }
        for factor in [state.clipping.factor, state.step.factor] {
            if !(factor > 0.0 && factor.is_finite()) {
                return Err(TrainerError::State(format!("a schedule's factor is {factor}")));
            }
        }
        let pool = match plan.threads() {
            1 => None,
            threads => Some(
                ThreadPoolBuilder::new()
                    .num_threads(threads)
                    .thread_name(|index| format!("dpsgd-{index}"))
                    .build()
                    .map_err(|error| TrainerError::Threads { threads, reason: error.to_string() })?,
            ),
        };
        Ok(Self {
            groups: Groups::new(&plan, model),
            plan,
            model,
            randomness,
            pool,
            sampler: Sampler::new(samples),
            interrupt: Interrupt::new(dimension),
            update: vec![0.0; dimension],
            squares: vec![0.0; dimension.div_ceil(BLOCK)],
            state,
            diagnostics: Diagnostics::default(),
        })
    }

    /// Performs the next round: charge, sample, group results, clip, sum, noise, update.
    ///
    /// An empty batch (Poisson sampling, filter) is a round like any other: its noise is added,
    /// charged and released, because whether it was empty is private.
    pub fn round<C: Charge>(&mut self, ledger: &mut C) -> Result<Round<'_>, RoundError<C::Error>> {
        let began = Instant::now();
        let round = self.state.round;
        if self.finished() {
            return Err(RoundError::Finished { rounds: self.plan.rounds() });
        }
        if !self.randomness.is_of_this_process() {
            return Err(RoundError::Forked);
        }
        ledger.charge(round).map_err(|source| RoundError::Refused { round, source })?;
        self.state.round += 1;

        let config = self.plan.config();
        let position = self.plan.position(round);
        let phase = self.plan.phase(&position);
        let eta = config.step.value(&self.state.step, round, position.epoch);
        let bound = config.clipping.value(&self.state.clipping, round, position.epoch);
        // A diminishing C must stay where single precision is safe.
        let bound = bound.clamp(crate::plan::BOUND_RANGE.0, crate::plan::BOUND_RANGE.1);
        let divisor = self.plan.divisor(phase);
        if let Some(weights) = self.interrupt.take() {
            self.state.weights = weights;
        }
        let batch = self.sampler.batch(&self.plan, &position, &self.randomness);

        let pool = self.pool.as_ref();
        let state = &mut self.state;
        let (groups, randomness, interrupt) = (&mut self.groups, &self.randomness, &self.interrupt);
        let (update, squares) = (&mut self.update, &mut self.squares);
        let separable = self.model.separable();
        let mut rest_of_round = || {
            let work = Work {
                weights: &state.weights,
                batch,
                inner: config.inner.at(round, position.round_of_epoch),
                kind: config.result,
                hook: config.hook.as_ref(),
                bound,
                separable,
                one_by_one: one_by_one(phase),
            };
            let (sum, losses) = groups.sum(&work, pool);
            if let Some(weights) = interrupt.take() {
                state.weights = weights;
            }
            let noise = Noise::of(config.noise, sum, phase.sigma(), randomness, round);
            state.outer.steps += 1;
            let step = Step::new(config.outer, eta, state.outer.steps);
            let share = (1.0 / divisor) as f32;
            let noised = |block: Block<'_>| {
                noise.add(block.number, block.sum, block.update);
                *block.squares = simd::squares(block.update);
                for u in &mut *block.update {
                    *u *= share;
                }
                step.apply(block.weights, block.update, block.first, block.second);
            };
            let blocks = blocks(sum.values(), update, state, squares);
            match pool {
                Some(_) => blocks.into_par_iter().for_each(noised),
                None => blocks.into_iter().for_each(noised),
            }
            (sum.counts(), losses, noise.deviation())
        };
        let (counts, losses, deviation) = match pool {
            Some(pool) => pool.install(rest_of_round),
            None => rest_of_round(),
        };

        let squared_norm = self.squares.iter().sum();
        let seen = Seen { squared_norm, deviation, dimension: self.update.len(), divisor, bound };
        config.clipping.saw_update(&mut self.state.clipping, &seen);
        if config.diagnostics {
            let all = &mut self.diagnostics;
            all.rounds += 1;
            all.samples += batch.samples.len() as u64;
            all.counts.add(counts);
            all.losses += losses.sum;
            all.losses_of += losses.groups;
        }
        Ok(Round {
            round,
            epoch: position.epoch,
            ends_epoch: position.epoch_end == round + 1,
            eta,
            bound,
            update: &self.update,
            wall: began.elapsed(),
        })
    }

    /// Whether every round of the plan is spent.
    pub fn finished(&self) -> bool {
        self.state.round >= self.plan.rounds()
    }

    /// The next round.
    pub fn next_round(&self) -> u64 {
        self.state.round
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Whether the run's randomness is private; if not, every output must say so.
    pub fn is_private(&self) -> bool {
        self.randomness.is_private()
    }

    /// w.
    pub fn weights(&self) -> &[f32] {
        &self.state.weights
    }

    /// Takes note of the accuracy on a **public** test set after an epoch, for the schedules that
    /// read it. An accuracy on private data must never come here.
    pub fn saw_accuracy(&mut self, accuracy: f64) {
        let config = self.plan.config();
        config.clipping.saw_accuracy(&mut self.state.clipping, accuracy);
        config.step.saw_accuracy(&mut self.state.step, accuracy);
    }

    /// Replaces w by a newly received global model; between rounds. See [`Interrupt`].
    pub fn replace(&mut self, weights: &[f32]) -> Result<(), TrainerError> {
        check_weights("the received model", weights, self.state.weights.len())?;
        self.state.weights.copy_from_slice(weights);
        Ok(())
    }

    /// A handle to replace w from another thread, also during a round.
    pub fn interrupt(&self) -> Interrupt {
        self.interrupt.clone()
    }

    /// What a checkpoint must hold.
    pub fn state(&self) -> &TrainerState {
        &self.state
    }

    /// The private diagnostics since the last call, if the plan asked for them.
    pub fn take_diagnostics(&mut self) -> Option<Diagnostics> {
        self.plan.config().diagnostics.then(|| std::mem::take(&mut self.diagnostics))
    }
}

fn check_samples(plan: &Plan, given: usize) -> Result<u32, TrainerError> {
    let samples = match u32::try_from(given) {
        Ok(samples) if samples > 0 => samples,
        _ => return Err(TrainerError::SampleNames { given }),
    };
    for phase in plan.mechanism().phases() {
        if let Sampling::Subsample { samples: expected, .. } | Sampling::Shuffle { samples: expected, .. } =
            phase.sampling()
            && expected != u64::from(samples)
        {
            return Err(TrainerError::Samples { given, expected });
        }
    }
    Ok(samples)
}

/// The same block of coordinates of every vector.
struct Block<'a> {
    number: usize,
    sum: &'a [f64],
    update: &'a mut [f32],
    weights: &'a mut [f32],
    first: &'a mut [f32],
    second: &'a mut [f32],
    squares: &'a mut f64,
}

fn blocks<'a>(
    sum: &'a [f64],
    update: &'a mut [f32],
    state: &'a mut TrainerState,
    squares: &'a mut [f64],
) -> Vec<Block<'a>> {
    // Vectors an optimizer does not have are empty and give empty blocks.
    let mut first = state.outer.first.chunks_mut(BLOCK);
    let mut second = state.outer.second.chunks_mut(BLOCK);
    let all =
        sum.chunks(BLOCK).zip(update.chunks_mut(BLOCK)).zip(state.weights.chunks_mut(BLOCK)).zip(squares);
    all.enumerate()
        .map(|(number, (((sum, update), weights), squares))| Block {
            number,
            sum,
            update,
            weights,
            first: first.next().unwrap_or_default(),
            second: second.next().unwrap_or_default(),
            squares,
        })
        .collect()
}
