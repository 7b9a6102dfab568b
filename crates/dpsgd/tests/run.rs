//! Runs of any model through the library: phases, failures, resume, verification.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dpsgd::settings::RawSettings;
use dpsgd::train::ModelError;
use dpsgd::{Error, Job, Observer, PerSample, SavedRun, Settings};

fn fresh(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    path
}

const SAMPLES: usize = 300;

/// Least squares towards each sample's own point; fails on call `fails_at`, if that is given.
fn job(settings: Settings, fails_at: Option<u64>) -> Job<impl dpsgd::train::Model> {
    let calls = AtomicU64::new(0);
    let model = PerSample::new(3, SAMPLES, move |w, i, g| {
        if Some(calls.fetch_add(1, Ordering::Relaxed)) == fails_at {
            return Err(ModelError::new("the disk with the images is gone"));
        }
        let target = [i as f32 % 7.0, i as f32 % 3.0, 1.0];
        g.iter_mut().zip(w).zip(target).for_each(|((g, w), t)| *g += w - t);
        Ok(w.iter().zip(target).map(|(w, t)| 0.5 * (w - t) * (w - t)).sum())
    });
    Job::new(settings, Arc::new(model), vec![0.0; 3])
}

fn settings(text: &str) -> Settings {
    let text = format!("{LEDGER}{text}");
    toml::from_str::<RawSettings>(&text).expect("settings").resolve().expect("a run")
}

const SMALL: &str =
    "data = 'points'\nnet = 'squares'\nsamples = 300\ngroups = 30\nsigma = 2.0\nstep = 0.1\nclip = 1.0\n";

/// The shared ledger of these tests, not that of whoever runs them.
const LEDGER: &str = concat!("ledger = '", env!("CARGO_TARGET_TMPDIR"), "/run-ledger'\n");

/// Phases with their own samplers, sizes, lengths and noise are trained, charged and stated as one run.
#[test]
fn phases_from_a_file_are_trained() {
    let path = fresh("phases");
    let text = format!(
        "{SMALL}[[phase]]\nepochs = 2\n[[phase]]\nsampling = 'shuffle'\nepochs = 3\ngroups = 10\ngroup-size \
         = 5\n\
         [[phase]]\nrounds = 7\nsigma = 4.0\n"
    );
    let settings = settings(&text);
    assert_eq!(settings.mechanism.rounds(), 20 + 18 + 7);
    let outcome = job(settings.clone(), None).start(&path).unwrap().train(&mut ()).unwrap();
    assert!(outcome.finished);
    assert_eq!(outcome.account, settings.account().unwrap());
    let saved = SavedRun::open(&path).unwrap();
    assert_eq!(saved.settings().unwrap().mechanism, settings.mechanism);
    assert_eq!(saved.account().unwrap(), outcome.account);
    assert!(saved.verify().unwrap().findings.is_empty());
    // The file that the run wrote describes that run to the accountant.
    let raw = RawSettings::read(&path.join("config.toml")).unwrap();
    assert_eq!(raw.resolve().unwrap().account().unwrap(), outcome.account);
}

/// A model that fails ends the round as spent; the run resumes after it and states everything that was
/// charged.
#[test]
fn a_failure_of_the_model_costs_the_round_and_not_the_run() {
    let path = fresh("failure");
    let settings = settings(&format!("{SMALL}rounds = 100\nthreads = 2\n"));
    let failed = job(settings.clone(), Some(1000)).start(&path).unwrap().train(&mut ()).unwrap_err();
    assert!(matches!(failed, Error::Round(_)), "{failed}");
    let source = std::error::Error::source(&failed).map(ToString::to_string).unwrap_or_default();
    assert!(format!("{failed} {source}").contains("the disk with the images is gone"), "{failed}: {source}");
    let spent = SavedRun::open(&path).unwrap().ledger(&settings).unwrap().charged;
    assert!(spent >= 34, "{spent}");
    let outcome = job(settings.clone(), None).resume(&path).unwrap().train(&mut ()).unwrap();
    assert_eq!(outcome.account, settings.account().unwrap());
    assert_eq!(outcome.summary["resumes"], 1);
}

