//! The same settings are the same run, whoever reads them.

use dpsgd_privacy::mechanism::SamplingKind;

use super::*;

const MNIST: Population = Population { samples: Some(60_000), public: true, measured: true };

fn again(settings: &Settings, population: Population) -> Settings {
    settings.to_raw().resolve_for(population).unwrap()
}

#[test]
fn the_default_run_is_calibrated() {
    let settings = RawSettings::default().resolve_for(MNIST).unwrap();
    let phase = settings.mechanism.phases()[0];
    assert!((phase.sigma() - 1.7925).abs() < 1e-4, "{}", phase.sigma());
    assert_eq!((settings.budget.adversary, phase.rounds()), (Adversary::A0, 29 * 30));
    assert_eq!(settings.planned, 29 * 30);
    // What is written down gives the same run, with or without the data at hand.
    let same = again(&settings, MNIST);
    assert_eq!((same.to_raw(), &same.mechanism), (settings.to_raw(), &settings.mechanism));
    assert_eq!(settings.to_raw().resolve().unwrap().mechanism, settings.mechanism);
    // The same settings describe the same run to the accountant and to the trainer.
    assert_eq!(RawSettings::default().resolve().unwrap().mechanism, settings.mechanism);
    assert_eq!(settings.plan().unwrap().mechanism(), &settings.mechanism);
}

#[test]
fn a_budget_ends_the_run() {
    let given = RawSettings { max_epsilon: Some(2.0), ..Default::default() };
    let cut = given.resolve_for(MNIST).unwrap();
    let rounds = cut.mechanism.rounds();
    assert!(rounds < cut.planned && cut.planned == 870, "{rounds}");
    let spent = |rounds| cut.budget.spent(&cut.mechanism, rounds).unwrap();
    assert!(spent(rounds) <= 2.0 && spent(rounds) > 1.99, "{}", spent(rounds));
    let same = again(&cut, MNIST);
    assert_eq!((same.to_raw(), same.mechanism), (cut.to_raw(), cut.mechanism));
    let nothing = RawSettings { max_epsilon: Some(1e-9), ..Default::default() };
    assert!(nothing.resolve_for(MNIST).is_err());
}

/// Another question about a run that a budget has ended is about that run, not about a shorter one.
#[test]
fn a_budget_is_applied_once() {
    let cut = RawSettings { max_epsilon: Some(2.0), delta: Some(1e-3), ..Default::default() };
    let cut = cut.resolve_for(MNIST).unwrap();
    for question in [
        RawSettings { delta: Some(1e-6), ..Default::default() },
        RawSettings { epsilon: Some(1.0), ..Default::default() },
        RawSettings { adversary: Some(Adversary::A1), ..Default::default() },
    ] {
        assert_eq!(question.over(&cut.to_raw()).resolve().unwrap().mechanism, cut.mechanism);
    }
}

/// A question about an ε leaves the δ of the target as it is.
#[test]
fn a_question_does_not_change_the_run() {
    let file = RawSettings { delta: Some(1e-3), target_epsilon: Some(1.0), ..Default::default() };
    let asked = RawSettings { epsilon: Some(1.0), ..Default::default() }.over(&file).resolve().unwrap();
    assert_eq!(asked.mechanism, file.resolve().unwrap().mechanism);
    assert_eq!(asked.question, Question::Delta { epsilon: 1.0 });
}

/// µ of a release is given for one differing sample; g of them are told apart g times as well.
#[test]
fn releases_count_for_every_differing_sample() {
    let raw = RawSettings {
        release_mu: vec![0.5],
        differing: Some(4),
        sigma: Some(2.0),
        normalise: Some(Normalise::Private),
        normalise_mu: Some(0.25),
        ..Default::default()
    };
    let settings = raw.resolve().unwrap();
    assert_eq!(settings.mechanism.releases(), [0.25, 0.5]);
    assert!((settings.mechanism.released_mu() - 5_f64.sqrt()).abs() < 1e-12);
    assert_eq!(settings.to_raw().resolve().unwrap().mechanism, settings.mechanism);
}

#[test]
fn a_private_size_is_neither_used_nor_shown() {
    let own = Population::measured(1234, false);
    let poisson = RawSettings { sampling: Some(SamplingKind::Poisson), ..Default::default() };
    assert!(poisson.resolve_for(own).is_err());
    let given = RawSettings { rate: Some(0.01), groups: Some(10), sigma: Some(1.0), ..poisson };
    let settings = given.resolve_for(own).unwrap();
    assert_eq!((settings.samples, settings.groups), (None, Some(10)));
    let other = given.resolve_for(Population::measured(1235, false)).unwrap();
    assert_eq!(other.config_text().unwrap(), settings.config_text().unwrap());
}

