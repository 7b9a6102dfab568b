//! What has been computed, one pair of files for each experiment: its curve as JSON, and a checkpoint from
//! which it can resume.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use dpsgd::{Error, Evaluation};
use dpsgd_train::TrainerState;
use dpsgd_train::checkpoint::{Checkpoint, CheckpointError};
use dpsgd_train::directory::write_atomically;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error;
use crate::experiment::Experiment;

/// What came out of an experiment so far.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ExperimentOutcome {
    /// What was run.
    pub experiment: Experiment,
    /// The version that ran it.
    pub version: String,
    /// One point for every epoch.
    pub curve: Vec<EpochPoint>,
}

/// An epoch of an experiment.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct EpochPoint {
    /// Share of the samples it is measured on that are predicted correctly.
    pub accuracy: f64,
    /// The mean loss on them; none where it is not finite.
    pub loss: Option<f64>,
    /// η of the epoch's last round.
    pub step: f64,
    /// Seconds of training until here.
    pub seconds: f64,
}

impl EpochPoint {
    /// What an evaluation saw.
    pub fn of(seen: &Evaluation, step: f64, seconds: f64) -> Self {
        let loss = seen.loss.is_finite().then_some(seen.loss);
        Self { accuracy: seen.accuracy.unwrap_or(0.0), loss, step, seconds }
    }
}

impl ExperimentOutcome {
    /// Nothing yet.
    pub fn new(experiment: &Experiment) -> Self {
        Self {
            experiment: experiment.clone(),
            version: env!("CARGO_PKG_VERSION").to_string(),
            curve: Vec::new(),
        }
    }

    /// The accuracy after this many epochs.
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
    /// For how many epochs.
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
    /// The lowest loss, which shows progress before accuracy does; with the loss of the untrained network.
    /// Where no loss is lower than that one, the short runs say nothing and the first C is taken: the lowest
    /// loss would be that of a C so small that the network does not change.
    Loss(f64),
}

/// How much lower a loss has to be than that of the untrained network.
const PROGRESS: f64 = 1e-4;

impl Measure {
    /// The figure of an epoch that it compares. A loss that is not finite is the largest number, which JSON
    /// can hold.
    pub fn of(self, point: &EpochPoint) -> f64 {
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

impl Store {
    /// In a directory, which is created if necessary.
    pub fn open(path: PathBuf) -> Result<Self, Error> {
        fs::create_dir_all(&path).map_err(error::io(&path))?;
        Ok(Self(path))
    }

    fn outcome_file(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.json"))
    }

    fn checkpoint_file(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.checkpoint"))
    }

    /// The JSON file of an experiment or a tuning, if there is one.
    pub fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Error> {
        let path = self.outcome_file(name);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(missing) if missing.kind() == ErrorKind::NotFound => return Ok(None),
            Err(failed) => return Err(error::io(&path)(failed)),
        };
        serde_json::from_str(&text)
            .map(Some)
            .map_err(|why| error::file(&path, format!("{why}; remove the file to compute it again")))
    }

    fn write<T: Serialize>(&self, name: &str, value: &T) -> Result<(), Error> {
        let path = self.outcome_file(name);
        let mut text = serde_json::to_string(value).map_err(error::io(&path))?;
        text.push('\n');
        write_atomically(&path, text.as_bytes()).map_err(error::io(&path))
    }

    /// What has come out of an experiment; nothing if it was another one that had this name.
    pub fn outcome(&self, name: &str, experiment: &Experiment) -> Result<Option<ExperimentOutcome>, Error> {
        let found: Option<ExperimentOutcome> = self.read(name)?;
        Ok(found.filter(|found| found.experiment == *experiment))
    }

    /// How C was chosen; nothing if it was for another experiment.
    pub fn tuning(
        &self,
        name: &str,
        experiment: &Experiment,
        epochs: u64,
        by_loss: bool,
    ) -> Result<Option<Tuning>, Error> {
        let found: Option<Tuning> = self.read(name)?;
        let same = |found: &Tuning| {
            let kind = matches!(found.by, Measure::Loss(_));
            (&found.experiment, found.epochs, kind) == (experiment, epochs, by_loss)
        };
        Ok(found.filter(same))
    }

    /// Saves how C was chosen.
    pub fn save_tuning(&self, name: &str, tuning: &Tuning) -> Result<(), Error> {
        self.write(name, tuning)
    }

    /// Where to resume: the curve and the state after its last epoch.
    pub fn resume(
        &self,
        name: &str,
        experiment: &Experiment,
    ) -> Result<Option<(ExperimentOutcome, TrainerState)>, Error> {
        let Some(mut outcome) = self.outcome(name, experiment)? else { return Ok(None) };
        let path = self.checkpoint_file(name);
        let checkpoint = match Checkpoint::read(&path) {
            Ok(checkpoint) => checkpoint,
            Err(CheckpointError::Missing(_)) => return Ok(None),
            Err(failed) => return Err(failed.into()),
        };
        // The curve is written first; a checkpoint that is ahead of it belongs to another one.
        if checkpoint.epoch > outcome.epochs() {
            return Ok(None);
        }
        outcome.curve.truncate(checkpoint.epoch as usize);
        let state = TrainerState::of(&checkpoint).map_err(|lacks| error::file(&path, lacks.to_string()))?;
        Ok(Some((outcome, state)))
    }

    /// Saves the curve and the state after its last epoch.
    pub fn save(&self, name: &str, outcome: &ExperimentOutcome, state: &TrainerState) -> Result<(), Error> {
        self.write(name, outcome)?;
        let checkpoint = Checkpoint { epoch: outcome.epochs(), ..state.checkpoint() };
        Ok(checkpoint.write(&self.checkpoint_file(name))?)
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

    /// Every committed result is read, and written again as the same experiment.
    #[test]
    fn committed_results_are_read() {
        let cells = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/results/reproduce/cells");
        let (mut outcomes, mut tunings) = (0, 0);
        for entry in fs::read_dir(cells).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap();
            let text = fs::read_to_string(&path).unwrap();
            let experiment = if name.starts_with("tune-") {
                tunings += 1;
                serde_json::from_str::<Tuning>(&text).unwrap().experiment
            } else {
                outcomes += 1;
                serde_json::from_str::<ExperimentOutcome>(&text).unwrap().experiment
            };
            let again = serde_json::to_string(&experiment).unwrap();
            assert_eq!(serde_json::from_str::<Experiment>(&again).unwrap(), experiment, "{name}");
        }
        assert!(outcomes > 20 && tunings > 10, "{outcomes} {tunings}");
    }
}
