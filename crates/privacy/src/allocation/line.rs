//! Inversion of the moment function on the line Re w = −c, with every error bounded.
//!
//! For Λ = dP/dQ of the whole run, Y = ln Λ, 𝓜(w) = E_Q Λ^w and w = −c + it,
//!
//! ```text
//! K(x)      = E_Q(1 − e^{−x}Λ)₊ =  (1/2π) ∫ 𝓜(w) e^{−wx} / (w(w−1)) dt
//! Q[Y ≤ x]                      = −(1/2π) ∫ 𝓜(w) e^{−wx} / w dt
//! P[Y ≤ x]·e^{−x}               = −(1/2π) ∫ 𝓜(w) e^{−wx} / (w−1) dt
//! ```
//!
//! by the trapezoidal rule with step Δ = 2π/L; δ_{Q‖P}(ε) = K(−ε) and e^{−ε}·δ_{P‖Q}(ε) = e^{−ε} − 1 +
//! K(ε). Errors:
//! * aliasing: the rule returns Σ_n e^{−cnL}·F(x+nL) for each of the three F, exactly. All terms are
//!   positive; F ≤ 1 for n > 0 (for the third, e^{x}·F is a probability), and F(x−mL) ≤ E
//!   Λ^{−c₂}·e^{c₂(x−mL)} for n = −m (Chernoff);
//! * truncation: |𝓜(−c+it)| ≤ 𝓜(−c)·e^{−Vt²/2};
//! * the errors of 𝓜 at the nodes, and rounding.

use std::f64::consts::{LN_2, PI, TAU};

use super::complex::{Complex, Float};
use super::elementary::Elementary;
use super::fixed::Fixed;
use super::laplace::LogNormal;
use super::moment::{Certified, Moments};
use super::plan::Plan;
use super::{Gaussian, Phase};
use crate::error::PrivacyError;
use crate::interval::Interval;

/// The answers of a line, whatever its precision.
pub(super) trait Line: Send + Sync + std::fmt::Debug {
    /// δ_{P‖Q}(ε).
    fn forward(&self, epsilon: f64) -> Interval;
    /// δ_{Q‖P}(ε).
    fn reverse(&self, epsilon: f64) -> Interval;
    /// Q[Y ≤ x] and Q[Y > x].
    fn under_q(&self, x: f64) -> (Interval, Interval);
    /// P[Y ≤ x] and P[Y > x].
    fn under_p(&self, x: f64) -> (Interval, Interval);
}

/// One of the three integrals: its weights at the nodes, divided by 2^exponent, and its errors relative to
/// that.
#[derive(Debug)]
struct Kernel<const N: usize> {
    weights: Vec<Complex<N>>,
    /// Σ of the weights' sizes, and of their errors.
    size: f64,
    error: f64,
    /// Past the last node.
    rest: f64,
}

#[derive(Debug)]
pub(super) struct FixedLine<const N: usize> {
    tables: Elementary<N>,
    c: f64,
    delta: f64,
    exponent: i64,
    put: Kernel<N>,
    under_q: Kernel<N>,
    under_p: Kernel<N>,
    beyond: Vec<(f64, f64)>,
}

/// The precisions a line can have, in limbs.
pub(super) const MOST_LIMBS: usize = 10;

/// The line of a plan in the precision it asks for.
pub(super) fn build(
    phases: &[(Phase, LogNormal)],
    gaussian: &Gaussian,
    plan: &Plan,
) -> Result<Box<dyn Line>, PrivacyError> {
    Ok(match plan.limbs {
        0..=2 => Box::new(FixedLine::<2>::new(phases, gaussian, plan)?),
        3 => Box::new(FixedLine::<3>::new(phases, gaussian, plan)?),
        4 => Box::new(FixedLine::<4>::new(phases, gaussian, plan)?),
        5 => Box::new(FixedLine::<5>::new(phases, gaussian, plan)?),
        6 => Box::new(FixedLine::<6>::new(phases, gaussian, plan)?),
        7..=8 => Box::new(FixedLine::<8>::new(phases, gaussian, plan)?),
        _ => Box::new(FixedLine::<MOST_LIMBS>::new(phases, gaussian, plan)?),
    })
}

