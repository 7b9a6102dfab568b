//! Against whom a run is protected: the trade-off function for each adversary.

pub(crate) mod allocated;
mod best;
mod blind;
mod composed;
mod envelope;
mod grouped;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use best::{Answer, Best, Route};
#[cfg(test)]
pub(crate) use blind::blind_loss;
pub(crate) use blind::blind_losses;
pub use composed::composed;

use crate::curve::{Curve, Remembered};
use crate::error::PrivacyError;
use crate::exposure::{self, Law, RoundLaw};
use crate::loss::Loss;
use crate::loss::factor::{Factor, Kind};
use crate::mechanism::{Blind, Independent, Mechanism, Phase, RunConfig, Sampling};
use crate::mixture::Mixture;

/// How much the adversary sees (paper, Appendix "Strong Adversarial Model").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Adversary {
    /// Sees the rounds' updates, not which samples were drawn. The adversary of the literature.
    #[serde(alias = "a0")]
    A0,
    /// Also knows which samples each round used. Whatever holds for A₁ holds for A₀.
    #[serde(alias = "a1")]
    A1,
}

impl fmt::Display for Adversary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Adversary {
    type Err = PrivacyError;

    fn from_str(name: &str) -> Result<Self, PrivacyError> {
        match name {
            "A0" | "a0" => Ok(Adversary::A0),
            "A1" | "a1" => Ok(Adversary::A1),
            other => Err(PrivacyError::Unsupported {
                what: format!("adversary = {other}"),
                why: "must be A0, who sees the updates, or A1, who also knows which samples each round used"
                    .to_string(),
            }),
        }
    }
}

impl Adversary {
    /// "A0" or "A1".
    pub fn name(self) -> &'static str {
        match self {
            Adversary::A0 => "A0",
            Adversary::A1 => "A1",
        }
    }

    /// The default adversary of a target: A₀ where a theorem covers every phase, otherwise A₁.
    pub fn usual(mechanism: &Mechanism) -> Self {
        Self::usual_against(mechanism.phases().iter().map(Phase::sampling))
    }

    /// [`usual`](Self::usual) for a run that has not been checked yet, as when σ is still to be found.
    pub fn usual_for(config: &RunConfig) -> Self {
        Self::usual_against(config.phases.iter().map(|phase| phase.sampling))
    }

    fn usual_against(samplers: impl Iterator<Item = Sampling>) -> Self {
        let covered = |sampling: Sampling| match sampling.blind() {
            Blind::Halves | Blind::Line { .. } | Blind::Allocation { .. } => true,
            Blind::Unsupported { .. } => false,
        };
        if samplers.into_iter().all(covered) { Adversary::A0 } else { Adversary::A1 }
    }
}

/// The trade-off function of a run against an adversary.
///
/// # Guarantee
/// The run's output on any two neighbouring data sets (in the mechanism's relation, with g
/// differing samples) is at least as hard to tell apart as the curve says. Against A₀ every answer is the best
/// that is proved ([`against_a0`] says by which theorem). Combinations without a theorem are refused.
///
/// ```
/// use dpsgd_privacy::{adversary::{Adversary, curve}, curve::Curve, mechanism::*};
/// let run = RunConfig::single(PhaseConfig {
///     sampling: Sampling::Poisson { rate: 0.01 },
///     length: Length::Rounds(1000),
///     noise: NoiseScale::Multiplier(1.0),
///     filtered: false,
/// });
/// let epsilon = curve(&run.check()?, Adversary::A0)?.epsilon(1e-5)?;
/// assert!(epsilon.contains(1.828_236_666_516_576_8));
/// assert!(epsilon.width() < 1e-8);
/// # Ok::<(), dpsgd_privacy::PrivacyError>(())
/// ```
pub fn curve(mechanism: &Mechanism, adversary: Adversary) -> Result<Box<dyn Curve>, PrivacyError> {
    match adversary {
        Adversary::A0 => Ok(Box::new(against_a0(mechanism)?)),
        Adversary::A1 => told(&mechanism.merged()),
    }
}

/// The trade-off function against A₁; equal phases are merged already.
fn told(mechanism: &Mechanism) -> Result<Box<dyn Curve>, PrivacyError> {
    match mixture(mechanism) {
        Ok(Some(mixture)) => Ok(Box::new(Remembered::new(mixture))),
        Ok(None) | Err(PrivacyError::TooCostly { .. }) => {
            Ok(Box::new(Remembered::new(known_by_moments(mechanism)?)))
        }
        Err(error) => Err(error),
    }
}

