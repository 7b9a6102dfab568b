//! Why the command did not do what it was asked to, and its exit code.

use dpsgd::{Blame, Error, SettingsError};

/// Why the command did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// What was asked for is wrong or cannot be answered.
    #[error("{0}")]
    Input(String),
    /// The operating system reported an error, or what was examined is not as it should be.
    #[error("{0}")]
    Other(String),
    /// Somebody pressed Ctrl-C: what was done and how to continue. Not an error, and not finished either.
    #[error("{0}")]
    Stopped(String),
    /// Bad input for which help was shown already.
    #[error("see the help")]
    Shown,
    /// Nobody reads the output any more.
    #[error("the reader has closed the pipe")]
    ClosedPipe,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error.blame() {
            Blame::Request => Failure::Input(error.to_string()),
            Blame::System => Failure::Other(error.to_string()),
        }
    }
}

impl From<SettingsError> for Failure {
    fn from(error: SettingsError) -> Self {
        Error::from(error).into()
    }
}

impl From<dpsgd::privacy::PrivacyError> for Failure {
    fn from(error: dpsgd::privacy::PrivacyError) -> Self {
        Failure::Input(error.to_string())
    }
}

impl From<dpsgd::data::DataError> for Failure {
    fn from(error: dpsgd::data::DataError) -> Self {
        Failure::Input(error.to_string())
    }
}

#[cfg(feature = "nats")]
impl From<dpsgd_federated::nats::NatsError> for Failure {
    fn from(error: dpsgd_federated::nats::NatsError) -> Self {
        Failure::Other(error.to_string())
    }
}

#[cfg(feature = "nats")]
impl From<dpsgd_federated::site::SiteError> for Failure {
    fn from(error: dpsgd_federated::site::SiteError) -> Self {
        Failure::Input(error.to_string())
    }
}

#[cfg(feature = "nats")]
impl From<dpsgd_federated::joining::JoinError> for Failure {
    fn from(error: dpsgd_federated::joining::JoinError) -> Self {
        use dpsgd_federated::joining::JoinError;
        match error {
            JoinError::Run(error) => error.into(),
            JoinError::Site(error) => error.into(),
            other => Failure::Other(other.to_string()),
        }
    }
}

/// Names the file of a failed operation.
pub fn at(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Failure + '_ {
    move |error| Failure::Other(format!("{}: {error}", path.display()))
}
