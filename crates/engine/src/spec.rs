//! Networks as users write them, in Rust or TOML.

use serde::{Deserialize, Serialize};

/// A sequential network: `input = [height, width, channels]`, a list of `[[layer]]` and a loss.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct NetworkSpec {
    /// Height, width and channels of a sample; a row of k features is `[1, 1, k]`.
    pub input: [usize; 3],
    /// What is minimised.
    #[serde(default)]
    pub loss: Loss,
    /// The layers in order; their indices are their names in a saved model, as in `nn.Sequential`.
    #[serde(default, rename = "layer")]
    pub layers: Vec<LayerSpec>,
}

/// What is minimised.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Loss {
    /// Cross entropy of the softmax of the outputs with the class.
    #[default]
    SoftmaxCrossEntropy,
    /// The mean over the outputs of the squared difference from the target.
    Squared,
    /// Cross entropy of the logistic function of one output with the class 0 or 1.
    Logistic,
    /// The mean over the outputs of the absolute difference from the target.
    Absolute,
    /// Half the square of differences up to `delta`, linear beyond: `nn.HuberLoss`. In a file
    /// `loss = { huber = { delta = 1.0 } }`; `delta` is in the unit of the target, so it has no default.
    Huber {
        /// Where the square ends.
        delta: f32,
    },
    /// Multi-class hinge loss with margin 1: the mean over the classes of max(0, 1 − y_right + y_other), as
    /// `nn.MultiMarginLoss`.
    Hinge,
}

impl Loss {
    /// Whether the outputs are values to predict rather than scores of classes.
    pub fn is_regression(self) -> bool {
        matches!(self, Loss::Squared | Loss::Absolute | Loss::Huber { .. })
    }
}

/// One number for both directions, or height and width.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Size {
    /// The same in both directions.
    Square(usize),
    /// Height and width.
    Both([usize; 2]),
}

impl Size {
    /// Height and width.
    pub fn pair(self) -> [usize; 2] {
        match self {
            Size::Square(size) => [size, size],
            Size::Both(pair) => pair,
        }
    }
}

fn one() -> usize {
    1
}

fn yes() -> bool {
    true
}

fn small_slope() -> f32 {
    0.01
}

fn unit() -> f32 {
    1.0
}

/// A layer.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", tag = "kind")]
pub enum LayerSpec {
    /// A convolution.
    Conv2d {
        /// Output channels.
        channels: usize,
        /// Height and width of the kernel.
        kernel: Size,
        /// Zeros around the image.
        #[serde(default)]
        padding: usize,
        /// The step of the kernel.
        #[serde(default = "one")]
        stride: usize,
        /// Whether a bias is added.
        #[serde(default = "yes")]
        bias: bool,
    },
    /// A linear map of a flat input.
    Linear {
        /// Outputs.
        features: usize,
        /// Whether a bias is added.
        #[serde(default = "yes")]
        bias: bool,
    },
    /// The mean of each window.
    AveragePool {
        /// Height and width of the window.
        kernel: Size,
        /// The step of the window; its size if not given.
        stride: Option<usize>,
    },
    /// The largest value of each window.
    MaxPool {
        /// Height and width of the window.
        kernel: Size,
        /// The step of the window; its size if not given.
        stride: Option<usize>,
    },
    /// The mean of each channel.
    GlobalAveragePool,
    /// max(x, 0).
    Relu,
    /// tanh x.
    Tanh,
    /// 1/(1 + e⁻ˣ).
    Sigmoid,
    /// x where it is positive, `slope`·x elsewhere.
    LeakyRelu {
        /// The slope for negative x; PyTorch's 0.01 if not given.
        #[serde(default = "small_slope")]
        slope: f32,
    },
    /// x where it is positive, `alpha`·(eˣ − 1) elsewhere.
    Elu {
        /// The value that −y approaches for negative x; PyTorch's 1 if not given.
        #[serde(default = "unit")]
        alpha: f32,
    },
    /// x·Φ(x) in the usual approximation by tanh: `nn.GELU(approximate="tanh")`.
    Gelu,
    /// x/(1 + e⁻ˣ).
    Silu,
    /// Each channel normalised over the samples of a group, without running averages.
    BatchNorm,
    /// All values of a sample normalised.
    LayerNorm,
    /// The channels of a sample normalised in groups.
    GroupNorm {
        /// The number of groups of channels.
        groups: usize,
    },
    /// Each channel of a sample normalised, without weights, as in PyTorch.
    InstanceNorm,
    /// An image as a flat vector.
    Flatten,
    /// Its layers' output plus their input.
    Residual {
        /// Whether the input is first mapped to the shape of the output: by a 1 × 1 convolution without bias
        /// with the smallest stride that fits, or by a linear map if it is a vector.
        #[serde(default)]
        projection: bool,
        /// The layers in order.
        #[serde(default, rename = "layer")]
        layers: Vec<LayerSpec>,
    },
    /// Sets a share of the values to zero and scales up the others, in training only.
    Dropout {
        /// The share: at least 0, below 1.
        rate: f32,
    },
    /// The categories of a row as learned vectors. The first layer only.
    Embedding {
        /// How many numbers each column has in the input: 1 for a number, which passes unchanged; n for a
        /// category, one of n.
        columns: Vec<usize>,
        /// The length of a category's vector.
        features: usize,
    },
    /// Self-attention between the pixels of an image or the tokens of a sequence (an image of height 1), as
    /// `nn.MultiheadAttention`.
    Attention {
        /// The number of heads; it divides the channels.
        #[serde(default = "one")]
        heads: usize,
    },
}

impl LayerSpec {
    /// The name in a file and in messages.
    pub fn name(&self) -> &'static str {
        match self {
            LayerSpec::Conv2d { .. } => "conv2d",
            LayerSpec::Linear { .. } => "linear",
            LayerSpec::AveragePool { .. } => "average-pool",
            LayerSpec::MaxPool { .. } => "max-pool",
            LayerSpec::GlobalAveragePool => "global-average-pool",
            LayerSpec::Relu => "relu",
            LayerSpec::Tanh => "tanh",
            LayerSpec::Sigmoid => "sigmoid",
            LayerSpec::BatchNorm => "batch-norm",
            LayerSpec::LayerNorm => "layer-norm",
            LayerSpec::GroupNorm { .. } => "group-norm",
            LayerSpec::InstanceNorm => "instance-norm",
            LayerSpec::Flatten => "flatten",
            LayerSpec::LeakyRelu { .. } => "leaky-relu",
            LayerSpec::Elu { .. } => "elu",
            LayerSpec::Gelu => "gelu",
            LayerSpec::Silu => "silu",
            LayerSpec::Residual { .. } => "residual",
            LayerSpec::Dropout { .. } => "dropout",
            LayerSpec::Embedding { .. } => "embedding",
            LayerSpec::Attention { .. } => "attention",
        }
    }

    /// Whether it is of the kind, or holds a layer that is.
    pub(crate) fn any(&self, kind: &dyn Fn(&LayerSpec) -> bool) -> bool {
        match self {
            LayerSpec::Residual { layers, .. } => layers.iter().any(|layer| layer.any(kind)),
            layer => kind(layer),
        }
    }
}
