//! Algorithm 1: one round at a time.

mod batched;
mod begun;
mod groups;
mod interrupt;
mod parked;
mod report;
mod saved;
mod shared;

use std::sync::Arc;
use std::time::{Duration, Instant};

use dpsgd_privacy::mechanism::Phase;
use rayon::{ThreadPool, ThreadPoolBuilder};

pub use self::begun::Begun;
pub use self::interrupt::{Interrupt, Received};
pub use self::parked::Parked;
pub use self::report::{Diagnostics, Round};
pub use self::saved::MissingField;

use self::groups::{Groups, Halt, Losses, Work};
use self::interrupt::check_weights;
use crate::average::AverageState;
use crate::charge::Charge;
use crate::clip::Counts;
use crate::error::{RoundError, TrainerError};
use crate::model::Model;
use crate::noise::BLOCK;
use crate::outer::OuterState;
use crate::plan::{Plan, Position};
use crate::randomness::Randomness;
use crate::sampler::{Batch, Sampler};
use crate::schedule::ScheduleState;

/// Everything a run needs to continue, except its randomness, which is never stored. Public
/// parameters and functions of noised updates only.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainerState {
    /// The next round.
    pub round: u64,
    /// w.
    pub weights: Vec<f32>,
    /// The outer optimizer.
    pub outer: OuterState,
    /// The average of the iterates, where the plan asks for one.
    pub average: AverageState,
    /// The schedule of C.
    pub clipping: ScheduleState,
    /// The schedule of η.
    pub step: ScheduleState,
    /// The version of the last received model; see [`Interrupt`].
    pub version: u64,
}

impl TrainerState {
    /// Before the first round of a plan, with the given initial w.
    pub fn first(plan: &Plan, weights: Vec<f32>) -> Self {
        Self {
            round: 0,
            outer: plan.config().outer.fresh(weights.len()),
            weights,
            average: AverageState::default(),
            clipping: ScheduleState::default(),
            step: ScheduleState::default(),
            version: 0,
        }
    }
}

/// A run of Algorithm 1.
///
/// # Guarantee
///
/// The plan is the ledger's. Every round is charged before anything of it is computed; the batch is drawn,
/// the results are clipped and the noise is scaled as the plan's `Mechanism` says, whatever the model, the
/// inner algorithm, the schedules, the outer optimizer and received models do. A round draws its noise once:
/// its number is spent as soon as it is charged, even if the model then fails.
pub struct Trainer<M: Model, L: Charge> {
    ledger: L,
    plan: Arc<Plan>,
    model: Arc<M>,
    randomness: Randomness,
    pool: Option<ThreadPool>,
    groups: Groups<M::Worker>,
    sampler: Sampler,
    interrupt: Interrupt,
    /// How often the groups of a round may be begun again from a newer model.
    restarts: u32,
    state: TrainerState,
    /// Ū/m of the last round.
    update: Vec<f32>,
    /// ‖Ū/m‖² of each block.
    squares: Vec<f64>,
    diagnostics: Diagnostics,
}

/// The settings of one round.
struct Setting {
    position: Position,
    eta: f64,
    bound: f64,
    divisor: f64,
}

/// What a round computed from private data, beside the update.
struct Private {
    samples: u64,
    counts: Counts,
    losses: Losses,
}

impl<M: Model, L: Charge> Trainer<M, L> {
    /// A run from its first round with the given initial w, by the plan of the ledger.
    pub fn new(
        ledger: L,
        model: Arc<M>,
        weights: Vec<f32>,
        randomness: Randomness,
    ) -> Result<Self, TrainerError> {
        let spent = ledger.spent();
        if spent > 0 {
            return Err(TrainerError::State(format!(
                "a new run has charged nothing, this one {spent} rounds; resume it from its checkpoint"
            )));
        }
        let state = TrainerState::first(ledger.plan(), weights);
        Self::with_state(ledger, model, state, randomness)
    }

    /// Continues from a saved state at the first round that the ledger has not charged.
    ///
    /// Rounds that were charged after the state was saved are lost and skipped. For shuffling and allocation
    /// a begun epoch is skipped to its end; see
    /// [`Mechanism::resume_at`](dpsgd_privacy::mechanism::Mechanism::resume_at). `randomness` must be
    /// fresh: from the system, or from the seed with the number of continuations raised by one.
    pub fn resume(
        ledger: L,
        model: Arc<M>,
        mut state: TrainerState,
        randomness: Randomness,
    ) -> Result<Self, TrainerError> {
        let (plan, next) = (ledger.plan(), ledger.spent());
        if next < state.round || next > plan.rounds() {
            return Err(TrainerError::State(format!(
                "it was saved after {} rounds, {next} are charged, the plan has {}",
                state.round,
                plan.rounds(),
            )));
        }
        state.round = plan.mechanism().resume_at(next);
        Self::with_state(ledger, model, state, randomness)
    }

