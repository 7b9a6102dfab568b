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
//!     noise: Noise::Sigma(2.0),
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
//! | [`mechanism`] | the one description of a run, checked once |
//! | [`exposure`] | the exact law of c that the sampler induces |
//! | [`adversary`] | the trade-off function against A₀ and A₁ |
//! | [`curve`] | δ(ε), ε(δ), f(α), µ from a trade-off function |
//! | [`bounds`] | f^L and f^U of the paper with exact tails |
//! | [`currency`] | Rényi, concentrated DP |
//! | [`group`] | groups of samples from the g = 1 curve |
//! | [`calibrate`] | the smallest σ, the largest E or m for a target |
//! | [`printed`] | the paper's closed forms beside the exact values |
//! | [`shuffle_bound`] | what no analysis of shuffling can beat |

pub mod adversary;
pub mod bounds;
pub mod calibrate;
pub mod currency;
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
pub mod printed;
pub mod shuffle_bound;

pub use adversary::Adversary;
pub use curve::Curve;
pub use error::PrivacyError;
pub use interval::Interval;
