//! What the outputs of one account and one run must say.

use dpsgd_privacy::account::{Account, Question};
use dpsgd_privacy::mechanism::{Length, Neighbours, NoiseScale, PhaseConfig, RunConfig, Sampling};
use dpsgd_report::run::{Baseline, Measurement, NoiseNames, NormalisationConstants, Page, Summary, heading};
use dpsgd_report::{Sizes, json, statement};

fn account(sampling: Sampling, neighbours: Neighbours) -> Account {
    let phase =
        PhaseConfig { sampling, length: Length::Epochs(100), noise: NoiseScale::Sigma(2.0), filtered: false };
    let mechanism = RunConfig { neighbours, ..RunConfig::single(phase) }.check().unwrap();
    Account::of(&mechanism, Question::epsilon_at(1e-5).unwrap(), &[]).unwrap()
}

fn subsampled() -> Account {
    account(Sampling::Subsample { samples: 60_000, groups: 64, group_size: 1 }, Neighbours::Substitute)
}

fn measured(seconds: f64) -> Measurement {
    Measurement {
        round: 937,
        epoch: 1.0,
        updates: 937,
        test_loss: 0.25,
        test_accuracy: Some(0.93),
        test_clipping_fraction: 0.5,
        two_classes: None,
        iterates: None,
        step: 0.5,
        clip: 1.0,
        epsilon: 0.5,
        delta: 1e-5,
        adversary: "A0".into(),
        seconds: Some(seconds),
        samples_per_s: Some(1_543_939.0),
        private: true,
        note: None,
    }
}

fn page(account: &Account, metrics: &[Measurement]) -> String {
    Page {
        heading: heading("mlp", "train"),
        note: None,
        seeded: false,
        ending: None,
        account,
        noise: "exact",
        settings: Vec::new(),
        metrics,
        baseline: Some(Baseline { accuracy: Some(0.1135), loss: None }),
        unmeasured: None,
        private_test: None,
        ledger: Vec::new(),
        command: "dpsgd train".into(),
    }
    .html()
    .unwrap()
}

/// The figures are those of the paper's own setting, and every line fits a terminal.
#[test]
fn the_statement_of_the_papers_setting() {
    let text = statement::account(&subsampled(), Sizes::default());
    for part in [
        "93700 rounds",
        "59968 draws",
        "35.0130",
        "0.744682",
        "99.57 %                      1.694 %",
        "28.39, –, –                  0.04196, 0.1679, 0.6714",
        "Approximation, not a guarantee",
        "claims more than is true",
    ] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    assert!(text.lines().count() <= 42 && text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

/// The JSON has the names that scripts rely on, in their order, and trade-offs only where asked.
#[test]
fn the_json_of_an_account() {
    let account = subsampled();
    let value = json::account(&account, Sizes::default(), &[0.05]);
    let names: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "mechanism",
            "guarantees",
            "refused",
            "exposure",
            "zcdp",
            "shuffle_lower_bound",
            "approximations",
            "as_printed"
        ]
    );
    let names: Vec<&str> = value["mechanism"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(names[..6], ["sampling", "samples", "groups", "group_size", "left_over", "epochs"]);
    assert_eq!(value["guarantees"][0]["tradeoff"].as_array().unwrap().len(), 1);
    assert_eq!(value["guarantees"][1]["epsilon"]["upper"], account.guarantees[1].answer.upper);
}

/// A line of metrics is read back as it was written, also where JSON has no number for it.
#[test]
fn measurements_are_read_back() {
    let line = serde_json::to_string(&measured(3.0)).unwrap();
    assert!(line.starts_with(r#"{"round":937,"epoch":1.0,"updates":937,"test_loss":0.25,"#), "{line}");
    assert!(!line.contains("note"), "{line}");
    assert_eq!(serde_json::from_str::<Measurement>(&line).unwrap(), measured(3.0));
    let worst = Measurement { test_loss: f64::NAN, epsilon: f64::INFINITY, ..measured(3.0) };
    let read: Measurement = serde_json::from_str(&serde_json::to_string(&worst).unwrap()).unwrap();
    assert!(read.test_loss.is_nan() && read.epsilon == f64::INFINITY);
    assert!(serde_json::from_str::<Measurement>(&line.replace("seconds", "secnods")).is_err());
}

/// A run of a moment has no time worth stating and no speed.
#[test]
fn short_runs_state_no_speed() {
    let account = subsampled();
    assert!(!page(&account, &[measured(0.2)]).contains("samples/s"));
    assert!(!page(&account, &[measured(0.2)]).contains(">of training"));
    assert!(page(&account, &[measured(20.0)]).contains("samples/s"));
}

#[test]
fn the_summary_of_a_run() {
    let (account, last) = (subsampled(), measured(0.2));
    let summary = Summary {
        data: "mnist",
        net: "lenet5",
        parameters: 61_706,
        directory: "runs/one".into(),
        last: &last,
        baseline: None,
        unmeasured: None,
        private_test: None,
        account: &account,
        sizes: Sizes::default(),
        noise: NoiseNames { kind: "exact", covers: "exact: a Gaussian" },
        resumes: 1,
        stopped: None,
        uncovered: &[],
        features: Some("scattering"),
        normalisation: Some(NormalisationConstants { mean: [0.5][..].into(), std: [0.25][..].into() }),
        algorithm: serde_json::json!({ "clip": 1.0, "step": 0.5 }),
    };
    let value = summary.json();
    assert_eq!(value["noise"], serde_json::json!({ "kind": "exact", "covers": "exact: a Gaussian" }));
    assert_eq!(value["algorithm"]["step"], 0.5);
    assert_eq!(value["normalisation"], serde_json::json!({ "mean": [0.5], "std": [0.25] }));
    assert_eq!(value["guarantees"][0]["tradeoff"].as_array().unwrap().len(), 3);
    // Lines are wrapped anywhere but inside a number.
    let text = summary.statement().split_ascii_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        text.contains("lenet5 on the scattering transform of mnist (61\u{202f}706 parameters)"),
        "{text}"
    );
    assert!(text.contains("test accuracy 93.00 %, test loss 0.2500"), "{text}");
}
