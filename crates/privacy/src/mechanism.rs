//! One checked description of a run, read by the sampler, the noise, the ledger and every
//! accountant alike, so that they cannot disagree.
//!
//! [`RunConfig`] holds what a user wrote; [`RunConfig::check`] turns it into a [`Mechanism`] or
//! says what was given, what is allowed and why. Only a `Mechanism` can be accounted for.
//! Everything about a sampler is in [`Sampling`].

mod config;
mod kind;
mod neighbours;
mod phase;
mod run;
mod sampling;
mod written;

use std::fmt;

pub use config::{Length, NoiseScale, PhaseConfig, RunConfig};
pub use kind::SamplingKind;
pub use neighbours::Neighbours;
pub use phase::Phase;
pub use run::Mechanism;
pub use sampling::{
    BatchSize, Blind, Divisor, Draw, EpochDraw, FixedSizes, Independent, PaperForms, RoundDraw, Sampling,
};

/// Why a description of a run was refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[error("{name} = {given}: {allowed} ({why})")]
pub struct MechanismError {
    /// The setting, named as on the command line.
    pub name: &'static str,
    /// What was given.
    pub given: String,
    /// What is allowed.
    pub allowed: String,
    /// The reason.
    pub why: String,
}

/// The largest number of differing samples; the cost of the law of c grows with it.
pub const MOST_DIFFERING: u64 = 512;
/// The largest N: every integer up to it is an exact `f64`.
pub const MOST_SAMPLES: u64 = 1 << 53;
/// The largest T of a phase: beyond it the rounding of one round's moment, times T, would drown the result.
pub const MOST_ROUNDS: u64 = 1_000_000_000_000;
/// The smallest and largest σ.
pub const SIGMA_RANGE: (f64, f64) = (0.05, 1e5);

fn refuse<T>(
    name: &'static str,
    given: impl fmt::Display,
    allowed: impl Into<String>,
    why: impl Into<String>,
) -> Result<T, MechanismError> {
    Err(MechanismError { name, given: given.to_string(), allowed: allowed.into(), why: why.into() })
}
