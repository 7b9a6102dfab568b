//! A guarantee that is known only as an upper bound of δ at each ε, and the trade-off function it implies.

use std::sync::OnceLock;

use crate::curve::{Curve, CurvePoint, mu_of};
use crate::error::{PrivacyError, require};
use crate::interval::Interval;

/// Upper bounds of the δ(ε) of a symmetric trade-off function.
pub(super) trait Bound: Send + Sync {
    /// An upper bound of δ(ε), for ε ≥ 0.
    fn delta(&self, epsilon: f64) -> Result<f64, PrivacyError>;

    /// An ε with δ(ε) ≤ `delta`.
    fn epsilon(&self, delta: f64) -> Result<f64, PrivacyError>;

    /// A lower bound of δ(ε): what some pair of neighbouring data sets leaks.
    fn delta_below(&self, _epsilon: f64) -> Result<f64, PrivacyError> {
        Ok(0.0)
    }

    /// An ε below which δ(ε) > `delta` for some pair of neighbouring data sets.
    fn epsilon_below(&self, _delta: f64) -> Result<f64, PrivacyError> {
        Ok(0.0)
    }

    /// The bounds at the multiples 0, `step`, …, `count`·`step`.
    fn table(&self, step: f64, count: usize) -> Result<Vec<f64>, PrivacyError> {
        (0..=count).map(|i| self.delta(i as f64 * step)).collect()
    }
}

/// The largest symmetric convex function that the bounds at a list of thresholds allow.
///
/// # Guarantee
/// f(α) ≥ 1 − δ − e^ε·α for each bound (ε, δ), and f is symmetric: the largest function known to lie below
/// f is the maximum of these lines and of their mirror images. Every answer is about that function, so it
/// holds for f. The other ends of ε and δ are what the bound knows to be attained; those of error rates and
/// of µ say nothing.
pub(super) struct Envelope<B> {
    bound: B,
    lines: OnceLock<Result<Lines, PrivacyError>>,
}

/// Lines tried.
const LINES: usize = 128;
/// The δ at the steepest of them: the error rates of a µ are larger.
const LAST_DELTA: f64 = 1e-10;
/// Relative room for the rounding of a handful of operations.
const ROUNDING: f64 = 16.0 * f64::EPSILON;

/// The lines β = 1 − δ − e^ε·α that are the largest for some α, the flattest first.
pub(super) struct Lines(Vec<(f64, f64)>);

impl Lines {
    /// Keeps those of the lines (ε, δ), ε rising from 0, that matter.
    pub(super) fn new(bounds: impl Iterator<Item = (f64, f64)>) -> Self {
        let mut bounds: Vec<(f64, f64)> = bounds.collect();
        // A line and its mirror image meet at α = β = (1 − δ)/(1 + e^ε), which bounds the total variation.
        let middle = bounds.iter().map(|&(e, d)| (1.0 - d) / (1.0 + e.exp())).fold(0.0, f64::max);
        if let Some(first) = bounds.first_mut() {
            first.1 = first.1.min((1.0 - 2.0 * middle + ROUNDING).max(0.0));
        }
        let mut kept: Vec<(f64, f64)> = Vec::new();
        for line in bounds {
            if kept.last().is_some_and(|last| line.1 >= last.1) {
                continue;
            }
            while let [.., before, last] = kept[..] {
                if meet(last, line) < meet(before, last) {
                    break;
                }
                kept.pop();
            }
            kept.push(line);
        }
        Self(kept)
    }

    /// The end of the stretch with slope −e^ε, or the vertex where the slope passes it.
    pub(super) fn point(&self, epsilon: f64) -> CurvePoint {
        let next = self.0.partition_point(|line| line.0 <= epsilon);
        // The first line has ε = 0, so there is one before `next`.
        let before = self.0[next.saturating_sub(1)];
        let alpha = self.0.get(next).map_or(0.0, |&line| meet(before, line));
        let beta = (1.0 - before.1 - before.0.exp() * alpha).max(0.0);
        let wide = |x: f64, room: f64| Interval { lower: (x - room).max(0.0), upper: (x + room).min(1.0) };
        let delta = before.1 - (epsilon.exp() - before.0.exp()) * alpha;
        CurvePoint {
            epsilon,
            delta: Interval { lower: 0.0, upper: (delta.max(0.0) + ROUNDING * before.1).min(1.0) },
            alpha: wide(alpha, ROUNDING * alpha),
            beta: wide(beta, ROUNDING),
        }
    }

    /// The largest of the lines and of their mirror images at α.
    pub(super) fn beta(&self, alpha: f64) -> f64 {
        let at = |&(epsilon, delta): &(f64, f64)| {
            let slope = epsilon.exp();
            (1.0 - delta - slope * alpha).max((1.0 - delta - alpha) / slope)
        };
        (self.0.iter().map(at).fold(0.0, f64::max) - ROUNDING).max(0.0)
    }
}

