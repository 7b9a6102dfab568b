//! The layers that are made of several steps, or that ask more of their place in the network.

use super::builder::{Builder, ConvSizes};
use super::{MOST_NUMBERS, Order, Start, Tensor};
use crate::layer::Step;
use crate::layer::attend::Attend;
use crate::layer::dropout::Dropout;
use crate::layer::embed::Embed;
use crate::layer::residual::{Fork, Join};
use crate::spec::LayerSpec;

impl Builder {
    pub(super) fn residual(
        &mut self,
        name: &str,
        layers: &[LayerSpec],
        projection: bool,
    ) -> Result<(), String> {
        let (input, shape) = (self.last(), self.shape());
        if layers.is_empty() {
            return Err("it has no layers; list them under [[layer.layer]]".into());
        }
        if self.flattened.is_some() {
            return Err("a flatten layer must be followed by a linear layer".into());
        }
        let (begin, was_flat) = (self.steps.len(), self.flat_from.is_some());
        let output = self.push(shape.height, shape.width, shape.channels);
        self.steps.push(Step::Fork(Fork { input, output }));
        for (i, layer) in layers.iter().enumerate() {
            let inside = |why| format!("its layer {i} ({}): {why}", layer.name());
            self.layer(&format!("{name}.body.{i}"), layer).map_err(inside)?;
        }
        if self.flattened.is_some() {
            return Err("its layers must not end with a flatten layer".into());
        }
        let (body, to) = (self.last(), self.shape());
        let size = |tensor: Tensor| format!("{} × {} × {}", tensor.height, tensor.width, tensor.channels);
        let skip = if projection {
            self.project(&format!("{name}.skip"), input, to)?;
            self.last()
        } else if size(shape) == size(to) {
            input
        } else {
            return Err(format!(
                "its layers turn {} into {}, which cannot be added to their input; make the shapes equal or \
                 set projection = true",
                size(shape),
                size(to)
            ));
        };
        let output = self.push(to.height, to.width, to.channels);
        self.steps.push(Step::Join(Join { branches: [body, skip], output }));
        // A linear layer in the block runs on all samples at once, so the block's shortcut must as well.
        if let (false, Some(first)) = (was_flat, &mut self.flat_from) {
            *first = begin;
        }
        Ok(())
    }

    /// The shortcut of a residual block whose shapes differ: a 1 × 1 convolution, or a linear map of a
    /// vector.
    fn project(&mut self, name: &str, input: usize, to: Tensor) -> Result<(), String> {
        let from = self.tensors[input];
        if from.is_flat() && to.is_flat() {
            return self.linear(name, input, to.channels, false);
        }
        let out = |size: usize, stride: usize| (size - 1) / stride + 1;
        let fits =
            |stride: &usize| [out(from.height, *stride), out(from.width, *stride)] == [to.height, to.width];
        let Some(stride) = (1..=from.height.max(from.width)).find(fits) else {
            return Err(format!(
                "no 1 × 1 convolution turns {} × {} pixels into {} × {}",
                from.height, from.width, to.height, to.width
            ));
        };
        self.conv(name, input, ConvSizes { channels: to.channels, kernel: [1, 1], padding: 0, stride }, false)
    }

    pub(super) fn dropout(&mut self, rate: f32) -> Result<(), String> {
        if !(0.0..1.0).contains(&rate) {
            return Err(format!("rate = {rate}: must be at least 0 and below 1"));
        }
        let (input, shape) = (self.last(), self.shape());
        let output = self.push(shape.height, shape.width, shape.channels);
        self.steps.push(Step::Dropout(Dropout { input, output, number: self.dropouts, rate }));
        self.dropouts += 1;
        Ok(())
    }

    pub(super) fn embedding(&mut self, name: &str, columns: &[usize], features: usize) -> Result<(), String> {
        let (input, shape) = (self.last(), self.shape());
        if !self.steps.is_empty() || !shape.is_flat() {
            return Err("it must be the first layer, and the input a row: input = [1, 1, numbers]".into());
        }
        let total = columns.iter().fold(0_usize, |sum, width| sum.saturating_add(*width));
        if columns.contains(&0) {
            return Err(format!("columns = {columns:?}: every column has at least one number"));
        }
        if total != shape.channels {
            return Err(format!(
                "columns: {total} numbers in all, but the input has {}; give each number 1 and each category \
                 as many as it has values",
                shape.channels
            ));
        }
        let categories: Vec<usize> = columns.iter().copied().filter(|width| *width > 1).collect();
        if categories.is_empty() {
            return Err("columns: none is a category, so there is nothing to embed".into());
        }
        if features == 0 || features.saturating_mul(total) > MOST_NUMBERS {
            return Err(format!(
                "features = {features}: must be at least 1, with at most {MOST_NUMBERS} weights"
            ));
        }
        let weights = self.dimension;
        for (i, &width) in columns.iter().enumerate().filter(|(_, width)| **width > 1) {
            // Uniform with the variance of PyTorch's normal distribution.
            let start = Start::Uniform(3.0_f32.sqrt());
            self.parameter(format!("{name}.tables.{i}.weight"), vec![width, features], start, Order::Plain);
        }
        let numbers = columns.len() - categories.len();
        let output = self.push(1, 1, numbers + categories.len() * features);
        let (columns, dense) = (columns.to_vec(), self.dense);
        self.dense += self.dimension - weights;
        self.steps.push(Step::Embed(Embed { input, output, columns, features, weights, dense }));
        Ok(())
    }

    /// Names, shapes and starts are those of `nn.MultiheadAttention`.
    pub(super) fn attention(&mut self, name: &str, heads: usize) -> Result<(), String> {
        let (input, shape) = (self.last(), self.shape());
        let (channels, tokens) = (shape.channels, shape.height * shape.width);
        if heads == 0 || !channels.is_multiple_of(heads) {
            return Err(format!("heads = {heads}: must divide the {channels} channels"));
        }
        if tokens < 2 || self.flattened.is_some() {
            return Err("it attends between the pixels of an image or of a sequence; put it before the \
                        flatten layer"
                .into());
        }
        if heads.saturating_mul(tokens).saturating_mul(tokens) > MOST_NUMBERS {
            return Err(format!("{heads} heads between {tokens} pixels: more than {MOST_NUMBERS} numbers"));
        }
        let size = [shape.height, shape.width];
        let order = Order::Flattened { pixels: 1, channels };
        let sizes = |channels| ConvSizes { channels, kernel: [1, 1], padding: 0, stride: 1 };
        self.conv_output(shape, sizes(3 * channels))?;
        let start = Start::Uniform((6.0 / (4 * channels) as f32).sqrt());
        let weights =
            self.parameter(format!("{name}.in_proj_weight"), vec![3 * channels, channels], start, order);
        let zero = Start::Constant(0.0);
        let bias = self.parameter(format!("{name}.in_proj_bias"), vec![3 * channels], zero, Order::Plain);
        self.push_conv(input, size, sizes(3 * channels), weights, Some(bias));
        let input = self.last();
        let output = self.push(shape.height, shape.width, channels);
        self.steps.push(Step::Attend(Attend { input, output, tokens, channels, heads }));
        let start = Start::Uniform(1.0 / (channels as f32).sqrt());
        let weights =
            self.parameter(format!("{name}.out_proj.weight"), vec![channels, channels], start, order);
        let bias = self.parameter(format!("{name}.out_proj.bias"), vec![channels], zero, Order::Plain);
        self.push_conv(output, size, sizes(channels), weights, Some(bias));
        Ok(())
    }
}
