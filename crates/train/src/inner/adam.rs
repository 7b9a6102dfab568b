//! Adam (Kingma and Ba 2015) with bias correction, in PyTorch's order of operations:
//! w ← w − (η/(1−β₁ᵗ))·m / (√v/√(1−β₂ᵗ) + ε).

use super::walk::{walk, with_two};
use super::{GroupContext, ModelError};
use crate::adam::Adam;

pub(super) fn run(
    group: &mut GroupContext<'_>,
    step: f64,
    (beta1, beta2): (f64, f64),
    epsilon: f64,
) -> Result<f32, ModelError> {
    // The powers of β take longer than the step on a short stretch: once for every t.
    let at = |t| Adam::new(step, beta1, beta2, epsilon, t);
    let (mut of, mut constants) = (1, at(1));
    walk(group, step, false, |t, stretch, sum| {
        if t != of {
            (of, constants) = (t, at(t));
        }
        with_two(stretch, sum, |w, m, v, g| *w -= constants.step(m, v, g));
    })
}
