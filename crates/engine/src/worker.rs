//! What one thread needs to run a network: its weights, the values of a chunk of samples, and the way back.
//!
//! A chunk is as many samples as fit the cache. The steps before the first linear layer run sample by
//! sample, the linear layers run on the whole chunk: they are one multiplication then, and read
//! their weights once.

use std::mem::take;
use std::ops::Range;

use crate::kernel::{Level, SLACK, elementwise};
use crate::layer::conv::Packed;
use crate::layer::linear::Rows;
use crate::layer::loss::{self, Target};
use crate::layer::normalise::{Chunk, Extent, Saved};
use crate::layer::{Step, copy_inside};
use crate::network::{Network, Tensor};

/// Samples by number.
pub trait Samples: Sync {
    /// How many there are.
    fn count(&self) -> usize;
    /// Writes the input of a sample: rows of pixels of channels.
    fn copy_input(&self, index: u32, out: &mut [f32]);
    /// What the sample should give.
    fn target(&self, index: u32) -> Target<'_>;
}

/// The numbers of a chunk that should stay in the cache.
const CACHE: usize = 96 * 1024;

/// Runs a network on samples. See the module.
pub struct Worker<'a> {
    network: &'a Network,
    samples: &'a dyn Samples,
    level: Level,
    capacity: usize,
    weights: Vec<f32>,
    stale: bool,
    packed: Vec<Packed>,
    strides: Vec<usize>,
    values: Vec<Vec<f32>>,
    /// Gradients of the tensors; one sample's at a time before the first linear layer.
    gradients: Vec<Vec<f32>>,
    /// The first tensor whose gradient is kept for all samples of a chunk.
    many_from: usize,
    chosen: Vec<Vec<u32>>,
    saved: Vec<Saved>,
    /// The materialised gradients of the samples of a chunk, where every sample is a group.
    dense: Vec<f32>,
    squares: Vec<f64>,
    input: Vec<f32>,
    /// Room for a row of an image.
    row: Vec<f32>,
    group: Vec<f32>,
}

/// Where gradients of parameters go.
enum Sink<'s> {
    /// To the sample's own numbers, and the sum of their squares; those of linear layers are left for later.
    Samples,
    /// To a flat vector, which the first samples overwrite if it is `fresh`.
    Flat { gradient: &'s mut [f32], fresh: bool },
}

impl<'a> Worker<'a> {
    /// For groups of `size` samples, which matters to batch normalisation only: there a chunk is a group.
    pub fn new(network: &'a Network, samples: &'a dyn Samples, size: usize, level: Level) -> Self {
        let strides: Vec<usize> =
            network.tensors.iter().map(|tensor| tensor.padded().next_multiple_of(16) + SLACK).collect();
        let dense_stride = network.dense + SLACK;
        let capacity = if network.has_batch_norm() {
            size.max(1)
        } else {
            (CACHE / (strides.iter().sum::<usize>() + dense_stride)).clamp(1, 32)
        };
        let many_from = match network.steps.get(network.flat_from) {
            _ if network.flat_from == 0 => 0,
            Some(Step::Linear(linear)) => linear.input,
            _ => network.tensors.len() - 1,
        };
        let buffer = |samples: usize, stride: usize| vec![0.0; samples * stride + SLACK];
        Worker {
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
            squares: vec![0.0; capacity],
            input: vec![0.0; network.tensors[0].numbers()],
            row: Vec::new(),
            group: Vec::new(),
            network,
            samples,
            level,
            capacity,
            strides,
        }
    }

    /// The parameters at which the next gradients are taken.
    pub fn weights_mut(&mut self) -> &mut [f32] {
        self.stale = true;
        let dimension = self.network.dimension();
        &mut self.weights[..dimension]
    }

    fn refresh(&mut self) {
        if !take(&mut self.stale) {
            return;
        }
        for (i, step) in self.network.steps.iter().enumerate() {
            if let Step::Conv(conv) = step {
                let backward = i > self.network.trained_from;
                conv.pack(self.level, &self.weights, backward, &mut self.packed[i]);
            }
        }
    }

