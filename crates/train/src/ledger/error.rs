//! Why a ledger was not written or not believed.

use std::io;
use std::path::{Path, PathBuf};

/// Why a ledger was not written or not believed. After any of these the round must not happen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// The disk did not do what was asked.
    #[error("{}: cannot {doing}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was asked.
        doing: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// A run has been charged here already.
    #[error("{}: exists already; resume that run, or choose another directory for a new one", .0.display())]
    Exists(PathBuf),
    /// One of the two files is not there.
    #[error("{}: is missing; without it nobody can say what the run has spent, so it cannot go on", .0.display())]
    Missing(PathBuf),
    /// What is in the file was not written by a ledger.
    #[error("{} is damaged, line {line}: {why}; restore it from a copy, the run cannot go on without", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Counted from one.
        line: usize,
        /// What is wrong there.
        why: String,
    },
    /// Something remembers a record that the ledger no longer has.
    #[error("{} was shortened or replaced: it ends with record {last}, but {witness}; restore it from a copy", path.display())]
    Shortened {
        /// The ledger.
        path: PathBuf,
        /// The number of its last record.
        last: u64,
        /// Who remembers what.
        witness: String,
    },
    /// The ledger is that of another run.
    #[error("{} belongs to another run: it says {found}, this one is {given}; go on with the settings it was started with", path.display())]
    OtherRun {
        /// The ledger.
        path: PathBuf,
        /// The setting in the ledger.
        found: String,
        /// The setting of this run.
        given: String,
    },
    /// The round may have left already.
    #[error("round {round} must not happen (again): the next round that may is {next}")]
    Repeated {
        /// The round asked for.
        round: u64,
        /// The first one that is free.
        next: u64,
    },
    /// The mechanism has no such round.
    #[error("round {round} must not happen: the run has rounds 0 to {rounds}, exclusive")]
    Beyond {
        /// The round asked for.
        round: u64,
        /// T.
        rounds: u64,
    },
    /// The run has been closed.
    #[error("the run is finished after {rounds} rounds; start a new one")]
    Finished {
        /// The rounds charged.
        rounds: u64,
    },
    /// An earlier write failed, so that nobody knows what is on the disk.
    #[error("the ledger could not be written earlier; stop, and resume the run when the disk is well")]
    Broken,
}

/// Names the file and the deed of a failed operation.
pub(crate) fn failed(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> LedgerError {
    let path = path.to_owned();
    move |source| LedgerError::Io { path, doing, source }
}
