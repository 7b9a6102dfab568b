//! Runs that differ in their data only: with the same key they draw the same batches and the same noise, so
//! the difference of their updates is the difference of their clipped sums.

use dpsgd_privacy::mechanism::{Length, NoiseScale};
use dpsgd_train::{PlanConfig, Randomness, Schedule, Trainer, Unrecorded};

use crate::AuditError;
use crate::asked::{Asked, watched};
use crate::probe::Probe;
use crate::promised::PromisedNoise;
use crate::shortened::Shortened;

/// The smallest σ that is allowed: the noise is to disturb the comparison as little as it can.
const SIGMA: f64 = 0.05;

/// The configuration of a few rounds with constant C.
pub fn few_rounds(config: &PlanConfig, short: &Shortened, rounds: u64) -> Result<PlanConfig, AuditError> {
    let mut run = short.mechanism.config();
    run.phases[0].length = Length::Rounds(rounds);
    run.phases[0].noise = NoiseScale::Sigma(SIGMA);
    let clipping = Schedule::constant(config.clipping.start);
    Ok(PlanConfig { mechanism: run.check()?, clipping, threads: 1, ..config.clone() })
}

/// One round of such a run.
#[derive(Clone, Debug)]
pub struct Done {
    /// Ū, noise included.
    pub noised: Vec<f64>,
    /// The samples of its groups.
    pub groups: Vec<Vec<u32>>,
}

/// Runs with a key and a model; every round begins at w = 0.
pub fn run(
    config: &PlanConfig,
    short: &Shortened,
    dimension: usize,
    key: u64,
    gradient: impl Fn(u32, &[f32], &mut [f32]) + Send + Sync + 'static,
) -> Result<Vec<Done>, AuditError> {
    let plan = watched(config).check()?;
    let divisor = plan.divisor(&plan.position(0));
    let probe = Probe::new(dimension, short.samples, gradient);
    let zero = vec![0.0; dimension];
    let mut trainer =
        Trainer::new(Unrecorded::new(plan), probe.clone(), zero.clone(), Randomness::from_seed(key, 0))?;
    let mut rounds = Vec::new();
    let mut asked = Asked::default();
    while !trainer.finished() {
        let round = trainer.round()?;
        let noised = round.update.iter().map(|&x| f64::from(x) * divisor).collect();
        probe.take_asked(&mut asked);
        let groups = asked.groups(short.fixed_group_size()).into_iter().map(<[u32]>::to_vec).collect();
        rounds.push(Done { noised, groups });
        trainer.replace(trainer.next_round(), zero.clone())?;
    }
    Ok(rounds)
}

/// U − U' of two rounds with the same noise, and how far rounding can put it off: two roundings to the grid
/// of the noise and to single precision (of Ū and of Ū/m) in every coordinate.
pub fn difference(config: &PlanConfig, one: &Done, other: &Done) -> (Vec<f64>, f64) {
    let scale =
        PromisedNoise::of(config, &config.mechanism.phases()[0], one.noised.len(), config.clipping.start);
    let largest = one.noised.iter().chain(&other.noised).fold(0.0_f64, |most, x| most.max(x.abs()));
    let each = scale.grid + 4.0 * f64::from(f32::EPSILON) * largest;
    let difference = one.noised.iter().zip(&other.noised).map(|(a, b)| a - b).collect();
    (difference, each * (one.noised.len() as f64).sqrt())
}

/// ‖x‖.
pub fn norm(x: &[f64]) -> f64 {
    x.iter().map(|x| x * x).sum::<f64>().sqrt()
}