    fn sample(&self, tensor: usize, i: usize) -> Range<usize> {
        i * self.strides[tensor]..(i + 1) * self.strides[tensor]
    }

    /// Where the gradient of sample `i` is kept.
    fn slot(&self, tensor: usize, i: usize) -> Range<usize> {
        self.sample(tensor, if tensor >= self.many_from { i } else { 0 })
    }

    fn load(&mut self, place: usize, index: u32) {
        self.samples.copy_input(index, &mut self.input);
        let tensor = self.network.tensors[0];
        let flat = Tensor { halo: 0, ..tensor };
        let range = self.sample(0, place);
        copy_inside(&flat, &self.input, &tensor, &mut self.values[0][range]);
    }

    /// Runs the network on up to `capacity` samples.
    fn forward(&mut self, batch: &[u32]) {
        let network = self.network;
        for (i, &index) in batch.iter().enumerate() {
            self.load(i, index);
            for step in 0..network.flat_from {
                self.forward_step(step, i..i + 1);
            }
        }
        for step in network.flat_from..network.steps.len() {
            self.forward_step(step, 0..batch.len());
        }
    }

    fn forward_step(&mut self, index: usize, range: Range<usize>) {
        let network = self.network;
        let step = &network.steps[index];
        let mut out = take(&mut self.values[step.output()]);
        let tensors = &network.tensors;
        match step {
            Step::Conv(conv) => {
                for i in range {
                    let x = &self.values[conv.input][self.sample(conv.input, i)];
                    let y = &mut out[i * self.strides[conv.output]..][..self.strides[conv.output]];
                    conv.forward(self.level, &self.weights, &self.packed[index], x, y);
                }
            }
            Step::Linear(linear) => {
                let rows = self.rows(&self.values, linear.input, range.clone());
                linear.forward(self.level, &self.weights, rows, &mut out, self.strides[linear.output]);
            }
            Step::Activate { input, output, kind } => {
                for i in range {
                    let y = &mut out[i * self.strides[*output]..][..self.strides[*output]];
                    if input != output {
                        let x = &self.values[*input][self.sample(*input, i)];
                        copy_inside(&tensors[*input], x, &tensors[*output], y);
                    }
                    kind.forward(self.level, &tensors[*output], y);
                }
            }
            Step::Pool(pool) => {
                let (from, to) = (&tensors[pool.input], &tensors[pool.output]);
                let numbers = to.numbers();
                let mut chosen = take(&mut self.chosen[index]);
                if pool.kind == crate::layer::pool::PoolKind::Largest {
                    chosen.resize(self.capacity * numbers, 0);
                }
                for i in range {
                    let x = &self.values[pool.input][self.sample(pool.input, i)];
                    let y = &mut out[i * self.strides[pool.output]..][..self.strides[pool.output]];
                    let chosen = chosen.get_mut(i * numbers..(i + 1) * numbers).unwrap_or_default();
                    pool.forward(self.level, from, x, to, y, chosen, &mut self.row);
                }
                self.chosen[index] = chosen;
            }
            Step::Normalise(normalise) => {
                let chunk = Chunk {
                    samples: range,
                    strides: [self.strides[normalise.input], self.strides[normalise.output]],
                };
                let shapes = [&tensors[normalise.input], &tensors[normalise.output]];
                let x = &self.values[normalise.input];
                normalise.forward(&self.weights, shapes, &chunk, x, &mut out, &mut self.saved[index]);
            }
        }
        self.values[step.output()] = out;
    }

