//! Adam (Kingma and Ba 2015) with bias correction, in PyTorch's order of operations:
//! w ← w − (η/(1−β₁ᵗ))·m / (√v/√(1−β₂ᵗ) + ε).

use crate::simd::Adam;

/// One coordinate of one step: w, m, v, g.
pub(super) fn step(constants: Adam) -> impl Fn(&mut f32, &mut f32, &mut f32, f32) {
    move |w, m, v, g| *w -= constants.step(m, v, g)
}
