//! The directory of a run as the commands use it: ledger, checkpoint and metrics of `dpsgd-train`, and
//! what goes between them and the trainer.

use std::path::{Path, PathBuf};

use dpsgd_train::TrainerState;
use dpsgd_train::checkpoint::{Checkpoint, CheckpointError};
use dpsgd_train::directory::{CHECKPOINT, DirectoryError, Metrics, RunDirectory};
use dpsgd_train::ledger::{Ledger, LedgerError};
use serde_json::{Value, json};

use super::facts::{FACTS, Facts};
use super::inputs::Constants;
use super::metrics::{self, Epoch};
use super::settings::TrainSettings;
use super::setup::Setup;
use crate::Failure;

impl From<DirectoryError> for Failure {
    fn from(error: DirectoryError) -> Self {
        match error {
            DirectoryError::Io { .. }
            | DirectoryError::Ledger(LedgerError::Io { .. } | LedgerError::Broken)
            | DirectoryError::Checkpoint(CheckpointError::Io { .. })
            | DirectoryError::InUse(_) => Failure::Machine(error.to_string()),
            // A wrong, damaged or finished run is what was asked for.
            _ => Failure::Input(error.to_string()),
        }
    }
}

/// What the ledger says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Book {
    /// The rounds that may have left.
    pub charged: u64,
    /// How often the run was taken up again.
    pub resumes: u64,
}

impl Book {
    /// Reads and verifies the ledger of a run; also while another process trains.
    pub fn read(path: &Path, settings: &TrainSettings, facts: &Facts) -> Result<Self, Failure> {
        let mechanism = facts.run(settings)?.mechanism;
        let history = RunDirectory::view(path)?.history(&mechanism, settings.seed.is_none())?;
        Ok(Self { charged: history.spent(), resumes: history.resumes() })
    }
}

/// A run directory in which this process trains.
pub struct Directory {
    run: RunDirectory,
    ledger: Ledger,
    metrics: Metrics,
    /// The constants of a private normalisation: released once, and kept with every checkpoint.
    constants: Option<Constants>,
}

impl Directory {
    /// Makes the directory of a new run, with its first checkpoint; nothing is left behind on an error.
    pub fn create(
        setup: &Setup,
        out: Option<PathBuf>,
        constants: Option<Constants>,
        state: &TrainerState,
    ) -> Result<Self, Failure> {
        let path = out.unwrap_or_else(|| first_free(setup));
        let existed = path.exists();
        let run = RunDirectory::create(&path)?;
        let fill = || -> Result<(Ledger, Metrics), Failure> {
            run.write(FACTS, setup.facts().text().as_bytes())?;
            let private = setup.settings.seed.is_none();
            Ok(run.start(setup.config()?.as_bytes(), setup.plan.mechanism(), private)?)
        };
        let made = fill().and_then(|(ledger, metrics)| {
            let mut directory = Self { run, ledger, metrics, constants };
            directory.save(state, 0, 0.0)?;
            Ok(directory)
        });
        if made.is_err() {
            // The first error is the one to tell of.
            let _ = if existed { empty(&path) } else { std::fs::remove_dir_all(&path) };
        }
        made
    }

    /// Takes up an interrupted run: the directory, the state to go on from, and the seconds trained.
    pub fn open(setup: &Setup, path: &Path) -> Result<(Self, TrainerState, f64), Failure> {
        let run = RunDirectory::open(path)?;
        // The report at the end reads them: what it would refuse then is refused before anything is spent.
        metrics::read(path)?;
        let resumed = run.resume(setup.plan.mechanism(), setup.settings.seed.is_none())?;
        let checkpoint = resumed.checkpoint;
        let (state, seconds) =
            (state(&checkpoint)?, checkpoint.numbers.get("seconds").copied().unwrap_or(0.0));
        let constants = constants(&checkpoint);
        Ok((Self { run, ledger: resumed.ledger, metrics: resumed.metrics, constants }, state, seconds))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.run.path()
    }

    /// What the trainer charges.
    pub fn ledger(&mut self) -> &mut Ledger {
        &mut self.ledger
    }

    /// What the ledger says.
    pub fn book(&self) -> Book {
        Book { charged: self.ledger.spent(), resumes: self.ledger.resumes() }
    }

    /// The constants of the private normalisation.
    pub fn constants(&self) -> Option<&Constants> {
        self.constants.as_ref()
    }

    /// Adds a line to the metrics.
    pub fn push(&mut self, epoch: &Epoch) -> Result<(), Failure> {
        match json!(epoch) {
            Value::Object(fields) => Ok(self.metrics.append(epoch.round, fields)?),
            _ => Ok(()),
        }
    }

    /// Replaces the checkpoint.
    pub fn save(&mut self, state: &TrainerState, epoch: u64, seconds: f64) -> Result<(), Failure> {
        let mut checkpoint = Checkpoint { epoch, ledger: self.ledger.position(), ..state.checkpoint() };
        checkpoint.numbers.insert("seconds".to_string(), seconds);
        if let Some(constants) = &self.constants {
            checkpoint.vectors.insert("mean".to_string(), constants.mean.clone());
            checkpoint.vectors.insert("std".to_string(), constants.std.clone());
        }
        Ok(self.run.write_checkpoint(&checkpoint)?)
    }

    /// Writes one of the results.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Failure> {
        Ok(self.run.write(name, bytes)?)
    }

    /// Closes the run: nothing can be charged any more.
    pub fn finish(&mut self) -> Result<(), Failure> {
        self.ledger.finish().map_err(|error| DirectoryError::from(error).into())
    }
}

/// Removes what a run that could not begin has put into a directory that was empty before it.
fn empty(path: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(path)? {
        std::fs::remove_file(entry?.path())?;
    }
    Ok(())
}

/// `runs/DATA-NET-1`, or the first number that is free.
fn first_free(setup: &Setup) -> PathBuf {
    let named = |number: u64| Path::new("runs").join(format!("{}-{}-{number}", setup.inputs.name, setup.net));
    let mut number = 1;
    while named(number).exists() {
        number += 1;
    }
    named(number)
}

/// The constants of a private normalisation in the checkpoint of a run.
pub fn saved_constants(path: &Path) -> Result<Option<Constants>, Failure> {
    let checkpoint = Checkpoint::read(&path.join(CHECKPOINT)).map_err(DirectoryError::from)?;
    Ok(constants(&checkpoint))
}

fn constants(checkpoint: &Checkpoint) -> Option<Constants> {
    let vector = |name: &str| checkpoint.vectors.get(name).cloned();
    Some(Constants { mean: vector("mean")?, std: vector("std")? })
}

fn state(checkpoint: &Checkpoint) -> Result<TrainerState, Failure> {
    TrainerState::of(checkpoint).map_err(|lacks| Failure::Input(format!("{CHECKPOINT}: {lacks}")))
}
