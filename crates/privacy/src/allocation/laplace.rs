//! Sizes in double precision: the Laplace transform of a log-normal, real moments, the gamma function.
//!
//! These steer the plan of a line and enter its error bounds; every function here that enters a bound says
//! on which side it errs and by how much.

use std::f64::consts::{FRAC_PI_2, LN_2, PI, TAU};

/// −ln of the error of φ's quadrature relative to 1, at the edge of the strip.
const QUADRATURE: f64 = 85.0;
/// Terms of a moment's integral on either side of its centre, at most; then there is no bound.
const MOST_TERMS: i64 = 1500;

/// W = e^{sG − s²/2} with its law on a trapezoidal grid.
///
/// # Guarantee
/// φ(λ) = E e^{−λW} is summed with an error of at most 2e^{d²/2}/(e^{2πd/h} − 1)·φ(λ·cos sd) from the
/// quadrature, for every d < π/2s, and e^{−340} from the cut at 26 standard deviations.
#[derive(Debug)]
pub(super) struct LogNormal {
    /// (W, probability).
    nodes: Vec<(f64, f64)>,
    s: f64,
    step: f64,
}

impl LogNormal {
    pub(super) fn new(s: f64) -> Self {
        let d = (FRAC_PI_2 / s).min(8.0);
        let step = TAU * d / (QUADRATURE + 3.0 + 0.5 * d * d);
        let first = (-26.0 / step).floor() as i64;
        let last = ((10.0 + s) / step).ceil() as i64;
        let norm = step / TAU.sqrt();
        let nodes = (first..=last)
            .map(|i| i as f64 * step)
            .map(|g| ((s * g - 0.5 * s * s).exp(), norm * (-0.5 * g * g).exp()))
            .collect();
        Self { nodes, s, step }
    }

    fn sum(&self, lambda: f64) -> f64 {
        self.nodes.iter().map(|&(w, p)| p * (-lambda * w).exp()).sum()
    }

    /// ln φ(λ): for small λ to a few units in the last place of itself (1 − φ is summed from positive
    /// terms), an upper bound, good to many digits, elsewhere.
    pub(super) fn ln_phi(&self, lambda: f64) -> f64 {
        if lambda < 0.5 {
            // φ(λ) ≥ e^{−λ} by Jensen.
            let sum: f64 = self.nodes.iter().map(|&(w, p)| p * -(-lambda * w).exp_m1()).sum();
            return (-sum).ln_1p();
        }
        let sum = self.sum(lambda);
        let mut error = (-QUADRATURE).exp();
        if sum < 1e-20 {
            // Narrower strips, where Re W ≥ |W|·cos: the error is relative to φ(λ·cos), itself bounded
            // coarsely.
            error = [0.5_f64, 0.75, 0.9, 0.97]
                .map(|cos| (cos.acos() / self.s).min(8.0))
                .map(|d| {
                    (0.5 * d * d - TAU * d / self.step + 1.0).exp() * self.coarse((d * self.s).cos() * lambda)
                })
                .into_iter()
                .fold(error, f64::min);
        }
        (sum + error + 1e-148).ln()
    }

    /// An upper bound of φ, good to e^{−40}·φ(λ/2); that is bounded in the same way, and so on.
    fn coarse(&self, lambda: f64) -> f64 {
        let (mut total, mut factor, mut at) = (0.0, 1.0, lambda);
        while factor > 1e-140 {
            let sum = self.sum(at);
            total += factor * sum;
            factor *= 1e-17;
            at *= 0.5;
            // What follows is at most the next factor, since φ ≤ 1.
            if factor < 1e-3 * total {
                break;
            }
        }
        total + factor
    }

    /// An upper bound of ln M(−c), M(w) = E_Q L^w for L the mean of `rounds` copies of W.
    ///
    /// # Guarantee
    /// M(−c) = B^c/Γ(c)·∫ e^{cx} φ(e^x)^B dx. The integrand is log-concave in x (φ(e^x) is the convolution
    /// of the log-concave exp(−e^v) with a Gaussian; Prékopa), so what the sum leaves out on either side is
    /// below a geometric series; the trapezoidal rule errs by a factor of at most 1 ± 2Σ_n |Γ(c +
    /// 2πin/h)|/Γ(c), since
    /// |M(−c+it)| ≤ M(−c). The step makes that 1e-12; rounding is covered by 1e-11·(1 + c).
    pub(super) fn ln_moment(&self, rounds: u64, c: f64) -> f64 {
        let b = rounds as f64;
        let step = TAU / (8.0 * c.sqrt() + 22.0);
        let centre = (c / b).ln();
        let term = |i: i64| {
            let x = i as f64 * step;
            c * x + b * self.ln_phi((centre + x).exp())
        };
        let mut values = vec![term(0)];
        let mut top = values[0];
        for direction in [1, -1] {
            let mut last = values[0];
            for i in 1..=MOST_TERMS {
                let value = term(direction * i);
                values.push(value);
                top = top.max(value);
                if value < top - 40.0 && value < last {
                    break;
                }
                if i == MOST_TERMS {
                    return f64::INFINITY;
                }
                last = value;
            }
        }
        let sum: f64 = values.iter().map(|v| (v - top).exp()).sum();
        top + (step * sum).ln() + c * c.ln() - ln_gamma(c, 0.0) + 1e-11 * (1.0 + c)
    }
}

