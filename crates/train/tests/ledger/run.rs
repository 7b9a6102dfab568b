//! A small run for tests of what is written about it.
#![allow(dead_code)]

use std::sync::Arc;

use dpsgd_privacy::mechanism::{Length, Mechanism, NoiseScale, PhaseConfig, RunConfig, Sampling};
use dpsgd_train::{Plan, PlanConfig};

pub fn mechanism(shuffled: bool, rounds: u64) -> Mechanism {
    let (samples, groups, group_size) = (27, 3, 2);
    let sampling = match shuffled {
        true => Sampling::Shuffle { samples, groups, group_size },
        false => Sampling::Subsample { samples, groups, group_size },
    };
    let (length, noise) = (Length::Rounds(rounds), NoiseScale::Sigma(1.5));
    RunConfig::single(PhaseConfig { sampling, length, noise, filtered: false }).check().unwrap()
}

pub fn plan(shuffled: bool, rounds: u64) -> Arc<Plan> {
    Arc::new(PlanConfig::new(mechanism(shuffled, rounds), 1.0, 0.1).check().unwrap())
}
