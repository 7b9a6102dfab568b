//! A run in which everything is decided.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use dpsgd_data::features::Features;
use dpsgd_data::schema::Schema;
use dpsgd_data::{Declared, Known, Normalisation};
use dpsgd_engine::spec::NetworkSpec;
use dpsgd_privacy::Account;
use dpsgd_privacy::account::Question;
use dpsgd_privacy::budget::Budget;
use dpsgd_privacy::mechanism::{Length, Mechanism, RunConfig, Sampling};
use dpsgd_train::{InnerAlgorithm, Plan, PlanConfig};

use super::algorithm::{Algorithm, InnerChoice};
use super::sampler::{BOTH, BOTH_ALLOCATED};
use super::{SettingsError, number, refuse};
use crate::inputs::Constants;
use crate::shared_ledger::Place;

/// N, and who knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Population {
    /// N, where it is known here.
    pub samples: Option<u64>,
    /// Whether everybody knows it, as with a published data set.
    pub public: bool,
    /// Whether the data were read, so that N is a fact and not a setting.
    pub measured: bool,
}

impl Population {
    /// That of data that were read.
    pub fn measured(samples: u64, public: bool) -> Self {
        Self { samples: Some(samples), public, measured: true }
    }
}

/// Where the samples come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A data set that is known by name.
    Known(Known),
    /// A file or folder, or whatever a program calls its own data.
    Other(String),
}

impl Source {
    /// Short, for names of directories and headings.
    pub fn short_name(&self) -> String {
        match self {
            Source::Known(known) => known.name().to_string(),
            Source::Other(name) => Path::new(name)
                .file_stem()
                .map(|stem| stem.to_string_lossy().into_owned())
                .unwrap_or_default(),
        }
    }
}

/// How samples are brought to mean 0 and variance 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Preparation {
    /// Not at all.
    Nothing,
    /// With published constants.
    Public,
    /// With the noised mean and variance of the private data, which is a release of this µ for one sample.
    Private {
        /// µ.
        mu: f64,
    },
}

/// The data of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct DataSettings {
    /// Where they come from.
    pub source: Source,
    /// Where data sets are looked for, if not in the usual places.
    pub directory: Option<PathBuf>,
    /// The public test set of one's own data.
    pub test: Option<PathBuf>,
    /// A private test set, and µ of what is measured on it.
    pub private_test: Option<(PathBuf, f64)>,
    /// What the loss of each class is multiplied by; empty for 1.
    pub class_weights: Vec<f32>,
    /// What the columns of a table mean.
    pub schema: Option<Schema>,
    /// What is public about arrays and images.
    pub declared: Declared,
    /// Public constants of (x − mean)/std for data of one's own.
    pub constants: Option<Constants>,
    /// How they are normalised.
    pub preparation: Preparation,
    /// What takes the place of the inputs.
    pub features: Option<Features>,
    /// The directory that keeps them, or `none`; where nothing is said, only those of public data are kept.
    pub features_cache: Option<PathBuf>,
    /// The name under which the shared ledger adds up the runs on the same data, where one was given.
    pub set: Option<String>,
}

impl DataSettings {
    /// The constants that everybody knows, where the run uses such.
    pub fn public_normalisation(&self) -> Normalisation {
        match (self.preparation, &self.source, &self.constants) {
            (Preparation::Public, Source::Known(known), _) => known.normalisation(),
            (Preparation::Public, Source::Other(_), Some(Constants { mean, std })) => {
                Normalisation::Public { mean: mean.clone(), std: std.clone() }
            }
            _ => Normalisation::None,
        }
    }

    /// The name under which the shared ledger adds up the runs on the same data: what was given, or else
    /// where the data are. It is the same for all versions of a file.
    pub fn set_name(&self) -> String {
        match (&self.set, &self.source) {
            (Some(name), _) => name.clone(),
            (None, Source::Known(known)) => known.name().to_string(),
            (None, Source::Other(name)) => match Path::new(name).canonicalize() {
                Ok(path) => path.display().to_string(),
                Err(_) => name.clone(),
            },
        }
    }
}

/// The network of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct NetSettings {
    /// Its name, or a TOML file.
    pub name: String,
    /// Its layers, where they are spelled out. A network that is named gets its layers from the shape of the
    /// data.
    pub spec: Option<NetworkSpec>,
}

/// A run in which everything is decided: the one value that account, calibrate, train, audit, evaluate and
/// every front end read.
///
/// # Guarantee
/// `mechanism` is what is accounted for, and [`Settings::plan`] puts that same value into the plan that is
/// trained. With `max-epsilon`, the certified ε of `mechanism` is at most that: trainer and ledger know no
/// later round.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The data.
    pub data: DataSettings,
    /// The network.
    pub net: NetSettings,
    /// The mechanism, checked, and cut where the budget ends it.
    pub mechanism: Mechanism,
    /// The mechanism as it was written, with lengths in epochs where they were.
    pub(super) config: RunConfig,
    /// µ of the other releases that were given; the mechanism has that of a private normalisation as well.
    pub(super) releases: Vec<f64>,
    /// What the noised sum of each phase with random batches is divided by, where it is known.
    pub(super) divisors: Vec<Option<u64>>,
    /// Whether a constant of the mechanism was computed from N, which must then be public.
    pub(crate) uses_samples: bool,
    /// N and m for people; N only where it may be shown.
    pub samples: Option<u64>,
    /// m of the first phase.
    pub groups: Option<u64>,
    /// The rounds that were asked for; `max-epsilon` may end the run before.
    pub planned: u64,
    /// Whose ε is watched.
    pub budget: Budget,
    /// The ε that must not be exceeded.
    pub max_epsilon: Option<f64>,
    /// ε or δ.
    pub question: Question,
    /// The false-alarm rates to report.
    pub alphas: Vec<f64>,
    /// Clipping, steps and algorithms.
    pub algorithm: Algorithm,
    /// A seed makes a run reproducible, and not private.
    pub seed: Option<u64>,
    /// Threads; the result does not depend on it.
    pub threads: usize,
    /// Whether figures that no noise covers are written for the owner of the data.
    pub diagnostics: bool,
    /// Where the run is recorded outside of its directory.
    pub ledger: Place,
}

