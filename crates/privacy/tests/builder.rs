//! Whatever is written down, the builder of mechanisms either refuses it and names the setting, or
//! returns a mechanism that can be accounted for. Seeds are fixed; every input that once failed is
//! kept as its own test.

use dpsgd_privacy::PrivacyError;
use dpsgd_privacy::adversary::{Adversary, curve};
use dpsgd_privacy::mechanism::{
    Length, MOST_ROUNDS, Mechanism, Neighbours, NoiseScale, PhaseConfig, RunConfig, SIGMA_RANGE, Sampling,
};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::RngSeed;

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        rng_seed: RngSeed::Fixed(0x0b01_1de5),
        failure_persistence: None,
        max_shrink_iters: 60,
        ..ProptestConfig::default()
    }
}

/// Whole numbers with their edges.
fn whole() -> impl Strategy<Value = u64> {
    let edges =
        vec![0, 1, 2, 511, 512, 513, 60_000, (1 << 53) - 1, 1 << 53, (1 << 53) + 1, u64::MAX - 1, u64::MAX];
    prop_oneof![select(edges), 0..100_u64, any::<u64>(), Just(MOST_ROUNDS), Just(MOST_ROUNDS + 1)]
}

/// Numbers with their edges, and what is not a finite number.
fn real() -> impl Strategy<Value = f64> {
    let edges = vec![
        0.0,
        -0.0,
        1e-10,
        9e-11,
        0.05,
        0.1,
        0.5,
        1.0,
        1.0_f64.next_up(),
        2.0,
        1e3,
        1e5,
        2e5,
        5e-324,
        f64::MAX,
    ];
    prop_oneof![select(edges), any::<f64>(), 0.0..3.0_f64]
}

fn anything() -> impl Strategy<Value = RunConfig> {
    let sizes = || (whole(), whole(), whole());
    let sampling = prop_oneof![
        sizes().prop_map(|(samples, groups, group_size)| Sampling::Subsample { samples, groups, group_size }),
        sizes().prop_map(|(samples, groups, group_size)| Sampling::Shuffle { samples, groups, group_size }),
        real().prop_map(|rate| Sampling::Poisson { rate }),
    ];
    let length = prop_oneof![whole().prop_map(Length::Epochs), whole().prop_map(Length::Rounds)];
    let noise = prop_oneof![real().prop_map(NoiseScale::Sigma), real().prop_map(NoiseScale::Multiplier)];
    let phase = (sampling, length, noise, any::<bool>())
        .prop_map(|(sampling, length, noise, filtered)| PhaseConfig { sampling, length, noise, filtered });
    let neighbours = select(vec![Neighbours::Substitute, Neighbours::AddRemove]);
    (prop::collection::vec(phase, 0..4), neighbours, whole(), prop::collection::vec(real(), 0..3)).prop_map(
        |(phases, neighbours, differing, releases)| RunConfig { phases, neighbours, differing, releases },
    )
}

/// Runs of one to three phases that the builder may refuse, but small enough to be accounted for quickly.
/// (At least a hundred rounds: the exact accountant is slowest for few.)
fn small() -> impl Strategy<Value = RunConfig> {
    let sizes = || (1..400_u64, 1..12_u64, 1..4_u64);
    let sampling = prop_oneof![
        sizes().prop_map(|(samples, groups, group_size)| Sampling::Subsample { samples, groups, group_size }),
        sizes().prop_map(|(samples, groups, group_size)| Sampling::Shuffle { samples, groups, group_size }),
        (0.01..1.1_f64).prop_map(|rate| Sampling::Poisson { rate }),
    ];
    let noise = prop_oneof![
        (0.02..4.0_f64).prop_map(NoiseScale::Sigma),
        (0.5..8.0_f64).prop_map(NoiseScale::Multiplier)
    ];
    let length = prop_oneof![(0..40_u64).prop_map(Length::Epochs), (100..500_u64).prop_map(Length::Rounds)];
    let phase = (sampling, length, noise, any::<bool>())
        .prop_map(|(sampling, length, noise, filtered)| PhaseConfig { sampling, length, noise, filtered });
    let neighbours = select(vec![Neighbours::Substitute, Neighbours::Substitute, Neighbours::AddRemove]);
    (prop::collection::vec(phase, 1..3), neighbours, 0..4_u64, prop::collection::vec(0.0..2.0_f64, 0..2))
        .prop_map(|(phases, neighbours, differing, releases)| RunConfig {
            phases,
            neighbours,
            differing,
            releases,
        })
}

