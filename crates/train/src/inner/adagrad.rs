//! AdaGrad (Duchi, Hazan and Singer 2011), PyTorch's form: v ← v + g², w ← w − η·g/(√v + ε), without
//! decay and from v = 0.

/// One coordinate of one step: w, v, g.
pub(super) fn step(step: f64, epsilon: f64) -> impl Fn(&mut f32, &mut f32, f32) {
    let (eta, epsilon) = (step as f32, epsilon as f32);
    move |w, v, g| {
        *v += g * g;
        *w -= eta * g / (v.sqrt() + epsilon);
    }
}
