//! Values survive writing and reading to the last bit, and nothing is read without the check.

use dpsgd_privacy::account::{Account, Question};
use dpsgd_privacy::mechanism::{
    Length, Mechanism, Neighbours, NoiseScale, PhaseConfig, RunConfig, Sampling, SamplingKind,
};
use dpsgd_privacy::{Adversary, Budget, Curve, Interval};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::RngSeed;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Through JSON and through TOML.
fn again<T: Serialize + DeserializeOwned>(value: &T) -> [T; 2] {
    let json = serde_json::to_string(value).unwrap();
    let toml = toml::to_string(value).unwrap();
    [serde_json::from_str(&json).unwrap(), toml::from_str(&toml).unwrap()]
}

fn phase() -> impl Strategy<Value = PhaseConfig> {
    let sizes = || (1..1_u64 << 53, 1..600_u64, 1..600_u64);
    let fixed = |(more, groups, group_size): (u64, u64, u64)| {
        ((groups * group_size + more).min(1 << 53), groups, group_size)
    };
    let sampling = prop_oneof![
        sizes().prop_map(fixed).prop_map(|(samples, groups, group_size)| {
            Sampling::Subsample { samples, groups, group_size }
        }),
        sizes()
            .prop_map(fixed)
            .prop_map(|(samples, groups, group_size)| { Sampling::Shuffle { samples, groups, group_size } }),
        (1e-10..=1.0_f64).prop_map(|rate| Sampling::Poisson { rate }),
        (1..=100_000_000_u64).prop_map(|rounds| Sampling::Allocate { rounds }),
        (1..=10_000_u64, 1..=10_000_u64, 2..600_u64)
            .prop_map(|(rounds, groups, group_size)| Sampling::AllocateCells { rounds, groups, group_size }),
    ];
    let length = prop_oneof![
        (1..=1_000_000_000_000_u64).prop_map(Length::Rounds),
        (1..50_u64).prop_map(Length::Epochs),
    ];
    let noise = prop_oneof![
        (0.05..1e5_f64).prop_map(NoiseScale::Sigma),
        (0.1..2e5_f64).prop_map(NoiseScale::Multiplier),
    ];
    (sampling, length, noise, any::<bool>()).prop_map(|(sampling, length, noise, filtered)| PhaseConfig {
        sampling,
        length,
        noise,
        filtered,
    })
}

fn config() -> impl Strategy<Value = RunConfig> {
    let neighbours = select(vec![Neighbours::Substitute, Neighbours::AddRemove]);
    let releases = prop::collection::vec(1e-300..1e3_f64, 0..3);
    (prop::collection::vec(phase(), 1..4), neighbours, 1..=3_u64, releases).prop_map(
        |(phases, neighbours, differing, releases)| RunConfig { phases, neighbours, differing, releases },
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000,
        rng_seed: RngSeed::Fixed(0x3e1a),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_run_is_read_as_it_was_written(config in config()) {
        for read in again(&config) {
            prop_assert_eq!(&read, &config);
        }
        if let Ok(mechanism) = config.check() {
            for read in again(&mechanism) {
                prop_assert_eq!(&read, &mechanism);
            }
        }
    }

    #[test]
    fn an_interval_is_read_as_it_was_written(a in any::<f64>(), b in any::<f64>()) {
        for read in again(&Interval { lower: a, upper: b }) {
            prop_assert_eq!((read.lower.to_bits(), read.upper.to_bits()), (a.to_bits(), b.to_bits()));
        }
    }
}

fn run(sampling: Sampling, rounds: u64, sigma: f64) -> Mechanism {
    let phase = PhaseConfig {
        sampling,
        length: Length::Rounds(rounds),
        noise: NoiseScale::Sigma(sigma),
        filtered: false,
    };
    RunConfig::single(phase).check().unwrap()
}

#[test]
fn the_format_is_fixed() {
    let mechanism = run(Sampling::Subsample { samples: 100, groups: 5, group_size: 2 }, 30, 1.5);
    let json = r#"{"version":1,"neighbours":"substitute","differing":1,"releases":[],"phases":[{"rounds":30,"#
        .to_string()
        + r#""sigma":1.5,"filtered":false,"sampling":{"kind":"subsample","samples":100,"groups":5,"#
        + r#""group-size":2}}]}"#;
    assert_eq!(serde_json::to_string(&mechanism).unwrap(), json);
    for (name, adversary) in [("A0", Adversary::A0), ("A1", Adversary::A1)] {
        assert_eq!(serde_json::to_string(&adversary).unwrap(), format!("\"{name}\""));
        for given in [name.to_string(), name.to_lowercase()] {
            let read: Adversary = serde_json::from_str(&format!("\"{given}\"")).unwrap();
            assert_eq!((read, given.parse::<Adversary>().unwrap()), (adversary, adversary));
        }
    }
    assert!("A2".parse::<Adversary>().is_err());
    assert_eq!(serde_json::to_string(&SamplingKind::Poisson).unwrap(), "\"poisson\"");
    for end in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
        for read in again(&Interval { lower: -0.0, upper: end }) {
            assert_eq!(format!("{read:?}"), format!("[-0e0, {end:e}]"));
        }
    }
    let budget = Budget { adversary: Adversary::A0, delta: 1e-5 };
    assert_eq!(again(&budget), [budget; 2]);
}

