//! A checked network: shapes, the places of its parameters, and the steps that run it.

use crate::layer::conv::Conv;
use crate::layer::linear::Linear;
use crate::layer::normalise::{Extent, Normalise};
use crate::layer::pool::{Pool, PoolKind};
use crate::layer::{Activation, Step};
use crate::spec::{LayerSpec, Loss, NetworkSpec};

/// Why a network was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NetworkError {
    /// A layer does not fit.
    #[error("layer {index} ({layer}): {why}")]
    Layer {
        /// Its place, from 0.
        index: usize,
        /// Its kind.
        layer: &'static str,
        /// What was given and what is allowed.
        why: String,
    },
    /// The network as a whole does not fit.
    #[error("{0}")]
    Whole(String),
}

/// The most numbers in one sample of one layer, and the most parameters: beyond it, offsets would not
/// fit their tables, and no machine would run it.
pub const MOST_NUMBERS: usize = 1 << 28;

/// The values between two layers, for one sample: rows of pixels of channels, with a border of zeros
/// that the next convolution reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tensor {
    pub height: usize,
    pub width: usize,
    pub channels: usize,
    pub halo: usize,
}

impl Tensor {
    /// From a row to the next.
    pub fn pitch(&self) -> usize {
        (self.width + 2 * self.halo) * self.channels
    }

    /// All numbers, with the border.
    pub fn padded(&self) -> usize {
        (self.height + 2 * self.halo) * self.pitch()
    }

    /// All numbers without the border.
    pub fn numbers(&self) -> usize {
        self.height * self.width * self.channels
    }

    /// The first number of row `y` inside the border.
    pub fn row(&self, y: usize) -> usize {
        (y + self.halo) * self.pitch() + self.halo * self.channels
    }

    /// The numbers of a row inside the border.
    pub fn row_numbers(&self) -> usize {
        self.width * self.channels
    }

    /// The number of one pixel's first channel.
    pub fn pixel(&self, y: usize, x: usize) -> usize {
        self.row(y) + x * self.channels
    }
}

/// Where a layer's parameters are, and how PyTorch calls and arranges them.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// The name in a state dictionary.
    pub name: String,
    /// The first of them in the flat vector.
    pub offset: usize,
    /// PyTorch's shape.
    pub shape: Vec<usize>,
    /// 1/√(fan-in), the range of PyTorch's initial values; `None` for a weight that begins at 1 and
    /// 0 for a bias that begins at 0.
    pub start: Start,
    /// How the flat vector arranges them.
    pub(crate) order: Order,
}

/// How a parameter begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Start {
    /// Uniform between ± this.
    Uniform(f32),
    /// Constant.
    Constant(f32),
}

/// From PyTorch's order to ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The same.
    Plain,
    /// \[out\]\[in\]\[y\]\[x\] there, \[y\]\[x\]\[in\]\[out\] here.
    Kernel,
    /// \[out\]\[channel, pixel\] there, \[pixel, channel\]\[out\] here, after a tensor of so many pixels
    /// and channels was flattened.
    Flattened { pixels: usize, channels: usize },
    /// \[channel, pixel\] there, \[pixel, channel\] here.
    Image { pixels: usize, channels: usize },
}

impl Parameter {
    /// How many numbers.
    pub fn numbers(&self) -> usize {
        self.shape.iter().product()
    }

    /// The place in the flat vector of PyTorch's number `i`.
    pub fn place(&self, i: usize) -> usize {
        let within = match self.order {
            Order::Plain => i,
            Order::Kernel => {
                let [out, input, height, width] = [0, 1, 2, 3].map(|axis| self.shape[axis]);
                let (x, i) = (i % width, i / width);
                let (y, i) = (i % height, i / height);
                let (c, o) = (i % input, i / input);
                ((y * width + x) * input + c) * out + o
            }
            Order::Flattened { pixels, channels } => {
                let (p, i) = (i % pixels, i / pixels);
                let (c, o) = (i % channels, i / channels);
                (p * channels + c) * self.shape[0] + o
            }
            Order::Image { pixels, channels } => (i % pixels) * channels + i / pixels,
        };
        self.offset + within
    }
}

