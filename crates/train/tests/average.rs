//! Averages of w, weight decay and schedules that know the end of the run, in whole runs.

mod toy;

use std::sync::Arc;

use dpsgd_train::{
    Average, Charge, Outer, PlanConfig, Randomness, Rule, Shape, Trainer, TrainerState, Unrecorded,
};
use toy::*;

const ROUNDS: u64 = 12;

fn config(average: Average, threads: usize) -> PlanConfig {
    let mut config = PlanConfig::new(mechanism(subsample(215, 30, 2), ROUNDS, 0.5, false), 0.3, 0.05);
    config.average = average;
    config.outer = Outer::Momentum { momentum: 0.9, nesterov: false };
    config.threads = threads;
    config
}

/// A run with what w is after each round.
struct Watched {
    iterates: Vec<Vec<f32>>,
    state: TrainerState,
    weights: Vec<f32>,
}

fn toy() -> Arc<Toy> {
    Arc::new(Toy::new(215, 1))
}

fn watch<L: Charge<Error: std::fmt::Debug>>(trainer: &mut Trainer<Toy, L>, rounds: u64) -> Vec<Vec<f32>> {
    let mut iterates = Vec::new();
    for _ in 0..rounds {
        trainer.round().unwrap();
        iterates.push(trainer.weights().to_vec());
    }
    iterates
}

fn run(config: &PlanConfig) -> Watched {
    let (toy, plan) = (toy(), config.check().unwrap());
    let weights = toy.weights(3);
    let mut trainer = Trainer::new(Unrecorded::new(plan), toy, weights, Randomness::from_seed(7, 0)).unwrap();
    let iterates = watch(&mut trainer, ROUNDS);
    Watched { iterates, state: trainer.state().clone(), weights: trainer.weights().to_vec() }
}

/// The definition, from all iterates, in double precision.
fn by_hand(average: Average, iterates: &[Vec<f32>]) -> Vec<f64> {
    let last = iterates.len() as u64 - 1;
    let weight = |t: u64| match average {
        Average::Exponential { decay } => decay.powi((last - t) as i32),
        Average::Tail { share } => f64::from(u8::from(t >= ROUNDS - (share * ROUNDS as f64).ceil() as u64)),
        _ => 0.0,
    };
    let total: f64 = (0..=last).map(weight).sum();
    let of =
        |i: usize| iterates.iter().enumerate().map(|(t, w)| weight(t as u64) * f64::from(w[i])).sum::<f64>();
    (0..DIMENSION).map(|i| of(i) / total).collect()
}

fn assert_close(found: &[f32], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((f64::from(*found) - expected).abs() < 1e-6, "{found} and {expected}");
    }
}

#[test]
fn an_average_is_that_of_all_iterates_and_changes_nothing_else() {
    let plain = run(&config(Average::None, 1));
    assert!(plain.state.average.values().is_none());
    for average in [
        Average::Exponential { decay: 0.8 },
        Average::Exponential { decay: 0.0 },
        Average::Tail { share: 0.5 },
        Average::Tail { share: 1.0 },
    ] {
        let one = run(&config(average, 1));
        assert_eq!(one.weights, plain.weights, "an average must not change the training");
        assert_close(one.state.average.values().unwrap(), &by_hand(average, &one.iterates));
        assert_eq!(one.state.average, run(&config(average, 3)).state.average, "threads");
    }
}

/// Stopped after some rounds, written down, read and continued: the average is that of all iterates of both
/// halves, to the bit that of a recursion that was never interrupted.
#[test]
fn an_average_survives_a_checkpoint() {
    for average in [Average::Exponential { decay: 0.8 }, Average::Tail { share: 0.75 }] {
        for stop in [1, 5, 11] {
            let plan = config(average, 2).check().unwrap();
            let (toy, weights) = (toy(), toy().weights(3));
            let randomness = Randomness::from_seed(7, 0);
            let mut trainer =
                Trainer::new(Unrecorded::new(plan.clone()), toy.clone(), weights, randomness).unwrap();
            let mut iterates = watch(&mut trainer, stop);
            let saved = trainer.state().checkpoint();
            let state = TrainerState::of(&saved).unwrap();
            assert_eq!(&state, trainer.state());
            let charged = trainer.into_ledger();
            let mut resumed = Trainer::resume(charged, toy, state, Randomness::from_seed(7, 1)).unwrap();
            iterates.extend(watch(&mut resumed, ROUNDS - stop));
            assert_close(resumed.average().unwrap(), &by_hand(average, &iterates));
            let mut expected = Vec::new();
            let mut count = 0;
            for (t, w) in iterates.iter().enumerate().filter(|(t, _)| average.takes(*t as u64, ROUNDS)) {
                count += 1;
                let weight = match average {
                    Average::Exponential { decay } => (1.0 - decay) / (1.0 - decay.powf(f64::from(count))),
                    _ => 1.0 / f64::from(count),
                } as f32;
                match count {
                    1 => expected = w.clone(),
                    _ => expected.iter_mut().zip(w).for_each(|(a, w)| *a += weight * (w - *a)),
                }
                assert!((t as u64) < ROUNDS);
            }
            assert_eq!(resumed.average().unwrap(), expected, "stopped after {stop}");
        }
    }
}

/// With plain steps: w ← (1 − ηλ)·w − η·u, to the bit, with the η of the schedule in every round.
#[test]
fn weight_decay_shrinks_the_released_weights() {
    let mut config = config(Average::None, 2);
    config.outer = Outer::Plain;
    config.weight_decay = 0.3;
    config.step.rule = Rule::Annealed { warmup: 0.25, shape: Shape::Cosine, end: 0.1 };
    let (toy, plan) = (toy(), config.check().unwrap());
    let weights = toy.weights(3);
    let mut trainer = Trainer::new(Unrecorded::new(plan), toy, weights, Randomness::from_seed(7, 0)).unwrap();
    for t in 0..ROUNDS {
        let mut expected = trainer.weights().to_vec();
        let round = trainer.round().unwrap();
        let eta = match t {
            0..3 => 0.05 * (t + 1) as f64 / 3.0,
            _ => 0.05 * (0.1 + 0.9 * 0.5 * (1.0 + (std::f64::consts::PI * (t - 3) as f64 / 9.0).cos())),
        };
        assert!((round.eta - eta).abs() < 1e-15, "{} and {eta}", round.eta);
        let (kept, eta) = ((1.0 - round.eta * 0.3) as f32, round.eta as f32);
        expected.iter_mut().zip(round.update).for_each(|(w, u)| *w = *w * kept - eta * u);
        assert_eq!(trainer.weights(), expected);
    }
}

#[test]
fn a_decay_that_turns_w_around_is_refused() {
    let mut config = config(Average::None, 1);
    for (given, fine) in [(0.0, true), (20.0, true), (20.1, false), (-1.0, false), (f64::NAN, false)] {
        config.weight_decay = given;
        assert_eq!(config.check().is_ok(), fine, "{given}");
    }
}