#[test]
fn what_is_read_is_checked() {
    let mechanism = run(Sampling::Subsample { samples: 100, groups: 5, group_size: 2 }, 30, 1.5);
    let json = serde_json::to_string(&mechanism).unwrap();
    for (from, to, says) in [
        ("\"version\":1", "\"version\":2", "this release reads version 1"),
        ("\"version\":1,", "", "missing field `version`"),
        ("\"groups\":5", "\"groups\":51", "groups × group-size = 51 × 2"),
        ("\"sigma\":1.5", "\"sigma\":0.01", "sigma = 0.01"),
        ("substitute", "add-remove", "neighbours = add-remove"),
        ("\"differing\":1", "\"differing\":0", "differing = 0"),
        ("\"releases\":[]", "\"releases\":[-1.0]", "release-mu = -1"),
        ("\"kind\":\"subsample\"", "\"kind\":\"random\"", "unknown variant `random`"),
        ("\"filtered\":false", "\"filtered\":false,\"more\":1", "unknown field `more`"),
        ("\"group-size\":2", "\"group-size\":2,\"rate\":0.5", "unknown field `rate`"),
    ] {
        let changed = json.replace(from, to);
        assert_ne!(changed, json);
        let error = serde_json::from_str::<Mechanism>(&changed).unwrap_err().to_string();
        assert!(error.contains(says), "{changed}: {error}");
    }
}

#[test]
fn an_account_is_read_as_it_was_written() {
    let subsample = run(Sampling::Subsample { samples: 6000, groups: 64, group_size: 1 }, 900, 2.0);
    let shuffle = run(Sampling::Shuffle { samples: 640, groups: 64, group_size: 1 }, 40, 2.0);
    let poisson = run(Sampling::Poisson { rate: 0.01 }, 500, 0.5);
    let mut group = subsample.config();
    group.differing = 2;
    // Nothing is hidden here: ends are infinite, and µ is not stated.
    let bare = run(Sampling::Poisson { rate: 1.0 }, 1000, 0.05);
    for mechanism in [subsample, shuffle, poisson, group.check().unwrap(), bare] {
        for question in [Question::epsilon_at(1e-5).unwrap(), Question::delta_at(1.0).unwrap()] {
            let account = Account::of(&mechanism, question, &[0.5]).unwrap();
            assert_eq!(account.mechanism, mechanism);
            let alphas: Vec<f64> = account.guarantees[0].tradeoff.iter().map(|point| point.0).collect();
            assert_eq!(alphas, [0.01, 0.05, 0.5]);
            for read in again(&account) {
                // Debug output shows every digit, and compares NaN as equal to NaN.
                assert_eq!(format!("{read:?}"), format!("{account:?}"));
            }
            let newer =
                serde_json::to_string(&account).unwrap().replacen("\"version\":1", "\"version\":9", 1);
            let error = serde_json::from_str::<Account>(&newer).unwrap_err().to_string();
            assert!(error.contains("version = 9"), "{error}");
        }
    }
}

/// The answers of an account are those of the trade-off functions it is made from.
#[test]
fn an_account_repeats_the_curves() {
    let mechanism = run(Sampling::Shuffle { samples: 640, groups: 64, group_size: 1 }, 40, 2.0);
    let account = Account::of(&mechanism, Question::epsilon_at(1e-6).unwrap(), &[]).unwrap();
    let curve = dpsgd_privacy::adversary::curve(&mechanism, Adversary::A1).unwrap();
    let known = account.against(Adversary::A1).unwrap();
    assert_eq!(known.answer, curve.epsilon(1e-6).unwrap());
    assert_eq!(known.tradeoff[0], (0.01, curve.beta(0.01).unwrap()));
    assert!(account.against(Adversary::A0).is_none());
    assert_eq!(account.refused[0].0, Adversary::A0);
    assert!(account.shuffle_floor.as_ref().unwrap().substitute <= known.answer.upper);
    // One differing sample is hit once per epoch.
    assert!((account.exposure.0 - 4.0).abs() < 1e-12 && account.exposure.1 == 4.0);
}

#[test]
fn curves_are_shared_between_threads() {
    fn shared<T: Send + Sync + ?Sized>() {}
    shared::<dyn Curve>();
    shared::<Mechanism>();
    shared::<Account>();
    shared::<dpsgd_privacy::conversions::Renyi>();
    let mechanism = run(Sampling::Poisson { rate: 0.01 }, 500, 1.0);
    let curve = dpsgd_privacy::adversary::curve(&mechanism, Adversary::A0).unwrap();
    let alone = curve.epsilon(1e-5).unwrap();
    let fresh = dpsgd_privacy::adversary::curve(&mechanism, Adversary::A0).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| assert_eq!(fresh.epsilon(1e-5).unwrap(), alone));
        }
    });
}