/// A network that can run.
#[derive(Clone, Debug)]
pub struct Network {
    pub(crate) tensors: Vec<Tensor>,
    pub(crate) steps: Vec<Step>,
    /// The first step that takes all samples of a chunk at once: the first linear layer.
    pub(crate) flat_from: usize,
    /// The first step with parameters: gradients end there.
    pub(crate) trained_from: usize,
    /// The numbers of the layers whose gradient is materialised for each group.
    pub(crate) dense: usize,
    pub(crate) loss: Loss,
    parameters: Vec<Parameter>,
    dimension: usize,
    spec: NetworkSpec,
    batch_norm: bool,
}

/// What grows while the layers are read.
struct Builder {
    tensors: Vec<Tensor>,
    steps: Vec<Step>,
    parameters: Vec<Parameter>,
    dimension: usize,
    dense: usize,
    flat_from: Option<usize>,
    flattened: Option<Tensor>,
}

impl Builder {
    fn last(&self) -> usize {
        self.tensors.len() - 1
    }

    fn shape(&self) -> Tensor {
        self.tensors[self.last()]
    }

    fn push(&mut self, height: usize, width: usize, channels: usize) -> usize {
        self.tensors.push(Tensor { height, width, channels, halo: 0 });
        self.last()
    }

    fn parameter(&mut self, name: String, shape: Vec<usize>, start: Start, order: Order) -> usize {
        let offset = self.dimension;
        self.dimension += shape.iter().product::<usize>();
        self.parameters.push(Parameter { name, offset, shape, start, order });
        offset
    }

