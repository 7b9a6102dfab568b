//! A model whose gradients the audit chooses, and that records which samples the trainer asked it about.

use std::sync::Arc;

use dpsgd_train::{Model, ModelError, Worker, clip};

use crate::asked::{self, Asked};

/// A model of N samples, the gradient of each a function of the sample and of w.
///
/// What the trainer asks for is recorded sample by sample. With one thread these are the samples of a round
/// in their order, group after group, whichever way the trainer takes: whole groups, parts of large ones, or
/// one sample at a time. So what an adversary who knows the sampling knows comes from the production path
/// itself.
pub struct Probe<F> {
    dimension: usize,
    samples: usize,
    gradient: F,
}

impl<F: Fn(u32, &[f32], &mut [f32]) + Send + Sync + 'static> Probe<F> {
    /// `gradient(i, w, sum)` adds the gradient of sample i at w to `sum`.
    pub fn new(dimension: usize, samples: usize, gradient: F) -> Arc<Self> {
        asked::take(&mut Asked::default());
        Arc::new(Self { dimension, samples, gradient })
    }

    /// The samples used on this thread since the last call, into `asked`.
    pub fn take_asked(&self, asked: &mut Asked) {
        asked::take(asked);
    }
}

/// What one thread needs.
pub struct ProbeWorker<F> {
    probe: Arc<Probe<F>>,
    weights: Vec<f32>,
    gradient: Vec<f32>,
}

impl<F: Fn(u32, &[f32], &mut [f32]) + Send + Sync + 'static> Model for Probe<F> {
    type Worker = ProbeWorker<F>;

    fn dimension(&self) -> usize {
        self.dimension
    }

    fn samples(&self) -> usize {
        self.samples
    }

    fn worker(self: &Arc<Self>, _group_size: usize) -> Result<ProbeWorker<F>, ModelError> {
        let zero = || vec![0.0; self.dimension];
        Ok(ProbeWorker { probe: self.clone(), weights: zero(), gradient: zero() })
    }
}

impl<F: Fn(u32, &[f32], &mut [f32])> ProbeWorker<F> {
    fn mean(&self, group: &[u32], gradient: &mut [f32]) {
        gradient.fill(0.0);
        for &sample in group {
            (self.probe.gradient)(sample, &self.weights, gradient);
        }
        let share = 1.0 / group.len() as f32;
        gradient.iter_mut().for_each(|g| *g *= share);
    }
}

impl<F: Fn(u32, &[f32], &mut [f32]) + Send + Sync + 'static> Worker for ProbeWorker<F> {
    fn weights_mut(&mut self) -> &mut [f32] {
        &mut self.weights
    }

    fn gradient(&mut self, group: &[u32], gradient: &mut [f32]) -> Result<f32, ModelError> {
        asked::record(group);
        self.mean(group, gradient);
        Ok(0.0)
    }

    fn add_scaled(
        &mut self,
        samples: &[u32],
        size: usize,
        scale: &mut dyn FnMut(f32) -> f32,
        sum: &mut [f32],
    ) -> Result<f32, ModelError> {
        asked::record(samples);
        let mut gradient = std::mem::take(&mut self.gradient);
        for group in samples.chunks_exact(size) {
            self.mean(group, &mut gradient);
            let factor = scale(clip::norm(&gradient) as f32);
            for (total, &g) in sum.iter_mut().zip(&gradient) {
                *total += factor * g;
            }
        }
        self.gradient = gradient;
        Ok(0.0)
    }
}
