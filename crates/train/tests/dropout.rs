//! The random bits of a model: every group has its own, whatever the threads do, and they depend on no data.
#![cfg(feature = "native")]

mod toy;

use std::sync::{Arc, Mutex};

use dpsgd_engine::spec::{LayerSpec, Loss, NetworkSpec};
use dpsgd_engine::{Label, Network, Samples};
use dpsgd_privacy::mechanism::Sampling;
use dpsgd_train::{
    Form, Inner, Model, ModelError, Native, PlanConfig, Purpose, Randomness, RowSink, Trainer, Unrecorded,
    Worker,
};
use toy::*;

const SAMPLES: usize = 120;

/// A model that notes the seed of every group.
struct Noting {
    seen: Mutex<Vec<(Vec<u32>, u64)>>,
    random: bool,
    form: Form,
}

struct NotingWorker {
    model: Arc<Noting>,
    weights: Vec<f32>,
    seeds: Vec<u64>,
}

impl NotingWorker {
    fn note(&self, samples: &[u32], size: usize) {
        let mut seen = self.model.seen.lock().unwrap();
        for (h, group) in samples.chunks(size).enumerate() {
            // Without seeds there is nothing to note.
            seen.extend(self.seeds.get(h).map(|seed| (group.to_vec(), *seed)));
        }
    }
}

impl Model for Noting {
    type Worker = NotingWorker;

    fn dimension(&self) -> usize {
        2
    }

    fn samples(&self) -> usize {
        SAMPLES
    }

    fn is_random(&self) -> bool {
        self.random
    }

    fn form(&self) -> Form {
        self.form
    }

    fn worker(self: &Arc<Self>, _: usize) -> Result<NotingWorker, ModelError> {
        Ok(NotingWorker { model: self.clone(), weights: vec![0.0; 2], seeds: Vec::new() })
    }
}

impl Worker for NotingWorker {
    fn weights_mut(&mut self) -> &mut [f32] {
        &mut self.weights
    }

    fn seed(&mut self, seeds: &[u64]) {
        self.seeds = seeds.to_vec();
    }

    fn gradient(&mut self, group: &[u32], gradient: &mut [f32]) -> Result<f32, ModelError> {
        self.note(group, group.len());
        gradient.fill(0.1);
        Ok(0.0)
    }

    fn add_scaled(
        &mut self,
        samples: &[u32],
        size: usize,
        scale: &mut dyn FnMut(f32) -> f32,
        _: &mut [f32],
    ) -> Result<f32, ModelError> {
        self.note(samples, size);
        samples.chunks(size).for_each(|_| {
            scale(0.1);
        });
        Ok(0.0)
    }

    fn rows(&mut self, samples: &[u32], size: usize, sink: &mut RowSink<'_>) -> Result<(), ModelError> {
        self.note(samples, size);
        samples.chunks(size).for_each(|_| sink(&[&[0.1, 0.1]], &[0.0]));
        Ok(())
    }
}

fn rows() -> Form {
    Form::Rows { chunk: 7.try_into().unwrap() }
}

fn units() -> Form {
    Form::Units { chunk: 7.try_into().unwrap(), window: 3.try_into().unwrap() }
}

/// The seeds of all groups of some rounds, by the order of the batch.
fn noted(sampling: Sampling, inner: &str, threads: usize, form: Form, random: bool) -> Vec<(Vec<u32>, u64)> {
    let config = PlanConfig::new(mechanism(sampling, 3, 0.5, false), 0.4, 0.05).with_divisor(10.0);
    let plan = PlanConfig { threads, inner: Inner::named(inner, 0.1).unwrap().into(), ..config };
    let model = Arc::new(Noting { seen: Mutex::new(Vec::new()), random, form });
    let ledger = Unrecorded::new(plan.check().unwrap());
    let mut trainer = Trainer::new(ledger, model.clone(), vec![0.0; 2], Randomness::from_seed(4, 0)).unwrap();
    while !trainer.finished() {
        trainer.round().unwrap();
    }
    drop(trainer);
    let mut seen = std::mem::take(&mut *model.seen.lock().unwrap());
    seen.sort();
    seen
}

/// Bits `part` of group `place` of a round: a transcription of what `Worker::seed` promises.
fn expected(round: u64, place: u64, part: u64) -> u64 {
    let mut stream = Randomness::from_seed(4, 0).stream(Purpose::Model, round);
    stream.seek((place << 32) + 2 * part);
    stream.bits64()
}

