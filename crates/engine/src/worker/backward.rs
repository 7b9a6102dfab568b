//! Backpropagation through a chunk, and the scaled sums of its samples' gradients.

use std::mem::take;
use std::ops::Range;

use dpsgd_kernels::{SLACK, elementwise};

use super::Room;
use super::room::PART;
use crate::layer::attend::Attend;
use crate::layer::conv::Conv;
use crate::layer::dropout::Dropout;
use crate::layer::embed::Embed;
use crate::layer::linear::Linear;
use crate::layer::normalise::{Chunk, Extent, Normalise};
use crate::layer::pool::Pool;
use crate::layer::residual::{Fork, Join};
use crate::layer::{Activation, Step, copy_inside, multiply_inside};
use crate::network::Network;

/// Where gradients of parameters go.
pub(super) enum Sink<'s> {
    /// To each sample's own buffer, with the sum of their squares; linear layers are left for later.
    Samples,
    /// To a flat vector, which the first samples overwrite if it is `fresh`.
    Flat { gradient: &'s mut [f32], fresh: bool },
    /// To somebody who may change the parameters: the gradient of a single sample, part by part, each as soon
    /// as nothing needs the parameters of its step any more.
    Parts(&'s mut Parts<'s>),
}

/// Takes the gradient of some consecutive parameters: where they begin, the parameters, the gradient.
pub type Parts<'s> = dyn FnMut(usize, &mut [f32], &[f32]) + 's;

impl Room {
    /// Backpropagates through the `n` samples of a chunk.
    pub(super) fn backward(&mut self, network: &Network, n: usize, mut sink: Sink) {
        for step in (network.flat_from.max(network.trained_from)..network.steps.len()).rev() {
            self.backward_step(network, step, 0..n, &mut sink);
        }
        for i in 0..n {
            for step in (network.trained_from..network.flat_from).rev() {
                self.backward_step(network, step, i..i + 1, &mut sink);
            }
        }
    }

    fn backward_step(&mut self, network: &Network, index: usize, range: Range<usize>, sink: &mut Sink) {
        // The gradient of the input is needed unless nothing before this step is trained.
        let wanted = index > network.trained_from;
        match &network.steps[index] {
            Step::Conv(conv) => {
                for i in range {
                    self.gradient_conv(network, conv, i, sink);
                    if wanted {
                        self.backward_conv(index, conv, i);
                    }
                }
            }
            Step::Linear(linear) => self.backward_linear(linear, range, wanted, sink),
            Step::Activate { input, output, kind } => {
                for i in range {
                    self.backward_activation(network, [*input, *output], *kind, i, wanted);
                }
            }
            Step::Pool(pool) => self.backward_pool(network, index, pool, range),
            Step::Normalise(normalise) => {
                // Each sample alone, so that its gradient goes to its own group, unless they were normalised
                // together.
                let parts: Vec<Range<usize>> = match normalise.extent {
                    Extent::Batch => vec![range],
                    Extent::Groups(_) => range.map(|i| i..i + 1).collect(),
                };
                for samples in parts {
                    self.backward_normalise(network, index, normalise, samples, wanted, sink);
                }
            }
            Step::Fork(fork) => self.backward_fork(network, fork, range),
            Step::Join(join) => self.backward_join(network, join, range),
            Step::Dropout(dropout) => self.backward_dropout(network, index, dropout, range),
            Step::Embed(embed) => {
                for i in range {
                    self.gradient_embed(network, embed, i, sink);
                }
            }
            Step::Attend(attend) => self.backward_attend(index, attend, range),
        }
    }

