//! Everything about a run: what the user wrote ([`PlanConfig`]), checked once, is a [`Plan`], and only a
//! plan can run.
//!
//! Sizes, sampling, noise, filter and length come from the checked [`Mechanism`] and from nowhere
//! else, so the trainer runs what the accountant accounted for.

mod written;

use dpsgd_privacy::mechanism::{Divisor, EpochDraw, Independent, Mechanism, Phase};

use crate::average::Average;
use crate::clip::MOST_GROUPS;
use crate::error::{PlanError, within};
use crate::hook::Hook;
use crate::inner::{GroupResult, Inner, InnerSequence};
use crate::noise::NoiseKind;
use crate::outer::{Outer, OuterOptimizer};
use crate::schedule::Schedule;

/// The smallest and largest C: within it single precision neither under- nor overflows.
pub const BOUND_RANGE: (f64, f64) = (1e-6, 1e6);
/// The largest total number of rounds.
pub const MOST_ROUNDS: u64 = 1 << 48;
/// The most threads.
pub const MOST_THREADS: usize = 1024;

/// A run as the user wrote it.
#[derive(Clone, Debug)]
pub struct PlanConfig {
    /// The checked mechanism: N, m, s, sampling, σ, filter and length.
    pub mechanism: Mechanism,
    /// One entry per phase: what the noised sum is divided by where the size of a batch is private (Poisson
    /// sampling, random allocation), a public constant, usually a guess of the number of samples a round.
    /// Must be `None` for the other samplers, where it is m (also with the filter: halving it as well would
    /// be a factor in η).
    pub divisors: Vec<Option<f64>>,
    /// The inner algorithms {A_b}.
    pub inner: InnerSequence,
    /// What a group's result is.
    pub result: GroupResult,
    /// C by round.
    pub clipping: Schedule,
    /// η by round.
    pub step: Schedule,
    /// The optimizer that receives the noised update.
    pub outer: Outer,
    /// λ of w ← (1 − ηλ)·w before each step of the outer optimizer; 0 for none.
    pub weight_decay: f64,
    /// The average of the iterates that is kept beside w.
    pub average: Average,
    /// How the noise is drawn.
    pub noise: NoiseKind,
    /// The post-processing B.
    pub hook: Option<Hook>,
    /// Whether to keep diagnostics, which are computed from private data and not covered by the
    /// guarantee; see [`crate::Diagnostics`].
    pub diagnostics: bool,
    /// Threads; 0 for as many as the machine has. The result does not depend on it.
    pub threads: usize,
}

impl PlanConfig {
    /// Algorithm 1 with mean gradients, constant C and η and nothing else.
    pub fn new(mechanism: Mechanism, clipping: f64, step: f64) -> Self {
        Self {
            divisors: vec![None; mechanism.phases().len()],
            mechanism,
            inner: Inner::Gradient.into(),
            result: GroupResult::default(),
            clipping: Schedule::constant(clipping),
            step: Schedule::constant(step),
            outer: Outer::Plain,
            weight_decay: 0.0,
            average: Average::None,
            noise: NoiseKind::Exact,
            hook: None,
            diagnostics: false,
            threads: 0,
        }
    }

    /// The same with a public constant as the divisor of every phase that needs one.
    pub fn with_divisor(mut self, divisor: f64) -> Self {
        let of = |phase: &Phase| match phase.sampling().divisor() {
            Divisor::PublicConstant => Some(divisor),
            Divisor::Groups(_) => None,
        };
        self.divisors = self.mechanism.phases().iter().map(of).collect();
        self
    }

