//! Why settings were refused.

use std::path::PathBuf;

use dpsgd_privacy::PrivacyError;
use dpsgd_privacy::mechanism::MechanismError;
use dpsgd_train::PlanError;

/// Why settings were refused. Every message is one line and says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// A file of settings cannot be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file of settings does not say what it should.
    #[error("{}: {}{why}", path.display(), line.map(|line| format!("line {line}: ")).unwrap_or_default())]
    File {
        /// The file.
        path: PathBuf,
        /// The line, counted from one, where it is known.
        line: Option<usize>,
        /// What is wrong.
        why: String,
    },
    /// Two settings say the same thing in the same place.
    #[error("{names} are both given {place}: give one of them")]
    Both {
        /// The settings.
        names: String,
        /// Where.
        place: &'static str,
    },
    /// A setting of the whole run stands in a phase.
    #[error("{0} in a [[phase]]: it belongs to the whole run; put it at the top level of the file")]
    OfTheRun(String),
    /// A setting has a value that is not allowed, or does not go with the others.
    #[error("{0}")]
    Refused(String),
    /// The settings cannot be written down as TOML.
    #[error("the settings cannot be written as TOML: {0}")]
    Toml(String),
    /// The mechanism was refused.
    #[error(transparent)]
    Mechanism(#[from] MechanismError),
    /// The accountant cannot answer for the mechanism, or no noise meets the target.
    #[error(transparent)]
    Privacy(#[from] PrivacyError),
    /// The plan was refused.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

/// Refuses settings with a sentence.
pub(crate) fn refuse<T>(why: impl Into<String>) -> Result<T, SettingsError> {
    Err(SettingsError::Refused(why.into()))
}
