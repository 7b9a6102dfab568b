//! The losses, and their gradient with respect to the outputs.

use crate::spec::Loss;

/// What a sample should give.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target<'a> {
    /// A class.
    Class(u32),
    /// Numbers, one for every output.
    Values(&'a [f32]),
}

impl Target<'_> {
    fn class(&self) -> usize {
        match self {
            Target::Class(class) => *class as usize,
            Target::Values(values) => usize::from(values.first().is_some_and(|value| *value > 0.5)),
        }
    }

    fn value(&self, i: usize) -> f32 {
        match self {
            // A class as numbers: 1 at its place.
            Target::Class(class) => f32::from(u8::from(*class as usize == i)),
            Target::Values(values) => values.get(i).copied().unwrap_or(0.0),
        }
    }
}

/// The loss of the outputs `y`; they are overwritten by `weight` times its gradient.
pub(crate) fn replace_by_gradient(loss: Loss, y: &mut [f32], target: Target, weight: f32) -> f32 {
    match loss {
        Loss::SoftmaxCrossEntropy => {
            let class = target.class();
            let largest = y.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let at_class = y.get(class).copied().unwrap_or(f32::NAN);
            let mut sum = 0.0;
            for y in y.iter_mut() {
                *y = (*y - largest).exp();
                sum += *y;
            }
            let factor = weight / sum;
            for (i, y) in y.iter_mut().enumerate() {
                *y = *y * factor - if i == class { weight } else { 0.0 };
            }
            largest + sum.ln() - at_class
        }
        Loss::Squared => {
            let n = y.len() as f32;
            let mut total = 0.0;
            for (i, y) in y.iter_mut().enumerate() {
                let difference = *y - target.value(i);
                total += difference * difference;
                *y = weight * 2.0 * difference / n;
            }
            total / n
        }
        Loss::Logistic => {
            let class = target.class() as f32;
            let x = y[0];
            y[0] = weight * (1.0 / (1.0 + (-x).exp()) - class);
            // ln(1 + eˣ) − class·x, without overflow.
            x.max(0.0) + (-x.abs()).exp().ln_1p() - class * x
        }
    }
}

/// Whether the outputs point to the right class; for numbers there is no such thing.
pub(crate) fn is_right(loss: Loss, y: &[f32], target: Target) -> bool {
    match loss {
        Loss::SoftmaxCrossEntropy => {
            let best = y.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
            best.is_some_and(|best| best.0 == target.class())
        }
        Loss::Logistic => usize::from(y[0] > 0.0) == target.class(),
        Loss::Squared => false,
    }
}
