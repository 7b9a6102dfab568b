//! A model in Python as Algorithm 1 sees it.

use std::num::NonZeroUsize;
use std::sync::Arc;

use dpsgd::train::share::{Block, UnitSink};
use dpsgd::train::{Form, Model, ModelError, RowSink, Worker};
use numpy::{PyArray1, PyReadonlyArray1, PyReadonlyArrayDyn, PyReadwriteArray1};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::share;

/// A model whose rows a Python object computes.
///
/// The object has an attribute `flat`, a float32 array of length d which this side overwrites with the
/// parameters, and a method `blocks(samples, size)` that gives the rows of all groups in order, as an iterable of blocks:
/// one k × d_p float32 array for each parameter and the k losses. A model that draws at random gets a third argument,
/// a seed below 2⁶³ for everything it draws in that call.
///
/// With a `window` it has another method, `units(blocks, bound, chunk)`, which gives the sums of the units of each of
/// at most so many blocks as [`Share::sum`](crate::share::Share) makes them, here or in another process.
pub struct PythonModel {
    pub dimension: usize,
    pub samples: usize,
    pub chunk: NonZeroUsize,
    pub window: Option<NonZeroUsize>,
    /// Whether it draws at random (dropout).
    pub random: bool,
    pub worker: Py<PyAny>,
}

impl Model for PythonModel {
    type Worker = PythonWorker;

    fn dimension(&self) -> usize {
        self.dimension
    }

    fn samples(&self) -> usize {
        self.samples
    }

    fn is_random(&self) -> bool {
        self.random
    }

    fn form(&self) -> Form {
        match self.window {
            Some(window) => Form::Units { chunk: self.chunk, window },
            None => Form::Rows { chunk: self.chunk },
        }
    }

    fn worker(self: &Arc<Self>, _group_size: usize) -> Result<PythonWorker, ModelError> {
        let worker = Python::attach(|py| self.worker.clone_ref(py));
        Ok(PythonWorker::new(worker, vec![0.0; self.dimension], self.random))
    }
}

/// The one worker of a [`PythonModel`], on the thread that called the trainer.
pub struct PythonWorker {
    worker: Py<PyAny>,
    weights: Vec<f32>,
    /// The seed of the first group of the next call, and the calls since it was given.
    random: Option<(u64, u64)>,
}

impl PythonWorker {
    pub fn new(worker: Py<PyAny>, weights: Vec<f32>, random: bool) -> Self {
        Self { worker, weights, random: random.then_some((0, 0)) }
    }

    fn put_weights(&self, worker: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut flat: PyReadwriteArray1<'_, f32> = worker.getattr("flat")?.extract()?;
        flat.as_slice_mut()?.copy_from_slice(&self.weights);
        Ok(())
    }

    /// The seed of the next call, in the range of PyTorch's generators.
    ///
    /// # Guarantee
    /// Uniform and secret, independent between rounds and between the calls of a round, and of no data: so what
    /// is drawn for different groups is independent and identically distributed, whoever else is in the batch
    /// and whatever was drawn before. PyTorch's own generator has a state that others may know, and one
    /// sample more in a batch would change what it draws for all samples after it.
    fn next_seed(&mut self) -> Option<u64> {
        let (seed, calls) = self.random.as_mut()?;
        *calls += 1;
        // Further calls are about the same group; a seed that is uniform stays so.
        Some(seed.wrapping_add(calls.wrapping_mul(0x9e37_79b9_7f4a_7c15)) >> 1)
    }

    fn call(&mut self, samples: &[u32], size: usize, sink: &mut RowSink<'_>) -> PyResult<()> {
        let seed = self.next_seed();
        Python::attach(|py| {
            let worker = self.worker.bind(py);
            self.put_weights(worker)?;
            let names = PyArray1::from_slice(py, samples);
            let blocks = match seed {
                Some(seed) => worker.call_method1("blocks", (names, size, seed))?,
                None => worker.call_method1("blocks", (names, size))?,
            };
            for block in blocks.try_iter()? {
                let (stretches, losses): (Bound<'_, PyList>, PyReadonlyArray1<'_, f32>) = block?.extract()?;
                let held: Vec<PyReadonlyArrayDyn<'_, f32>> =
                    stretches.iter().map(|stretch| stretch.extract()).collect::<PyResult<_>>()?;
                let slices = held.iter().map(|held| held.as_slice()).collect::<Result<Vec<&[f32]>, _>>()?;
                let losses = losses.as_slice()?;
                // The object may be computing the next blocks, on other threads.
                py.detach(|| sink(&slices, losses));
            }
            Ok(())
        })
    }
}

impl Worker for PythonWorker {
    fn weights_mut(&mut self) -> &mut [f32] {
        &mut self.weights
    }

    fn seed(&mut self, seeds: &[u64]) {
        if let (Some(random), Some(first)) = (&mut self.random, seeds.first()) {
            *random = (*first, 0);
        }
    }

    fn gradient(&mut self, group: &[u32], gradient: &mut [f32]) -> Result<f32, ModelError> {
        let (mut filled, mut mean) = (0, f32::NAN);
        let done = self.call(group, group.len(), &mut |stretches, losses| {
            for stretch in stretches {
                if let Some(part) = gradient.get_mut(filled..filled + stretch.len()) {
                    part.copy_from_slice(stretch);
                }
                filled += stretch.len();
            }
            mean = losses.first().copied().unwrap_or(f32::NAN);
        });
        done.map_err(ModelError::caused_by)?;
        match filled == self.weights.len() {
            true => Ok(mean),
            false => Err(ModelError::new(format!(
                "the model wrote {filled} values of a gradient of {}",
                self.weights.len()
            ))),
        }
    }

    fn rows(&mut self, samples: &[u32], size: usize, sink: &mut RowSink<'_>) -> Result<(), ModelError> {
        self.call(samples, size, sink).map_err(ModelError::caused_by)
    }

    fn units(
        &mut self,
        blocks: &[Block],
        bound: f64,
        chunk: NonZeroUsize,
        sink: &mut UnitSink<'_>,
    ) -> Result<(), ModelError> {
        let asked = Python::attach(|py| {
            let worker = self.worker.bind(py);
            self.put_weights(worker)?;
            share::asked(py, worker, blocks, bound, chunk, sink)
        });
        asked.map_err(ModelError::caused_by)
    }
}
