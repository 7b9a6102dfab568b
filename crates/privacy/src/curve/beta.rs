//! The miss rate at a false-alarm rate: between a supporting line below the curve and a chord above it, each from
//! points that are certified.

use super::CurvePoint;
use crate::error::PrivacyError;
use crate::interval::Interval;
use crate::normal;

/// The width, relative to the smaller of β and 1 − β, at which the search ends.
const NARROW: f64 = 1e-9;
/// How far beyond the wanted rate, in standard deviations, the search aims once it is near, so that the rate comes
/// to lie between two close points. Line and chord then miss the curve by about its square.
const BEYOND: f64 = 1e-5;
/// Points on each side that line and chord are taken from.
const NEIGHBOURS: usize = 4;
/// The most points computed for one β.
const MOST_POINTS: usize = 48;
/// Past this threshold nothing is hidden.
const FARTHEST: f64 = 1e15;
/// The most points that are remembered.
const MOST_KNOWN: usize = 4096;

/// Points of a trade-off function in the order of their thresholds; the first is that of slope −1.
#[derive(Clone, Default, Debug)]
pub(crate) struct Points(Vec<CurvePoint>);

impl Points {
    fn insert(&mut self, point: CurvePoint) {
        let place = self.0.partition_point(|p| p.epsilon < point.epsilon);
        if self.0.get(place).is_none_or(|p| p.epsilon > point.epsilon) {
            self.0.insert(place, point);
        }
    }

    /// Adds what another search has found; where that is too much, only the first point is kept.
    pub(crate) fn merge(&mut self, found: &Self) {
        found.0.iter().for_each(|&point| self.insert(point));
        if self.0.len() > MOST_KNOWN {
            self.0.truncate(1);
        }
    }
}

/// One half of the curve: left of the stretch of slope −1, or its mirror image right of it, where f(β_ε) = α_ε.
#[derive(Clone, Copy)]
enum Half {
    Left,
    Right,
}

impl Half {
    /// The rate on the horizontal axis.
    fn from(self, p: &CurvePoint) -> Interval {
        match self {
            Half::Left => p.alpha,
            Half::Right => p.beta,
        }
    }

    fn to(self, p: &CurvePoint) -> Interval {
        match self {
            Half::Left => p.beta,
            Half::Right => p.alpha,
        }
    }

    /// Whether the point lies beyond the rate, seen from slope −1, or at it.
    fn is_past(self, p: &CurvePoint, rate: f64) -> bool {
        match self {
            Half::Left => p.alpha.middle() <= rate,
            Half::Right => p.beta.middle() >= rate,
        }
    }

    /// The slope of the supporting line, without its sign.
    fn slope(self, p: &CurvePoint) -> f64 {
        match self {
            Half::Left => p.epsilon.exp(),
            Half::Right => (-p.epsilon).exp(),
        }
    }

    /// Whether the point's own width leaves open on which side of the rate it lies.
    fn holds(self, p: &CurvePoint, rate: f64) -> bool {
        let from = self.from(p);
        from.lower <= rate && rate <= from.upper
    }

    /// A threshold next to that of a point at the rate, on the side where other points are farther away; `None`
    /// where they are close on both sides.
    fn beside(
        self,
        known: &[CurvePoint],
        next: usize,
        rate: f64,
        quantile: f64,
        hit: &CurvePoint,
    ) -> Option<f64> {
        let is_clear = |p: &&CurvePoint| !self.holds(p, rate);
        let clear = [known[..next].iter().rev().find(is_clear), known[next..].iter().find(is_clear)];
        let (apart, other) = clear
            .into_iter()
            .flatten()
            .map(|p| (self.distance(p, quantile).abs(), p.epsilon))
            .max_by(|a, b| a.0.total_cmp(&b.0))?;
        let width = self.from(hit).width() / normal::density(quantile).max(1e-300);
        let step = BEYOND.max(2.0 * width);
        (apart > 4.0 * step).then(|| hit.epsilon + (other - hit.epsilon) * step / apart)
    }

    /// The supporting line of a point, a lower bound on the curve: by δ, and by the point it passes through.
    fn line(self, p: &CurvePoint, rate: f64) -> f64 {
        let slope = self.slope(p);
        let product = slope * rate;
        let height = match self {
            Half::Left => 1.0 - p.delta.upper,
            Half::Right => slope * (1.0 - p.delta.upper),
        };
        let by_delta = height - product - 4.0 * f64::EPSILON * (height + product);
        let rise = slope * (self.from(p).lower - rate);
        let to = self.to(p).lower;
        let through_point = to + rise - 4.0 * f64::EPSILON * (to + rise.abs());
        by_delta.max(through_point)
    }

    /// How far the computed supporting line may lie below the true one.
    fn height(self, p: &CurvePoint) -> f64 {
        let by_delta = match self {
            Half::Left => p.delta.width(),
            Half::Right => p.delta.width() * self.slope(p),
        };
        by_delta.min(self.to(p).width() + self.slope(p) * self.from(p).width())
    }