#[test]
fn every_group_has_its_own_bits_whatever_the_threads_do() {
    for (sampling, groups) in [(subsample(120, 70, 1), 70), (subsample(120, 12, 5), 12)] {
        let seeds = |found: &[(Vec<u32>, u64)]| {
            let mut seeds: Vec<u64> = found.iter().map(|(_, seed)| *seed).collect();
            seeds.sort_unstable();
            seeds
        };
        let mut all: Vec<u64> =
            (0..3).flat_map(|round| (0..groups).map(move |place| expected(round, place, 0))).collect();
        all.sort_unstable();
        let one = noted(sampling, "gradient", 1, Form::Groups, true);
        assert_eq!(seeds(&one), all);
        // The same seeds for the same groups: on more threads, in rows, and in other processes.
        assert_eq!(noted(sampling, "gradient", 3, Form::Groups, true), one);
        assert_eq!(noted(sampling, "gradient", 2, rows(), true), one);
        assert_eq!(noted(sampling, "gradient", 2, units(), true), one);
        // An algorithm that walks through its group asks for every sample by itself, with the group's seed.
        let walked = noted(sampling, "adam", 2, Form::Groups, true);
        assert_eq!(walked.len() % one.len(), 0);
        let mut distinct = seeds(&walked);
        distinct.dedup();
        assert_eq!(distinct, all);
        // A model that is not random is never bothered.
        assert_eq!(noted(sampling, "gradient", 2, Form::Groups, false), []);
    }
    // A group in parts: each part has its own bits.
    let parts = noted(subsample(120, 1, 80), "gradient", 2, Form::Groups, true);
    let mut seeds: Vec<u64> = parts.iter().map(|(_, seed)| *seed).collect();
    let mut all: Vec<u64> =
        (0..3).flat_map(|round| (0..3).map(move |part| expected(round, 0, part))).collect();
    seeds.sort_unstable();
    all.sort_unstable();
    assert_eq!(seeds, all);
    // Samples that come at random: as many seeds as groups, all different.
    for sampling in [Sampling::Poisson { rate: 0.3 }, Sampling::Allocate { rounds: 3 }] {
        let found = noted(sampling, "gradient", 1, Form::Groups, true);
        assert_eq!(noted(sampling, "gradient", 3, Form::Groups, true), found);
        assert_eq!(noted(sampling, "gradient", 1, units(), true), found);
        let mut seeds: Vec<u64> = found.iter().map(|(_, seed)| *seed).collect();
        seeds.sort_unstable();
        seeds.dedup();
        assert!(found.len() > 50 && seeds.len() == found.len(), "{} of {}", seeds.len(), found.len());
    }
}

struct Rows;

impl Samples for Rows {
    fn count(&self) -> usize {
        SAMPLES
    }
    fn copy_input(&self, index: u32, out: &mut [f32]) {
        out.iter_mut()
            .enumerate()
            .for_each(|(i, out)| *out = ((index as usize * 7 + i * 3) % 11) as f32 / 5.0 - 1.0);
    }
    fn label(&self, index: u32) -> Label<'_> {
        Label::Class(index % 3)
    }
}

/// The bits of the weights after a run of a network with dropout.
fn trained(sampling: Sampling, inner: &str, threads: usize, seed: u64, rate: f32) -> Vec<u32> {
    let linear = |features| LayerSpec::Linear { features, bias: true };
    let block = vec![linear(8), LayerSpec::Tanh, LayerSpec::Dropout { rate }];
    let layers =
        vec![linear(8), LayerSpec::Silu, LayerSpec::Residual { projection: false, layers: block }, linear(3)];
    let spec = NetworkSpec { input: [1, 1, 6], loss: Loss::SoftmaxCrossEntropy, layers };
    let network = Arc::new(Network::new(&spec).unwrap());
    let config = PlanConfig::new(mechanism(sampling, 4, 0.5, false), 0.4, 0.05).with_divisor(10.0);
    let plan = PlanConfig { threads, inner: Inner::named(inner, 0.1).unwrap().into(), ..config };
    let (model, weights) = (Native::new(network.clone(), Arc::new(Rows)), vec![0.1; network.dimension()]);
    let ledger = Unrecorded::new(plan.check().unwrap());
    let mut trainer = Trainer::new(ledger, Arc::new(model), weights, Randomness::from_seed(seed, 0)).unwrap();
    while !trainer.finished() {
        trainer.round().unwrap();
    }
    trainer.weights().iter().map(|w| w.to_bits()).collect()
}

/// A seeded run repeats itself to the bit on any number of threads, and dropout changes what it learns.
#[test]
fn dropout_is_reproducible_on_any_number_of_threads() {
    for (sampling, inner) in [
        (subsample(120, 70, 1), "gradient"),
        (subsample(120, 20, 3), "gradient"),
        (subsample(120, 1, 100), "gradient"),
        (subsample(120, 20, 3), "adam"),
        (Sampling::Poisson { rate: 0.3 }, "gradient"),
        (Sampling::Allocate { rounds: 3 }, "gradient"),
    ] {
        let one = trained(sampling, inner, 1, 9, 0.5);
        for threads in [1, 2, 3] {
            assert_eq!(trained(sampling, inner, threads, 9, 0.5), one, "{sampling:?} {inner} {threads}");
        }
        assert_ne!(trained(sampling, inner, 1, 9, 0.0), one, "{sampling:?} {inner}");
    }
}
