//! SGD with momentum, PyTorch's form: v ← µ·v + g, w ← w − η·v, no dampening. v starts at zero, so
//! the first step takes v = g as PyTorch does.

use super::walk::{walk, with_one};
use super::{GroupContext, ModelError};

pub(super) fn run(group: &mut GroupContext<'_>, step: f64, momentum: f64) -> Result<f32, ModelError> {
    let (eta, decay) = (step as f32, momentum as f32);
    walk(group, step, false, |_, stretch, sum| {
        with_one(stretch, sum, |w, v, g| {
            *v = decay * *v + g;
            *w -= eta * *v;
        });
    })
}
