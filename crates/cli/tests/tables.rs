//! Tables like a hospital's, from the CSV file to predictions, as a new user would type it.

mod folder;
#[path = "../examples/hospital.rs"]
mod hospital;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use folder::Folder;
use serde_json::Value;

fn dpsgd(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dpsgd")).current_dir(folder).args(arguments).output().expect("it runs")
}

fn text(folder: &Path, arguments: &[&str]) -> String {
    let output = dpsgd(folder, arguments);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {error}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn json(folder: &Path, arguments: &[&str]) -> Value {
    serde_json::from_str(&text(folder, &[arguments, &["--json"]].concat())).expect("one JSON object")
}

/// How often a positive row has the higher true log-odds, by counting every pair: no model of these rows can be
/// expected to rank better.
fn best_auc(odds: &[f64], labels: &[bool]) -> f64 {
    let of = |class: bool| odds.iter().zip(labels).filter(move |row| *row.1 == class).map(|row| *row.0);
    let (mut won, mut pairs) = (0.0, 0.0);
    for up in of(true) {
        for down in of(false) {
            pairs += 1.0;
            won += f64::from(u8::from(up > down));
        }
    }
    won / pairs
}

/// With no flag but the target: useful, and not by chance. scikit-learn's own distance from the best is 0.01 to
/// 0.02 here (docs/results/tables.md), and 0.03 is allowed from there.
#[test]
fn the_defaults_learn_from_a_rare_class() {
    for (kind, seed) in [(0, 2), (3, 2)] {
        let folder = Folder::new(&format!("tables-{kind}"));
        let (odds, labels) = hospital::write(&folder.0, &hospital::KINDS[kind], seed, 20_000, 10_000);
        let run = ["train", "--config", "config.toml", "--target-epsilon", "1", "--seed", "7"];
        let found = json(&folder.0, &[&run[..], &["--quiet", "--out", "run"]].concat());
        let auc = found["test_auc"].as_f64().expect("an AUC");
        let best = best_auc(&odds, &labels);
        assert!(auc > best - 0.05 && auc < best + 0.01, "kind {kind}: {auc} of {best}");
        let loss = found["test_loss"].as_f64().expect("a loss");
        assert!(loss < found["constant_loss"].as_f64().expect("a constant"), "kind {kind}: {found}");
        let positives = labels.iter().filter(|label| **label).count() as f64 / labels.len() as f64;
        assert_eq!(found["majority_rate"], 1.0 - positives);
        assert_eq!(found["note"], "reproducible, not private");
    }
}

/// A small table: enough for everything that is not about learning.
fn small(name: &str) -> Folder {
    let folder = Folder::new(name);
    hospital::write(&folder.0, &hospital::KINDS[0], 5, 2000, 500);
    folder
}

const RUN: [&str; 10] =
    ["train", "--config", "config.toml", "--epochs", "3", "--sigma", "0.5", "--quiet", "--out", "run"];

#[test]
fn new_rows_are_predicted_and_other_rows_measured() {
    let folder = small("tables-predict");
    text(&folder.0, &RUN);
    let rows = fs::read_to_string(folder.0.join("test.csv")).expect("the test rows");
    // The training file is not needed any more, and new rows have no label and other columns besides.
    fs::remove_file(folder.0.join("train.csv")).expect("it was there");
    let unlabelled: Vec<String> = rows
        .lines()
        .enumerate()
        .map(|(i, row)| {
            let columns = row.rsplit_once(',').expect("a label").0;
            format!("{columns},{}", if i == 0 { "ward" } else { "7b" })
        })
        .collect();
    fs::write(folder.0.join("new.csv"), unlabelled.join("\n")).expect("a writable folder");
    let predicted = text(&folder.0, &["predict", "run", "new.csv"]);
    assert_eq!(predicted, text(&folder.0, &["predict", "run", "test.csv"]));
    assert!(predicted.starts_with("row,ill,p(no),p(yes)\n1,"), "{predicted}");
    assert_eq!(predicted.lines().count(), 501);

    // Accuracy from the predictions is the one that `evaluate` states.
    let labels = rows.lines().skip(1).map(|row| row.rsplit_once(',').expect("a label").1);
    let said = predicted.lines().skip(1).map(|line| line.split(',').nth(1).expect("a prediction"));
    let right = labels.zip(said).filter(|(label, said)| label == said).count();
    let found = json(&folder.0, &["evaluate", "run"]);
    assert_eq!(found["test_accuracy"], right as f64 / 500.0);
    fs::copy(folder.0.join("test.csv"), folder.0.join("other.csv")).expect("a copy");
    let other = json(&folder.0, &["evaluate", "run", "--test", "other.csv"]);
    assert_eq!(other["test_auc"], found["test_auc"]);

    // A temperature from public rows, or from the test set of the run, changes probabilities and no prediction.
    let calibrated = text(&folder.0, &["predict", "run", "new.csv", "--calibrate=other.csv"]);
    assert_eq!(calibrated, text(&folder.0, &["predict", "run", "new.csv", "--calibrate"]));
    let classes = |csv: &str| -> Vec<String> {
        csv.lines().map(|line| line.split(',').nth(1).expect("a prediction").to_string()).collect()
    };
    assert_eq!(classes(&calibrated), classes(&predicted));
    assert_ne!(calibrated, predicted);
}

#[test]
fn a_run_needs_no_test_set() {
    let folder = small("tables-untested");
    let config = fs::read_to_string(folder.0.join("config.toml")).expect("a configuration");
    let without: Vec<&str> = config.lines().filter(|line| !line.starts_with("test =")).collect();
    fs::write(folder.0.join("config.toml"), without.join("\n")).expect("a writable folder");
    let said = text(&folder.0, &RUN);
    assert!(said.contains("there is no test set, so nothing was measured"), "{said}");
    let summary = fs::read_to_string(folder.0.join("run/summary.json")).expect("a summary");
    let summary: Value = serde_json::from_str(&summary).expect("JSON");
    assert_eq!((&summary["test_accuracy"], &summary["test_loss"]), (&Value::Null, &Value::Null));
    text(&folder.0, &["verify", "run"]);
    let refused = dpsgd(&folder.0, &["evaluate", "run"]);
    assert_eq!(refused.status.code(), Some(2));
}

/// What is measured on a private test set is noised, counted in the guarantee, and measured once.
#[test]
fn a_private_test_set_is_counted() {
    let folder = small("tables-private");
    let config = fs::read_to_string(folder.0.join("config.toml")).expect("a configuration");
    fs::write(folder.0.join("config.toml"), config.replacen("test =", "private-test =", 1)).expect("a file");
    let found = json(&folder.0, &[&RUN[..], &["--test-mu", "0.5"]].concat());
    assert_eq!(found["private_test"]["mu"], 0.5);
    assert!(found["private_test"]["accuracy"].as_f64().expect("an accuracy") <= 1.0);
    assert_eq!((&found["test_accuracy"], &found["test_auc"]), (&Value::Null, &Value::Null));
    let releases = found["mechanism"]["releases"].to_string();
    assert!(releases.contains("0.5"), "{}", found["mechanism"]);
    text(&folder.0, &["verify", "run"]);
    // Writing the report again does not measure again.
    let before = fs::read(folder.0.join("run/private-test.json")).expect("a measurement");
    text(&folder.0, &["report", "run"]);
    assert_eq!(fs::read(folder.0.join("run/private-test.json")).expect("a measurement"), before);
}

/// PyTorch loads `model.py` and says the same to 1e-5, where there is a Python with torch and safetensors
/// (`DPSGD_TORCH_PYTHON` names one).
#[test]
fn pytorch_says_the_same() {
    let python = std::env::var("DPSGD_TORCH_PYTHON").unwrap_or_else(|_| "python3".into());
    let has = Command::new(&python).args(["-c", "import torch, safetensors.torch"]).output();
    if !has.is_ok_and(|output| output.status.success()) {
        eprintln!("not tried: {python} has no torch and safetensors");
        return;
    }
    let folder = small("tables-torch");
    text(&folder.0, &RUN);
    let ours = json(&folder.0, &["predict", "run", "test.csv"]);
    let script = "import sys, json; sys.path.insert(0, 'run'); import model; \
                  print(json.dumps(model.predict(model.read('test.csv')).tolist()))";
    let output =
        Command::new(&python).current_dir(&folder.0).args(["-c", script]).output().expect("Python runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let theirs: Vec<Vec<f64>> = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(theirs.len(), 500);
    for (i, row) in theirs.iter().enumerate() {
        for (class, p) in row.iter().enumerate() {
            let mine = ours["probabilities"][i][class].as_f64().expect("a probability");
            assert!((mine - p).abs() < 1e-5, "row {i}, class {class}: {mine} and {p}");
        }
    }
}
