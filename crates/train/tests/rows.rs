//! A model that delivers rows gives, to the bit, what the same gradients give one group after the other.

mod toy;

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

use dpsgd_privacy::mechanism::Sampling;
use dpsgd_train::{
    Diagnostics, Form, GroupContext, Hook, Inner, InnerAlgorithm, Model, ModelError, PlanConfig, Randomness,
    RoundError, RowSink, Trainer, Unrecorded, Worker,
};
use toy::*;

const SAMPLES: u64 = 215;

/// The mean gradient, written so that the trainer takes every group's result by itself.
#[derive(Debug)]
struct Mean;

impl InnerAlgorithm for Mean {
    fn name(&self) -> &str {
        "mean"
    }

    fn run(&self, group: &mut GroupContext<'_>) -> Result<f32, ModelError> {
        group.mean_gradient_as_result()
    }
}

fn updates(config: &PlanConfig, toy: &Toy) -> (Vec<Vec<u32>>, Diagnostics) {
    let ledger = Unrecorded::new(config.check().unwrap());
    let randomness = Randomness::from_seed(5, 0);
    let mut trainer = Trainer::new(ledger, Arc::new(toy.clone()), toy.weights(3), randomness).unwrap();
    let mut all = Vec::new();
    while !trainer.finished() {
        all.push(trainer.round().unwrap().update.iter().map(|u| u.to_bits()).collect());
    }
    (all, trainer.take_diagnostics().unwrap())
}

fn samplings() -> Vec<(Sampling, bool)> {
    let mut all = vec![(Sampling::Poisson { rate: 0.4 }, false), (Sampling::Allocate { rounds: 3 }, false)];
    for (groups, group_size) in [(90, 1), (10, 7), (3, 40), (1, 200)] {
        for filtered in [false, true] {
            all.push((subsample(SAMPLES, groups, group_size), filtered));
            all.push((shuffle(SAMPLES, groups, group_size), filtered));
        }
    }
    all
}

#[test]
fn every_sampler_gives_the_same_bits() {
    let mut toy = Toy::new(SAMPLES as usize, 1);
    toy.broken = vec![3, 77, 78];
    for (sampling, filtered) in samplings() {
        for hook in [None, Some(Hook::new(0.5, |x: &mut [f32]| x[0] = -x[0]))] {
            let mut config =
                PlanConfig::new(mechanism(sampling, 3, 0.5, filtered), 0.4, 0.01).with_divisor(80.0);
            (config.diagnostics, config.hook) = (true, hook);
            let one_by_one = PlanConfig { inner: Inner::custom(Mean).into(), threads: 1, ..config.clone() };
            toy.chunk = None;
            let expected = updates(&one_by_one, &toy);
            for (threads, chunk) in [(1, 1), (1, 64), (2, 7), (3, 33), (2, 1000)] {
                toy.chunk = Some(chunk);
                let rows = PlanConfig { threads, ..config.clone() };
                let name = format!("{sampling:?} {filtered} {threads} threads, chunks of {chunk}");
                assert!(updates(&rows, &toy) == expected, "{name}");
            }
        }
    }
}

#[test]
fn algorithms_that_walk_run_one_group_after_the_other() {
    let mut toy = Toy::new(SAMPLES as usize, 2);
    for inner in ["sgd", "adam"] {
        for (sampling, filtered) in samplings() {
            let mut config =
                PlanConfig::new(mechanism(sampling, 2, 0.5, filtered), 0.4, 0.01).with_divisor(80.0);
            (config.diagnostics, config.inner) = (true, Inner::named(inner, 0.01).unwrap().into());
            (toy.chunk, config.threads) = (None, 2);
            let expected = updates(&config, &toy);
            toy.chunk = Some(16);
            assert!(updates(&config, &toy) == expected, "{inner} {sampling:?}");
        }
    }
}

/// A model that writes rows of the wrong shape or number, and notes on which threads it was asked.
struct Odd {
    rows: usize,
    width: usize,
    asked: Mutex<Vec<ThreadId>>,
}

struct OddWorker(Arc<Odd>, Vec<f32>);

impl Model for Odd {
    type Worker = OddWorker;

    fn dimension(&self) -> usize {
        4
    }

    fn samples(&self) -> usize {
        10
    }

    fn form(&self) -> Form {
        Form::Rows { chunk: NonZeroUsize::new(5).unwrap() }
    }

    fn worker(self: &Arc<Self>, _group_size: usize) -> Result<OddWorker, ModelError> {
        Ok(OddWorker(self.clone(), vec![0.0; 4]))
    }
}

impl Worker for OddWorker {
    fn weights_mut(&mut self) -> &mut [f32] {
        &mut self.1
    }

    fn gradient(&mut self, _: &[u32], _: &mut [f32]) -> Result<f32, ModelError> {
        panic!("rows are asked for")
    }

    fn rows(&mut self, _: &[u32], _: usize, sink: &mut RowSink<'_>) -> Result<(), ModelError> {
        self.0.asked.lock().unwrap().push(std::thread::current().id());
        let values = vec![1.0; self.0.rows * self.0.width];
        sink(&[&values], &vec![0.0; self.0.rows]);
        Ok(())
    }
}

#[test]
fn rows_that_do_not_fit_end_the_round() {
    for (rows, width, says) in [
        (5, 4, None),
        (5, 3, Some("the model wrote 15 values for 5 groups of 4 parameters")),
        (4, 4, Some("the model wrote the rows of 4 groups where it was asked for 5")),
        (6, 4, Some("the model wrote the rows of 6 groups where it was asked for 5")),
        (0, 4, Some("the model wrote the rows of 0 groups where it was asked for 5")),
    ] {
        let mut config = PlanConfig::new(mechanism(subsample(10, 10, 1), 3, 0.5, false), 0.4, 0.01);
        config.threads = 2;
        let model = Arc::new(Odd { rows, width, asked: Mutex::default() });
        let ledger = Unrecorded::new(config.check().unwrap());
        let mut trainer =
            Trainer::new(ledger, model.clone(), vec![0.0; 4], Randomness::from_seed(1, 0)).unwrap();
        match (trainer.round(), says) {
            (Ok(_), None) => {}
            (Err(RoundError::Model { round: 0, source }), Some(says)) => assert_eq!(source.to_string(), says),
            (other, says) => panic!("{other:?} {says:?}"),
        }
        // Only the calling thread ever runs the model.
        let here = std::thread::current().id();
        assert!(model.asked.lock().unwrap().iter().all(|thread| *thread == here));
    }
}
