//! A checked network: shapes, the offsets of its parameters, and the steps that run it.

mod blocks;
mod builder;
mod parameter;

use crate::layer::{Step, loss};
use crate::spec::{LayerSpec, Loss, NetworkSpec};
use builder::Builder;
pub(crate) use parameter::Order;
pub use parameter::{Parameter, Start};

/// Why a network was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NetworkError {
    /// A layer does not fit.
    #[error("layer {index} ({layer}): {why}")]
    Layer {
        /// Its index, from 0.
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

/// The most numbers in one sample of one layer, and the most parameters. Larger offsets would not fit their
/// tables.
pub const MOST_NUMBERS: usize = 1 << 28;

/// The shape of the values between two layers, for one sample: rows of pixels of channels, with a border of
/// zeros that the next convolution reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tensor {
    pub height: usize,
    pub width: usize,
    pub channels: usize,
    pub halo: usize,
}

impl Tensor {
    /// The distance between rows.
    pub fn pitch(&self) -> usize {
        (self.width + 2 * self.halo) * self.channels
    }

    /// All numbers, including the border.
    pub fn padded(&self) -> usize {
        (self.height + 2 * self.halo) * self.pitch()
    }

    /// All numbers without the border.
    pub fn numbers(&self) -> usize {
        self.height * self.width * self.channels
    }

    /// Whether it is a vector: an image of one pixel.
    pub fn is_flat(&self) -> bool {
        self.height == 1 && self.width == 1
    }

    /// The first number of row `y` inside the border.
    pub fn row(&self, y: usize) -> usize {
        (y + self.halo) * self.pitch() + self.halo * self.channels
    }

    /// The numbers of a row inside the border.
    pub fn row_numbers(&self) -> usize {
        self.width * self.channels
    }

    /// The index of one pixel's first channel.
    pub fn pixel(&self, y: usize, x: usize) -> usize {
        self.row(y) + x * self.channels
    }
}

/// A network that can run.
#[derive(Clone, Debug)]
pub struct Network {
    pub(crate) tensors: Vec<Tensor>,
    pub(crate) steps: Vec<Step>,
    /// The first step that runs on all samples of a chunk at once: the first linear layer, or the residual
    /// block that holds it.
    pub(crate) flat_from: usize,
    /// The first step with parameters: backpropagation ends there.
    pub(crate) trained_from: usize,
    /// The size of the gradients that are materialised for each group.
    pub(crate) dense: usize,
    pub(crate) loss: Loss,
    parameters: Vec<Parameter>,
    dimension: usize,
    spec: NetworkSpec,
    batch_norm: bool,
    dropout: bool,
}

impl Network {
    /// Checks every layer against the shape it receives.
    ///
    /// ```
    /// use dpsgd_engine::{Network, spec::LayerSpec, zoo};
    /// let network = Network::new(&zoo::lenet5([28, 28, 1], 10, LayerSpec::Tanh))?;
    /// assert_eq!(network.dimension(), 61_706);
    /// # Ok::<(), dpsgd_engine::NetworkError>(())
    /// ```
    pub fn new(spec: &NetworkSpec) -> Result<Network, NetworkError> {
        let mut builder = Builder::new(spec.input)?;
        for (index, layer) in spec.layers.iter().enumerate() {
            let refused = |why| NetworkError::Layer { index, layer: layer.name(), why };
            builder.layer(&index.to_string(), layer).map_err(refused)?;
        }
        builder.check_end(spec.loss)?;
        let Builder { tensors, mut steps, parameters, dimension, dense, flat_from, .. } = builder;
        for step in &mut steps {
            if let Step::Conv(conv) = step {
                conv.fill_tables(&tensors);
            }
        }
        let trained = |step: &Step| match step {
            Step::Conv(_) | Step::Linear(_) | Step::Embed(_) => true,
            Step::Normalise(normalise) => normalise.parameters.is_some(),
            _ => false,
        };
        let has = |kind: &dyn Fn(&LayerSpec) -> bool| spec.layers.iter().any(|layer| layer.any(kind));
        let batch_norm = has(&|layer| *layer == LayerSpec::BatchNorm);
        let dropout = has(&|layer| matches!(layer, LayerSpec::Dropout { .. }));
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
            dropout,
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

    /// The description it was built from.
    pub fn spec(&self) -> &NetworkSpec {
        &self.spec
    }

    /// The number of outputs.
    pub fn outputs(&self) -> usize {
        self.tensors[self.tensors.len() - 1].channels
    }

    /// The class that one sample's [outputs](Self::outputs) point to; `None` for the losses of a
    /// regression, which has no classes.
    ///
    /// # Panics
    /// If `outputs` is empty and the loss is logistic.
    pub fn predicted_class(&self, outputs: &[f32]) -> Option<u32> {
        loss::predicted(self.loss, outputs).map(|class| class as u32)
    }

    /// Turns one sample's [outputs](Self::outputs) into probabilities, in place: softmax of all, or for a
    /// logistic loss the probability of class 1. (A hinge loss does not calibrate them: they only order the
    /// classes.) The outputs of a regression are already values and stay unchanged.
    ///
    /// # Panics
    /// If `outputs` is empty and the loss is logistic.
    pub fn probabilities(&self, outputs: &mut [f32]) {
        loss::replace_by_probabilities(self.loss, outputs);
    }

    /// Whether the samples of a group affect each other: then a group's gradient is not the mean of
    /// its samples' gradients, and a group of one sample has nothing to normalise over.
    pub fn has_batch_norm(&self) -> bool {
        self.batch_norm
    }

    /// The stride of the 1 × 1 convolution on the shortcut of the residual layer whose parameters' names
    /// begin with `name`; `None` if there is none.
    pub fn skip_stride(&self, name: &str) -> Option<usize> {
        let weight = format!("{name}.skip.weight");
        let offset = self.parameters.iter().find(|parameter| parameter.name == weight)?.offset;
        self.steps.iter().find_map(|step| match step {
            Step::Conv(conv) if conv.weights == offset => Some(conv.stride),
            _ => None,
        })
    }

    /// Whether gradients depend on [seeds](crate::GradientWorker::seed).
    pub fn has_dropout(&self) -> bool {
        self.dropout
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
