//! The end of a run: one JSON object, and a statement for people.

use std::fmt::Write;

use dpsgd_train::NoiseKind;
use serde_json::{Map, Value, json};

use super::inputs::Constants;
use super::metrics::Epoch;
use super::progress::{duration, thousands};
use super::settings::FeaturesName;
use crate::account::Report;
use crate::{json, statement};

/// What is known at the end of a run.
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
    pub last: &'a Epoch,
    /// What all rounds that were charged guarantee.
    pub account: &'a Report,
    /// How the noise was drawn.
    pub noise: NoiseKind,
    /// How often the run was continued.
    pub resumes: u64,
    /// Why it ended early.
    pub stopped: Option<String>,
    /// Columns whose meaning came from the private data.
    pub uncovered: &'a [String],
    /// What took the place of the pixels, which whoever uses the model needs.
    pub features: Option<FeaturesName>,
    /// The constants of a private normalisation, which whoever uses the model needs.
    pub constants: Option<&'a Constants>,
}

impl Summary<'_> {
    /// `summary.json`, and `--json`.
    pub fn json(&self) -> Value {
        let mut account = json::account(self.account);
        let last = self.last;
        let mut value = Map::new();
        value.insert("test_accuracy".into(), json!(last.test_accuracy));
        value.insert("test_loss".into(), json!(last.test_loss));
        value.insert("test_clipping_fraction".into(), json!(last.test_clipping_fraction));
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
        value.insert("noise".into(), json!({ "kind": self.noise.name(), "covers": self.noise.covers() }));
        value.insert("features".into(), json!(self.features));
        value.insert("normalisation".into(), json!(self.constants));
        value.insert("directory".into(), json!(self.directory));
        value.insert("version".into(), json!(env!("CARGO_PKG_VERSION")));
        Value::Object(value)
    }

    /// The statement of the guarantee, with what was reached.
    pub fn statement(&self) -> String {
        let last = self.last;
        let mut text = String::new();
        if let Some(note) = &last.note {
            let said = format!("THIS RUN IS {note}. What follows holds for the same run without that.");
            text.push_str(&statement::wrapped(&said, 0));
            text.push('\n');
        }
        text.push_str(&statement::trained(self.account));
        text.push_str("\nTHE NOISE\n");
        text.push_str(&statement::wrapped(self.noise.covers(), 2));
        text.push_str("\nWHAT IT LEARNED\n");
        let accuracy = match last.test_accuracy {
            Some(accuracy) => format!("test accuracy {:.2} %, ", 100.0 * accuracy),
            None => String::new(),
        };
        let _ = writeln!(
            text,
            "  {} on {}{} ({} parameters): {accuracy}test loss {:.4}",
            self.net,
            match self.features {
                Some(FeaturesName::Scattering) => "the scattering transform of ",
                None => "",
            },
            self.data,
            thousands(self.parameters as u64),
            last.test_loss
        );
        let time = last.seconds.zip(last.samples_per_s).map(|(seconds, speed)| {
            format!(" in {}, {} samples/s", duration(seconds), thousands(speed as u64))
        });
        let _ = writeln!(text, "  {} rounds{}", last.updates, time.unwrap_or_default());
        if let Some(stopped) = &self.stopped {
            text.push_str(&statement::wrapped(stopped, 2));
        }
        let _ = writeln!(text, "  in {}: model.safetensors, report.html, summary.json", self.directory);
        text
    }
}
