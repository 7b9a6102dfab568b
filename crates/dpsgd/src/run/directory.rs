//! The directory of a run as this process writes it: checkpoint, metrics and results around the ledger that
//! the trainer charges.

use std::path::{Path, PathBuf};

use dpsgd_report::run::Measurement;
use dpsgd_train::checkpoint::Checkpoint;
use dpsgd_train::directory::{CHECKPOINT, Metrics, RunDirectory};
use dpsgd_train::ledger::Ledger;
use dpsgd_train::{Plan, TrainerState};
use serde_json::{Value, json};
use std::sync::Arc;

use super::metrics;
use crate::Error;
use crate::facts::{FACTS, Facts};
use crate::inputs::Constants;
use crate::shared_ledger::Recording;

/// What a run writes, but for the ledger.
pub(crate) struct Directory {
    run: RunDirectory,
    metrics: Metrics,
    /// The constants of a private normalisation: released once, and kept with every checkpoint.
    constants: Option<Constants>,
}

/// An interrupted run, ready to be continued.
pub(crate) struct Interrupted {
    pub(crate) directory: Directory,
    pub(crate) ledger: Ledger,
    pub(crate) state: TrainerState,
    /// Seconds of training before the interruption.
    pub(crate) seconds: f64,
}

impl Directory {
    /// Makes the directory of a new run, with its ledger; on an error nothing is left behind.
    pub(crate) fn create(
        path: &Path,
        config: &str,
        facts: &Facts,
        plan: Arc<Plan>,
        private: bool,
        constants: Option<Constants>,
    ) -> Result<(Self, Ledger), Error> {
        let existed = path.exists();
        let run = RunDirectory::create(path)?;
        let made = run.write(FACTS, facts.text().as_bytes());
        let made = made.and_then(|()| run.start(config.as_bytes(), plan, private));
        match made {
            Ok((ledger, metrics)) => Ok((Self { run, metrics, constants }, ledger)),
            Err(error) => {
                discard(path, existed);
                Err(error.into())
            }
        }
    }

    /// Opens the directory of an interrupted run.
    pub(crate) fn open(
        path: &Path,
        plan: Arc<Plan>,
        private: bool,
        recording: &Recording,
    ) -> Result<Interrupted, Error> {
        let run = RunDirectory::open(path)?;
        // The report at the end reads them: what it would refuse then is refused before anything is spent.
        metrics::read(path)?;
        // A ledger that is damaged is refused for that, before anybody asks whether it is old.
        let history = run.history(plan.mechanism(), private)?;
        let resumption = recording.resume(&Facts::read(path)?, &run, &history)?;
        let mut resumed = run.resume(plan, private)?;
        if let Some(resumption) = resumption {
            resumption.apply(&mut resumed.ledger)?;
        }
        let checkpoint = resumed.checkpoint;
        let state =
            TrainerState::of(&checkpoint).map_err(|missing| Error::file(CHECKPOINT, missing.to_string()))?;
        let seconds = checkpoint.numbers.get("seconds").copied().unwrap_or(0.0);
        let directory = Self { run, metrics: resumed.metrics, constants: constants(&checkpoint) };
        Ok(Interrupted { directory, ledger: resumed.ledger, state, seconds })
    }

    pub(crate) fn path(&self) -> &Path {
        self.run.path()
    }

    pub(crate) fn constants(&self) -> Option<&Constants> {
        self.constants.as_ref()
    }

    /// Adds a line to the metrics.
    pub(crate) fn push(&mut self, measurement: &Measurement) -> Result<(), Error> {
        match json!(measurement) {
            Value::Object(fields) => Ok(self.metrics.append(measurement.round, fields)?),
            _ => Ok(()),
        }
    }

    /// Replaces the checkpoint.
    pub(crate) fn save(
        &self,
        state: &TrainerState,
        ledger: &Ledger,
        epoch: u64,
        seconds: f64,
    ) -> Result<(), Error> {
        let mut checkpoint = Checkpoint { epoch, ledger: ledger.position(), ..state.checkpoint() };
        checkpoint.numbers.insert("seconds".to_string(), seconds);
        if let Some(constants) = &self.constants {
            checkpoint.vectors.insert("mean".to_string(), constants.mean.clone());
            checkpoint.vectors.insert("std".to_string(), constants.std.clone());
        }
        Ok(self.run.write_checkpoint(&checkpoint)?)
    }

    /// Writes one of the results.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        Ok(self.run.write(name, bytes)?)
    }
}

/// Removes what a run that could not begin has written. The first error is the one to tell of.
pub(crate) fn discard(path: &Path, existed: bool) {
    let empty = || -> std::io::Result<()> {
        for entry in std::fs::read_dir(path)? {
            std::fs::remove_file(entry?.path())?;
        }
        Ok(())
    };
    let _ = if existed { empty() } else { std::fs::remove_dir_all(path) };
}

/// `PARENT/DATA-NET-1`, or the first number that is free.
pub(crate) fn first_free(parent: &Path, data: &str, net: &str) -> PathBuf {
    let named = |number: u64| parent.join(format!("{data}-{net}-{number}"));
    let mut number = 1;
    while named(number).exists() {
        number += 1;
    }
    named(number)
}

/// The constants of a private normalisation in the checkpoint of a run.
pub(crate) fn saved_constants(path: &Path) -> Result<Option<Constants>, Error> {
    Ok(constants(&Checkpoint::read(&path.join(CHECKPOINT))?))
}

fn constants(checkpoint: &Checkpoint) -> Option<Constants> {
    let vector = |name: &str| checkpoint.vectors.get(name).cloned();
    Some(Constants { mean: vector("mean")?, std: vector("std")? })
}
