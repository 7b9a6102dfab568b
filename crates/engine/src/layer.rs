//! The steps of a network, forward and backward, on the samples of a chunk.

pub(crate) mod conv;
pub(crate) mod linear;
pub(crate) mod loss;
pub(crate) mod normalise;
pub(crate) mod pool;

use crate::kernel::{Level, elementwise};
use crate::network::Tensor;

/// The functions applied to every value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activation {
    Relu,
    Tanh,
    Sigmoid,
}

/// One step of the computation; `input` and `output` are places among the tensors.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Conv(Box<conv::Conv>),
    Linear(linear::Linear),
    Activate { input: usize, output: usize, kind: Activation },
    Pool(pool::Pool),
    Normalise(normalise::Normalise),
}

impl Step {
    pub fn output(&self) -> usize {
        match self {
            Step::Conv(conv) => conv.output,
            Step::Linear(linear) => linear.output,
            Step::Activate { output, .. } => *output,
            Step::Pool(pool) => pool.output,
            Step::Normalise(normalise) => normalise.output,
        }
    }
}

impl Activation {
    /// Applies the function to every value inside the border.
    pub fn forward(self, level: Level, tensor: &Tensor, x: &mut [f32]) {
        let apply = match self {
            Activation::Relu => elementwise::relu,
            Activation::Tanh => elementwise::tanh,
            Activation::Sigmoid => elementwise::sigmoid,
        };
        if tensor.halo == 0 {
            return apply(level, &mut x[..tensor.numbers()]);
        }
        for y in 0..tensor.height {
            apply(level, &mut x[tensor.row(y)..][..tensor.row_numbers()]);
        }
    }

    /// Multiplies the gradient by the derivative, which follows from the output.
    pub fn backward(self, level: Level, tensor: &Tensor, output: &[f32], d: &mut [f32]) {
        let apply = match self {
            Activation::Relu => elementwise::relu_backward,
            Activation::Tanh => elementwise::tanh_backward,
            Activation::Sigmoid => elementwise::sigmoid_backward,
        };
        if tensor.halo == 0 {
            let n = tensor.numbers();
            return apply(level, &output[..n], &mut d[..n]);
        }
        for y in 0..tensor.height {
            let row = tensor.row(y)..tensor.row(y) + tensor.row_numbers();
            apply(level, &output[row.clone()], &mut d[row]);
        }
    }
}

/// Copies the values inside the borders from one tensor to another of the same shape.
pub(crate) fn copy_inside(from: &Tensor, x: &[f32], to: &Tensor, y: &mut [f32]) {
    for row in 0..from.height {
        y[to.row(row)..][..to.row_numbers()].copy_from_slice(&x[from.row(row)..][..from.row_numbers()]);
    }
}
