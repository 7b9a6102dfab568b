//! Questions about a trade-off function, answered with certified intervals.
//!
//! Everything a user asks for (δ, ε, β, µ, the curve) is derived here from one primitive: the
//! point of a symmetric trade-off function f where it has slope −e^ε.

mod beta;
mod remembered;

use crate::error::{PrivacyError, require};
use crate::gaussian;
use crate::interval::Interval;
use beta::{Points, beta_of};
pub(crate) use remembered::Remembered;

/// The test that accuses when the likelihood ratio exceeds e^ε, at one ε ≥ 0.
#[derive(Clone, Copy, Debug)]
pub struct CurvePoint {
    /// ε, the threshold.
    pub epsilon: f64,
    /// δ(ε) = 1 − β − e^ε·α.
    pub delta: Interval,
    /// The false-alarm rate.
    pub alpha: Interval,
    /// The miss rate.
    pub beta: Interval,
}

impl CurvePoint {
    /// The largest relative width of its three values; infinite where one of them is not a number.
    pub(crate) fn relative_width(&self) -> f64 {
        let of = |value: Interval| match value.width() / value.upper {
            _ if value.upper == 0.0 => 0.0,
            width if width.is_nan() => f64::INFINITY,
            width => width,
        };
        of(self.delta).max(of(self.alpha)).max(of(self.beta))
    }
}

/// A symmetric trade-off function f with f(0) = 1, known through its supporting lines.
pub trait Curve: Send + Sync {
    /// δ(ε) of the worse of the two directions, for ε ≥ 0.
    ///
    /// # Guarantee
    /// `upper` is at least sup over events S of P(S) − e^ε·Q(S) and the same with P, Q exchanged;
    /// `lower` is at most that.
    fn delta(&self, epsilon: f64) -> Result<Interval, PrivacyError>;

    /// The point of f with a supporting line of slope −e^ε, for ε ≥ 0.
    ///
    /// # Guarantee
    /// The curve passes through some (α, β) inside the two intervals, and the line through it with
    /// slope −e^ε lies below the curve.
    fn point(&self, epsilon: f64) -> Result<CurvePoint, PrivacyError>;

    /// The smallest ε with δ(ε) ≤ `delta`.
    ///
    /// # Guarantee
    /// The run is (`upper`, `delta`)-DP, and not (ε, `delta`)-DP for any ε below `lower`, where the
    /// computed bound is itself tight.
    fn epsilon(&self, delta: f64) -> Result<Interval, PrivacyError> {
        check_delta(delta)?;
        epsilon_of(&|e| self.delta(e), delta)
    }

    /// f(α), the miss rate of the best attack with false-alarm rate α. The lower end is the
    /// guarantee.
    fn beta(&self, alpha: f64) -> Result<Interval, PrivacyError> {
        require((0.0..=1.0).contains(&alpha), "alpha", alpha, "between 0 and 1")?;
        beta_of(&|e| self.point(e), alpha, &mut Points::default())
    }

    /// The smallest µ with f(α) ≥ G_µ(α) for every α with α ≥ `smallest` and f(α) ≥ `smallest`.
    ///
    /// # Guarantee
    /// f ≥ G_`upper` on that range. Between two computed points the curve lies above their
    /// supporting lines, and a convex G_µ that lies below the lines where they meet lies below
    /// them everywhere; so nothing is assumed between the points. The price is an upper end that
    /// can be a few parts in 10⁵ above the truth when f is itself almost Gaussian.
    fn mu(&self, smallest: f64) -> Result<Interval, PrivacyError> {
        check_smallest(smallest)?;
        mu_of(&|e| self.point(e), smallest)
    }

    /// [`mu`](Self::mu) on the default range: error rates of at least 1e-6, or of at least a
    /// thousandth of the rate at slope −1 if the run leaks so much that this is smaller.
    fn mu_on_default_range(&self) -> Result<(Interval, f64), PrivacyError> {
        let zero = self.point(0.0)?;
        if zero.alpha.lower < 1e-290 {
            // Nothing is hidden: report how much is known to leak and promise nothing.
            let lower = match zero.alpha.upper > 0.0 {
                true => gaussian::mu_through(zero.alpha.upper, zero.beta).lower,
                false => 0.0,
            };
            return Ok((Interval { lower, upper: f64::INFINITY }, 0.0));
        }
        let smallest = (1e-3 * zero.alpha.lower).min(1e-6);
        Ok((self.mu(smallest)?, smallest))
    }
}

/// The smallest δ accepted: smaller ones have no use, and below it floating-point numbers run out.
pub const SMALLEST_DELTA: f64 = 1e-200;

/// Refuses a δ outside `[SMALLEST_DELTA, 1)`.
pub(crate) fn check_delta(delta: f64) -> Result<(), PrivacyError> {
    require((SMALLEST_DELTA..1.0).contains(&delta), "delta", delta, "at least 1e-200 and below 1")
}

