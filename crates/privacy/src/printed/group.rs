//! 1 − (1−f)^{∘g}: what a guarantee for one differing sample gives for g (Dong, Roth, Su 2022,
//! Thm 2.14).

use crate::curve::Curve;
use crate::error::PrivacyError;
use crate::gaussian;
use crate::normal;

/// A symmetric trade-off function in the coordinates in which G_µ is a shift by µ.
///
/// With x = Φ⁻¹(1−α) and y = Φ⁻¹(f(α)) the step α → 1 − f(α) is x → y. µ = x − y is an even and
/// slowly varying function of the middle w = (x + y)/2, so a few exact points joined by straight
/// lines are accurate enough for a printed form.
struct Shift {
    /// (w, µ) with w rising from 0.
    points: Vec<(f64, f64)>,
}

/// The spacing of the points in w.
const STEP: f64 = 0.4;
/// Beyond this x the error rate α underflows.
const LAST: f64 = 37.0;

impl Shift {
    /// Points of `f` up to x = `reach`.
    fn new(f: &dyn Curve, reach: f64) -> Result<Self, PrivacyError> {
        let mut points = Vec::new();
        let mut epsilon = 0.0;
        loop {
            let point = match f.point(epsilon) {
                Ok(point) => point,
                // Far out, where a curve may no longer be certified, the last µ is extended.
                Err(_) if !points.is_empty() => break,
                Err(error) => return Err(error),
            };
            let alpha = point.alpha.middle();
            if point.alpha.width() > 1e-3 * alpha && !points.is_empty() {
                break;
            }
            // 1 − β as a sum of positive terms.
            let hit = point.delta.middle() + epsilon.exp() * alpha;
            let (x, y) = (-normal::quantile(alpha), -normal::quantile(hit.min(1.0)));
            let mu = x - y;
            let w = if epsilon == 0.0 { 0.0 } else { 0.5 * (x + y) };
            if !(mu > 0.0 && x < LAST) || points.last().is_some_and(|&(last, _)| w <= last) {
                break;
            }
            points.push((w, mu));
            if x > reach {
                break;
            }
            // For G_µ the threshold is ε = µ·w.
            epsilon += STEP * mu;
        }
        Ok(Self { points })
    }

    /// µ at the middle w; constant beyond the last point.
    fn mu(&self, w: f64) -> f64 {
        let w = w.abs();
        let i = self.points.partition_point(|p| p.0 <= w);
        match (i.checked_sub(1).map(|i| self.points[i]), self.points.get(i)) {
            (Some((w0, mu0)), Some(&(w1, mu1))) => mu0 + (mu1 - mu0) * (w - w0) / (w1 - w0),
            (Some((_, mu)), None) | (None, Some(&(_, mu))) => mu,
            (None, None) => 0.0,
        }
    }

    /// x → y: the fixed point w = x − µ(w)/2, which contracts because µ varies slowly.
    fn step(&self, x: f64) -> f64 {
        let mut w = x;
        for _ in 0..40 {
            let next = x - 0.5 * self.mu(w);
            if (next - w).abs() < 1e-10 {
                break;
            }
            w = next;
        }
        x - self.mu(w)
    }
}

/// The ε at `delta` of 1 − (1−f)^{∘g} for the curve f of a single differing sample; about four
/// digits.
pub(super) fn epsilon(single: &dyn Curve, differing: u64, delta: f64) -> Result<f64, PrivacyError> {
    let zero = single.point(0.0)?;
    let mu = -2.0 * normal::quantile(zero.alpha.middle());
    let steps = differing as f64;
    let reach = (-normal::quantile(delta.min(0.5)) + 2.0 * steps * mu + 2.0).min(LAST);
    let shift = Shift::new(single, reach)?;
    // ln α before the first step and ln(1 − h(α)) after the last, on a grid of x: the grid finds the maximum
    // up to the square of the spacing.
    let count = 800;
    let trips: Vec<(f64, f64)> = (0..=count)
        .map(|i| {
            let x = -2.0 + (reach + 2.0) * f64::from(i) / f64::from(count);
            let end = (0..differing).fold(x, |x, _| shift.step(x));
            (normal::ln_cdf(-x), normal::ln_cdf(-end))
        })
        .collect();
    let profile = |epsilon: f64| {
        trips.iter().map(|&(start, end)| end.exp() - (epsilon + start).exp()).fold(0.0, f64::max)
    };
    if profile(0.0) <= delta {
        return Ok(0.0);
    }
    let mut high = 1.0;
    while profile(high) > delta && high < 1e9 {
        high *= 2.0;
    }
    Ok(gaussian::bisect(0.0, high, |e| profile(e) > delta))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curve::CurvePoint;
    use crate::interval::Interval;

    struct Gaussian(f64);

    impl Curve for Gaussian {
        fn delta(&self, epsilon: f64) -> Result<Interval, PrivacyError> {
            Ok(Interval::exact(gaussian::delta(self.0, epsilon)))
        }

        fn point(&self, epsilon: f64) -> Result<CurvePoint, PrivacyError> {
            let at = |x: f64| Interval::exact(normal::cdf(x));
            let (ratio, half) = (epsilon / self.0, 0.5 * self.0);
            let (alpha, beta) = (at(-ratio - half), at(ratio - half));
            Ok(CurvePoint { epsilon, delta: self.delta(epsilon)?, alpha, beta })
        }
    }

    /// G_µ for one sample gives G_{gµ} for g.
    #[test]
    fn a_gaussian_scales_with_the_size_of_the_group() {
        for (mu, differing) in [(0.3, 1), (0.3, 4), (0.05, 20), (1.0, 8)] {
            for delta in [1e-2, 1e-5, 1e-10] {
                let exact = gaussian::epsilon(mu * differing as f64, delta);
                let got = epsilon(&Gaussian(mu), differing, delta).unwrap();
                assert!((got - exact).abs() < 2e-4 * exact, "{mu} {differing} {delta}: {got} {exact}");
            }
        }
    }
}