    fn with_state(
        ledger: L,
        model: Arc<M>,
        mut state: TrainerState,
        randomness: Randomness,
    ) -> Result<Self, TrainerError> {
        let plan = ledger.plan().clone();
        let dimension = model.dimension();
        check_weights("the initial model", &state.weights, dimension)?;
        let samples = check_samples(&plan, model.samples())?;
        state.outer.fit(&plan.config().outer, dimension)?;
        for (_, values) in &state.outer.vectors {
            check_weights("a vector of the outer optimizer", values, dimension)?;
        }
        if let Some(values) = state.average.values() {
            check_weights("the average of the iterates", values, dimension)?;
        }
        for factor in [state.clipping.factor, state.step.factor] {
            if !(factor > 0.0 && factor.is_finite()) {
                return Err(TrainerError::State(format!("a schedule's factor is {factor}")));
            }
        }
        let kind = |private: bool| if private { "private" } else { "seeded" };
        if let Some(private) = ledger.private()
            && private != randomness.is_private()
        {
            return Err(TrainerError::Randomness {
                ledger: kind(private),
                given: kind(randomness.is_private()),
            });
        }
        Ok(Self {
            groups: Groups::new(&plan, &model)?,
            pool: pool(plan.threads())?,
            ledger,
            plan,
            model,
            randomness,
            sampler: Sampler::new(samples),
            interrupt: Interrupt::new(dimension, state.version),
            restarts: 0,
            update: vec![0.0; dimension],
            squares: vec![0.0; dimension.div_ceil(BLOCK)],
            state,
            diagnostics: Diagnostics::default(),
        })
    }