impl Settings {
    /// The plan that trains this run: its mechanism, and everything else that the rounds need.
    pub fn plan(&self) -> Result<Arc<Plan>, SettingsError> {
        let mut plan =
            PlanConfig::new(self.mechanism.clone(), self.algorithm.clip.start, self.algorithm.step.start);
        self.algorithm.fill(&mut plan)?;
        for (phase, divisor) in self.mechanism.phases().iter().zip(&self.divisors) {
            match phase.sampling() {
                Sampling::Poisson { .. } if divisor.is_none() => return refuse(BOTH),
                Sampling::Allocate { .. } if divisor.is_none() => return refuse(BOTH_ALLOCATED),
                Sampling::Poisson { .. }
                | Sampling::Allocate { .. }
                | Sampling::AllocateCells { .. }
                | Sampling::Subsample { .. }
                | Sampling::Shuffle { .. } => {}
            }
        }
        let divisors = self.divisors.iter().take(self.mechanism.phases().len());
        plan.divisors = divisors.map(|groups| groups.map(|groups| groups as f64)).collect();
        // They cost nothing; what is done with them is up to `diagnostics`.
        plan.diagnostics = true;
        plan.threads = self.threads;
        Ok(Arc::new(plan.check()?))
    }

    /// Everything that can be said about what the run leaks.
    pub fn account(&self) -> Result<Account, SettingsError> {
        Ok(Account::of(&self.mechanism, self.question, &self.alphas)?)
    }

    /// What the rounds leak that a ledger has charged.
    pub fn account_of(&self, charged: u64) -> Result<Account, SettingsError> {
        // An accountant knows no run without rounds: before the first is charged, that one is taken.
        let spent = self.mechanism.spent(charged.max(1))?;
        let mechanism = spent.as_ref().unwrap_or(&self.mechanism);
        Ok(Account::of(mechanism, self.question, &self.alphas)?)
    }

    /// What is wrong with δ, if it promises next to nothing.
    pub fn delta_warning(&self) -> Option<String> {
        let first = self.config.phases.first()?;
        let published = match &self.data.source {
            Source::Known(known) => Some(known.samples()),
            Source::Other(_) => None,
        };
        // An account of a published data set has no N of its own, and a warning needs one.
        let samples = self.samples.or(first.sampling.population()).or(published)? as f64;
        let delta = self.budget.delta;
        (delta >= 1.0 / samples).then(|| {
            format!(
                "δ = {} is not below 1/N = {}: a mechanism that publishes a random sample as it is would \
                 satisfy that. Take δ well below 1/N",
                number(delta),
                number((1e8 / samples).round() / 1e8)
            )
        })
    }

    /// The same run with an inner algorithm of the program's own.
    ///
    /// # Guarantee
    /// The mechanism stays what it is: whatever the algorithm computes from w and its own group is clipped to
    /// C.
    pub fn with_inner(mut self, algorithm: Arc<dyn InnerAlgorithm>) -> Self {
        self.algorithm.inner = InnerChoice::Own(Some(algorithm));
        self
    }

    /// The mechanism as it was written, with lengths in epochs where they were, for changing one value and
    /// checking again.
    pub fn run_config(&self) -> &RunConfig {
        &self.config
    }

    /// What the noised sum of a phase with random batches is divided by.
    pub fn divisor(&self, phase: usize) -> Option<u64> {
        self.divisors[phase]
    }

    /// The length of a phase as it was asked for: "30 epochs planned".
    pub fn planned_length(&self, phase: usize) -> String {
        match self.config.phases[phase].length {
            Length::Epochs(epochs) => format!("{epochs} epochs planned"),
            Length::Rounds(rounds) => format!("{rounds} rounds planned"),
        }
    }

    /// Samples a round takes, by public sizes; of the phase of a round.
    pub fn samples_per_round(&self, phase: usize) -> f64 {
        let checked = &self.mechanism.phases()[phase];
        let groups = checked.sampling().groups().or(self.divisors[phase]).unwrap_or(1);
        let product = groups as f64 * checked.sampling().group_size() as f64;
        if checked.filtered() { 0.5 * product } else { product }
    }

    /// m/p, m·B or B·m·s of the first phase: about N, and public, where N itself may be private.
    pub(crate) fn expected_samples(&self) -> Option<f64> {
        match self.mechanism.phases()[0].sampling() {
            Sampling::Poisson { rate } => self.divisors[0].map(|groups| groups as f64 / rate),
            Sampling::Allocate { rounds } => self.divisors[0].map(|groups| groups as f64 * rounds as f64),
            Sampling::AllocateCells { rounds, groups, group_size } => {
                Some(rounds as f64 * groups as f64 * group_size as f64)
            }
            Sampling::Subsample { .. } | Sampling::Shuffle { .. } => None,
        }
    }
}