/// α where two lines meet.
fn meet((e0, d0): (f64, f64), (e1, d1): (f64, f64)) -> f64 {
    (d0 - d1) / (e1.exp() - e0.exp())
}

impl<B: Bound> Envelope<B> {
    pub(super) fn new(bound: B) -> Self {
        Self { bound, lines: OnceLock::new() }
    }

    fn lines(&self) -> Result<&Lines, PrivacyError> {
        let build = || {
            // e^ε must be finite.
            let last = self.bound.epsilon(LAST_DELTA)?.clamp(1e-6, 600.0);
            let step = last / LINES as f64;
            let bounds = self.bound.table(step, LINES)?;
            Ok(Lines::new(bounds.into_iter().enumerate().map(|(i, delta)| (i as f64 * step, delta))))
        };
        self.lines.get_or_init(build).as_ref().map_err(Clone::clone)
    }
}

impl<B: Bound> Curve for Envelope<B> {
    fn delta(&self, epsilon: f64) -> Result<Interval, PrivacyError> {
        let upper = self.bound.delta(epsilon)?.min(1.0);
        Ok(Interval { lower: self.bound.delta_below(epsilon)?.min(upper), upper })
    }

    fn point(&self, epsilon: f64) -> Result<CurvePoint, PrivacyError> {
        Ok(self.lines()?.point(epsilon))
    }

    fn epsilon(&self, delta: f64) -> Result<Interval, PrivacyError> {
        let upper = self.bound.epsilon(delta)?;
        Ok(Interval { lower: self.bound.epsilon_below(delta)?.min(upper), upper })
    }

    fn beta(&self, alpha: f64) -> Result<Interval, PrivacyError> {
        require((0.0..=1.0).contains(&alpha), "alpha", alpha, "between 0 and 1")?;
        Ok(Interval { lower: self.lines()?.beta(alpha), upper: 1.0 - alpha })
    }

    fn mu(&self, smallest: f64) -> Result<Interval, PrivacyError> {
        let mu = mu_of(&|e| self.point(e), smallest)?;
        Ok(Interval { lower: 0.0, upper: mu.upper })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gaussian;

    /// The exact δ of G_µ, as if it were only a bound.
    struct Gaussian(f64);

    impl Bound for Gaussian {
        fn delta(&self, epsilon: f64) -> Result<f64, PrivacyError> {
            Ok(gaussian::delta(self.0, epsilon))
        }

        fn epsilon(&self, delta: f64) -> Result<f64, PrivacyError> {
            Ok(gaussian::epsilon(self.0, delta))
        }
    }

    /// The envelope lies below the Gaussian it is made of, and not far below.
    #[test]
    fn the_envelope_of_a_gaussian() {
        for mu in [0.05, 0.5, 2.0, 6.0] {
            let envelope = Envelope::new(Gaussian(mu));
            for alpha in [1e-6, 1e-3, 0.01, 0.05, 0.3, 0.5, 0.8, 0.999] {
                let (got, exact) = (envelope.beta(alpha).unwrap(), gaussian::tradeoff(mu, alpha));
                assert!(
                    got.lower <= exact * (1.0 + 1e-12) && exact <= got.upper,
                    "{mu} {alpha} {got:?} {exact}"
                );
                assert!(got.lower >= exact - 2e-3 * mu * exact.max(alpha), "{mu} {alpha} {got:?} {exact}");
            }
            let (found, _) = envelope.mu_on_default_range().unwrap();
            assert!(found.upper >= mu && found.upper < 1.01 * mu, "{mu} {found:?}");
            for epsilon in [0.0, 0.1 * mu, mu, 3.0 * mu] {
                let (point, delta) = (envelope.point(epsilon).unwrap(), gaussian::delta(mu, epsilon));
                assert!(point.delta.upper >= delta * (1.0 - 1e-12), "{mu} {epsilon} {point:?} {delta}");
                assert!(point.delta.upper <= delta + 1e-3 * mu, "{mu} {epsilon} {point:?} {delta}");
            }
        }
    }

    /// A single pair (ε, δ) is f_{ε,δ} of the literature.
    #[test]
    fn one_bound_is_approximate_privacy() {
        let lines = Lines::new([(0.0, 1.0), (1.0, 0.1)].into_iter());
        let e = 1_f64.exp();
        for alpha in [0.01, 0.2, 0.3, 0.6, 0.95] {
            let exact = (0.9 - e * alpha).max((0.9 - alpha) / e).max(0.0);
            assert!((lines.beta(alpha) - exact).abs() < 1e-14, "{alpha}");
        }
        let zero = lines.point(0.0);
        let middle = 0.9 / (1.0 + e);
        assert!((zero.alpha.middle() - middle).abs() < 1e-14 && (zero.beta.middle() - middle).abs() < 1e-14);
    }
}
