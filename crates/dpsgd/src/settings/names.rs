//! The words of the settings that choose between alternatives.

use serde::{Deserialize, Serialize};

/// How samples are brought to mean 0 and variance 1.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Normalise {
    /// With published constants; nothing is learned from the private data
    Public,
    /// With the noised mean and variance of the private data, counted in the guarantee
    Private,
    /// Not at all
    None,
}

/// The algorithm A inside a group.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum InnerName {
    /// The mean gradient of the group
    Gradient,
    /// Classical SGD, one sample after the other
    Sgd,
    /// SGD with momentum
    Momentum,
    /// Adam
    Adam,
    /// AdaGrad
    Adagrad,
    /// RMSProp
    Rmsprop,
    /// An algorithm of the program's own, given to [`Settings::with_inner`](crate::Settings::with_inner)
    #[cfg_attr(feature = "clap", value(skip))]
    Own,
}

/// The result a group hands over.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ResultName {
    /// The sum of the gradients used
    Sum,
    /// The model difference (w − w_end)/η
    Difference,
}

/// How the noise is drawn.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum NoiseName {
    /// The rounded Gaussian, drawn without error: the guarantee holds for the numbers that leave
    Exact,
    /// Single precision, a little faster: the guarantee is that of the real Gaussian it approximates
    Fast,
}

impl From<NoiseName> for dpsgd_train::NoiseKind {
    fn from(name: NoiseName) -> Self {
        match name {
            NoiseName::Exact => Self::Exact,
            NoiseName::Fast => Self::Fast,
        }
    }
}

/// The optimizer that receives the noised updates.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum OuterName {
    /// w ← w − η·Ū/m
    Plain,
    /// With momentum
    Momentum,
    /// Adam
    Adam,
}

/// Which iterate becomes the model, where an average is kept.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Choose {
    /// The average, whatever is measured
    #[default]
    Average,
    /// The last iterate, whatever is measured
    Last,
    /// The one that does better on the public test set; what it reaches there then reads too high
    Better,
}
