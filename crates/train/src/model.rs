//! What Algorithm 1 asks of a model: the mean gradient of a group of samples at given parameters.

use crate::clip;

/// A model as Algorithm 1 sees it: flat parameters and numbered training samples.
pub trait Model: Sync {
    /// The state of one thread.
    type Worker<'a>: Worker
    where
        Self: 'a;

    /// d, the number of parameters.
    fn dimension(&self) -> usize;

    /// N, the number of training samples; they are named 0..N.
    fn samples(&self) -> usize;

    /// Whether a group's mean gradient is the mean of its samples' gradients (false with batch
    /// normalisation); if so, the trainer may split a large group over threads.
    fn separable(&self) -> bool {
        true
    }

    /// What one thread needs; made once per thread.
    fn worker(&self) -> Self::Worker<'_>;
}

/// Gradients on one thread. The result of a call may depend on the parameters and on the samples
/// of the group only, never on an earlier call: the guarantee rests on it.
pub trait Worker: Send {
    /// The parameters at which the next gradients are taken (length d), to be overwritten in place.
    fn weights_mut(&mut self) -> &mut [f32];

    /// Overwrites `gradient` (length d) with the mean gradient over the samples of `group`;
    /// returns the mean loss.
    fn gradient(&mut self, group: &[u32], gradient: &mut [f32]) -> f32;

    /// For every consecutive `size` samples of `samples` (a group): g = mean gradient,
    /// factor = scale(‖g‖), `sum += factor·g`. A factor of 0 adds nothing at all, even if g is
    /// NaN or infinite; scale is called exactly once per group, in order. Returns the sum over
    /// groups of the mean losses.
    ///
    /// The norm handed to `scale` must be within a relative [`clip::NORM_ERROR`] of the true one.
    ///
    /// Provided by [`Worker::gradient`]; an engine that never materialises a group's gradient is
    /// much faster.
    fn add_scaled(
        &mut self,
        samples: &[u32],
        size: usize,
        scale: &mut dyn FnMut(f32) -> f32,
        sum: &mut [f32],
    ) -> f32 {
        let mut gradient = vec![0.0; sum.len()];
        let mut losses = 0.0;
        for group in samples.chunks_exact(size) {
            losses += self.gradient(group, &mut gradient);
            let factor = scale(clip::norm(&gradient) as f32);
            if factor != 0.0 {
                for (total, &g) in sum.iter_mut().zip(&gradient) {
                    *total += factor * g;
                }
            }
        }
        losses
    }
}
