//! Units that other processes clip and sum give, to the bit, the update of one process; what cannot be such a
//! sum ends the round.

mod toy;

use std::num::NonZeroUsize;
use std::sync::Arc;

use dpsgd_privacy::mechanism::Sampling;
use dpsgd_train::clip::Counts;
use dpsgd_train::share::{Block, UnitSink};
use dpsgd_train::{
    Charge, Diagnostics, Form, Hook, Inner, Model, ModelError, PlanConfig, Randomness, RoundError, RowSink,
    Trainer, Unrecorded, Worker,
};
use toy::*;

const SAMPLES: u64 = 215;

/// What arrives instead of a unit.
type Fault = fn(&mut Vec<Sum>);
type Sum = (Vec<f32>, Counts, f32);

/// A toy whose units some workers compute, each of its own, as processes would.
struct Shared {
    toy: Arc<Toy>,
    workers: usize,
    chunk: usize,
    window: usize,
    /// What happens to the sums of the second call.
    fault: Option<Fault>,
}

struct SharedWorker {
    model: Arc<Shared>,
    weights: Vec<f32>,
    workers: Vec<ToyWorker>,
    calls: usize,
}

impl Model for Shared {
    type Worker = SharedWorker;

    fn dimension(&self) -> usize {
        DIMENSION
    }

    fn samples(&self) -> usize {
        self.toy.samples()
    }

    fn form(&self) -> Form {
        let number = |n| NonZeroUsize::new(n).unwrap();
        Form::Units { chunk: number(self.chunk), window: number(self.window) }
    }

    fn worker(self: &Arc<Self>, group_size: usize) -> Result<SharedWorker, ModelError> {
        let workers = (0..self.workers).map(|_| self.toy.worker(group_size)).collect::<Result<_, _>>()?;
        Ok(SharedWorker { model: self.clone(), weights: vec![0.0; DIMENSION], workers, calls: 0 })
    }
}

impl Worker for SharedWorker {
    fn weights_mut(&mut self) -> &mut [f32] {
        &mut self.weights
    }

    fn gradient(&mut self, group: &[u32], gradient: &mut [f32]) -> Result<f32, ModelError> {
        self.workers[0].weights_mut().copy_from_slice(&self.weights);
        self.workers[0].gradient(group, gradient)
    }

    fn rows(&mut self, _: &[u32], _: usize, _: &mut RowSink<'_>) -> Result<(), ModelError> {
        panic!("units are asked for")
    }

    fn units(
        &mut self,
        blocks: &[Block],
        bound: f64,
        chunk: NonZeroUsize,
        sink: &mut UnitSink<'_>,
    ) -> Result<(), ModelError> {
        assert!(blocks.len() <= self.model.window);
        let mut sums: Vec<Vec<Sum>> = vec![Vec::new(); blocks.len()];
        let processes = self.workers.len();
        // The last process is the first to be done.
        for (place, block) in blocks.iter().enumerate().rev() {
            assert!(block.units.len() == 1 || block.groups() <= chunk.get());
            let worker = &mut self.workers[place % processes];
            worker.weights_mut().copy_from_slice(&self.weights);
            let found = &mut sums[place];
            block.sum(worker, bound, chunk.get(), None, &mut |values, counts, loss| {
                found.push((values.to_vec(), counts, loss));
            })?;
        }
        let mut sums = sums.concat();
        self.calls += 1;
        if let (Some(fault), 2) = (self.model.fault, self.calls) {
            fault(&mut sums);
        }
        sums.iter().for_each(|(values, counts, loss)| sink(values, *counts, *loss));
        Ok(())
    }
}

fn updates<M: Model>(config: &PlanConfig, model: M) -> (Vec<Vec<u32>>, Diagnostics) {
    let ledger = Unrecorded::new(config.check().unwrap());
    let weights = Toy::new(1, 1).weights(3);
    let mut trainer = Trainer::new(ledger, Arc::new(model), weights, Randomness::from_seed(5, 0)).unwrap();
    let mut all = Vec::new();
    while !trainer.finished() {
        all.push(trainer.round().unwrap().update.iter().map(|u| u.to_bits()).collect());
    }
    (all, trainer.take_diagnostics().unwrap())
}