/// Settings other than those a run began with are refused, whatever they are.
#[test]
fn a_run_resumes_with_its_own_settings_only() {
    struct Stop;
    impl Observer for Stop {
        fn wants_to_stop(&mut self) -> bool {
            true
        }
    }
    let path = fresh("others");
    let begun = settings(&format!("{SMALL}rounds = 50\n"));
    let outcome = job(begun.clone(), None).start(&path).unwrap().train(&mut Stop).unwrap();
    assert!(!outcome.finished && outcome.statement.contains("dpsgd resume"));
    assert!(!outcome.statement.contains("not private"), "{}", outcome.statement);
    let seeded = settings(&format!("{SMALL}rounds = 50\nseed = 1\n"));
    let seeded = job(seeded, None).start(&fresh("others-seeded")).unwrap().train(&mut Stop).unwrap();
    assert!(seeded.statement.contains("reproducible, not private"), "{}", seeded.statement);
    for other in [
        "rounds = 51",
        "rounds = 50\ndelta = 1e-6",
        "rounds = 50\nmomentum = 0.8",
        "rounds = 50\nsigma = 1.9",
    ] {
        let text = format!("{SMALL}{other}\n")
            .replace("sigma = 2.0\n", if other.contains("sigma") { "" } else { "sigma = 2.0\n" });
        let refused = job(settings(&text), None).resume(&path).map(drop).unwrap_err();
        assert!(refused.to_string().contains("other settings"), "{other}: {refused}");
    }
    let again = job(begun.clone(), None).start(&path).map(drop).unwrap_err();
    assert!(again.to_string().contains("is not an empty directory"), "{again}");
    assert!(job(begun, None).start_or_resume(&path).unwrap().train(&mut ()).unwrap().finished);
}

/// A changed number is found and named, in every file that states one.
#[test]
fn a_changed_number_is_found() {
    let path = fresh("changed");
    job(settings(&format!("{SMALL}rounds = 40\n")), None).start(&path).unwrap().train(&mut ()).unwrap();
    let findings = || SavedRun::open(&path).unwrap().verify().unwrap().findings;
    assert!(findings().is_empty());
    for (file, from, to, named) in [
        (
            "summary.json",
            "\"rounds_charged\": 40",
            "\"rounds_charged\": 30",
            "rounds_charged is 30, and should be 40",
        ),
        ("summary.json", "\"private\": true", "\"private\": false", "private is false"),
        ("report.html", "ε ≤ ", "ε ≤ 0", "dpsgd report"),
    ] {
        let text = std::fs::read_to_string(path.join(file)).unwrap();
        assert!(text.contains(from), "{file}: {from}");
        std::fs::write(path.join(file), text.replacen(from, to, 1)).unwrap();
        let found = findings();
        assert!(found.len() == 1 && found[0].file == file && found[0].what.contains(named), "{found:?}");
        std::fs::write(path.join(file), text).unwrap();
    }
    let summary = std::fs::read_to_string(path.join("summary.json")).unwrap();
    let mut value: serde_json::Value = serde_json::from_str(&summary).unwrap();
    value["guarantees"][1]["epsilon"]["upper"] = 0.1.into();
    std::fs::write(path.join("summary.json"), value.to_string()).unwrap();
    let found = findings();
    assert!(found.len() == 1 && found[0].what.starts_with("guarantees[1].epsilon.upper is 0.1"), "{found:?}");
}

/// A directory of an own model has its weights as one tensor and can be reported on without the model.
#[test]
fn an_own_model_leaves_weights_and_a_report() {
    let path = fresh("weights");
    let outcome =
        job(settings(&format!("{SMALL}rounds = 20\n")), None).start(&path).unwrap().train(&mut ()).unwrap();
    let bytes = std::fs::read(path.join("model.safetensors")).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let weights = tensors.tensor("weights").unwrap();
    let weights: Vec<f32> =
        weights.data().as_chunks::<4>().0.iter().map(|&four| f32::from_le_bytes(four)).collect();
    assert_eq!(weights, outcome.weights);
    assert!(SavedRun::open(&path).unwrap().page().unwrap().contains("squares"));
}

