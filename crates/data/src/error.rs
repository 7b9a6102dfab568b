//! Why a data set was refused: what was given, what is allowed, what to do.

use std::io;
use std::path::PathBuf;

/// Why a data set could not be read, fetched or normalised. Every message is one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// No such data set is known.
    #[error(
        "data set {given:?} is not known: mnist, fashion-mnist, cifar10 and adult are; any other must be \
         a CSV file"
    )]
    Unknown {
        /// What was given.
        given: String,
    },
    /// A known data set was not found.
    #[error("{set} is not in {searched}; {advice}")]
    NotFound {
        /// Its name.
        set: &'static str,
        /// The places searched.
        searched: String,
        /// What to do.
        advice: String,
    },
    /// The operating system reported an error.
    #[error("{path}: {source}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The error it reported.
        source: io::Error,
    },
    /// The compressed data are damaged.
    #[error("{path}: damaged or truncated gzip data ({why})")]
    Gzip {
        /// The file.
        path: PathBuf,
        /// The error of the decoder.
        why: String,
    },
    /// The file ends early.
    #[error("{path}: truncated, {found} bytes of {expected}")]
    Truncated {
        /// The file.
        path: PathBuf,
        /// The bytes it has, unzipped.
        found: u64,
        /// The bytes it must have.
        expected: u128,
    },
    /// The file is longer than it must be.
    #[error("{path}: more than the {expected} bytes it must have")]
    TooLong {
        /// The file.
        path: PathBuf,
        /// The bytes it must have, unzipped.
        expected: u64,
    },
    /// The file is something else.
    #[error("{path}: not {expected} (it starts with {found})")]
    Magic {
        /// The file.
        path: PathBuf,
        /// What it should be.
        expected: &'static str,
        /// Its first bytes.
        found: String,
    },
    /// The file is of the right kind but does not hold what it should.
    #[error("{path}: {why}")]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The file is not the published one.
    #[error("{path}: SHA-256 is {found}, but the published file has {expected}")]
    Checksum {
        /// The file.
        path: PathBuf,
        /// Its checksum, unzipped.
        found: String,
        /// The published one.
        expected: &'static str,
    },
    /// A file of a known data set was refused, with what to do about it.
    #[error("{source}; {advice}")]
    Known {
        /// Why.
        source: Box<DataError>,
        /// What to do.
        advice: String,
    },
    /// A line of a CSV file cannot be read as the schema says.
    #[error("{path}, line {line}: {why}")]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: u64,
        /// What is wrong, and what to do.
        why: String,
    },
    /// A setting is wrong.
    #[error("{name} = {given}: {allowed} ({why})")]
    Setting {
        /// The setting.
        name: String,
        /// What was given.
        given: String,
        /// What is allowed.
        allowed: String,
        /// The reason.
        why: String,
    },
    /// A data set could not be fetched.
    #[error("{command}: {why}; by hand: {advice}")]
    Fetch {
        /// The command that failed.
        command: String,
        /// How it failed.
        why: String,
        /// What to do by hand.
        advice: String,
    },
}

pub(crate) fn setting<T>(
    name: impl Into<String>,
    given: impl ToString,
    allowed: impl Into<String>,
    why: impl Into<String>,
) -> Result<T, DataError> {
    Err(DataError::Setting {
        name: name.into(),
        given: given.to_string(),
        allowed: allowed.into(),
        why: why.into(),
    })
}
