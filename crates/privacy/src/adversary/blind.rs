//! A₀ round by round: the pair of every phase, composed.
//!
//! A phase that has no pair for a round (shuffled or allocated batches) is counted as A₁ sees it: telling A₀
//! the draws of that phase can only help him, so the product is a guarantee against A₀.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::{known_factors, releases};
use crate::curve::{Curve, CurvePoint, Remembered};
use crate::error::PrivacyError;
use crate::exposure::RoundLaw;
use crate::interval::Interval;
use crate::loss::factor::{Factor, Kind};
use crate::loss::round::Shape;
use crate::loss::{Budget, Loss};
use crate::mechanism::{Blind, Mechanism, Neighbours, Phase};

/// The trade-off function of all phases against A₀.
///
/// # Guarantee
/// It holds for every pair of neighbours. With add-remove it is the worst over all ways to split the g
/// samples into removed and added ones (docs/theory.md §3).
pub(super) fn curve(mechanism: &Mechanism, budget: &Arc<Budget>) -> Result<Box<dyn Curve>, PrivacyError> {
    let pure = |reversed| Ok::<_, PrivacyError>(blind_loss(mechanism, reversed)?.sharing(budget));
    match mechanism.neighbours() {
        Neighbours::Substitute => Ok(Box::new(Remembered::new(pure(false)?))),
        Neighbours::AddRemove => Ok(Box::new(Remembered::new(Splits {
            pure: Worse(pure(false)?, Some(pure(true)?)),
            mechanism: mechanism.clone(),
            mixed: Mutex::default(),
            budget: Arc::clone(budget),
        }))),
    }
}

/// The privacy loss for A₀; `reversed` exchanges P and Q (all samples are added instead of removed).
pub(crate) fn blind_loss(mechanism: &Mechanism, reversed: bool) -> Result<Loss, PrivacyError> {
    let g = mechanism.differing();
    let added = match (mechanism.neighbours(), reversed) {
        (Neighbours::Substitute, _) => g,
        (Neighbours::AddRemove, false) => 0,
        (Neighbours::AddRemove, true) => g,
    };
    let removed = match mechanism.neighbours() {
        Neighbours::Substitute => g,
        Neighbours::AddRemove => g - added,
    };
    loss_of_split(mechanism, removed, added)
}

/// The losses of all pairs that count: both directions of all splits with add-remove, otherwise one.
pub(crate) fn blind_losses(mechanism: &Mechanism) -> Result<Vec<Loss>, PrivacyError> {
    if !has_rounds(mechanism) {
        return Err(refusal(mechanism));
    }
    let g = mechanism.differing();
    match mechanism.neighbours() {
        Neighbours::Substitute => Ok(vec![loss_of_split(mechanism, g, g)?]),
        Neighbours::AddRemove if g <= MOST_SPLITS => {
            (0..=g).map(|added| loss_of_split(mechanism, g - added, added)).collect()
        }
        Neighbours::AddRemove => Err(PrivacyError::TooCostly {
            what: "the moments of all splits",
            operations: g as f64,
            limit: MOST_SPLITS as f64,
            remedy: "ask about ε, δ or the trade-off function",
        }),
    }
}

/// The most samples whose splits into removed and added ones are all listed for their moments.
const MOST_SPLITS: u64 = 8;

/// The privacy loss of d against d' when `removed` samples are only in d and `added` ones only in d'.
fn loss_of_split(mechanism: &Mechanism, removed: u64, added: u64) -> Result<Loss, PrivacyError> {
    let mut factors: Vec<Factor> = releases(mechanism).collect();
    let mut missing = 0.0;
    for phase in mechanism.phases() {
        let Some((shape, relative_error)) = round_shape(mechanism, phase, removed, added) else {
            missing += known_factors(mechanism, phase, &mut factors)?;
            continue;
        };
        factors.push(match shape {
            // Every round is certain to hit one component: a plain Gaussian, without quadrature.
            Shape::Halves { ref parts, hit } if hit >= 1.0 && parts.len() == 1 => {
                Factor { kind: Kind::Gaussian(parts[0].0 * parts[0].0 * phase.rounds() as f64), times: 1 }
            }
            shape => Factor { kind: Kind::Round { shape, relative_error }, times: phase.rounds() },
        });
    }
    Ok(Loss::new(factors, missing))
}