impl<const N: usize> FixedLine<N> {
    fn new(phases: &[(Phase, LogNormal)], gaussian: &Gaussian, plan: &Plan) -> Result<Self, PrivacyError> {
        let tables = Elementary::<N>::new();
        let mut total = gaussian_factor(&tables, gaussian, plan);
        for ((phase, law), rays) in phases.iter().zip(&plan.phases) {
            let moments = Moments { tables: &tables, phase, law, plan, rays }.all()?;
            for (j, (product, moment)) in total.iter_mut().zip(moments).enumerate() {
                let t = j as f64 * plan.delta();
                // The theorem's bound on |M| at this node.
                let bound =
                    rays.ln_moment - 0.5 * t * t / (phase.noise_multiplier.powi(2) * phase.rounds as f64);
                let power = raised(moment, phase.epochs, bound);
                *product = times(*product, power);
            }
        }
        let exponent = total[0].value.exponent();
        let end = (plan.nodes - 1) as f64 * plan.delta();
        let fall = plan.ln_total - 0.5 * plan.spread * end * end - exponent as f64 * LN_2;
        // Σ_{j>J} Δ·e^{−Vt²/2}·t^{−k} ≤ ∫ from t_J on ≤ e^{−Vt²/2}/(V t^{k+1}); |w|, |w−1| ≥ t.
        let rest = |power: f64| 1.001 * (fall - ((power + 1.0) * end.ln() + plan.spread.ln())).exp();
        let delta = plan.delta();
        let kernel = |weigh: &dyn Fn(f64, f64) -> Float<N>, power: f64| {
            let mut result =
                Kernel { weights: Vec::with_capacity(total.len()), size: 0.0, error: 0.0, rest: rest(power) };
            for (j, node) in total.iter().enumerate() {
                let weight = weigh(-plan.c, j as f64 * delta);
                let value = node.value.times(weight).to_fixed(exponent);
                let rounding = 4.0 * Fixed::<N>::unit() * (1.0 + 4.0 * Float::<N>::ROUNDING * value.size());
                let error = (node.ln_error + weight.ln_size() - exponent as f64 * LN_2).exp();
                result.size += value.size();
                result.error += 1.001 * error + rounding;
                result.weights.push(if j == 0 { value.scaled(-1) } else { value });
            }
            result
        };
        let put =
            kernel(&|re, im| Float::from_f64(re, im).times(Float::from_f64(re - 1.0, im)).reciprocal(), 2.0);
        let minus_one = Float::from_f64(-1.0, 0.0);
        let under_q = kernel(&|re, im| Float::from_f64(re, im).reciprocal().times(minus_one), 1.0);
        let under_p = kernel(&|re, im| Float::from_f64(re - 1.0, im).reciprocal().times(minus_one), 1.0);
        Ok(Self { tables, c: plan.c, delta, exponent, put, under_q, under_p, beyond: plan.beyond.clone() })
    }

    /// The trapezoidal sum of a kernel at x, and a bound on all of its errors but the aliases.
    fn sum(&self, kernel: &Kernel<N>, x: f64) -> (Fixed<N>, f64) {
        let unit = Fixed::<N>::unit();
        // Doubles are multiplied with their exponents: Δ and c may be too large for the fixed point.
        let times_x = |a: f64| Float::<N>::from_f64(a, 0.0).times(Float::from_f64(x, 0.0)).to_fixed(0).re;
        let turn = self.tables.turn(-times_x(self.delta));
        // Horner.
        let sum = kernel.weights.iter().rev().fold(Complex::ZERO, |sum, &a| sum * turn + a).re;
        let nodes = kernel.weights.len() as f64;
        // q itself errs by this much, and q^j by j times as much.
        let of_turn = 2.0 * Elementary::<N>::turn_error(self.delta * x) + 4.0 * (self.delta + x.abs() + 1.0);
        let error = kernel.error + unit * nodes * (3.0 + of_turn * kernel.size);
        let scale = self.tables.exp(times_x(self.c));
        // π·2^−exponent, whose reciprocal puts the weights' exponent back.
        let pi = Float::new(Complex::new(self.tables.pi, Fixed::ZERO), -self.exponent);
        let scale = Float::from_f64(self.delta, 0.0).times(scale).times(pi.reciprocal());
        let value = Float::new(Complex::new(sum, Fixed::ZERO), 0).times(scale).to_fixed(0).re;
        let ln_scale = self.c * x + self.exponent as f64 * LN_2;
        let relative = unit
            * (Elementary::<N>::exp_error(self.c * x)
                + 40.0 * (self.c * x).abs()
                + 8.0
                + 8.0 * Float::<N>::ROUNDING);
        let factor = 1.001 * ln_scale.exp() / PI;
        let error =
            factor * (self.delta * (error + relative * sum.to_f64().abs()) + kernel.rest) + 2.0 * unit;
        (value, error)
    }

