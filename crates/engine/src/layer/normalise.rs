//! Batch, layer, group and instance normalisation.
//!
//! The statistics are those of the samples at hand. There are no running averages: they would be computed
//! from private data and released without clipping or noise.

use std::ops::Range;

use crate::network::Tensor;

/// PyTorch's ε.
const TINY: f32 = 1e-5;

/// Which values are normalised together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Every channel over all samples of a group.
    Batch,
    /// Each group of channels within a sample; holds the number of groups.
    Groups(usize),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Normalise {
    pub input: usize,
    pub output: usize,
    pub extent: Extent,
    /// Where the weights begin in the flat vector, and how many there are; the same number of
    /// biases follows.
    pub parameters: Option<(usize, usize)>,
    /// Where their gradient begins among the materialised ones.
    pub dense: usize,
}

/// What backpropagation needs: the normalised values, without borders, and 1/√variance of every cell.
#[derive(Clone, Debug, Default)]
pub(crate) struct Saved {
    pub values: Vec<f32>,
    pub scales: Vec<f32>,
}

/// The samples of a chunk that are normalised together.
pub(crate) struct Chunk {
    pub samples: Range<usize>,
    /// The stride between samples in the values of the input and of the output, or in their gradients.
    pub strides: [usize; 2],
}

impl Normalise {
    fn cells(&self, channels: usize) -> usize {
        match self.extent {
            Extent::Batch => channels,
            Extent::Groups(groups) => groups,
        }
    }

    /// The samples that share statistics: all of them, or each alone.
    fn together(&self, samples: &Range<usize>) -> Vec<Range<usize>> {
        match self.extent {
            Extent::Batch => vec![samples.clone()],
            Extent::Groups(_) => samples.clone().map(|i| i..i + 1).collect(),
        }
    }

    /// The weight of value `i` of a sample.
    fn weight(&self, i: usize, channels: usize) -> usize {
        match self.parameters {
            Some((_, numbers)) if numbers == channels => i % channels,
            _ => i,
        }
    }

    pub fn forward(
        &self,
        w: &[f32],
        [from, to]: [&Tensor; 2],
        chunk: &Chunk,
        x: &[f32],
        y: &mut [f32],
        saved: &mut Saved,
    ) {
        let (numbers, channels) = (from.numbers(), from.channels);
        let cells = self.cells(channels);
        let width = channels / cells;
        saved.values.resize(saved.values.len().max(chunk.samples.end * numbers), 0.0);
        saved.scales.resize(saved.scales.len().max(chunk.samples.end * cells), 0.0);
        for samples in self.together(&chunk.samples) {
            let count = (samples.len() * numbers / cells) as f64;
            let mut sums = vec![0.0f64; cells];
            let mut squares = vec![0.0f64; cells];
            let each = |i: usize| {
                (0..from.height).flat_map(move |row| {
                    let first = i * chunk.strides[0] + from.row(row);
                    (first..first + from.row_numbers())
                        .enumerate()
                        .map(move |(k, at)| (row * from.row_numbers() + k, at))
                })
            };
            for i in samples.clone() {
                for (k, at) in each(i) {
                    sums[k % channels / width] += f64::from(x[at]);
                }
            }
            let means: Vec<f64> = sums.iter().map(|sum| sum / count).collect();
            for i in samples.clone() {
                for (k, at) in each(i) {
                    let cell = k % channels / width;
                    squares[cell] += (f64::from(x[at]) - means[cell]).powi(2);
                }
            }
            let scales: Vec<f64> =
                squares.iter().map(|square| 1.0 / (square / count + f64::from(TINY)).sqrt()).collect();
            for i in samples.clone() {
                for (scale, from) in saved.scales[i * cells..][..cells].iter_mut().zip(&scales) {
                    *scale = *from as f32;
                }
                for (k, at) in each(i) {
                    let cell = k % channels / width;
                    let value = ((f64::from(x[at]) - means[cell]) * scales[cell]) as f32;
                    saved.values[i * numbers + k] = value;
                    let (weight, bias) = match self.parameters {
                        Some((offset, count)) => {
                            let weight = offset + self.weight(k, channels);
                            (w[weight], w[weight + count])
                        }
                        None => (1.0, 0.0),
                    };
                    let (row, column) = (k / from.row_numbers(), k % from.row_numbers());
                    y[i * chunk.strides[1] + to.row(row) + column] = value * weight + bias;
                }
            }
        }
    }

    /// The gradient of the input, and that of the weights and biases, which is added to `gradient`.
    #[allow(clippy::too_many_arguments, reason = "the two sides of a step, and what lies between them")]
    pub fn backward(
        &self,
        w: &[f32],
        [from, to]: [&Tensor; 2],
        chunk: &Chunk,
        saved: &Saved,
        dy: &[f32],
        dx: Option<&mut [f32]>,
        gradient: &mut [f32],
    ) {
        let (numbers, channels) = (from.numbers(), from.channels);
        let cells = self.cells(channels);
        let width = channels / cells;
        let at = |tensor: &Tensor, k: usize| tensor.row(k / tensor.row_numbers()) + k % tensor.row_numbers();
        if let Some((_, count)) = self.parameters {
            for i in chunk.samples.clone() {
                for k in 0..numbers {
                    let d = dy[i * chunk.strides[1] + at(to, k)];
                    let weight = self.weight(k, channels);
                    gradient[weight] += d * saved.values[i * numbers + k];
                    gradient[weight + count] += d;
                }
            }
        }
        let Some(dx) = dx else { return };
        let d = |i: usize, k: usize| {
            let weight = self.parameters.map_or(1.0, |(offset, _)| w[offset + self.weight(k, channels)]);
            f64::from(dy[i * chunk.strides[1] + at(to, k)] * weight)
        };
        for samples in self.together(&chunk.samples) {
            let count = (samples.len() * numbers / cells) as f64;
            let mut sums = vec![[0.0f64; 2]; cells];
            for i in samples.clone() {
                for k in 0..numbers {
                    let (d, value) = (d(i, k), f64::from(saved.values[i * numbers + k]));
                    let sums = &mut sums[k % channels / width];
                    *sums = [sums[0] + d, sums[1] + d * value];
                }
            }
            for i in samples {
                for k in 0..numbers {
                    let cell = k % channels / width;
                    let value = f64::from(saved.values[i * numbers + k]);
                    let scale = f64::from(saved.scales[i * cells + cell]);
                    let centred = d(i, k) - (sums[cell][0] + value * sums[cell][1]) / count;
                    dx[i * chunk.strides[0] + at(from, k)] = (scale * centred) as f32;
                }
            }
        }
    }
}
