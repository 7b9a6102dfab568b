//! One module for each command: its flags, and what it prints.

pub mod account;
pub mod audit;
pub mod bench;
pub mod calibrate;
pub mod curve;
pub mod data;
pub mod federate;
#[cfg(feature = "nats")]
pub mod federation;
#[cfg(feature = "nats")]
pub mod join;
pub mod ledger;
pub mod manual;
pub mod reproduce;
#[cfg(feature = "nats")]
pub mod serve;
pub mod sweep;
pub mod train;
pub mod ui;

/// A number of seconds on the command line.
#[cfg(feature = "nats")]
fn seconds(text: &str) -> Result<std::time::Duration, String> {
    let given = text.parse().ok().filter(|seconds: &f64| *seconds > 0.0);
    let found = given.and_then(|seconds| std::time::Duration::try_from_secs_f64(seconds).ok());
    found.ok_or_else(|| "a number of seconds above 0".into())
}
