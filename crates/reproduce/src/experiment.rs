//! One training run of the reproduction: everything its result depends on, except for its number of epochs.

use dpsgd::RawSettings;
use dpsgd::settings::OuterName;
use dpsgd_data::Known;
use dpsgd_privacy::mechanism::SamplingKind;
use serde::{Deserialize, Serialize};

/// A training run that can be continued by further epochs.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Experiment {
    /// The settings as `dpsgd train` takes them, without a length.
    pub settings: RawSettings,
    /// What is added to the clipped sum.
    pub noise: AddedNoise,
    /// The samples it learns from and is measured on.
    pub part: Portion,
}

/// What is added to the clipped sum.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AddedNoise {
    /// N(0, (2Cσ)²) by the production trainer.
    Printed,
    /// The same times a factor: not what is accounted for, and only for comparison.
    Times(f64),
    /// None, and no clipping either: mini-batch SGD.
    None,
}

/// The samples an experiment learns from and is measured on.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Portion {
    /// All training samples; measured on the test set.
    All,
    /// The first training samples, this many; measured on the test set.
    First(u64),
    /// The first training samples; measured on the last of them, for tuning.
    HeldOut {
        /// How many it learns from.
        first: u64,
        /// How many it is measured on.
        last: u64,
    },
}

impl Experiment {
    /// The data set.
    pub fn data(&self) -> Known {
        match self.settings.data.as_deref() {
            Some("cifar10") => Known::Cifar10,
            _ => Known::Mnist,
        }
    }

    /// N.
    pub fn samples(&self) -> u64 {
        self.part.samples(self.data())
    }
}

impl Portion {
    /// How many samples it learns from.
    pub fn samples(self, data: Known) -> u64 {
        let all = size(data);
        match self {
            Portion::All => all,
            Portion::First(first) | Portion::HeldOut { first, .. } => first.min(all),
        }
    }
}

/// The training samples of a data set.
pub fn size(data: Known) -> u64 {
    if data == Known::Cifar10 { 50_000 } else { 60_000 }
}

/// How samples form groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Clipping {
    /// IC: s = 1.
    Individual,
    /// BC: m = 1.
    Batch,
    /// MC: s = 64.
    Mixed,
}

impl Clipping {
    /// All of them, in the order of the paper's Table 3.
    pub const ALL: [Clipping; 3] = [Clipping::Individual, Clipping::Batch, Clipping::Mixed];

    /// The paper's abbreviation.
    pub fn short(self) -> &'static str {
        match self {
            Clipping::Individual => "IC",
            Clipping::Batch => "BC",
            Clipping::Mixed => "MC",
        }
    }

    /// m and s for a batch of |S_b| = ms samples.
    pub fn groups(self, batch: u64) -> (u64, u64) {
        match self {
            Clipping::Individual => (batch, 1),
            Clipping::Batch => (1, batch),
            Clipping::Mixed => (batch / MIXED, MIXED),
        }
    }
}

/// s of mixed clipping.
pub const MIXED: u64 = 64;

/// The paper's abbreviation of a sampler.
pub fn short(sampling: SamplingKind) -> &'static str {
    match sampling {
        SamplingKind::Subsample => "SS",
        SamplingKind::Shuffle => "SH",
        SamplingKind::Poisson => "PO",
        SamplingKind::Allocate => "RA",
    }
}

/// The network of the paper for a data set.
pub fn paper_net(data: Known) -> &'static str {
    if data == Known::Cifar10 { "paper-cnn" } else { "lenet5" }
}

/// The paper's σ, η and its rule.
pub const SIGMA: f64 = 2.0;
const STEP: f64 = 0.025;
const STEP_RULE: &str = "when-worse:0.9";

/// Algorithm 1 with the paper's settings.
pub fn paper(
    data: Known,
    sampling: SamplingKind,
    clipping: Clipping,
    batch: u64,
    clip: f64,
    seed: u64,
) -> Experiment {
    let (groups, group_size) = clipping.groups(batch);
    let settings = RawSettings {
        data: Some(data.name().to_string()),
        net: Some(paper_net(data).to_string()),
        sampling: Some(sampling),
        groups: Some(groups),
        group_size: Some(group_size),
        sigma: Some(SIGMA),
        clip: Some(clip),
        step: Some(STEP),
        step_rule: Some(STEP_RULE.to_string()),
        outer: Some(OuterName::Plain),
        seed: Some(seed),
        ..RawSettings::default()
    };
    Experiment { settings, noise: AddedNoise::Printed, part: Portion::All }
}

/// Mini-batch SGD without privacy with the paper's settings.
pub fn baseline(data: Known, sampling: SamplingKind, batch: u64, seed: u64) -> Experiment {
    let mut experiment = paper(data, sampling, Clipping::Batch, batch, 1.0, seed);
    // Neither means anything here; the laboratory fills them in for the sampler.
    experiment.settings.clip = None;
    experiment.settings.sigma = None;
    experiment.noise = AddedNoise::None;
    experiment
}