/// Refuses a threshold that is not a finite number of at least 0.
pub(crate) fn check_epsilon(epsilon: f64) -> Result<(), PrivacyError> {
    require(epsilon >= 0.0 && epsilon.is_finite(), "epsilon", epsilon, "a number of at least 0")
}

/// Refuses an error rate at the end of µ's range that is not between 0 and 0.5.
pub(crate) fn check_smallest(smallest: f64) -> Result<(), PrivacyError> {
    require(smallest > 0.0 && smallest < 0.5, "smallest", smallest, "above 0 and below 0.5")
}

/// A root of a falling function between two ends, narrowed by the Illinois variant of false position:
/// superlinear, and it never leaves the bracket.
struct Bracket {
    low: f64,
    /// The value at `low`, halved whenever `high` is replaced twice in a row.
    at_low: f64,
    high: f64,
    at_high: f64,
    last: Option<End>,
}

/// One end of a [`Bracket`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Low,
    High,
}

impl Bracket {
    fn new((low, at_low): (f64, f64), (high, at_high): (f64, f64)) -> Self {
        Self { low, at_low, high, at_high, last: None }
    }

    /// Where the secant crosses zero, or the middle if rounding has carried it out of the bracket.
    fn guess(&self) -> f64 {
        let next = (self.low * self.at_high - self.high * self.at_low) / (self.at_high - self.at_low);
        if next > self.low && next < self.high { next } else { 0.5 * (self.low + self.high) }
    }

    /// Replaces the end on the side of the value, and returns which one it was.
    fn replace(&mut self, at: f64, value: f64) -> End {
        let end = if value > 0.0 { End::Low } else { End::High };
        let again = self.last == Some(end);
        match end {
            End::Low => {
                (self.low, self.at_low) = (at, value);
                if again {
                    self.at_high *= 0.5;
                }
            }
            End::High => {
                (self.high, self.at_high) = (at, value);
                if again {
                    self.at_low *= 0.5;
                }
            }
        }
        self.last = Some(end);
        end
    }
}

/// Finds the root of ln δ, then proves both ends by evaluating δ there.
pub(crate) fn epsilon_of(
    delta: &dyn Fn(f64) -> Result<Interval, PrivacyError>,
    target: f64,
) -> Result<Interval, PrivacyError> {
    let at_zero = delta(0.0)?;
    if at_zero.upper <= target {
        return Ok(Interval::exact(0.0));
    }
    let logarithm = |d: Interval| (d.middle().max(f64::MIN_POSITIVE) / target).ln();
    // A bracket by doubling; beyond 1e15 the run hides nothing.
    let mut proved_low = 0.0;
    let (mut low, mut at_low) = (0.0, logarithm(at_zero));
    let mut high = 1.0;
    let mut at_high;
    loop {
        let d = delta(high)?;
        at_high = logarithm(d);
        if at_high <= 0.0 && d.upper <= target {
            break;
        }
        if d.lower >= target {
            proved_low = high;
        }
        if at_high > 0.0 {
            (low, at_low) = (high, at_high);
        }
        high *= 2.0;
        if high > 1e15 {
            return Ok(Interval { lower: proved_low, upper: f64::INFINITY });
        }
    }
    let mut bracket = Bracket::new((low, at_low), (high, at_high));
    let mut root = 0.5 * (low + high);
    for _ in 0..80 {
        if bracket.at_low <= 0.0 {
            root = bracket.low;
            break;
        }
        root = bracket.guess();
        let value = logarithm(delta(root)?);
        if value.abs() < 1e-13 || bracket.high - bracket.low < 1e-14 * bracket.high {
            break;
        }
        bracket.replace(root, value);
    }
    let here = delta(root)?;
    let ahead = root + 1e-5 * root.max(1e-9);
    let slope = ((logarithm(delta(ahead)?) - logarithm(here)) / (ahead - root)).abs();
    let relative = here.width() / target + 1e-14;
    let first = (relative / slope.max(1e-300)).clamp(4e-16 * root, 1e-2 * root.max(1e-9));
    Ok(Interval {
        lower: proved(root, -first, |e| Ok(delta(e)?.lower >= target))?.unwrap_or(0.0),
        upper: proved(root, first, |e| Ok(delta(e)?.upper <= target))?.unwrap_or(f64::INFINITY),
    })
}

/// The first of start, start + step, start + 2·step, … that satisfies `holds`.
fn proved(
    start: f64,
    step: f64,
    holds: impl Fn(f64) -> Result<bool, PrivacyError>,
) -> Result<Option<f64>, PrivacyError> {
    let mut step = step;
    let mut value = start;
    for _ in 0..40 {
        if value < 0.0 {
            return Ok(None);
        }
        if holds(value)? {
            return Ok(Some(value));
        }
        value = start + step;
        step *= 2.0;
    }
    Ok(None)
}

