//! Views of images inside A: the same whatever the threads, drawn anew in every round, clipped as one vector.
#![cfg(feature = "native")]

mod toy;

use std::sync::Arc;

use dpsgd_engine::spec::{LayerSpec, Loss, NetworkSpec, Size};
use dpsgd_engine::views::{Augment, View};
use dpsgd_engine::{GradientWorker, Label, Level, Network, Samples};
use dpsgd_privacy::mechanism::Sampling;
use dpsgd_train::{Inner, Model, ModelError, Native, PlanConfig, Randomness, Trainer, Unrecorded, Worker};
use toy::{Test, mechanism, shuffle, subsample};

const SHAPE: [usize; 3] = [8, 9, 2];
const AUGMENT: Augment = Augment { flip: true, shift: 2, views: 5 };

struct Images(Vec<Vec<f32>>);

impl Samples for Images {
    fn count(&self) -> usize {
        self.0.len()
    }
    fn copy_input(&self, index: u32, out: &mut [f32]) {
        out.copy_from_slice(&self.0[index as usize]);
    }
    fn label(&self, index: u32) -> Label<'_> {
        Label::Class(index % 3)
    }
}

fn images() -> Arc<Images> {
    let mut random = Test(5);
    let size = SHAPE.iter().product();
    Arc::new(Images((0..215).map(|_| (0..size).map(|_| random.uniform() as f32).collect()).collect()))
}

fn network() -> Arc<Network> {
    let layers = vec![
        LayerSpec::Conv2d { channels: 4, kernel: Size::Square(3), padding: 1, stride: 1, bias: true },
        LayerSpec::Tanh,
        LayerSpec::Flatten,
        LayerSpec::Linear { features: 3, bias: true },
    ];
    let spec = NetworkSpec { input: SHAPE, loss: Loss::SoftmaxCrossEntropy, layers };
    Arc::new(Network::new(&spec).unwrap())
}

fn model(augment: Option<Augment>) -> Arc<Native> {
    Arc::new(Native::new(network(), images()).augmented(augment))
}

fn weights(network: &Network) -> Vec<f32> {
    let mut random = Test(9);
    network.initial(|| (0.5 + 0.5 * random.uniform()) as f32)
}

fn run(config: &PlanConfig, augment: Option<Augment>, seed: u64) -> Vec<f32> {
    let randomness = Randomness::from_seed(seed, 0);
    let plan = Unrecorded::new(config.check().unwrap());
    let mut trainer = Trainer::new(plan, model(augment), weights(&network()), randomness).unwrap();
    while !trainer.finished() {
        trainer.round().unwrap();
    }
    trainer.weights().to_vec()
}

/// Single samples, small groups, groups that are split over threads, groups of random sizes, and an algorithm
/// that walks through its group.
#[test]
fn the_views_do_not_depend_on_the_threads() {
    let one = Augment { views: 1, ..AUGMENT };
    for (sampling, inner) in [
        (subsample(215, 60, 1), "gradient"),
        (subsample(215, 20, 3), "gradient"),
        (shuffle(215, 1, 150), "gradient"),
        (Sampling::Poisson { rate: 0.3 }, "gradient"),
        (Sampling::AllocateCells { rounds: 3, groups: 10, group_size: 7 }, "gradient"),
        (subsample(215, 20, 3), "sgd"),
    ] {
        let mut config = PlanConfig::new(mechanism(sampling, 3, 0.1, false), 0.5, 0.2).with_divisor(60.0);
        config.inner = Inner::named(inner, 0.1).unwrap().into();
        config.threads = 1;
        let with = run(&config, Some(AUGMENT), 1);
        assert_eq!(with, run(&PlanConfig { threads: 3, ..config.clone() }, Some(AUGMENT), 1), "{sampling:?}");
        assert_ne!(with, run(&config, None, 1), "{sampling:?}");
        assert_ne!(with, run(&config, Some(one), 1), "{sampling:?}");
    }
}

