//! ε at a δ from the bounds f^L and f^U, which are known as trade-off functions.

use dpsgd_privacy::bounds::Bounds;

use super::ALPHAS;

/// What f^L and f^U say about a run.
#[derive(Clone)]
pub struct BoundsBand {
    /// ε of f^U, which is needed at least, and of f^L, which is enough.
    pub epsilon: (f64, f64),
    /// (f^L, f^U) at each of [`ALPHAS`].
    pub beta: [(f64, f64); 2],
}

impl BoundsBand {
    /// The bounds with the best c^L and c^U at every α.
    pub fn of(bounds: &Bounds, delta: f64) -> Self {
        Self {
            epsilon: (
                epsilon(&|alpha| bounds.upper(alpha), delta),
                epsilon(&|alpha| bounds.lower(alpha), delta),
            ),
            beta: ALPHAS.map(|alpha| (bounds.lower(alpha), bounds.upper(alpha))),
        }
    }
}

/// The smallest ε ≥ 0 with f_{ε,δ} ≤ f for a symmetric trade-off function f: the largest value of
/// ln((1 − δ − f(α))/α).
///
/// For a convex f the numerator is concave, so the quotient rises and then falls; f^U with the best c^U at
/// every α is only nearly convex, but there any α gives a valid lower end. Past the summit an error of α
/// enters squared. f(0) must be above 1 − δ by more than rounding; both bounds have f(0) = 1 up to what the
/// law of c leaves out.
fn epsilon(f: &dyn Fn(f64) -> f64, delta: f64) -> f64 {
    let height = |x: f64| {
        let above = 1.0 - delta - f(x.exp());
        if above > 0.0 { above.ln() - x } else { f64::NEG_INFINITY }
    };
    // e^−700 is the smallest α that is a number of full accuracy.
    const STEP: f64 = 5.0;
    let start = (0..=140).map(|i| -STEP * f64::from(i));
    let summit =
        start.map(|x| (x, height(x))).fold((0.0, f64::NEG_INFINITY), |a, b| if b.1 > a.1 { b } else { a });
    let golden = 0.5 * (5.0_f64.sqrt() - 1.0);
    let (mut low, mut high) = (summit.0 - STEP, (summit.0 + STEP).min(0.0));
    let mut inner = [high - golden * (high - low), low + golden * (high - low)];
    let mut heights = inner.map(height);
    for _ in 0..50 {
        // Left of where f falls below 1 − δ both are −∞, and the summit is to the right.
        if heights[0] > heights[1] {
            (high, inner[1], heights[1]) = (inner[1], inner[0], heights[0]);
            inner[0] = high - golden * (high - low);
            heights[0] = height(inner[0]);
        } else {
            (low, inner[0], heights[0]) = (inner[0], inner[1], heights[1]);
            inner[1] = low + golden * (high - low);
            heights[1] = height(inner[1]);
        }
    }
    heights[0].max(heights[1]).max(summit.1).max(0.0)
}

#[cfg(test)]
mod tests {
    use dpsgd_privacy::gaussian;

    use super::*;

    /// Of G_µ and of f_{ε,δ} it is known in closed form.
    #[test]
    fn the_epsilon_of_a_tradeoff_function_is_found() {
        for mu in [0.05, 0.5, 2.0, 5.0, 20.0] {
            for delta in [1e-2, 1e-5, 1e-9] {
                let (found, known) =
                    (epsilon(&|a| gaussian::tradeoff(mu, a), delta), gaussian::epsilon(mu, delta));
                assert!(
                    (found - known).abs() < 1e-6 * known.max(1e-3),
                    "µ = {mu}, δ = {delta}: {found} {known}"
                );
            }
        }
        // f_{ε,δ} asked at a larger δ': the quotient is largest where its two lines meet.
        let line = |a: f64| dpsgd_privacy::bounds::tradeoff_of(1.5, 1e-5, a);
        let corner = (1.0 - 1e-5) / (1.0 + 1.5_f64.exp());
        let known = (1.5_f64.exp() - (1e-4 - 1e-5) / corner).ln();
        assert!((epsilon(&line, 1e-4) - known).abs() < 1e-9);
        // A δ that is large enough needs no ε.
        assert_eq!(epsilon(&|a| gaussian::tradeoff(0.05, a), 0.1), 0.0);
    }
}
