//! Reads the layers of a network one by one and checks that each fits the shape it receives.

use super::{MOST_NUMBERS, NetworkError, Order, Parameter, Start, Tensor};
use crate::layer::conv::Conv;
use crate::layer::linear::Linear;
use crate::layer::normalise::{Extent, Normalise};
use crate::layer::pool::{Pool, PoolKind};
use crate::layer::{Activation, Step};
use crate::spec::{LayerSpec, Loss, Size};

/// The sizes of a convolution.
#[derive(Clone, Copy)]
pub(super) struct ConvSizes {
    pub(super) channels: usize,
    pub(super) kernel: [usize; 2],
    pub(super) padding: usize,
    pub(super) stride: usize,
}

/// Whether a layer may stand between a flatten layer and the linear layer that reads it: it treats every
/// value alike, so their order does not matter.
fn keeps_order(layer: &LayerSpec) -> bool {
    matches!(
        layer,
        LayerSpec::Flatten
            | LayerSpec::Relu
            | LayerSpec::Tanh
            | LayerSpec::Sigmoid
            | LayerSpec::LeakyRelu { .. }
            | LayerSpec::Elu { .. }
            | LayerSpec::Gelu
            | LayerSpec::Silu
            | LayerSpec::Dropout { .. }
    )
}

/// The network built so far.
pub(super) struct Builder {
    pub(super) tensors: Vec<Tensor>,
    pub(super) steps: Vec<Step>,
    pub(super) parameters: Vec<Parameter>,
    pub(super) dimension: usize,
    /// The size of the gradients that are materialised for each group.
    pub(super) dense: usize,
    /// The first linear layer.
    pub(super) flat_from: Option<usize>,
    /// The image that a flatten layer turned into a vector, until a linear layer reads it.
    pub(super) flattened: Option<Tensor>,
    /// The dropout layers so far.
    pub(super) dropouts: u64,
}

impl Builder {
    pub(super) fn new(input: [usize; 3]) -> Result<Self, NetworkError> {
        let [height, width, channels] = input;
        let numbers = height.saturating_mul(width).saturating_mul(channels);
        if numbers == 0 || numbers > MOST_NUMBERS {
            return Err(NetworkError::Whole(format!(
                "input = {input:?}: height, width and channels must be at least 1, and at most \
                 {MOST_NUMBERS} in all"
            )));
        }
        Ok(Self {
            tensors: vec![Tensor { height, width, channels, halo: 0 }],
            steps: Vec::new(),
            parameters: Vec::new(),
            dimension: 0,
            dense: 0,
            flat_from: None,
            flattened: None,
            dropouts: 0,
        })
    }

    pub(super) fn last(&self) -> usize {
        self.tensors.len() - 1
    }

    pub(super) fn shape(&self) -> Tensor {
        self.tensors[self.last()]
    }

    pub(super) fn push(&mut self, height: usize, width: usize, channels: usize) -> usize {
        self.tensors.push(Tensor { height, width, channels, halo: 0 });
        self.last()
    }

    pub(super) fn parameter(&mut self, name: String, shape: Vec<usize>, start: Start, order: Order) -> usize {
        let offset = self.dimension;
        self.dimension += shape.iter().product::<usize>();
        self.parameters.push(Parameter { name, offset, shape, start, order });
        offset
    }

    /// Adds a layer, or returns why it does not fit; its parameters' names begin with `name`.
    pub(super) fn layer(&mut self, name: &str, layer: &LayerSpec) -> Result<(), String> {
        match *layer {
            LayerSpec::Conv2d { channels, kernel, padding, stride, bias } => {
                let sizes = ConvSizes { channels, kernel: kernel.pair(), padding, stride };
                self.conv(name, self.last(), sizes, bias)?;
            }
            LayerSpec::Linear { features, bias } => self.linear(name, self.last(), features, bias)?,
            LayerSpec::AveragePool { kernel, stride } => self.pool(PoolKind::Mean, kernel, stride)?,
            LayerSpec::MaxPool { kernel, stride } => self.pool(PoolKind::Largest, kernel, stride)?,
            LayerSpec::GlobalAveragePool => {
                let Tensor { height, width, .. } = self.shape();
                self.pool(PoolKind::Mean, Size::Both([height, width]), None)?;
            }
            LayerSpec::Relu => self.activate(Activation::Relu),
            LayerSpec::Tanh => self.activate(Activation::Tanh),
            LayerSpec::Sigmoid => self.activate(Activation::Sigmoid),
            LayerSpec::LeakyRelu { slope } => {
                if !(0.0..=1.0).contains(&slope) {
                    return Err(format!("slope = {slope}: must be between 0 and 1"));
                }
                self.activate(Activation::LeakyRelu(slope));
            }
            LayerSpec::Elu { alpha } => {
                if !(1e-3..=1e3).contains(&alpha) {
                    return Err(format!("alpha = {alpha}: must be between 0.001 and 1000"));
                }
                self.activate(Activation::Elu(alpha));
            }
            LayerSpec::Gelu => self.activate(Activation::Gelu),
            LayerSpec::Silu => self.activate(Activation::Silu),
            LayerSpec::Dropout { rate } => self.dropout(rate)?,
            LayerSpec::Embedding { ref columns, features } => self.embedding(name, columns, features)?,
            LayerSpec::Attention { heads } => self.attention(name, heads)?,
            LayerSpec::Residual { projection, ref layers } => self.residual(name, layers, projection)?,
            LayerSpec::BatchNorm
            | LayerSpec::LayerNorm
            | LayerSpec::GroupNorm { .. }
            | LayerSpec::InstanceNorm => self.normalise(name, layer)?,
            LayerSpec::Flatten => {
                let shape = self.shape();
                if !shape.is_flat() {
                    self.flattened = Some(shape);
                }
            }
        }
        if self.shape().padded() > MOST_NUMBERS || self.dimension > MOST_NUMBERS {
            return Err(format!("more than {MOST_NUMBERS} numbers"));
        }
        if self.flattened.is_some() && !keeps_order(layer) {
            return Err("a flatten layer must be followed by a linear layer".into());
        }
        Ok(())
    }

