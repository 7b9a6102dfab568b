//! The end of a run as one JSON object and as a statement for people.

use std::borrow::Cow;
use std::fmt::Write;

use dpsgd_privacy::Account;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{Baseline, Measurement, PrivateMeasurement, verdict};
use crate::text::{duration, thousands, wrapped};
use crate::{Sizes, json, statement};

/// How the noise was drawn.
#[derive(Clone, Copy, Debug)]
pub struct NoiseNames<'a> {
    /// "exact".
    pub kind: &'a str,
    /// What that means for the guarantee, in a sentence.
    pub covers: &'a str,
}

/// The constants of (x − mean)/std, published ones or those that a private normalisation released.
#[derive(Clone, Debug, Serialize)]
pub struct NormalisationConstants<'a> {
    /// For each numeric channel.
    pub mean: Cow<'a, [f32]>,
    /// For each numeric channel.
    pub std: Cow<'a, [f32]>,
}

/// What is known at the end of a run.
#[derive(Clone, Debug)]
pub struct Summary<'a> {
    /// The name of the data.
    pub data: &'a str,
    /// The name of the network.
    pub net: &'a str,
    /// d.
    pub parameters: usize,
    /// The directory of the run, as the user would write it.
    pub directory: String,
    /// The last line of the metrics.
    pub last: &'a Measurement,
    /// What a model that ignores its inputs reaches on the test set.
    pub baseline: Option<Baseline>,
    /// Why nothing was measured, where there is no public test set.
    pub unmeasured: Option<&'a str>,
    /// What was measured on a private test set.
    pub private_test: Option<PrivateMeasurement>,
    /// What all charged rounds guarantee.
    pub account: &'a Account,
    /// N and m, as far as they are public.
    pub sizes: Sizes,
    /// How the noise was drawn.
    pub noise: NoiseNames<'a>,
    /// How often the run was resumed.
    pub resumes: u64,
    /// Why it ended early.
    pub stopped: Option<String>,
    /// Columns whose meaning came from the private data.
    pub uncovered: &'a [String],
    /// The transform that replaced the pixels, "scattering", which users of the model need.
    pub features: Option<&'a str>,
    /// The constants of the normalisation, which users of the model need.
    pub normalisation: Option<NormalisationConstants<'a>>,
    /// How it was trained, by the names of the settings: clip, step, inner, outer, seed and the like.
    pub algorithm: Value,
}

