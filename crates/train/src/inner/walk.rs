//! The loop that all sequential built-in algorithms share: one sample at a time, each gradient at the
//! parameters that the step before it led to.

use dpsgd_kernels::{each3, each4, each5};

use super::GroupResult;
use super::algorithm::{GroupContext, Stretch};
use crate::model::ModelError;

/// What the steps of a walk leave as the result.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaves {
    /// The sum of the gradients, added up by the steps.
    Sum,
    /// (w − w_end)/η.
    Difference,
}

/// Walks with `step(t, stretch, sum)`, t = 1, 2, …, for every stretch of coordinates; `sum` says whether the
/// gradient is to be added to the result.
///
/// `steps_sum` says that (w − w_end)/η is the sum of the gradients itself, as with classical SGD.
pub(super) fn walk(
    group: &mut GroupContext<'_>,
    eta: f64,
    steps_sum: bool,
    mut step: impl FnMut(u64, Stretch<'_>, bool),
) -> Result<f32, ModelError> {
    let leaves = match group.kind() {
        GroupResult::SumOfGradients if !steps_sum => Leaves::Sum,
        GroupResult::SumOfGradients | GroupResult::ModelDifference => Leaves::Difference,
    };
    if leaves == Leaves::Sum {
        group.vectors().result.fill(0.0);
    }
    let size = group.samples().len();
    let mut losses = 0.0;
    for member in 0..size {
        let t = member as u64 + 1;
        losses += group.step_of(member, &mut |stretch| step(t, stretch, leaves == Leaves::Sum))?;
    }
    if leaves == Leaves::Difference {
        group.difference_as_result(eta);
    }
    Ok(losses / size as f32)
}

/// One step of an algorithm with one vector of state, and the sum of gradients in the same pass.
pub(super) fn with_one(stretch: Stretch<'_>, sum: bool, step: impl Fn(&mut f32, &mut f32, f32)) {
    let range = stretch.range();
    let Stretch { weights, gradient, states, result, .. } = stretch;
    let state = &mut states[0][range];
    match sum {
        false => each3(weights, state, gradient, step),
        true => each4(weights, state, result, gradient, |w, v, sum, g| {
            *sum += g;
            step(w, v, g);
        }),
    }
}

/// The same with two vectors of state.
pub(super) fn with_two(stretch: Stretch<'_>, sum: bool, step: impl Fn(&mut f32, &mut f32, &mut f32, f32)) {
    let range = stretch.range();
    let Stretch { weights, gradient, states, result, .. } = stretch;
    // Adam asks for two.
    let (first, rest) = states.split_at_mut(1);
    let (first, second) = (&mut first[0][range.clone()], &mut rest[0][range]);
    match sum {
        false => each4(weights, first, second, gradient, step),
        true => each5(weights, first, second, result, gradient, |w, m, v, sum, g| {
            *sum += g;
            step(w, m, v, g);
        }),
    }
}
