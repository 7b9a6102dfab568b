//! What has been computed, one pair of files for each experiment: its curve as JSON, and a checkpoint from which it
//! can go on.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use dpsgd_train::TrainerState;
use dpsgd_train::checkpoint::{Checkpoint, CheckpointError};
use dpsgd_train::directory::write_atomically;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::experiment::Experiment;
use crate::Failure;
use crate::train::evaluation::Evaluation;

/// What came out of an experiment so far.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Outcome {
    /// What was run.
    pub experiment: Experiment,
    /// The version that ran it.
    pub version: String,
    /// One point for every epoch.
    pub curve: Vec<Point>,
}

/// An epoch of an experiment.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Point {
    /// Share of the samples it is measured on that are predicted correctly.
    pub accuracy: f64,
    /// The mean loss on them; none where it is not finite.
    pub loss: Option<f64>,
    /// η of the epoch's last round.
    pub step: f64,
    /// Seconds of training until here.
    pub seconds: f64,
}

impl Point {
    /// What an evaluation saw.
    pub fn of(seen: &Evaluation, step: f64, seconds: f64) -> Self {
        let loss = seen.loss.is_finite().then_some(seen.loss);
        Self { accuracy: seen.accuracy.unwrap_or(0.0), loss, step, seconds }
    }
}

impl Outcome {
    /// Nothing yet.
    pub fn new(experiment: &Experiment) -> Self {
        Self {
            experiment: experiment.clone(),
            version: env!("CARGO_PKG_VERSION").to_string(),
            curve: Vec::new(),
        }
    }

    /// The accuracy after so many epochs.
    pub fn at(&self, epochs: u64) -> Option<f64> {
        let index = usize::try_from(epochs).ok()?.checked_sub(1)?;
        self.curve.get(index).map(|point| point.accuracy)
    }

    /// The epochs done.
    pub fn epochs(&self) -> u64 {
        self.curve.len() as u64
    }
}

/// How C was chosen for a setting.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Tuning {
    /// What was run with every C.
    pub experiment: Experiment,
    /// For so many epochs.
    pub epochs: u64,
    /// What was looked at.
    #[serde(default)]
    pub by: Measure,
    /// C and the accuracy or loss it led to, in the order in which they were tried.
    pub tried: Vec<(f64, f64)>,
}

/// By what a C is chosen.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// The highest accuracy.
    #[default]
    Accuracy,
    /// The lowest loss, which shows progress before accuracy does. Beside it the loss of the untrained network: where none is
    /// lower, the short runs say nothing, and the first C is taken; the lowest loss would be that of a C which
    /// does nothing at all.
    Loss(f64),
}

/// How much lower a loss has to be than that of the untrained network.
const PROGRESS: f64 = 1e-4;

impl Measure {
    /// What it takes of an epoch. A loss that is not finite is the largest number, which JSON can hold.
    pub fn of(self, point: &Point) -> f64 {
        match self {
            Measure::Accuracy => point.accuracy,
            Measure::Loss(_) => point.loss.unwrap_or(f64::MAX),
        }
    }

    /// The C that did best, the smallest of them if there are several.
    pub fn best(self, tried: &[(f64, f64)]) -> Option<f64> {
        let smallest = |a: &&(f64, f64), b: &&(f64, f64)| b.0.total_cmp(&a.0);
        let best = match self {
            Measure::Accuracy => tried.iter().max_by(|a, b| a.1.total_cmp(&b.1).then(smallest(a, b))),
            Measure::Loss(untrained) => tried
                .iter()
                .filter(|(_, loss)| *loss < untrained - PROGRESS)
                .max_by(|a, b| b.1.total_cmp(&a.1).then(smallest(a, b)))
                .or(tried.first()),
        };
        best.map(|best| best.0)
    }
}

/// The directory of the outcomes.
pub struct Store(PathBuf);

fn failed(path: &Path, error: impl std::fmt::Display) -> Failure {
    Failure::Machine(format!("{}: {error}", path.display()))
}

