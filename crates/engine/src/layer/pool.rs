//! Mean and max pooling.

use crate::network::Tensor;
use dpsgd_kernels::Level;
use dpsgd_kernels::elementwise::{Windows, add_windows, fill_windows, spread_windows};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolKind {
    Mean,
    Largest,
}

/// Windows of `kernel`, `strides` apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pool {
    pub input: usize,
    pub output: usize,
    pub kind: PoolKind,
    pub kernel: [usize; 2],
    pub strides: [usize; 2],
}

impl Pool {
    fn windows(&self, from: &Tensor) -> Windows {
        let [height, width] = self.kernel;
        Windows { height, width, step: self.strides[1], pitch: from.pitch(), channels: from.channels }
    }

    /// For max pooling, `chosen` receives where each value was found; `row_room` is scratch for one row of
    /// the image.
    #[allow(clippy::too_many_arguments, reason = "the two sides of a step, and room for what it needs")]
    pub fn forward(
        &self,
        level: Level,
        from: &Tensor,
        x: &[f32],
        to: &Tensor,
        y: &mut [f32],
        chosen: &mut [u32],
        row_room: &mut Vec<f32>,
    ) {
        let channels = from.channels;
        let factor = 1.0 / (self.kernel[0] * self.kernel[1]) as f32;
        for row in 0..to.height {
            let out = &mut y[to.row(row)..][..to.row_numbers()];
            if self.kind == PoolKind::Mean {
                let first = from.row(row * self.strides[0]);
                row_room.resize(from.row_numbers(), 0.0);
                add_windows(level, &x[first..], self.windows(from), factor, row_room, out);
                continue;
            }
            for (column, out) in out.chunks_exact_mut(channels).enumerate() {
                let chosen = &mut chosen[(row * to.width + column) * channels..][..channels];
                let corner = from.pixel(row * self.strides[0], column * self.strides[1]);
                for (c, (out, chosen)) in out.iter_mut().zip(chosen).enumerate() {
                    *chosen = (corner + c) as u32;
                    *out = x[corner + c];
                    for i in 0..self.kernel[0] {
                        for j in 0..self.kernel[1] {
                            let at = corner + i * from.pitch() + j * channels + c;
                            // A NaN wins, as in PyTorch, so that it is not hidden.
                            if x[at] > *out || x[at].is_nan() {
                                (*out, *chosen) = (x[at], at as u32);
                            }
                        }
                    }
                }
            }
        }
    }

    pub fn backward(
        &self,
        level: Level,
        from: &Tensor,
        dx: &mut [f32],
        to: &Tensor,
        dy: &[f32],
        chosen: &[u32],
    ) {
        let channels = from.channels;
        // Adjacent windows that cover the image write every pixel themselves.
        let covered = self.strides == self.kernel
            && from.height == to.height * self.kernel[0]
            && from.width == to.width * self.kernel[1];
        if !(covered && self.kind == PoolKind::Mean) {
            dx[..from.padded()].fill(0.0);
        }
        let factor = 1.0 / (self.kernel[0] * self.kernel[1]) as f32;
        for row in 0..to.height {
            let d = &dy[to.row(row)..][..to.row_numbers()];
            if self.kind == PoolKind::Mean {
                let first = from.row(row * self.strides[0]);
                let spread = if self.strides == self.kernel { fill_windows } else { spread_windows };
                spread(level, d, self.windows(from), factor, &mut dx[first..]);
                continue;
            }
            for (d, &at) in d.iter().zip(&chosen[row * to.width * channels..]) {
                dx[at as usize] += d;
            }
        }
    }
}
