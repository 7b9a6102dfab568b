//! The losses, and their gradient with respect to the outputs.

use crate::spec::Loss;

/// The target of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Label<'a> {
    /// A class.
    Class(u32),
    /// Numbers, one per output.
    Values(&'a [f32]),
}

impl Label<'_> {
    fn class(&self) -> usize {
        match self {
            Label::Class(class) => *class as usize,
            Label::Values(values) => usize::from(values.first().is_some_and(|value| *value > 0.5)),
        }
    }

    fn value(&self, i: usize) -> f32 {
        match self {
            // A class in one-hot form.
            Label::Class(class) => f32::from(u8::from(*class as usize == i)),
            Label::Values(values) => values.get(i).copied().unwrap_or(0.0),
        }
    }
}

/// The loss of the outputs `y`, which are overwritten with `weight` times its gradient. With `smoothing` α
/// the target of a class is 1 − α + α/K, that of each other class α/K.
pub(crate) fn replace_by_gradient(
    loss: Loss,
    y: &mut [f32],
    label: Label,
    weight: f32,
    smoothing: f32,
) -> f32 {
    match loss {
        Loss::SoftmaxCrossEntropy => softmax_cross_entropy(y, label.class(), weight, smoothing),
        Loss::Squared => {
            let n = y.len() as f32;
            let mut total = 0.0;
            for (i, y) in y.iter_mut().enumerate() {
                let difference = *y - label.value(i);
                total += difference * difference;
                *y = weight * 2.0 * difference / n;
            }
            total / n
        }
        Loss::Absolute => {
            let n = y.len() as f32;
            let mut total = 0.0;
            for (i, y) in y.iter_mut().enumerate() {
                let difference = *y - label.value(i);
                total += difference.abs();
                // 0 where there is no difference, as in PyTorch.
                *y = if difference == 0.0 { 0.0 } else { weight * difference.signum() / n };
            }
            total / n
        }
        Loss::Huber { delta } => {
            let n = y.len() as f32;
            let mut total = 0.0;
            for (i, y) in y.iter_mut().enumerate() {
                let difference = *y - label.value(i);
                let size = difference.abs();
                let near = size <= delta;
                total += if near { 0.5 * size * size } else { delta * (size - 0.5 * delta) };
                *y = weight * difference.clamp(-delta, delta) / n;
            }
            total / n
        }
        Loss::Hinge => hinge(y, label.class(), weight),
        Loss::Logistic => {
            let class = (1.0 - smoothing) * label.class() as f32 + 0.5 * smoothing;
            let x = y[0];
            y[0] = weight * (1.0 / (1.0 + (-x).exp()) - class);
            // ln(1 + eˣ) − class·x, without overflow.
            x.max(0.0) + (-x.abs()).exp().ln_1p() - class * x
        }
    }
}

fn softmax_cross_entropy(y: &mut [f32], class: usize, weight: f32, smoothing: f32) -> f32 {
    let largest = y.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let at_class = y.get(class).copied().unwrap_or(f32::NAN);
    let share = smoothing / y.len() as f32;
    let smoothed = (1.0 - smoothing) * at_class + share * y.iter().sum::<f32>();
    let mut sum = 0.0;
    for y in y.iter_mut() {
        *y = (*y - largest).exp();
        sum += *y;
    }
    let factor = weight / sum;
    for (i, y) in y.iter_mut().enumerate() {
        *y = *y * factor - if i == class { weight } else { 0.0 };
    }
    if smoothing == 0.0 {
        return largest + sum.ln() - at_class;
    }
    y.iter_mut().for_each(|y| *y -= weight * share);
    if let Some(y) = y.get_mut(class) {
        *y += weight * smoothing;
    }
    largest + sum.ln() - smoothed
}

fn hinge(y: &mut [f32], class: usize, weight: f32) -> f32 {
    let n = y.len() as f32;
    let at_class = y.get(class).copied().unwrap_or(f32::NAN);
    let (mut total, mut pull) = (0.0, 0.0);
    for (i, y) in y.iter_mut().enumerate() {
        let margin = if i == class { 0.0 } else { 1.0 - at_class + *y };
        // A NaN stays one.
        let short = margin > 0.0 || margin.is_nan();
        total += if short { margin } else { 0.0 };
        *y = if short { weight / n } else { 0.0 };
        pull += *y;
    }
    if let Some(y) = y.get_mut(class) {
        *y = -pull;
    }
    total / n
}

/// The class that the outputs of a sample point to; `None` if the loss has no classes.
pub(crate) fn predicted(loss: Loss, y: &[f32]) -> Option<usize> {
    match loss {
        Loss::SoftmaxCrossEntropy | Loss::Hinge => {
            let best = y.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
            best.map(|best| best.0)
        }
        Loss::Logistic => Some(usize::from(y[0] > 0.0)),
        Loss::Squared | Loss::Absolute | Loss::Huber { .. } => None,
    }
}

/// Whether the outputs point to the right class; `false` if the loss has no classes.
pub(crate) fn is_right(loss: Loss, y: &[f32], label: Label) -> bool {
    predicted(loss, y).is_some_and(|class| class == label.class())
}

/// Replaces the outputs of a sample by probabilities; the values of a regression stay unchanged.
pub(crate) fn replace_by_probabilities(loss: Loss, y: &mut [f32]) {
    match loss {
        Loss::SoftmaxCrossEntropy | Loss::Hinge => {
            let largest = y.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let mut sum = 0.0;
            for y in y.iter_mut() {
                *y = (*y - largest).exp();
                sum += *y;
            }
            y.iter_mut().for_each(|y| *y /= sum);
        }
        Loss::Logistic => y[0] = 1.0 / (1.0 + (-y[0]).exp()),
        Loss::Squared | Loss::Absolute | Loss::Huber { .. } => {}
    }
}
