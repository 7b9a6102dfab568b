//! Against A₀, for each question the best of all that is proved.

use std::sync::{Arc, OnceLock};

use super::grouped::Grouped;
use super::{allocated, beside_releases, blind, told};
use crate::curve::{Curve, CurvePoint, check_smallest};
use crate::error::PrivacyError;
use crate::interval::Interval;
use crate::loss::Budget;
use crate::mechanism::{Blind, Mechanism, Neighbours, Phase};
use crate::normal;

/// A theorem that gives a guarantee against A₀.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Route {
    /// A₀ as such: a pair for every round or epoch, composed.
    Direct,
    /// The guarantee against A₁, who sees more.
    Told,
    /// 1 − (1−f)^{∘g} of the best curve of one sample.
    Group,
}

/// A certified value and the theorem it comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Answer {
    /// The value.
    pub value: Interval,
    /// The theorem.
    pub route: Route,
}

/// All that is proved against A₀.
///
/// # Guarantee
/// Each answer is at least as strong as that of every [`Route`], up to the width of its interval: a route is
/// left out only where it is proved to be weaker, or where an estimate puts it behind by more than
/// `MARGIN`. All routes hold at the same time, so the strongest may be taken for each question.
pub struct Best {
    mechanism: Mechanism,
    direct: Option<Result<Box<dyn Curve>, PrivacyError>>,
    told: OnceLock<Result<Box<dyn Curve>, PrivacyError>>,
    group: Option<OnceLock<Result<Grouped, PrivacyError>>>,
    /// Of the pairs of `direct`.
    budget: Arc<Budget>,
}

/// How far an estimate of group privacy must lie behind before it is not computed. It is off by up to a few
/// per cent.
pub const MARGIN: f64 = 0.1;
/// The same for β, in standard deviations: there the errors of g steps add up.
const MARGIN_OF_BETA: f64 = 0.2;
/// Up to so many rounds, mixed samplers are counted as A₁ sees them, and group privacy is not asked where the
/// run has a bound of its own.
const FEW_ROUNDS: u64 = 128;
/// Intervals wider than this, relative to the value, may be improved by a weaker theorem.
const NARROW: f64 = 1e-6;

/// Which end of an interval is the guarantee.
#[derive(Clone, Copy, PartialEq)]
enum Smaller {
    /// ε, δ, µ: the upper end, and smaller is stronger.
    Better,
    /// β: the lower end, and smaller is weaker.
    Worse,
}

impl Smaller {
    fn prefers(self, new: Interval, old: Interval) -> bool {
        match self {
            Smaller::Better => new.upper < old.upper,
            Smaller::Worse => new.lower > old.lower,
        }
    }

    /// Whether an estimate is too far behind to matter.
    fn is_behind(self, guess: f64, known: Interval) -> bool {
        match self {
            Smaller::Better => guess > known.upper * (1.0 + MARGIN),
            Smaller::Worse => {
                let quantile = |rate: f64| normal::quantile(rate.clamp(1e-290, 1.0 - 1e-16));
                quantile(guess) + MARGIN_OF_BETA < quantile(known.lower)
            }
        }
    }
}

impl Best {
    /// `mechanism` has its equal phases merged.
    pub(super) fn new(mechanism: Mechanism) -> Result<Self, PrivacyError> {
        let covered = |phase: &Phase| match phase.sampling().blind() {
            Blind::Halves | Blind::Line { .. } | Blind::Allocation { .. } => true,
            Blind::Unsupported { .. } => false,
        };
        if !mechanism.phases().iter().any(covered) {
            return Err(blind::refusal(&mechanism));
        }
        let g = mechanism.differing();
        let rounds: u64 = mechanism.phases().iter().map(Phase::rounds).sum();
        // For so few rounds a curve of different factors, or that of one sample beside that of g, takes the
        // engine too long.
        let many = rounds > FEW_ROUNDS;
        let budget = Arc::default();
        let direct = if blind::only_rounds(&mechanism) || (many && blind::has_rounds(&mechanism)) {
            Some(blind::curve(&mechanism, &budget))
        } else if allocated::only(&mechanism) && g == 1 {
            Some(allocated::curve(&mechanism))
        } else {
            None
        };
        let group = (g > 1 && (many || direct.is_none())).then(OnceLock::new);
        Ok(Self { mechanism, direct, told: OnceLock::new(), group, budget })
    }

    fn told(&self) -> Result<&dyn Curve, PrivacyError> {
        let told = self.told.get_or_init(|| told(&self.mechanism));
        told.as_ref().map(|curve| &**curve).map_err(Clone::clone)
    }