    /// Checks everything once.
    pub fn check(&self) -> Result<Plan, PlanError> {
        self.check_sizes()?;
        self.check_divisors()?;
        let rounds = self.check_rounds()?;
        self.inner.check()?;
        let (lowest, highest) = BOUND_RANGE;
        self.clipping.check("clip", lowest, highest, true)?;
        self.step.check("step", 1e-12, 1e6, false)?;
        self.outer.check()?;
        self.average.check()?;
        let most = (1.0 / self.step.start).min(1e6);
        within("weight-decay", self.weight_decay, 0.0, most, "a step must not turn w around: at most 1/η")?;
        if let Some(hook) = &self.hook {
            within("hook-bound", hook.bound(), lowest, highest, "the argument of B is clipped to it")?;
        }
        let threads = self.resolve_threads()?;
        let mut stretches = Vec::new();
        let (mut first_round, mut first_epoch) = (0, 0);
        for &phase in self.mechanism.phases() {
            // At least 1: a checked batch has at most N samples, a checked rate is at most 1, and a checked
            // allocation has a round.
            let rounds_per_epoch = phase.sampling().rounds_per_epoch().max(1);
            stretches.push(Stretch { phase, first_round, first_epoch, rounds_per_epoch });
            first_round += phase.rounds();
            first_epoch += phase.rounds().div_ceil(rounds_per_epoch);
        }
        Ok(Plan { config: Self { threads, ..self.clone() }, rounds, epochs: first_epoch, stretches })
    }

    /// N and m are what the trainer can handle, and N is the same in every phase.
    fn check_sizes(&self) -> Result<(), PlanError> {
        let mut samples = None;
        for phase in self.mechanism.phases() {
            if let Some(groups) = phase.sampling().groups()
                && groups > MOST_GROUPS
            {
                return Err(PlanError::new(
                    "groups",
                    groups,
                    format!("at most {MOST_GROUPS}"),
                    "the sensitivity of the rounded sum is proved up to there; make the groups larger",
                ));
            }
            if let Independent::Epochs(EpochDraw::Allocation { rounds, cells }) =
                phase.sampling().independent()
                && rounds.saturating_mul(cells.unwrap_or(1)) > u64::from(u32::MAX)
            {
                return Err(PlanError::new(
                    "rounds-per-epoch",
                    rounds,
                    format!("at most {} rounds or cells", u32::MAX),
                    "what samples draw is named by 32 bits",
                ));
            }
            let Some(n) = phase.sampling().population() else { continue };
            if n > u64::from(u32::MAX) {
                return Err(PlanError::new(
                    "samples",
                    n,
                    format!("at most {}", u32::MAX),
                    "samples are named by 32 bits",
                ));
            }
            if *samples.get_or_insert(n) != n {
                return Err(PlanError::new(
                    "samples",
                    n,
                    "the same in every phase",
                    "the phases of a run train on one data set",
                ));
            }
        }
        Ok(())
    }

    /// Every phase whose batches have a private size has a public divisor, and no other phase has one.
    fn check_divisors(&self) -> Result<(), PlanError> {
        let phases = self.mechanism.phases();
        if self.divisors.len() != phases.len() {
            return Err(PlanError::new(
                "divisors",
                format!("{} entries", self.divisors.len()),
                format!("{}, one for every phase", phases.len()),
                "each phase with poisson or allocate sampling is divided by its own public constant, the \
                 others by m",
            ));
        }
        for (phase, divisor) in phases.iter().zip(&self.divisors) {
            match (phase.sampling().divisor(), divisor) {
                (Divisor::Groups(_), None) => {}
                (Divisor::Groups(_), Some(_)) => {
                    return Err(PlanError::new(
                        "divisor",
                        "given",
                        "poisson or allocate sampling only",
                        "the other samplers divide by m",
                    ));
                }
                (Divisor::PublicConstant, Some(divisor)) => {
                    within("divisor", *divisor, 1e-3, 1e12, "the noised sum is divided by it")?;
                }
                (Divisor::PublicConstant, None) => {
                    return Err(PlanError::new(
                        "divisor",
                        "none",
                        "a public constant",
                        "the number of samples of a round is private and must not divide",
                    ));
                }
            }
        }
        Ok(())
    }

