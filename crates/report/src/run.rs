//! A training run: its measurements, its page and its summary.

mod compare;
mod figures;
mod iterates;
mod page;
mod private_test;
mod summary;
mod two_classes;
mod verdict;
mod words;

pub use compare::compared;
pub use iterates::{ChosenBy, Iterate, Iterates, Reached};
pub use page::{Baseline, Page, heading};
pub use private_test::PrivateMeasurement;
pub use summary::{NoiseNames, NormalisationConstants, Summary, found, measured};
pub use two_classes::{Confusion, Tenth, TwoClasses};
pub use verdict::verdict;

use serde::{Deserialize, Deserializer, Serialize};

/// The curves of a run over its epochs, as its report draws them. `from_zero` if nothing was spent before the
/// first round.
pub fn charts(
    metrics: &[Measurement],
    baseline: Option<Baseline>,
    from_zero: bool,
) -> Vec<crate::html::Figure> {
    figures::over_time(metrics, baseline, from_zero)
}

/// How every output marks a run with a seed.
pub const NOT_PRIVATE: &str = "reproducible, not private";

/// One line of `metrics.jsonl`: what a run says about itself after an epoch.
///
/// # Guarantee
/// Every field is a function of the noised updates, the public settings and the public test set, so it may be
/// published with the model. The caller must leave out the times where the size of a round is private.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
// Without it, a damaged name of a value that may be missing would read as a missing value.
#[serde(deny_unknown_fields)]
pub struct Measurement {
    /// The rounds so far, done or lost in a crash.
    pub round: u64,
    /// The same in epochs.
    pub epoch: f64,
    /// The updates that are in the model.
    pub updates: u64,
    /// The mean loss on the test set; NaN, written as null, for a run that diverged.
    #[serde(deserialize_with = "undefined")]
    pub test_loss: f64,
    /// The share of the test set predicted correctly; none where the loss is not about classes.
    pub test_accuracy: Option<f64>,
    /// The share of single test samples whose gradient has a norm above C; NaN, written as null, if unknown.
    #[serde(deserialize_with = "undefined")]
    pub test_clipping_fraction: f64,
    /// More about a test set with two classes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub two_classes: Option<TwoClasses>,
    /// Both iterates, where an average is kept; the figures above are those of the chosen one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iterates: Option<Iterates>,
    /// η of the last round.
    pub step: f64,
    /// C of the last round.
    pub clip: f64,
    /// The certified ε of those rounds, with everything else the run has released; infinity is written as
    /// null.
    #[serde(deserialize_with = "unbounded")]
    pub epsilon: f64,
    /// At this δ.
    pub delta: f64,
    /// Against this adversary: "A0" or "A1".
    pub adversary: String,
    /// Seconds of training without evaluation and without what a crash lost; none where N is private, because
    /// the time would reveal it.
    pub seconds: Option<f64>,
    /// Samples per second, from the public size of a round; none where `seconds` is none.
    pub samples_per_s: Option<f64>,
    /// Whether the guarantee holds: false for a run with a seed.
    pub private: bool,
    /// Why the guarantee does not hold: [`NOT_PRIVATE`] for a run with a seed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// JSON has no NaN: null is the loss of a run that diverged.
fn undefined<'de, D: Deserializer<'de>>(number: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(number)?.unwrap_or(f64::NAN))
}

/// JSON has no infinity: null is the ε of a run that hides nothing.
fn unbounded<'de, D: Deserializer<'de>>(number: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(number)?.unwrap_or(f64::INFINITY))
}

/// The shortest training time worth stating, and the shortest over which a speed means anything, in seconds.
const STATED_TIME: f64 = 1.0;
const STATED_SPEED: f64 = 10.0;

impl Measurement {
    /// A line with this loss and nothing else worth mentioning.
    #[cfg(test)]
    fn of_loss(test_loss: f64) -> Self {
        Self {
            round: 1,
            epoch: 1.0,
            updates: 1,
            test_loss,
            test_accuracy: None,
            test_clipping_fraction: 0.5,
            two_classes: None,
            iterates: None,
            step: 1.0,
            clip: 1.0,
            epsilon: 1.0,
            delta: 1e-5,
            adversary: "A0".into(),
            seconds: None,
            samples_per_s: None,
            private: true,
            note: None,
        }
    }

    /// The training time and the speed, as far as the run was long enough for them to mean anything.
    fn time(&self) -> Option<(f64, Option<f64>)> {
        let seconds = self.seconds.filter(|seconds| *seconds >= STATED_TIME)?;
        Some((seconds, self.samples_per_s.filter(|_| seconds >= STATED_SPEED)))
    }
}
