//! What a report needs to know about a run beside its settings, so that it needs no data.

use std::path::Path;

use dpsgd_privacy::mechanism::Sampling;
use dpsgd_train::ledger::{Digest, spent_mechanism};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::algorithm::described;
use super::inputs;
use super::mechanism::{Size, settled};
use super::metrics::NOT_PRIVATE;
use super::settings::{FeaturesName, InnerName, NormaliseName, OuterName, TrainSettings};
use crate::Failure;
use crate::account::Report;
use crate::settings::{Run, number};

/// The file of [`Facts`].
pub const FACTS: &str = "facts.json";
/// Its field with the digest of the others.
const SHA256: &str = "sha256";

/// Public facts about the data and the network of a run.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Facts {
    /// The name of the data.
    pub data: String,
    /// N, unless it is private.
    pub samples: Option<u64>,
    /// Test samples.
    pub test_samples: u64,
    /// Whether N is that of a published data set.
    pub public: bool,
    /// Columns whose meaning came from the private data.
    pub uncovered: Vec<String>,
    /// The name of the network.
    pub net: String,
    /// d.
    pub parameters: usize,
}

impl Facts {
    /// What is written into the directory of a run, with its own SHA-256: the ledger binds the configuration,
    /// and nothing else would notice a changed digit here.
    pub fn text(&self) -> String {
        let mut value = json!(self);
        value[SHA256] = json!(Digest::of(&[value.to_string().as_bytes()]).to_string());
        format!("{value:#}\n")
    }

    /// Reads them from the directory of a run.
    pub fn read(directory: &Path) -> Result<Self, Failure> {
        let path = directory.join(FACTS);
        let refuse = |why: String| Failure::Input(format!("{}: {why}", path.display()));
        let text = std::fs::read_to_string(&path).map_err(|error| refuse(error.to_string()))?;
        let mut value: Value = serde_json::from_str(&text).map_err(|error| refuse(error.to_string()))?;
        let written = value.as_object_mut().and_then(|facts| facts.shift_remove(SHA256));
        if written != Some(json!(Digest::of(&[value.to_string().as_bytes()]).to_string())) {
            return Err(refuse(
                "is damaged, its content does not fit its SHA-256; restore it from a copy".into(),
            ));
        }
        serde_json::from_value(value).map_err(|error| refuse(error.to_string()))
    }

    /// Why the guarantee does not hold for the run, if so.
    pub fn note(&self, settings: &TrainSettings) -> Option<String> {
        if settings.seed.is_some() {
            return Some(NOT_PRIVATE.to_string());
        }
        (!self.uncovered.is_empty()).then(|| {
            format!(
                "not covered by the guarantee: the categories or ranges of {} were taken from the private data",
                self.uncovered.join(", ")
            )
        })
    }

    /// The whole run for the accountant.
    pub fn run(&self, settings: &TrainSettings) -> Result<Run, Failure> {
        // Where N is private the mechanism does not depend on it.
        let size = Size { samples: self.samples.unwrap_or(1), public: self.public };
        let mut run = settled(settings, size, &inputs::releases(settings))?.run;
        run.sizes.0 = self.samples;
        Ok(run)
    }

    /// What a run guarantees of which `charged` rounds are charged.
    pub fn account(&self, settings: &TrainSettings, charged: u64) -> Result<Report, Failure> {
        let mut run = self.run(settings)?;
        // An accountant knows no run without rounds: before the first is charged, that one is taken.
        if let Some(spent) = spent_mechanism(&run.mechanism, charged.max(1))? {
            run.mechanism = spent;
        }
        run.config = run.mechanism.config();
        Report::of(run)
    }