/// Under Poisson sampling N is private: the blocks that the ledger charges must not follow it through the
/// time of rounds.
#[test]
fn the_ledger_does_not_reveal_a_private_size() {
    let charges = |samples: usize, name: &str| {
        let path = fresh(name);
        let settings = settings(
            "data = 'points'\nnet = 'squares'\nsampling = 'poisson'\nrate = 0.1\ngroups = 30\nsigma = \
             2.0\nrounds = 3000\n\
             threads = 1\n",
        );
        let model = PerSample::new(1, samples, |w, _, g| {
            // Slow enough that the time of a round is the time of its samples.
            g[0] += (0..2000).fold(w[0], |x, _| std::hint::black_box(x * 0.999));
            Ok(0.0)
        });
        Job::new(settings, Arc::new(model), vec![0.0]).start(&path).unwrap().train(&mut ()).unwrap();
        let ledger = std::fs::read_to_string(path.join("ledger")).unwrap();
        let charges = ledger.lines().filter_map(|line| line.split_once(" charge "));
        charges.map(|(_, rest)| rest.rsplit_once(' ').unwrap().0.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(charges(20, "few"), charges(4000, "many"));
}

/// How many groups a filter kept is secret, though N is not: neither the blocks of the ledger nor a time that is
/// written down may follow how long the rounds took.
#[test]
fn no_time_of_a_filtered_run_is_written() {
    let written = |slow: u64, name: &str| {
        let path = fresh(name);
        let settings = settings(&format!("{SMALL}filter = true\nrounds = 600\nthreads = 1\n"));
        let model = PerSample::new(1, 300, move |w, _, g| {
            g[0] += (0..slow).fold(w[0], |x, _| std::hint::black_box(x * 0.999));
            Ok(0.0)
        });
        Job::new(settings, Arc::new(model), vec![0.0]).start(&path).unwrap().train(&mut ()).unwrap();
        for line in std::fs::read_to_string(path.join("metrics.jsonl")).unwrap().lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            assert!(line["seconds"].is_null() && line["samples_per_s"].is_null(), "{line}");
        }
        let ledger = std::fs::read_to_string(path.join("ledger")).unwrap();
        let charges = ledger.lines().filter_map(|line| line.split_once(" charge "));
        charges.map(|(_, rest)| rest.rsplit_once(' ').unwrap().0.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(written(0, "filtered-fast"), written(20_000, "filtered-slow"));
}

/// A rate that was computed from N would publish N: where N is private, it is refused before anything is
/// charged.
#[test]
fn constants_computed_from_a_private_size_are_refused() {
    let path = fresh("computed");
    let text = SMALL.replace("groups = 30\n", "");
    for computed in ["groups = 30\n", "rate = 0.1\n"] {
        let settings = settings(&format!("{text}sampling = 'poisson'\nrounds = 50\n{computed}"));
        let refused = job(settings, None).start(&path).map(drop).unwrap_err().to_string();
        assert!(refused.contains("computed from the size of the data"), "{refused}");
        assert!(!path.exists());
    }
    let given = settings(&format!("{text}sampling = 'poisson'\nrounds = 50\nrate = 0.1\ngroups = 30\n"));
    assert!(job(given, None).start(&path).unwrap().train(&mut ()).unwrap().finished);
    assert!(SavedRun::open(&path).unwrap().verify().unwrap().findings.is_empty());
}

/// A budget that ended a run is still named after the run was read again.
#[test]
fn a_run_ended_by_its_budget_says_so() {
    let path = fresh("budget");
    let settings = settings(&format!("{SMALL}rounds = 400\nmax-epsilon = 2.0\n"));
    assert!(settings.mechanism.rounds() < 400);
    job(settings, None).start(&path).unwrap().train(&mut ()).unwrap();
    let run = SavedRun::open(&path).unwrap();
    assert!(run.verify().unwrap().findings.is_empty());
    let again = run.settings().unwrap();
    assert_eq!((again.max_epsilon, again.planned), (Some(2.0), 400));
    assert!(run.page().unwrap().contains("of 400 planned rounds"));
}

/// A run that is ended early is closed, states what its charged rounds leak, and verifies; nothing continues it.
#[test]
fn a_run_that_ends_early_is_closed_and_states_less() {
    struct Ends(u64, u64);
    impl Observer for Ends {
        fn round(&mut self, next: u64) {
            self.1 = next;
        }
        fn wants_to_end(&mut self) -> bool {
            self.1 >= self.0
        }
    }
    // In the middle of an epoch of 6 rounds, and at the end of one.
    for last in [8, 12] {
        let path = fresh(&format!("ended-{last}"));
        let settings = settings(
            &format!("{SMALL}sampling = 'shuffle'\nepochs = 20\n").replace("groups = 30", "groups = 50"),
        );
        let outcome = job(settings.clone(), None).start(&path).unwrap().train(&mut Ends(last, 0)).unwrap();
        assert!(outcome.finished);
        let saved = SavedRun::open(&path).unwrap();
        let charged = saved.ledger(&settings).unwrap();
        assert!(charged.closed && (last..settings.mechanism.rounds()).contains(&charged.charged));
        let epsilon = |account: &dpsgd::privacy::Account| account.guarantees[0].answer.upper;
        assert!(epsilon(&outcome.account) < epsilon(&settings.account().unwrap()));
        assert_eq!(saved.account().unwrap(), outcome.account);
        let found = saved.verify().unwrap();
        assert!(found.finished && found.findings.is_empty(), "{:?}", found.findings);
        assert!(job(settings, None).resume(&path).is_err());
    }
}