    /// Height and width of a convolution's output, checked.
    pub(super) fn conv_output(&self, shape: Tensor, sizes: ConvSizes) -> Result<[usize; 2], String> {
        let ConvSizes { channels, kernel: [height, width], padding, stride } = sizes;
        if channels == 0 || height == 0 || width == 0 || stride == 0 {
            return Err("channels, kernel and stride must be at least 1".into());
        }
        if self.flat_from.is_some() {
            return Err("a convolution cannot follow a linear layer".into());
        }
        if padding >= height.max(width) {
            return Err(format!("padding = {padding}: must be smaller than the kernel"));
        }
        // A file may hold any number. Once the border is bounded, so are any kernel that fits into it and
        // its output, and no product below can wrap around to a small number.
        let bordered = |size: usize| padding.saturating_mul(2).saturating_add(size);
        let area = bordered(shape.height).saturating_mul(bordered(shape.width));
        if area.saturating_mul(shape.channels) > MOST_NUMBERS {
            return Err(format!("padding = {padding}: the padded image exceeds {MOST_NUMBERS} numbers"));
        }
        let out =
            |size: usize, kernel: usize| bordered(size).checked_sub(kernel).map(|rest| rest / stride + 1);
        let (Some(out_height), Some(out_width)) = (out(shape.height, height), out(shape.width, width)) else {
            return Err(format!(
                "the kernel of {height} × {width} is larger than the image of {} × {} with its padding",
                shape.height, shape.width
            ));
        };
        let fan_in = height * width * shape.channels;
        if channels.saturating_mul(fan_in) > MOST_NUMBERS
            || channels.saturating_mul(out_height * out_width) > MOST_NUMBERS
        {
            return Err(format!("channels = {channels}: more than {MOST_NUMBERS} numbers"));
        }
        Ok([out_height, out_width])
    }

    pub(super) fn conv(
        &mut self,
        name: &str,
        input: usize,
        sizes: ConvSizes,
        bias: bool,
    ) -> Result<(), String> {
        let shape = self.tensors[input];
        let ConvSizes { channels, kernel: [height, width], .. } = sizes;
        let size = self.conv_output(shape, sizes)?;
        let fan_in = height * width * shape.channels;
        let start = Start::Uniform(1.0 / (fan_in as f32).sqrt());
        let weights = self.parameter(
            format!("{name}.weight"),
            vec![channels, shape.channels, height, width],
            start,
            Order::Kernel,
        );
        let bias = bias.then(|| self.parameter(format!("{name}.bias"), vec![channels], start, Order::Plain));
        self.push_conv(input, size, sizes, weights, bias);
        Ok(())
    }

    /// The step of a convolution whose parameters are there and whose output is of `size`.
    pub(super) fn push_conv(
        &mut self,
        input: usize,
        size: [usize; 2],
        sizes: ConvSizes,
        weights: usize,
        bias: Option<usize>,
    ) {
        let ConvSizes { channels, kernel, padding, stride } = sizes;
        // The border of an input belongs to the one convolution that reads it.
        self.tensors[input].halo = padding;
        let output = self.push(size[0], size[1], channels);
        let dense = self.dense;
        let fan_in = kernel[0] * kernel[1] * self.tensors[input].channels;
        self.dense += channels * fan_in + if bias.is_some() { channels } else { 0 };
        let tables = Default::default();
        let conv = Conv { input, output, kernel, stride, weights, bias, dense, tables };
        self.steps.push(Step::Conv(Box::new(conv)));
    }

