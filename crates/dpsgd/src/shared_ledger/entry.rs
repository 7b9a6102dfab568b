//! What the shared ledger knows of one run.

use std::path::Path;

use dpsgd_privacy::mechanism::{Mechanism, MechanismError};
use dpsgd_train::ledger::{Digest, LedgerPosition, NoDigest, Standing};
use serde::{Deserialize, Serialize};

use crate::{Error, sealed};

/// A run in the shared ledger.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The name of the run, random.
    pub run: String,
    /// What the runs on the same data have in common: the setting `data-set`, or else where the data are.
    pub data_set: String,
    /// Where the run was begun.
    pub directory: String,
    /// When, in seconds since 1970.
    pub begun: u64,
    /// Whether its randomness is private; a seeded run has no guarantee that could be added up.
    pub private: bool,
    /// Whether the run is closed.
    pub finished: bool,
    /// Whether its private test set was measured, or may have been.
    #[serde(default)]
    pub measured: bool,
    /// The rounds charged.
    pub charged: u64,
    /// The number of the last record of its ledger.
    pub record: u64,
    /// The digest of that record.
    pub head: String,
    /// The digest of its data under the key of the shared ledger, where the data are known.
    pub data: Option<String>,
    /// What the run releases.
    pub mechanism: Mechanism,
}

impl Entry {
    pub(super) fn read(path: &Path) -> Result<Self, Error> {
        sealed::read(path)
    }

    pub(super) fn text(&self) -> String {
        sealed::text(self)
    }

    pub(crate) fn stands_at(&mut self, standing: &Standing) {
        self.finished = standing.finished;
        self.measured = standing.measured;
        self.charged = standing.charged;
        self.record = standing.position.sequence;
        self.head = standing.position.digest.to_string();
    }

    /// The last record of its ledger.
    pub fn position(&self) -> Result<LedgerPosition, NoDigest> {
        Ok(LedgerPosition { sequence: self.record, digest: self.head.parse()? })
    }

    /// Whether these are the data the run was begun with, as far as that is known.
    pub fn is_on(&self, keyed: &Digest) -> bool {
        self.data.as_ref().is_none_or(|known| *known == keyed.to_string())
    }

    /// What may have left; a run of which nothing is charged counts with its first round.
    pub fn spent(&self) -> Result<Mechanism, MechanismError> {
        Ok(self.mechanism.spent(self.charged.max(1))?.unwrap_or_else(|| self.mechanism.clone()))
    }
}
