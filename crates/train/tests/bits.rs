//! Training results to the bit: a digest of every update and of the final weights, for every kind of run. The
//! digests were taken before the trainer was rebuilt around its ledger; a change of any of them is a change
//! of results.

mod toy;

use std::sync::Arc;

use dpsgd_privacy::mechanism::{Length, NoiseScale, PhaseConfig, RunConfig, Sampling};
use dpsgd_train::ledger::Digest;
use dpsgd_train::{
    GroupResult, Hook, Inner, NoiseKind, Outer, PlanConfig, Randomness, Rule, Schedule, Trainer, Unrecorded,
};
use toy::*;

const DIGESTS: &[(&str, &str)] = &[
    ("poisson gradient SumOfGradients", "df0d230794a71e03"),
    ("poisson gradient ModelDifference", "df0d230794a71e03"),
    ("poisson sgd SumOfGradients", "f370c54f99ea2ab8"),
    ("poisson sgd ModelDifference", "f370c54f99ea2ab8"),
    ("poisson momentum SumOfGradients", "e22f544c135b0ae3"),
    ("poisson momentum ModelDifference", "f370c54f99ea2ab8"),
    ("poisson adam SumOfGradients", "e22f544c135b0ae3"),
    ("poisson adam ModelDifference", "26f0a855dedc386d"),
    ("poisson adagrad SumOfGradients", "e22f544c135b0ae3"),
    ("poisson adagrad ModelDifference", "55a12eee4dfbd547"),
    ("poisson rmsprop SumOfGradients", "e22f544c135b0ae3"),
    ("poisson rmsprop ModelDifference", "abe950af94263045"),
    ("subsample-1 gradient SumOfGradients", "55d4281eb47df285"),
    ("subsample-1 gradient ModelDifference", "55d4281eb47df285"),
    ("subsample-1 sgd SumOfGradients", "913ba8666f9f46df"),
    ("subsample-1 sgd ModelDifference", "913ba8666f9f46df"),
    ("subsample-1 momentum SumOfGradients", "bcbc25ef8972e5f3"),
    ("subsample-1 momentum ModelDifference", "913ba8666f9f46df"),
    ("subsample-1 adam SumOfGradients", "bcbc25ef8972e5f3"),
    ("subsample-1 adam ModelDifference", "5409abaeaf25719c"),
    ("subsample-1 adagrad SumOfGradients", "bcbc25ef8972e5f3"),
    ("subsample-1 adagrad ModelDifference", "02c052e3061fa443"),
    ("subsample-1 rmsprop SumOfGradients", "bcbc25ef8972e5f3"),
    ("subsample-1 rmsprop ModelDifference", "194887b4a2e9093e"),
    ("subsample-7 gradient SumOfGradients", "a35c1a3b7afe5041"),
    ("subsample-7 gradient ModelDifference", "a35c1a3b7afe5041"),
    ("subsample-7 sgd SumOfGradients", "4e7a0cd6363d25ce"),
    ("subsample-7 sgd ModelDifference", "4e7a0cd6363d25ce"),
    ("subsample-7 momentum SumOfGradients", "429e751712e920cb"),
    ("subsample-7 momentum ModelDifference", "519a670d1a3e450d"),
    ("subsample-7 adam SumOfGradients", "b8d0f424bb0b7efa"),
    ("subsample-7 adam ModelDifference", "798fc8bfc008aca1"),
    ("subsample-7 adagrad SumOfGradients", "aaaa4e870a2f4811"),
    ("subsample-7 adagrad ModelDifference", "c3dc25dad3001fde"),
    ("subsample-7 rmsprop SumOfGradients", "cb1b8a35fb828b69"),
    ("subsample-7 rmsprop ModelDifference", "37f375d3762a4ba9"),
    ("shuffle-70 gradient SumOfGradients", "8272a8363c9a8b14"),
    ("shuffle-70 gradient ModelDifference", "8272a8363c9a8b14"),
    ("shuffle-70 sgd SumOfGradients", "d2af753b3a4c06fc"),
    ("shuffle-70 sgd ModelDifference", "d2af753b3a4c06fc"),
    ("shuffle-70 momentum SumOfGradients", "7a52e6c281e290d4"),
    ("shuffle-70 momentum ModelDifference", "dc0759572e86edb3"),
    ("shuffle-70 adam SumOfGradients", "1c8d17570c98dba8"),
    ("shuffle-70 adam ModelDifference", "356de1a8da81a4eb"),
    ("shuffle-70 adagrad SumOfGradients", "209b64538c129c31"),
    ("shuffle-70 adagrad ModelDifference", "703071994f9243bb"),
    ("shuffle-70 rmsprop SumOfGradients", "f4689039a90fe76b"),
    ("shuffle-70 rmsprop ModelDifference", "d57b7a6ba1e683a7"),
    ("shuffle-40 gradient SumOfGradients", "e934e5462ee9691a"),
    ("shuffle-40 gradient ModelDifference", "e934e5462ee9691a"),
    ("shuffle-40 sgd SumOfGradients", "21548533a3cbf388"),
    ("shuffle-40 sgd ModelDifference", "21548533a3cbf388"),
    ("shuffle-40 momentum SumOfGradients", "10615254d6cd114f"),
    ("shuffle-40 momentum ModelDifference", "6bf7db3d5f6679ae"),
    ("shuffle-40 adam SumOfGradients", "173be70ae8343663"),
    ("shuffle-40 adam ModelDifference", "2ec85ef3115d0b88"),
    ("shuffle-40 adagrad SumOfGradients", "277a43afbad051cd"),
    ("shuffle-40 adagrad ModelDifference", "e1d330cc0df8e2a3"),
    ("shuffle-40 rmsprop SumOfGradients", "9f0f0ebe55223c86"),
    ("shuffle-40 rmsprop ModelDifference", "1599ee8a165dae61"),
    ("fast", "253c6476a4da47bf"),
    ("momentum", "f9a52456b7176dd6"),
    ("nesterov", "554685beac44ceb5"),
    ("adam", "d13c60310af87d3b"),
    ("hook", "050962dda7042be2"),
    ("follow", "4859f70ecda1eba0"),
    ("root", "a48f88158701fe12"),
    ("phases", "959f9606e98555f2"),
    // Allocation came later; these pin its draws.
    ("allocate gradient", "d9728506d4f68c74"),
    ("allocate adam", "dd76c07934381e35"),
    ("allocate phases", "d0bffb2fd270fd84"),
];