    /// T.
    fn check_rounds(&self) -> Result<u64, PlanError> {
        let phases = self.mechanism.phases();
        match phases.iter().try_fold(0u64, |sum, phase| sum.checked_add(phase.rounds())) {
            Some(rounds) if rounds <= MOST_ROUNDS => Ok(rounds),
            _ => Err(PlanError::new(
                "rounds",
                "the sum over all phases",
                format!("at most {MOST_ROUNDS}"),
                "every round names random streams of its own",
            )),
        }
    }

    fn resolve_threads(&self) -> Result<usize, PlanError> {
        match self.threads {
            0 => Ok(std::thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS)),
            threads if threads > MOST_THREADS => Err(PlanError::new(
                "threads",
                threads,
                format!("at most {MOST_THREADS}, or 0 for as many as there are"),
                "every thread keeps gradients of its own",
            )),
            threads => Ok(threads),
        }
    }
}

/// A phase with its place in the run.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    phase: Phase,
    first_round: u64,
    first_epoch: u64,
    rounds_per_epoch: u64,
}

/// Where a round is, everything counted from 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Position {
    /// The round of the run.
    pub round: u64,
    /// The phase's number.
    pub phase: usize,
    /// The epoch of the run; an epoch that a phase breaks off counts as one.
    pub epoch: u64,
    /// b, the round of its epoch.
    pub round_of_epoch: u64,
    /// One past the last round of the epoch (of the phase, if it breaks the epoch off).
    pub epoch_end: u64,
}

/// A checked run. See the module documentation.
#[derive(Clone, Debug)]
pub struct Plan {
    config: PlanConfig,
    rounds: u64,
    epochs: u64,
    stretches: Vec<Stretch>,
}

impl Plan {
    /// What was checked, with the number of threads resolved.
    pub fn config(&self) -> &PlanConfig {
        &self.config
    }

    /// The mechanism the guarantee is for.
    pub fn mechanism(&self) -> &Mechanism {
        &self.config.mechanism
    }

    /// T, the rounds of all phases.
    pub fn rounds(&self) -> u64 {
        self.rounds
    }

    /// The epochs of all phases, broken-off ones included.
    pub fn epochs(&self) -> u64 {
        self.epochs
    }

    /// The threads that will work.
    pub fn threads(&self) -> usize {
        self.config.threads
    }

    /// Where a round is; the last round's place for any later one.
    pub fn position(&self, round: u64) -> Position {
        let round = round.min(self.rounds - 1);
        // The first stretch begins at round 0, so at least one is found.
        let phase = self.stretches.partition_point(|stretch| stretch.first_round <= round) - 1;
        let stretch = &self.stretches[phase];
        let of_phase = round - stretch.first_round;
        let epoch = of_phase / stretch.rounds_per_epoch;
        let end = (epoch + 1).saturating_mul(stretch.rounds_per_epoch).min(stretch.phase.rounds());
        Position {
            round,
            phase,
            epoch: stretch.first_epoch + epoch,
            round_of_epoch: of_phase % stretch.rounds_per_epoch,
            epoch_end: stretch.first_round + end,
        }
    }

    /// The phase of a position.
    pub fn phase(&self, position: &Position) -> &Phase {
        &self.stretches[position.phase].phase
    }

    /// What the noised sum of a position's phase is divided by: m, or the public constant of Poisson
    /// sampling and random allocation. Never a number that depends on the data.
    pub fn divisor(&self, position: &Position) -> f64 {
        match self.phase(position).sampling().divisor() {
            Divisor::Groups(groups) => groups as f64,
            // `check` has refused a plan without it.
            Divisor::PublicConstant => self.config.divisors[position.phase].unwrap_or(1.0),
        }
    }

    /// The largest group size of all phases.
    pub fn largest_group(&self) -> usize {
        let size = |phase: &Phase| phase.sampling().group_size() as usize;
        self.mechanism().phases().iter().map(size).max().unwrap_or(1)
    }
}