/// The most points computed for one µ.
const MOST_POINTS: usize = 128;

/// Refines supporting lines where the Gaussian through their meeting point has the largest µ.
pub(crate) fn mu_of(
    point: &dyn Fn(f64) -> Result<CurvePoint, PrivacyError>,
    smallest: f64,
) -> Result<Interval, PrivacyError> {
    let zero = point(0.0)?;
    if zero.alpha.lower <= smallest {
        return Err(PrivacyError::Argument {
            name: "smallest",
            given: smallest,
            allowed: "below the false-alarm rate at slope −1, or the range is empty",
        });
    }
    // Stretches between neighbouring points with the µ their lines allow.
    let mut points = vec![zero];
    let mut epsilon = 0.25;
    while points[points.len() - 1].alpha.lower > smallest && epsilon < 1e15 {
        points.push(point(epsilon)?);
        epsilon = (1.5 * epsilon).max(epsilon + 0.25);
    }
    let below = |p: &CurvePoint| {
        if p.alpha.lower >= smallest && p.beta.lower >= smallest {
            gaussian::mu_through(p.alpha.upper, p.beta).lower
        } else {
            0.0
        }
    };
    let through =
        |(alpha, beta): (f64, f64)| gaussian::mu_through(alpha, Interval::exact(beta.max(0.0))).upper;
    let above = |p: &CurvePoint, next: &CurvePoint| {
        // A stretch wholly outside the range; the one before it reaches the end of the range.
        if p.alpha.upper < smallest {
            return 0.0;
        }
        let meeting = through(meeting_point(p, next, smallest));
        // From where the lines meet to the end of the range only the line of `next` bounds the curve: G_µ must lie
        // below it there as well.
        if next.alpha.lower > smallest {
            meeting
        } else {
            meeting.max(through(higher_line(p, next, smallest)))
        }
    };
    let mut bounds: Vec<f64> = points.windows(2).map(|w| above(&w[0], &w[1])).collect();
    let mut lower = points.iter().map(below).fold(0.0, f64::max);
    // On the stretch of slope −1 the largest µ is at its ends: the first point and its mirror.
    let middle_stretch = gaussian::mu_through(zero.alpha.lower, zero.beta).upper;
    loop {
        let (widest, upper) = bounds
            .iter()
            .copied()
            .enumerate()
            .fold((0, 0.0), |best, (i, mu)| if mu > best.1 { (i, mu) } else { best });
        let result = Interval::new(lower, upper.max(middle_stretch));
        let (p, next) = (points[widest], points[(widest + 1).min(points.len() - 1)]);
        let gap = next.epsilon - p.epsilon;
        if upper <= lower * (1.0 + 1e-6) || points.len() >= MOST_POINTS || gap < 1e-9 * next.epsilon {
            return Ok(result);
        }
        // Aim at the end of the range when it lies between the two.
        let share = if next.alpha.upper < smallest {
            let (a, b) = (p.alpha.middle().ln(), next.alpha.middle().max(1e-320).ln());
            ((a - smallest.ln()) / (a - b)).clamp(0.02, 0.98)
        } else {
            0.5
        };
        let middle = point(p.epsilon + share * gap)?;
        lower = lower.max(below(&middle));
        points.insert(widest + 1, middle);
        bounds[widest] = above(&p, &middle);
        bounds.insert(widest + 1, above(&middle, &next));
    }
}

/// Where the supporting lines of two neighbouring points meet, or where they leave the range.
fn meeting_point(p: &CurvePoint, next: &CurvePoint, smallest: f64) -> (f64, f64) {
    // β = 1 − δ_p − e^{ε_p}·α = 1 − δ_n − e^{ε_n}·α.
    let rise = (offset(p) - offset(next)).max(0.0);
    let slopes = next.epsilon.exp() - p.epsilon.exp();
    higher_line(p, next, (rise / slopes).max(smallest))
}

/// α with the higher of the supporting lines of two points at α, a lower bound on the curve.
fn higher_line(p: &CurvePoint, next: &CurvePoint, alpha: f64) -> (f64, f64) {
    let line = |q: &CurvePoint| 1.0 - offset(q) - q.epsilon.exp() * alpha;
    (alpha, line(p).max(line(next)))
}

/// δ of the supporting line 1 − δ − e^ε·α of a point: the smaller of what is known of it directly and through the
/// point, which the line passes.
fn offset(p: &CurvePoint) -> f64 {
    let product = p.epsilon.exp() * p.alpha.lower;
    let through_point = 1.0 - p.beta.lower - product + 4.0 * f64::EPSILON * (1.0 + product);
    p.delta.upper.min(through_point)
}
