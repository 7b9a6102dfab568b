//! The native part of the Python package `dpsgd`: thin wrappers, no decision of their own.
//!
//! Settings arrive as a dictionary with the names of the command's flags and become [`dpsgd::RawSettings`],
//! so that everything after that is what the command does: the same checks, the same messages, the same runs.

mod curve;
mod engine;
mod errors;
mod federated;
mod job;
mod mechanism;
mod model;
mod saved;
mod settings;
mod share;
mod watch;

use pyo3::prelude::*;

/// The native part of dpsgd.
#[pymodule]
mod _dpsgd {
    #[pymodule_export]
    use super::engine::{audit, initial_weights, predict, train_native};
    #[pymodule_export]
    use super::errors::RoundFailed;
    #[pymodule_export]
    use super::federated::{Coordinator, Terms, Visit};
    #[pymodule_export]
    use super::job::train_model;
    #[pymodule_export]
    use super::mechanism::Mechanism;
    #[pymodule_export]
    use super::saved::SavedRun;
    #[pymodule_export]
    use super::share::Share;

    #[pymodule_init]
    fn init(module: &pyo3::Bound<'_, pyo3::types::PyModule>) -> pyo3::PyResult<()> {
        use pyo3::types::PyModuleMethods;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