    fn layer(&mut self, index: usize, layer: &LayerSpec) -> Result<(), String> {
        let input = self.last();
        let shape = self.shape();
        let flat = shape.height == 1 && shape.width == 1;
        match *layer {
            LayerSpec::Conv2d { channels, kernel, padding, stride, bias } => {
                let [height, width] = kernel.pair();
                if channels == 0 || height == 0 || width == 0 || stride == 0 {
                    return Err("channels, kernel and stride must be at least 1".into());
                }
                if self.flat_from.is_some() {
                    return Err("a convolution cannot follow a linear layer".into());
                }
                if padding >= height.max(width) {
                    return Err(format!("padding = {padding}: must be smaller than the kernel"));
                }
                // A file may hold any number. With the border bounded, a kernel that fits into it and what comes
                // out of it are bounded too, and no product below can wrap around and pass for a small one.
                let bordered = |size: usize| padding.saturating_mul(2).saturating_add(size);
                let area = bordered(shape.height).saturating_mul(bordered(shape.width));
                if area.saturating_mul(shape.channels) > MOST_NUMBERS {
                    return Err(format!("padding = {padding}: more than {MOST_NUMBERS} numbers with it"));
                }
                let out = |size: usize, kernel: usize| {
                    bordered(size).checked_sub(kernel).map(|rest| rest / stride + 1)
                };
                let (Some(out_height), Some(out_width)) =
                    (out(shape.height, height), out(shape.width, width))
                else {
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
                let start = Start::Uniform(1.0 / (fan_in as f32).sqrt());
                let weights = self.parameter(
                    format!("{index}.weight"),
                    vec![channels, shape.channels, height, width],
                    start,
                    Order::Kernel,
                );
                let bias = bias
                    .then(|| self.parameter(format!("{index}.bias"), vec![channels], start, Order::Plain));
                // The border of an input belongs to the one convolution that reads it.
                self.tensors[input].halo = padding;
                let output = self.push(out_height, out_width, channels);
                let dense = self.dense;
                self.dense += channels * fan_in + if bias.is_some() { channels } else { 0 };
                self.steps.push(Step::Conv(Box::new(Conv {
                    input,
                    output,
                    kernel: [height, width],
                    stride,
                    weights,
                    bias,
                    dense,
                    tables: Default::default(),
                })));
            }
            LayerSpec::Linear { features, bias } => {
                if !flat && self.flattened.is_none() {
                    return Err(format!(
                        "the input is an image of {} × {}; put a flatten layer before it",
                        shape.height, shape.width
                    ));
                }
                if features == 0 || features.saturating_mul(shape.numbers()) > MOST_NUMBERS {
                    return Err(format!(
                        "features = {features}: at least 1, and at most {MOST_NUMBERS} weights"
                    ));
                }
                let fan_in = shape.numbers();
                let start = Start::Uniform(1.0 / (fan_in as f32).sqrt());
                let from = self.flattened.take().unwrap_or(shape);
                let order = Order::Flattened { pixels: from.height * from.width, channels: from.channels };
                let weights = self.parameter(format!("{index}.weight"), vec![features, fan_in], start, order);
                let bias = bias
                    .then(|| self.parameter(format!("{index}.bias"), vec![features], start, Order::Plain));
                self.flat_from.get_or_insert(self.steps.len());
                let output = self.push(1, 1, features);
                self.steps.push(Step::Linear(Linear::new(
                    [input, output],
                    [fan_in, features],
                    weights,
                    bias,
                )));
            }
            LayerSpec::AveragePool { kernel, stride } | LayerSpec::MaxPool { kernel, stride } => {
                let [height, width] = kernel.pair();
                let strides = stride.map_or([height, width], |stride| [stride, stride]);
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
                let kind = match layer {
                    LayerSpec::MaxPool { .. } => PoolKind::Largest,
                    _ => PoolKind::Mean,
                };
                let output = self.push(out_height, out_width, shape.channels);
                self.steps.push(Step::Pool(Pool { input, output, kind, kernel: [height, width], strides }));
            }
            LayerSpec::GlobalAveragePool => {
                let output = self.push(1, 1, shape.channels);
                let kernel = [shape.height, shape.width];
                self.steps.push(Step::Pool(Pool {
                    input,
                    output,
                    kind: PoolKind::Mean,
                    kernel,
                    strides: kernel,
                }));
            }
            LayerSpec::Relu | LayerSpec::Tanh | LayerSpec::Sigmoid => {
                let kind = match layer {
                    LayerSpec::Relu => Activation::Relu,
                    LayerSpec::Tanh => Activation::Tanh,
                    _ => Activation::Sigmoid,
                };
                // In place, unless the step before needs its own output to go back.
                let output = match self.steps.last() {
                    None | Some(Step::Activate { .. }) => {
                        self.push(shape.height, shape.width, shape.channels)
                    }
                    _ => input,
                };
                self.steps.push(Step::Activate { input, output, kind });
            }
            LayerSpec::BatchNorm
            | LayerSpec::LayerNorm
            | LayerSpec::GroupNorm { .. }
            | LayerSpec::InstanceNorm => {
                let (extent, weights, order) = match *layer {
                    LayerSpec::BatchNorm => (Extent::Batch, vec![shape.channels], Order::Plain),
                    LayerSpec::GroupNorm { groups } => {
                        if groups == 0 || !shape.channels.is_multiple_of(groups) {
                            return Err(format!(
                                "groups = {groups}: must divide the {} channels",
                                shape.channels
                            ));
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
                    return Err("one value a channel: its normalised value would always be 0".into());
                }
                if self.flattened.is_some() {
                    return Err("put it before the flatten layer, or after the linear layer".into());
                }
                let dense = self.dense;
                let parameters = (!weights.is_empty()).then(|| {
                    let numbers: usize = weights.iter().product();
                    self.dense += 2 * numbers;
                    let start = Start::Constant(1.0);
                    let weight = self.parameter(format!("{index}.weight"), weights.clone(), start, order);
                    self.parameter(format!("{index}.bias"), weights, Start::Constant(0.0), order);
                    (weight, numbers)
                });
                let output = self.push(shape.height, shape.width, shape.channels);
                self.steps.push(Step::Normalise(Normalise { input, output, extent, parameters, dense }));
            }
            LayerSpec::Flatten => {
                if !flat {
                    self.flattened = Some(shape);
                }
            }
        }
        if self.shape().padded() > MOST_NUMBERS || self.dimension > MOST_NUMBERS {
            return Err(format!("more than {MOST_NUMBERS} numbers"));
        }
        if self.flattened.is_some()
            && !matches!(layer, LayerSpec::Flatten | LayerSpec::Relu | LayerSpec::Tanh | LayerSpec::Sigmoid)
        {
            return Err("after a flatten layer comes a linear layer".into());
        }
        Ok(())
    }
}

impl Network {
    /// Checks every layer against the shape before it.
    ///
    /// ```
    /// use dpsgd_engine::{Network, spec::LayerSpec, zoo};
    /// let network = Network::new(&zoo::lenet5([28, 28, 1], 10, LayerSpec::Tanh))?;
    /// assert_eq!(network.dimension(), 61_706);
    /// # Ok::<(), dpsgd_engine::NetworkError>(())
    /// ```
    pub fn new(spec: &NetworkSpec) -> Result<Network, NetworkError> {
        let [height, width, channels] = spec.input;
        let numbers = height.saturating_mul(width).saturating_mul(channels);
        if numbers == 0 || numbers > MOST_NUMBERS {
            return Err(NetworkError::Whole(format!(
                "input = {:?}: height, width and channels must be at least 1, and at most {MOST_NUMBERS} in all",
                spec.input
            )));
        }
        let mut builder = Builder {
            tensors: vec![Tensor { height, width, channels, halo: 0 }],
            steps: Vec::new(),
            parameters: Vec::new(),
            dimension: 0,
            dense: 0,
            flat_from: None,
            flattened: None,
        };
        for (index, layer) in spec.layers.iter().enumerate() {
            builder.layer(index, layer).map_err(|why| NetworkError::Layer {
                index,
                layer: layer.name(),
                why,
            })?;
        }
        if builder.parameters.is_empty() {
            return Err(NetworkError::Whole(
                "the network has no layer with parameters, so nothing to train".into(),
            ));
        }
        let last = builder.shape();
        if last.height * last.width != 1 {
            return Err(NetworkError::Whole(format!(
                "the last layer gives an image of {} × {}; end with flatten and linear layers",
                last.height, last.width
            )));
        }
        if spec.loss == Loss::Logistic && last.channels != 1 {
            return Err(NetworkError::Whole(format!(
                "loss = \"logistic\" needs one output, the last layer gives {}",
                last.channels
            )));
        }
        let Builder { tensors, mut steps, parameters, dimension, dense, flat_from, .. } = builder;
        for step in &mut steps {
            if let Step::Conv(conv) = step {
                conv.fill_tables(&tensors);
            }
        }
        let trained = |step: &Step| match step {
            Step::Conv(_) | Step::Linear(_) => true,
            Step::Normalise(normalise) => normalise.parameters.is_some(),
            _ => false,
        };
        let batch_norm = spec.layers.contains(&LayerSpec::BatchNorm);
        Ok(Network {
            flat_from: if batch_norm { 0 } else { flat_from.unwrap_or(steps.len()) },
            trained_from: steps.iter().position(trained).unwrap_or(0),
            tensors,
            steps,
            dense,
            loss: spec.loss,
            parameters,
            dimension,
            spec: spec.clone(),
            batch_norm,
        })
    }

    /// d, the number of parameters.
    pub fn dimension(&self) -> usize {
        self.dimension
    }

    /// The parameters in order, with the names PyTorch gives them in `nn.Sequential`.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// As it was written.
    pub fn spec(&self) -> &NetworkSpec {
        &self.spec
    }

    /// The number of outputs.
    pub fn outputs(&self) -> usize {
        self.tensors[self.tensors.len() - 1].channels
    }

    /// Whether samples of a group see each other: then a group's gradient is not the mean of its
    /// samples' gradients, and a group of one sample has nothing to normalise over.
    pub fn has_batch_norm(&self) -> bool {
        self.batch_norm
    }

    /// Initial parameters as PyTorch draws them; `uniform` gives numbers in [0, 1).
    pub fn initial(&self, mut uniform: impl FnMut() -> f32) -> Vec<f32> {
        let mut w = vec![0.0; self.dimension];
        for parameter in &self.parameters {
            for w in &mut w[parameter.offset..][..parameter.numbers()] {
                *w = match parameter.start {
                    Start::Uniform(range) => range * (2.0 * uniform() - 1.0),
                    Start::Constant(value) => value,
                };
            }
        }
        w
    }
}
