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
    walk(group, step, false, |t, vectors, sum| {
        let constants = Adam::new(step, beta1, beta2, epsilon, t);
        with_two(vectors, sum, |w, m, v, g| *w -= constants.step(m, v, g));
    })
}