impl Store {
    /// In a directory, which is made if need be.
    pub fn open(path: PathBuf) -> Result<Self, Failure> {
        fs::create_dir_all(&path).map_err(|error| failed(&path, error))?;
        Ok(Self(path))
    }

    fn outcome_file(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.json"))
    }

    fn checkpoint_file(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.checkpoint"))
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Failure> {
        let path = self.outcome_file(name);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(&path, error)),
        };
        let why = |error| {
            Failure::Input(format!("{}: {error}; remove the file to have it computed again", path.display()))
        };
        serde_json::from_str(&text).map(Some).map_err(why)
    }

    fn write<T: Serialize>(&self, name: &str, value: &T) -> Result<(), Failure> {
        let path = self.outcome_file(name);
        let mut text = serde_json::to_string(value).map_err(|error| failed(&path, error))?;
        text.push('\n');
        write_atomically(&path, text.as_bytes()).map_err(|error| failed(&path, error))
    }

    /// What has come out of an experiment; nothing if it was another one that had this name.
    pub fn outcome(&self, name: &str, experiment: &Experiment) -> Result<Option<Outcome>, Failure> {
        let found: Option<Outcome> = self.read(name)?;
        Ok(found.filter(|found| found.experiment == *experiment))
    }

    /// How C was chosen; nothing if it was for another experiment.
    pub fn tuning(
        &self,
        name: &str,
        experiment: &Experiment,
        epochs: u64,
        by_loss: bool,
    ) -> Result<Option<Tuning>, Failure> {
        let found: Option<Tuning> = self.read(name)?;
        let same = |found: &Tuning| {
            let kind = matches!(found.by, Measure::Loss(_));
            (&found.experiment, found.epochs, kind) == (experiment, epochs, by_loss)
        };
        Ok(found.filter(same))
    }

    /// Saves how C was chosen.
    pub fn save_tuning(&self, name: &str, tuning: &Tuning) -> Result<(), Failure> {
        self.write(name, tuning)
    }

    /// Where to go on: the curve and the state after its last epoch.
    pub fn resume(
        &self,
        name: &str,
        experiment: &Experiment,
    ) -> Result<Option<(Outcome, TrainerState)>, Failure> {
        let Some(mut outcome) = self.outcome(name, experiment)? else { return Ok(None) };
        let path = self.checkpoint_file(name);
        let checkpoint = match Checkpoint::read(&path) {
            Ok(checkpoint) => checkpoint,
            Err(CheckpointError::Missing(_)) => return Ok(None),
            Err(error) => return Err(Failure::Input(error.to_string())),
        };
        // The curve is written first; a checkpoint that is ahead of it belongs to another one.
        if checkpoint.epoch > outcome.epochs() {
            return Ok(None);
        }
        outcome.curve.truncate(checkpoint.epoch as usize);
        let state = TrainerState::of(&checkpoint).map_err(|lacks| failed(&path, lacks))?;
        Ok(Some((outcome, state)))
    }

    /// Saves the curve and the state after its last epoch.
    pub fn save(&self, name: &str, outcome: &Outcome, state: &TrainerState) -> Result<(), Failure> {
        self.write(name, outcome)?;
        let checkpoint = Checkpoint { epoch: outcome.epochs(), ..state.checkpoint() };
        checkpoint.write(&self.checkpoint_file(name)).map_err(|error| Failure::Machine(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_c_learns_something() {
        assert_eq!(Measure::Accuracy.best(&[(1.0, 0.2), (3.0, 0.4), (0.3, 0.4)]), Some(0.3));
        let loss = Measure::Loss(2.304);
        assert_eq!(loss.best(&[(1.0, 2.2), (3.0, 2.1), (10.0, 9.0)]), Some(3.0));
        assert_eq!(loss.best(&[(1.0, 2.305), (3.0, f64::MAX), (0.3, 2.30395)]), Some(1.0));
        assert_eq!(loss.best(&[]), None);
    }
}
