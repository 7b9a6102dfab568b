//! From the samples of a chunk to their outputs and losses.

use std::mem::take;
use std::ops::Range;

use super::{Room, Samples};
use crate::layer::dropout::Dropout;
use crate::layer::normalise::Chunk;
use crate::layer::pool::{Pool, PoolKind};
use crate::layer::residual::Join;
use crate::layer::{Step, copy_inside, loss, multiply_inside};
use crate::network::{Network, Tensor};

impl Room {
    /// Runs the network on up to `capacity` samples.
    pub(super) fn forward(&mut self, network: &Network, samples: &dyn Samples, chunk: &[u32]) {
        for (i, &index) in chunk.iter().enumerate() {
            self.load(network, samples, i, index);
            for step in 0..network.flat_from {
                self.forward_step(network, step, i..i + 1);
            }
        }
        for step in network.flat_from..network.steps.len() {
            self.forward_step(network, step, 0..chunk.len());
        }
    }

    fn load(&mut self, network: &Network, samples: &dyn Samples, place: usize, index: u32) {
        samples.copy_input(index, &mut self.input);
        let tensor = network.tensors[0];
        let flat = Tensor { halo: 0, ..tensor };
        let range = self.sample(0, place);
        copy_inside(&flat, &self.input, &tensor, &mut self.values[0][range]);
    }

    fn forward_step(&mut self, network: &Network, index: usize, range: Range<usize>) {
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
            Step::Pool(pool) => self.forward_pool(network, index, pool, range, &mut out),
            Step::Normalise(normalise) => {
                let chunk = Chunk {
                    samples: range,
                    strides: [self.strides[normalise.input], self.strides[normalise.output]],
                };
                let shapes = [&tensors[normalise.input], &tensors[normalise.output]];
                let x = &self.values[normalise.input];
                normalise.forward(&self.weights, shapes, &chunk, x, &mut out, &mut self.saved[index]);
            }
            Step::Fork(fork) => {
                for i in range {
                    let x = &self.values[fork.input][self.sample(fork.input, i)];
                    let y = &mut out[self.sample(fork.output, i)];
                    copy_inside(&tensors[fork.input], x, &tensors[fork.output], y);
                }
            }
            Step::Dropout(dropout) => self.forward_dropout(network, index, dropout, range, &mut out),
            Step::Embed(embed) => {
                for i in range {
                    let x = &self.values[embed.input][self.sample(embed.input, i)];
                    let y = &mut out[self.sample(embed.output, i)];
                    embed.forward(self.level, &self.weights, x, y);
                }
            }
            Step::Attend(attend) => {
                let numbers = attend.numbers();
                let mut shares = take(&mut self.saved[index].values);
                shares.resize(shares.len().max(range.end * numbers), 0.0);
                for i in range {
                    let x = &self.values[attend.input][self.sample(attend.input, i)];
                    let y = &mut out[self.sample(attend.output, i)];
                    let shares = &mut shares[i * numbers..][..numbers];
                    attend.forward(self.level, x, y, shares, &mut self.row);
                }
                self.saved[index].values = shares;
            }
            Step::Join(join) => {
                for i in range {
                    let branches = join
                        .branches
                        .map(|branch| (&tensors[branch], &self.values[branch][self.sample(branch, i)]));
                    let y = &mut out[self.sample(join.output, i)];
                    Join::forward(self.level, branches, (&tensors[join.output], y));
                }
            }
        }
        self.values[step.output()] = out;
    }

    fn forward_pool(
        &mut self,
        network: &Network,
        index: usize,
        pool: &Pool,
        range: Range<usize>,
        out: &mut [f32],
    ) {
        let (from, to) = (&network.tensors[pool.input], &network.tensors[pool.output]);
        let numbers = to.numbers();
        let mut chosen = take(&mut self.chosen[index]);
        if pool.kind == PoolKind::Largest {
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

    fn forward_dropout(
        &mut self,
        network: &Network,
        index: usize,
        dropout: &Dropout,
        range: Range<usize>,
        out: &mut [f32],
    ) {
        let (from, to) = (&network.tensors[dropout.input], &network.tensors[dropout.output]);
        let numbers = from.numbers();
        let mut factors = take(&mut self.saved[index].values);
        factors.resize(factors.len().max(range.end * numbers), 0.0);
        for i in range {
            let factors = &mut factors[i * numbers..][..numbers];
            dropout.factors(self.keys.get(i).copied(), factors);
            let x = &self.values[dropout.input][self.sample(dropout.input, i)];
            let y = &mut out[self.sample(dropout.output, i)];
            multiply_inside((from, x), factors, (to, y));
        }
        self.saved[index].values = factors;
    }

    /// The sum of the losses of a chunk that has run; their gradients times `weight` are left in the buffers.
    pub(super) fn losses(
        &mut self,
        network: &Network,
        samples: &dyn Samples,
        chunk: &[u32],
        weight: f32,
        smoothing: f32,
    ) -> f32 {
        let last = network.tensors.len() - 1;
        let outputs = network.outputs();
        let mut total = 0.0;
        for (i, &index) in chunk.iter().enumerate() {
            let at = i * self.strides[last];
            let y = &mut self.gradients[last][at..at + outputs];
            y.copy_from_slice(&self.values[last][at..at + outputs]);
            let of_sample = samples.weight(index);
            let label = samples.label(index);
            let weight = of_sample * weight;
            total += of_sample * loss::replace_by_gradient(network.loss, y, label, weight, smoothing);
        }
        total
    }
}