    /// How many standard deviations the point is away from the rate, positive before it. For a Gaussian curve this
    /// is linear in the threshold.
    fn distance(self, p: &CurvePoint, quantile: f64) -> f64 {
        let here = normal::quantile(self.from(p).middle().clamp(1e-300, 1.0 - 0.5 * f64::EPSILON));
        match self {
            Half::Left => here - quantile,
            Half::Right => quantile - here,
        }
    }

    /// The curve at the rate, from the points next to it on both sides: `known[..next]` lie before it.
    ///
    /// # Guarantee
    /// Supporting lines lie below the curve. The upper right corner of a point's box lies on the curve or above it,
    /// and so does a chord of two such corners, because the curve is convex.
    fn between(self, known: &[CurvePoint], next: usize, rate: f64) -> Interval {
        let near = &known[next.saturating_sub(NEIGHBOURS)..(next + NEIGHBOURS).min(known.len())];
        let lower = near.iter().map(|p| self.line(p, rate)).fold(0.0, f64::max);
        let corner = |p: &CurvePoint| (self.from(p).upper, self.to(p).upper);
        // f(0) ≤ 1 and f(1) = 0.
        let (mut left, mut right) = ((0.0, 1.0), (1.0, 0.0));
        for (x, y) in near.iter().map(corner) {
            if x <= rate && x >= left.0 {
                left = (x, y);
            }
            if x >= rate && x <= right.0 {
                right = (x, y);
            }
        }
        let width = right.0 - left.0;
        let share = if width > 0.0 { (rate - left.0) / width } else { 0.0 };
        // The curve falls, so right of a corner it is no higher, however wide the other point's box is.
        let chord = left.1 + share * (right.1.min(left.1) - left.1);
        Interval::new(lower, (chord + 4.0 * f64::EPSILON * left.1).min(1.0 - rate))
    }
}

/// f(α), and the points that were computed for it.
///
/// # Guarantee
/// That of [`Curve::beta`](super::Curve::beta).
pub(crate) fn beta_of(
    point: &dyn Fn(f64) -> Result<CurvePoint, PrivacyError>,
    alpha: f64,
    known: &mut Points,
) -> Result<Interval, PrivacyError> {
    if alpha == 0.0 {
        return Ok(Interval::exact(1.0));
    }
    if alpha == 1.0 {
        return Ok(Interval::exact(0.0));
    }
    let zero = match known.0.first() {
        Some(&first) if first.epsilon == 0.0 => first,
        _ => {
            let zero = point(0.0)?;
            known.insert(zero);
            zero
        }
    };
    let half = if alpha <= zero.alpha.middle() {
        Half::Left
    } else if alpha >= zero.beta.middle() {
        Half::Right
    } else {
        // The stretch of slope −1, where the likelihood ratio is one.
        let total =
            Interval { lower: 1.0 - zero.delta.upper, upper: (zero.alpha.upper + zero.beta.upper).min(1.0) };
        return Ok(Interval { lower: (total.lower - alpha).max(0.0), upper: (total.upper - alpha).max(0.0) });
    };
    search(point, half, alpha, known)
}

fn search(
    point: &dyn Fn(f64) -> Result<CurvePoint, PrivacyError>,
    half: Half,
    rate: f64,
    known: &mut Points,
) -> Result<Interval, PrivacyError> {
    let quantile = normal::quantile(rate);
    let mut best = Interval::new(0.0, 1.0 - rate);
    // Evaluations in a row that landed on the same side of the rate, and that did not help.
    let (mut last, mut same_side, mut idle) = (None, 0, 0);
    for _ in 0..MOST_POINTS {
        let next = known.0.partition_point(|p| !half.is_past(p, rate)).max(1);
        let found = half.between(&known.0, next, rate);
        let better = Interval { lower: best.lower.max(found.lower), upper: best.upper.min(found.upper) };
        idle = if better.width() > 0.5 * best.width() { idle + 1 } else { 0 };
        best = Interval::new(better.lower, better.upper);
        if best.width() <= NARROW * best.lower.min(1.0 - best.upper) {
            break;
        }
        let low = known.0[next - 1];
        let Some(&high) = known.0.get(next) else {
            if low.epsilon > FARTHEST {
                break;
            }
            known.insert(point((2.0 * low.epsilon).max(1.0))?);
            idle = 0;
            continue;
        };
        let (before, after) = (half.distance(&low, quantile), half.distance(&high, quantile));
        // What the nearest point itself leaves open.
        let open = half.height(if before <= -after { &low } else { &high });
        if best.width() <= 4.0 * open || high.epsilon - low.epsilon < 1e-13 * high.epsilon {
            break;
        }
        if idle >= 12 || (idle >= 3 && before.min(-after) < 1e-3) {
            break;
        }
        if let Some(hit) = [low, high].into_iter().find(|p| half.holds(p, rate)) {
            let Some(beside) = half.beside(&known.0, next, rate, quantile, &hit) else { break };
            known.insert(point(beside)?);
            continue;
        }
        // Aimed across the rate from the side of the last point.
        let aim = match last {
            Some(Side::Before) => -(0.05 * before + BEYOND).min(-0.5 * after),
            Some(Side::After) => (BEYOND - 0.05 * after).min(0.5 * before),
            None => 0.0,
        };
        let gap = high.epsilon - low.epsilon;
        let share = if same_side >= 2 || before - after <= 0.0 {
            0.5
        } else {
            ((before - aim) / (before - after)).clamp(1e-6, 1.0 - 1e-6)
        };
        let middle = low.epsilon + share * gap;
        if middle <= low.epsilon || middle >= high.epsilon {
            break;
        }
        let middle = point(middle)?;
        let side = if half.is_past(&middle, rate) { Side::After } else { Side::Before };
        same_side = if last == Some(side) { same_side + 1 } else { 0 };
        last = Some(side);
        known.insert(middle);
    }
    Ok(best)
}

