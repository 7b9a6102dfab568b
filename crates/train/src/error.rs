//! Why a plan or a trainer was refused.

use std::error::Error;
use std::fmt;

use crate::model::ModelError;

/// A setting of a plan was refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[error("{name} = {given}: {allowed} ({why})")]
pub struct PlanError {
    /// The setting.
    pub name: &'static str,
    /// What was given.
    pub given: String,
    /// What is allowed.
    pub allowed: String,
    /// The reason.
    pub why: String,
}

impl PlanError {
    pub(crate) fn new(
        name: &'static str,
        given: impl fmt::Display,
        allowed: impl Into<String>,
        why: impl Into<String>,
    ) -> Self {
        Self { name, given: given.to_string(), allowed: allowed.into(), why: why.into() }
    }
}

/// Refuses a value outside an interval (and NaN).
pub(crate) fn within(
    name: &'static str,
    value: f64,
    lowest: f64,
    highest: f64,
    why: &str,
) -> Result<(), PlanError> {
    if value >= lowest && value <= highest {
        return Ok(());
    }
    // 0.99999 as it is, 0.000001 and 1000000 as powers of ten.
    let shown = |x: f64| if x == 0.0 || (1e-5..1e5).contains(&x) { x.to_string() } else { format!("{x:e}") };
    Err(PlanError::new(name, value, format!("between {} and {}", shown(lowest), shown(highest)), why))
}

/// A plan, a ledger, a model and parameters that do not fit together.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainerError {
    /// The model has another number of samples than the mechanism was accounted for.
    #[error(
        "the data has {given} samples, the mechanism says {expected}: the guarantee would be for another run"
    )]
    Samples {
        /// N of the model.
        given: usize,
        /// N of the mechanism.
        expected: u64,
    },
    /// More samples than a 32-bit name can tell apart, or none.
    #[error("the data has {given} samples: at least 1 and at most 4294967295 are possible")]
    SampleNames {
        /// N of the model.
        given: usize,
    },
    /// A vector of parameters of the wrong length.
    #[error("{what} has {given} values, the model has {expected} parameters")]
    Dimension {
        /// Which vector.
        what: &'static str,
        /// Its length.
        given: usize,
        /// d.
        expected: usize,
    },
    /// A parameter that is not a number.
    #[error("{what} holds a value that is not finite: training cannot start from it")]
    NotFinite {
        /// Which vector.
        what: &'static str,
    },
    /// A saved state of another plan.
    #[error("the saved state is not one of this plan: {0}")]
    State(String),
    /// The ledger says one thing about the randomness of the run, and the run does another.
    #[error(
        "the ledger says that the run's randomness is {ledger}, and it is {given}: what the ledger states \
         would be wrong; begin the ledger with the kind of randomness that the run uses"
    )]
    Randomness {
        /// What the ledger says.
        ledger: &'static str,
        /// What was given.
        given: &'static str,
    },
    /// The model cannot be trained with this plan.
    #[error("{0}")]
    Model(#[from] ModelError),
    /// The thread pool could not be made.
    #[error("could not start {threads} threads: {reason}; ask for fewer")]
    Threads {
        /// How many were asked for.
        threads: usize,
        /// What the system said.
        reason: String,
    },
}

/// Why a round gave no update.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RoundError<E: Error + 'static> {
    /// Every round of the plan has been performed or passed over.
    #[error("all {rounds} rounds of the plan are spent")]
    Finished {
        /// T.
        rounds: u64,
    },
    /// The process was forked: two of them hold the key, and both would draw the same noise.
    #[error(
        "this process is a copy of the one that began the run, and both would draw the same noise; resume \
         from the run's checkpoint"
    )]
    Forked,
    /// The round could not be charged; nothing was computed from the data.
    #[error("round {round} was not charged and not performed: {source}")]
    Refused {
        /// The round.
        round: u64,
        /// What the ledger said.
        source: E,
    },
    /// The model failed after the round was charged. The round stays spent, w is what it was before, nothing
    /// has left, and the next round may be performed.
    #[error("round {round} is spent without an update, because the model failed: {source}")]
    Model {
        /// The round.
        round: u64,
        /// What the model said; it may quote private data.
        source: ModelError,
    },
}
