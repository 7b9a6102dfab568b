//! One round: its trade-off function in closed form.

use super::factor::{Factor, Kind};
use super::round::Shape;
use super::tails::{rates, scale};
use crate::curve::CurvePoint;
use crate::interval::Interval;
use crate::normal;

/// Relative room for the normal distribution and for the roundings of a sum of a few hundred terms.
const ROUNDING: f64 = normal::RELATIVE_ERROR + 32.0 * f64::EPSILON;
/// The relative error of the threshold at which the rates are taken, with room.
const THRESHOLD: f64 = 1e-12;

/// The one round a run consists of. A Gaussian is left to the contour, which has its moments in closed form.
pub(super) fn only(factors: &[Factor]) -> Option<(&Kind, f64)> {
    match factors {
        [
            Factor {
                kind: kind @ (Kind::Round { relative_error, .. } | Kind::Known { relative_error, .. }),
                times: 1,
            },
        ] => Some((kind, *relative_error)),
        _ => None,
    }
}

/// The point of slope −e^ε.
///
/// # Guarantee
/// δ(ε) = P[Y > ε] − e^ε·Q[Y > ε] is stationary in the threshold, so an error of the threshold counts with its
/// square and δ is as exact as the normal distribution. For α and β the relative error of the threshold x of
/// the normal distribution is a few roundings where x is explicit, which changes a tail by x² times as much;
/// where x is the root of an equation, the rates are taken on both sides of it.
pub(super) fn point((kind, relative_error): (&Kind, f64), epsilon: f64) -> CurvePoint {
    let (p_above, q_above, p_rest) = rates(kind, epsilon);
    // e^ε·Q is at most P where the ratio exceeds e^ε.
    let product = if q_above > 0.0 { (epsilon + q_above.ln()).exp() } else { 0.0 };
    // The arguments of the normal distribution are rounded apart, which counts x² times, about −2·ln of the tail.
    let apart = 64.0 * f64::EPSILON * (1.0 - 2.0 * q_above.clamp(1e-300, 1.0).ln());
    let error = (ROUNDING + relative_error + apart + 4.0 * f64::EPSILON * epsilon) * (p_above + product);
    let delta = Interval::around(p_above - product, error).clamp(0.0, 1.0);
    let (alpha, beta) = match kind {
        Kind::Round { shape: Shape::Line { .. }, .. } => {
            let room = THRESHOLD * (epsilon + scale(kind));
            let (_, q_least, p_most) = rates(kind, epsilon + room);
            let (_, q_most, p_least) = rates(kind, epsilon - room);
            ((q_least, q_most), (p_least, p_most))
        }
        Kind::Round { .. } | Kind::Gaussian(_) | Kind::Known { .. } => ((q_above, q_above), (p_rest, p_rest)),
    };
    let wide = |(least, most): (f64, f64)| {
        // x² is about −2·ln of the tail.
        let conditioning = 64.0 * f64::EPSILON * (1.0 - 2.0 * least.clamp(1e-300, 1.0).ln());
        let relative = ROUNDING + relative_error + conditioning;
        Interval { lower: least * (1.0 - relative), upper: most * (1.0 + relative) + 1e-300 }.clamp(0.0, 1.0)
    };
    CurvePoint { epsilon, delta, alpha: wide(alpha), beta: wide(beta) }
}
