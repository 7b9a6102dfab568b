//! Inner algorithms and outer optimizers of the user's own.

mod toy;

use std::sync::Arc;

use dpsgd_train::{
    GroupContext, GroupResult, Inner, InnerAlgorithm, ModelError, Outer, OuterOptimizer, OuterStep,
    PlanConfig, Randomness, RoundError, Trainer, TrainerState, Unrecorded,
};
use toy::*;

const SAMPLES: u64 = 100;

fn config(groups: u64, group_size: u64) -> PlanConfig {
    PlanConfig::new(mechanism(subsample(SAMPLES, groups, group_size), 4, 0.5, false), 0.4, 0.05)
}

fn trainer(config: &PlanConfig) -> Trainer<Toy, Unrecorded> {
    let toy = Toy::new(SAMPLES as usize, 3);
    let (weights, randomness) = (toy.weights(1), Randomness::from_seed(4, 0));
    Trainer::new(Unrecorded::new(config.check().unwrap()), Arc::new(toy), weights, randomness).unwrap()
}

fn run(config: &PlanConfig) -> Vec<u32> {
    let mut trainer = trainer(config);
    while !trainer.finished() {
        trainer.round().unwrap();
    }
    trainer.weights().iter().map(|w| w.to_bits()).collect()
}

/// Momentum once more, through the public interface, and with a look at what a group begins with.
#[derive(Debug)]
struct Momentum {
    step: f32,
    momentum: f32,
}

impl InnerAlgorithm for Momentum {
    fn name(&self) -> &str {
        "own-momentum"
    }

    fn state_vectors(&self) -> usize {
        1
    }

    fn run(&self, group: &mut GroupContext<'_>) -> Result<f32, ModelError> {
        let vectors = group.vectors();
        assert!(vectors.states.iter().flatten().all(|x| *x == 0.0), "the state is not fresh");
        assert!(vectors.result.iter().all(|x| *x == 0.0), "the result is not empty");
        assert_eq!(vectors.weights, vectors.start);
        assert_eq!(group.kind(), GroupResult::SumOfGradients);
        let mut losses = 0.0;
        for member in 0..group.samples().len() {
            losses += group.gradient_of(member)?;
            let vectors = group.vectors();
            for i in 0..vectors.weights.len() {
                vectors.result[i] += vectors.gradient[i];
                vectors.states[0][i] = self.momentum * vectors.states[0][i] + vectors.gradient[i];
                vectors.weights[i] -= self.step * vectors.states[0][i];
            }
        }
        Ok(losses / group.samples().len() as f32)
    }
}

#[test]
fn an_own_algorithm_gives_the_bits_of_the_built_in_one() {
    for (groups, group_size) in [(20, 4), (2, 40)] {
        for threads in [1, 3] {
            let mut config = config(groups, group_size);
            config.threads = threads;
            config.inner = Inner::named("momentum", 0.01).unwrap().into();
            let expected = run(&config);
            config.inner = Inner::custom(Momentum { step: 0.01, momentum: 0.9 }).into();
            assert_eq!(run(&config), expected);
        }
    }
}

/// The mean gradient over a random half of the group.
#[derive(Debug)]
struct Half;

impl InnerAlgorithm for Half {
    fn name(&self) -> &str {
        "half"
    }

    fn run(&self, group: &mut GroupContext<'_>) -> Result<f32, ModelError> {
        let size = group.samples().len();
        let first = group.stream().below(size as u32) as usize;
        let members: Vec<usize> = (0..size / 2).map(|i| (first + i) % size).collect();
        let loss = group.gradient_of_some(&members)?;
        let vectors = group.vectors();
        vectors.result.copy_from_slice(vectors.gradient);
        Ok(loss)
    }
}

/// Asks for a sample that is not in its group.
#[derive(Debug)]
struct Curious;

impl InnerAlgorithm for Curious {
    fn name(&self) -> &str {
        "curious"
    }

    fn run(&self, group: &mut GroupContext<'_>) -> Result<f32, ModelError> {
        group.gradient_of(group.samples().len())
    }
}

#[test]
fn random_bits_belong_to_the_group_and_not_to_the_thread() {
    let mut config = config(10, 6);
    config.inner = Inner::custom(Half).into();
    let results = [1, 2, 3].map(|threads| run(&PlanConfig { threads, ..config.clone() }));
    assert!(results[0] == results[1] && results[1] == results[2]);
    // Not the whole group, and not always the same half of it.
    config.inner = Inner::Gradient.into();
    assert_ne!(run(&config), results[0]);
}

#[test]
fn an_algorithm_sees_its_own_group_only() {
    let mut config = config(10, 6);
    config.inner = Inner::custom(Curious).into();
    let error = trainer(&config).round().unwrap_err();
    assert!(matches!(error, RoundError::Model { round: 0, .. }));
    assert!(error.to_string().contains("asked for sample 6 of a group of 6"), "{error}");
}

/// Heavy-ball momentum with a name of its own for its state.
#[derive(Debug)]
struct HeavyBall;

impl OuterOptimizer for HeavyBall {
    fn name(&self) -> &str {
        "heavy-ball"
    }

    fn state_names(&self) -> &[&'static str] {
        &["velocity"]
    }

    fn apply_block(&self, step: OuterStep, weights: &mut [f32], update: &[f32], states: &mut [&mut [f32]]) {
        for ((w, u), v) in weights.iter_mut().zip(update).zip(&mut *states[0]) {
            *v = 0.5 * *v + *u;
            *w -= step.eta as f32 * *v;
        }
    }
}

#[test]
fn an_own_optimizer_keeps_its_state_in_checkpoints_and_serves_a_server() {
    let mut config = config(20, 1);
    config.outer = Outer::Momentum { momentum: 0.5, nesterov: false };
    let expected = run(&config);
    config.outer = Outer::custom(HeavyBall);
    assert_eq!(run(&config), expected);

    // A server that applies the released updates has the same w, with the state from a checkpoint.
    let mut trainer = trainer(&config);
    trainer.round().unwrap();
    let mut server = TrainerState::of(&trainer.state().checkpoint()).unwrap();
    assert_eq!(&server, trainer.state());
    assert_eq!(server.outer.vectors[0].0, "velocity");
    while !trainer.finished() {
        let round = trainer.round().unwrap();
        config.outer.apply(&mut server.outer, &mut server.weights, round.update, round.eta).unwrap();
    }
    assert_eq!(server.weights, trainer.weights());
    assert_eq!(server.outer, trainer.state().outer);
}
