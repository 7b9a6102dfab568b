//! Integer moments E_Q Λ^k, k = 2, 3, …: a guess for ε(δ), and a bound that needs no line.

use super::{Gaussian, Phase};

/// The largest order.
pub(super) const ORDERS: usize = 64;

/// ln E_Q Λ^k for k from 0 to 64.
///
/// E(ΣW_b)^k/k! is the coefficient of x^k in (Σ_j e^{j(j−1)s²/2}·x^j/j!)^B; all terms are positive, so the
/// power is taken by squaring in logarithms.
#[derive(Debug)]
pub(super) struct Moments(Vec<f64>);

fn ln_factorial(k: usize) -> f64 {
    libm::lgamma(k as f64 + 1.0)
}

/// ln of (k−1)^{k−1}/k^k: (Λ − e^ε)₊ ≤ Λ^k·e^{−(k−1)ε} times this, the tangent of the power where they touch.
pub(super) fn ln_touch(k: f64) -> f64 {
    (k - 1.0) * (k - 1.0).ln() - k * k.ln()
}

fn product(a: &[f64], b: &[f64]) -> Vec<f64> {
    (0..=ORDERS)
        .map(|n| {
            let terms = (0..=n).map(|i| a[i] + b[n - i]);
            let top = terms.clone().fold(f64::NEG_INFINITY, f64::max);
            top + terms.map(|t| (t - top).exp()).sum::<f64>().ln()
        })
        .collect()
}

impl Moments {
    pub(super) fn new<'a>(phases: impl Iterator<Item = &'a Phase>, gaussian: &Gaussian) -> Self {
        let half = 0.5 * gaussian.square();
        let mut total: Vec<f64> = (0..=ORDERS).map(|k| half * k as f64 * (k as f64 - 1.0)).collect();
        for phase in phases {
            let s2 = phase.noise_multiplier.powi(-2);
            let mut square: Vec<f64> =
                (0..=ORDERS).map(|j| 0.5 * s2 * j as f64 * (j as f64 - 1.0) - ln_factorial(j)).collect();
            let mut power: Option<Vec<f64>> = None;
            let mut rest = phase.rounds;
            while rest > 0 {
                if rest & 1 == 1 {
                    power = Some(power.map_or_else(|| square.clone(), |p| product(&p, &square)));
                }
                rest >>= 1;
                if rest > 0 {
                    square = product(&square, &square);
                }
            }
            let Some(power) = power else { continue };
            for (k, (sum, ln)) in total.iter_mut().zip(power).enumerate() {
                let moment = ln + ln_factorial(k) - k as f64 * (phase.rounds as f64).ln();
                *sum += phase.epochs as f64 * moment;
            }
        }
        Self(total)
    }

    /// An ε with δ_{P‖Q}(ε) ≤ `delta`.
    ///
    /// # Guarantee
    /// (Λ − e^ε)₊ ≤ Λ^k·e^{−(k−1)ε}·(k−1)^{k−1}/k^k for every k > 1 (the tangent of the power at its
    /// touching point). Rounding is covered by 1e-9.
    pub(super) fn epsilon(&self, delta: f64) -> f64 {
        let best = (2..=ORDERS)
            .map(|k| (self.0[k] + ln_touch(k as f64) - delta.ln()) / (k as f64 - 1.0))
            .fold(f64::INFINITY, f64::min);
        best.max(0.0) * (1.0 + 1e-9) + 1e-9
    }

    /// An upper bound of ln E_Q Λ^ω for real 1 ≤ ω ≤ 64: ln E Λ^ω is convex in ω, so between two integers it
    /// lies below the chord. Infinite beyond.
    pub(super) fn ln_moment(&self, order: f64) -> f64 {
        let below = order.floor();
        let part = order - below;
        let at = |k: f64| self.0.get(k as usize).copied().unwrap_or(f64::INFINITY);
        let value = if part == 0.0 { at(below) } else { (1.0 - part) * at(below) + part * at(below + 1.0) };
        value + 1e-9 * (1.0 + value.abs())
    }

    /// ln E_Q Λ^k at an integer, rounded down; `None` beyond the last order.
    pub(super) fn ln_moment_below(&self, k: usize) -> Option<f64> {
        self.0.get(k).map(|ln| ln - 1e-9 * (1.0 + ln.abs()))
    }

    /// An upper bound of δ_{P‖Q}(ε).
    pub(super) fn delta(&self, epsilon: f64) -> f64 {
        (2..=ORDERS)
            .map(|k| ln_touch(k as f64) + self.0[k] - (k as f64 - 1.0) * epsilon)
            .fold(0.0_f64, f64::min)
            .exp()
            * (1.0 + 1e-9 * (1.0 + epsilon.abs()))
    }
}
