//! How much noise there has to be, and how fine it is.

use dpsgd_privacy::mechanism::Phase;
use dpsgd_train::clip::SHIFT;
use dpsgd_train::noise::exact::Exact;
use dpsgd_train::noise::fast;
use dpsgd_train::{NoiseKind, PlanConfig};

/// The noise that a phase promises in d dimensions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PromisedNoise {
    /// Its standard deviation: 2Cσ, with what the grid and, where groups are independent, rounding add.
    pub deviation: f64,
    /// The grid that noised sums lie on.
    pub grid: f64,
}

impl PromisedNoise {
    /// For results clipped to `bound`.
    pub fn of(config: &PlanConfig, phase: &Phase, dimension: usize, bound: f64) -> Self {
        let shift = if phase.independent_groups() { SHIFT } else { 0.0 };
        let sensitivity = 2.0 * bound * (1.0 + shift);
        if config.noise == NoiseKind::Fast {
            let deviation = sensitivity * phase.sigma();
            return Self { deviation, grid: fast::grid(deviation) };
        }
        let exact = Exact::for_sensitivity(sensitivity, dimension, phase.sigma());
        Self { deviation: exact.deviation(), grid: exact.step() }
    }
}
