//! The buffers of a worker, and where each sample's numbers are in them.

use std::mem::take;
use std::ops::Range;

use dpsgd_kernels::{Level, SLACK};

use crate::layer::Step;
use crate::layer::conv::Packed;
use crate::layer::linear::Rows;
use crate::layer::normalise::Saved;
use crate::network::Network;

/// How many numbers a chunk may have and still stay in the cache.
const CACHE: usize = 96 * 1024;

/// About how many numbers of a linear layer's gradient are formed at a time where it is handed over part by
/// part: with the parameters and the state of an algorithm they fit in the first-level cache.
pub(super) const PART: usize = 2048;

/// Buffers for the weights, values and gradients of a chunk of samples.
pub(super) struct Room {
    pub(super) level: Level,
    /// The most samples in a chunk.
    pub(super) capacity: usize,
    pub(super) weights: Vec<f32>,
    /// Whether the weights may have changed since they were packed.
    stale: bool,
    pub(super) packed: Vec<Packed>,
    /// The stride between samples, for each tensor.
    pub(super) strides: Vec<usize>,
    pub(super) values: Vec<Vec<f32>>,
    /// Gradients of the tensors; one sample's at a time before the first linear layer.
    pub(super) gradients: Vec<Vec<f32>>,
    /// The first tensor whose gradient is kept for all samples of a chunk.
    pub(super) many_from: usize,
    /// Where max-pooling found each largest value.
    pub(super) chosen: Vec<Vec<u32>>,
    pub(super) saved: Vec<Saved>,
    /// The materialised gradients of the samples of a chunk, where every sample is a group.
    pub(super) dense: Vec<f32>,
    /// A part of the gradient of one sample, where it is handed over part by part.
    pub(super) part: Vec<f32>,
    /// The sums of their squares.
    pub(super) squares: Vec<f64>,
    /// One sample's input as the data set serves it.
    pub(super) input: Vec<f32>,
    /// One row of an image, or the shares of one head.
    pub(super) row: Vec<f32>,
    /// What decides for each sample of a chunk which values are dropped; none where all are kept.
    pub(super) keys: Vec<u64>,
}

impl Room {
    pub(super) fn new(network: &Network, group_size: usize, level: Level) -> Self {
        let strides: Vec<usize> =
            network.tensors.iter().map(|tensor| tensor.padded().next_multiple_of(16) + SLACK).collect();
        let dense_stride = network.dense + SLACK;
        let capacity = if network.has_batch_norm() {
            group_size.max(1)
        } else {
            (CACHE / (strides.iter().sum::<usize>() + dense_stride)).clamp(1, 32)
        };
        let many_from = match network.steps.get(network.flat_from) {
            _ if network.flat_from == 0 => 0,
            Some(step) => step.input(),
            _ => network.tensors.len() - 1,
        };
        let buffer = |samples: usize, stride: usize| vec![0.0; samples * stride + SLACK];
        Self {
            weights: vec![0.0; network.dimension() + SLACK],
            stale: true,
            packed: vec![Packed::default(); network.steps.len()],
            values: strides.iter().map(|&stride| buffer(capacity, stride)).collect(),
            gradients: strides
                .iter()
                .enumerate()
                .map(|(t, &stride)| buffer(if t >= many_from { capacity } else { 1 }, stride))
                .collect(),
            many_from,
            chosen: vec![Vec::new(); network.steps.len()],
            saved: vec![Saved::default(); network.steps.len()],
            dense: buffer(capacity, dense_stride),
            part: Vec::new(),
            squares: vec![0.0; capacity],
            input: vec![0.0; network.tensors[0].numbers()],
            row: Vec::new(),
            keys: Vec::new(),
            level,
            capacity,
            strides,
        }
    }

    /// Makes room for a chunk of `capacity` samples of a network with batch normalisation.
    pub(super) fn grow(&mut self, network: &Network, capacity: usize) {
        let weights = take(&mut self.weights);
        *self = Self { weights, ..Self::new(network, capacity, self.level) };
    }

    pub(super) fn weights_mut(&mut self, dimension: usize) -> &mut [f32] {
        self.stale = true;
        &mut self.weights[..dimension]
    }

    /// Gets ready to hand the gradient of a sample over part by part, to somebody who may change the weights.
    pub(super) fn expect_parts(&mut self, network: &Network) {
        self.stale = true;
        if self.part.is_empty() {
            // Everything of a convolution or of tables at once; of a linear layer at least one row.
            let row = network.tensors.iter().map(|tensor| tensor.channels).max().unwrap_or(0);
            self.part = vec![0.0; network.dense.max(row).max(PART) + SLACK];
        }
    }

    /// Packs the weights of the convolutions again if they may have changed.
    pub(super) fn refresh(&mut self, network: &Network) {
        if !take(&mut self.stale) {
            return;
        }
        for (i, step) in network.steps.iter().enumerate() {
            if let Step::Conv(conv) = step {
                let backward = i > network.trained_from;
                conv.pack(self.level, &self.weights, backward, &mut self.packed[i]);
            }
        }
    }

    /// Where the values of sample `i` are.
    pub(super) fn sample(&self, tensor: usize, i: usize) -> Range<usize> {
        i * self.strides[tensor]..(i + 1) * self.strides[tensor]
    }

    /// Where the gradient of sample `i` is.
    pub(super) fn slot(&self, tensor: usize, i: usize) -> Range<usize> {
        self.sample(tensor, if tensor >= self.many_from { i } else { 0 })
    }

    /// The numbers of some samples of a chunk.
    pub(super) fn rows<'v>(&self, buffers: &'v [Vec<f32>], tensor: usize, samples: Range<usize>) -> Rows<'v> {
        let stride = self.strides[tensor];
        Rows { numbers: &buffers[tensor][samples.start * stride..], stride, n: samples.len() }
    }

    /// The outputs of sample `i` of a chunk that has run.
    pub(super) fn outputs(&self, network: &Network, i: usize) -> &[f32] {
        let last = network.tensors.len() - 1;
        &self.values[last][i * self.strides[last]..][..network.outputs()]
    }
}