    /// The gradient of a convolution's parameters for sample `i`.
    fn gradient_conv(&mut self, network: &Network, conv: &Conv, i: usize, sink: &mut Sink) {
        let level = self.level;
        let x = &self.values[conv.input][self.sample(conv.input, i)];
        let dy = &self.gradients[conv.output][self.slot(conv.output, i)];
        match sink {
            Sink::Samples => {
                let at = i * (network.dense + SLACK) + conv.dense;
                let (weights, bias) = self.dense[at..].split_at_mut(conv.numbers());
                self.squares[i] += conv.gradient(level, x, dy, true, weights, bias);
            }
            Sink::Flat { gradient, fresh } => {
                let (weights, bias) = gradient[conv.weights..].split_at_mut(conv.numbers());
                conv.gradient(level, x, dy, *fresh && i == 0, weights, bias);
            }
            Sink::Parts(part) => {
                let numbers = conv.numbers() + conv.bias.map_or(0, |_| network.tensors[conv.output].channels);
                let (weights, bias) = self.part.split_at_mut(conv.numbers());
                conv.gradient(level, x, dy, true, weights, bias);
                // The gradient of its input is computed from the packed weights, which stay.
                part(conv.weights, &mut self.weights[conv.weights..][..numbers], &self.part[..numbers]);
            }
        }
    }

    fn backward_conv(&mut self, index: usize, conv: &Conv, i: usize) {
        let slot = self.slot(conv.input, i);
        let mut dx = take(&mut self.gradients[conv.input]);
        let dy = &self.gradients[conv.output][self.slot(conv.output, i)];
        conv.backward(self.level, &self.packed[index], dy, &mut dx[slot]);
        self.gradients[conv.input] = dx;
    }

    fn backward_linear(&mut self, linear: &Linear, range: Range<usize>, wanted: bool, sink: &mut Sink) {
        if let Sink::Flat { gradient, fresh } = sink {
            let x = self.rows(&self.values, linear.input, range.clone());
            let dy = self.rows(&self.gradients, linear.output, range.clone());
            linear.gradient(self.level, x, dy, *fresh, gradient);
        }
        if wanted {
            let mut dx = take(&mut self.gradients[linear.input]);
            let dy = self.rows(&self.gradients, linear.output, range.clone());
            linear.backward(self.level, &self.weights, dy, &mut dx, self.strides[linear.input]);
            self.gradients[linear.input] = dx;
        }
        if let Sink::Parts(part) = sink {
            self.linear_parts(linear, range.start, part);
        }
    }

    /// The gradient of a linear layer for sample `i`, some rows at a time.
    fn linear_parts(&mut self, linear: &Linear, i: usize, part: &mut Parts) {
        let row = |buffers: &[Vec<f32>], tensor: usize| i * self.strides[tensor]..buffers[tensor].len();
        let x = &self.values[linear.input][row(&self.values, linear.input)][..linear.inputs];
        let dy = &self.gradients[linear.output][row(&self.gradients, linear.output)][..linear.outputs];
        let mut first = linear.weights;
        for x in x.chunks((PART / linear.outputs).max(1)) {
            let gradient = &mut self.part[..x.len() * linear.outputs];
            elementwise::outer(self.level, x, dy, gradient);
            part(first, &mut self.weights[first..][..gradient.len()], gradient);
            first += gradient.len();
        }
        if let Some(bias) = linear.bias {
            part(bias, &mut self.weights[bias..][..linear.outputs], dy);
        }
    }

    fn backward_activation(
        &mut self,
        network: &Network,
        [input, output]: [usize; 2],
        kind: Activation,
        i: usize,
        wanted: bool,
    ) {
        let tensors = &network.tensors;
        let slot = self.slot(output, i);
        let known = if kind.needs_input() { input } else { output };
        let values = &self.values[known][self.sample(known, i)];
        let d = &mut self.gradients[output][slot.clone()];
        kind.backward(self.level, (&tensors[known], values), (&tensors[output], d));
        if input != output && wanted {
            let into = self.slot(input, i);
            let mut dx = take(&mut self.gradients[input]);
            let dy = &self.gradients[output][slot];
            copy_inside(&tensors[output], dy, &tensors[input], &mut dx[into]);
            self.gradients[input] = dx;
        }
    }

