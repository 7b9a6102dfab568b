//! Against whom a run is protected: the trade-off function for each adversary.

use crate::curve::{Curve, Point};
use crate::error::PrivacyError;
use crate::exposure::{self, Law, RoundLaw};
use crate::interval::Interval;
use crate::loss::Loss;
use crate::loss::factor::{Factor, Kind};
use crate::loss::round::Shape;
use crate::mechanism::{Mechanism, Neighbours, Phase, Sampling};
use crate::mixture::Mixture;

/// How much the adversary sees (paper, Appendix "Strong Adversarial Model").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Adversary {
    /// Sees the rounds' updates, not which samples were drawn. The adversary of the literature.
    A0,
    /// Knows in addition which samples every round drew. Whatever holds for A₁ holds for A₀.
    A1,
}

impl Adversary {
    /// "A0" or "A1".
    pub fn name(self) -> &'static str {
        match self {
            Adversary::A0 => "A0",
            Adversary::A1 => "A1",
        }
    }

    /// The theorem the guarantee rests on, in a sentence.
    pub fn basis(self, mechanism: &Mechanism) -> String {
        let phases = mechanism.phases();
        let filtered = phases.iter().any(Phase::filtered);
        let poisson = phases.iter().any(|p| matches!(p.sampling(), Sampling::Poisson { .. }));
        let mut basis = match self {
            Adversary::A1 => "exact mixture of Gaussians G_{c/σ} under the law of c that the sampler induces \
                (paper Thm 2, Def. f, with the atom at c = 0)"
                .to_string(),
            Adversary::A0 if !poisson => "composition over the rounds of the subsampled round profile \
                Σ_k q_k·δ_{G_{k/σ}}(ln(1+(e^ε−1)/η)) (advanced joint convexity; for g = 1 it is C_{ms/N}(G_{1/σ}))"
                .to_string(),
            Adversary::A0 => match mechanism.neighbours() {
                Neighbours::AddRemove => "composition over the rounds of the Poisson mixture-of-Gaussians pair, \
                    the worse of adding and removing",
                Neighbours::Substitute => "composition over the rounds of the pair of opposite Poisson mixtures of Gaussians",
            }
            .to_string(),
        };
        if filtered && self == Adversary::A0 {
            basis.push_str(
                "; without the filtering, which can only help, or the guarantee for A1 with it, whichever says more",
            );
        }
        if !mechanism.releases().is_empty() {
            basis.push_str("; composed with the further Gaussian releases");
        }
        basis
    }
}

/// The trade-off function of a run against an adversary.
///
/// # Guarantee
/// The run's output on any two neighbouring data sets (in the mechanism's relation, with g
/// differing samples) is at least as hard to tell apart as the curve says, by the theorem in
/// [`Adversary::basis`]. Combinations without a theorem are refused.
///
/// ```
/// use dpsgd_privacy::{adversary::{Adversary, curve}, curve::Curve, mechanism::*};
/// let run = RunConfig::single(PhaseConfig {
///     sampling: Sampling::Poisson { rate: 0.01 },
///     length: Length::Rounds(1000),
///     noise: Noise::Multiplier(1.0),
///     filtered: false,
/// });
/// let epsilon = curve(&run.check()?, Adversary::A0)?.epsilon(1e-5)?;
/// assert!(epsilon.contains(1.828_236_666_516_576_8));
/// assert!(epsilon.width() < 1e-8);
/// # Ok::<(), dpsgd_privacy::PrivacyError>(())
/// ```
pub fn curve(mechanism: &Mechanism, adversary: Adversary) -> Result<Box<dyn Curve>, PrivacyError> {
    match adversary {
        Adversary::A0 => sampled_blind(mechanism),
        Adversary::A1 => match mixture(mechanism) {
            Ok(Some(mixture)) => Ok(Box::new(mixture)),
            Ok(None) | Err(PrivacyError::TooCostly { .. }) => Ok(Box::new(known_by_moments(mechanism)?)),
            Err(error) => Err(error),
        },
    }
}

/// The law of c² of the whole run, when all phases have the same noise and it can be listed.
pub fn law(mechanism: &Mechanism) -> Result<Option<Law>, PrivacyError> {
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
    Ok(law(mechanism)?.map(|law| Mixture::new(&law, noise, released_square(mechanism))))
}

