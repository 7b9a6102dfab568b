//! What a run says about itself, epoch by epoch.
//!
//! # Guarantee
//! Everything in `metrics.jsonl` is a function of the noised updates and of the public test set, so it may be
//! published with the model; times are there only where the size of every round is public. The training loss
//! and the share of clipped training groups are functions of private data that the guarantee does not cover;
//! they are written to `diagnostics.jsonl` only, and only when asked for.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use dpsgd_report::run::Measurement;
use dpsgd_train::directory::METRICS;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::Error;

/// The file of figures that no noise covers.
pub const DIAGNOSTICS: &str = "diagnostics.jsonl";

/// One line of `diagnostics.jsonl`, after the first.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct PrivateFigures {
    /// The epochs done.
    pub(crate) epoch: f64,
    /// The mean loss of the training groups.
    pub(crate) train_loss: Option<f64>,
    /// The share of training groups that were clipped.
    pub(crate) train_clipping_fraction: Option<f64>,
    /// Training groups whose result was not finite and counted as zero.
    pub(crate) not_finite: u64,
}

fn append(path: &Path, line: &str) -> Result<(), Error> {
    let mut file = OpenOptions::new().append(true).create(true).open(path).map_err(Error::io(path))?;
    // One call, so that a crash leaves at most one line short.
    file.write_all(format!("{line}\n").as_bytes()).map_err(Error::io(path))
}

/// Appends a line to the diagnostics of a run.
pub(crate) fn push_diagnostics(directory: &Path, line: &PrivateFigures) -> Result<(), Error> {
    let path = directory.join(DIAGNOSTICS);
    if !path.exists() {
        let warning = "NOT PRIVATE: functions of the private training data that the guarantee does not \
            cover. Do not publish this file.";
        append(&path, &json!({ "warning": warning, "private": false }).to_string())?;
    }
    append(&path, &json!(line).to_string())
}

/// A line that says where a run was resumed; see [`dpsgd_train::directory::Metrics`].
#[derive(Deserialize)]
struct Resumed {
    checkpoint_round: u64,
}

/// The metrics of the model as it is: without a last line that a crash cut short, and without those of
/// updates that a crash lost.
pub fn read(directory: &Path) -> Result<Vec<Measurement>, Error> {
    let path = directory.join(METRICS);
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::io(&path)(error)),
    };
    let mut measurements = Vec::new();
    for (i, line) in bytes.split_inclusive(|&byte| byte == b'\n').enumerate() {
        // Only a line without its end can be the work of a crash.
        let Some(line) = line.strip_suffix(b"\n") else { break };
        if let Ok(resumed) = serde_json::from_slice::<Resumed>(line) {
            measurements.retain(|before: &Measurement| before.round <= resumed.checkpoint_round);
            continue;
        }
        let refuse = |error| Error::file(&path, format!("line {}: {error}", i + 1));
        measurements.push(serde_json::from_slice(line).map_err(refuse)?);
    }
    Ok(measurements)
}
