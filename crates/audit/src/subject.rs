//! A model of somebody else's that the audit attacks: gradients that the audit chooses, by the way in which the models of
//! that runtime are computed.
//!
//! Without a subject the trials use [`Probe`](crate::probe::Probe), which is one of our own. A runtime with another form
//! (rows of whole batches, from another language) takes other ways through the trainer, and can get things wrong that
//! ours cannot: rows that mix groups, come in another order, or are those of another call.

use std::sync::Arc;

use dpsgd_train::share::{Block, UnitSink};
use dpsgd_train::{Form, Model, ModelError, RowSink, SampleBits, Worker};

use crate::asked;

/// Makes the models that are attacked.
pub trait Subject: Sync {
    /// What it makes.
    type Model: Model;

    /// A model whose gradient at every w is, for sample i, the i-th stretch of `dimension` numbers.
    fn model(&self, dimension: usize, gradients: &[f32]) -> Result<Arc<Self::Model>, ModelError>;

    /// Who computes the gradients, for people.
    fn name(&self) -> String;
}

/// A model that records which samples the trainer asks it about, on the thread on which it asks.
pub struct Recorded<M> {
    model: Arc<M>,
}

impl<M: Model> Recorded<M> {
    /// Records for this model.
    pub fn new(model: Arc<M>) -> Arc<Self> {
        Arc::new(Self { model })
    }
}

impl<M: Model> Model for Recorded<M> {
    type Worker = RecordedWorker<M::Worker>;

    fn dimension(&self) -> usize {
        self.model.dimension()
    }

    fn samples(&self) -> usize {
        self.model.samples()
    }

    fn separable(&self) -> bool {
        self.model.separable()
    }

    fn is_random(&self) -> bool {
        self.model.is_random()
    }

    fn form(&self) -> Form {
        self.model.form()
    }

    fn worker(self: &Arc<Self>, group_size: usize) -> Result<Self::Worker, ModelError> {
        Ok(RecordedWorker(self.model.worker(group_size)?))
    }
}

/// The worker of a [`Recorded`].
pub struct RecordedWorker<W>(W);

impl<W: Worker> Worker for RecordedWorker<W> {
    fn weights_mut(&mut self) -> &mut [f32] {
        self.0.weights_mut()
    }

    fn seed(&mut self, seeds: &[u64]) {
        self.0.seed(seeds);
    }

    fn prepare(&mut self, samples: &[u32], bits: &SampleBits<'_>) {
        self.0.prepare(samples, bits);
    }

    fn gradient(&mut self, group: &[u32], gradient: &mut [f32]) -> Result<f32, ModelError> {
        asked::record(group);
        self.0.gradient(group, gradient)
    }

    fn add_scaled(
        &mut self,
        samples: &[u32],
        size: usize,
        scale: &mut dyn FnMut(f32) -> f32,
        sum: &mut [f32],
    ) -> Result<f32, ModelError> {
        asked::record(samples);
        self.0.add_scaled(samples, size, scale, sum)
    }

    fn rows(&mut self, samples: &[u32], size: usize, sink: &mut RowSink<'_>) -> Result<(), ModelError> {
        samples.chunks(size).for_each(asked::record);
        self.0.rows(samples, size, sink)
    }

    fn units(
        &mut self,
        blocks: &[Block],
        bound: f64,
        chunk: std::num::NonZeroUsize,
        sink: &mut UnitSink<'_>,
    ) -> Result<(), ModelError> {
        blocks.iter().for_each(|block| asked::record(&block.samples));
        self.0.units(blocks, bound, chunk, sink)
    }
}
