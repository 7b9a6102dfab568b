//! SGD with momentum, PyTorch's form: v ← µ·v + g, w ← w − η·v, no dampening. v starts at zero, so
//! the first step takes v = g as PyTorch does.

/// One coordinate of one step: w, v, g.
pub(super) fn step(step: f64, momentum: f64) -> impl Fn(&mut f32, &mut f32, f32) {
    let (eta, decay) = (step as f32, momentum as f32);
    move |w, v, g| {
        *v = decay * *v + g;
        *w -= eta * *v;
    }
}
