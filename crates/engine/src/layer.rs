//! The steps of a network, forward and backward, on the samples of a chunk.

pub(crate) mod attend;
pub(crate) mod conv;
pub(crate) mod dropout;
pub(crate) mod embed;
pub(crate) mod linear;
pub(crate) mod loss;
pub(crate) mod normalise;
pub(crate) mod pool;
pub(crate) mod residual;

use crate::network::Tensor;
use dpsgd_kernels::{Level, elementwise};

/// The functions applied to every value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Activation {
    Relu,
    Tanh,
    Sigmoid,
    LeakyRelu(f32),
    Elu(f32),
    Gelu,
    Silu,
}

/// One step of the computation; `input` and `output` are indices of tensors.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Conv(Box<conv::Conv>),
    Linear(linear::Linear),
    Activate { input: usize, output: usize, kind: Activation },
    Pool(pool::Pool),
    Normalise(normalise::Normalise),
    Fork(residual::Fork),
    Join(residual::Join),
    Dropout(dropout::Dropout),
    Embed(embed::Embed),
    Attend(attend::Attend),
}

impl Step {
    pub fn output(&self) -> usize {
        match self {
            Step::Conv(conv) => conv.output,
            Step::Linear(linear) => linear.output,
            Step::Activate { output, .. } => *output,
            Step::Pool(pool) => pool.output,
            Step::Normalise(normalise) => normalise.output,
            Step::Fork(fork) => fork.output,
            Step::Join(join) => join.output,
            Step::Dropout(dropout) => dropout.output,
            Step::Embed(embed) => embed.output,
            Step::Attend(attend) => attend.output,
        }
    }

    /// The first tensor it reads.
    pub fn input(&self) -> usize {
        match self {
            Step::Conv(conv) => conv.input,
            Step::Linear(linear) => linear.input,
            Step::Activate { input, .. } => *input,
            Step::Pool(pool) => pool.input,
            Step::Normalise(normalise) => normalise.input,
            Step::Fork(fork) => fork.input,
            Step::Join(join) => join.branches[0].min(join.branches[1]),
            Step::Dropout(dropout) => dropout.input,
            Step::Embed(embed) => embed.input,
            Step::Attend(attend) => attend.input,
        }
    }
}

impl Activation {
    /// Whether the derivative is computed from the input, because the output does not determine it.
    pub fn needs_input(self) -> bool {
        matches!(self, Activation::Gelu | Activation::Silu)
    }

    /// Applies the function to every value inside the border.
    pub fn forward(self, level: Level, tensor: &Tensor, x: &mut [f32]) {
        let apply = |x: &mut [f32]| match self {
            Activation::Relu => elementwise::relu(level, x),
            Activation::Tanh => elementwise::tanh(level, x),
            Activation::Sigmoid => elementwise::sigmoid(level, x),
            Activation::LeakyRelu(slope) => elementwise::leaky_relu(level, slope, x),
            Activation::Elu(alpha) => elementwise::elu(level, alpha, x),
            Activation::Gelu => elementwise::gelu(level, x),
            Activation::Silu => elementwise::silu(level, x),
        };
        if tensor.halo == 0 {
            return apply(&mut x[..tensor.numbers()]);
        }
        for y in 0..tensor.height {
            apply(&mut x[tensor.row(y)..][..tensor.row_numbers()]);
        }
    }

    /// Multiplies the gradient of `tensor` by the derivative, which is computed from the values `known` of
    /// the output, or of the input where it [needs](Self::needs_input) that.
    pub fn backward(
        self,
        level: Level,
        (from, known): (&Tensor, &[f32]),
        (tensor, d): (&Tensor, &mut [f32]),
    ) {
        let apply = |known: &[f32], d: &mut [f32]| match self {
            Activation::Relu => elementwise::relu_backward(level, known, d),
            Activation::Tanh => elementwise::tanh_backward(level, known, d),
            Activation::Sigmoid => elementwise::sigmoid_backward(level, known, d),
            Activation::LeakyRelu(slope) => elementwise::leaky_relu_backward(level, slope, known, d),
            Activation::Elu(alpha) => elementwise::elu_backward(level, alpha, known, d),
            Activation::Gelu => elementwise::gelu_backward(level, known, d),
            Activation::Silu => elementwise::silu_backward(level, known, d),
        };
        if tensor.halo == 0 && from.halo == 0 {
            let n = tensor.numbers();
            return apply(&known[..n], &mut d[..n]);
        }
        for y in 0..tensor.height {
            let (at, place, n) = (from.row(y), tensor.row(y), tensor.row_numbers());
            apply(&known[at..at + n], &mut d[place..place + n]);
        }
    }
}

/// Copies the values inside the borders from one tensor to another of the same shape.
pub(crate) fn copy_inside(from: &Tensor, x: &[f32], to: &Tensor, y: &mut [f32]) {
    for row in 0..from.height {
        y[to.row(row)..][..to.row_numbers()].copy_from_slice(&x[from.row(row)..][..from.row_numbers()]);
    }
}

/// Multiplies the values inside the border of one tensor by `factors`, which have none, and writes them to
/// another.
pub(crate) fn multiply_inside((from, x): (&Tensor, &[f32]), factors: &[f32], (to, y): (&Tensor, &mut [f32])) {
    for (row, factors) in factors.chunks_exact(from.row_numbers()).enumerate() {
        let x = &x[from.row(row)..][..from.row_numbers()];
        for (y, (x, factor)) in y[to.row(row)..].iter_mut().zip(x.iter().zip(factors)) {
            *y = x * factor;
        }
    }
}
