//! A model whose gradients the audit chooses, and that writes down which samples the trainer asked it about.

use std::sync::{Mutex, MutexGuard, PoisonError};

use dpsgd_train::{Model, Worker, clip};

/// A model of N samples, the gradient of each a function of the sample and of w.
///
/// What the trainer asks for is written down sample by sample. With one thread these are the samples of a round
/// in their order, group after group, whichever way the trainer takes: whole groups, parts of large ones, or one
/// sample at a time. So what an adversary who knows the sampling knows is taken from the production path itself.
pub struct Probe<F> {
    dimension: usize,
    samples: usize,
    gradient: F,
    asked: Mutex<Vec<u32>>,
}

impl<F: Fn(u32, &[f32], &mut [f32]) + Sync> Probe<F> {
    /// `gradient(i, w, sum)` adds the gradient of sample i at w to `sum`.
    pub fn new(dimension: usize, samples: usize, gradient: F) -> Self {
        Self { dimension, samples, gradient, asked: Mutex::new(Vec::new()) }
    }

    fn asked(&self) -> MutexGuard<'_, Vec<u32>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The samples asked about since the last call, into `samples`.
    pub fn take_asked(&self, samples: &mut Vec<u32>) {
        samples.clear();
        samples.append(&mut self.asked());
    }
}

/// What one thread needs.
pub struct ProbeWorker<'a, F> {
    probe: &'a Probe<F>,
    weights: Vec<f32>,
    gradient: Vec<f32>,
}

impl<F: Fn(u32, &[f32], &mut [f32]) + Sync> Model for Probe<F> {
    type Worker<'a>
        = ProbeWorker<'a, F>
    where
        F: 'a;

    fn dimension(&self) -> usize {
        self.dimension
    }

    fn samples(&self) -> usize {
        self.samples
    }

    fn worker(&self) -> ProbeWorker<'_, F> {
        let zero = || vec![0.0; self.dimension];
        ProbeWorker { probe: self, weights: zero(), gradient: zero() }
    }
}

impl<F: Fn(u32, &[f32], &mut [f32])> ProbeWorker<'_, F> {
    fn mean(&self, group: &[u32], gradient: &mut [f32]) {
        gradient.fill(0.0);
        for &sample in group {
            (self.probe.gradient)(sample, &self.weights, gradient);
        }
        let share = 1.0 / group.len() as f32;
        gradient.iter_mut().for_each(|g| *g *= share);
    }
}

impl<F: Fn(u32, &[f32], &mut [f32]) + Sync> Worker for ProbeWorker<'_, F> {
    fn weights_mut(&mut self) -> &mut [f32] {
        &mut self.weights
    }

    fn gradient(&mut self, group: &[u32], gradient: &mut [f32]) -> f32 {
        self.probe.asked().extend_from_slice(group);
        self.mean(group, gradient);
        0.0
    }

    fn add_scaled(
        &mut self,
        samples: &[u32],
        size: usize,
        scale: &mut dyn FnMut(f32) -> f32,
        sum: &mut [f32],
    ) -> f32 {
        self.probe.asked().extend_from_slice(samples);
        let mut gradient = std::mem::take(&mut self.gradient);
        for group in samples.chunks_exact(size) {
            self.mean(group, &mut gradient);
            let factor = scale(clip::norm(&gradient) as f32);
            for (total, &g) in sum.iter_mut().zip(&gradient) {
                *total += factor * g;
            }
        }
        self.gradient = gradient;
        0.0
    }
}

/// A ledger that permits everything: what the ledger does is audited by itself.
pub struct Permit;

impl dpsgd_train::Charge for Permit {
    type Error = std::convert::Infallible;

    fn charge(&mut self, _round: u64) -> Result<(), Self::Error> {
        Ok(())
    }
}
