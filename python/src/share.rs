//! The share of one process in the rounds of a run of several processes.

use std::num::NonZeroUsize;

use dpsgd::train::ModelError;
use dpsgd::train::clip::Counts;
use dpsgd::train::share::{Block, Sizes, UnitSink};
use numpy::{
    IntoPyArray, PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2,
    PyUntypedArrayMethods,
};
use pyo3::prelude::*;
use pyo3::types::PyList;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::errors::refused;
use crate::model::PythonWorker;

/// Samples, the size of each group or of all, groups of each unit, and seeds.
type Described<'py> = (
    Bound<'py, PyArray1<u32>>,
    Bound<'py, PyArray1<u64>>,
    Bound<'py, PyArray1<u64>>,
    Bound<'py, PyArray1<u64>>,
    bool,
);

/// A block as arrays, and whether its groups are cells, each of its own size.
fn described<'py>(py: Python<'py>, block: &Block) -> Described<'py> {
    let wide = |values: &[usize]| {
        let values: Vec<u64> = values.iter().map(|value| *value as u64).collect();
        values.into_pyarray(py)
    };
    let (sizes, cells) = match &block.sizes {
        Sizes::Same(size) => (wide(&[*size]), false),
        Sizes::Each(sizes) => (wide(sizes), true),
    };
    let samples = PyArray1::from_slice(py, &block.samples);
    (samples, sizes, wide(&block.units), PyArray1::from_slice(py, &block.seeds), cells)
}

/// One array for the sums of units, one for their counts (groups, clipped, not finite), one for losses.
type Sums<'py> = (PyReadonlyArray2<'py, f32>, PyReadonlyArray2<'py, u64>, PyReadonlyArray1<'py, f32>);

/// Hands the sums of a block to the trainer, as they came from whichever process.
fn hand_on(sums: &Bound<'_, PyAny>, sink: &mut UnitSink<'_>) -> PyResult<()> {
    let (values, counts, losses): Sums<'_> = sums.extract()?;
    let (units, dimension) = (values.shape()[0], values.shape()[1]);
    if counts.shape() != [units, 3] || losses.shape() != [units] {
        return Err(refused("the sums of units, their counts and their losses are not of the same number"));
    }
    let (values, counts, losses) = (values.as_slice()?, counts.as_slice()?, losses.as_slice()?);
    for (unit, loss) in losses.iter().enumerate() {
        let [groups, clipped, not_finite] = [0, 1, 2].map(|which| counts[3 * unit + which]);
        let values = &values[unit * dimension..(unit + 1) * dimension];
        sink(values, Counts { groups, clipped, not_finite }, *loss);
    }
    Ok(())
}

/// Clips and sums the groups of blocks in this process.
#[pyclass(frozen)]
pub struct Share {
    worker: Py<PyAny>,
    random: bool,
    pool: Option<ThreadPool>,
}

#[pymethods]
impl Share {
    /// `worker` computes rows, as that of a run does; `random` says whether it draws at random.
    #[new]
    #[pyo3(signature = (worker, *, random, threads))]
    fn new(worker: Py<PyAny>, random: bool, threads: Option<NonZeroUsize>) -> PyResult<Self> {
        let all = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let pool = match threads.map_or(all, NonZeroUsize::get) {
            1 => None,
            threads => Some(ThreadPoolBuilder::new().num_threads(threads).build().map_err(refused)?),
        };
        Ok(Self { worker, random, pool })
    }

    /// The sums of the units of a block at these weights, each group clipped to `bound`, with their counts and
    /// losses.
    ///
    /// # Guarantee
    /// [`Block::sum`]'s: the bits do not depend on the process. Weights must not be those of another
    /// round.
    #[pyo3(signature = (weights, bound, chunk, block))]
    #[allow(clippy::type_complexity)]
    fn sum<'py>(
        &self,
        py: Python<'py>,
        weights: PyReadonlyArray1<'py, f32>,
        bound: f64,
        chunk: NonZeroUsize,
        block: (
            PyReadonlyArray1<'py, u32>,
            PyReadonlyArray1<'py, u64>,
            PyReadonlyArray1<'py, u64>,
            PyReadonlyArray1<'py, u64>,
            bool,
        ),
    ) -> PyResult<(Bound<'py, PyArray2<f32>>, Bound<'py, PyArray2<u64>>, Bound<'py, PyArray1<f32>>)> {
        if !(bound > 0.0 && bound.is_finite()) {
            return Err(refused(format!("C = {bound}: above 0")));
        }
        let (samples, sizes, units, seeds, cells) = block;
        let narrow = |values: &[u64]| values.iter().map(|value| *value as usize).collect::<Vec<_>>();
        let sizes = match (cells, narrow(sizes.as_slice()?)) {
            (true, sizes) => Sizes::Each(sizes),
            (false, sizes) => Sizes::Same(sizes.first().copied().unwrap_or(0)),
        };
        let block = Block {
            samples: samples.as_slice()?.to_vec(),
            sizes,
            units: narrow(units.as_slice()?),
            seeds: seeds.as_slice()?.to_vec(),
        };
        let own = weights.as_slice()?.to_vec();
        let dimension = own.len();
        // They may be the very array that the worker takes its weights from, and will overwrite.
        drop(weights);
        let mut worker = PythonWorker::new(self.worker.clone_ref(py), own, self.random);
        let summed = py.detach(|| -> Result<_, ModelError> {
            let (mut sums, mut counts, mut losses) = (Vec::new(), Vec::new(), Vec::new());
            block.sum(&mut worker, bound, chunk.get(), self.pool.as_ref(), &mut |sum, counted, loss| {
                sums.extend_from_slice(sum);
                counts.extend([counted.groups, counted.clipped, counted.not_finite]);
                losses.push(loss);
            })?;
            Ok((sums, counts, losses))
        });
        let (sums, counts, losses) = summed.map_err(|error| {
            let cause = error.cause().and_then(|cause| cause.downcast_ref::<PyErr>());
            cause.map_or_else(|| refused(&error), |cause| cause.clone_ref(py))
        })?;
        let units = losses.len();
        Ok((
            sums.into_pyarray(py).reshape([units, dimension])?,
            counts.into_pyarray(py).reshape([units, 3])?,
            losses.into_pyarray(py),
        ))
    }
}

/// Asks the object of a worker that has other processes for the units of some blocks.
pub fn asked(
    py: Python<'_>,
    worker: &Bound<'_, PyAny>,
    blocks: &[Block],
    bound: f64,
    chunk: NonZeroUsize,
    sink: &mut UnitSink<'_>,
) -> PyResult<()> {
    let blocks = PyList::new(py, blocks.iter().map(|block| described(py, block)))?;
    let answer = worker.call_method1("units", (blocks, bound, chunk.get()))?;
    for sums in answer.try_iter()? {
        hand_on(&sums?, sink)?;
    }
    Ok(())
}
