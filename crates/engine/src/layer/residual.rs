//! A residual block: the body works on a copy of the input, and what comes out is added to the input.
//!
//! The copy lets every tensor keep one reader, so that a convolution of the body may give it a border and an
//! activation may overwrite it. Backwards, [`Join`] hands the gradient to both branches; the shortcut's
//! arrives at the input first, and [`Fork`] adds the body's.

use crate::network::Tensor;
use dpsgd_kernels::{Level, elementwise};

/// Where the body begins: `output` is a copy of `input`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fork {
    pub input: usize,
    pub output: usize,
}

/// Where the block ends: `output` is the sum of the body's end and of the shortcut's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Join {
    pub branches: [usize; 2],
    pub output: usize,
}

impl Fork {
    /// Adds the gradient of the copy to that of the input.
    pub fn backward(level: Level, (from, dx): (&Tensor, &mut [f32]), (to, dy): (&Tensor, &[f32])) {
        for row in 0..from.height {
            let dx = &mut dx[from.row(row)..][..from.row_numbers()];
            elementwise::add(level, &dy[to.row(row)..][..to.row_numbers()], dx);
        }
    }
}

impl Join {
    /// The sum of the two branches, inside the border.
    pub fn forward(level: Level, branches: [(&Tensor, &[f32]); 2], (to, y): (&Tensor, &mut [f32])) {
        for row in 0..to.height {
            let [a, b] = branches.map(|(tensor, x)| &x[tensor.row(row)..][..tensor.row_numbers()]);
            elementwise::sum(level, a, b, &mut y[to.row(row)..][..to.row_numbers()]);
        }
    }
}
