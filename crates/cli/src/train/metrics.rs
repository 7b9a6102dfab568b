//! What a run says about itself epoch by epoch.
//!
//! # Guarantee
//! Everything in `metrics.jsonl` is a function of the noised updates and of the public test set, so it
//! may be published with the model; the time it took is there only where the size of every round is public. The training loss and the share of clipped training groups are
//! functions of private data that the guarantee does not cover; they are written to
//! `diagnostics.jsonl` only, and only when asked for.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use dpsgd_train::directory::METRICS;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::json;

use crate::Failure;

/// The file of [`Diagnostics`].
pub const DIAGNOSTICS: &str = "diagnostics.jsonl";
/// How a run with a seed is marked in every output.
pub const NOT_PRIVATE: &str = "reproducible, not private";

/// One line of `metrics.jsonl`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
// Without it, a damaged name of a value that may be missing would read as a missing value.
#[serde(deny_unknown_fields)]
pub struct Epoch {
    /// The rounds behind it, done or lost in a crash.
    pub round: u64,
    /// The same in epochs.
    pub epoch: f64,
    /// The updates that are in the model.
    pub updates: u64,
    /// The mean loss on the test set.
    #[serde(deserialize_with = "undefined")]
    pub test_loss: f64,
    /// The share of the test set that is predicted correctly; none where the loss is not about classes.
    pub test_accuracy: Option<f64>,
    /// The share of gradients of single test samples with a norm above C.
    pub test_clipping_fraction: f64,
    /// η of the last round.
    pub step: f64,
    /// C of the last round.
    pub clip: f64,
    /// The certified ε of those rounds, with everything else the run has released.
    #[serde(deserialize_with = "unbounded")]
    pub epsilon: f64,
    /// At this δ.
    pub delta: f64,
    /// Against this adversary.
    pub adversary: String,
    /// Seconds of training, evaluation and what a crash lost not counted; none where N is private, which they would tell.
    pub seconds: Option<f64>,
    /// Samples a second, by the public size of a round; none with the seconds.
    pub samples_per_s: Option<f64>,
    /// Whether the guarantee holds: false for a run with a seed.
    pub private: bool,
    /// [`NOT_PRIVATE`] for a run with a seed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// JSON has no NaN, so it is written as null: the loss of a run that came apart.
fn undefined<'de, D: Deserializer<'de>>(number: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(number)?.unwrap_or(f64::NAN))
}

/// Nor an infinity: the ε of a run that hides nothing.
fn unbounded<'de, D: Deserializer<'de>>(number: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(number)?.unwrap_or(f64::INFINITY))
}

/// One line of `diagnostics.jsonl`, after the first.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Diagnostics {
    /// The epochs done.
    pub epoch: f64,
    /// The mean loss of the training groups.
    pub train_loss: Option<f64>,
    /// The share of training groups that were clipped.
    pub train_clipping_fraction: Option<f64>,
    /// Training groups whose result was not finite and counted as zero.
    pub not_finite: u64,
}

fn failed(path: &Path) -> impl Fn(std::io::Error) -> Failure + '_ {
    move |error| Failure::Machine(format!("{}: {error}", path.display()))
}

fn append(path: &Path, line: &str) -> Result<(), Failure> {
    let mut file = OpenOptions::new().append(true).create(true).open(path).map_err(failed(path))?;
    // One call, so that a crash leaves at most one line short.
    file.write_all(format!("{line}\n").as_bytes()).map_err(failed(path))
}

/// Appends a line to the diagnostics of a run.
pub fn push_diagnostics(directory: &Path, line: &Diagnostics) -> Result<(), Failure> {
    let path = directory.join(DIAGNOSTICS);
    if !path.exists() {
        let warning = "NOT PRIVATE: functions of the private training data that the guarantee does not cover. \
             Do not publish this file.";
        append(&path, &json!({ "warning": warning, "private": false }).to_string())?;
    }
    append(&path, &json!(line).to_string())
}

/// A line that says where a run was taken up again; see [`dpsgd_train::directory::Metrics`].
#[derive(Deserialize)]
struct Resumed {
    checkpoint_round: u64,
}

/// The metrics of the model as it is: without a last line that a crash cut short, and without those of
/// updates that a crash lost.
pub fn read(directory: &Path) -> Result<Vec<Epoch>, Failure> {
    let path = directory.join(METRICS);
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(&path)(error)),
    };
    let mut epochs = Vec::new();
    for (i, line) in bytes.split_inclusive(|&byte| byte == b'\n').enumerate() {
        // Only a line without its end can be a crash's doing.
        let Some(line) = line.strip_suffix(b"\n") else { break };
        if let Ok(resumed) = serde_json::from_slice::<Resumed>(line) {
            epochs.retain(|epoch: &Epoch| epoch.round <= resumed.checkpoint_round);
            continue;
        }
        let refuse = |error| Failure::Input(format!("{}: line {}: {error}", path.display(), i + 1));
        epochs.push(serde_json::from_slice(line).map_err(refuse)?);
    }
    Ok(epochs)
}
