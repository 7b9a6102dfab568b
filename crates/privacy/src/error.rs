//! What can go wrong after a run has been checked.

use crate::mechanism::MechanismError;

/// Why a question about a run was not answered.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PrivacyError {
    /// The description of the run was refused.
    #[error(transparent)]
    Mechanism(#[from] MechanismError),
    /// An argument of the question is outside its range.
    #[error("{name} = {given}: must be {allowed}")]
    Argument {
        /// The argument.
        name: &'static str,
        /// What was given.
        given: f64,
        /// What is allowed.
        allowed: &'static str,
    },
    /// No theorem covers this combination.
    #[error("{what}: {why}")]
    Unsupported {
        /// The combination.
        what: String,
        /// Why nothing is claimed about it.
        why: String,
    },
    /// The computation would take too long or too much memory.
    #[error("{what} would cost about {operations:.0e} operations (limit {limit:.0e}); {remedy}")]
    TooCostly {
        /// What was to be computed.
        what: &'static str,
        /// The estimated number of operations.
        operations: f64,
        /// The limit.
        limit: f64,
        /// What to do instead.
        remedy: &'static str,
    },
    /// No setting in the allowed range meets the target.
    #[error("no {what} meets the target: {why}")]
    Unreachable {
        /// What was solved for.
        what: &'static str,
        /// How close the best setting came.
        why: String,
    },
    /// The numerical certificate could not be closed; nothing is claimed.
    #[error("the interval for {what} could not be certified ({why})")]
    NotCertified {
        /// The quantity.
        what: &'static str,
        /// Which bound failed.
        why: String,
    },
}

/// Refuses an argument unless `ok`.
pub(crate) fn require(
    ok: bool,
    name: &'static str,
    given: f64,
    allowed: &'static str,
) -> Result<(), PrivacyError> {
    if ok { Ok(()) } else { Err(PrivacyError::Argument { name, given, allowed }) }
}