    /// Bounds on the aliases n > 0 and n < 0 of the put and of Q[Y ≤ x]; with `shift` 1 of P[Y ≤ x].
    fn aliases(&self, x: f64, shift: f64) -> f64 {
        let period = TAU / self.delta;
        let series = |ln_first: f64, rate: f64| ln_first.exp() / -(-rate * period).exp_m1();
        let right = series(-(self.c + shift) * period, self.c + shift);
        let left = self
            .beyond
            .iter()
            .map(|&(at, ln)| series(ln + (at + shift) * x - (at - self.c) * period, at - self.c))
            .fold(f64::INFINITY, f64::min);
        1.001 * (right + left)
    }

    /// Whether x is so far out that the fixed point would overflow.
    fn too_far(&self, x: f64) -> bool {
        !(self.c * x.abs() < 4000.0 && x.abs() < 4000.0 && self.delta * x.abs() < 4000.0)
    }

    fn interval(value: f64, below: f64, above: f64) -> Interval {
        let rounding = 4.0 * f64::EPSILON * value.abs();
        let (lower, upper) = (value - below - rounding, value + above + rounding);
        Interval {
            lower: if lower.is_finite() { lower.clamp(0.0, 1.0) } else { 0.0 },
            upper: if upper.is_finite() { upper.clamp(0.0, 1.0) } else { 1.0 },
        }
    }

    /// A distribution function and its complement.
    fn both_sides(value: Fixed<N>, error: f64, alias: f64) -> (Interval, Interval) {
        (
            Self::interval(value.to_f64(), error + alias, error),
            Self::interval((Fixed::one() - value).to_f64(), error, error + alias),
        )
    }
}

const NOTHING: Interval = Interval { lower: 0.0, upper: 1.0 };

impl<const N: usize> Line for FixedLine<N> {
    fn forward(&self, epsilon: f64) -> Interval {
        if self.too_far(epsilon) {
            return NOTHING;
        }
        let (put, error) = self.sum(&self.put, epsilon);
        let alias = self.aliases(epsilon, 0.0);
        let discount = self.tables.exp(Fixed::from_f64(-epsilon)).to_fixed(0).re;
        let own = Fixed::<N>::unit() * (Elementary::<N>::exp_error(epsilon) + 8.0);
        let scale = epsilon.exp() * (1.0 + 4.0 * f64::EPSILON * (1.0 + epsilon));
        let value = (put - (Fixed::one() - discount)).to_f64();
        let relative = 8.0 * f64::EPSILON * (1.0 + epsilon) * value.abs();
        let error = error + own + relative;
        Self::interval(scale * value, scale * (error + alias), scale * error)
    }

    fn reverse(&self, epsilon: f64) -> Interval {
        if self.too_far(epsilon) {
            return NOTHING;
        }
        let (put, error) = self.sum(&self.put, -epsilon);
        Self::interval(put.to_f64(), error + self.aliases(-epsilon, 0.0), error)
    }

    fn under_q(&self, x: f64) -> (Interval, Interval) {
        if self.too_far(x) {
            return (NOTHING, NOTHING);
        }
        let (value, error) = self.sum(&self.under_q, x);
        Self::both_sides(value, error, self.aliases(x, 0.0))
    }