fn samplings() -> Vec<(Sampling, bool)> {
    let cells = Sampling::AllocateCells { rounds: 3, groups: 40, group_size: 2 };
    let mut all = vec![
        (Sampling::Poisson { rate: 0.4 }, false),
        (Sampling::Poisson { rate: 0.001 }, false),
        (Sampling::Allocate { rounds: 3 }, false),
        (cells, false),
    ];
    for (groups, group_size) in [(90, 1), (10, 7), (3, 40), (1, 200)] {
        for filtered in [false, true] {
            all.push((subsample(SAMPLES, groups, group_size), filtered));
            all.push((shuffle(SAMPLES, groups, group_size), filtered));
        }
    }
    all
}

fn config(sampling: Sampling, filtered: bool) -> PlanConfig {
    let plain = PlanConfig::new(mechanism(sampling, 3, 0.5, filtered), 0.4, 0.01).with_divisor(80.0);
    PlanConfig { diagnostics: true, threads: 1, ..plain }
}

/// The trainer that computes everything itself is the oracle.
#[test]
fn one_two_and_four_processes_give_the_bits_of_one_trainer() {
    let mut toy = Toy::new(SAMPLES as usize, 1);
    toy.broken = vec![3, 77, 78];
    for (sampling, filtered) in samplings() {
        for (inner, hook) in [("gradient", false), ("gradient", true), ("sgd", false)] {
            let mut config = config(sampling, filtered);
            config.inner = Inner::named(inner, 0.01).unwrap().into();
            config.hook = hook.then(|| Hook::new(0.5, |x: &mut [f32]| x[0] = -x[0]));
            toy.chunk = Some(13);
            let alone = updates(&config, toy.clone());
            for (workers, chunk, window) in [(1, 1, 1), (2, 32, 4), (4, 64, 3), (4, 1000, 8), (3, 7, 1000)] {
                let toy = Arc::new(toy.clone());
                let shared = Shared { toy, workers, chunk, window, fault: None };
                let name = format!("{sampling:?} {filtered} {inner} {hook}: {workers} {chunk} {window}");
                assert!(updates(&config, shared) == alone, "{name}");
            }
        }
    }
}

/// Everything that the leader can notice: the round is spent, nothing moves, and the next one works.
#[test]
fn what_cannot_be_a_sum_ends_the_round() {
    let faults: [(&str, Fault); 9] = [
        ("cannot add up", |sums| sums[0].0[3] = f32::NAN),
        ("cannot add up", |sums| sums[1].0[0] = f32::NEG_INFINITY),
        ("cannot add up", |sums| sums[0].0.iter_mut().for_each(|x| *x *= 300.0)),
        ("has 1 coordinates", |sums| sums[0].0.truncate(1)),
        ("counts 31 groups", |sums| sums[0].1.groups = 31),
        ("counts 32 groups (33 clipped", |sums| sums[0].1.clipped = 33),
        ("2 sums of units arrived where 3", |sums| drop(sums.pop())),
        ("4 sums of units arrived where 3", |sums| sums.push(sums[0].clone())),
        ("0 sums of units arrived where 3", |sums| sums.clear()),
    ];
    for (says, fault) in faults {
        let config = config(subsample(SAMPLES, 90, 1), false);
        let toy = Arc::new(Toy::new(SAMPLES as usize, 1));
        let model = Shared { toy, workers: 2, chunk: 32, window: 8, fault: Some(fault) };
        let ledger = Unrecorded::new(config.check().unwrap());
        let weights = Toy::new(1, 1).weights(3);
        let mut trainer =
            Trainer::new(ledger, Arc::new(model), weights, Randomness::from_seed(5, 0)).unwrap();
        trainer.round().unwrap();
        let before = trainer.weights().to_vec();
        let error = trainer.round().err().unwrap();
        assert!(
            matches!(&error, RoundError::Model { round: 1, source } if source.to_string().contains(says)),
            "{says}: {error:?}"
        );
        assert_eq!((trainer.weights(), trainer.ledger().spent()), (&before[..], 2));
        trainer.round().unwrap();
        assert!(trainer.finished());
    }
}