/// The pair of one round with the relative error of its weights; `None` where there is none.
fn round_shape(mechanism: &Mechanism, phase: &Phase, removed: u64, added: u64) -> Option<(Shape, f64)> {
    match phase.sampling().blind() {
        Blind::Unsupported { .. } | Blind::Allocation { .. } => None,
        Blind::Halves => {
            // The filter only lowers the number of groups hit; conditioned on the coins the round is a
            // smaller subsample, whose profile is below that of the whole.
            let law = RoundLaw::unfiltered(mechanism, phase);
            let parts = law.mass().iter().enumerate().skip(1).filter(|&(_, &q)| q > 0.0);
            let parts = parts.map(|(k, &q)| (k as f64 / phase.sigma(), q / law.hit())).collect();
            Some((Shape::Halves { parts, hit: law.hit() }, law.relative_error()))
        }
        Blind::Line { rate } => {
            let z = phase.noise_multiplier();
            if rate == 1.0 {
                // Nothing is sampled: a Gaussian mechanism, every sample moves the sum.
                let shift = (removed + added) as f64 / z;
                return Some((Shape::Halves { parts: vec![(shift, 1.0)], hit: 1.0 }, 0.0));
            }
            let mut error = 0.0_f64;
            let mut mixture = |samples: u64, sign: f64| -> Vec<(f64, f64)> {
                if samples == 0 {
                    return Vec::new();
                }
                let law = RoundLaw::poisson(rate, samples);
                error = error.max(law.relative_error());
                let mass = law.mass().iter().enumerate().filter(|&(_, &b)| b > 0.0);
                mass.map(|(k, &b)| (sign * k as f64 / z, b)).collect()
            };
            // On one line in opposite directions; where all are added, the line may point to them.
            let away = if removed == 0 { 1.0 } else { -1.0 };
            let shape = Shape::Line { plus: mixture(removed, 1.0), minus: mixture(added, away) };
            Some((shape, error))
        }
    }
}

/// Whether the run has a pair for some of its rounds.
pub(super) fn has_rounds(mechanism: &Mechanism) -> bool {
    mechanism.phases().iter().any(|phase| match phase.sampling().blind() {
        Blind::Halves | Blind::Line { .. } => true,
        Blind::Allocation { .. } | Blind::Unsupported { .. } => false,
    })
}

/// Whether the run has a pair for every round.
pub(super) fn only_rounds(mechanism: &Mechanism) -> bool {
    mechanism.phases().iter().all(|phase| match phase.sampling().blind() {
        Blind::Halves | Blind::Line { .. } => true,
        Blind::Allocation { .. } | Blind::Unsupported { .. } => false,
    })
}

/// Why there is no guarantee against A₀ beyond that of A₁: the reason of the first phase without a pair.
pub(super) fn refusal(mechanism: &Mechanism) -> PrivacyError {
    for phase in mechanism.phases() {
        if let Blind::Unsupported { what, why } = phase.sampling().blind() {
            return PrivacyError::Unsupported { what: what.to_string(), why: why.to_string() };
        }
    }
    PrivacyError::Unsupported {
        what: "adversary A0 round by round".to_string(),
        why: "the phases are drawn epoch by epoch".to_string(),
    }
}

/// Add-remove: the worst of all splits of g samples into removed and added ones.
///
/// # Guarantee
/// δ of (r, a) grows with r and with a, so one value of (r₁, g − r₀) bounds all splits with r₀ ≤ r ≤ r₁. A
/// range of splits is dropped once that value is below what is known already, and halved otherwise. After
/// [`MOST_RANGES`] the bounds of the ranges that are left are the answer.
struct Splits {
    mechanism: Mechanism,
    /// All removed, and all added: nearly always the worst.
    pure: Worse,
    /// Those with some of each, as they are needed.
    mixed: Mutex<HashMap<(u64, u64), Arc<Worse>>>,
    budget: Arc<Budget>,
}

impl Splits {
    fn pair(&self, removed: u64, added: u64) -> Result<Arc<Worse>, PrivacyError> {
        // Only complete entries are ever inserted, so a poisoned lock still guards good data.
        let mut mixed = self.mixed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = mixed.get(&(removed, added)) {
            return Ok(Arc::clone(known));
        }
        let loss = |removed, added| {
            Ok::<_, PrivacyError>(loss_of_split(&self.mechanism, removed, added)?.sharing(&self.budget))
        };
        let reversed = if removed == added { None } else { Some(loss(added, removed)?) };
        let pair = Arc::new(Worse(loss(removed, added)?, reversed));
        mixed.insert((removed, added), Arc::clone(&pair));
        Ok(pair)
    }