/// All that is proved against A₀, the best for each question.
///
/// # Guarantee
/// That of [`Best`]; refused where no phase has a theorem against A₀.
pub fn against_a0(mechanism: &Mechanism) -> Result<Best, PrivacyError> {
    Best::new(mechanism.merged())
}

/// Against A₁, in one sentence.
pub(crate) fn basis_of_a1(mechanism: &Mechanism) -> String {
    let basis = "exact mixture of Gaussians G_{c/σ} under the law of c that the sampler induces (paper Thm 2, \
                 Def. f, with the atom at c = 0)";
    basis.to_string() + beside_releases(mechanism)
}

/// What every basis says about further releases.
fn beside_releases(mechanism: &Mechanism) -> &'static str {
    if mechanism.releases().is_empty() { "" } else { "; composed with the further Gaussian releases" }
}

/// The law of c² of the whole run, when all phases have the same noise and it can be listed.
pub fn law(mechanism: &Mechanism) -> Result<Option<Law>, PrivacyError> {
    let mechanism = &mechanism.merged();
    let noise = mechanism.noise_per_hit(&mechanism.phases()[0]);
    let mut law: Option<Law> = None;
    for phase in mechanism.phases() {
        if mechanism.noise_per_hit(phase) != noise {
            return Ok(None);
        }
        let next = exposure::law_of_phase(mechanism, phase)?;
        law = Some(match law {
            Some(law) => law.convolve(&next)?,
            None => next,
        });
    }
    Ok(law)
}

/// A₁ by direct summation, where the law of c can be listed.
pub fn mixture(mechanism: &Mechanism) -> Result<Option<Mixture>, PrivacyError> {
    let noise = mechanism.noise_per_hit(&mechanism.phases()[0]);
    Ok(law(mechanism)?.map(|law| Mixture::new(&law, noise, mechanism.released_mu().powi(2))))
}

fn releases(mechanism: &Mechanism) -> impl Iterator<Item = Factor> {
    let square = mechanism.released_mu().powi(2);
    (square > 0.0).then_some(Factor { kind: Kind::Gaussian(square), times: 1 }).into_iter()
}

/// A₁ through E[e^{zY}] = Π E[e^{z(z+1)c²/2σ²}] over the phases: no law of the sum is needed, so
/// phases of different noise and laws too wide to list are covered.
pub(crate) fn known_by_moments(mechanism: &Mechanism) -> Result<Loss, PrivacyError> {
    let mut factors: Vec<Factor> = releases(mechanism).collect();
    let mut missing = 0.0;
    for phase in mechanism.phases() {
        missing += known_factors(mechanism, phase, &mut factors)?;
    }
    Ok(Loss::new(factors, missing))
}

/// Adds the factors of one phase as A₁ sees it, and returns the probability they leave out.
fn known_factors(
    mechanism: &Mechanism,
    phase: &Phase,
    factors: &mut Vec<Factor>,
) -> Result<f64, PrivacyError> {
    let noise = mechanism.noise_per_hit(phase);
    let part = |square: f64, q: f64| (square / (noise * noise), q);
    let mut missing = 0.0;
    match phase.sampling().independent() {
        Independent::Epochs(draw) => {
            for (times, law) in exposure::laws_of_epochs(mechanism, phase, draw)? {
                let parts = law.iter().filter(|&(n, _)| n > 0).map(|(n, q)| part(n as f64, q));
                missing += times as f64 * law.missing();
                let kind = Kind::Known {
                    parts: parts.collect(),
                    untouched: law.probability(0),
                    relative_error: law.relative_error(),
                };
                factors.push(Factor { kind, times });
            }
        }
        Independent::Rounds => {
            let law = RoundLaw::of_phase(mechanism, phase);
            let parts = law.mass().iter().enumerate().skip(1).filter(|&(_, &q)| q > 0.0);
            let kind = Kind::Known {
                parts: parts.map(|(k, &q)| part((k * k) as f64, q)).collect(),
                untouched: law.mass()[0],
                relative_error: law.relative_error(),
            };
            factors.push(Factor { kind, times: phase.rounds() });
        }
    }
    Ok(missing)
}