/// ln|Γ(c + iy)| for c > 0, to 1e-13 of its largest term.
pub(super) fn ln_gamma(c: f64, y: f64) -> f64 {
    let mut re = c;
    let mut shift = 0.0;
    while re * re + y * y < 200.0 {
        shift += 0.5 * (re * re + y * y).ln();
        re += 1.0;
    }
    // Stirling: Re[(z − ½) ln z − z] + ½ ln 2π + Re[1/12z − 1/360z³ + 1/1260z⁵ − 1/1680z⁷].
    let (r2, angle) = (re * re + y * y, y.atan2(re));
    let ln_r = 0.5 * r2.ln();
    let inverse = |power: f64| (-power * angle).cos() * (-power * ln_r).exp();
    let series = inverse(1.0) / 12.0 - inverse(3.0) / 360.0 + inverse(5.0) / 1260.0 - inverse(7.0) / 1680.0;
    (re - 0.5) * ln_r - y * angle - re + 0.5 * (LN_2 + PI.ln()) + series - shift
}

/// ln of a bound on Σ_{n≠0} |Γ(c − i(t+nω))|·e^{ψ(t+nω)} over all t from t₀ to t₁.
///
/// With `decay` the terms carry the further factor e^{−decay·(t+nω)²/2}.
///
/// # Guarantee
/// d/dy ln|Γ(c+iy)| = −Σ_k y/((c+k)²+y²) lies between −arctan(y/c) − y/(c²+y²) and −arctan(y/c) for y > 0
/// (the sum against its integral), so the terms fall at least geometrically in n from where ψ and the arc
/// tangent balance, and are largest at t₀ for n > 0 and at t₁ for n < 0. Infinite when the terms need not
/// fall.
pub(super) fn ln_aliases(c: f64, psi: f64, (t0, t1): (f64, f64), omega: f64, decay: f64) -> f64 {
    let (ahead, behind) = (t0 + omega, t1 - omega);
    let fall_ahead = (ahead / c).atan() - psi + decay * ahead;
    // Left of 0 the arc tangent changes sides, and the decay helps again; right of 0 it is left out.
    let (fall_behind, help) = if behind > 0.0 {
        (psi - (behind / c).atan() - 0.5 / c, 0.0)
    } else {
        ((-behind / c).atan() + psi - decay * behind, 0.5 * decay * behind * behind)
    };
    if fall_behind <= 0.0 || fall_ahead <= 0.0 {
        return f64::INFINITY;
    }
    let series = |first: f64, rate: f64| first - (-(-rate).exp()).ln_1p();
    let a = series(ln_gamma(c, ahead) + (psi - 0.5 * decay * ahead) * ahead, fall_ahead * omega);
    let b = series(ln_gamma(c, behind) + psi * behind - help, fall_behind * omega);
    a.max(b) + LN_2 + 1e-9 + 1e-12 * (c + omega)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gamma_has_its_known_values() {
        for (c, expected) in [(1.0, 0.0), (0.5, 0.5 * PI.ln()), (10.0, 362_880_f64.ln())] {
            assert!((ln_gamma(c, 0.0) - expected).abs() < 1e-13);
        }
        // |Γ(½ + iy)|² = π/cosh(πy).
        for y in [0.1, 1.0, 7.0, 30.0] {
            let expected = 0.5 * (PI / (PI * y).cosh()).ln();
            assert!((ln_gamma(0.5, y) - expected).abs() < 1e-12 * (1.0 + expected.abs()));
        }
    }

    #[test]
    fn one_round_has_log_normal_moments() {
        for (s, c) in [(1.0, 2.0), (2.5, 0.7), (0.1, 30.0), (0.05, 4.0), (0.05, 40.0)] {
            let got = LogNormal::new(s).ln_moment(1, c);
            let expected = 0.5 * s * s * c * (c + 1.0);
            assert!(got >= expected && got < expected + 1e-9 * (1.0 + c), "{s} {c}: {got} {expected}");
        }
    }
}
