//! Fast per-group gradients on the CPU: layers, networks and losses. This crate knows nothing about privacy.
//!
//! A [`NetworkSpec`](spec::NetworkSpec) becomes a checked [`Network`]; a [`GradientWorker`] runs it on
//! [`Samples`] for one thread. Parameters are one flat vector in the engine's own order;
//! [`Network::parameters`] says where each one is and how PyTorch arranges it. [`scattering`] and
//! [`random_filters`] compute image features without learning.
//!
//! ```
//! use dpsgd_engine::{Network, spec::LayerSpec, zoo};
//!
//! let network = Network::new(&zoo::lenet5([28, 28, 1], 10, LayerSpec::Tanh))?;
//! assert_eq!(network.dimension(), 61_706);
//! assert_eq!(network.parameters()[0].name, "0.weight");
//! # Ok::<(), dpsgd_engine::NetworkError>(())
//! ```
//!
//! | module or type | purpose |
//! |---|---|
//! | [`spec`] | networks as users write them, in Rust or TOML |
//! | [`zoo`] | LeNet-5, the paper's CNN, perceptrons, logistic regression |
//! | [`Network`] | a checked network: shapes, parameters, safetensors in PyTorch's layout |
//! | [`GradientWorker`] | clipped sums of gradients, losses, class scores |
//! | [`scattering`] | fixed wavelet features |
//! | [`random_filters`] | features from a fixed dictionary of patches |
//! | [`views`] | flipped and shifted views of an image |
//!
//! The loops are in `dpsgd-kernels`, whose documentation says what they were measured against.

mod layer;
mod network;
pub mod random_filters;
pub mod scattering;
pub mod spec;
mod state;
pub mod views;
mod worker;
pub mod zoo;

pub use dpsgd_kernels::Level;
pub use layer::loss::Label;
pub use network::{MOST_NUMBERS, Network, NetworkError, Parameter, Start};
pub use state::StateError;
pub use worker::{GradientWorker, Measured, Parts, Samples};
