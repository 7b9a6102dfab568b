//! Errors of the libraries below as those of `dpsgd`.

use std::convert::Infallible;
use std::path::{Path, PathBuf};

use dpsgd::Error;
use dpsgd_train::{RoundError, TrainerError};
use rayon::{ThreadPool, ThreadPoolBuilder};

/// The system could not read or write a file.
pub fn io<E: Into<std::io::Error>>(path: &Path) -> impl FnOnce(E) -> Error {
    let path = PathBuf::from(path);
    move |source| Error::Io { path, source: source.into() }
}

/// A file is not what it should be.
pub fn file(path: &Path, why: impl Into<String>) -> Error {
    Error::File { path: path.into(), why: why.into() }
}

/// A round without a ledger failed.
pub fn round(error: RoundError<Infallible>) -> Error {
    match error {
        RoundError::Finished { rounds } => RoundError::Finished { rounds }.into(),
        RoundError::Forked => RoundError::Forked.into(),
        RoundError::Model { round, source } => RoundError::Model { round, source }.into(),
        RoundError::Refused { source, .. } => match source {},
        other => Error::Refused(other.to_string()),
    }
}

/// A pool of threads.
pub fn pool(threads: usize) -> Result<ThreadPool, Error> {
    let made = ThreadPoolBuilder::new().num_threads(threads).build();
    made.map_err(|error| TrainerError::Threads { threads, reason: error.to_string() }.into())
}
