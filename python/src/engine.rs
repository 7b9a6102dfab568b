//! The native engine on arrays, and the audit of a plan.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dpsgd::audit::{AuditError, Effort, Options, Subject};
use dpsgd::data::{Dataset, Inputs, Targets};
use dpsgd::inputs::RunData;
use dpsgd::report::Sizes;
use dpsgd::report::audit::AuditReport;
use dpsgd::train::{ModelError, Randomness, RoundError};
use dpsgd::{Error, Prepared, SavedRun};
use numpy::{
    IntoPyArray, PyArray1, PyArrayMethods, PyReadonlyArray1, PyReadonlyArrayDyn, PyUntypedArrayMethods,
};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::errors::{raised, refused};
use crate::job::told;
use crate::model::PythonModel;
use crate::settings;
use crate::watch::{Slot, Watcher};

/// Samples by row: features, or images as height × width, or height × width × channels.
fn samples(x: &PyReadonlyArrayDyn<'_, f32>, targets: Targets) -> PyResult<Dataset> {
    let shape = match *x.shape() {
        [_, features] => [1, 1, features],
        [_, height, width] => [height, width, 1],
        [_, height, width, channels] => [height, width, channels],
        _ => {
            return Err(refused(format!(
                "x has {} dimensions: two (rows of features), three (images of one channel) or four (images, \
                 channel last)",
                x.shape().len()
            )));
        }
    };
    Dataset::new(Inputs::Floats(x.as_slice()?.to_vec()), targets, shape).map_err(refused)
}

type Labelled<'py> = (PyReadonlyArrayDyn<'py, f32>, PyReadonlyArray1<'py, f32>);

/// `classes` is the number of classes; none for regression.
fn labelled((x, y): &Labelled<'_>, classes: Option<usize>) -> PyResult<Dataset> {
    let y = y.as_slice()?;
    let targets = match classes {
        Some(classes) => Targets::Classes { labels: y.iter().map(|y| *y as u32).collect(), classes },
        None => Targets::Values(y.to_vec()),
    };
    samples(x, targets)
}

/// Trains a network of the native engine on arrays.
#[pyfunction]
#[pyo3(signature = (given, *, train, test, classes, uncovered, directory, resume, observer))]
#[allow(clippy::too_many_arguments)]
pub fn train_native<'py>(
    py: Python<'py>,
    given: &Bound<'py, PyDict>,
    train: Labelled<'py>,
    test: Option<Labelled<'py>>,
    classes: Option<usize>,
    uncovered: Vec<String>,
    directory: PathBuf,
    resume: bool,
    observer: Py<PyAny>,
) -> PyResult<Bound<'py, PyDict>> {
    let raw = settings::read(given)?;
    let train = labelled(&train, classes)?;
    let test = test.map(|test| labelled(&test, classes)).transpose()?;
    let name = raw.data.clone().unwrap_or_else(|| "arrays".into());
    let slot = Slot::default();
    let mut watcher = Watcher { observer, slot: slot.clone() };
    let trained = py.detach(move || -> Result<_, Error> {
        let mut inputs = RunData::in_memory(name, train, test)?;
        inputs.uncovered = uncovered;
        let prepared = Prepared::with(inputs, &raw, &mut watcher)?;
        let run = if resume { prepared.resume(&directory)? } else { prepared.start(Some(directory))? };
        run.train(&mut watcher)
    });
    match (trained, slot.take()) {
        (Err(error), _) => Err(raised(py, error)),
        (Ok(_), Some(error)) => Err(error),
        (Ok(outcome), None) => told(py, outcome),
    }
}

/// The weights that a run with a seed starts from, as a safetensors file.
#[pyfunction]
#[pyo3(signature = (given, *, train, classes, seed))]
pub fn initial_weights<'py>(
    py: Python<'py>,
    given: &Bound<'py, PyDict>,
    train: Labelled<'py>,
    classes: Option<usize>,
    seed: u64,
) -> PyResult<Bound<'py, PyBytes>> {
    let raw = settings::read(given)?;
    let inputs = RunData::in_memory("arrays", labelled(&train, classes)?, None);
    let prepared = inputs.and_then(|inputs| Prepared::with(inputs, &raw, &mut ()));
    let network = prepared.map_err(|error| raised(py, error))?.network;
    let weights = dpsgd::prepare::initial(&network, &Randomness::from_seed(seed, 0));
    let bytes = network.to_safetensors(&weights, HashMap::new()).map_err(refused)?;
    Ok(PyBytes::new(py, &bytes))
}