#[test]
fn allocation_has_public_rounds_and_a_public_divisor() {
    let allocate = |text: &str| -> RawSettings {
        toml::from_str(&format!("sampling = \"allocate\"\nsigma = 0.5\n{text}")).unwrap()
    };
    let sampler = |raw: &RawSettings, population| {
        let settings = raw.resolve_for(population).unwrap();
        // What is written down gives the same run.
        let same = again(&settings, population);
        assert_eq!((same.to_raw(), &same.mechanism), (settings.to_raw(), &settings.mechanism));
        assert_eq!(settings.mechanism.neighbours(), Neighbours::AddRemove);
        assert_eq!(settings.budget.adversary, Adversary::A0);
        (settings.mechanism.phases()[0].sampling(), settings.divisor(0))
    };
    let of = |rounds| Sampling::Allocate { rounds };
    assert_eq!(sampler(&allocate(""), MNIST), (of(60_000 / 2048), Some(2069)));
    assert_eq!(sampler(&allocate("groups = 256"), MNIST), (of(234), Some(256)));
    assert_eq!(sampler(&allocate("rounds-per-epoch = 100"), MNIST), (of(100), Some(600)));
    assert_eq!(sampler(&allocate("rounds-per-epoch = 100\ngroups = 7"), MNIST), (of(100), Some(7)));
    let cells = |rounds, groups, group_size| (Sampling::AllocateCells { rounds, groups, group_size }, None);
    assert_eq!(sampler(&allocate("groups = 64\ngroup-size = 8"), MNIST), cells(117, 64, 8));
    assert_eq!(sampler(&allocate("rounds-per-epoch = 100\ngroup-size = 8"), MNIST), cells(100, 75, 8));
    assert_eq!(
        sampler(&allocate("rounds-per-epoch = 9\ngroup-size = 2\ngroups = 5\nfilter = true"), MNIST),
        cells(9, 5, 2)
    );
    // A private size is neither used nor shown.
    let own = Population::measured(1234, false);
    let given = allocate("rounds-per-epoch = 12\ngroups = 10\ngroup-size = 9");
    assert_eq!(sampler(&given, own), cells(12, 10, 9));
    let settings = given.resolve_for(own).unwrap();
    assert_eq!((settings.samples, settings.expected_samples()), (None, Some(1080.0)));
    assert_eq!(settings.plan().unwrap().mechanism(), &settings.mechanism);
    // Where samples are replaced, neighbours have the same size, and it gives B.
    let replaced = allocate("neighbours = \"substitute\"\ngroups = 10").resolve_for(own).unwrap();
    assert_eq!(replaced.mechanism.phases()[0].sampling(), of(123));
    assert!(!replaced.uses_samples && replaced.plan().is_ok());
    let given = allocate("rounds-per-epoch = 12\ngroups = 100");
    assert_eq!(sampler(&given, own), (of(12), Some(100)));
    let settings = given.resolve_for(own).unwrap();
    let other = given.resolve_for(Population::measured(1235, false)).unwrap();
    assert_eq!(other.config_text().unwrap(), settings.config_text().unwrap());
    assert_eq!((settings.samples, settings.expected_samples()), (None, Some(1200.0)));
    assert_eq!(settings.plan().unwrap().mechanism(), &settings.mechanism);
    assert!(settings.command().unwrap().contains(" --rounds-per-epoch 12"));
    // Without a divisor a run can be accounted for, but not trained.
    let bare = allocate("rounds-per-epoch = 12").resolve_for(own).unwrap();
    assert!(bare.plan().unwrap_err().to_string().starts_with("rounds-per-epoch and groups: give both"));
    for (text, population, says) in [
        ("", own, "rounds-per-epoch and groups: give both"),
        ("groups = 100", own, "rounds-per-epoch and groups: give both"),
        ("rate = 0.1", MNIST, "rate = 0.1: only with --sampling poisson"),
        ("group-size = 2\nrounds-per-epoch = 9", own, "rounds-per-epoch and groups: give both"),
        (
            "group-size = 2\ngroups = 30001",
            MNIST,
            "groups = 30001: at least 1, and with group-size = 2 at most",
        ),
        ("groups = 60001", MNIST, "groups = 60001: at least 1 and at most samples = 60000"),
        ("groups = 0", MNIST, "groups = 0: at least 1"),
        ("rounds-per-epoch = 0", MNIST, "rounds-per-epoch = 0: at least 1"),
    ] {
        let error = allocate(text).resolve_for(population).unwrap_err().to_string();
        assert!(error.starts_with(says), "{text}: {error}");
    }
    for sampling in ["subsample", "shuffle", "poisson"] {
        let text = format!("sampling = \"{sampling}\"\nrounds-per-epoch = 5\nsigma = 1.0");
        let error = toml::from_str::<RawSettings>(&text).unwrap().resolve_for(MNIST).unwrap_err();
        assert!(error.to_string().starts_with("rounds-per-epoch = 5: only with --sampling allocate"));
    }
}

#[test]
fn the_rounds_of_an_epoch_may_change_from_phase_to_phase() {
    let raw: RawSettings = toml::from_str(
        "sampling = \"allocate\"\nsigma = 1.0\nepochs = 2\n[[phase]]\nrounds-per-epoch = 50\n[[phase]]\n\
         rounds-per-epoch = 200\nsigma = 1.5\ngroups = 310\n",
    )
    .unwrap();
    let settings = raw.resolve_for(MNIST).unwrap();
    assert_eq!(settings.mechanism.phases().iter().map(|p| p.rounds()).collect::<Vec<_>>(), [100, 400]);
    assert_eq!((settings.divisor(0), settings.divisor(1)), (Some(1200), Some(310)));
    let same = again(&settings, MNIST);
    assert_eq!((same.to_raw(), &same.mechanism), (settings.to_raw(), &settings.mechanism));
}