    fn backward_pool(&mut self, network: &Network, index: usize, pool: &Pool, range: Range<usize>) {
        let (from, to) = (&network.tensors[pool.input], &network.tensors[pool.output]);
        let numbers = to.numbers();
        for i in range {
            let slot = self.slot(pool.input, i);
            let mut dx = take(&mut self.gradients[pool.input]);
            let dy = &self.gradients[pool.output][self.slot(pool.output, i)];
            let chosen = self.chosen[index].get(i * numbers..(i + 1) * numbers).unwrap_or_default();
            pool.backward(self.level, from, &mut dx[slot], to, dy, chosen);
            self.gradients[pool.input] = dx;
        }
    }

    fn backward_fork(&mut self, network: &Network, fork: &Fork, range: Range<usize>) {
        let (from, to) = (&network.tensors[fork.input], &network.tensors[fork.output]);
        for i in range {
            let slot = self.slot(fork.input, i);
            let mut dx = take(&mut self.gradients[fork.input]);
            let dy = &self.gradients[fork.output][self.slot(fork.output, i)];
            Fork::backward(self.level, (from, &mut dx[slot]), (to, dy));
            self.gradients[fork.input] = dx;
        }
    }

    fn backward_join(&mut self, network: &Network, join: &Join, range: Range<usize>) {
        for i in range {
            for branch in join.branches {
                let slot = self.slot(branch, i);
                let mut dx = take(&mut self.gradients[branch]);
                let dy = &self.gradients[join.output][self.slot(join.output, i)];
                copy_inside(&network.tensors[join.output], dy, &network.tensors[branch], &mut dx[slot]);
                self.gradients[branch] = dx;
            }
        }
    }

    fn backward_dropout(&mut self, network: &Network, index: usize, dropout: &Dropout, range: Range<usize>) {
        let (from, to) = (&network.tensors[dropout.input], &network.tensors[dropout.output]);
        let numbers = from.numbers();
        for i in range {
            let slot = self.slot(dropout.input, i);
            let mut dx = take(&mut self.gradients[dropout.input]);
            let dy = &self.gradients[dropout.output][self.slot(dropout.output, i)];
            let factors = &self.saved[index].values[i * numbers..][..numbers];
            multiply_inside((to, dy), factors, (from, &mut dx[slot]));
            self.gradients[dropout.input] = dx;
        }
    }

    /// The gradient of the tables of an embedding for sample `i`.
    fn gradient_embed(&mut self, network: &Network, embed: &Embed, i: usize, sink: &mut Sink) {
        let (level, numbers) = (self.level, embed.numbers());
        let x = &self.values[embed.input][self.sample(embed.input, i)];
        let dy = &self.gradients[embed.output][self.slot(embed.output, i)];
        match sink {
            Sink::Samples => {
                let tables = &mut self.dense[i * (network.dense + SLACK) + embed.dense..][..numbers];
                tables.fill(0.0);
                embed.gradient(level, x, dy, tables);
                self.squares[i] += elementwise::square(level, tables);
            }
            Sink::Flat { gradient, fresh } => {
                let tables = &mut gradient[embed.weights..][..numbers];
                if *fresh && i == 0 {
                    tables.fill(0.0);
                }
                embed.gradient(level, x, dy, tables);
            }
            Sink::Parts(part) => {
                let tables = &mut self.part[..numbers];
                tables.fill(0.0);
                embed.gradient(level, x, dy, tables);
                part(embed.weights, &mut self.weights[embed.weights..][..numbers], tables);
            }
        }
    }

    fn backward_attend(&mut self, index: usize, attend: &Attend, range: Range<usize>) {
        let numbers = attend.numbers();
        for i in range {
            let slot = self.slot(attend.input, i);
            let mut dx = take(&mut self.gradients[attend.input]);
            let dy = &self.gradients[attend.output][self.slot(attend.output, i)];
            let x = &self.values[attend.input][self.sample(attend.input, i)];
            let shares = &self.saved[index].values[i * numbers..][..numbers];
            attend.backward(self.level, (x, shares), dy, &mut dx[slot], &mut self.row);
            self.gradients[attend.input] = dx;
        }
    }