/// What everyone who receives a mechanism relies on.
fn sound(mechanism: &Mechanism) -> Result<(), TestCaseError> {
    prop_assert!(!mechanism.phases().is_empty() && mechanism.differing() >= 1);
    for phase in mechanism.phases() {
        prop_assert!((1..=MOST_ROUNDS).contains(&phase.rounds()), "{phase:?}");
        prop_assert!((SIGMA_RANGE.0..=SIGMA_RANGE.1).contains(&phase.sigma()), "{phase:?}");
        prop_assert!(phase.sampling().rounds_per_epoch() >= 1, "{phase:?}");
        prop_assert!(phase.epochs() > 0.0 && phase.epochs().is_finite(), "{phase:?}");
        prop_assert!(mechanism.noise_per_hit(phase) > 0.0);
    }
    prop_assert_eq!(&mechanism.config().check().expect("it was checked"), mechanism);
    Ok(())
}

const ALPHAS: [f64; 7] = [0.0, 1e-4, 0.02, 0.25, 0.5, 0.9, 1.0];

proptest! {
    #![proptest_config(config(20_000))]

    #[test]
    fn anything_is_refused_by_name_or_a_mechanism(config in anything()) {
        match config.check() {
            Ok(mechanism) => sound(&mechanism)?,
            Err(error) => {
                let text = error.to_string();
                prop_assert!(text.starts_with(error.name) && text.lines().count() == 1, "{text}");
                prop_assert!(!error.allowed.is_empty() && !error.why.is_empty(), "{text}");
            }
        }
    }
}

proptest! {
    #![proptest_config(config(60))]

    #[test]
    fn what_is_not_refused_has_sane_curves(config in small()) {
        let Ok(mechanism) = config.check() else { return Ok(()) };
        sound(&mechanism)?;
        for adversary in [Adversary::A1, Adversary::A0] {
            let curve = match curve(&mechanism, adversary) {
                Ok(curve) => curve,
                // A combination that no theorem covers is refused with the reason.
                Err(error @ PrivacyError::Unsupported { .. }) => {
                    prop_assert!(
                        adversary == Adversary::A0 && error.to_string().lines().count() == 1,
                        "{}", error
                    );
                    continue;
                }
                Err(error) => return Err(TestCaseError::fail(format!("{adversary:?}: {error}"))),
            };
            let epsilon = curve.epsilon(1e-5)?;
            prop_assert!(
                0.0 <= epsilon.lower && epsilon.lower <= epsilon.upper && epsilon.upper.is_finite(),
                "{epsilon:?}"
            );
            let betas = ALPHAS.iter().map(|&alpha| curve.beta(alpha)).collect::<Result<Vec<_>, _>>()?;
            for (i, beta) in betas.iter().enumerate() {
                let alpha = ALPHAS[i];
                prop_assert!(
                    0.0 <= beta.lower && beta.lower <= beta.upper && beta.upper <= 1.0 - alpha + 1e-12,
                    "{adversary:?} f({alpha}) = {beta:?}"
                );
                if i > 0 {
                    prop_assert!(beta.lower <= betas[i - 1].upper, "{adversary:?} rises at {alpha}");
                }
                // Convex: below every chord.
                if i > 0 && i + 1 < betas.len() {
                    let (left, right) = (ALPHAS[i - 1], ALPHAS[i + 1]);
                    let share = (alpha - left) / (right - left);
                    let chord = (1.0 - share) * betas[i - 1].upper + share * betas[i + 1].upper;
                    prop_assert!(beta.lower <= chord + 1e-12, "{adversary:?} not convex at {alpha}");
                }
            }
        }
    }
}