#[test]
fn phases_are_layered_and_written_down() {
    let phase = |text: &str| toml::from_str::<RawSettings>(text).unwrap();
    let raw = phase(
        "sigma = 2.0\ngroups = 100\n[[phase]]\nepochs = 1\n[[phase]]\nrounds = 7\nsampling = \
         \"poisson\"\n\
         rate = 0.01\ngroups = 600\nsigma = 1.5\n[[phase]]\nsampling = \"shuffle\"\nepochs = \
         2\ngroup-size = 3\n",
    );
    let settings = raw.resolve_for(MNIST).unwrap();
    let phases = settings.mechanism.phases();
    assert_eq!(phases.iter().map(|phase| phase.rounds()).collect::<Vec<_>>(), [600, 7, 400]);
    assert_eq!(phases.iter().map(|phase| phase.sigma()).collect::<Vec<_>>(), [2.0, 1.5, 2.0]);
    let same = again(&settings, MNIST);
    assert_eq!((same.to_raw(), &same.mechanism), (settings.to_raw(), &settings.mechanism));
    // A flag wins over every phase.
    let flags = RawSettings { sigma: Some(3.0), ..Default::default() };
    let louder = flags.over(&raw).resolve_for(MNIST).unwrap();
    assert!(louder.mechanism.phases().iter().all(|phase| phase.sigma() == 3.0));
}

#[test]
fn noise_is_given_for_every_phase_or_for_none() {
    let raw: RawSettings =
        toml::from_str("[[phase]]\nepochs = 1\nsigma = 1.0\n[[phase]]\nepochs = 1\n").unwrap();
    assert!(raw.resolve_for(MNIST).unwrap_err().to_string().contains("for every phase, or for none"));
    let target = RawSettings { target_epsilon: Some(3.0), ..raw };
    assert!(target.resolve_for(MNIST).unwrap_err().to_string().contains("target-epsilon"));
}

#[test]
fn a_wrong_size_is_refused() {
    let given = RawSettings { samples: Some(100), sigma: Some(1.0), ..Default::default() };
    assert!(given.resolve_for(MNIST).unwrap_err().to_string().contains("the data has 60000"));
}

/// Averages, schedules to the end of the run and weight decay are written down as they are, and reach the
/// plan.
#[test]
fn what_is_free_is_written_down() {
    use dpsgd_train::{Average, Rule, Shape};

    use crate::settings::Choose;

    let raw = RawSettings {
        sigma: Some(1.0),
        step: Some(2.0),
        step_rule: Some("warmup:0.05+cosine:0.01".into()),
        weight_decay: Some(0.001),
        average: Some("ema:0.99".into()),
        choose: Some(Choose::Better),
        ..Default::default()
    };
    let settings = raw.resolve_for(MNIST).unwrap();
    let plan = settings.plan().unwrap();
    let config = plan.config();
    assert_eq!(config.step.rule, Rule::Annealed { warmup: 0.05, shape: Shape::Cosine, end: 0.01 });
    assert_eq!((config.average, config.weight_decay), (Average::Exponential { decay: 0.99 }, 0.001));
    let text = settings.config_text().unwrap();
    for line in [
        "step-rule = \"warmup:0.05+cosine:0.01\"",
        "average = \"ema:0.99\"",
        "choose = \"better\"",
        "weight-decay = 0.001",
    ] {
        assert!(text.contains(line), "{text}");
    }
    let same = again(&settings, MNIST);
    assert_eq!(same.config_text().unwrap(), text);
    assert_eq!(format!("{:?}", same.plan().unwrap()), format!("{plan:?}"));
    // Where nothing is asked for, nothing is written: other runs have the configuration they always had.
    let plain = RawSettings { sigma: Some(1.0), ..Default::default() }.resolve_for(MNIST).unwrap();
    let text = plain.config_text().unwrap();
    assert!(!text.contains("average") && !text.contains("decay") && !text.contains("choose"), "{text}");
    for (raw, says) in [
        (RawSettings { choose: Some(Choose::Last), ..Default::default() }, "choose: only with --average"),
        (RawSettings { average: Some("ema:1".into()), ..Default::default() }, "average = ema:1: none, ema"),
        (RawSettings { step_rule: Some("warmup:2+cosine".into()), ..Default::default() }, "step = 2"),
        (RawSettings { weight_decay: Some(-1.0), ..Default::default() }, "weight-decay = -1"),
    ] {
        let raw = RawSettings { sigma: Some(1.0), ..raw };
        let error = raw.resolve_for(MNIST).and_then(|settings| settings.plan()).unwrap_err().to_string();
        assert!(error.starts_with(says), "{error}");
    }
}