/// The update without its noise is the mean over the groups of the clipped mean over the views,
/// with the views read from the documented places of the stream.
#[test]
fn a_group_hands_over_one_clipped_mean() {
    let (network, images) = (network(), images());
    let w = weights(&network);
    let mut config = PlanConfig::new(mechanism(shuffle(215, 215, 1), 1, 0.05, false), 0.05, 1.0);
    config.threads = 2;
    let noise = update(&config, Arc::new(Nothing(network.dimension())));
    let update = update(&config, model(Some(AUGMENT)));

    // Every sample is in the batch once, in the order of the permutation.
    let randomness = Randomness::from_seed(3, 0);
    let mut order: Vec<u32> = (0..215).collect();
    let mut sampler = dpsgd_train::sampler::Sampler::new(215);
    let checked = config.check().unwrap();
    order.copy_from_slice(sampler.batch(&checked, &checked.position(0), &randomness).samples);
    let mut expected = vec![0.0f64; network.dimension()];
    for (place, &sample) in order.iter().enumerate() {
        let mut stream = randomness.stream(dpsgd_train::Purpose::Views, 0);
        stream.seek((place as u64) << 40);
        let views: Vec<View> = (0..AUGMENT.views).map(|_| AUGMENT.draw(&mut |n| stream.below(n))).collect();
        let mut group = vec![0.0f64; network.dimension()];
        for view in views {
            let mut image = images.0[sample as usize].clone();
            view.apply(SHAPE, &mut image);
            let one = Arc::new(Single(image, sample % 3));
            let mut worker = GradientWorker::new(network.clone(), one, 1, Level::best());
            worker.weights_mut().copy_from_slice(&w);
            let mut gradient = vec![0.0; network.dimension()];
            worker.gradient(&[0], &mut gradient);
            group.iter_mut().zip(&gradient).for_each(|(sum, g)| *sum += f64::from(*g) / AUGMENT.views as f64);
        }
        let norm = group.iter().map(|g| g * g).sum::<f64>().sqrt();
        let factor = (0.05 / norm).min(1.0) / 215.0;
        expected.iter_mut().zip(&group).for_each(|(sum, g)| *sum += factor * g);
    }
    for ((found, noise), expected) in update.iter().zip(&noise).zip(&expected) {
        // The clip stays 2⁻¹⁴ below C.
        let found = f64::from(*found) - f64::from(*noise);
        assert!((found - expected).abs() < 1e-4 * 0.05, "{found} and {expected}");
    }
}

/// Ū/m of the only round.
fn update<M: Model>(config: &PlanConfig, model: Arc<M>) -> Vec<f32> {
    let plan = Unrecorded::new(config.check().unwrap());
    let w = weights(&network());
    Trainer::new(plan, model, w, Randomness::from_seed(3, 0)).unwrap().round().unwrap().update.to_vec()
}

/// A model whose gradients are 0: its updates are the noise.
struct Nothing(usize);

impl Model for Nothing {
    type Worker = Zeros;
    fn dimension(&self) -> usize {
        self.0
    }
    fn samples(&self) -> usize {
        215
    }
    fn worker(self: &Arc<Self>, _: usize) -> Result<Zeros, ModelError> {
        Ok(Zeros(vec![0.0; self.0]))
    }
}

struct Zeros(Vec<f32>);

impl Worker for Zeros {
    fn weights_mut(&mut self) -> &mut [f32] {
        &mut self.0
    }
    fn gradient(&mut self, _: &[u32], gradient: &mut [f32]) -> Result<f32, ModelError> {
        gradient.fill(0.0);
        Ok(0.0)
    }
}

struct Single(Vec<f32>, u32);

impl Samples for Single {
    fn count(&self) -> usize {
        1
    }
    fn copy_input(&self, _: u32, out: &mut [f32]) {
        out.copy_from_slice(&self.0);
    }
    fn label(&self, _: u32) -> Label<'_> {
        Label::Class(self.1)
    }
}

/// Samples that were not announced are taken as they are.
#[test]
fn without_views_it_is_the_plain_gradient() {
    let (with, without) = (model(Some(AUGMENT)), model(None));
    let gradients = [with, without].map(|model| {
        let mut worker = model.worker(1).unwrap();
        Worker::weights_mut(&mut worker).copy_from_slice(&weights(&network()));
        let mut gradient = vec![0.0; network().dimension()];
        Worker::gradient(&mut worker, &[7], &mut gradient).unwrap();
        gradient
    });
    assert_eq!(gradients[0], gradients[1]);
}