    /// What was run, name and value.
    pub fn rows(&self, settings: &TrainSettings, report: &Report) -> Vec<(&'static str, String)> {
        let mut rows = Vec::new();
        let samples =
            self.samples.map_or("samples whose number is private".into(), |n| format!("{n} samples"));
        rows.push(("Data", format!("{}: {samples}, {} to test on", self.data, self.test_samples)));
        if let Some(FeaturesName::Scattering) = settings.features {
            let what = "scattering: fixed wavelets of each image, which cost no privacy";
            rows.push(("Features", what.to_string()));
        }
        rows.push((
            "Normalisation",
            match settings.normalise {
                Some(NormaliseName::Public) => "by published constants".to_string(),
                Some(NormaliseName::Private) => format!(
                    "by the noised mean and variance of the data, µ = {}, counted in the guarantee",
                    number(settings.normalise_mu.unwrap_or_default())
                ),
                _ => "none".to_string(),
            },
        ));
        rows.push(("Network", format!("{}, {} parameters", self.net, self.parameters)));
        let phase = &report.run.mechanism.phases()[0];
        rows.push((
            "Sampling",
            match phase.sampling() {
                Sampling::Subsample { groups, group_size, .. } => format!(
                    "subsample: every round draws {groups} groups of {group_size} from all samples"
                ),
                Sampling::Shuffle { groups, group_size, .. } => format!(
                    "shuffle: every epoch is a permutation, cut into rounds of {groups} groups of {group_size}"
                ),
                Sampling::Poisson { rate } => format!(
                    "poisson: every round keeps each sample with probability {}; divisor {}",
                    number(rate),
                    settings.groups.unwrap_or_default()
                ),
            } + if phase.filtered() { ", each kept with probability ½" } else { "" },
        ));
        let planned = match (settings.rounds, settings.epochs) {
            (Some(rounds), _) => format!("{rounds} rounds planned"),
            (None, epochs) => format!("{} epochs planned", epochs.unwrap_or_default()),
        };
        rows.push(("Length", format!("{planned}, {} rounds charged", phase.rounds())));
        rows.push((
            "Noise",
            format!(
                "σ = {} (standard deviation 2Cσ on every coordinate), noise multiplier 2σ = {}",
                number(phase.sigma()),
                number(phase.noise_multiplier())
            ),
        ));
        rows.push(("How the noise is drawn", settings.noise_kind().covers().to_string()));
        rows.push(("Clipping norm C", described(settings.clip, settings.clip_rule.as_ref())));
        rows.push(("Step η", described(settings.step, settings.step_rule.as_ref())));
        rows.push(("Inside a group", self.inner(settings)));
        rows.push((
            "Outer optimizer",
            match settings.outer {
                Some(OuterName::Momentum) => {
                    format!("momentum {}", number(settings.momentum.unwrap_or_default()))
                }
                Some(OuterName::Adam) => "Adam".to_string(),
                _ => "plain".to_string(),
            },
        ));
        if let Some(most) = settings.max_epsilon {
            rows.push(("Largest ε allowed", number(most)));
        }
        if let Some(seed) = settings.seed {
            rows.push(("Seed", format!("{seed}: {NOT_PRIVATE}")));
        }
        rows
    }

    fn inner(&self, settings: &TrainSettings) -> String {
        let names: Vec<&str> = settings.inner.iter().map(|name| inner_name(*name)).collect();
        let mut text = names.join(", then ");
        if let (Some(step), Some(result)) = (settings.inner_step, settings.inner_result) {
            let result = match result {
                super::settings::InnerResultName::Sum => "the sum of its gradients",
                super::settings::InnerResultName::Difference => "the model difference",
            };
            text.push_str(&format!(" with η = {}; it hands over {result}", number(step)));
        }
        text
    }
}

fn inner_name(name: InnerName) -> &'static str {
    match name {
        InnerName::Gradient => "the mean gradient",
        InnerName::Sgd => "SGD, sample by sample",
        InnerName::Momentum => "SGD with momentum",
        InnerName::Adam => "Adam",
        InnerName::Adagrad => "AdaGrad",
        InnerName::Rmsprop => "RMSProp",
    }
}
