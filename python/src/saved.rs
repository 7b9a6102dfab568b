//! Run directories that are read.

use std::path::PathBuf;

use dpsgd::report::{Sizes, json, statement};
use dpsgd::{Error, SavedRun as Saved};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::raised;

/// A run directory, read and verified.
#[pyclass(frozen, module = "dpsgd._dpsgd")]
pub struct SavedRun {
    run: Saved,
}

#[pymethods]
impl SavedRun {
    /// Opens a run directory; the settings are those its ledger was begun with, or there is an error.
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let run = Saved::open(&path).map_err(|error| raised(py, error))?;
        Ok(Self { run })
    }

    /// Everything about the run, recomputed and compared: findings, ledger, facts, account.
    fn verify<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = py.detach(|| -> Result<_, Error> {
            let settings = self.run.settings()?;
            Ok((self.run.verify()?, self.run.facts()?, settings))
        });
        let (found, facts, settings) = found.map_err(|error| raised(py, error))?;
        let said = PyDict::new(py);
        let findings: Vec<String> =
            found.findings.iter().map(|finding| format!("{}: {}", finding.file, finding.what)).collect();
        said.set_item("findings", findings)?;
        said.set_item("finished", found.finished)?;
        said.set_item("charged", found.ledger.charged)?;
        said.set_item("resumes", found.ledger.resumes)?;
        said.set_item("closed", found.ledger.closed)?;
        said.set_item("rounds", settings.mechanism.rounds())?;
        said.set_item("delta", settings.budget.delta)?;
        said.set_item("adversary", settings.budget.adversary.name())?;
        said.set_item("note", facts.note(&settings))?;
        said.set_item("data", &facts.data)?;
        said.set_item("net", &facts.net)?;
        let sizes = Sizes { samples: settings.samples, groups: settings.groups };
        said.set_item("statement", statement::trained(&found.account, sizes))?;
        said.set_item("account", json::account(&found.account, sizes, &settings.alphas).to_string())?;
        let guarantees = found.account.guarantees.iter();
        let epsilons: Vec<_> =
            guarantees.map(|one| (one.adversary.name(), one.answer.lower, one.answer.upper)).collect();
        said.set_item("guarantees", epsilons)?;
        Ok(said)
    }

    /// The settings as TOML.
    fn config(&self, py: Python<'_>) -> PyResult<String> {
        let text = self.run.settings().and_then(|settings| Ok(settings.config_text()?));
        text.map_err(|error| raised(py, error))
    }

    /// Writes `report.html` again.
    fn write_report(&self, py: Python<'_>) -> PyResult<PathBuf> {
        self.run.write_report().map_err(|error| raised(py, error))
    }
}
