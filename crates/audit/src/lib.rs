//! Attacks the trainer and compares what it finds with what is claimed about it.
//!
//! The production sampler, clip, noise and rounds ([`dpsgd_train::Trainer`]) run many times on worst-case
//! neighbouring data; the best test of each adversary tells the two data sets apart as well as it can, and
//! its error rates are compared with the claimed trade-off function. Named checks look at the parts one by
//! one.
//!
//! # Guarantee
//!
//! A right implementation is contradicted with probability at most [`level::WHOLE`] = 1e-6 for the whole
//! audit. What is not contradicted is not thereby proved: see `docs/theory.md`, "What the audit can and
//! cannot show".
//!
//! | module | what it holds |
//! |---|---|
//! | [`mechanism`] | the audit of a plan |
//! | [`pair`] | the worst-case neighbouring data |
//! | [`shortened`] | the run that is short enough to be repeated |
//! | [`promised`] | how much noise there has to be |
//! | [`trial`] | one run of it |
//! | [`subject`] | a model of somebody else's in the place of ours |
//! | [`likelihood`] | what the adversaries make of a run |
//! | [`claim`] | the claimed trade-off function, by its supporting lines |
//! | [`attack`] | the measured trade-off beside the claimed one |
//! | [`tally`], [`checks`] | the named checks |
//! | [`binomial`] | exact tails and confidence limits |
//! | [`level`] | how the false-alarm rate is divided |
//! | [`canaries`], [`one_run`], [`recursion`] | canaries in one training run, and what they prove |

mod asked;
pub mod attack;
pub mod binomial;
pub mod canaries;
pub mod checks;
pub mod claim;
pub mod level;
pub mod likelihood;
pub mod mechanism;
pub mod one_run;
pub mod pair;
pub mod probe;
pub mod promised;
pub mod recursion;
pub mod shortened;
pub mod subject;
pub mod tally;
pub mod trial;

pub use attack::{Attack, AttackPoint};
pub use checks::{Check, Verdict};
pub use mechanism::{Audit, Effort, Options, audit, audit_against, audit_model, audit_phases};
pub use subject::Subject;
pub use trial::Server;

use std::convert::Infallible;

use dpsgd_privacy::PrivacyError;
use dpsgd_privacy::mechanism::MechanismError;
use dpsgd_train::ledger::LedgerError;
use dpsgd_train::{ModelError, NoEntropy, PlanError, RoundError, TrainerError};

/// Why a plan was not audited.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuditError {
    /// Several phases.
    #[error("the run has {0} phases: audit them one by one, each as a run of its own (`audit_phases`)")]
    Phases(usize),
    /// An algorithm of the user's own that adds something where no sample has a gradient.
    #[error(
        "the inner algorithm {0} moves coordinates in which every gradient is zero: the audit reads the \
         noise off such coordinates, so it cannot run on this algorithm"
    )]
    MovesWithoutGradient(String),
    /// Too few trials to say anything.
    #[error("trials = {given}: at least {least} on each of the two data sets (fewer cannot show anything)")]
    Trials {
        /// What was given.
        given: u64,
        /// What is needed.
        least: u64,
    },
    /// The mechanism to be run was refused.
    #[error(transparent)]
    Mechanism(#[from] MechanismError),
    /// The plan to be run was refused.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The trainer refused.
    #[error(transparent)]
    Trainer(#[from] TrainerError),
    /// A round was not performed.
    #[error(transparent)]
    Round(#[from] RoundError<Infallible>),
    /// The claim could not be computed.
    #[error(transparent)]
    Claim(#[from] PrivacyError),
    /// The model of a [`Subject`] could not be made.
    #[error(transparent)]
    Subject(ModelError),
    /// The ledger could not be written.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// No key.
    #[error(transparent)]
    Entropy(#[from] NoEntropy),
    /// The threads could not be started.
    #[error("could not start {0} threads: {1}")]
    Threads(usize, String),
}
