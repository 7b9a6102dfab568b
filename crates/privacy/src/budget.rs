//! What the rounds so far have spent, and how many rounds a budget affords.

use serde::{Deserialize, Serialize};

use crate::adversary::{self, Adversary};
use crate::error::PrivacyError;
use crate::gaussian;
use crate::mechanism::Mechanism;

/// A budget of ε at a δ against an adversary.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// Against whom.
    pub adversary: Adversary,
    /// δ.
    pub delta: f64,
}

impl Budget {
    /// The certified ε of the first `rounds` rounds, together with everything else the run releases.
    ///
    /// # Guarantee
    /// The rounds and the further releases together are (ε, δ)-DP against the adversary.
    pub fn spent(&self, mechanism: &Mechanism, rounds: u64) -> Result<f64, PrivacyError> {
        match mechanism.first_rounds(rounds)? {
            Some(so_far) => Ok(adversary::curve(&so_far, self.adversary)?.epsilon(self.delta)?.upper),
            None => {
                let mu = mechanism.released_mu();
                Ok(if mu > 0.0 { gaussian::epsilon(mu, self.delta) } else { 0.0 })
            }
        }
    }

    /// The most rounds of a run, over all its phases, whose certified ε is at most `most`.
    ///
    /// # Guarantee
    /// The ε of the returned number of rounds was computed and found to be at most `most` (except for 0
    /// rounds, which promises nothing about the further releases). It is found by bisection, since more
    /// rounds never leak less.
    pub fn affordable(&self, mechanism: &Mechanism, most: f64) -> Result<u64, PrivacyError> {
        let all = mechanism.rounds();
        if self.spent(mechanism, all)? <= most {
            return Ok(all);
        }
        if self.spent(mechanism, 1)? > most {
            return Ok(0);
        }
        let (mut within, mut beyond) = (1, all);
        while beyond - within > 1 {
            let middle = within + (beyond - within) / 2;
            if self.spent(mechanism, middle)? <= most {
                within = middle;
            } else {
                beyond = middle;
            }
        }
        Ok(within)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanism::{Length, NoiseScale, PhaseConfig, RunConfig, Sampling};

    const DELTA: f64 = 1e-5;

    fn samplers() -> [Sampling; 3] {
        let (samples, groups, group_size) = (1000, 10, 1);
        [
            Sampling::Subsample { samples, groups, group_size },
            Sampling::Shuffle { samples, groups, group_size },
            Sampling::Poisson { rate: 0.01 },
        ]
    }

    fn phase(sampling: Sampling, rounds: u64, sigma: f64) -> PhaseConfig {
        PhaseConfig {
            sampling,
            length: Length::Rounds(rounds),
            noise: NoiseScale::Sigma(sigma),
            filtered: false,
        }
    }

    fn budget(mechanism: &Mechanism) -> Budget {
        Budget { adversary: Adversary::usual(mechanism), delta: DELTA }
    }

    /// The answer is within the budget, and one more round is not. (The accountant is slow for few rounds.)
    #[test]
    fn the_last_affordable_round_is_found() {
        for sampling in samplers() {
            let mechanism = RunConfig::single(phase(sampling, 400, 2.0)).check().unwrap();
            let budget = budget(&mechanism);
            let spent = |rounds| budget.spent(&mechanism, rounds).unwrap();
            assert_eq!(spent(0), 0.0);
            for most in [spent(201), 0.5 * (spent(300) + spent(301)), spent(399)] {
                let found = budget.affordable(&mechanism, most).unwrap();
                assert!((200..400).contains(&found), "{sampling:?} {found}");
                assert!(spent(found) <= most && spent(found + 1) > most, "{sampling:?} {most} {found}");
            }
            assert_eq!(budget.affordable(&mechanism, 1e9).unwrap(), 400);
            assert_eq!(budget.affordable(&mechanism, 1e-6).unwrap(), 0);
        }
    }

    #[test]
    fn rounds_of_later_phases_are_affordable() {
        let [subsample, ..] = samplers();
        let mut config = RunConfig::single(phase(subsample, 150, 2.0));
        config.phases.push(phase(subsample, 250, 3.0));
        config.releases = vec![0.1];
        let mechanism = config.check().unwrap();
        let budget = budget(&mechanism);
        let spent = |rounds| budget.spent(&mechanism, rounds).unwrap();
        assert_eq!(spent(0), gaussian::epsilon(0.1, DELTA));
        for most in [spent(140), spent(150), 0.5 * (spent(300) + spent(301))] {
            let found = budget.affordable(&mechanism, most).unwrap();
            assert!(spent(found) <= most && spent(found + 1) > most, "{most} {found}");
        }
        assert_eq!(budget.affordable(&mechanism, spent(400)).unwrap(), 400);
    }

    #[test]
    fn the_usual_adversary_is_the_weakest_with_a_theorem() {
        let [subsample, shuffle, poisson] = samplers();
        let usual = |phases: &[Sampling]| {
            let phases: Vec<_> = phases.iter().map(|&sampling| phase(sampling, 100, 2.0)).collect();
            let config = RunConfig { phases: phases.clone(), ..RunConfig::single(phases[0]) };
            let mechanism =
                RunConfig { neighbours: crate::mechanism::Neighbours::Substitute, ..config.clone() };
            assert_eq!(Adversary::usual_for(&config), Adversary::usual(&mechanism.check().unwrap()));
            Adversary::usual_for(&config)
        };
        assert_eq!(usual(&[subsample]), Adversary::A0);
        assert_eq!(usual(&[poisson]), Adversary::A0);
        assert_eq!(usual(&[shuffle]), Adversary::A1);
        assert_eq!(usual(&[subsample, poisson]), Adversary::A0);
        assert_eq!(usual(&[subsample, shuffle]), Adversary::A1);
    }
}
