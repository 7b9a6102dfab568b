//! The native engine as a model of Algorithm 1.

use std::sync::Arc;

use dpsgd_engine::views::Augment;
use dpsgd_engine::{GradientWorker, Level, Network, Samples};

use crate::model::{Model, ModelError, PartSink, SampleBits, Worker};

/// A network of `dpsgd-engine` on its training samples.
pub struct Native {
    network: Arc<Network>,
    samples: Arc<dyn Samples>,
    level: Level,
    smoothing: f32,
    augment: Option<Augment>,
}

/// Why a network cannot be trained with groups of one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "group-size = 1: at least 2 with a batch-norm layer (it normalises over the samples of a group, and one \
     sample has nothing to be normalised over; statistics over other groups would be an output beside the \
     clipped one); take layer-norm, group-norm or instance-norm instead"
)]
pub struct NothingToNormalise;

impl Native {
    /// On the fastest instruction set of the machine.
    pub fn new(network: Arc<Network>, samples: Arc<dyn Samples>) -> Self {
        Self::at_level(network, samples, Level::best())
    }

    /// On a chosen instruction set.
    pub fn at_level(network: Arc<Network>, samples: Arc<dyn Samples>, level: Level) -> Self {
        Self { network, samples, level, smoothing: 0.0, augment: None }
    }

    /// The same with label smoothing α: inside A, so that what it does to a group is clipped with the rest.
    pub fn smoothed(self, alpha: f32) -> Self {
        Self { smoothing: alpha, ..self }
    }

    /// The same with the mean gradient over random views of each sample, if `augment` says so.
    ///
    /// # Guarantee
    ///
    /// The views of a group are a function of the group's own samples and of random bits of its own
    /// ([`SampleBits`]); their mean gradient is formed before the clip. So a group still hands over one
    /// vector of length at most C.
    pub fn augmented(self, augment: Option<Augment>) -> Self {
        Self { augment, ..self }
    }

    /// The network.
    pub fn network(&self) -> &Arc<Network> {
        &self.network
    }
}

impl Model for Native {
    type Worker = GradientWorker;

    fn dimension(&self) -> usize {
        self.network.dimension()
    }

    fn samples(&self) -> usize {
        self.samples.count()
    }

    fn separable(&self) -> bool {
        !self.network.has_batch_norm()
    }

    fn is_random(&self) -> bool {
        self.network.has_dropout()
    }

    fn worker(self: &Arc<Self>, group_size: usize) -> Result<GradientWorker, ModelError> {
        if self.network.has_batch_norm() && group_size < 2 {
            return Err(ModelError::caused_by(NothingToNormalise));
        }
        let worker = GradientWorker::new(self.network.clone(), self.samples.clone(), group_size, self.level);
        let worker = worker.smoothed(self.smoothing);
        Ok(match self.augment {
            Some(augment) => worker.augmented(augment),
            None => worker,
        })
    }
}

impl Worker for GradientWorker {
    fn weights_mut(&mut self) -> &mut [f32] {
        self.weights_mut()
    }

    fn seed(&mut self, seeds: &[u64]) {
        self.seed(seeds);
    }

    fn prepare(&mut self, samples: &[u32], bits: &SampleBits<'_>) {
        let Some(augment) = self.augment() else { return };
        let views = self.views_mut();
        views.clear(augment.views);
        for (i, &sample) in samples.iter().enumerate() {
            let mut stream = bits.stream(i);
            views.push(sample, (0..augment.views).map(|_| augment.draw(&mut |bound| stream.below(bound))));
        }
    }

    fn gradient(&mut self, group: &[u32], gradient: &mut [f32]) -> Result<f32, ModelError> {
        Ok(self.gradient(group, gradient))
    }

    fn gradient_in_parts(
        &mut self,
        group: &[u32],
        _room: &mut [f32],
        part: &mut PartSink<'_>,
    ) -> Result<f32, ModelError> {
        Ok(self.gradient_in_parts(group, part))
    }

    fn add_scaled(
        &mut self,
        samples: &[u32],
        size: usize,
        scale: &mut dyn FnMut(f32) -> f32,
        sum: &mut [f32],
    ) -> Result<f32, ModelError> {
        Ok(self.add_scaled(samples, size, scale, sum))
    }
}

#[cfg(test)]
mod tests {
    use dpsgd_engine::Label;
    use dpsgd_engine::spec::{LayerSpec, Loss, NetworkSpec};
    use dpsgd_privacy::mechanism::{Length, NoiseScale, PhaseConfig, RunConfig, Sampling};

    use super::*;
    use crate::{PlanConfig, Randomness, Trainer, TrainerError, Unrecorded};

    struct Rows;

    impl Samples for Rows {
        fn count(&self) -> usize {
            20
        }
        fn copy_input(&self, index: u32, out: &mut [f32]) {
            out.fill(index as f32);
        }
        fn label(&self, index: u32) -> Label<'_> {
            Label::Class(index % 2)
        }
    }

    /// The trainer itself passes the group size of the plan, so nobody can name a smaller one.
    #[test]
    fn batch_norm_needs_groups_of_two() {
        let linear = |features| LayerSpec::Linear { features, bias: true };
        let layers = vec![linear(3), LayerSpec::BatchNorm, linear(2)];
        let spec = NetworkSpec { input: [1, 1, 4], loss: Loss::SoftmaxCrossEntropy, layers };
        let network = Arc::new(Network::new(&spec).unwrap());
        for (groups, group_size) in [(6, 1), (3, 2)] {
            let run = RunConfig::single(PhaseConfig {
                sampling: Sampling::Shuffle { samples: 20, groups, group_size },
                length: Length::Rounds(2),
                noise: NoiseScale::Sigma(1.0),
                filtered: false,
            });
            let plan = PlanConfig::new(run.check().unwrap(), 1.0, 0.1).check().unwrap();
            let model = Arc::new(Native::new(network.clone(), Arc::new(Rows)));
            let weights = vec![0.1; network.dimension()];
            let trainer = Trainer::new(Unrecorded::new(plan), model, weights, Randomness::from_seed(1, 0));
            match (group_size, trainer) {
                (1, Err(TrainerError::Model(error))) => {
                    assert!(
                        error.to_string().starts_with("group-size = 1: at least 2 with a batch-norm layer")
                    );
                    assert!(error.cause().unwrap().downcast_ref::<NothingToNormalise>().is_some());
                }
                (2, Ok(mut trainer)) => assert_eq!(trainer.round().unwrap().round, 0),
                (size, trainer) => panic!("groups of {size}: {:?}", trainer.err()),
            }
        }
    }
}
