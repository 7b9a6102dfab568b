//! The Gaussian noise N(0, (2Cσ)²) on every coordinate of the clipped sum.
//!
//! # Guarantee
//!
//! The scale of the noise is at least σ times what the [`ClippedSum`] itself states
//! as its sensitivity; there is no other way to make it. Every round has its own ChaCha20 stream
//! and every block of [`BLOCK`] coordinates its own stretch of it, so no bit serves two
//! coordinates, rounds or threads, and the noise does not depend on the number of threads.
//!
//! There are two kinds. [`exact`] noise is drawn so that what leaves a round is a function of the real
//! Gaussian mechanism, with nothing left to floating point: the default. [`fast`] noise is single precision.

pub mod exact;
pub mod fast;
mod refine;

pub use self::fast::standard_normals;

use serde::{Deserialize, Serialize};

use self::exact::Exact;
use crate::clip::ClippedSum;
use crate::fault::{self, Fault};
use crate::randomness::Randomness;

/// Coordinates a block; even.
pub const BLOCK: usize = 2048;

/// How the noise is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum NoiseKind {
    /// The rounded Gaussian, drawn exactly; see [`exact`].
    #[default]
    Exact,
    /// Single-precision normals; see [`fast`].
    Fast,
}

impl NoiseKind {
    /// The name in settings and statements.
    pub fn name(self) -> &'static str {
        match self {
            NoiseKind::Exact => "exact",
            NoiseKind::Fast => "fast",
        }
    }

    /// What the guarantee of a run with this noise covers.
    pub fn covers(self) -> &'static str {
        match self {
            NoiseKind::Exact => {
                "exact: the sum is rounded to a grid, whose share of the sensitivity is counted, and the \
                 noise is a real Gaussian rounded to that grid without error; the guarantee holds for the \
                 numbers that leave, given that ChaCha20 cannot be told from random"
            }
            NoiseKind::Fast => {
                "fast: single-precision normals, rounded to a grid of 2⁻¹⁸ deviations; the guarantee is that \
                 of the real Gaussian, which floating point only approximates (attacks on its last bits are \
                 impractical here, not excluded)"
            }
        }
    }
}

/// The noise of one round.
#[derive(Clone, Copy, Debug)]
pub struct RoundNoise<'a> {
    randomness: &'a Randomness,
    round: u64,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Exact(Exact),
    /// With this deviation.
    Fast(f64),
}

impl<'a> RoundNoise<'a> {
    /// The noise that belongs to a clipped sum: N(0, (sensitivity·σ)²), for exact noise with the sensitivity
    /// of the sum on its grid.
    pub fn of(kind: NoiseKind, sum: &ClippedSum, sigma: f64, randomness: &'a Randomness, round: u64) -> Self {
        let sensitivity = match sum.sensitivity() {
            _ if fault::injected(Fault::SigmaForSensitivity) => sigma,
            sensitivity if fault::injected(Fault::NoiseHalved) => 0.5 * sensitivity,
            sensitivity => sensitivity,
        };
        let round = if fault::injected(Fault::NoiseReused) { round & !1 } else { round };
        let kind = match kind {
            NoiseKind::Exact => Kind::Exact(Exact::for_sensitivity(sensitivity, sum.values().len(), sigma)),
            NoiseKind::Fast => Kind::Fast(sensitivity * sigma),
        };
        Self { randomness, round, kind }
    }

    /// 2Cσ, or what the grid makes of it.
    pub fn deviation(&self) -> f64 {
        match self.kind {
            Kind::Exact(exact) => exact.deviation(),
            Kind::Fast(deviation) => deviation,
        }
    }

    /// Writes the noised sum of a block's coordinates, Ū = U + noise, into `out`.
    ///
    /// `sum` and `out` are the coordinates [`BLOCK`]·`block` … of U and Ū, at most [`BLOCK`] many.
    pub fn add(&self, block: usize, sum: &[f64], out: &mut [f32]) {
        let draws = (self.randomness, self.round);
        match self.kind {
            Kind::Exact(exact) => exact.add(draws, block, sum, out),
            Kind::Fast(deviation) => fast::add(draws, deviation, block, sum, out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_is_the_sensitivity_times_sigma() {
        let randomness = Randomness::from_seed(6, 0);
        let sum = ClippedSum::new(10, 0.25);
        let fast = RoundNoise::of(NoiseKind::Fast, &sum, 3.0, &randomness, 0);
        assert_eq!(fast.deviation(), 2.0 * 0.25 * 3.0);
        let exact = RoundNoise::of(NoiseKind::Exact, &sum, 3.0, &randomness, 0).deviation();
        assert!(exact > fast.deviation() && exact < 1.001 * fast.deviation(), "{exact}");
    }
}
