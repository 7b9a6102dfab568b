//! What a network is made of, as a user writes it; the TOML form of a network.

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
    /// The layers in order; their places are their names in a saved model, as in `nn.Sequential`.
    #[serde(default, rename = "layer")]
    pub layers: Vec<LayerSpec>,
}

/// What is minimised.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loss {
    /// Cross entropy of the softmax of the outputs with the class.
    #[default]
    SoftmaxCrossEntropy,
    /// The mean over the outputs of the squared difference to the target.
    Squared,
    /// Cross entropy of the logistic function of one output with the class 0 or 1.
    Logistic,
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

/// A layer.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
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
    /// Each channel normalised over the samples of a group, without running averages.
    BatchNorm,
    /// All values of a sample normalised.
    LayerNorm,
    /// Each of some groups of channels of a sample normalised.
    GroupNorm {
        /// The number of groups of channels.
        groups: usize,
    },
    /// Each channel of a sample normalised, without weights, as in PyTorch.
    InstanceNorm,
    /// An image as a flat vector.
    Flatten,
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
        }
    }
}
