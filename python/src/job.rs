//! A run of a Python model, with ledger, budget, checkpoints, resume and report.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dpsgd::report::run::Baseline;
use dpsgd::{Error, Job, Outcome};
use numpy::{IntoPyArray, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use safetensors::tensor::{Dtype, TensorView, serialize};

use crate::errors::{raised, refused};
use crate::federated::Visit;
use crate::model::PythonModel;
use crate::settings;
use crate::watch::{PythonTest, Slot, Watcher};

/// A tensor of the saved model: a stretch of the weights, or values that training leaves alone.
struct Tensor {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    /// Where it begins in the weights; nothing for `bytes`.
    offset: Option<usize>,
    bytes: Vec<u8>,
}

impl Tensor {
    fn of(given: &Bound<'_, PyAny>) -> PyResult<Self> {
        let (name, dtype, shape, offset, bytes): (
            String,
            String,
            Vec<usize>,
            Option<usize>,
            Option<Bound<'_, PyBytes>>,
        ) = given.extract()?;
        let dtype = serde_json::from_value(serde_json::Value::String(dtype.clone()))
            .map_err(|_| refused(format!("{name}: {dtype} cannot be saved")))?;
        let bytes = bytes.map(|bytes| bytes.as_bytes().to_vec()).unwrap_or_default();
        Ok(Self { name, dtype, shape, offset, bytes })
    }

    fn filled(&self, weights: &[f32]) -> Vec<u8> {
        match self.offset {
            None => self.bytes.clone(),
            Some(offset) => {
                let length: usize = self.shape.iter().product();
                let mine = weights.get(offset..offset + length).unwrap_or_default();
                mine.iter().flat_map(|w| w.to_le_bytes()).collect()
            }
        }
    }
}

fn exported(tensors: &[Tensor], weights: &[f32], texts: HashMap<String, String>) -> Result<Vec<u8>, String> {
    let filled: Vec<Vec<u8>> = tensors.iter().map(|tensor| tensor.filled(weights)).collect();
    let views = tensors.iter().zip(&filled).map(|(tensor, bytes)| {
        let view = TensorView::new(tensor.dtype, tensor.shape.clone(), bytes);
        view.map(|view| (tensor.name.as_str(), view)).map_err(|error| format!("{}: {error}", tensor.name))
    });
    let views = views.collect::<Result<Vec<_>, _>>()?;
    serialize(views, Some(texts)).map_err(|error| error.to_string())
}

/// What a call of `train` came to, as a dictionary.
pub fn told<'py>(py: Python<'py>, outcome: Outcome) -> PyResult<Bound<'py, PyDict>> {
    let said = PyDict::new(py);
    said.set_item("directory", outcome.directory)?;
    said.set_item("finished", outcome.finished)?;
    said.set_item("statement", outcome.statement)?;
    said.set_item("summary", py.import("json")?.call_method1("loads", (outcome.summary.to_string(),))?)?;
    said.set_item("not_finite", outcome.not_finite)?;
    said.set_item("rounds_charged", outcome.account.mechanism.rounds())?;
    let guarantees = outcome.account.guarantees.iter();
    let epsilons = guarantees.map(|one| (one.adversary.name(), (one.answer.lower, one.answer.upper)));
    said.set_item("guarantees", epsilons.collect::<HashMap<_, _>>())?;
    said.set_item("weights", outcome.weights.into_pyarray(py))?;
    Ok(said)
}

/// A call of a federation, the most rounds to perform, and the seconds of each.
fn called(
    py: Python<'_>,
    visit: Py<Visit>,
    rounds: u64,
    pace: Option<f64>,
) -> PyResult<(dpsgd_federated::Visit, u64, Option<Duration>)> {
    let pace = pace.map(|seconds| {
        let wrong = || refused(format!("pace = {seconds}: seconds, above 0"));
        Duration::try_from_secs_f64(seconds).ok().filter(|pace| !pace.is_zero()).ok_or_else(wrong)
    });
    Ok((visit.borrow(py).call.clone(), rounds, pace.transpose()?))
}

/// Trains a model whose rows Python computes, in the directory of the run.
///
/// Begins the run, or with `resume` continues it, as a client of a federation with a `visit`; the result says whether it finished. An exception of the
/// model ends the call: its round is spent, everything before it is saved. `data` is a digest of the training samples,
/// where they can be read: a run is resumed on the same ones only. With a `window` the worker gives the sums of units,
/// of so many blocks at a time.
#[pyfunction]
#[pyo3(signature = (given, *, worker, samples, chunk, weights, tensors, directory, resume, observer, test, test_samples, baseline=None, visit=None, random=false, data=None, window=None))]
#[allow(clippy::too_many_arguments)]
pub fn train_model<'py>(
    py: Python<'py>,
    given: &Bound<'py, PyDict>,
    worker: Py<PyAny>,
    samples: usize,
    chunk: usize,
    weights: PyReadonlyArray1<'py, f32>,
    tensors: Vec<Bound<'py, PyAny>>,
    directory: PathBuf,
    resume: bool,
    observer: Py<PyAny>,
    test: Py<PyAny>,
    test_samples: u64,
    baseline: Option<(Option<f64>, Option<f64>)>,
    visit: Option<(Py<Visit>, u64, Option<f64>)>,
    random: bool,
    data: Option<Vec<u8>>,
    window: Option<usize>,
) -> PyResult<Bound<'py, PyDict>> {
    let settings = settings::read(given)?.resolve().map_err(refused)?;
    let visit = visit.map(|(visit, rounds, pace)| called(py, visit, rounds, pace)).transpose()?;
    let mut weights = weights.as_slice()?.to_vec();
    if let Some((call, ..)) = &visit {
        call.check(&settings).map_err(|error| raised(py, error))?;
        if call.weights().len() != weights.len() {
            let (own, agreed) = (weights.len(), call.weights().len());
            return Err(refused(format!(
                "the model has {own} parameters, the terms of the federation say {agreed}"
            )));
        }
        // What a new run starts from; a run that goes on has its own.
        weights = call.weights().to_vec();
    }
    let chunk = NonZeroUsize::new(chunk).ok_or_else(|| refused("chunk = 0: at least 1"))?;
    let window =
        window.map(|window| NonZeroUsize::new(window).ok_or_else(|| refused("window = 0: at least 1")));
    let window = window.transpose()?;
    let model = Arc::new(PythonModel { dimension: weights.len(), samples, chunk, window, random, worker });
    let tensors = tensors.iter().map(Tensor::of).collect::<PyResult<Vec<_>>>()?;
    let slot = Slot::default();
    let baseline = baseline.map(|(accuracy, loss)| Baseline { accuracy, loss });
    let test = PythonTest { test, samples: test_samples, baseline, slot: slot.clone() };
    let mut watcher = Watcher { observer, slot: slot.clone() };
    let trained = py.detach(move || -> Result<Outcome, Error> {
        let job = Job::new(settings, model, weights)
            .tested_by(test)
            .exported_by(move |weights, texts| exported(&tensors, weights, texts));
        let job = match &data {
            Some(digest) => job.on_data(digest),
            None => job,
        };
        let run = if resume { job.resume(&directory)? } else { job.start(&directory)? };
        match visit {
            None => run.train(&mut watcher),
            Some((call, rounds, pace)) => call.train(run, rounds, pace, &mut watcher),
        }
    });
    match (trained, slot.take()) {
        (Err(error), _) => Err(raised(py, error)),
        // A callback failed: the run has stopped and saved what it had.
        (Ok(_), Some(error)) => Err(error),
        (Ok(outcome), None) => told(py, outcome),
    }
}
