//! RMSProp (Tieleman and Hinton 2012), PyTorch's form: v ← α·v + (1−α)·g², w ← w − η·g/(√v + ε), not
//! centred and without momentum.

/// One coordinate of one step: w, v, g.
pub(super) fn step(step: f64, alpha: f64, epsilon: f64) -> impl Fn(&mut f32, &mut f32, f32) {
    let (eta, keep, take, epsilon) = (step as f32, alpha as f32, (1.0 - alpha) as f32, epsilon as f32);
    move |w, v, g| {
        *v = keep * *v + take * (g * g);
        *w -= eta * g / (v.sqrt() + epsilon);
    }
}
