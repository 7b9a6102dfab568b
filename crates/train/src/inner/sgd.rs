//! Classical SGD: w ← w − η·g, the loop the paper's eq. batchclip sums up.

/// One coordinate of one step.
pub(super) fn step(step: f64) -> impl Fn(&mut f32, f32) {
    let eta = step as f32;
    move |w, g| *w -= eta * g
}
