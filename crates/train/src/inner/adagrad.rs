//! AdaGrad (Duchi, Hazan and Singer 2011), PyTorch's form: v ← v + g², w ← w − η·g/(√v + ε), without
//! decay and from v = 0.

use super::walk::{walk, with_one};
use super::{GroupContext, ModelError};

pub(super) fn run(group: &mut GroupContext<'_>, step: f64, epsilon: f64) -> Result<f32, ModelError> {
    let (eta, epsilon) = (step as f32, epsilon as f32);
    walk(group, step, false, |_, stretch, sum| {
        with_one(stretch, sum, |w, v, g| {
            *v += g * g;
            *w -= eta * g / (v.sqrt() + epsilon);
        });
    })
}
