//! What a run of differentially private SGD leaks: the checked description of the run, the exact law
//! of its exposure, trade-off functions for two adversaries, and certified guarantees.
//!
//! Pure mathematics: `f64` in, certified [`Interval`]s out, no I/O, no machine learning.
//!
//! ```
//! use dpsgd_privacy::{Adversary, Curve, adversary, mechanism::*};
//!
//! // The paper's setting: MNIST, subsampled batches of 64, individual clipping, σ = 2.
//! let run = RunConfig::single(PhaseConfig {
//!     sampling: Sampling::Subsample { samples: 60_000, groups: 64, group_size: 1 },
//!     length: Length::Epochs(100),
//!     noise: NoiseScale::Sigma(2.0),
//!     filtered: false,
//! });
//! let mechanism = run.check()?;
//!
//! // Against an adversary who knows which samples were drawn, and against one who does not.
//! let strong = adversary::curve(&mechanism, Adversary::A1)?;
//! let blind = adversary::curve(&mechanism, Adversary::A0)?;
//! assert!((strong.epsilon(1e-5)?.upper - 35.01).abs() < 0.01);
//! assert!((blind.epsilon(1e-5)?.upper - 0.745).abs() < 0.001);
//!
//! // The best attack on the second with 1 % false alarms misses at least 98.3 % of the time.
//! assert!(blind.beta(0.01)?.lower > 0.983);
//! # Ok::<(), dpsgd_privacy::PrivacyError>(())
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`mechanism`] | the one description of a run, checked once, and everything about its sampler |
//! | [`exposure`] | the exact law of c that the sampler induces |
//! | [`adversary`] | the trade-off function against A₀ and A₁ |
//! | [`curve`] | δ(ε), ε(δ), f(α), µ from a trade-off function |
//! | [`account`] | everything that can be said about a run, as a value |
//! | [`budget`] | what the rounds so far have spent, and how many rounds a budget affords |
//! | [`calibrate`] | the smallest σ, the largest E or m for a target |
//! | [`conversions`] | Rényi and concentrated DP |
//! | [`group`] | groups of samples from the g = 1 curve |
//! | [`selection`] | the best of a random number of runs |
//! | [`bounds`] | f^L and f^U of the paper with exact tails |
//! | [`printed`] | the paper's closed forms beside the exact values |
//! | [`shuffle_bound`] | what no analysis of shuffling can beat |
//! | [`gaussian`], [`mixture`], [`normal`], [`interval`] | their building blocks |
//!
//! A [`Mechanism`](mechanism::Mechanism), an [`Account`] and their parts can be read and written
//! with `serde`; a mechanism that is read passes the same check as one built in code.

pub mod account;
pub mod adversary;
pub mod allocation;
pub mod bounds;
pub mod budget;
pub mod calibrate;
pub mod conversions;
pub mod curve;
pub mod error;
pub mod exposure;
pub mod gaussian;
pub mod group;
pub mod interval;
mod loss;
pub mod mechanism;
pub mod mixture;
pub mod normal;
mod number;
pub mod printed;
pub mod selection;
pub mod shuffle_bound;
mod version;

/// The example of the README is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use account::Account;
pub use adversary::Adversary;
pub use budget::Budget;
pub use curve::Curve;
pub use error::PrivacyError;
pub use interval::Interval;
