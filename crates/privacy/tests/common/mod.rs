//! Shorthand for runs, and exact oracles for the law of c².
#![allow(dead_code)]

pub mod exact;

use dpsgd_privacy::Interval;
use dpsgd_privacy::mechanism::{
    Length, Mechanism, Neighbours, NoiseScale, Phase, PhaseConfig, RunConfig, Sampling,
};

pub fn subsample(samples: u64, groups: u64, group_size: u64) -> Sampling {
    Sampling::Subsample { samples, groups, group_size }
}

pub fn shuffle(samples: u64, groups: u64, group_size: u64) -> Sampling {
    Sampling::Shuffle { samples, groups, group_size }
}

pub fn poisson(rate: f64) -> Sampling {
    Sampling::Poisson { rate }
}

pub fn allocate(rounds: u64) -> Sampling {
    Sampling::Allocate { rounds }
}

pub fn cells(rounds: u64, groups: u64) -> Sampling {
    Sampling::AllocateCells { rounds, groups, group_size: 8 }
}

/// A run of one phase of `rounds` rounds without filtering.
pub fn run(sampling: Sampling, rounds: u64, noise: NoiseScale, differing: u64) -> RunConfig {
    let length = Length::Rounds(rounds);
    let mut run = RunConfig::single(PhaseConfig { sampling, length, noise, filtered: false });
    run.differing = differing;
    run
}

/// The same run with each group kept with probability ½.
pub fn filtered(mut run: RunConfig) -> RunConfig {
    run.phases.iter_mut().for_each(|phase| phase.filtered = true);
    run
}

/// The same run with samples substituted (Poisson runs default to adding and removing).
pub fn substituting(mut run: RunConfig) -> RunConfig {
    run.neighbours = Neighbours::Substitute;
    run
}

pub fn only_phase(mechanism: &Mechanism) -> &Phase {
    let [phase] = mechanism.phases() else { panic!("one phase expected") };
    phase
}

/// The larger of the two ends' distances from `reference`, relative to it.
pub fn relative_distance(interval: Interval, reference: f64) -> f64 {
    (interval.lower / reference - 1.0).abs().max((interval.upper / reference - 1.0).abs())
}
