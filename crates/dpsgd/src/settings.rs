//! One configuration, raw then resolved.
//!
//! Flags, TOML files and programs fill in [`RawSettings`], in which every value may be missing.
//! [`RawSettings::resolve`] decides everything once and gives [`Settings`], which account, calibrate, train,
//! audit, evaluate, reproduce and every other front end read. [`Settings::to_raw`] writes the decisions down;
//! resolving them again gives the same run.

mod algorithm;
mod augment;
mod command;
pub mod defaults;
mod error;
pub mod file;
#[cfg(feature = "clap")]
mod flags;
mod names;
mod raw;
mod resolve;
mod resolved;
mod rule;
mod sampler;
mod suggest;
mod written;

pub use algorithm::{Algorithm, InnerChoice};
pub use dpsgd_data::features::Features;
pub use dpsgd_report::text::number;
pub use error::SettingsError;
pub(crate) use error::refuse;
pub use names::{Choose, InnerName, NoiseName, Normalise, OuterName, ResultName};
pub use raw::{RawRelease, RawSettings};
pub use resolved::{DataSettings, NetSettings, Population, Preparation, Settings, Source};
pub use suggest::suggestion;