    /// Performs the next round: charge, sample, group results, clip, sum, noise, update.
    ///
    /// An empty batch (Poisson sampling, allocation, filter) is a round like any other: its noise is added,
    /// charged and released, because whether it was empty is private.
    pub fn round(&mut self) -> Result<Round<'_>, RoundError<L::Error>> {
        Ok(self.begin()?.finish())
    }

    /// The first half of the next round: charge, sample, group results, clip, sum. [`Begun::finish`] is the
    /// second. Between them a client may wait, so that the moment at which its update leaves says nothing
    /// about how long the groups took.
    pub fn begin(&mut self) -> Result<Begun<'_, M, L>, RoundError<L::Error>> {
        let began = Instant::now();
        let round = self.state.round;
        if self.finished() {
            return Err(RoundError::Finished { rounds: self.plan.rounds() });
        }
        if !self.randomness.is_of_this_process() {
            return Err(RoundError::Forked);
        }
        self.ledger.charge(round).map_err(|source| RoundError::Refused { round, source })?;
        self.state.round += 1;

        let setting = self.setting(round);
        let (mut restarts, mut discarded) = (0, Duration::ZERO);
        let private = loop {
            let attempt = Instant::now();
            receive(&self.interrupt, &mut self.state);
            match self.sum_groups(&setting, restarts < self.restarts) {
                Ok(private) => break private,
                Err(Halt::Interrupted) => {
                    restarts += 1;
                    discarded += attempt.elapsed();
                }
                Err(Halt::Model(source)) => return Err(RoundError::Model { round, source }),
            }
        };
        let base = self.state.version;
        Ok(Begun { trainer: self, setting, base, private, began, restarts, discarded })
    }

    /// Lets a model that arrives while groups are computed begin them again: the same batch, from the new w,
    /// at most `limit` times a round, so that nobody can keep a client from finishing. With 0, the default, the
    /// round is finished first.
    ///
    /// # Guarantee
    ///
    /// Nothing of the groups that were given up has left, the batch is the same, and the noise is drawn once,
    /// at the end: what leaves is a round of Algorithm 1 from one w that its observer chose. It is refused where
    /// the size of a batch is private: whether a round was begun again would depend on how long it took, and
    /// that on its size.
    pub fn restart_up_to(&mut self, limit: u32) -> Result<(), TrainerError> {
        let random = self.plan.mechanism().phases().iter().any(Phase::has_private_size);
        if limit > 0 && random {
            return Err(TrainerError::State(
                "a round whose batch size is private (poisson, allocate, filter) cannot be restarted by a new \
                 model: whether it was would tell how large the batch is; let it finish"
                    .to_string(),
            ));
        }
        self.restarts = limit;
        Ok(())
    }

    /// η, C and the divisor of a round.
    fn setting(&self, round: u64) -> Setting {
        let config = self.plan.config();
        let (position, rounds) = (self.plan.position(round), self.plan.rounds());
        let bound = config.clipping.value(&self.state.clipping, round, position.epoch, rounds);
        Setting {
            eta: config.step.value(&self.state.step, round, position.epoch, rounds),
            // A diminishing C must stay where single precision is safe.
            bound: bound.clamp(crate::plan::BOUND_RANGE.0, crate::plan::BOUND_RANGE.1),
            divisor: self.plan.divisor(&position),
            position,
        }
    }

    /// U of a round, from the w of now. If the model fails, w and the last update stay what they were.
    fn sum_groups(&mut self, setting: &Setting, may_restart: bool) -> Result<Private, Halt> {
        let config = self.plan.config();
        let position = &setting.position;
        let phase = self.plan.phase(position);
        let batch: Batch<'_> = self.sampler.batch(&self.plan, position, &self.randomness);
        let work = Work {
            weights: &self.state.weights,
            batch,
            inner: config.inner.at(position.round, position.round_of_epoch),
            kind: config.result,
            hook: config.hook.as_ref(),
            bound: setting.bound,
            separable: self.model.separable(),
            random: self.model.is_random(),
            independent_groups: phase.independent_groups(),
            randomness: &self.randomness,
            round: position.round,
            watched: may_restart.then_some(&self.interrupt),
        };
        let (sum, losses) = self.groups.sum(&work, self.model.form(), self.pool.as_ref())?;
        Ok(Private { samples: batch.samples.len() as u64, counts: sum.counts(), losses })
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
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// The model.
    pub fn model(&self) -> &Arc<M> {
        &self.model
    }

    /// The ledger.
    pub fn ledger(&self) -> &L {
        &self.ledger
    }

    /// The ledger, to finish it or to change how far ahead it charges.
    pub fn ledger_mut(&mut self) -> &mut L {
        &mut self.ledger
    }

    /// Ends the trainer and gives its ledger back.
    pub fn into_ledger(self) -> L {
        self.ledger
    }

    /// Whether the run's randomness is private; if not, every output must say so.
    pub fn is_private(&self) -> bool {
        self.randomness.is_private()
    }

    /// w.
    pub fn weights(&self) -> &[f32] {
        &self.state.weights
    }

    /// The average of the iterates that the plan asks for; none before its first iterate.
    pub fn average(&self) -> Option<&[f32]> {
        self.state.average.values()
    }

    /// Takes note of the accuracy on a **public** test set after an epoch, for the schedules that
    /// read it. An accuracy on private data must never come here.
    pub fn saw_accuracy(&mut self, accuracy: f64) {
        let config = self.plan.config();
        config.clipping.saw_accuracy(&mut self.state.clipping, accuracy);
        config.step.saw_accuracy(&mut self.state.step, accuracy);
    }

    /// Hands over a newly received global model between rounds; see [`Interrupt::replace`].
    pub fn replace(&mut self, version: u64, weights: Vec<f32>) -> Result<Received, TrainerError> {
        let received = self.interrupt.replace(version, weights)?;
        receive(&self.interrupt, &mut self.state);
        Ok(received)
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

/// Makes a received model w, if there is one.
fn receive(interrupt: &Interrupt, state: &mut TrainerState) {
    if let Some((version, weights)) = interrupt.take() {
        state.weights = weights;
        state.version = version;
    }
}

/// The threads, where there is more than one.
fn pool(threads: usize) -> Result<Option<ThreadPool>, TrainerError> {
    if threads == 1 {
        return Ok(None);
    }
    let builder = ThreadPoolBuilder::new().num_threads(threads).thread_name(|index| format!("dpsgd-{index}"));
    let pool = builder.build();
    pool.map(Some).map_err(|error| TrainerError::Threads { threads, reason: error.to_string() })
}

fn check_samples(plan: &Plan, given: usize) -> Result<u32, TrainerError> {
    let samples = match u32::try_from(given) {
        Ok(samples) if samples > 0 => samples,
        _ => return Err(TrainerError::SampleNames { given }),
    };
    for phase in plan.mechanism().phases() {
        if let Some(expected) = phase.sampling().population()
            && expected != u64::from(samples)
        {
            return Err(TrainerError::Samples { given, expected });
        }
    }
    Ok(samples)
}