/// Where a point lies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Before,
    After,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gaussian;

    /// The point of G_µ with slope −e^ε, each value known to a relative error.
    fn gaussian_point(mu: f64, epsilon: f64, error: f64) -> CurvePoint {
        let wide = |value: f64| Interval { lower: value * (1.0 - error), upper: value * (1.0 + error) };
        let alpha = normal::cdf(-epsilon / mu - 0.5 * mu);
        let beta = normal::cdf(epsilon / mu - 0.5 * mu);
        CurvePoint {
            epsilon,
            delta: wide(gaussian::delta(mu, epsilon)),
            alpha: wide(alpha),
            beta: wide(beta).clamp(0.0, 1.0),
        }
    }

    /// Whatever was asked before, the interval holds the closed form, and the points are few.
    #[test]
    fn it_is_the_closed_form_of_a_gaussian() {
        for (mu, error) in [(0.01, 1e-13), (0.5, 1e-13), (1.0, 1e-6), (6.0, 1e-13), (20.0, 1e-13)] {
            let asked = std::cell::Cell::new(0);
            let point = |epsilon: f64| {
                asked.set(asked.get() + 1);
                Ok(gaussian_point(mu, epsilon, error))
            };
            let mut shared = Points::default();
            let rates: Vec<f64> =
                (1..100).map(|i| f64::from(i) / 100.0).chain([1e-9, 1e-3, 0.9999]).collect();
            for &alpha in &rates {
                let alone = beta_of(&point, alpha, &mut Points::default()).unwrap();
                let together = beta_of(&point, alpha, &mut shared).unwrap();
                let exact = gaussian::tradeoff(mu, alpha);
                for found in [alone, together] {
                    let room = 1e-12 * exact;
                    assert!(
                        found.lower <= exact + room && exact <= found.upper + room,
                        "{mu} {alpha}: {found:?}"
                    );
                    // The points leave this much open.
                    let slope = (-mu * normal::quantile(alpha) - 0.5 * mu * mu).exp();
                    let open = 10.0 * error * (exact + slope * alpha);
                    let narrow = 1e-6 * exact.min(1.0 - exact);
                    assert!(
                        found.width() <= narrow + open + 1e-15 * exact,
                        "{mu} {alpha}: {found:?} {exact:e}"
                    );
                }
            }
            assert!(asked.get() < 20 * rates.len(), "{mu}: {} points", asked.get());
        }
    }

    /// The memory of a curve does not grow with the number of questions.
    #[test]
    fn no_more_points_are_remembered_than_there_is_room_for() {
        let mut known = Points::default();
        for i in 0..2 * MOST_KNOWN {
            let mut found = known.clone();
            found.insert(gaussian_point(1.0, 1e-3 * i as f64, 0.0));
            known.merge(&found);
            assert!(known.0.len() <= MOST_KNOWN && known.0[0].epsilon == 0.0, "{i}: {}", known.0.len());
        }
    }

    /// A point that is hardly known does not widen what a point before it says.
    #[test]
    fn a_wide_point_does_not_lift_the_chord() {
        let narrow = gaussian_point(1.0, 1.0, 1e-13);
        let whole = Interval { lower: 0.0, upper: 1.0 };
        let wide = CurvePoint {
            alpha: Interval { lower: 0.0, upper: 0.4 },
            beta: whole,
            ..gaussian_point(1.0, 0.5, 0.0)
        };
        let found = Half::Left.between(&[wide, narrow], 1, 0.2);
        assert!(found.upper <= narrow.beta.upper * (1.0 + 1e-12), "{found:?} {narrow:?}");
        assert!(found.contains(gaussian::tradeoff(1.0, 0.2)), "{found:?}");
    }

    /// A run that hides nothing, asked at every rate: there is an answer and no panic.
    #[test]
    fn huge_thresholds_have_an_answer() {
        let point = |epsilon: f64| Ok(gaussian_point(1e6, epsilon, 1e-9));
        for alpha in [1e-300, 1e-9, 0.5, 1.0 - 1e-16] {
            let found = beta_of(&point, alpha, &mut Points::default()).unwrap();
            assert!(
                0.0 <= found.lower && found.lower <= found.upper && found.upper <= 1e-9,
                "{alpha}: {found:?}"
            );
        }
    }
}