    fn group(&self) -> Option<Result<&Grouped, PrivacyError>> {
        let of_one = || {
            let single = Self::new(self.mechanism.with_differing(1))?;
            Ok(Grouped::new(Box::new(single), self.mechanism.differing()))
        };
        Some(self.group.as_ref()?.get_or_init(of_one).as_ref().map_err(Clone::clone))
    }

    /// Whether every phase is Poisson sampled: then the pair can happen, and nothing proved is stronger.
    fn by_poisson(&self) -> bool {
        self.mechanism.phases().iter().all(|phase| match phase.sampling().blind() {
            Blind::Line { .. } => true,
            Blind::Halves | Blind::Allocation { .. } | Blind::Unsupported { .. } => false,
        })
    }

    /// Whether A₁'s guarantee can be the stronger one although A₁ sees more: the filter is ignored against
    /// A₀, and the two steps of a substitution lose.
    fn told_may_win(&self) -> bool {
        let two_steps =
            allocated::only(&self.mechanism) && self.mechanism.neighbours() == Neighbours::Substitute;
        two_steps || self.mechanism.phases().iter().any(Phase::filtered)
    }

    /// Whether data sets exist for which the answer of this route is attained, so that no theorem improves it.
    pub fn is_exact(&self, route: Route) -> bool {
        route == Route::Direct && (self.by_poisson() || allocated::attains(&self.mechanism))
    }

    /// Asks the routes in turn, and not those that cannot win.
    fn asked(
        &self,
        smaller: Smaller,
        ask: impl Fn(&dyn Curve) -> Result<Interval, PrivacyError>,
        guess: impl Fn(&Grouped) -> Result<f64, PrivacyError>,
    ) -> Result<Answer, PrivacyError> {
        self.budget.renew();
        let mut failed = None;
        let mut best: Option<Answer> = None;
        let mut offer = |best: &mut Option<Answer>, route, value: Result<Interval, PrivacyError>| match value
        {
            Ok(value) if value.lower.is_nan() || value.upper.is_nan() => {}
            Ok(value) if best.is_none_or(|known| smaller.prefers(value, known.value)) => {
                *best = Some(Answer { value, route });
            }
            Ok(_) => {}
            Err(error) => failed = failed.take().or(Some(error)),
        };
        if let Some(direct) = &self.direct {
            let value = direct.as_ref().map_err(Clone::clone).and_then(|curve| ask(&**curve));
            offer(&mut best, Route::Direct, value);
        }
        let narrow = |best: &Option<Answer>| {
            best.is_some_and(|known| {
                known.value.upper.is_finite() && known.value.width() <= NARROW * known.value.upper.abs()
            })
        };
        if self.told_may_win() || !narrow(&best) {
            offer(&mut best, Route::Told, self.told().and_then(&ask));
        }
        if !(self.by_poisson() && narrow(&best))
            && let Some(group) = self.group()
        {
            let value = group.and_then(|group| match best {
                Some(known) if smaller.is_behind(guess(group)?, known.value) => Ok(known.value),
                _ => ask(group),
            });
            offer(&mut best, Route::Group, value);
        }
        best.ok_or_else(|| failed.unwrap_or_else(|| blind::refusal(&self.mechanism)))
    }

    /// ε(δ) and its theorem.
    pub fn answer_epsilon(&self, delta: f64) -> Result<Answer, PrivacyError> {
        self.asked(Smaller::Better, |curve| curve.epsilon(delta), |group| group.guess_epsilon(delta))
    }

    /// δ(ε) and its theorem.
    pub fn answer_delta(&self, epsilon: f64) -> Result<Answer, PrivacyError> {
        self.asked(Smaller::Better, |curve| curve.delta(epsilon), |group| group.guess_delta(epsilon))
    }

    /// f(α) and its theorem.
    pub fn answer_beta(&self, alpha: f64) -> Result<Answer, PrivacyError> {
        self.asked(Smaller::Worse, |curve| curve.beta(alpha), |group| group.guess_beta(alpha))
    }

    /// [`Curve::mu_on_default_range`] and its theorem.
    pub fn answer_mu(&self) -> Result<(Answer, f64), PrivacyError> {
        let zero = self.point(0.0)?;
        if zero.alpha.lower < 1e-290 {
            let (value, smallest) = self.mu_on_default_range()?;
            return Ok((Answer { value, route: Route::Direct }, smallest));
        }
        let smallest = (1e-3 * zero.alpha.lower).min(1e-6);
        Ok((self.answer_mu_from(smallest)?, smallest))
    }

    fn answer_mu_from(&self, smallest: f64) -> Result<Answer, PrivacyError> {
        self.asked(Smaller::Better, |curve| mu_down_to(curve, smallest), |group| group.guess_mu(smallest))
    }