    fn under_p(&self, x: f64) -> (Interval, Interval) {
        if self.too_far(x) {
            return (NOTHING, NOTHING);
        }
        let (value, error) = self.sum(&self.under_p, x);
        let unit = Fixed::<N>::unit();
        let scale = self.tables.exp(Fixed::from_f64(x));
        let value = Float::new(Complex::new(value, Fixed::ZERO), 0).times(scale).to_fixed(0).re;
        let own = unit * (Elementary::<N>::exp_error(x) + 2.0 * Float::<N>::ROUNDING) * 2.0 + 2.0 * unit;
        let error = 1.001 * error * x.exp() + own;
        Self::both_sides(value, error, self.aliases(x, 1.0))
    }
}

/// e^{µ²w(w−1)/2} at every node: w(w−1) = c(c+1) − t² − it(2c+1).
fn gaussian_factor<const N: usize>(
    tables: &Elementary<N>,
    gaussian: &Gaussian,
    plan: &Plan,
) -> Vec<Certified<N>> {
    let none = Certified { value: Float::one(), ln_error: f64::NEG_INFINITY };
    if gaussian.square() == 0.0 {
        return vec![none; plan.nodes];
    }
    let unit = Fixed::<N>::unit();
    let half_square = gaussian.half_square::<N>();
    (0..plan.nodes)
        .map(|j| {
            let (c, t) = (plan.c, j as f64 * plan.delta());
            // µ²/2 times products of doubles of few bits, taken with their own exponents.
            let times = |a: f64, b: f64| {
                half_square.times(Float::from_f64(a, 0.0)).times(Float::from_f64(b, 0.0)).to_fixed(0).re
            };
            let real = times(c, c + 1.0) - times(t, t);
            let imaginary = -times(t, 2.0 * c + 1.0);
            let value = tables.exp(real).times(Float::new(tables.turn(imaginary), 0));
            let (re, im) = (real.to_f64(), imaginary.to_f64());
            let sizes = gaussian.square() * ((c + t) * (c + t) + c + t);
            let relative = unit
                * (Elementary::<N>::exp_error(re)
                    + 2.0 * Elementary::<N>::turn_error(im)
                    + 8.0 * Float::<N>::ROUNDING * (1.0 + sizes)
                    + 8.0);
            Certified { value, ln_error: value.ln_size() + relative.ln() }
        })
        .collect()
}

/// M^E, with |a^E − b^E| ≤ E·|a − b|·max^{E−1}; the larger of the two is also below the theorem's bound on
/// |M| plus the error.
fn raised<const N: usize>(m: Certified<N>, power: u64, ln_bound: f64) -> Certified<N> {
    let e = power as f64;
    let value = m.value.power(power);
    let ln_size = m.value.ln_size().min(ln_sum(ln_bound, m.ln_error));
    let ln_largest = ln_sum(ln_size, m.ln_error);
    let of_value = e.ln() + m.ln_error + (e - 1.0) * ln_largest + 1e-12 * e;
    let rounding = (2.0 * e * Float::<N>::ROUNDING * Fixed::<N>::unit()).ln() + value.ln_size();
    Certified { value, ln_error: ln_sum(of_value, rounding) + 1e-9 }
}

fn times<const N: usize>(a: Certified<N>, b: Certified<N>) -> Certified<N> {
    let value = a.value.times(b.value);
    let (la, lb) = (a.value.ln_size(), b.value.ln_size());
    let cross = ln_sum(la + b.ln_error, ln_sum(lb + a.ln_error, a.ln_error + b.ln_error));
    let rounding = (Float::<N>::ROUNDING * Fixed::<N>::unit()).ln() + value.ln_size();
    Certified { value, ln_error: ln_sum(cross, rounding) + 1e-9 }
}

/// ln(e^a + e^b).
fn ln_sum(a: f64, b: f64) -> f64 {
    let (high, low) = (a.max(b), a.min(b));
    if low == f64::NEG_INFINITY { high } else { high + (low - high).exp().ln_1p() }
}
