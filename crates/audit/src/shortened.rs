//! A run short enough to be repeated a hundred thousand times.
//!
//! Kept are m, s, g, σ, C, the sampler, the filter, the neighbours and the algorithms. Shortened are N (to a few
//! rounds an epoch, with the same left-over samples; for Poisson sampling the rate is raised instead) and the number
//! of rounds. The claim is computed for the mechanism that is run; nothing is ever compared with a claim for
//! another one.

use dpsgd_privacy::exposure::RoundLaw;
use dpsgd_privacy::mechanism::{Length, Mechanism, MechanismError, Sampling};

/// Rounds an epoch, where the run has as many.
const ROUNDS: u64 = 4;

/// A shortened mechanism.
#[derive(Clone, Debug)]
pub struct Shortened {
    /// What is run and claimed about.
    pub mechanism: Mechanism,
    /// N of the data, which a Poisson mechanism does not say.
    pub samples: usize,
    /// s.
    pub group_size: u64,
}

impl Shortened {
    /// The first phase of a mechanism, shortened to about the µ given against A₁, or as near to it as whole rounds
    /// come. `expected` is the expected number of groups of a Poisson round.
    pub fn of(mechanism: &Mechanism, expected: f64, mu: f64) -> Result<Self, MechanismError> {
        let phase = mechanism.phases()[0];
        let differing = mechanism.differing();
        let mut config = mechanism.config();
        config.phases.truncate(1);
        config.releases.clear();
        let fewer = |samples: u64, batch: u64| {
            let rounds = (samples / batch).min(ROUNDS.max((4 * differing).div_ceil(batch)));
            (rounds * batch + samples % batch, rounds)
        };
        let (sampling, samples, group_size, rounds) = match phase.sampling() {
            Sampling::Subsample { samples, groups, group_size } => {
                let (samples, rounds) = fewer(samples, groups * group_size);
                (Sampling::Subsample { samples, groups, group_size }, samples, group_size, rounds)
            }
            Sampling::Shuffle { samples, groups, group_size } => {
                let (samples, rounds) = fewer(samples, groups * group_size);
                (Sampling::Shuffle { samples, groups, group_size }, samples, group_size, rounds)
            }
            Sampling::Poisson { rate } => {
                let rate = rate.max(1.0 / ROUNDS as f64);
                let samples = (expected / rate).ceil().clamp(4.0 * differing as f64, 1e6) as u64;
                (Sampling::Poisson { rate }, samples, 1, 1)
            }
        };
        config.phases[0].sampling = sampling;
        config.phases[0].length = Length::Rounds(1);
        let single = config.check()?;
        let law = RoundLaw::of_phase(&single, &single.phases()[0]);
        let exposure: f64 = law.mass().iter().enumerate().map(|(k, q)| (k * k) as f64 * q).sum();
        let noise = single.noise_per_hit(&single.phases()[0]);
        let wanted = (mu * noise).powi(2) / exposure;
        let length = match sampling {
            // Whole epochs, and two of them at least, so that two permutations can be compared.
            Sampling::Shuffle { .. } => rounds * ((wanted / rounds as f64).round() as u64).max(2),
            _ => (wanted.round() as u64).max(2),
        };
        config.phases[0].length = Length::Rounds(length.min(phase.rounds()));
        Ok(Self { mechanism: config.check()?, samples: samples as usize, group_size })
    }

    /// T of what is run.
    pub fn rounds(&self) -> u64 {
        self.mechanism.phases()[0].rounds()
    }
}

#[cfg(test)]
mod tests {
    use dpsgd_privacy::mechanism::{Noise, PhaseConfig, RunConfig};
    use dpsgd_privacy::{Adversary, adversary};

    use super::*;

    fn run(sampling: Sampling, rounds: u64, sigma: f64) -> Mechanism {
        RunConfig::single(PhaseConfig {
            sampling,
            length: Length::Rounds(rounds),
            noise: Noise::Sigma(sigma),
            filtered: false,
        })
        .check()
        .unwrap()
    }

    #[test]
    fn sizes_are_kept_and_the_claim_is_informative() {
        let shuffle = run(Sampling::Shuffle { samples: 60_000, groups: 16, group_size: 64 }, 5800, 2.0);
        let short = Shortened::of(&shuffle, 0.0, 2.5).unwrap();
        assert_eq!(
            short.mechanism.phases()[0].sampling(),
            Sampling::Shuffle { samples: 4 * 1024 + 608, groups: 16, group_size: 64 }
        );
        assert_eq!(short.rounds(), 4 * 29);
        let poisson = run(Sampling::Poisson { rate: 0.01 }, 1000, 0.5);
        let short = Shortened::of(&poisson, 600.0, 2.0).unwrap();
        assert_eq!(short.mechanism.phases()[0].sampling(), Sampling::Poisson { rate: 0.25 });
        assert_eq!((short.samples, short.rounds()), (2400, 16));
        for mechanism in [shuffle, poisson] {
            let short = Shortened::of(&mechanism, 600.0, 2.0).unwrap();
            let curve = adversary::curve(&short.mechanism, Adversary::A1).unwrap();
            let (mu, _) = curve.mu_on_default_range().unwrap();
            assert!((1.5..4.0).contains(&mu.upper), "{mu:?}");
        }
        // A run that is shorter stays what it is.
        let tiny = run(Sampling::Subsample { samples: 100, groups: 5, group_size: 2 }, 3, 2.0);
        let short = Shortened::of(&tiny, 0.0, 2.0).unwrap();
        assert_eq!((short.rounds(), short.samples), (3, 40));
    }
}
