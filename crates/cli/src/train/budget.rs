//! What the rounds so far have spent, and how many rounds a budget affords.

use dpsgd_privacy::mechanism::Mechanism;
use dpsgd_privacy::{Adversary, PrivacyError, adversary, gaussian};
use dpsgd_train::ledger::first_rounds;

/// A budget of ε at a δ against an adversary.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Against whom.
    pub adversary: Adversary,
    /// δ.
    pub delta: f64,
}

impl Budget {
    /// The certified ε of the first so many rounds, with everything else the run releases.
    pub fn spent(&self, mechanism: &Mechanism, rounds: u64) -> Result<f64, PrivacyError> {
        match first_rounds(mechanism, rounds)? {
            Some(so_far) => Ok(adversary::curve(&so_far, self.adversary)?.epsilon(self.delta)?.upper),
            None => {
                let square: f64 = mechanism.releases().iter().map(|mu| mu * mu).sum();
                Ok(if square > 0.0 { gaussian::epsilon(square.sqrt(), self.delta) } else { 0.0 })
            }
        }
    }

    /// The most rounds of a run whose certified ε is at most `most`.
    ///
    /// # Guarantee
    /// The ε of the returned number of rounds was computed and found to be at most `most`; by bisection,
    /// since more rounds never leak less.
    pub fn affordable(&self, mechanism: &Mechanism, most: f64) -> Result<u64, PrivacyError> {
        let all = mechanism.phases()[0].rounds();
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
    use crate::settings::SamplingName;
    use crate::train::mechanism::{Settled, Size, settled};
    use crate::train::settings::TrainSettings;

    /// The answer is within the budget, and one more round is not. (Few rounds take the accountant long.)
    #[test]
    fn the_last_affordable_round_is_found() {
        for sampling in [SamplingName::Subsample, SamplingName::Shuffle, SamplingName::Poisson] {
            let given = TrainSettings {
                sampling: Some(sampling),
                groups: Some(10),
                sigma: Some(2.0),
                rounds: Some(400),
                ..Default::default()
            };
            let Settled { run, budget, .. } =
                settled(&given, Size { samples: 1000, public: true }, &[]).unwrap();
            let spent = |rounds| budget.spent(&run.mechanism, rounds).unwrap();
            assert_eq!(spent(0), 0.0);
            for most in [spent(201), 0.5 * (spent(300) + spent(301)), spent(399)] {
                let found = budget.affordable(&run.mechanism, most).unwrap();
                assert!((200..400).contains(&found), "{sampling:?} {found}");
                assert!(spent(found) <= most && spent(found + 1) > most, "{sampling:?} {most} {found}");
            }
            assert_eq!(budget.affordable(&run.mechanism, 1e9).unwrap(), 400);
            assert_eq!(budget.affordable(&run.mechanism, 1e-6).unwrap(), 0);
        }
    }
}
