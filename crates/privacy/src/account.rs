//! Everything that can be said about a run, computed once, as a value that can be stored and shown.
//!
//! ```
//! use dpsgd_privacy::account::{Account, Question, alphas};
//! use dpsgd_privacy::{Adversary, mechanism::*};
//!
//! let run = RunConfig::single(PhaseConfig {
//!     sampling: Sampling::Subsample { samples: 60_000, groups: 64, group_size: 1 },
//!     length: Length::Epochs(100),
//!     noise: NoiseScale::Sigma(2.0),
//!     filtered: false,
//! });
//! let account = Account::of(&run.check()?, Question::epsilon_at(1e-5)?, &alphas(&[])?)?;
//! let blind = account.against(Adversary::A0).expect("a theorem covers subsampling");
//! assert!((blind.answer.upper - 0.745).abs() < 0.001);
//! # Ok::<(), dpsgd_privacy::PrivacyError>(())
//! ```

mod beside;
mod guarantee;
mod question;

use std::thread;

use serde::{Deserialize, Serialize};

pub use beside::{Approximation, ShuffleFloor};
pub use guarantee::{Guarantee, LARGEST_ORDER, ORDERS};
pub use question::Question;

use crate::adversary::Adversary;
use crate::error::{PrivacyError, require};
use crate::mechanism::Mechanism;
use crate::printed::{self, Printed};
use crate::version::Version;

/// Everything that can be said about a run.
///
/// N and m of a Poisson run are not in here: they are not part of the mechanism.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Account {
    version: Version,
    /// The question that was asked.
    pub question: Question,
    /// E\[c²\], and gE.
    pub exposure: (f64, f64),
    /// ρ of zCDP, where it is not far above what a run is expected to leak.
    pub zero_concentrated: Option<f64>,
    /// The δ of the paper's closed forms.
    pub printed_at: Option<f64>,
    /// The adversaries against whom nothing is claimed, and why.
    pub refused: Vec<(Adversary, String)>,
    /// The limit G_{c·h(σ)} of the paper.
    pub approximation: Option<Approximation>,
    /// What no analysis of a shuffled run can beat.
    pub shuffle_floor: Option<ShuffleFloor>,
    /// The run.
    pub mechanism: Mechanism,
    /// What holds, A₁ first; at least one.
    pub guarantees: Vec<Guarantee>,
    /// The paper's closed forms at [`printed_at`](Self::printed_at).
    pub printed: Vec<Printed>,
}

/// The false-alarm rates at which attacks are reported: those given, or 1 %, 5 % and 50 %.
pub fn alphas(given: &[f64]) -> Result<Vec<f64>, PrivacyError> {
    for &alpha in given {
        let allowed = "between 0 and 1 (it is a false-alarm rate)";
        require((0.0..=1.0).contains(&alpha), "alpha", alpha, allowed)?;
    }
    Ok(if given.is_empty() { vec![0.01, 0.05, 0.5] } else { given.to_vec() })
}

/// 1 % and 5 % are always reported.
fn reported(asked: &[f64]) -> Vec<f64> {
    let mut alphas = asked.to_vec();
    alphas.extend([0.01, 0.05]);
    alphas.sort_by(f64::total_cmp);
    alphas.dedup();
    alphas
}

impl Account {
    /// Accounts for a run; independent parts are computed in parallel.
    ///
    /// # Guarantee
    /// Every [`Guarantee`] holds for the run by the theorem it names. An adversary without a theorem is
    /// listed in [`refused`](Self::refused), and a run without any guarantee is an error.
    pub fn of(mechanism: &Mechanism, question: Question, alphas: &[f64]) -> Result<Self, PrivacyError> {
        question.check()?;
        let alphas = reported(&self::alphas(alphas)?);
        let given = match question {
            Question::Epsilon { delta } => Some(delta),
            Question::Delta { .. } => None,
        };
        let forms = |delta: f64| printed::as_printed(mechanism, delta).unwrap_or_default();
        let (a1, a0, beside, early) = thread::scope(|scope| {
            let a1 = scope.spawn(|| Guarantee::of(mechanism, Adversary::A1, question, &alphas));
            let early = scope.spawn(|| given.map(forms));
            let beside = scope.spawn(|| ShuffleFloor::of(mechanism, question));
            let a0 = Guarantee::of(mechanism, Adversary::A0, question, &alphas);
            (joined(a1), a0, joined(beside), joined(early))
        });
        let mut guarantees = Vec::new();
        let mut refused = Vec::new();
        for (adversary, outcome) in [(Adversary::A1, a1), (Adversary::A0, a0)] {
            match outcome {
                Ok(guarantee) => guarantees.push(guarantee),
                Err(error) => refused.push((adversary, error)),
            }
        }
        if guarantees.is_empty() {
            return Err(refused.swap_remove(0).1);
        }
        let printed_at = given.or_else(|| {
            let delta = guarantees[0].answer.upper;
            (delta > 0.0 && delta < 1.0).then_some(delta)
        });
        Ok(Self {
            version: Version,
            question,
            exposure: beside::exposure(mechanism),
            zero_concentrated: beside::zero_concentrated(mechanism),
            approximation: Approximation::of(mechanism, question),
            printed: early.or_else(|| printed_at.map(forms)).unwrap_or_default(),
            printed_at,
            guarantees,
            refused: refused.into_iter().map(|(adversary, why)| (adversary, why.to_string())).collect(),
            shuffle_floor: beside,
            mechanism: mechanism.clone(),
        })
    }

    /// The guarantee against an adversary; `None` where it was refused.
    pub fn against(&self, adversary: Adversary) -> Option<&Guarantee> {
        self.guarantees.iter().find(|guarantee| guarantee.adversary == adversary)
    }
}

fn joined<T>(handle: thread::ScopedJoinHandle<'_, T>) -> T {
    handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
