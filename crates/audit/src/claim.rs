//! The claimed trade-off function, by its supporting lines.

use dpsgd_privacy::mechanism::Mechanism;
use dpsgd_privacy::{Adversary, PrivacyError, adversary};

/// Lines on each side of the middle.
const LINES: usize = 80;
/// The lines reach to the ε at this δ: an attack beyond has an error rate that few trials show.
const SMALLEST: f64 = 1e-5;

/// A lower bound of the claimed f.
///
/// # Guarantee
/// f is at or above every line 1 − δ(ε) − e^ε·α and, being symmetric, e^{−ε}·(1 − δ(ε) − α), with the
/// certified upper end of δ. [`Claim::beta`] is the highest of some of them: never above f, and some parts in
/// 10⁴ below it, so what contradicts it contradicts the claim.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Against whom.
    pub adversary: Adversary,
    /// ε at the δ of the audit, certified.
    pub epsilon: f64,
    /// (ε, δ(ε)).
    lines: Vec<(f64, f64)>,
}

impl Claim {
    /// What is claimed about a mechanism against an adversary.
    pub fn of(mechanism: &Mechanism, adversary: Adversary, delta: f64) -> Result<Self, PrivacyError> {
        let curve = adversary::curve(mechanism, adversary)?;
        let furthest = curve.epsilon(SMALLEST)?.upper.min(700.0);
        let lines = (0..=LINES).map(|i| {
            // Closer where the curve bends most, at small ε.
            let epsilon = furthest * (i as f64 / LINES as f64).powf(1.5);
            Ok((epsilon, curve.delta(epsilon)?.upper))
        });
        let lines = lines.collect::<Result<_, PrivacyError>>()?;
        Ok(Self { adversary, epsilon: curve.epsilon(delta)?.upper, lines })
    }

    /// At most f(α).
    pub fn beta(&self, alpha: f64) -> f64 {
        let line = |&(epsilon, delta): &(f64, f64)| {
            let (steep, flat) =
                (1.0 - delta - epsilon.exp() * alpha, (1.0 - delta - alpha) * (-epsilon).exp());
            steep.max(flat) - 1e-15
        };
        self.lines.iter().map(line).fold(0.0, f64::max)
    }

    /// The α with f(α) = α, about.
    pub fn middle(&self) -> f64 {
        self.lines.first().map_or(0.5, |line| 0.5 * (1.0 - line.1))
    }
}

#[cfg(test)]
mod tests {
    use dpsgd_privacy::mechanism::{Length, NoiseScale, PhaseConfig, RunConfig, Sampling};

    use super::*;

    #[test]
    fn the_lines_are_just_below_the_curve() {
        for sampling in [
            Sampling::Shuffle { samples: 70, groups: 4, group_size: 4 },
            Sampling::Subsample { samples: 70, groups: 4, group_size: 4 },
        ] {
            let phase = PhaseConfig {
                sampling,
                length: Length::Rounds(20),
                noise: NoiseScale::Sigma(0.8),
                filtered: false,
            };
            let run = RunConfig { differing: 2, ..RunConfig::single(phase) };
            let mechanism = run.check().unwrap();
            let claim = Claim::of(&mechanism, Adversary::A1, 1e-5).unwrap();
            let curve = adversary::curve(&mechanism, Adversary::A1).unwrap();
            for i in 1..200 {
                let alpha = f64::from(i) / 200.0;
                let (bound, exact) = (claim.beta(alpha), curve.beta(alpha).unwrap());
                assert!(bound <= exact.upper && bound > exact.upper - 5e-4, "{alpha}: {bound} {exact:?}");
            }
            assert_eq!((claim.beta(1.0), claim.beta(0.0) > 0.999), (0.0, true));
        }
    }
}
