//! The Gaussian trade-off function G_µ and its privacy profile, in closed form.

use crate::interval::Interval;
use crate::normal;

/// G_µ(α) = Φ(Φ⁻¹(1−α) − µ): the miss rate of the best test with false-alarm rate α between
/// N(0, 1) and N(µ, 1).
///
/// ```
/// let beta = dpsgd_privacy::gaussian::tradeoff(1.0, 0.05);
/// assert!((beta - 0.740489).abs() < 1e-6);
/// ```
pub fn tradeoff(mu: f64, alpha: f64) -> f64 {
    normal::cdf(-normal::quantile(alpha) - mu)
}

/// δ(ε) of G_µ: Φ(−ε/µ + µ/2) − e^ε·Φ(−ε/µ − µ/2), for any real ε.
///
/// # Guarantee
/// A mechanism is G_µ-DP if and only if it is (ε, δ(ε))-DP for every ε ≥ 0 (Dong, Roth, Su 2022,
/// Cor. 2.13). The relative error is at most [`delta_relative_error`], also where δ is tiny:
/// with a = ε/µ − µ/2, b = ε/µ + µ/2 it is φ(a)·(R(a) − R(b)) with R the Mills ratio, and the
/// difference is integrated, not subtracted, where the two are close.
pub fn delta(mu: f64, epsilon: f64) -> f64 {
    if mu <= 0.0 {
        return (-epsilon.exp_m1()).max(0.0);
    }
    if epsilon < 0.0 {
        // H(P‖Q) at e^ε < 1 from the other direction of a symmetric pair.
        return -epsilon.exp_m1() + epsilon.exp() * delta(mu, -epsilon);
    }
    let a = epsilon / mu - 0.5 * mu;
    let b = epsilon / mu + 0.5 * mu;
    if a < -1.0 {
        // Far left of the mode the first term dominates, so nothing cancels.
        return (normal::cdf(-a) - (epsilon + normal::ln_cdf(-b)).exp()).max(0.0);
    }
    let difference = if mu < 0.1 { mills_drop(a, mu) } else { normal::mills(a) - normal::mills(b) };
    normal::density(a) * difference
}

/// Bound on the relative error of [`delta`]: the Mills ratio enters with a condition number of
/// order max(1, x²) where x = ε/µ is the distance from the mode, and x itself carries a
/// rounding that the density turns into x·|a|·2⁻⁵³.
pub fn delta_relative_error(mu: f64, epsilon: f64) -> f64 {
    // Beyond 1e6 standard deviations δ is zero in any case.
    let x = ((epsilon / mu).abs() + mu).min(1e6);
    64.0 * f64::EPSILON * (1.0 + x * x)
}

/// R(a) − R(a + µ) = ∫ (1 − x·R(x)) dx over [a, a+µ] by five-point Gauss–Legendre; R' = xR − 1.
fn mills_drop(a: f64, mu: f64) -> f64 {
    // Nodes and weights on [−1, 1]; measured 1.5e-11 relative at µ = ½ and
    // falling like µ^10, so below rounding for µ < 0.1.
    const NODES: [(f64, f64); 3] = [
        (0.0, 0.568_888_888_888_888_9),
        (0.538_469_310_105_683_1, 0.478_628_670_499_366_47),
        (0.906_179_845_938_664, 0.236_926_885_056_189_08),
    ];
    let slope = |x: f64| {
        if x < 12.0 {
            1.0 - x * normal::mills(x)
        } else {
            // xR(x) = x/(x + r) with r = 1/(x + 2/(x + …)), so 1 − xR = r/(x + r): no cancellation.
            let mut tail = x;
            for k in (2..=40).rev() {
                tail = x + f64::from(k) / tail;
            }
            let r = 1.0 / tail;
            r / (x + r)
        }
    };
    let middle = a + 0.5 * mu;
    let half = 0.5 * mu;
    let mut sum = 0.0;
    for (node, weight) in NODES {
        sum += weight
            * if node == 0.0 {
                slope(middle)
            } else {
                slope(middle - half * node) + slope(middle + half * node)
            };
    }
    half * sum
}

/// The ε with δ_{G_µ}(ε) = `delta` (0 when δ(0) is already below).
pub fn epsilon(mu: f64, delta_target: f64) -> f64 {
    if delta_target <= 0.0 || mu.is_nan() || delta_target.is_nan() {
        return f64::INFINITY;
    }
    if mu <= 0.0 || delta(mu, 0.0) <= delta_target {
        return 0.0;
    }
    let mut high = mu.max(1e-300);
    while delta(mu, high) > delta_target {
        high *= 2.0;
        if high > 1e300 {
            return f64::INFINITY;
        }
    }
    bisect(0.0, high, |e| delta(mu, e) > delta_target)
}

/// The µ beyond which G_µ is no longer (ε, δ)-DP: the root of δ_{G_µ}(ε) = δ in µ.
pub fn mu_of(epsilon: f64, delta_target: f64) -> f64 {
    if delta_target <= 0.0 {
        return 0.0;
    }
    if delta_target >= 1.0 {
        return f64::INFINITY;
    }
    let mut high = 1.0;
    while delta(high, epsilon) < delta_target {
        high *= 2.0;
        if high > 1e160 {
            return f64::INFINITY;
        }
    }
    let mut low = 0.5 * high;
    while delta(low, epsilon) >= delta_target {
        low *= 0.5;
        if low < 1e-160 {
            return 0.0;
        }
    }
    bisect(low, high, |mu| delta(mu, epsilon) < delta_target)
}

/// The µ of the Gaussian curve through one point: Φ⁻¹(1−α) − Φ⁻¹(β).
pub fn mu_through(alpha: f64, beta: Interval) -> Interval {
    let a = -normal::quantile(alpha);
    Interval::new((a - normal::quantile(beta.upper)).max(0.0), (a - normal::quantile(beta.lower)).max(0.0))
}

/// The point where `left_of` turns false, to the last bit that bisection can resolve.
pub(crate) fn bisect(mut low: f64, mut high: f64, left_of: impl Fn(f64) -> bool) -> f64 {
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        if middle <= low || middle >= high {
            break;
        }
        if left_of(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    0.5 * (low + high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delta_is_continuous_where_the_method_changes() {
        // Across µ = 0.1 and across a = −1 the two formulas must meet.
        for epsilon in [0.0, 0.01, 0.1, 0.3] {
            let below = delta(0.1_f64.next_down(), epsilon);
            let above = delta(0.1, epsilon);
            assert!((below / above - 1.0).abs() < 1e-12, "{epsilon}: {below:e} {above:e}");
        }
        for mu in [2.1, 3.0, 8.0] {
            let epsilon = mu * (0.5 * mu - 1.0);
            let left = delta(mu, epsilon - 1e-13);
            let right = delta(mu, epsilon + 1e-13);
            assert!((left / right - 1.0).abs() < 1e-11);
        }
    }

    #[test]
    fn epsilon_and_mu_invert_delta() {
        for mu in [1e-3, 0.1, 1.0, 5.0, 40.0] {
            for target in [1e-2, 1e-5, 1e-12, 1e-30] {
                let e = epsilon(mu, target);
                if e > 0.0 {
                    assert!((delta(mu, e) / target - 1.0).abs() < 1e-9, "{mu} {target}");
                    assert!((mu_of(e, target) / mu - 1.0).abs() < 1e-9, "{mu} {target}");
                }
            }
        }
    }
}
