//! The trainer as it is passes every part of the audit, and where the claim is tight the audit comes close to it.
//!
//! Seeds are fixed. For a seed not looked at before each audit would fail by chance with probability at most 1e-6
//! (`level::WHOLE`). The bound of 95 % on how close it comes is about four deviations below the mean: six other seeds of
//! the first case gave 96.2 to 97.2 %.

use dpsgd_audit::{Audit, Effort, Options, Verdict, audit};
use dpsgd_privacy::Adversary;
use dpsgd_privacy::mechanism::{Length, Neighbours, Noise, PhaseConfig, RunConfig, Sampling};
use dpsgd_train::{GroupResult, Inner, InnerSequence, Outer, PlanConfig, Rule, Schedule};

fn config(sampling: Sampling, sigma: f64, differing: u64, filtered: bool) -> PlanConfig {
    let phase =
        PhaseConfig { sampling, length: Length::Rounds(10_000), noise: Noise::Sigma(sigma), filtered };
    let run = RunConfig { differing, ..RunConfig::single(phase) };
    let mut config = PlanConfig::new(run.check().unwrap(), 0.3, 0.1);
    config.divisor = matches!(sampling, Sampling::Poisson { .. }).then_some(20.0);
    config
}

fn audited(config: &PlanConfig, trials: u64, seed: u64) -> Audit {
    let options = Options { effort: Effort::Trials(trials), seed: Some(seed), threads: 1, delta: 1e-5 };
    audit(&config.check().unwrap(), &options).unwrap()
}

fn passes(what: &str, config: &PlanConfig, seed: u64) -> Audit {
    let audit = audited(config, 300, seed);
    for check in &audit.checks {
        assert!(!check.failed(), "{what}: {} failed: {}", check.name, check.detail);
        let applies = check.name != "filter" || config.mechanism.phases()[0].filtered();
        assert_eq!(check.verdict == Verdict::Passed, applies, "{what}: {} says {}", check.name, check.detail);
    }
    for attack in &audit.attacks {
        assert!(!attack.contradicts(), "{what}: {attack:?}");
    }
    assert!(!audit.contradicts());
    audit
}

fn subsample(samples: u64, groups: u64, group_size: u64) -> Sampling {
    Sampling::Subsample { samples, groups, group_size }
}

fn shuffle(samples: u64, groups: u64, group_size: u64) -> Sampling {
    Sampling::Shuffle { samples, groups, group_size }
}

#[test]
fn samplers_group_sizes_and_differing_samples() {
    let mut seed = 100;
    for (name, make) in [
        ("subsample", subsample as fn(u64, u64, u64) -> Sampling),
        ("shuffle", shuffle as fn(u64, u64, u64) -> Sampling),
    ] {
        // Individual, batch and mixed clipping; with and without left-over samples.
        for (samples, groups, group_size) in [(163, 8, 1), (170, 1, 8), (160, 4, 5)] {
            for differing in [1, 3] {
                for filtered in [false, true] {
                    seed += 1;
                    let what =
                        format!("{name} {samples} {groups}×{group_size} g={differing} filter={filtered}");
                    let audit = passes(
                        &what,
                        &config(make(samples, groups, group_size), 1.0, differing, filtered),
                        seed,
                    );
                    let blind = name == "subsample" || differing == 1;
                    assert_eq!(audit.attacks.len(), if blind { 2 } else { 1 }, "{what}");
                    assert_eq!(audit.left_out.is_some(), !blind);
                }
            }
        }
    }
}

#[test]
fn poisson_with_both_relations() {
    for (i, differing) in [1, 3].into_iter().enumerate() {
        for neighbours in [Neighbours::AddRemove, Neighbours::Substitute] {
            let mut config = config(Sampling::Poisson { rate: 0.05 }, 0.8, differing, false);
            let run = RunConfig { neighbours, ..config.mechanism.config() };
            config.mechanism = run.check().unwrap();
            passes(&format!("poisson {neighbours} g={differing}"), &config, 200 + i as u64);
        }
    }
}

#[test]
fn inner_algorithms_outer_optimizers_and_schedules() {
    let step = 0.05;
    let algorithms = ["gradient", "sgd", "momentum", "adam", "adagrad", "rmsprop"];
    for (i, name) in algorithms.into_iter().enumerate() {
        for result in [GroupResult::SumOfGradients, GroupResult::ModelDifference] {
            let mut config = config(shuffle(96, 3, 8), 0.5, 1, false);
            config.inner = Inner::named(name, step).unwrap().into();
            config.result = result;
            let audit = passes(&format!("{name} {result:?}"), &config, 300 + i as u64);
            // The canary is as loud through every algorithm.
            let known = &audit.attacks[0];
            assert!(known.mu.0 > 0.5 * known.mu.1, "{name} {result:?}: {:?}", known.mu);
        }
    }
    let mut config = config(subsample(96, 3, 8), 1.0, 1, false);
    config.inner = InnerSequence::Cycle(vec![
        Inner::Gradient,
        Inner::named("adam", step).unwrap(),
        Inner::named("sgd", step).unwrap(),
    ]);
    config.outer = Outer::ADAM;
    config.clipping = Schedule {
        start: 0.3,
        rule: Rule::FollowUpdate { share: 0.5, rate: 0.5, lowest: 0.003, highest: 30.0 },
    };
    passes("a cycle with a C that follows", &config, 320);
    // Groups larger than the trainer's unit of work are split.
    passes("split groups", &self::config(shuffle(330, 2, 80), 0.5, 2, false), 321);
}

