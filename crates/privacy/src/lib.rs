//! What a run leaks.
pub mod adversary;
pub mod curve;
pub mod error;
pub mod exposure;
pub mod gaussian;
pub mod interval;
mod loss;
pub mod mechanism;
pub mod mixture;
pub mod normal;
pub use error::PrivacyError;
pub use interval::Interval;
