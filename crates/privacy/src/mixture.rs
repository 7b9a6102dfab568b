//! Adversary A₁ by direct summation: a mixture of Gaussians whose component is known.

use crate::curve::{Curve, CurvePoint, check_epsilon, check_smallest, mu_of};
use crate::error::PrivacyError;
use crate::exposure::Law;
use crate::gaussian;
use crate::interval::Interval;
use crate::normal;

/// With probability q the run is one Gaussian mechanism G_µ, and the adversary knows which.
///
/// # Guarantee
/// δ(ε) = Σ q·δ_{G_µ}(ε), exactly (docs/theory.md §2): for an adversary who knows the component the
/// divergence of the mixture is the mean of the divergences. The trade-off function is the paper's
/// Def. "f" with the component µ = 0, whose likelihood ratio is one, as an atom.
#[derive(Clone, Debug)]
pub struct Mixture {
    /// (µ, q) with µ > 0, and the probability of µ = 0.
    components: Vec<(f64, f64)>,
    untouched: f64,
    missing: f64,
    relative_error: f64,
}

impl Mixture {
    /// Takes c from `law`, with µ² = c²/noise² + `released_square`, the sum of the squares of the µ
    /// of further Gaussian releases.
    pub fn new(law: &Law, noise: f64, released_square: f64) -> Self {
        let mut components = Vec::with_capacity(law.span());
        let mut untouched = 0.0;
        for (square, q) in law.iter() {
            let mu = (square as f64 / (noise * noise) + released_square).sqrt();
            if mu > 0.0 {
                components.push((mu, q));
            } else {
                untouched = q;
            }
        }
        Self { components, untouched, missing: law.missing(), relative_error: law.relative_error() }
    }

    /// Σ q·h(µ) with the error of q, of h (relative, given with its value) and of the summation.
    fn mean(&self, h: impl Fn(f64) -> (f64, f64)) -> Interval {
        let mut sum = 0.0;
        let mut error = 0.0;
        for &(mu, q) in &self.components {
            let (value, relative) = h(mu);
            sum += q * value;
            error += q * value * relative;
        }
        let n = self.components.len() as f64;
        error += sum * (self.relative_error + (n + 8.0) * f64::EPSILON);
        Interval { lower: (sum - error).max(0.0), upper: (sum + error + self.missing).min(1.0) }
    }
}

impl Curve for Mixture {
    fn delta(&self, epsilon: f64) -> Result<Interval, PrivacyError> {
        check_epsilon(epsilon)?;
        Ok(self.mean(|mu| (gaussian::delta(mu, epsilon), gaussian::delta_relative_error(mu, epsilon))))
    }

    fn point(&self, epsilon: f64) -> Result<CurvePoint, PrivacyError> {
        check_epsilon(epsilon)?;
        let tail_error =
            |x: f64| normal::RELATIVE_ERROR + 4.0 * f64::EPSILON * (1.0 + x.abs() * (1.0 + x.abs()));
        let alpha = self.mean(|mu| {
            let x = -epsilon / mu - 0.5 * mu;
            (normal::cdf(x), tail_error(x))
        });
        let mut beta = self.mean(|mu| {
            let x = epsilon / mu - 0.5 * mu;
            (normal::cdf(x), if x < 0.0 { tail_error(x) } else { tail_error(0.0) })
        });
        beta.lower += self.untouched * (1.0 - self.relative_error);
        beta.upper = (beta.upper + self.untouched * (1.0 + self.relative_error)).min(1.0);
        Ok(CurvePoint { epsilon, delta: self.delta(epsilon)?, alpha, beta })
    }

    fn mu(&self, smallest: f64) -> Result<Interval, PrivacyError> {
        check_smallest(smallest)?;
        // A single component is G_µ itself, on every range.
        if let ([(mu, _)], true) = (&self.components[..], self.missing == 0.0 && self.untouched == 0.0) {
            return Ok(Interval::around(*mu, 4.0 * f64::EPSILON * mu));
        }
        mu_of(&|e| self.point(e), smallest)
    }
}
