//! A model from one function: the loss and the gradient of one sample.

use std::sync::Arc;

use dpsgd_train::{Model, ModelError, Worker};

/// A model given by the loss and the gradient of one sample.
///
/// The function gets w, the number of a sample and a vector of zeros or of other samples' gradients; it
/// **adds** the gradient of the sample to it and returns the loss.
///
/// # Guarantee
/// The function must depend on w and on its own sample only, and remember nothing: the guarantee of a run
/// rests on it.
///
/// ```
/// use dpsgd::PerSample;
/// // The mean of private numbers: loss ½(w − x)².
/// let numbers = vec![1.0, 2.0, 6.0];
/// let model = PerSample::new(1, numbers.len(), move |w, i, gradient| {
///     let error = w[0] - numbers[i as usize];
///     gradient[0] += error;
///     Ok(0.5 * error * error)
/// });
/// ```
#[derive(Clone, Debug)]
pub struct PerSample<F> {
    dimension: usize,
    samples: usize,
    function: F,
}

impl<F> PerSample<F>
where
    F: Fn(&[f32], u32, &mut [f32]) -> Result<f32, ModelError> + Send + Sync + 'static,
{
    /// With d parameters and N samples.
    pub fn new(dimension: usize, samples: usize, function: F) -> Self {
        Self { dimension, samples, function }
    }
}

impl<F> Model for PerSample<F>
where
    F: Fn(&[f32], u32, &mut [f32]) -> Result<f32, ModelError> + Send + Sync + 'static,
{
    type Worker = PerSampleWorker<F>;

    fn dimension(&self) -> usize {
        self.dimension
    }

    fn samples(&self) -> usize {
        self.samples
    }

    fn worker(self: &Arc<Self>, _group_size: usize) -> Result<Self::Worker, ModelError> {
        Ok(PerSampleWorker { model: Arc::clone(self), weights: vec![0.0; self.dimension] })
    }
}

/// The state of one thread of a [`PerSample`] model.
#[derive(Debug)]
pub struct PerSampleWorker<F> {
    model: Arc<PerSample<F>>,
    weights: Vec<f32>,
}

impl<F> Worker for PerSampleWorker<F>
where
    F: Fn(&[f32], u32, &mut [f32]) -> Result<f32, ModelError> + Send + Sync + 'static,
{
    fn weights_mut(&mut self) -> &mut [f32] {
        &mut self.weights
    }

    fn gradient(&mut self, group: &[u32], gradient: &mut [f32]) -> Result<f32, ModelError> {
        gradient.fill(0.0);
        let mut losses = 0.0;
        for &sample in group {
            losses += (self.model.function)(&self.weights, sample, gradient)?;
        }
        let share = 1.0 / group.len() as f32;
        gradient.iter_mut().for_each(|g| *g *= share);
        Ok(losses * share)
    }
}
