//! A small run for tests of what is written about it.

use dpsgd_privacy::mechanism::{Length, Mechanism, Noise, PhaseConfig, RunConfig, Sampling};

pub fn mechanism(shuffled: bool, rounds: u64) -> Mechanism {
    let (samples, groups, group_size) = (27, 3, 2);
    let sampling = match shuffled {
        true => Sampling::Shuffle { samples, groups, group_size },
        false => Sampling::Subsample { samples, groups, group_size },
    };
    let (length, noise) = (Length::Rounds(rounds), Noise::Sigma(1.5));
    RunConfig::single(PhaseConfig { sampling, length, noise, filtered: false }).check().unwrap()
}