    /// The theorem behind a route, in one sentence.
    pub fn basis(&self, route: Route) -> String {
        let mechanism = &self.mechanism;
        let basis = match route {
            Route::Told => "the guarantee against A1, who sees more".to_string(),
            Route::Group => format!(
                "group privacy in trade-off form, 1 − (1−f)^{{∘{}}} of the curve of one differing sample",
                mechanism.differing()
            ),
            Route::Direct if allocated::only(mechanism) => allocated::basis(mechanism).to_string(),
            Route::Direct => {
                let mut parts = vec!["composition over the rounds"];
                let some = |of: &dyn Fn(Blind) -> bool| {
                    mechanism.phases().iter().any(|phase| of(phase.sampling().blind()))
                };
                if some(&|blind| matches!(blind, Blind::Halves)) {
                    parts.push(
                        "of the subsampled round profile Σ_k q_k·δ_{G_{k/σ}}(ln(1+(e^ε−1)/η)) (advanced joint \
                         convexity; for g = 1 it is C_{ms/N}(G_{1/σ}))",
                    );
                }
                if some(&|blind| matches!(blind, Blind::Line { .. })) {
                    parts.push(match mechanism.neighbours() {
                        Neighbours::AddRemove => {
                            "of the Poisson pair of mixtures of Gaussians, the worst over all ways to add some \
                             of the samples and remove the others"
                        }
                        Neighbours::Substitute => "of the pair of opposite Poisson mixtures of Gaussians",
                    });
                }
                if some(&|blind| matches!(blind, Blind::Allocation { .. } | Blind::Unsupported { .. })) {
                    parts.push("with the shuffled and allocated phases as A1 sees them");
                }
                if mechanism.phases().iter().any(Phase::filtered) {
                    parts.push("ignoring the filter, which can only help");
                }
                parts.remove(0).to_string() + " " + &parts.join("; ")
            }
        };
        let bound = if self.is_exact(route) { "" } else { "; an upper bound, not known to be attained" };
        basis + bound + beside_releases(mechanism)
    }
}

impl Curve for Best {
    fn delta(&self, epsilon: f64) -> Result<Interval, PrivacyError> {
        Ok(self.answer_delta(epsilon)?.value)
    }

    /// The point of the strongest curve at this slope; group privacy only where there is no other.
    fn point(&self, epsilon: f64) -> Result<CurvePoint, PrivacyError> {
        self.budget.renew();
        let direct = self.direct.as_ref().map(|direct| direct.as_ref().map_err(Clone::clone));
        let direct = direct.map(|curve| curve.and_then(|curve| curve.point(epsilon)));
        let resolved = |point: &CurvePoint| {
            point.delta.width() <= 1e-3 * point.delta.upper && point.alpha.width() <= 1e-3 * point.alpha.upper
        };
        match direct {
            Some(Ok(point)) if !self.told_may_win() && resolved(&point) => Ok(point),
            None | Some(Err(_)) if self.group.is_some() => match self.group() {
                Some(Ok(group)) => stronger(group.point(epsilon), self.told()?.point(epsilon)),
                _ => self.told()?.point(epsilon),
            },
            Some(point) => stronger(point, self.told().and_then(|told| told.point(epsilon))),
            None => self.told()?.point(epsilon),
        }
    }

    fn epsilon(&self, delta: f64) -> Result<Interval, PrivacyError> {
        Ok(self.answer_epsilon(delta)?.value)
    }

    fn beta(&self, alpha: f64) -> Result<Interval, PrivacyError> {
        Ok(self.answer_beta(alpha)?.value)
    }

    fn mu(&self, smallest: f64) -> Result<Interval, PrivacyError> {
        Ok(self.answer_mu_from(smallest)?.value)
    }
}

/// A µ that holds wherever both error rates are at least `smallest`: that of a larger range, where a curve lies so
/// low that this one is empty.
fn mu_down_to(curve: &dyn Curve, smallest: f64) -> Result<Interval, PrivacyError> {
    check_smallest(smallest)?;
    curve.mu(smallest).or_else(|error| match curve.mu_on_default_range()? {
        (mu, range) if range <= smallest => Ok(mu),
        _ => Err(error),
    })
}

/// The point with the smaller δ, or the only one.
pub(super) fn stronger(
    a: Result<CurvePoint, PrivacyError>,
    b: Result<CurvePoint, PrivacyError>,
) -> Result<CurvePoint, PrivacyError> {
    match (a, b) {
        (Ok(a), Ok(b)) => Ok(if a.delta.upper <= b.delta.upper { a } else { b }),
        (Ok(only), Err(_)) | (Err(_), Ok(only)) => Ok(only),
        (Err(error), Err(_)) => Err(error),
    }
}
