//! A run and its place in the shared ledger: when it begins, when it is resumed, and when it is only looked at.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use dpsgd_train::directory::{LEDGER, RunDirectory};
use dpsgd_train::ledger::{Digest, History, Ledger, LedgerError, Standing};

use super::{Entry, Place, Recorder, Rollback, SharedLedger, fresh_name};
use crate::Error;
use crate::facts::Facts;
use crate::settings::Settings;

/// What is needed to record a run: the ledger, if there is one, and the digest of the data, if they are known.
pub(crate) struct Recording {
    ledger: Option<SharedLedger>,
    data: Option<Digest>,
    rollback: Rollback,
}

/// A resumed run in the shared ledger.
pub(crate) struct Resumption {
    recorder: Recorder,
    /// The rounds that a newer copy of the directory has charged.
    elsewhere: u64,
    /// Whether a newer copy of the directory has measured the private test set.
    measured: bool,
}

impl Recording {
    /// `data` is the digest of the data, without a key; it stays in memory.
    pub(crate) fn new(place: &Place, data: Option<Digest>, rollback: Rollback) -> Result<Self, Error> {
        let ledger = SharedLedger::open(place)?;
        let data = match (&ledger, data) {
            (Some(ledger), Some(data)) => Some(ledger.keyed(&data)?),
            _ => None,
        };
        Ok(Self { ledger, data, rollback })
    }

    /// The name of a new run, if it is recorded at all.
    pub(crate) fn name(&self) -> Result<Option<String>, Error> {
        self.ledger.as_ref().map(|_| fresh_name()).transpose()
    }

    /// Records a run that begins.
    pub(crate) fn begin(
        &self,
        settings: &Settings,
        facts: &Facts,
        directory: &Path,
        ledger: &mut Ledger,
    ) -> Result<(), Error> {
        let (Some(shared), Some(run)) = (&self.ledger, &facts.run) else { return Ok(()) };
        let mut entry = entry(settings, run, directory);
        entry.data = self.data.map(|data| data.to_string());
        Ok(ledger.witnessed_by(Box::new(shared.record(entry)?))?)
    }

    /// Forgets a run that could not begin.
    pub(crate) fn forget(&self, facts: &Facts) {
        if let (Some(shared), Some(run)) = (&self.ledger, &facts.run) {
            shared.forget(run);
        }
    }

    /// Decides whether a run may be resumed, before anything of it is changed.
    ///
    /// # Guarantee
    /// A run that is recorded goes on only if its directory has every record that the shared ledger knows, or
    /// if what the newer copy charged is counted ([`Rollback::Charge`]); and only on the data it was begun
    /// with, where their digest is known.
    pub(crate) fn resume(
        &self,
        facts: &Facts,
        directory: &RunDirectory,
        history: &History,
    ) -> Result<Option<Resumption>, Error> {
        let Some(run) = &facts.run else { return Ok(None) };
        let Some(shared) = &self.ledger else {
            return Err(Error::file(
                directory.path(),
                "this run is recorded in a shared ledger, so `none` would hide what it spends; resume it with \
                 the ledger it was begun with, or record it in another one by dpsgd ledger add",
            ));
        };
        let unknown = || Error::file(directory.path(), unknown(shared.path()));
        // Nobody changes it from now on.
        let mut recorder = shared.record(shared.entry(run)?.ok_or_else(unknown)?)?;
        let known = &mut recorder.entry;
        if let Some(data) = self.data {
            if !known.is_on(&data) {
                return Err(Error::file(
                    directory.path(),
                    format!(
                        "the data are not those the run was begun with (data set {}); resume it on the same \
                         data, or begin a new run in another directory",
                        known.data_set
                    ),
                ));
            }
            known.data = Some(data.to_string());
        } else if known.data.is_some() {
            return Err(Error::file(
                directory.path(),
                "the run was begun on known data, and nothing says what the data are now; name them as when it \
                 began (Job::on_data)",
            ));
        }
        let (elsewhere, measured) = match (older(known, directory, history)?, self.rollback) {
            (false, _) => (0, false),
            // An entry of an earlier version does not say whether the copy it knows has measured.
            (true, Rollback::Charge) => (known.charged, known.measured || known.finished),
            (true, Rollback::Refuse) => {
                return Err(Error::file(
                    directory.path(),
                    format!(
                        "{}; restore the newest copy, or count these rounds as spent and go on after them by \
                         dpsgd resume --charge-rollback",
                        older_copy(known, history)
                    ),
                ));
            }
        };
        Ok(Some(Resumption { recorder, elsewhere, measured }))
    }
}

impl Resumption {
    /// Counts what a newer copy has charged and records every further step.
    pub(crate) fn apply(self, ledger: &mut Ledger) -> Result<(), Error> {
        ledger.charge_elsewhere(self.elsewhere)?;
        if self.measured {
            ledger.measured_elsewhere()?;
        }
        Ok(ledger.witnessed_by(Box::new(self.recorder))?)
    }
}

/// What the shared ledger says about the directory of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The run was begun without a shared ledger.
    NotRecorded,
    /// There is no shared ledger here, or it does not know the run.
    Unknown,
    /// The directory has every record that the shared ledger knows.
    Newest,
    /// The directory is an older copy; what is wrong, in words.
    Older(String),
}

/// Compares the directory of a run with the shared ledger.
pub(crate) fn seen(
    shared: Option<&SharedLedger>,
    facts: &Facts,
    directory: &RunDirectory,
    history: &History,
) -> Result<Seen, Error> {
    let Some(run) = &facts.run else { return Ok(Seen::NotRecorded) };
    let Some(known) = shared.map(|shared| shared.entry(run)).transpose()?.flatten() else {
        return Ok(Seen::Unknown);
    };
    Ok(match older(&known, directory, history)? {
        true => Seen::Older(older_copy(&known, history)),
        false => Seen::Newest,
    })
}

/// A run as it begins.
pub(crate) fn entry(settings: &Settings, run: &str, directory: &Path) -> Entry {
    let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    let begun = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let mut entry = Entry {
        run: run.to_string(),
        data_set: settings.data.set_name(),
        directory: directory.display().to_string(),
        begun,
        private: settings.seed.is_none(),
        finished: false,
        measured: false,
        charged: 0,
        record: 0,
        head: String::new(),
        data: None,
        mechanism: settings.mechanism.clone(),
    };
    entry.stands_at(&Standing::default());
    entry
}

/// Whether the directory lacks the record that the shared ledger knows.
fn older(known: &Entry, directory: &RunDirectory, history: &History) -> Result<bool, Error> {
    let position = known.position().map_err(|error| Error::file(&known.run, error.to_string()))?;
    match history.require(&directory.file(LEDGER), &position, "the shared ledger") {
        Ok(()) => Ok(false),
        Err(LedgerError::Shortened { .. }) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

fn older_copy(known: &Entry, history: &History) -> String {
    format!(
        "this directory is an older copy of the run: the shared ledger knows record {} with {} rounds charged, \
         the directory has record {} with {}",
        known.record,
        known.charged,
        history.position().sequence,
        history.spent()
    )
}

fn unknown(path: &Path) -> String {
    format!(
        "the shared ledger in {} does not know this run; give the one it was begun with by --ledger DIR or \
         DPSGD_LEDGER, or record the run here, as it is now, by dpsgd ledger add",
        path.display()
    )
}
