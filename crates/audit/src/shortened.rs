//! A run short enough to be repeated a hundred thousand times.
//!
//! Kept are m, s, g, σ, C, the sampler, the filter, the neighbours and the algorithms. Shortened are N (to a
//! few rounds an epoch, with the same left-over samples; for Poisson sampling the rate is raised instead, for
//! allocation B is lowered) and the number of rounds. The claim is computed for the mechanism that is run;
//! nothing is ever compared with a claim for another one.

use crate::asked::is_in_cells;
use dpsgd_privacy::exposure::RoundLaw;
use dpsgd_privacy::mechanism::{Draw, Length, Mechanism, MechanismError, RoundDraw};

/// Rounds an epoch, where the run has as many.
const ROUNDS: u64 = 4;

/// A shortened mechanism.
#[derive(Clone, Debug)]
pub struct Shortened {
    /// What is run and claimed about.
    pub mechanism: Mechanism,
    /// N of the data, which a mechanism with Poisson or allocated batches does not say.
    pub samples: usize,
    /// s.
    pub group_size: u64,
}

impl Shortened {
    /// The first phase of a mechanism, shortened to about the µ given against A₁, or as near to it as whole
    /// rounds come. `expected` is the expected number of groups of a round whose size is
    /// random.
    pub fn of(mechanism: &Mechanism, expected: f64, mu: f64) -> Result<Self, MechanismError> {
        let phase = mechanism.phases()[0];
        let differing = mechanism.differing();
        let mut config = mechanism.config();
        config.phases.truncate(1);
        config.releases.clear();
        let most = match phase.sampling().round() {
            RoundDraw::Subset(sizes) => ROUNDS.max((4 * differing).div_ceil(sizes.batch())),
            RoundDraw::EachSample { .. } | RoundDraw::Cells { .. } => ROUNDS,
        };
        let sampling = phase.sampling().with_fewer_rounds(most);
        let samples = match sampling.round() {
            RoundDraw::Subset(sizes) => sizes.samples,
            RoundDraw::EachSample { rate } => {
                (expected / rate).ceil().clamp(4.0 * differing as f64, 1e6) as u64
            }
            RoundDraw::Cells { rate, groups } => {
                let whole = groups as f64 * sampling.group_size() as f64 / rate;
                whole.ceil().clamp(4.0 * differing as f64, 1e6) as u64
            }
        };
        config.phases[0].sampling = sampling;
        config.phases[0].length = Length::Rounds(1);
        let single = config.check()?;
        let law = RoundLaw::of_phase(&single, &single.phases()[0]);
        let exposure: f64 = law.mass().iter().enumerate().map(|(k, q)| (k * k) as f64 * q).sum();
        let noise = single.noise_per_hit(&single.phases()[0]);
        let wanted = (mu * noise).powi(2) / exposure;
        let length = match sampling.draw() {
            // Whole epochs, and two of them at least, so that two draws can be compared.
            Draw::EveryEpoch => {
                let rounds = sampling.rounds_per_epoch();
                rounds * ((wanted / rounds as f64).round() as u64).max(2)
            }
            Draw::EveryRound => (wanted.round() as u64).max(2),
        };
        config.phases[0].length = Length::Rounds(length.min(phase.rounds()));
        let group_size = sampling.group_size();
        Ok(Self { mechanism: config.check()?, samples: samples as usize, group_size })
    }

    /// s, where every group has as many samples.
    pub fn fixed_group_size(&self) -> Option<usize> {
        (!is_in_cells(&self.mechanism.phases()[0])).then_some(self.group_size as usize)
    }

    /// T of what is run.
    pub fn rounds(&self) -> u64 {
        self.mechanism.phases()[0].rounds()
    }
}

#[cfg(test)]
mod tests {
    use dpsgd_privacy::mechanism::{NoiseScale, PhaseConfig, RunConfig, Sampling};
    use dpsgd_privacy::{Adversary, adversary};

    use super::*;

    fn run(sampling: Sampling, rounds: u64, sigma: f64) -> Mechanism {
        RunConfig::single(PhaseConfig {
            sampling,
            length: Length::Rounds(rounds),
            noise: NoiseScale::Sigma(sigma),
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
        let allocate = run(Sampling::Allocate { rounds: 100 }, 1000, 0.5);
        let short = Shortened::of(&allocate, 600.0, 2.0).unwrap();
        assert_eq!(short.mechanism.phases()[0].sampling(), Sampling::Allocate { rounds: 4 });
        assert_eq!((short.samples, short.rounds()), (2400, 16));
        for mechanism in [shuffle, poisson, allocate] {
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
