//! A run that Python watches and measures.

use std::sync::{Arc, Mutex};

use dpsgd::report::run::{Baseline, Measurement};
use dpsgd::{Evaluate, Evaluation, Observer, Outlook};
use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The first exception of a callback. It ends the run after the current round and is raised again at the end.
#[derive(Clone, Default)]
pub struct Slot(Arc<Mutex<Option<PyErr>>>);

impl Slot {
    fn keep(&self, error: PyErr) {
        let mut slot = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        slot.get_or_insert(error);
    }

    fn is_taken(&self) -> bool {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).is_some()
    }

    /// The exception, if there was one.
    pub fn take(&self) -> Option<PyErr> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take()
    }
}

/// An observer in Python with the methods `begins`, `round`, `measured`, `stop`, `end` and `ends`.
pub struct Watcher {
    pub observer: Py<PyAny>,
    pub slot: Slot,
}

impl Watcher {
    fn call<T: Default>(&self, act: impl FnOnce(Python<'_>, &Bound<'_, PyAny>) -> PyResult<T>) -> T {
        if self.slot.is_taken() {
            return T::default();
        }
        Python::attach(|py| act(py, self.observer.bind(py))).unwrap_or_else(|error| {
            self.slot.keep(error);
            T::default()
        })
    }
}

/// A measurement as a dictionary.
fn measured<'py>(py: Python<'py>, measurement: &Measurement) -> PyResult<Bound<'py, PyAny>> {
    let text = serde_json::to_string(measurement).unwrap_or_default();
    py.import("json")?.call_method1("loads", (text,))
}

impl Observer for Watcher {
    fn warns(&mut self, warning: &str) {
        self.call(|py, _| py.import("warnings")?.call_method1("warn", (warning,)).map(drop));
    }

    fn begins(&mut self, outlook: &Outlook<'_>) {
        self.call(|py, observer| {
            let said = PyDict::new(py);
            said.set_item("directory", outlook.directory)?;
            said.set_item("next", outlook.next)?;
            said.set_item("rounds", outlook.rounds)?;
            said.set_item("epochs", outlook.epochs)?;
            said.set_item("note", outlook.note)?;
            observer.call_method1("begins", (said,)).map(drop)
        });
    }

    fn round(&mut self, next: u64) {
        self.call(|py, observer| {
            // Ctrl-C between two calls of the model.
            py.check_signals()?;
            observer.call_method1("round", (next,)).map(drop)
        });
    }

    fn measured(&mut self, measurement: &Measurement) {
        self.call(|py, observer| observer.call_method1("measured", (measured(py, measurement)?,)).map(drop));
    }

    fn wants_to_stop(&mut self) -> bool {
        let asked = self.call(|_, observer| observer.call_method0("stop")?.is_truthy());
        asked || self.slot.is_taken()
    }

    fn wants_to_end(&mut self) -> bool {
        self.call(|_, observer| observer.call_method0("end")?.is_truthy())
    }

    fn ends(&mut self) {
        self.call(|_, observer| observer.call_method0("ends").map(drop));
    }
}

/// Measures weights by the method `evaluate(weights, clip)` of a Python object.
pub struct PythonTest {
    pub test: Py<PyAny>,
    pub samples: u64,
    pub baseline: Option<Baseline>,
    pub slot: Slot,
}

impl Evaluate for PythonTest {
    fn samples(&self) -> u64 {
        self.samples
    }

    fn evaluate(&mut self, weights: &[f32], clip: f64) -> Evaluation {
        let seen = Python::attach(|py| {
            let weights = PyArray1::from_slice(py, weights);
            let answer = self.test.bind(py).call_method1("evaluate", (weights, clip))?;
            answer.extract::<(f64, Option<f64>, f64)>()
        });
        match seen {
            Ok((loss, accuracy, clipped)) => Evaluation { loss, accuracy, clipped, ..Default::default() },
            Err(error) => {
                self.slot.keep(error);
                Evaluation { loss: f64::NAN, clipped: f64::NAN, ..Default::default() }
            }
        }
    }

    fn baseline(&self) -> Option<Baseline> {
        self.baseline
    }
}
