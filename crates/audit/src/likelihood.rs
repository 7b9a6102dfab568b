//! What an adversary makes of a run: the log-likelihood ratio of D against D'.
//!
//! Given that k groups of a round were hit, the noised sum on the line u, in units of C and relative to a round
//! without canaries, is N(up·k, (2σ)²) for D and N(−down·k, (2σ)²) for D'. A₁ knows every k; A₀ knows their law.
//! By Neyman and Pearson the best test compares the ratio with a threshold; any other statistic would be valid too
//! and only weaker, so nothing here can make the audit claim too much.

use dpsgd_privacy::exposure::RoundLaw;
use dpsgd_privacy::mechanism::{Mechanism, Phase, Sampling};

use crate::pair::Pair;

/// One round as the audit saw it.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// The noised sum on u, in units of C, without what the other groups add.
    pub y: f64,
    /// The groups with a canary.
    pub hit: u32,
}

/// The likelihoods of one mechanism and pair.
#[derive(Clone, Debug)]
pub struct Likelihood {
    up: f64,
    down: f64,
    variance: f64,
    blind: Blind,
}

/// What A₀ knows about the sampling.
#[derive(Clone, Debug)]
enum Blind {
    /// Rounds are independent: q_k.
    Rounds(Vec<f64>),
    /// One canary, at most once in each epoch of so many rounds: the chance of one round, and ½ if filtered.
    Epochs { rounds: usize, chance: f64, kept: f64 },
    /// Several canaries in shuffled epochs: no attack of A₀ is made.
    Unknown,
}

impl Likelihood {
    /// For the mechanism that is run.
    pub fn new(mechanism: &Mechanism, pair: &Pair) -> Self {
        let phase = &mechanism.phases()[0];
        Self {
            up: pair.up,
            down: pair.down,
            variance: 4.0 * phase.sigma() * phase.sigma(),
            blind: Blind::of(mechanism, phase),
        }
    }

    /// ln of the density of N(shift, 4σ²) over that of N(0, 4σ²) at y.
    fn shifted(&self, shift: f64, y: f64) -> f64 {
        shift * (2.0 * y - shift) / (2.0 * self.variance)
    }

    /// The best statistic of A₁.
    pub fn known(&self, run: &[Seen]) -> f64 {
        let ratio = |seen: &Seen| {
            let k = f64::from(seen.hit);
            self.shifted(self.up * k, seen.y) - self.shifted(-self.down * k, seen.y)
        };
        run.iter().map(ratio).sum()
    }

    /// The best statistic of A₀, where it is computed.
    pub fn blind(&self, run: &[Seen]) -> Option<f64> {
        match &self.blind {
            Blind::Unknown => None,
            Blind::Rounds(law) => {
                let round = |seen: &Seen| {
                    let mixed = |shift: f64| {
                        let terms =
                            law.iter().enumerate().map(|(k, q)| (*q, self.shifted(shift * k as f64, seen.y)));
                        ln_mean(terms)
                    };
                    mixed(self.up) - mixed(-self.down)
                };
                Some(run.iter().map(round).sum())
            }
            Blind::Epochs { rounds, chance, kept } => {
                let epoch = |epoch: &[Seen]| {
                    let missed = 1.0 - chance * kept * epoch.len() as f64;
                    let mixed = |shift: f64| {
                        let terms = epoch.iter().map(|seen| (chance * kept, self.shifted(shift, seen.y)));
                        ln_mean(std::iter::once((missed.max(0.0), 0.0)).chain(terms))
                    };
                    mixed(self.up) - mixed(-self.down)
                };
                Some(run.chunks(*rounds).map(epoch).sum())
            }
        }
    }

    /// Whether A₀ attacks.
    pub fn attacks_blind(&self) -> bool {
        !matches!(self.blind, Blind::Unknown)
    }
}

impl Blind {
    fn of(mechanism: &Mechanism, phase: &Phase) -> Self {
        match phase.sampling() {
            Sampling::Shuffle { .. } if mechanism.differing() > 1 => Blind::Unknown,
            Sampling::Shuffle { samples, groups, group_size } => Blind::Epochs {
                rounds: phase.sampling().rounds_per_epoch() as usize,
                chance: (groups * group_size) as f64 / samples as f64,
                kept: if phase.filtered() { 0.5 } else { 1.0 },
            },
            _ => Blind::Rounds(RoundLaw::of_phase(mechanism, phase).mass().to_vec()),
        }
    }
}

/// ln Σ q·e^x over pairs (q, x), without overflow.
fn ln_mean(terms: impl Iterator<Item = (f64, f64)> + Clone) -> f64 {
    let most =
        terms.clone().filter(|term| term.0 > 0.0).fold(f64::NEG_INFINITY, |most, term| most.max(term.1));
    most + terms.filter(|term| term.0 > 0.0).map(|(q, x)| q * (x - most).exp()).sum::<f64>().ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratios_are_those_of_the_densities() {
        let density = |x: f64, mean: f64, sd: f64| (-0.5 * ((x - mean) / sd).powi(2)).exp();
        let likelihood = |blind| Likelihood { up: 2.0, down: 0.5, variance: 1.44, blind };
        let run: Vec<Seen> =
            [(0.3, 1), (-1.4, 0), (2.0, 2), (0.1, 0)].map(|(y, hit)| Seen { y, hit }).to_vec();
        let known = run.iter().map(|seen| {
            let k = f64::from(seen.hit);
            (density(seen.y, 2.0 * k, 1.2) / density(seen.y, -0.5 * k, 1.2)).ln()
        });
        let rounds = likelihood(Blind::Rounds(vec![0.5, 0.3, 0.2]));
        assert!((rounds.known(&run) - known.sum::<f64>()).abs() < 1e-12);
        let blind = run.iter().map(|seen| {
            let mixed = |unit: f64| {
                [(0.5, 0.0), (0.3, 1.0), (0.2, 2.0)]
                    .iter()
                    .map(|(q, k)| q * density(seen.y, unit * k, 1.2))
                    .sum::<f64>()
            };
            (mixed(2.0) / mixed(-0.5)).ln()
        });
        assert!((rounds.blind(&run).unwrap() - blind.sum::<f64>()).abs() < 1e-12);
        // Epochs of two rounds: the canary is in the first, in the second or left out.
        let epochs = likelihood(Blind::Epochs { rounds: 2, chance: 0.4, kept: 0.5 });
        let both = |epoch: &[Seen], a: f64, b: f64| density(epoch[0].y, a, 1.2) * density(epoch[1].y, b, 1.2);
        let expected: f64 = run
            .chunks(2)
            .map(|epoch| {
                let mixed = |unit: f64| {
                    0.2 * both(epoch, unit, 0.0) + 0.2 * both(epoch, 0.0, unit) + 0.6 * both(epoch, 0.0, 0.0)
                };
                (mixed(2.0) / mixed(-0.5)).ln()
            })
            .sum();
        assert!((epochs.blind(&run).unwrap() - expected).abs() < 1e-12);
    }

    #[test]
    fn nothing_overflows() {
        let law = vec![0.9, 0.1];
        let likelihood = Likelihood { up: 2.0, down: 0.0, variance: 0.01, blind: Blind::Rounds(law) };
        let run = [Seen { y: 50.0, hit: 1 }];
        assert!(likelihood.known(&run).is_finite() && likelihood.blind(&run).unwrap().is_finite());
    }
}
