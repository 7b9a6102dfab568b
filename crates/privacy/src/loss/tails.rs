//! The tails of one round's privacy loss in closed form: apart from the description of the pair, nothing is
//! shared with the quadrature of the contour engine.

use super::factor::Kind;
use super::round::{Shape, ln_mixture};
use crate::normal::cdf;

/// P[Y > τ], Q[Y > τ] and P[Y ≤ τ] of one round, each with a small relative error.
pub(crate) fn rates(kind: &Kind, threshold: f64) -> (f64, f64, f64) {
    match kind {
        Kind::Gaussian(square) => gaussian(*square, threshold),
        Kind::Known { parts, untouched, .. } => {
            let u = *untouched;
            let mut sums = if threshold < 0.0 { (u, u, 0.0) } else { (0.0, 0.0, u) };
            for &(square, q) in parts {
                let (p_tail, q_tail, p_rest) = gaussian(square, threshold);
                sums.0 += q * p_tail;
                sums.1 += q * q_tail;
                sums.2 += q * p_rest;
            }
            sums
        }
        Kind::Round { shape: Shape::Halves { parts, hit }, .. } => {
            let above = |s: f64| {
                // e^L = 1 + (e^s − 1)/η; L > 0 for s > 0.
                let l = if s < 30.0 { (s.exp_m1() / hit).ln_1p() } else { s - hit.ln() };
                let mut sums = (0.0, 0.0, 0.0);
                for &(shift, share) in parts {
                    let x = l / shift + 0.5 * shift;
                    let none = cdf(-x);
                    sums.0 += share * (hit * cdf(shift - x) + (1.0 - hit) * none);
                    sums.1 += share * none;
                    // The shares add up to one.
                    sums.2 += share * (hit * cdf(x - shift) + (1.0 - hit) * cdf(x));
                }
                sums
            };
            if threshold >= 0.0 {
                above(threshold)
            } else {
                // The pair is symmetric: P[Y < −s] = Q[Y > s].
                let (p_tail, q_tail, _) = above(-threshold);
                (1.0 - q_tail, 1.0 - p_tail, q_tail)
            }
        }
        Kind::Round { shape: Shape::Line { plus, minus }, .. } => {
            // Y rises with x, except where only Q is a mixture of positive shifts.
            let falling = plus.is_empty();
            let sign = if falling { -1.0 } else { 1.0 };
            let x = solve(|x| {
                let ((up, up_slope), (down, down_slope)) = (ln_mixture(plus, x), ln_mixture(minus, x));
                (sign * (up - down - threshold), sign * (up_slope - down_slope))
            });
            let right = |parts: &[(f64, f64)]| -> f64 {
                if parts.is_empty() {
                    return cdf(-x);
                }
                parts.iter().map(|&(a, b)| b * cdf(a - x)).sum()
            };
            let left = |parts: &[(f64, f64)]| -> f64 {
                if parts.is_empty() {
                    return cdf(x);
                }
                parts.iter().map(|&(a, b)| b * cdf(x - a)).sum()
            };
            if falling {
                (left(plus), left(minus), right(plus))
            } else {
                (right(plus), right(minus), left(plus))
            }
        }
    }
}

/// The root of an increasing function given with its derivative: Newton inside a bracket. A loss that
/// is never reached (Y is bounded on one side) gives an end of the line.
pub(super) fn solve(f: impl Fn(f64) -> (f64, f64)) -> f64 {
    let (mut low, mut high) = (-1.0, 1.0);
    while f(high).0 <= 0.0 {
        if high > 1e5 {
            return f64::INFINITY;
        }
        low = high;
        high *= 2.0;
    }
    while f(low).0 > 0.0 {
        if low < -60.0 {
            return f64::NEG_INFINITY;
        }
        high = low;
        low *= 2.0;
    }
    let mut x = 0.5 * (low + high);
    for _ in 0..100 {
        let (value, slope) = f(x);
        if value <= 0.0 {
            low = x
        } else {
            high = x
        }
        let next = x - value / slope;
        let next = if next > low && next < high { next } else { 0.5 * (low + high) };
        if (next - x).abs() <= 1e-15 * (1.0 + x.abs()) {
            return next;
        }
        x = next;
    }
    x
}

fn gaussian(square: f64, threshold: f64) -> (f64, f64, f64) {
    let mu = square.sqrt();
    let x = threshold / mu;
    (cdf(0.5 * mu - x), cdf(-0.5 * mu - x), cdf(x - 0.5 * mu))
}

/// How far Y moves over a standard deviation around 0: its scale.
pub(super) fn scale(kind: &Kind) -> f64 {
    match kind {
        Kind::Gaussian(square) => square.sqrt(),
        Kind::Known { parts, .. } => parts.iter().map(|p| p.0.sqrt()).fold(f64::INFINITY, f64::min),
        Kind::Round { shape: Shape::Halves { parts, hit }, .. } => {
            parts.iter().map(|p| hit * p.0).fold(f64::INFINITY, f64::min)
        }
        Kind::Round { shape: Shape::Line { plus, minus }, .. } => {
            let at = |x: f64| ln_mixture(plus, x).0 - ln_mixture(minus, x).0;
            (at(0.5) - at(-0.5)).abs()
        }
    }
}