fn released_square(mechanism: &Mechanism) -> f64 {
    mechanism.releases().iter().map(|mu| mu * mu).sum()
}

fn releases(mechanism: &Mechanism) -> impl Iterator<Item = Factor> {
    let square = released_square(mechanism);
    (square > 0.0).then_some(Factor { kind: Kind::Gaussian(square), times: 1 }).into_iter()
}

/// A₁ through E[e^{zY}] = Π E[e^{z(z+1)c²/2σ²}] over the phases: no law of the sum is needed, so
/// phases of different noise and laws too wide to list are covered.
pub(crate) fn known_by_moments(mechanism: &Mechanism) -> Result<Loss, PrivacyError> {
    let mut factors: Vec<Factor> = releases(mechanism).collect();
    let mut missing = 0.0;
    for phase in mechanism.phases() {
        let noise = mechanism.noise_per_hit(phase);
        let part = |square: f64, q: f64| (square / (noise * noise), q);
        if let Sampling::Shuffle { .. } = phase.sampling() {
            for (times, law) in exposure::epochs_of_shuffle(mechanism, phase)? {
                let parts = law.iter().filter(|&(n, _)| n > 0).map(|(n, q)| part(n as f64, q)).collect();
                missing += times as f64 * law.missing();
                let kind = Kind::Known {
                    parts,
                    untouched: law.probability(0),
                    relative_error: law.relative_error(),
                };
                factors.push(Factor { kind, times });
            }
        } else {
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
    Ok(Loss::new(factors, missing))
}

/// A₀ round by round.
fn sampled_blind(mechanism: &Mechanism) -> Result<Box<dyn Curve>, PrivacyError> {
    let forward = blind_loss(mechanism, false)?;
    if mechanism.neighbours() == Neighbours::AddRemove {
        return Ok(Box::new(Worse(forward, blind_loss(mechanism, true)?)));
    }
    if mechanism.phases().iter().any(Phase::filtered) {
        return Ok(Box::new(Better(Box::new(forward), curve(mechanism, Adversary::A1)?)));
    }
    Ok(Box::new(forward))
}

/// The privacy loss for A₀; `reversed` exchanges P and Q (removing becomes adding).
pub(crate) fn blind_loss(mechanism: &Mechanism, reversed: bool) -> Result<Loss, PrivacyError> {
    let mut factors: Vec<Factor> = releases(mechanism).collect();
    for phase in mechanism.phases() {
        let (shape, relative_error) = round_shape(mechanism, phase, reversed)?;
        factors.push(match shape {
            // Every round surely hits one component: a plain Gaussian, without quadrature.
            Shape::Halves { ref parts, hit } if hit >= 1.0 && parts.len() == 1 => {
                Factor { kind: Kind::Gaussian(parts[0].0 * parts[0].0 * phase.rounds() as f64), times: 1 }
            }
            shape => Factor { kind: Kind::Round { shape, relative_error }, times: phase.rounds() },
        });
    }
    Ok(Loss::new(factors, 0.0))
}

/// The pair of one round.
pub(crate) fn round_shape(
    mechanism: &Mechanism,
    phase: &Phase,
    reversed: bool,
) -> Result<(Shape, f64), PrivacyError> {
    // Filtering a group out only lowers the number of groups that are hit; conditioned on the coins
    // the round is a smaller subsample, whose profile is below that of the whole.
    let law = RoundLaw::unfiltered(mechanism, phase);
    let error = law.relative_error();
    match phase.sampling() {
        Sampling::Shuffle { .. } => Err(PrivacyError::Unsupported {
            what: "adversary A0 with shuffled batches".to_string(),
            why: "the rounds of an epoch are dependent and no amplification theorem covers them; \
                the guarantee for A1 is the guarantee"
                .to_string(),
        }),
        Sampling::Subsample { .. } => {
            let parts = law.mass().iter().enumerate().skip(1).filter(|&(_, &q)| q > 0.0);
            let parts = parts.map(|(k, &q)| (k as f64 / phase.sigma(), q / law.hit())).collect();
            Ok((Shape::Halves { parts, hit: law.hit() }, error))
        }
        Sampling::Poisson { rate } => {
            let z = phase.noise_multiplier();
            let mixture = |sign: f64| -> Vec<(f64, f64)> {
                let mass = law.mass().iter().enumerate().filter(|&(_, &b)| b > 0.0);
                mass.map(|(k, &b)| (sign * k as f64 / z, b)).collect()
            };
            if rate == 1.0 {
                // Nothing is sampled: a Gaussian mechanism with sensitivity g (or 2g).
                let shift = match mechanism.neighbours() {
                    Neighbours::AddRemove => mechanism.differing() as f64 / z,
                    Neighbours::Substitute => 2.0 * mechanism.differing() as f64 / z,
                };
                return Ok((Shape::Halves { parts: vec![(shift, 1.0)], hit: 1.0 }, 0.0));
            }
            let shape = match (mechanism.neighbours(), reversed) {
                (Neighbours::AddRemove, false) => Shape::Line { plus: mixture(1.0), minus: Vec::new() },
                (Neighbours::AddRemove, true) => Shape::Line { plus: Vec::new(), minus: mixture(1.0) },
                (Neighbours::Substitute, _) => Shape::Line { plus: mixture(1.0), minus: mixture(-1.0) },
            };
            Ok((shape, error))
        }
    }
}

/// The worse of two directions: the largest symmetric trade-off function below both.
struct Worse(Loss, Loss);

impl Curve for Worse {
    fn delta(&self, epsilon: f64) -> Result<Interval, PrivacyError> {
        Ok(self.0.delta(epsilon)?.max(self.1.delta(epsilon)?))
    }

    fn point(&self, epsilon: f64) -> Result<Point, PrivacyError> {
        let (a, b) = (self.0.point(epsilon)?, self.1.point(epsilon)?);
        let hull = |x: Interval, y: Interval| Interval::new(x.lower.min(y.lower), x.upper.max(y.upper));
        if epsilon == 0.0 {
            // The total variation is the same in both directions, and each point is the mirror
            // image of the other: the one with the smaller α ends the stretch of slope −1.
            return Ok(if a.alpha.middle() <= b.alpha.middle() { a } else { b });
        }
        Ok(if a.delta.lower > b.delta.upper {
            a
        } else if b.delta.lower > a.delta.upper {
            b
        } else {
            Point {
                epsilon,
                delta: a.delta.max(b.delta),
                alpha: hull(a.alpha, b.alpha),
                beta: hull(a.beta, b.beta),
            }
        })
    }

    fn epsilon(&self, delta: f64) -> Result<Interval, PrivacyError> {
        // Removing is nearly always the worse; then one value of the other profile proves it.
        let first = self.0.epsilon(delta)?;
        if self.1.delta(first.lower)?.upper <= delta {
            return Ok(first);
        }
        Ok(first.max(self.1.epsilon(delta)?))
    }
}

/// Two guarantees that both hold: each question is answered by the one that says more.
struct Better(Box<dyn Curve>, Box<dyn Curve>);

impl Curve for Better {
    fn delta(&self, epsilon: f64) -> Result<Interval, PrivacyError> {
        Ok(self.0.delta(epsilon)?.min(self.1.delta(epsilon)?))
    }

    fn point(&self, epsilon: f64) -> Result<Point, PrivacyError> {
        let (a, b) = (self.0.point(epsilon)?, self.1.point(epsilon)?);
        Ok(if a.delta.upper <= b.delta.upper { a } else { b })
    }

    fn epsilon(&self, delta: f64) -> Result<Interval, PrivacyError> {
        Ok(self.0.epsilon(delta)?.min(self.1.epsilon(delta)?))
    }

    fn beta(&self, alpha: f64) -> Result<Interval, PrivacyError> {
        Ok(self.0.beta(alpha)?.max(self.1.beta(alpha)?))
    }

    fn mu(&self, smallest: f64) -> Result<Interval, PrivacyError> {
        match (self.0.mu(smallest), self.1.mu(smallest)) {
            (Ok(a), Ok(b)) => Ok(a.min(b)),
            // The range may be empty for the weaker of the two only.
            (Ok(mu), Err(_)) | (Err(_), Ok(mu)) => Ok(mu),
            (Err(error), Err(_)) => Err(error),
        }
    }
}