    pub(super) fn linear(
        &mut self,
        name: &str,
        input: usize,
        features: usize,
        bias: bool,
    ) -> Result<(), String> {
        let shape = self.tensors[input];
        if !shape.is_flat() && self.flattened.is_none() {
            return Err(format!(
                "the input is an image of {} × {}; put a flatten layer before it",
                shape.height, shape.width
            ));
        }
        if features == 0 || features.saturating_mul(shape.numbers()) > MOST_NUMBERS {
            return Err(format!(
                "features = {features}: must be at least 1, with at most {MOST_NUMBERS} weights"
            ));
        }
        let fan_in = shape.numbers();
        let start = Start::Uniform(1.0 / (fan_in as f32).sqrt());
        let from = self.flattened.take().unwrap_or(shape);
        let order = Order::Flattened { pixels: from.height * from.width, channels: from.channels };
        let weights = self.parameter(format!("{name}.weight"), vec![features, fan_in], start, order);
        let bias = bias.then(|| self.parameter(format!("{name}.bias"), vec![features], start, Order::Plain));
        self.flat_from.get_or_insert(self.steps.len());
        let output = self.push(1, 1, features);
        self.steps.push(Step::Linear(Linear::new([input, output], [fan_in, features], weights, bias)));
        Ok(())
    }

    fn pool(&mut self, kind: PoolKind, kernel: Size, stride: Option<usize>) -> Result<(), String> {
        let (input, shape) = (self.last(), self.shape());
        let kernel @ [height, width] = kernel.pair();
        let strides = stride.map_or(kernel, |stride| [stride, stride]);
        if height == 0 || width == 0 || strides[0] == 0 {
            return Err("kernel and stride must be at least 1".into());
        }
        if height > shape.height || width > shape.width {
            return Err(format!(
                "the window of {height} × {width} is larger than the image of {} × {}",
                shape.height, shape.width
            ));
        }
        let out_height = (shape.height - height) / strides[0] + 1;
        let out_width = (shape.width - width) / strides[1] + 1;
        let output = self.push(out_height, out_width, shape.channels);
        self.steps.push(Step::Pool(Pool { input, output, kind, kernel, strides }));
        Ok(())
    }

    fn activate(&mut self, kind: Activation) {
        let (input, shape) = (self.last(), self.shape());
        // In place, unless this step needs its input for backpropagation or the one before its output.
        let output = match self.steps.last() {
            None | Some(Step::Activate { .. }) => self.push(shape.height, shape.width, shape.channels),
            _ if kind.needs_input() => self.push(shape.height, shape.width, shape.channels),
            _ => input,
        };
        self.steps.push(Step::Activate { input, output, kind });
    }

    fn normalise(&mut self, name: &str, layer: &LayerSpec) -> Result<(), String> {
        let (input, shape) = (self.last(), self.shape());
        let flat = shape.is_flat();
        let (extent, weights, order) = match *layer {
            LayerSpec::BatchNorm => (Extent::Batch, vec![shape.channels], Order::Plain),
            LayerSpec::GroupNorm { groups } => {
                if groups == 0 || !shape.channels.is_multiple_of(groups) {
                    return Err(format!("groups = {groups}: must divide the {} channels", shape.channels));
                }
                (Extent::Groups(groups), vec![shape.channels], Order::Plain)
            }
            LayerSpec::InstanceNorm => (Extent::Groups(shape.channels), vec![], Order::Plain),
            _ if flat => (Extent::Groups(1), vec![shape.channels], Order::Plain),
            _ => (
                Extent::Groups(1),
                vec![shape.channels, shape.height, shape.width],
                Order::Image { pixels: shape.height * shape.width, channels: shape.channels },
            ),
        };
        if matches!(layer, LayerSpec::InstanceNorm) && flat {
            return Err("one value per channel: its normalised value would always be 0".into());
        }
        if self.flattened.is_some() {
            return Err("put it before the flatten layer, or after the linear layer".into());
        }
        let dense = self.dense;
        let parameters = (!weights.is_empty()).then(|| {
            let numbers: usize = weights.iter().product();
            self.dense += 2 * numbers;
            let start = Start::Constant(1.0);
            let weight = self.parameter(format!("{name}.weight"), weights.clone(), start, order);
            self.parameter(format!("{name}.bias"), weights, Start::Constant(0.0), order);
            (weight, numbers)
        });
        let output = self.push(shape.height, shape.width, shape.channels);
        self.steps.push(Step::Normalise(Normalise { input, output, extent, parameters, dense }));
        Ok(())
    }

    /// Checks the network as a whole, after its last layer.
    pub(super) fn check_end(&self, loss: Loss) -> Result<(), NetworkError> {
        let refuse = |why: String| Err(NetworkError::Whole(why));
        if self.parameters.is_empty() {
            return refuse("the network has no layer with parameters, so nothing to train".into());
        }
        let last = self.shape();
        if !last.is_flat() {
            return refuse(format!(
                "the last layer gives an image of {} × {}; end with flatten and linear layers",
                last.height, last.width
            ));
        }
        match loss {
            Loss::Logistic if last.channels != 1 => refuse(format!(
                "loss = \"logistic\" needs one output, but the last layer gives {}",
                last.channels
            )),
            Loss::Hinge if last.channels < 2 => {
                refuse("loss = \"hinge\" needs an output for each class, but the last layer gives one".into())
            }
            Loss::Huber { delta } if !(1e-6..=1e6).contains(&delta) => {
                refuse(format!("loss: delta = {delta}: must be between 0.000001 and 1000000"))
            }
            _ => Ok(()),
        }
    }
}
