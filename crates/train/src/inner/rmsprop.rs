//! RMSProp (Tieleman and Hinton 2012), PyTorch's form: v ← α·v + (1−α)·g², w ← w − η·g/(√v + ε), not
//! centred and without momentum.

use super::walk::{walk, with_one};
use super::{GroupContext, ModelError};

pub(super) fn run(
    group: &mut GroupContext<'_>,
    step: f64,
    alpha: f64,
    epsilon: f64,
) -> Result<f32, ModelError> {
    let (eta, keep, take, epsilon) = (step as f32, alpha as f32, (1.0 - alpha) as f32, epsilon as f32);
    walk(group, step, false, |_, stretch, sum| {
        with_one(stretch, sum, |w, v, g| {
            *v = keep * *v + take * (g * g);
            *w -= eta * g / (v.sqrt() + epsilon);
        });
    })
}
