//! Classical SGD: w ← w − η·g, the loop the paper's eq. batchclip sums up.

use dpsgd_kernels::each2;

use super::walk::walk;
use super::{GroupContext, ModelError};

/// Walks with step η; its end tells the sum of the gradients, so nothing else has to be added up.
pub(super) fn run(group: &mut GroupContext<'_>, step: f64) -> Result<f32, ModelError> {
    let eta = step as f32;
    walk(group, step, true, |_, stretch, _| {
        each2(stretch.weights, stretch.gradient, |w, g| *w -= eta * g);
    })
}
