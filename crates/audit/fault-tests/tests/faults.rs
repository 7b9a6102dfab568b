//! Every fault that can be injected is found, and by the check that is there for it.
//!
//! Seeds are fixed; without a fault each of these audits passes (`crates/audit/tests/right.rs` has many
//! more).

use dpsgd_audit_fault_tests::{Audit, Effort, Options, audit};
use dpsgd_privacy::mechanism::{Length, NoiseScale, PhaseConfig, RunConfig, Sampling};
use dpsgd_train::fault::{Fault, Injection, POSSIBLE};
use dpsgd_train::{GroupResult, Inner, PlanConfig};

const _: () = assert!(POSSIBLE);

fn config(sampling: Sampling, sigma: f64, filtered: bool) -> PlanConfig {
    let phase =
        PhaseConfig { sampling, length: Length::Rounds(10_000), noise: NoiseScale::Sigma(sigma), filtered };
    PlanConfig::new(RunConfig::single(phase).check().unwrap(), 0.3, 0.1).with_divisor(16.0)
}

fn shuffled() -> PlanConfig {
    config(Sampling::Shuffle { samples: 128, groups: 8, group_size: 2 }, 0.5, false)
}

fn subsampled() -> PlanConfig {
    config(Sampling::Subsample { samples: 135, groups: 8, group_size: 2 }, 1.0, false)
}

fn filtered() -> PlanConfig {
    config(Sampling::Shuffle { samples: 135, groups: 8, group_size: 2 }, 0.5, true)
}

fn allocated() -> PlanConfig {
    config(Sampling::Allocate { rounds: 8 }, 0.5, false)
}

fn in_cells(filtered: bool) -> PlanConfig {
    config(Sampling::AllocateCells { rounds: 8, groups: 4, group_size: 3 }, 0.5, filtered)
}

fn audited(config: &PlanConfig, trials: u64) -> Audit {
    let options = Options { effort: Effort::Trials(trials), seed: Some(1), threads: 1, delta: 1e-5 };
    audit(&config.check().unwrap(), &options).unwrap()
}

/// What finds a fault: the names of the checks that fail, and "tradeoff" if an attack is better than the
/// claim.
fn found_by(config: &PlanConfig, fault: Option<Fault>, trials: u64) -> Vec<&'static str> {
    let injection = fault.map(Injection::of);
    let audit = audited(config, trials);
    drop(injection);
    let mut names: Vec<&'static str> =
        audit.checks.iter().filter(|check| check.failed()).map(|check| check.name).collect();
    if audit.attacks.iter().any(|attack| attack.contradicts()) {
        names.push("tradeoff");
    }
    for check in audit.checks.iter().filter(|check| check.failed()) {
        println!("{fault:?}: {}: {}", check.name, check.detail);
    }
    assert_eq!(audit.contradicts(), !names.is_empty());
    names
}

/// The fault is found by exactly these, and without it nothing is.
fn finds(config: &PlanConfig, fault: Fault, names: &[&str]) {
    let trials = 1500;
    assert_eq!(found_by(config, None, trials), Vec::<&str>::new(), "without {fault:?}");
    assert_eq!(found_by(config, Some(fault), trials), names, "{fault:?}");
}

#[test]
fn noise_halved() {
    finds(&shuffled(), Fault::NoiseHalved, &["noise", "tradeoff"]);
}

#[test]
fn noise_reused_in_two_rounds() {
    finds(&shuffled(), Fault::NoiseReused, &["independence"]);
}

#[test]
fn sigma_in_the_place_of_the_sensitivity() {
    // 2C = 0.6 and σ = 0.5: too little noise, by a sixth.
    finds(&shuffled(), Fault::SigmaForSensitivity, &["noise"]);
}

#[test]
fn clip_applied_after_the_sum() {
    finds(&subsampled(), Fault::ClippedAfterTheSum, &["clipping", "groups", "threads", "tradeoff"]);
}

#[test]
fn clip_bound_doubled() {
    finds(&shuffled(), Fault::ClipBoundDoubled, &["clipping", "groups", "threads", "tradeoff"]);
}

#[test]
fn permutation_not_redrawn() {
    finds(&shuffled(), Fault::PermutationKept, &["sampling"]);
}

#[test]
fn allocation_not_redrawn() {
    finds(&allocated(), Fault::AllocationKept, &["sampling"]);
}

#[test]
fn allocation_balanced_to_equal_sizes() {
    finds(&allocated(), Fault::AllocationBalanced, &["sampling"]);
}

#[test]
fn other_faults_of_an_allocated_run() {
    finds(&allocated(), Fault::NoiseHalved, &["noise", "tradeoff"]);
    finds(&allocated(), Fault::ClipBoundDoubled, &["clipping", "groups", "threads", "tradeoff"]);
    finds(&allocated(), Fault::LedgerShort, &["ledger"]);
}

#[test]
fn faults_of_a_run_in_cells() {
    finds(&in_cells(false), Fault::AllocationKept, &["sampling"]);
    finds(&in_cells(false), Fault::AllocationBalanced, &["sampling"]);
    finds(&in_cells(true), Fault::FilterIgnored, &["sampling", "filter"]);
    let mut config = in_cells(false);
    config.inner = Inner::named("momentum", 0.05).unwrap().into();
    let names = found_by(&config, Some(Fault::StateLeaks), 200);
    assert!(names.contains(&"groups"), "{names:?}");
    assert_eq!(found_by(&config, None, 200), Vec::<&str>::new());
}

#[test]
fn subsample_with_a_fixed_remainder() {
    finds(&subsampled(), Fault::RemainderFixed, &["sampling"]);
}

#[test]
fn state_leaking_into_the_next_group() {
    for name in ["sgd", "momentum", "adam", "adagrad", "rmsprop"] {
        for result in [GroupResult::SumOfGradients, GroupResult::ModelDifference] {
            let mut config = shuffled();
            config.inner = Inner::named(name, 0.05).unwrap().into();
            config.result = result;
            let names = found_by(&config, Some(Fault::StateLeaks), 200);
            assert!(names.contains(&"groups"), "{name} {result:?}: {names:?}");
            assert_eq!(found_by(&config, None, 200), Vec::<&str>::new(), "{name} {result:?}");
        }
    }
    // One group a round: the state leaks into the next round.
    let mut config = config(Sampling::Shuffle { samples: 64, groups: 1, group_size: 16 }, 0.5, false);
    config.inner = Inner::named("momentum", 0.05).unwrap().into();
    let names = found_by(&config, Some(Fault::StateLeaks), 200);
    assert!(names.contains(&"groups"), "{names:?}");
}

#[test]
fn ledger_one_round_short() {
    finds(&shuffled(), Fault::LedgerShort, &["ledger"]);
    finds(&subsampled(), Fault::LedgerShort, &["ledger"]);
}

#[test]
fn filtering_not_applied() {
    finds(&filtered(), Fault::FilterIgnored, &["sampling", "filter", "tradeoff"]);
}

#[test]
fn every_fault_is_found_on_the_default_kind_of_run() {
    // No fault is forgotten here when one is added.
    for fault in Fault::ALL {
        let mut config = match fault {
            Fault::RemainderFixed => subsampled(),
            Fault::AllocationKept | Fault::AllocationBalanced => allocated(),
            Fault::FilterIgnored => filtered(),
            _ => shuffled(),
        };
        if fault == Fault::StateLeaks {
            config.inner = Inner::named("sgd", 0.05).unwrap().into();
        }
        assert_ne!(found_by(&config, Some(fault), 1000), Vec::<&str>::new(), "{fault:?}");
    }
}