/// The scores of new samples by the model of a run: one row of probabilities, or one value, for each.
#[pyfunction]
#[pyo3(signature = (directory, x, classes, threads=1))]
pub fn predict<'py>(
    py: Python<'py>,
    directory: PathBuf,
    x: PyReadonlyArrayDyn<'py, f32>,
    classes: Option<usize>,
    threads: usize,
) -> PyResult<(usize, Bound<'py, PyArray1<f32>>)> {
    let count = x.shape().first().copied().unwrap_or(0);
    let targets = match classes {
        Some(classes) => Targets::Classes { labels: vec![0; count], classes },
        None => Targets::Values(vec![0.0; count]),
    };
    let samples = samples(&x, targets)?;
    let scores = py.detach(|| SavedRun::open(&directory)?.predict(samples, threads));
    let scores = scores.map_err(|error| raised(py, error))?;
    let width = scores.first().map_or(0, Vec::len);
    Ok((width, scores.concat().into_pyarray(py)))
}

/// Models whose rows a Python object computes, for the audit.
struct PythonSubject {
    /// Makes the object that computes the rows of a [`PythonModel`] from the gradients of all samples, N × d.
    make: Py<PyAny>,
    /// Who computes, for people.
    name: String,
    chunk: NonZeroUsize,
    random: bool,
}

impl Subject for PythonSubject {
    type Model = PythonModel;

    fn model(&self, dimension: usize, gradients: &[f32]) -> Result<Arc<PythonModel>, ModelError> {
        let samples = gradients.len() / dimension;
        let made = Python::attach(|py| {
            let gradients = PyArray1::from_slice(py, gradients).reshape([samples, dimension])?;
            self.make.call1(py, (gradients,))
        });
        let worker = made.map_err(ModelError::caused_by)?;
        let (chunk, random) = (self.chunk, self.random);
        Ok(Arc::new(PythonModel { dimension, samples, chunk, window: None, random, worker }))
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}

/// Audits the mechanism of a run, phase by phase: its statement, its JSON, its page and what contradicts the claim.
///
/// With a `subject`, the object that it makes computes the gradients that the audit chooses, in the way of the worker of
/// `train_model`.
#[pyfunction]
#[pyo3(signature = (given, *, seconds, trials, subject=None, name="Python", chunk=1, random=false))]
#[allow(clippy::too_many_arguments)]
pub fn audit(
    py: Python<'_>,
    given: &Bound<'_, PyDict>,
    seconds: f64,
    trials: Option<u64>,
    subject: Option<Py<PyAny>>,
    name: &str,
    chunk: usize,
    random: bool,
) -> PyResult<(String, String, String, Vec<String>)> {
    let settings = settings::read(given)?.resolve().map_err(refused)?;
    let effort = match trials {
        Some(trials) => Effort::Trials(trials),
        None if (1.0..=86_400.0).contains(&seconds) => Effort::Time(Duration::from_secs_f64(seconds)),
        None => return Err(refused(format!("seconds = {seconds}: between 1 and 86400"))),
    };
    // The interpreter is one: trials in Python run on the thread that called.
    let threads = if subject.is_some() { 1 } else { settings.threads };
    let options = Options { effort, seed: settings.seed, threads, delta: settings.budget.delta };
    let plan = settings.plan().map_err(refused)?;
    let chunk = NonZeroUsize::new(chunk).ok_or_else(|| refused("chunk = 0: at least 1"))?;
    let subject = subject.map(|make| PythonSubject { make, name: name.into(), chunk, random });
    let found = py.detach(|| match &subject {
        Some(subject) => dpsgd::audit::audit_model(&plan, &options, subject),
        None => dpsgd::audit::audit_phases(&plan, &options),
    });
    let audits = found.map_err(|error| match &error {
        AuditError::Round(RoundError::Model { source, .. }) | AuditError::Subject(source) => {
            let cause = source.cause().and_then(|cause| cause.downcast_ref::<PyErr>());
            cause.map_or_else(|| refused(&error), |cause| cause.clone_ref(py))
        }
        _ => raised(py, error.into()),
    })?;
    let several = audits.len() > 1;
    let (mut statement, mut pages, mut values, mut contradictions) =
        (String::new(), Vec::new(), Vec::new(), Vec::new());
    for (i, found) in audits.into_iter().enumerate() {
        // The claim for the whole run, where it is one phase; that of the phase elsewhere.
        let (configured, sizes) = match several {
            false => {
                (settings.mechanism.clone(), Sizes { samples: settings.samples, groups: settings.groups })
            }
            true => (found.configured.clone(), Sizes::default()),
        };
        let report = AuditReport::new(configured, sizes, found, settings.seed.is_some());
        if several {
            statement.push_str(&format!("PHASE {}\n\n", i + 1));
        }
        statement.push_str(&report.statement());
        pages.push(report.html());
        values.push(report.json());
        contradictions.extend(report.contradictions());
    }
    let value = match several {
        false => values.swap_remove(0),
        true => serde_json::json!({ "phases": values }),
    };
    Ok((statement, value.to_string(), pages.join("\n"), contradictions))
}