impl Summary<'_> {
    /// The content of `summary.json`.
    pub fn json(&self) -> Value {
        let alphas = crate::reported_alphas(self.account);
        let mut account = json::account(self.account, self.sizes, &alphas);
        let last = self.last;
        let mut value = Map::new();
        value.insert("test_accuracy".into(), json!(last.test_accuracy));
        value.insert("test_loss".into(), json!(last.test_loss));
        value.insert("test_clipping_fraction".into(), json!(last.test_clipping_fraction));
        measured(&mut value, last, self.baseline);
        value.insert("iterates".into(), json!(last.iterates));
        value.insert("private_test".into(), json!(self.private_test));
        value.insert("train_seconds".into(), json!(last.seconds));
        value.insert("samples_per_s".into(), json!(last.samples_per_s));
        value.insert("guarantees".into(), account["guarantees"].take());
        value.insert("refused".into(), account["refused"].take());
        value.insert("private".into(), json!(last.private));
        value.insert("note".into(), json!(last.note));
        value.insert("uncovered".into(), json!(self.uncovered));
        let budget = json!({ "epsilon": last.epsilon, "delta": last.delta, "adversary": last.adversary });
        value.insert("budget".into(), budget);
        value.insert("rounds_charged".into(), json!(last.round));
        value.insert("updates".into(), json!(last.updates));
        value.insert("epochs".into(), json!(last.epoch));
        value.insert("resumes".into(), json!(self.resumes));
        value.insert("stopped".into(), json!(self.stopped));
        value.insert("data".into(), json!(self.data));
        value.insert("net".into(), json!(self.net));
        value.insert("parameters".into(), json!(self.parameters));
        value.insert("mechanism".into(), account["mechanism"].take());
        value.insert("algorithm".into(), self.algorithm.clone());
        value.insert("noise".into(), json!({ "kind": self.noise.kind, "covers": self.noise.covers }));
        value.insert("features".into(), json!(self.features));
        value.insert("normalisation".into(), json!(self.normalisation));
        value.insert("directory".into(), json!(self.directory));
        value.insert("version".into(), json!(env!("CARGO_PKG_VERSION")));
        Value::Object(value)
    }

    /// The guarantee and what the run achieved.
    pub fn statement(&self) -> String {
        let last = self.last;
        let mut text = String::new();
        if let Some(note) = &last.note {
            let said = format!("THIS RUN IS {note}. What follows would hold without that.");
            text.push_str(&wrapped(&said, 0));
            text.push('\n');
        }
        text.push_str(&statement::trained(self.account, self.sizes));
        text.push_str("\nTHE NOISE\n");
        text.push_str(&wrapped(self.noise.covers, 2));
        text.push_str("\nWHAT IT LEARNED\n");
        let features = self.features.map(|name| format!("the {name} transform of ")).unwrap_or_default();
        let parameters = thousands(self.parameters as u64);
        let (net, data) = (self.net, self.data);
        let found = match (&self.private_test, self.unmeasured) {
            (Some(private), _) => private.found(),
            (None, Some(why)) => why.to_string(),
            (None, None) => found(last, self.baseline),
        };
        text.push_str(&wrapped(&format!("{net} on {features}{data} ({parameters} parameters): {found}"), 2));
        if let Some(iterates) = &last.iterates {
            text.push_str(&wrapped(&format!("{} ({})", iterates.said(), iterates.other_file()), 2));
        }
        if let Some(warning) = verdict(last, self.baseline) {
            text.push_str(&wrapped(&format!("WARNING: {warning}"), 2));
        }
        let time = last.time().map(|(seconds, speed)| {
            let speed = speed.map(|speed| format!(", {} samples/s", thousands(speed as u64)));
            format!(" in {}{}", duration(seconds), speed.unwrap_or_default())
        });
        let _ = writeln!(text, "  {} rounds{}", last.updates, time.unwrap_or_default());
        if let Some(stopped) = &self.stopped {
            text.push_str(&wrapped(stopped, 2));
        }
        let _ = writeln!(text, "  in {}: model.safetensors, report.html, summary.json", self.directory);
        text
    }
}

/// What was measured on a test set beside accuracy and loss, and whether it beats a constant.
pub fn measured(value: &mut Map<String, Value>, last: &Measurement, baseline: Option<Baseline>) {
    let baseline_of = |part: fn(Baseline) -> Option<f64>| json!(baseline.and_then(part));
    value.insert("majority_rate".into(), baseline_of(|known| known.accuracy));
    value.insert("constant_loss".into(), baseline_of(|known| known.loss));
    let two = last.two_classes;
    value.insert("test_auc".into(), json!(two.map(|seen| seen.auc)));
    value.insert("test_average_precision".into(), json!(two.map(|seen| seen.average_precision)));
    value.insert("test_confusion".into(), json!(two.map(|seen| seen.confusion)));
    value.insert("test_calibration".into(), json!(two.map(|seen| seen.calibration)));
    value.insert("warning".into(), json!(verdict(last, baseline)));
}

/// What was measured on a test set, in a sentence: each figure beside that of a constant.
pub fn found(last: &Measurement, baseline: Option<Baseline>) -> String {
    let beside = |value: Option<f64>, shown: fn(f64) -> String| {
        value.map(|value| format!(" ({})", shown(value))).unwrap_or_default()
    };
    let mut said = Vec::new();
    if let Some(accuracy) = last.test_accuracy {
        let most = beside(baseline.and_then(|known| known.accuracy), |share| {
            format!("the most common class alone: {:.2} %", 100.0 * share)
        });
        said.push(format!("test accuracy {:.2} %{most}", 100.0 * accuracy));
    }
    let constant =
        beside(baseline.and_then(|known| known.loss), |loss| format!("the best constant: {loss:.4}"));
    said.push(format!("test loss {:.4}{constant}", last.test_loss));
    if let Some(seen) = last.two_classes {
        said.push(format!("AUC {:.4}, average precision {:.4}", seen.auc, seen.average_precision));
        let table = seen.confusion;
        said.push(format!(
            "positives found: {} of {}, false alarms: {} of {} negatives",
            table.true_positives,
            table.true_positives + table.false_negatives,
            table.false_positives,
            table.false_positives + table.true_negatives
        ));
    }
    said.join(", ")
}
