//! Convolution without copying its patches: see [`dpsgd_kernels::multiply`].

use crate::network::Tensor;
use dpsgd_kernels::multiply::{Product, Table, Walk};
use dpsgd_kernels::{Level, SLACK, arrange, elementwise};

/// A convolution. The flat vector holds its weights as \[y\]\[x\]\[in\]\[out\].
#[derive(Clone, Debug)]
pub(crate) struct Conv {
    pub input: usize,
    pub output: usize,
    pub kernel: [usize; 2],
    pub stride: usize,
    /// Where the weights begin in the flat vector.
    pub weights: usize,
    pub bias: Option<usize>,
    /// Where the gradient begins among the gradients materialised for a group: weights, then bias.
    pub dense: usize,
    pub tables: Tables,
}

/// The shapes, and the offsets that the product walks through.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tables {
    pub from: Option<Tensor>,
    pub to: Option<Tensor>,
    /// Forward: the patch of every output pixel, and the pixel itself.
    patches: Table,
    pixels: Table,
    /// The same, column by column: neighbours in this order do not overlap in the input, so adding to one
    /// patch need not wait for the previous one.
    columns_pixels: Table,
    columns_patches: Table,
    /// Weight gradient: every position of the kernel in the first patch, and its row of weights.
    kernel: Table,
    weights: Table,
}

/// The weights arranged for the two directions; empty where they are used unchanged.
#[derive(Clone, Debug, Default)]
pub(crate) struct Packed {
    forward: Vec<f32>,
    backward: Vec<f32>,
}

impl Conv {
    pub fn fill_tables(&mut self, tensors: &[Tensor]) {
        let (from, to) = (tensors[self.input], tensors[self.output]);
        // The border of the input is exactly the padding, so a patch begins at the border's corner.
        let patch = |y: usize, x: usize| y * self.stride * from.pitch() + x * self.stride * from.channels;
        let pixel = |y: usize, x: usize| to.pixel(y, x);
        let rows = || (0..to.height).flat_map(|y| (0..to.width).map(move |x| (y, x)));
        let columns = || (0..to.width).flat_map(|x| (0..to.height).map(move |y| (y, x)));
        let run = self.kernel[1] * from.channels;
        let tables = Tables {
            patches: rows().map(|(y, x)| patch(y, x)).collect(),
            pixels: rows().map(|(y, x)| pixel(y, x)).collect(),
            columns_patches: columns().map(|(y, x)| patch(y, x)).collect(),
            columns_pixels: columns().map(|(y, x)| pixel(y, x)).collect(),
            kernel: (0..self.kernel[0]).flat_map(|y| (0..run).map(move |i| y * from.pitch() + i)).collect(),
            weights: (0..self.kernel[0] * run).map(|k| k * to.channels).collect(),
            from: Some(from),
            to: Some(to),
        };
        self.tables = tables;
    }

    fn shapes(&self) -> (Tensor, Tensor) {
        // `Network::new` fills the tables of every convolution.
        (self.tables.from.expect("filled"), self.tables.to.expect("filled"))
    }

    /// The weights of one output channel.
    pub fn fan_in(&self) -> usize {
        self.tables.kernel.rows()
    }

    pub fn numbers(&self) -> usize {
        self.fan_in() * self.shapes().1.channels
    }

    /// Arranges the weights; `backward` if the gradient of the input will be needed.
    pub fn pack(&self, level: Level, w: &[f32], backward: bool, packed: &mut Packed) {
        let (from, to) = self.shapes();
        let (rows, outputs, width) = (self.fan_in(), to.channels, level.panel());
        let weights = &w[self.weights..][..rows * outputs];
        if outputs > width {
            packed.forward.resize(outputs.div_ceil(width) * rows * width + SLACK, 0.0);
            arrange::panels(level, weights, outputs, width, &mut packed.forward);
        }
        if backward {
            let run = self.kernel[1] * from.channels;
            let panels = run.div_ceil(width);
            let size = panels * outputs * width;
            packed.backward.resize(self.kernel[0] * size + SLACK, 0.0);
            for (weights, packed) in weights.chunks_exact(run * outputs).zip(packed.backward.chunks_mut(size))
            {
                arrange::transposed_panels(level, weights, outputs, width, packed);
            }
        }
    }

    pub fn forward(&self, level: Level, w: &[f32], packed: &Packed, x: &[f32], y: &mut [f32]) {
        let (from, to) = self.shapes();
        let run = self.kernel[1] * from.channels;
        let packs = to.channels > level.panel();
        let row = if packs { level.panel() } else { to.channels };
        let product = Product {
            a: x,
            rows: self.tables.patches.places(),
            b: if packs { &packed.forward } else { &w[self.weights..] },
            panel: self.fan_in() * row,
            walk: Walk { outer: self.kernel[0], inner: run, a: [from.pitch(), 1], b: [run * row, row] },
            columns: to.channels,
        };
        product.store(level, self.bias.map(|bias| &w[bias..]), y, self.tables.pixels.places());
    }

    /// The gradient of the input, including the border; overwrites `dx`.
    pub fn backward(&self, level: Level, packed: &Packed, dy: &[f32], dx: &mut [f32]) {
        let (from, to) = self.shapes();
        let run = self.kernel[1] * from.channels;
        let size = run.div_ceil(level.panel()) * to.channels * level.panel();
        dx[..from.padded()].fill(0.0);
        for y in 0..self.kernel[0] {
            let product = Product {
                a: dy,
                rows: self.tables.columns_pixels.places(),
                b: &packed.backward[y * size..],
                panel: to.channels * level.panel(),
                walk: Walk::line(to.channels, 1, level.panel()),
                // The columns beyond the run are zeros: adding whole vectors is faster and changes nothing.
                columns: run.next_multiple_of(level.lanes()),
            };
            product.add(level, &mut dx[y * from.pitch()..], self.tables.columns_patches.places());
        }
    }

    /// The gradient of the weights and the bias. If `fresh`, it overwrites `weights` and `bias`, and the sum
    /// of its squares is returned; otherwise it is added to them.
    pub fn gradient(
        &self,
        level: Level,
        x: &[f32],
        dy: &[f32],
        fresh: bool,
        weights: &mut [f32],
        bias: &mut [f32],
    ) -> f64 {
        let (from, to) = self.shapes();
        let product = Product {
            a: x,
            rows: self.tables.kernel.places(),
            b: &dy[to.row(0)..],
            panel: level.panel(),
            walk: Walk {
                outer: to.height,
                inner: to.width,
                a: [self.stride * from.pitch(), self.stride * from.channels],
                b: [to.pitch(), to.channels],
            },
            columns: to.channels,
        };
        let mut square = 0.0;
        if fresh {
            square += product.store_squared(level, weights, self.tables.weights.places());
        } else {
            product.add(level, weights, self.tables.weights.places());
        }
        if self.bias.is_some() {
            if fresh {
                bias[..to.channels].fill(0.0);
            }
            let row = to.row_numbers();
            let image = &dy[to.row(0)..to.row(to.height - 1) + row];
            elementwise::add_columns(level, image, to.pitch(), row, to.channels, bias);
            if fresh {
                square += elementwise::square(level, &bias[..to.channels]);
            }
        }
        square
    }
}
