//! Errors of the library as exceptions, with the text of the command.

use dpsgd::train::RoundError;
use dpsgd::{Blame, Error};
use pyo3::create_exception;
use pyo3::exceptions::{PyKeyboardInterrupt, PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;

create_exception!(
    _dpsgd,
    RoundFailed,
    PyRuntimeError,
    "The model failed after its round was charged: the round stays spent, the weights are what they were, and \
     `fit()` continues with the next round. The cause may quote private data: it is for the owner of the data."
);

/// A request that cannot be met is a `ValueError`; what the operating system reports is an `OSError`; an
/// exception of the model is the cause of a `RoundFailed`, and Ctrl-C stays what it is.
pub fn raised(py: Python<'_>, error: Error) -> PyErr {
    let text = error.to_string();
    if let Error::Round(RoundError::Model { round, source }) = &error {
        let cause = source.cause().and_then(|cause| cause.downcast_ref::<PyErr>());
        if let Some(cause) = cause {
            if cause.is_instance_of::<PyKeyboardInterrupt>(py) {
                return cause.clone_ref(py);
            }
            // The text of the cause may quote private data; it stays with the cause.
            let failed = RoundFailed::new_err(format!(
                "round {round} is spent without an update, because the model failed; fit() continues with the \
                 next round"
            ));
            failed.set_cause(py, Some(cause.clone_ref(py)));
            return failed;
        }
        return RoundFailed::new_err(text);
    }
    if let Error::Trainer(dpsgd::train::TrainerError::Model(source)) = &error
        && let Some(cause) = source.cause().and_then(|cause| cause.downcast_ref::<PyErr>())
    {
        return cause.clone_ref(py);
    }
    match error.blame() {
        Blame::Request => PyValueError::new_err(text),
        Blame::System if matches!(error, Error::Round(_)) => PyRuntimeError::new_err(text),
        Blame::System => PyOSError::new_err(text),
    }
}

/// A request that cannot be met.
pub fn refused(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}
