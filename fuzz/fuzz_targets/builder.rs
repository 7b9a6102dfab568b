//! The mechanism builder, from numbers: a mechanism that keeps its promises, or one line that says why not.
#![no_main]

use dpsgd::privacy::mechanism::{
    Length, MOST_ROUNDS, Mechanism, Neighbours, NoiseScale, PhaseConfig, RunConfig, SIGMA_RANGE, Sampling,
};
use libfuzzer_sys::fuzz_target;

/// Kind of sampler; three sizes; rate; length and its unit; noise and its unit; whether filtered.
type Given = (u8, (u64, u64, u64), f64, (u64, bool), (f64, bool), bool);

fn phase((kind, sizes, rate, length, noise, filtered): Given) -> PhaseConfig {
    let (samples, groups, group_size) = sizes;
    PhaseConfig {
        sampling: match kind % 5 {
            0 => Sampling::Subsample { samples, groups, group_size },
            1 => Sampling::Shuffle { samples, groups, group_size },
            2 => Sampling::Poisson { rate },
            3 => Sampling::Allocate { rounds: samples },
            _ => Sampling::AllocateCells { rounds: samples, groups, group_size },
        },
        length: if length.1 { Length::Epochs(length.0) } else { Length::Rounds(length.0) },
        noise: if noise.1 { NoiseScale::Sigma(noise.0) } else { NoiseScale::Multiplier(noise.0) },
        filtered,
    }
}

fuzz_target!(|input: (bool, u64, Vec<f64>, Vec<Given>, u64)| {
    let (add_remove, differing, releases, phases, round) = input;
    let neighbours = if add_remove { Neighbours::AddRemove } else { Neighbours::Substitute };
    let phases = phases.into_iter().map(phase).collect();
    let mechanism = match (RunConfig { phases, neighbours, differing, releases }).check() {
        Ok(mechanism) => mechanism,
        Err(error) => return assert_eq!(error.to_string().lines().count(), 1, "{error}"),
    };
    assert!(!mechanism.phases().is_empty() && mechanism.differing() >= 1);
    for phase in mechanism.phases() {
        assert!((1..=MOST_ROUNDS).contains(&phase.rounds()), "{phase:?}");
        assert!((SIGMA_RANGE.0..=SIGMA_RANGE.1).contains(&phase.sigma()), "{phase:?}");
        assert!(phase.epochs() > 0.0 && phase.epochs().is_finite(), "{phase:?}");
        assert!(mechanism.noise_per_hit(phase) > 0.0);
    }
    assert_eq!(mechanism.config().check().expect("it was checked"), mechanism);
    let written = serde_json::to_string(&mechanism).expect("a mechanism can be written");
    assert_eq!(serde_json::from_str::<Mechanism>(&written).expect("and read"), mechanism);
    let next = mechanism.resume_at(round);
    assert!(next <= mechanism.rounds() && (next >= round || round > mechanism.rounds()));
    if let Some(spent) = mechanism.spent(round).expect("a part of a run is a run") {
        assert_eq!(spent.rounds(), next);
    }
});