    /// Visits ranges of r in 1..g, halving those which `decided` does not drop; returns what is left, each with
    /// whether it is a split or the bound of a range. (r, a) and (a, r) are the two directions of one pair, so
    /// half of the splits suffice.
    fn left(
        &self,
        decided: impl Fn(&Worse) -> Result<bool, PrivacyError>,
    ) -> Result<Vec<(Arc<Worse>, bool)>, PrivacyError> {
        let g = self.mechanism.differing();
        let mut visited = 0;
        let mut left = Vec::new();
        let mut ranges = if g >= 2 { vec![(1, g / 2)] } else { Vec::new() };
        while let Some((low, high)) = ranges.pop() {
            let bound = self.pair(high, g - low)?;
            if decided(&bound)? {
                continue;
            }
            visited += 1;
            if low == high || visited >= MOST_RANGES {
                left.push((bound, low == high));
            } else {
                let middle = low + (high - low) / 2;
                ranges.extend([(low, middle), (middle + 1, high)]);
            }
        }
        Ok(left)
    }
}

/// How many ranges of splits are looked at.
const MOST_RANGES: usize = 3;

/// A value that some split attains, or only the upper end of a bound.
fn attained(value: Interval, exact: bool) -> Interval {
    Interval { lower: if exact { value.lower } else { 0.0 }, upper: value.upper }
}

impl Curve for Splits {
    fn delta(&self, epsilon: f64) -> Result<Interval, PrivacyError> {
        let mut worst = self.pure.delta(epsilon)?;
        for (split, exact) in self.left(|bound| Ok(bound.delta(epsilon)?.upper <= worst.lower))? {
            worst = worst.max(attained(split.delta(epsilon)?, exact));
        }
        Ok(worst)
    }

    fn point(&self, epsilon: f64) -> Result<CurvePoint, PrivacyError> {
        let mut worst = self.pure.point(epsilon)?;
        if self.mechanism.differing() < 2 {
            return Ok(worst);
        }
        let known = self.pure.delta(epsilon)?.lower;
        for (split, _) in self.left(|bound| Ok(bound.delta(epsilon)?.upper <= known))? {
            worst = worse_point(worst, split.point(epsilon)?);
        }
        Ok(worst)
    }

    fn epsilon(&self, delta: f64) -> Result<Interval, PrivacyError> {
        let mut worst = self.pure.epsilon(delta)?;
        for (split, exact) in self.left(|bound| Ok(bound.delta(worst.lower)?.upper <= delta))? {
            worst = worst.max(attained(split.epsilon(delta)?, exact));
        }
        Ok(worst)
    }
}

/// The point of the lower of two trade-off functions; the hull of both where it is not known which that is.
fn worse_point(a: CurvePoint, b: CurvePoint) -> CurvePoint {
    let hull = |x: Interval, y: Interval| Interval::new(x.lower.min(y.lower), x.upper.max(y.upper));
    if a.delta.lower > b.delta.upper {
        a
    } else if b.delta.lower > a.delta.upper {
        b
    } else {
        CurvePoint {
            epsilon: a.epsilon,
            delta: a.delta.max(b.delta),
            alpha: hull(a.alpha, b.alpha),
            beta: hull(a.beta, b.beta),
        }
    }
}

/// The worse of two directions, the largest symmetric trade-off function below both; one direction where it
/// is symmetric already.
pub(super) struct Worse(pub(super) Loss, pub(super) Option<Loss>);

impl Curve for Worse {
    fn delta(&self, epsilon: f64) -> Result<Interval, PrivacyError> {
        let forward = self.0.delta(epsilon)?;
        Ok(match &self.1 {
            Some(reversed) => forward.max(reversed.delta(epsilon)?),
            None => forward,
        })
    }

    fn point(&self, epsilon: f64) -> Result<CurvePoint, PrivacyError> {
        let forward = self.0.point(epsilon)?;
        let Some(reversed) = &self.1 else { return Ok(forward) };
        if epsilon > 0.0 && reversed.is_below(epsilon, forward.delta.lower) {
            return Ok(forward);
        }
        let reversed = reversed.point(epsilon)?;
        if epsilon == 0.0 {
            // The total variation is the same in both directions, and each point is the mirror
            // image of the other: the one with the smaller α ends the stretch of slope −1.
            let first = forward.alpha.middle() <= reversed.alpha.middle();
            return Ok(if first { forward } else { reversed });
        }
        Ok(worse_point(forward, reversed))
    }

    fn epsilon(&self, delta: f64) -> Result<Interval, PrivacyError> {
        // Removing is nearly always worse; then a single value of the other profile proves it.
        let first = self.0.epsilon(delta)?;
        let Some(reversed) = &self.1 else { return Ok(first) };
        if reversed.is_below(first.lower, delta) || reversed.delta(first.lower)?.upper <= delta {
            return Ok(first);
        }
        Ok(first.max(reversed.epsilon(delta)?))
    }
}
