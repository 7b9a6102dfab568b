//! Per-group gradients on the CPU, fast: layers, networks and losses. There is no privacy in here.
//!
//! A [`NetworkSpec`](spec::NetworkSpec) becomes a checked [`Network`]; a [`Worker`] runs it on [`Samples`] for one
//! thread. Parameters are one flat vector in an order of our own ([`Network::parameters`] says where
//! everything is and how PyTorch arranges it). [`scattering`] makes features of images that nothing has to be learned for.

pub mod kernel;
mod layer;
mod network;
pub mod scattering;
pub mod spec;
mod state;
mod worker;
pub mod zoo;

pub use layer::loss::Target;
pub use network::{MOST_NUMBERS, Network, NetworkError, Parameter, Start};
pub use state::StateError;
pub use worker::{Evaluation, Samples, Worker};
