//! Why the library did not do what it was asked to.

use std::path::PathBuf;

use dpsgd_audit::AuditError;
use dpsgd_data::DataError;
use dpsgd_privacy::PrivacyError;
use dpsgd_privacy::mechanism::MechanismError;
use dpsgd_train::checkpoint::CheckpointError;
use dpsgd_train::directory::DirectoryError;
use dpsgd_train::ledger::LedgerError;
use dpsgd_train::{NoEntropy, RoundError, TrainerError};

use crate::net::NetError;
use crate::settings::SettingsError;

/// Why the library did not do what it was asked to. Every message is one line and says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The settings.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The data.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The network, or how it fits the data.
    #[error(transparent)]
    Net(#[from] NetError),
    /// The mechanism.
    #[error(transparent)]
    Mechanism(#[from] MechanismError),
    /// The accountant.
    #[error(transparent)]
    Privacy(#[from] PrivacyError),
    /// Model, plan and state do not fit together.
    #[error(transparent)]
    Trainer(#[from] TrainerError),
    /// The directory of a run.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// A round could not be charged or computed.
    #[error(transparent)]
    Round(#[from] RoundError<LedgerError>),
    /// The operating system gave no random bytes.
    #[error(transparent)]
    Entropy(#[from] NoEntropy),
    /// The audit.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// A file is missing, damaged, or not what it should be.
    #[error("{}: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong and what to do.
        why: String,
    },
    /// A file could not be written or read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The shared ledger cannot be written, so nothing outside of the run directory would remember the run.
    #[error(
        "{}: the shared ledger cannot be written: {source}; make room for it, choose another place by \
         --ledger DIR or DPSGD_LEDGER (in a container, a volume that outlives it), or train without one by \
         --ledger none",
        path.display()
    )]
    SharedLedger {
        /// Its directory.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Something does not go with the rest.
    #[error("{0}")]
    Refused(String),
}

/// Who has to act: the caller, or whoever looks after the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// What was asked for is wrong or cannot be answered.
    Request,
    /// The operating system reported an error.
    System,
}

impl Error {
    /// Who has to act.
    pub fn blame(&self) -> Blame {
        match self {
            Error::Entropy(_) | Error::Io { .. } | Error::SharedLedger { .. } | Error::Round(_) => {
                Blame::System
            }
            Error::Directory(
                DirectoryError::Io { .. }
                | DirectoryError::Ledger(LedgerError::Io { .. } | LedgerError::Broken)
                | DirectoryError::Checkpoint(CheckpointError::Io { .. })
                | DirectoryError::InUse(_),
            ) => Blame::System,
            Error::Audit(
                AuditError::Entropy(_)
                | AuditError::Threads(..)
                | AuditError::Ledger(_)
                | AuditError::Round(_),
            ) => Blame::System,
            // A wrong, damaged or finished run is what was asked for.
            _ => Blame::Request,
        }
    }

    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Error::Io { path, source }
    }

    pub(crate) fn file(path: impl Into<PathBuf>, why: impl Into<String>) -> Self {
        Error::File { path: path.into(), why: why.into() }
    }
}

impl From<LedgerError> for Error {
    fn from(error: LedgerError) -> Self {
        DirectoryError::from(error).into()
    }
}

impl From<CheckpointError> for Error {
    fn from(error: CheckpointError) -> Self {
        DirectoryError::from(error).into()
    }
}