    /// The numbers of some samples of a chunk.
    fn rows<'v>(&self, buffers: &'v [Vec<f32>], tensor: usize, samples: Range<usize>) -> Rows<'v> {
        let stride = self.strides[tensor];
        Rows { numbers: &buffers[tensor][samples.start * stride..], stride, n: samples.len() }
    }

    /// The losses of a chunk that has run, and their gradients times `weight`.
    fn losses(&mut self, batch: &[u32], weight: f32) -> f32 {
        let last = self.network.tensors.len() - 1;
        let outputs = self.network.outputs();
        let mut total = 0.0;
        for (i, &index) in batch.iter().enumerate() {
            let at = i * self.strides[last];
            let y = &mut self.gradients[last][at..at + outputs];
            y.copy_from_slice(&self.values[last][at..at + outputs]);
            total += loss::replace_by_gradient(self.network.loss, y, self.samples.target(index), weight);
        }
        total
    }

    /// The way back for the `n` samples of a chunk.
    fn backward(&mut self, n: usize, mut sink: Sink) {
        let network = self.network;
        for step in (network.flat_from.max(network.trained_from)..network.steps.len()).rev() {
            self.backward_step(step, 0..n, &mut sink);
        }
        for i in 0..n {
            for step in (network.trained_from..network.flat_from).rev() {
                self.backward_step(step, i..i + 1, &mut sink);
            }
        }
    }

    fn backward_step(&mut self, index: usize, range: Range<usize>, sink: &mut Sink) {
        let network = self.network;
        let tensors = &network.tensors;
        let dense_stride = network.dense + SLACK;
        let wanted = index > network.trained_from;
        let level = self.level;
        match &network.steps[index] {
            Step::Conv(conv) => {
                for i in range {
                    let x = &self.values[conv.input][self.sample(conv.input, i)];
                    let dy = &self.gradients[conv.output][self.slot(conv.output, i)];
                    let numbers = conv.numbers();
                    match sink {
                        Sink::Samples => {
                            let (weights, bias) =
                                self.dense[i * dense_stride + conv.dense..].split_at_mut(numbers);
                            self.squares[i] += conv.gradient(level, x, dy, true, weights, bias);
                        }
                        Sink::Flat { gradient, fresh } => {
                            let (weights, bias) = gradient[conv.weights..].split_at_mut(numbers);
                            conv.gradient(level, x, dy, *fresh && i == 0, weights, bias);
                        }
                    }
                    if wanted {
                        let slot = self.slot(conv.input, i);
                        let mut dx = take(&mut self.gradients[conv.input]);
                        let dy = &self.gradients[conv.output][self.slot(conv.output, i)];
                        conv.backward(level, &self.packed[index], dy, &mut dx[slot]);
                        self.gradients[conv.input] = dx;
                    }
                }
            }
            Step::Linear(linear) => {
                if let Sink::Flat { gradient, fresh } = sink {
                    let x = self.rows(&self.values, linear.input, range.clone());
                    let dy = self.rows(&self.gradients, linear.output, range.clone());
                    linear.gradient(level, x, dy, *fresh, gradient);
                }
                if wanted {
                    let mut dx = take(&mut self.gradients[linear.input]);
                    let dy = self.rows(&self.gradients, linear.output, range.clone());
                    linear.backward(level, &self.weights, dy, &mut dx, self.strides[linear.input]);
                    self.gradients[linear.input] = dx;
                }
            }
            Step::Activate { input, output, kind } => {
                for i in range {
                    let slot = self.slot(*output, i);
                    let y = &self.values[*output][self.sample(*output, i)];
                    kind.backward(level, &tensors[*output], y, &mut self.gradients[*output][slot.clone()]);
                    if input != output && wanted {
                        let into = self.slot(*input, i);
                        let mut dx = take(&mut self.gradients[*input]);
                        let dy = &self.gradients[*output][slot];
                        copy_inside(&tensors[*output], dy, &tensors[*input], &mut dx[into]);
                        self.gradients[*input] = dx;
                    }
                }
            }
            Step::Pool(pool) => {
                let (from, to) = (&tensors[pool.input], &tensors[pool.output]);
                let numbers = to.numbers();
                for i in range {
                    let slot = self.slot(pool.input, i);
                    let mut dx = take(&mut self.gradients[pool.input]);
                    let dy = &self.gradients[pool.output][self.slot(pool.output, i)];
                    let chosen = self.chosen[index].get(i * numbers..(i + 1) * numbers).unwrap_or_default();
                    pool.backward(level, from, &mut dx[slot], to, dy, chosen);
                    self.gradients[pool.input] = dx;
                }
            }
            Step::Normalise(normalise) => {
                // Each sample alone, so that its gradient finds its group, unless they were normalised together.
                let parts: Vec<Range<usize>> = match normalise.extent {
                    Extent::Batch => vec![range],
                    Extent::Groups(_) => range.map(|i| i..i + 1).collect(),
                };
                for samples in parts {
                    let first = samples.start;
                    let shared =
                        |tensor: usize| if tensor >= self.many_from { self.strides[tensor] } else { 0 };
                    let chunk =
                        Chunk { samples, strides: [shared(normalise.input), shared(normalise.output)] };
                    let numbers = normalise.parameters.map_or(0, |(_, numbers)| 2 * numbers);
                    let (gradient, fresh) = match sink {
                        Sink::Samples => {
                            let at = first * dense_stride + normalise.dense;
                            (&mut self.dense[at..at + numbers], true)
                        }
                        Sink::Flat { gradient, fresh } => {
                            let at = normalise.parameters.map_or(0, |(offset, _)| offset);
                            (&mut gradient[at..at + numbers], *fresh && first == 0)
                        }
                    };
                    if fresh {
                        gradient.fill(0.0);
                    }
                    let mut dx = take(&mut self.gradients[normalise.input]);
                    let dy = &self.gradients[normalise.output];
                    let shapes = [&tensors[normalise.input], &tensors[normalise.output]];
                    let dx_wanted = wanted.then_some(&mut dx[..]);
                    let saved = &self.saved[index];
                    normalise.backward(&self.weights, shapes, &chunk, saved, dy, dx_wanted, gradient);
                    let square = elementwise::square(level, gradient);
                    if let Sink::Samples = sink {
                        self.squares[first] += square;
                    }
                    self.gradients[normalise.input] = dx;
                }
            }
        }
    }

    /// Overwrites `gradient` with the mean gradient over the samples; returns their mean loss.
    pub fn gradient(&mut self, group: &[u32], gradient: &mut [f32]) -> f32 {
        self.refresh();
        let weight = 1.0 / group.len() as f32;
        let mut loss = 0.0;
        for (i, batch) in group.chunks(self.capacity).enumerate() {
            self.forward(batch);
            loss += self.losses(batch, weight);
            self.backward(batch.len(), Sink::Flat { gradient, fresh: i == 0 });
        }
        loss * weight
    }

    /// For every `size` samples, a group: adds the group's mean gradient to `sum`, times what `scale` gives
    /// for its norm. Where that is 0 nothing is added, whatever the gradient is. Returns the sum of
    /// the groups' mean losses.
    ///
    /// `scale` is called once for each group, in order. The norm has a relative error below 6e-6, and a group enters
    /// a coordinate of the sum by one rounded addition (single samples of a chunk in a linear layer: one for each,
    /// and one for the chunk).
    pub fn add_scaled(
        &mut self,
        samples: &[u32],
        size: usize,
        scale: &mut dyn FnMut(f32) -> f32,
        sum: &mut [f32],
    ) -> f32 {
        if size == 1 {
            return self.add_scaled_samples(samples, scale, sum);
        }
        // The gradient of a group is written down: the gradients of its samples may cancel, and then no formula
        // for the norm from its parts has the promised error.
        let mut gradient = take(&mut self.group);
        gradient.resize(self.network.dimension(), 0.0);
        let mut loss = 0.0;
        for group in samples.chunks(size) {
            loss += self.gradient(group, &mut gradient);
            let factor = scale(elementwise::square(self.level, &gradient).sqrt() as f32);
            if factor != 0.0 {
                elementwise::add_scaled(self.level, factor, &gradient, sum);
            }
        }
        self.group = gradient;
        loss
    }

    /// Groups of one sample: the gradients of linear layers are never written down.
    fn add_scaled_samples(
        &mut self,
        samples: &[u32],
        scale: &mut dyn FnMut(f32) -> f32,
        sum: &mut [f32],
    ) -> f32 {
        self.refresh();
        let mut loss = 0.0;
        for batch in samples.chunks(self.capacity) {
            self.forward(batch);
            loss += self.losses(batch, 1.0);
            self.squares.fill(0.0);
            self.backward(batch.len(), Sink::Samples);
            for i in 0..batch.len() {
                let factor = scale(self.norm(i));
                self.add_dense(i, factor, sum);
                self.scale_linear(i, factor);
            }
            for step in &self.network.steps {
                if let Step::Linear(linear) = step {
                    let x = self.rows(&self.values, linear.input, 0..batch.len());
                    let dy = self.rows(&self.gradients, linear.output, 0..batch.len());
                    linear.gradient(self.level, x, dy, false, sum);
                }
            }
        }
        loss
    }

    /// The norm of the gradient of sample `i`.
    fn norm(&self, i: usize) -> f32 {
        let mut square = self.squares[i];
        for step in &self.network.steps {
            if let Step::Linear(linear) = step {
                let x = self.rows(&self.values, linear.input, i..i + 1);
                let dy = self.rows(&self.gradients, linear.output, i..i + 1);
                square += linear.square(self.level, x, dy);
            }
        }
        square.sqrt() as f32
    }

    fn add_dense(&self, i: usize, factor: f32, sum: &mut [f32]) {
        if factor == 0.0 {
            return;
        }
        let at = i * (self.network.dense + SLACK);
        for step in &self.network.steps {
            let (dense, flat, numbers) = match step {
                Step::Conv(conv) => {
                    let bias = conv.bias.map_or(0, |_| self.network.tensors[conv.output].channels);
                    (conv.dense, conv.weights, conv.numbers() + bias)
                }
                Step::Normalise(normalise) => match normalise.parameters {
                    Some((flat, numbers)) => (normalise.dense, flat, 2 * numbers),
                    None => continue,
                },
                _ => continue,
            };
            let gradient = &self.dense[at + dense..][..numbers];
            elementwise::add_scaled(self.level, factor, gradient, &mut sum[flat..][..numbers]);
        }
    }

    /// Scales what the linear layers will add for a sample. Where nothing is to be added, both factors of the
    /// outer product become 0: 0·∞ would not be.
    fn scale_linear(&mut self, i: usize, factor: f32) {
        for step in &self.network.steps {
            let Step::Linear(linear) = step else { continue };
            let dy = &mut self.gradients[linear.output][i * self.strides[linear.output]..][..linear.outputs];
            if factor == 0.0 {
                dy.fill(0.0);
                self.values[linear.input][i * self.strides[linear.input]..][..linear.inputs].fill(0.0);
            } else if factor != 1.0 {
                elementwise::scale(self.level, factor, dy);
            }
        }
    }

    /// The sum of the losses of the samples, and how many point to the right class.
    pub fn evaluate(&mut self, samples: &[u32]) -> Evaluation {
        self.refresh();
        let last = self.network.tensors.len() - 1;
        let outputs = self.network.outputs();
        let mut evaluation = Evaluation::default();
        for batch in samples.chunks(self.capacity) {
            self.forward(batch);
            for (i, &index) in batch.iter().enumerate() {
                let y = &self.values[last][i * self.strides[last]..][..outputs];
                let right = loss::is_right(self.network.loss, y, self.samples.target(index));
                evaluation.right += usize::from(right);
            }
            evaluation.loss += f64::from(self.losses(batch, 1.0));
            evaluation.samples += batch.len();
        }
        evaluation
    }

    /// The outputs of one sample.
    pub fn outputs(&mut self, index: u32) -> &[f32] {
        self.refresh();
        self.forward(&[index]);
        &self.values[self.network.tensors.len() - 1][..self.network.outputs()]
    }
}

/// How well a network does.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Evaluation {
    /// The samples that were looked at.
    pub samples: usize,
    /// The sum of their losses.
    pub loss: f64,
    /// How many point to the right class.
    pub right: usize,
}
