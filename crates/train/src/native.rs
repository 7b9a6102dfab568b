//! The native engine as a model of Algorithm 1.

use dpsgd_engine::kernel::Level;
use dpsgd_engine::{Network, Samples};

use crate::model::{Model, Worker};

/// A network of `dpsgd-engine` on its training samples.
pub struct Native<'a> {
    network: &'a Network,
    samples: &'a dyn Samples,
    group_size: usize,
    level: Level,
}

/// Why a network cannot be trained with groups of a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "group-size = 1: at least 2 with a batch-norm layer (it normalises over the samples of a group, and one sample has \
     nothing to be normalised over; statistics over other groups would be an output beside the clipped one); take \
     layer-norm, group-norm or instance-norm instead"
)]
pub struct NothingToNormalise;

impl<'a> Native<'a> {
    /// For groups of s samples, on the fastest instruction set of the machine.
    pub fn new(
        network: &'a Network,
        samples: &'a dyn Samples,
        group_size: usize,
    ) -> Result<Self, NothingToNormalise> {
        Self::at_level(network, samples, group_size, Level::best())
    }

    /// The same on a chosen instruction set.
    pub fn at_level(
        network: &'a Network,
        samples: &'a dyn Samples,
        group_size: usize,
        level: Level,
    ) -> Result<Self, NothingToNormalise> {
        if network.has_batch_norm() && group_size < 2 {
            return Err(NothingToNormalise);
        }
        Ok(Self { network, samples, group_size, level })
    }
}

impl Model for Native<'_> {
    type Worker<'w>
        = dpsgd_engine::Worker<'w>
    where
        Self: 'w;

    fn dimension(&self) -> usize {
        self.network.dimension()
    }

    fn samples(&self) -> usize {
        self.samples.count()
    }

    fn separable(&self) -> bool {
        !self.network.has_batch_norm()
    }

    fn worker(&self) -> Self::Worker<'_> {
        dpsgd_engine::Worker::new(self.network, self.samples, self.group_size, self.level)
    }
}

impl Worker for dpsgd_engine::Worker<'_> {
    fn weights_mut(&mut self) -> &mut [f32] {
        self.weights_mut()
    }

    fn gradient(&mut self, group: &[u32], gradient: &mut [f32]) -> f32 {
        self.gradient(group, gradient)
    }

    fn add_scaled(
        &mut self,
        samples: &[u32],
        size: usize,
        scale: &mut dyn FnMut(f32) -> f32,
        sum: &mut [f32],
    ) -> f32 {
        self.add_scaled(samples, size, scale, sum)
    }
}
