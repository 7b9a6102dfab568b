//! Why a ledger was not written or not believed.

use std::io;
use std::path::PathBuf;

use super::storage::FromIo;

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
    #[error(
        "{}: is missing; without it nobody can say what the run has spent, so the run cannot continue",
        .0.display()
    )]
    Missing(PathBuf),
    /// What is in the file was not written by a ledger.
    #[error(
        "{} is damaged, line {line}: {why}; restore it from a copy; the run cannot continue without it",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Counted from one.
        line: usize,
        /// What is wrong there.
        why: String,
    },
    /// Something remembers a record that the ledger no longer has.
    #[error(
        "{} was shortened or replaced: it ends with record {last}, but {witness}; restore it from a \
         copy",
        path.display()
    )]
    Shortened {
        /// The ledger.
        path: PathBuf,
        /// The number of its last record.
        last: u64,
        /// Who remembers what.
        witness: String,
    },
    /// The ledger is that of another run.
    #[error(
        "{} belongs to another run: it says {found}, this one is {given}; use the settings it \
         was started with",
        path.display()
    )]
    OtherRun {
        /// The ledger.
        path: PathBuf,
        /// The setting in the ledger.
        found: String,
        /// The setting of this run.
        given: String,
    },
    /// The round may have left already.
    #[error("round {round} may have happened already; the next free round is {next}")]
    Repeated {
        /// The round asked for.
        round: u64,
        /// The first one that is free.
        next: u64,
    },
    /// The mechanism has no such round.
    #[error("round {round} is beyond the plan: the run has {rounds} rounds, counted from 0")]
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
    /// This process has given back what it had not used.
    #[error("the run was stopped with {rounds} rounds charged; resume it to continue")]
    Stopped {
        /// The rounds charged.
        rounds: u64,
    },
    /// An earlier write failed, so that nobody knows what is on the disk.
    #[error("an earlier write to the ledger failed; stop, and resume the run once the disk works again")]
    Broken,
}

impl FromIo for LedgerError {
    fn from_io(path: PathBuf, doing: &'static str, source: io::Error) -> Self {
        Self::Io { path, doing, source }
    }
}