    /// For samples that were normalised together.
    fn backward_normalise(
        &mut self,
        network: &Network,
        index: usize,
        normalise: &Normalise,
        samples: Range<usize>,
        wanted: bool,
        sink: &mut Sink,
    ) {
        let first = samples.start;
        let shared = |tensor: usize| if tensor >= self.many_from { self.strides[tensor] } else { 0 };
        let chunk = Chunk { samples, strides: [shared(normalise.input), shared(normalise.output)] };
        let numbers = normalise.parameters.map_or(0, |(_, numbers)| 2 * numbers);
        let (gradient, fresh) = match sink {
            Sink::Samples => {
                let at = first * (network.dense + SLACK) + normalise.dense;
                (&mut self.dense[at..at + numbers], true)
            }
            Sink::Flat { gradient, fresh } => {
                let at = normalise.parameters.map_or(0, |(offset, _)| offset);
                (&mut gradient[at..at + numbers], *fresh && first == 0)
            }
            Sink::Parts(_) => (&mut self.part[..numbers], true),
        };
        if fresh {
            gradient.fill(0.0);
        }
        let mut dx = take(&mut self.gradients[normalise.input]);
        let dy = &self.gradients[normalise.output];
        let shapes = [&network.tensors[normalise.input], &network.tensors[normalise.output]];
        let dx_wanted = wanted.then_some(&mut dx[..]);
        normalise.backward(&self.weights, shapes, &chunk, &self.saved[index], dy, dx_wanted, gradient);
        let square = elementwise::square(self.level, gradient);
        match (sink, normalise.parameters) {
            (Sink::Samples, _) => self.squares[first] += square,
            (Sink::Parts(part), Some((at, _))) => {
                part(at, &mut self.weights[at..at + numbers], &self.part[..numbers]);
            }
            _ => {}
        }
        self.gradients[normalise.input] = dx;
    }

    /// The norm of the gradient of sample `i`, after [`Sink::Samples`].
    pub(super) fn norm(&self, network: &Network, i: usize) -> f32 {
        let mut square = self.squares[i];
        for step in &network.steps {
            if let Step::Linear(linear) = step {
                let x = self.rows(&self.values, linear.input, i..i + 1);
                let dy = self.rows(&self.gradients, linear.output, i..i + 1);
                square += linear.square(self.level, x, dy);
            }
        }
        square.sqrt() as f32
    }

    /// Adds `factor` times the materialised gradient of sample `i`.
    pub(super) fn add_dense(&self, network: &Network, i: usize, factor: f32, sum: &mut [f32]) {
        if factor == 0.0 {
            return;
        }
        let at = i * (network.dense + SLACK);
        for step in &network.steps {
            let (dense, flat, numbers) = match step {
                Step::Conv(conv) => {
                    let bias = conv.bias.map_or(0, |_| network.tensors[conv.output].channels);
                    (conv.dense, conv.weights, conv.numbers() + bias)
                }
                Step::Normalise(normalise) => match normalise.parameters {
                    Some((flat, numbers)) => (normalise.dense, flat, 2 * numbers),
                    None => continue,
                },
                Step::Embed(embed) => (embed.dense, embed.weights, embed.numbers()),
                _ => continue,
            };
            let gradient = &self.dense[at + dense..][..numbers];
            elementwise::add_scaled(self.level, factor, gradient, &mut sum[flat..][..numbers]);
        }
    }

    /// Scales what the linear layers will add for sample `i`. Where nothing is to be added, both factors of
    /// the outer product become 0: 0·∞ would not be.
    pub(super) fn scale_linear(&mut self, network: &Network, i: usize, factor: f32) {
        for step in &network.steps {
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

    /// Adds the scaled gradients of all linear layers of a chunk of `n` samples.
    pub(super) fn add_linear(&self, network: &Network, n: usize, sum: &mut [f32]) {
        for step in &network.steps {
            if let Step::Linear(linear) = step {
                let x = self.rows(&self.values, linear.input, 0..n);
                let dy = self.rows(&self.gradients, linear.output, 0..n);
                linear.gradient(self.level, x, dy, false, sum);
            }
        }
    }
}