#[track_caller]
fn check(name: &str, config: &PlanConfig) {
    let known = DIGESTS.iter().find(|(known, _)| *known == name).unwrap().1;
    for threads in [1, 2] {
        let plan = PlanConfig { threads, ..config.clone() }.check().unwrap();
        let toy = Arc::new(Toy::new(215, 1));
        let weights = toy.weights(3);
        let randomness = Randomness::from_seed(77, 0);
        let mut trainer = Trainer::new(Unrecorded::new(plan), toy, weights, randomness).unwrap();
        let mut bytes = Vec::new();
        while !trainer.finished() {
            bytes.extend(trainer.round().unwrap().update.iter().flat_map(|u| u.to_le_bytes()));
        }
        bytes.extend(trainer.weights().iter().flat_map(|w| w.to_le_bytes()));
        assert_eq!(&Digest::of(&[&bytes]).to_string()[..16], known, "{name}, {threads} threads");
    }
}

#[test]
fn samplers_and_inner_algorithms() {
    let samplings = [
        ("poisson", Sampling::Poisson { rate: 0.3 }, false),
        ("subsample-1", subsample(215, 70, 1), false),
        ("subsample-7", subsample(215, 10, 7), true),
        ("shuffle-70", shuffle(215, 1, 70), false),
        ("shuffle-40", shuffle(215, 3, 40), true),
    ];
    for (name, sampling, filtered) in samplings {
        for inner in ["gradient", "sgd", "momentum", "adam", "adagrad", "rmsprop"] {
            for kind in [GroupResult::SumOfGradients, GroupResult::ModelDifference] {
                let mut config = PlanConfig::new(mechanism(sampling, 4, 0.5, filtered), 0.3, 0.01);
                config.inner = Inner::named(inner, 0.01).unwrap().into();
                config.result = kind;
                check(&format!("{name} {inner} {kind:?}"), &config.with_divisor(64.0));
            }
        }
    }
}

#[test]
fn noise_optimizers_hooks_and_schedules() {
    let base = PlanConfig::new(mechanism(subsample(215, 30, 2), 6, 0.5, false), 0.3, 0.01);
    for (name, change) in [
        ("fast", &(|c: &mut PlanConfig| c.noise = NoiseKind::Fast) as &dyn Fn(&mut PlanConfig)),
        ("momentum", &|c| c.outer = Outer::Momentum { momentum: 0.9, nesterov: false }),
        ("nesterov", &|c| c.outer = Outer::Momentum { momentum: 0.9, nesterov: true }),
        ("adam", &|c| c.outer = Outer::ADAM),
        ("hook", &|c| c.hook = Some(Hook::new(0.2, |x: &mut [f32]| x[0] = -x[0]))),
        ("follow", &|c| {
            c.clipping.rule = Rule::FollowUpdate { share: 0.4, rate: 0.5, lowest: 0.01, highest: 3.0 };
        }),
        ("root", &|c| c.step = Schedule { start: 0.1, rule: Rule::InverseRoot }),
    ] {
        let mut config = base.clone();
        change(&mut config);
        check(name, &config);
    }
}

#[test]
fn phases() {
    let phase = |sampling, rounds, sigma| PhaseConfig {
        sampling,
        length: Length::Rounds(rounds),
        noise: NoiseScale::Sigma(sigma),
        filtered: false,
    };
    let mut run = RunConfig::single(phase(subsample(215, 20, 2), 3, 0.5));
    run.phases.push(phase(shuffle(215, 3, 40), 4, 0.7));
    run.phases.push(phase(shuffle(215, 70, 1), 4, 0.6));
    check("phases", &PlanConfig::new(run.check().unwrap(), 0.3, 0.01));
}

#[test]
fn allocation() {
    for inner in ["gradient", "adam"] {
        let sampling = Sampling::Allocate { rounds: 3 };
        let mut config = PlanConfig::new(mechanism(sampling, 7, 0.5, false), 0.3, 0.01);
        config.inner = Inner::named(inner, 0.01).unwrap().into();
        check(&format!("allocate {inner}"), &config.with_divisor(64.0));
    }
    let phase = |sampling, rounds| PhaseConfig {
        sampling,
        length: Length::Rounds(rounds),
        noise: NoiseScale::Sigma(0.5),
        filtered: false,
    };
    let mut run = RunConfig::single(phase(Sampling::Allocate { rounds: 2 }, 3));
    run.phases.push(phase(Sampling::Poisson { rate: 0.3 }, 2));
    run.phases.push(phase(Sampling::Allocate { rounds: 300 }, 4));
    check("allocate phases", &PlanConfig::new(run.check().unwrap(), 0.3, 0.01).with_divisor(64.0));
}
