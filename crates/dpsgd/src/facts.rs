//! What a run directory says about its data and its network, so that a report needs neither.

use std::path::Path;

use dpsgd_privacy::mechanism::{Mechanism, Phase, Sampling};
use dpsgd_report::run::{Baseline, NOT_PRIVATE};
use serde::{Deserialize, Serialize};

use crate::settings::{Population, Preparation, RawSettings, Settings, SettingsError, number};
use crate::{Error, sealed};

/// The file of [`Facts`].
pub const FACTS: &str = "facts.json";

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
    /// The share of the most common class in the public test set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub majority_share: Option<f64>,
    /// The loss of the best constant prediction on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constant_loss: Option<f64>,
    /// What an inner algorithm of the program's own says about itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inner: Option<String>,
    /// The ε that the run must not exceed, which has been applied to its length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_epsilon: Option<f64>,
    /// The rounds that were asked for, where the budget ended the run before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planned_rounds: Option<u64>,
    /// That the run is a try of a private selection, and what covers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selection: Option<String>,
    /// The random name under which the shared ledger knows the run; nothing for a run that is not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// The day on which the run began, in UTC, as in 2026-11-18; nothing for a try of a private selection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun: Option<String>,
}

impl Facts {
    /// What a model that ignores its inputs reaches on the public test set.
    pub fn baseline(&self) -> Option<Baseline> {
        let known = self.majority_share.is_some() || self.constant_loss.is_some();
        known.then_some(Baseline { accuracy: self.majority_share, loss: self.constant_loss })
    }

    /// Why nothing was measured in public, if so.
    pub fn unmeasured(&self, settings: &Settings) -> Option<&'static str> {
        match (&settings.data.private_test, self.test_samples) {
            (Some(_), _) => Some("measured on a private test set, once, at the end, in one copy of the run."),
            (None, 0) => Some("there is no test set, so nothing was measured."),
            (None, _) => None,
        }
    }

    /// What is written into the directory of a run, with its own SHA-256: the ledger binds the configuration,
    /// and nothing else would notice a changed digit here.
    pub fn text(&self) -> String {
        sealed::text(self)
    }

    /// Reads them from the directory of a run.
    pub fn read(directory: &Path) -> Result<Self, Error> {
        sealed::read(&directory.join(FACTS))
    }

    /// The settings of the run, resolved without its data.
    pub fn resolve(&self, raw: &RawSettings) -> Result<Settings, SettingsError> {
        // Where N is private, the mechanism does not depend on it.
        let samples = Some(self.samples.unwrap_or(1));
        let mut settings =
            raw.resolve_for(Population { samples, public: self.public, measured: self.samples.is_some() })?;
        settings.samples = self.samples;
        self.remember(&mut settings);
        Ok(settings)
    }

    /// Puts what the budget did to the run back into its settings.
    pub(crate) fn remember(&self, settings: &mut Settings) {
        settings.max_epsilon = settings.max_epsilon.or(self.max_epsilon);
        settings.planned = settings.planned.max(self.planned_rounds.unwrap_or(0));
    }

    /// Fills in what the budget did to the run.
    pub(crate) fn note_budget(&mut self, settings: &Settings) {
        self.max_epsilon = settings.max_epsilon;
        self.planned_rounds = (settings.planned > settings.mechanism.rounds()).then_some(settings.planned);
    }

    /// Why the guarantee does not hold for the run, if so.
    pub fn note(&self, settings: &Settings) -> Option<String> {
        if settings.seed.is_some() {
            return Some(NOT_PRIVATE.to_string());
        }
        if let Some(selection) = &self.selection {
            return Some(selection.clone());
        }
        (!self.uncovered.is_empty()).then(|| {
            format!(
                "not covered by the guarantee: the categories or ranges of {} were taken from the private data",
                self.uncovered.join(", ")
            )
        })
    }

    /// What was run, name and value, for people; `spent` is the part of the mechanism that was charged.
    pub fn rows(&self, settings: &Settings, spent: &Mechanism) -> Vec<(&'static str, String)> {
        let mut rows = Vec::new();
        let samples =
            self.samples.map_or("samples whose number is private".into(), |n| format!("{n} samples"));
        let test = match (&settings.data.private_test, self.test_samples) {
            (Some(_), test) => format!("{test} private ones to test on"),
            (None, 0) => "none to test on".to_string(),
            (None, test) => format!("{test} to test on"),
        };
        rows.push(("Data", format!("{}: {samples}, {test}", self.data)));
        if !settings.data.class_weights.is_empty() {
            let weights: Vec<_> = settings.data.class_weights.iter().map(ToString::to_string).collect();
            let said = format!("{}, public constants by which the losses are multiplied", weights.join(", "));
            rows.push(("Class weights", said));
        }
        if let Some(features) = settings.data.features {
            let what = format!("{}: fixed functions of each image, which cost no privacy", features.name());
            rows.push(("Features", what));
        }
        rows.push((
            "Normalisation",
            match settings.data.preparation {
                Preparation::Public => "with published constants".to_string(),
                Preparation::Private { mu } => format!(
                    "with the noised mean and variance of the data, µ = {}, counted in the guarantee",
                    number(mu)
                ),
                Preparation::Nothing => "none".to_string(),
            },
        ));
        rows.push(("Network", format!("{}, {} parameters", self.net, self.parameters)));
        for (i, phase) in spent.phases().iter().enumerate() {
            rows.push(("Sampling", sampling(phase, settings.divisor(i))));
            let planned = settings.planned_length(i);
            rows.push(("Length", format!("{planned}, {} rounds charged", phase.rounds())));
            rows.push((
                "Noise",
                format!(
                    "σ = {} (standard deviation 2Cσ on every coordinate), noise multiplier 2σ = {}",
                    number(phase.sigma()),
                    number(phase.noise_multiplier())
                ),
            ));
        }
        rows.extend(settings.algorithm.rows(self.inner.as_deref()));
        if let Some(most) = settings.max_epsilon {
            let rounds = settings.mechanism.rounds();
            let ended = format!("; it ends the run after {rounds} of {} planned rounds", settings.planned);
            let ended = if rounds < settings.planned { ended } else { String::new() };
            rows.push(("Largest ε allowed", format!("{}{ended}", number(most))));
        }
        if let Some(seed) = settings.seed {
            rows.push(("Seed", format!("{seed}: {NOT_PRIVATE}")));
        }
        rows
    }
}

fn sampling(phase: &Phase, divisor: Option<u64>) -> String {
    let said = match phase.sampling() {
        Sampling::Subsample { groups, group_size, .. } => {
            format!("subsample: every round draws {groups} groups of {group_size} from all samples")
        }
        Sampling::Shuffle { groups, group_size, .. } => {
            format!(
                "shuffle: every epoch is a permutation, cut into rounds of {groups} groups of {group_size}"
            )
        }
        Sampling::Poisson { rate } => format!(
            "poisson: every round keeps each sample with probability {}; divisor {}",
            number(rate),
            divisor.unwrap_or_default()
        ),
        Sampling::Allocate { rounds } => format!(
            "allocate: in every epoch each sample draws one of {rounds} rounds; divisor {}",
            divisor.unwrap_or_default()
        ),
        Sampling::AllocateCells { rounds, groups, group_size } => format!(
            "allocate: in every epoch each sample draws one of {rounds} rounds of {groups} groups, about \
             {group_size} samples each"
        ),
    };
    said + if phase.filtered() { ", each kept with probability ½" } else { "" }
}
