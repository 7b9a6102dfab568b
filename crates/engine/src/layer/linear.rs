//! Linear layers. Their gradient for one sample is an outer product, which need not be formed: its norm is
//! the product of two norms, and a scaled sum of many is one matrix product.

use dpsgd_kernels::dots::Dots;
use dpsgd_kernels::multiply::{Places, Product, Table, Walk};
use dpsgd_kernels::{Level, elementwise, squares};

/// A linear layer. The flat vector holds its weights as \[in\]\[out\].
#[derive(Clone, Debug)]
pub(crate) struct Linear {
    pub input: usize,
    pub output: usize,
    pub inputs: usize,
    pub outputs: usize,
    /// Where the weights begin in the flat vector.
    pub weights: usize,
    pub bias: Option<usize>,
    /// 0, 1, 2, …: the inputs as rows of the gradient; and where these rows are.
    rows: Table,
    places: Table,
}

/// The samples of a chunk: `n` rows, `stride` apart.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    pub numbers: &'a [f32],
    pub stride: usize,
    pub n: usize,
}

impl<'a> Rows<'a> {
    fn row(&self, i: usize, length: usize) -> &'a [f32] {
        &self.numbers[i * self.stride..][..length]
    }
}

/// Σ x², also where squares of single precision vanish: each is off by 2⁻¹⁵⁰ at most, so a million of them are
/// off by less than 1e-9 of a sum above this. What is too large for single precision becomes infinite.
const LEAST_SQUARE: f64 = 1e-30;

fn square(level: Level, x: &[f32]) -> f64 {
    let fast = elementwise::square(level, x);
    if fast >= LEAST_SQUARE { fast } else { squares(x) }
}

/// The most samples multiplied at once.
const MOST_ROWS: usize = 64;

/// Where each of `n` rows begins.
struct Starts([u32; MOST_ROWS]);

impl Starts {
    fn new(stride: usize) -> Self {
        Starts(std::array::from_fn(|i| (i * stride) as u32))
    }
}

impl Linear {
    pub fn new(
        [input, output]: [usize; 2],
        [inputs, outputs]: [usize; 2],
        weights: usize,
        bias: Option<usize>,
    ) -> Self {
        let rows = (0..inputs).collect();
        let places = (0..inputs).map(|i| i * outputs).collect();
        Self { input, output, inputs, outputs, weights, bias, rows, places }
    }

    pub fn forward(&self, level: Level, w: &[f32], x: Rows, y: &mut [f32], y_stride: usize) {
        let (rows, places) = (Starts::new(x.stride), Starts::new(y_stride));
        for first in (0..x.n).step_by(MOST_ROWS) {
            let n = MOST_ROWS.min(x.n - first);
            let product = Product {
                a: &x.numbers[first * x.stride..],
                rows: Places::new(&rows.0[..n]),
                b: &w[self.weights..],
                panel: level.panel(),
                walk: Walk::line(self.inputs, 1, self.outputs),
                columns: self.outputs,
            };
            let y = &mut y[first * y_stride..];
            product.store(level, self.bias.map(|bias| &w[bias..]), y, Places::new(&places.0[..n]));
        }
    }

    pub fn backward(&self, level: Level, w: &[f32], dy: Rows, dx: &mut [f32], dx_stride: usize) {
        let dots = Dots {
            a: dy.numbers,
            a_stride: dy.stride,
            a_rows: dy.n,
            b: &w[self.weights..],
            b_stride: self.outputs,
            b_rows: self.inputs,
            k: self.outputs,
        };
        dots.store(level, dx, dx_stride);
    }

    /// ‖gradient‖² of one sample: (‖x‖² + 1)·‖δ‖², the 1 for the bias.
    ///
    /// # Guarantee
    /// The relative error is below 1e-5, or the result is not finite, whatever the numbers are: whoever chooses
    /// the weights can make one factor tiny and the other huge, and their product is then an ordinary gradient.
    pub fn square(&self, level: Level, x: Rows, dy: Rows) -> f64 {
        let bias = if self.bias.is_some() { 1.0 } else { 0.0 };
        (square(level, x.row(0, self.inputs)) + bias) * square(level, dy.row(0, self.outputs))
    }

    /// Adds Σ_i x_i δ_iᵀ to the flat vector `sum`, or overwrites that part of it if `fresh`.
    pub fn gradient(&self, level: Level, x: Rows, dy: Rows, fresh: bool, sum: &mut [f32]) {
        let product = Product {
            a: x.numbers,
            rows: self.rows.places(),
            b: dy.numbers,
            panel: level.panel(),
            walk: Walk::line(x.n, x.stride, dy.stride),
            columns: self.outputs,
        };
        let weights = &mut sum[self.weights..][..self.inputs * self.outputs];
        if fresh && x.n == 1 {
            elementwise::outer(level, x.row(0, self.inputs), dy.row(0, self.outputs), weights);
        } else if fresh {
            product.store(level, None, weights, self.places.places());
        } else {
            product.add(level, weights, self.places.places());
        }
        if let Some(bias) = self.bias {
            let bias = &mut sum[bias..][..self.outputs];
            if fresh {
                bias.fill(0.0);
            }
            for i in 0..dy.n {
                elementwise::add(level, dy.row(i, self.outputs), bias);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_norm_of_an_outer_product_of_extremes() {
        let linear = Linear::new([0, 1], [400, 120], 0, None);
        let factors = [(1.0, 1.0), (8e17, 1e-22), (8e17, 2e-23), (1e17, 1e-25), (1e-23, 1e18), (1e-30, 1e15)];
        for (large, small) in factors {
            let x: Vec<f32> = (0..400).map(|i| large * (0.5 + (i % 7) as f32 / 14.0)).collect();
            let dy: Vec<f32> = (0..120).map(|i| small * (0.5 + (i % 5) as f32 / 10.0)).collect();
            let exact = |x: &[f32]| x.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>();
            let expected = exact(&x) * exact(&dy);
            let rows = |numbers| Rows { numbers, stride: 400, n: 1 };
            let found = linear.square(Level::best(), rows(&x), rows(&dy));
            assert!((found / expected - 1.0).abs() < 1e-5, "{large} {small}: {found} {expected}");
        }
    }
}