fn rounds(mut config: PlanConfig, rounds: u64) -> PlanConfig {
    let mut run = config.mechanism.config();
    run.phases[0].length = Length::Rounds(rounds);
    config.mechanism = run.check().unwrap();
    config
}

#[test]
fn where_the_claim_is_tight_the_audit_comes_within_five_percent() {
    for (what, sampling, sigma, seed) in [
        ("shuffle, g = 1, individual clipping", shuffle(16, 8, 1), 0.5, 1),
        ("shuffle, g = 1, batch clipping", shuffle(16, 1, 8), 0.5, 2),
        ("subsample, g = 1, batch clipping", subsample(16, 1, 8), 0.6, 3),
    ] {
        let audit = audited(&rounds(config(sampling, sigma, 1, false), 4), 40_000, seed);
        assert!(!audit.contradicts(), "{what}");
        let known = &audit.attacks[0];
        let (proved, claimed) = known.closest;
        println!(
            "{what}: µ at least {:.4} of {:.4}; nearest {proved:.4} of {claimed:.4} ({:.4}); ε {:.2?}; {:.1?}",
            known.mu.0,
            known.mu.1,
            proved / claimed,
            known.epsilon,
            audit.wall
        );
        assert_eq!(known.adversary, Adversary::A1);
        assert!(proved <= claimed && proved > 0.95 * claimed, "{what}: {:?}", known.closest);
        assert!(
            known.epsilon.0 > 0.25 * known.epsilon.1 && known.epsilon.0 < known.epsilon.1,
            "{:?}",
            known.epsilon
        );
    }
}

#[test]
fn the_blind_adversary_comes_near_the_claim_of_subsampling() {
    // One round in four draws the canary; the pair attains C_{1/4}(G_{1/σ}) in one of its two directions.
    let audit = audited(&rounds(config(subsample(32, 8, 1), 0.25, 1, false), 2), 20_000, 4);
    assert!(!audit.contradicts());
    let blind = &audit.attacks[1];
    let (proved, claimed) = blind.closest;
    println!("subsample, A0: nearest µ {proved:.4} of {claimed:.4} ({:.4})", proved / claimed);
    assert_eq!((blind.adversary, blind.claim), (Adversary::A0, Adversary::A0));
    assert!(proved <= claimed && proved > 0.75 * claimed);
}

#[test]
fn threads_do_not_change_the_result() {
    let plan = config(shuffle(34, 4, 2), 1.0, 1, false).check().unwrap();
    let [one, three] = [1, 3].map(|threads| {
        let options = Options { effort: Effort::Trials(200), seed: Some(5), threads, delta: 1e-5 };
        audit(&plan, &options).unwrap()
    });
    assert_eq!(one.attacks[0].mu, three.attacks[0].mu);
    assert_eq!(one.checks[0].detail, three.checks[0].detail);
}

#[test]
fn a_time_is_kept() {
    let plan = config(shuffle(60_000, 16, 4), 2.0, 1, false).check().unwrap();
    let time = std::time::Duration::from_secs(2);
    let options = Options { effort: Effort::Time(time), seed: Some(6), threads: 1, delta: 1e-5 };
    let audit = audit(&plan, &options).unwrap();
    assert!(!audit.contradicts());
    assert!(audit.wall < 5 * time, "{:?}", audit.wall);
    assert_eq!(audit.configured.phases()[0].rounds(), 10_000);
    assert!(audit.audited.phases()[0].rounds() < 200);
}

#[test]
fn what_cannot_be_audited_is_refused() {
    let one = config(shuffle(34, 4, 2), 1.0, 1, false);
    let mut run = one.mechanism.config();
    run.phases.push(run.phases[0]);
    let two = PlanConfig { mechanism: run.check().unwrap(), ..one.clone() };
    let options = Options { effort: Effort::Trials(1000), seed: Some(7), threads: 1, delta: 1e-5 };
    assert!(audit(&two.check().unwrap(), &options).unwrap_err().to_string().contains("2 phases"));
    let few = Options { effort: Effort::Trials(10), ..options };
    assert!(audit(&one.check().unwrap(), &few).unwrap_err().to_string().contains("at least 100"));
}
