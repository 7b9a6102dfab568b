//! The built command, run as a user runs it.

mod folder;

use std::fs;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use folder::Folder;

fn dpsgd(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dpsgd")).args(arguments).output().expect("the command runs")
}

fn text(arguments: &[&str]) -> String {
    let output = dpsgd(arguments);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {error}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&text(&[arguments, &["--json"]].concat())).expect("one JSON object")
}

/// Exit code 2, one line on standard error (or the parser's own layout) that mentions `expected`, nothing on standard output.
fn refused(arguments: &[&str], expected: &str) {
    let output = dpsgd(arguments);
    let error = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    assert!(error.starts_with("error: ") && error.ends_with('\n'), "{arguments:?}: {error}");
    let usage = error.contains("\nFor more information, try '--help'.");
    assert!(usage || error.lines().count() == 1, "{arguments:?}: {error}");
    assert!(error.contains(expected), "{arguments:?}: {error}");
}

impl Folder {
    fn place(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("UTF-8").to_string()
    }

    fn put(&self, name: &str, text: &str) -> String {
        fs::write(self.0.join(name), text).expect("a writable file");
        self.place(name)
    }
}

fn ends(value: &Value) -> (f64, f64) {
    let (lower, upper) = (value["lower"].as_f64().expect("lower"), value["upper"].as_f64().expect("upper"));
    assert!(lower <= upper);
    (lower, upper)
}

/// The setting of the paper's experiments.
const PAPER: [&str; 9] =
    ["account", "--samples", "60000", "--groups", "64", "--epochs", "100", "--sigma", "2"];

fn paper<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&PAPER[..], more].concat()
}

#[test]
fn the_papers_setting() {
    let statement = text(&paper(&[]));
    for part in [
        "60000 samples",
        "93700 rounds",
        "59968 draws",
        "σ = 2",
        "2σ = 4",
        "ε at δ = 1e-5",
        "35.0130",
        "0.744682",
        "1 % false alarms",
        "5 % false alarms",
        "approximation, not a guarantee",
        "claims more than is true",
    ] {
        assert!(statement.to_lowercase().contains(&part.to_lowercase()), "{part} is missing in\n{statement}");
    }
    assert!(statement.lines().count() <= 42, "{}", statement.lines().count());
    assert!(statement.lines().all(|line| line.chars().count() <= 100), "{statement}");
    let spelled = text(&paper(&[
        "--group-size",
        "1",
        "--sampling",
        "subsample",
        "--differing",
        "1",
        "--delta",
        "1e-5",
        "--alpha",
        "0.01,0.05,0.5",
    ]));
    assert_eq!(statement, spelled);
}

/// With no arguments `account` speaks of the run that `train` would do with none: one table of defaults.
#[test]
fn the_same_flags_describe_the_same_run() {
    let object = json(&["account"]);
    let mechanism = &object["mechanism"];
    assert_eq!((mechanism["groups"].as_u64(), mechanism["rounds"].as_u64()), (Some(2048), Some(870)));
    let (_, upper) = ends(&object["guarantees"][1]["epsilon"]);
    assert!(upper <= 3.0 && upper > 2.9999, "{upper}");
}

#[test]
fn json_has_the_documented_shape() {
    let object = json(&paper(&[]));
    let mechanism = &object["mechanism"];
    assert_eq!(mechanism["sampling"], "subsample");
    for (name, value) in [
        ("samples", 60_000.0),
        ("groups", 64.0),
        ("group_size", 1.0),
        ("epochs", 100.0),
        ("rounds", 93_700.0),
        ("sigma", 2.0),
        ("noise_multiplier", 4.0),
        ("differing", 1.0),
        ("left_over", 32.0),
    ] {
        assert_eq!(mechanism[name].as_f64(), Some(value), "{name}");
    }
    assert_eq!(mechanism["neighbours"], "substitute");
    assert_eq!(mechanism["filter"], false);
    assert_eq!(mechanism["releases"], Value::Array(Vec::new()));
    let guarantees = object["guarantees"].as_array().expect("a list");
    assert_eq!(guarantees.len(), 2);
    for (guarantee, adversary) in guarantees.iter().zip(["A1", "A0"]) {
        assert_eq!(guarantee["adversary"], adversary);
        assert_eq!(guarantee["neighbours"], "substitute");
        assert_eq!(guarantee["delta"].as_f64(), Some(1e-5));
        let (lower, upper) = ends(&guarantee["epsilon"]);
        assert!(upper - lower < 1e-6 * upper);
        ends(&guarantee["mu"]);
        assert!(guarantee["mu_range"]["smallest"].as_f64() <= Some(1e-6));
        let alphas: Vec<_> =
            guarantee["tradeoff"].as_array().expect("a list").iter().map(|p| p["alpha"].as_f64()).collect();
        assert_eq!(alphas, [Some(0.01), Some(0.05), Some(0.5)]);
        ends(&guarantee["tradeoff"][0]["beta"]);
        ends(&guarantee["rdp"][0]["tau"]);
        assert!(!guarantee["basis"].as_str().expect("a text").is_empty());
    }
    assert_eq!(object["refused"], Value::Array(Vec::new()));
    assert_eq!(object["approximations"].as_array().map(Vec::len), Some(1));
    let rows = object["as_printed"].as_array().expect("a list");
    assert!(rows.iter().any(|row| row["verdict"] == "claims more than is true"));
    for row in rows {
        for name in ["source", "formula", "side", "adversary", "epsilon", "exact", "verdict", "note"] {
            assert!(row.get(name).is_some(), "{name}");
        }
    }
}

#[test]
fn the_poisson_reference_value_is_inside() {
    let run =
        ["account", "--sampling", "poisson", "--rate", "0.01", "--rounds", "1000", "--noise-multiplier", "1"];
    let object = json(&[&run[..], &["--delta", "1e-5"]].concat());
    assert_eq!(object["mechanism"]["neighbours"], "add-remove");
    assert_eq!(object["guarantees"][1]["adversary"], "A0");
    let (lower, upper) = ends(&object["guarantees"][1]["epsilon"]);
    assert!(lower <= 1.8282366665165768 && 1.8282366665165768 <= upper, "{lower} {upper}");
    // p = m/N is the same run.
    let same = json(&[
        "account",
        "--sampling",
        "poisson",
        "--samples",
        "10000",
        "--groups",
        "100",
        "--rounds",
        "1000",
        "--noise-multiplier",
        "1",
    ]);
    assert_eq!(same["guarantees"][1]["epsilon"], object["guarantees"][1]["epsilon"]);
}

#[test]
fn epsilon_asks_for_delta() {
    let at_delta = json(&paper(&[]));
    let epsilon = ends(&at_delta["guarantees"][1]["epsilon"]).1;
    let at_epsilon = json(&paper(&["--epsilon", &epsilon.to_string()]));
    let guarantee = &at_epsilon["guarantees"][1];
    assert_eq!(guarantee["epsilon"].as_f64(), Some(epsilon));
    let (lower, upper) = ends(&guarantee["delta"]);
    assert!(lower > 0.999e-5 && upper <= 1.000_001e-5, "{lower} {upper}");
    assert!(text(&paper(&["--epsilon", "1"])).contains("δ at ε = 1, at most"));
}

#[test]
fn shuffled_batches_have_no_guarantee_for_a0_and_say_why() {
    let run = ["account", "--sampling", "shuffle", "--groups", "60", "--epochs", "100", "--sigma", "0.5"];
    let object = json(&run);
    assert_eq!(object["guarantees"].as_array().map(Vec::len), Some(1));
    assert_eq!(object["refused"][0]["adversary"], "A0");
    let bound = object["shuffle_lower_bound"]["add_remove"].as_f64().expect("a bound");
    assert!(bound > 0.0 && bound < ends(&object["guarantees"][0]["epsilon"]).1);
    let statement = text(&run);
    assert!(
        statement.contains("refused, see below") && statement.contains("can show less than"),
        "{statement}"
    );
}

#[test]
fn the_theorem_behind_an_answer_is_named() {
    let basis = |run: &[&str]| {
        let blind = &json(run)["guarantees"][1];
        (blind["basis"].as_str().unwrap().to_string(), blind["exact"].as_bool().unwrap())
    };
    let (subsampled, exact) = basis(&paper(&["--differing", "2"]));
    assert!(subsampled.contains("an upper bound, not known to be attained") && !exact, "{subsampled}");
    let (poisson, exact) =
        basis(&["account", "--sampling", "poisson", "--rate", "0.01", "--rounds", "500", "--sigma", "1"]);
    assert!(poisson.contains("Poisson pair") && exact, "{poisson}");
}

#[test]
fn a_flag_wins_over_the_file() {
    let folder = Folder::new("flag");
    let file = folder
        .put("run.toml", "samples = 1000\ngroups = 10\nepochs = 5\nnoise-multiplier = 3\ndelta = 1e-6\n");
    let mechanism = &json(&["account", "--config", &file])["mechanism"];
    assert_eq!((mechanism["samples"].as_u64(), mechanism["sigma"].as_f64()), (Some(1000), Some(1.5)));
    let object = json(&["account", "--config", &file, "--sigma", "4", "--rounds", "7", "--delta", "1e-4"]);
    let mechanism = &object["mechanism"];
    assert_eq!((mechanism["rounds"].as_u64(), mechanism["sigma"].as_f64()), (Some(7), Some(4.0)));
    assert_eq!(mechanism["groups"].as_u64(), Some(10));
    assert_eq!(object["guarantees"][0]["delta"].as_f64(), Some(1e-4));
}

#[test]
fn phases_and_releases_come_from_the_file() {
    let folder = Folder::new("phases");
    let file = folder.put(
        "run.toml",
        "samples = 1000\ngroups = 10\nsigma = 2\n[[phase]]\nepochs = 5\n[[phase]]\nepochs = 3\nsigma = 4\n[[release]]\nmu = 0.25\n",
    );
    let mechanism = &json(&["account", "--config", &file])["mechanism"];
    assert_eq!(mechanism["phases"][0]["sigma"].as_f64(), Some(2.0));
    assert_eq!(mechanism["phases"][1]["sigma"].as_f64(), Some(4.0));
    assert_eq!(mechanism["phases"][1]["rounds"].as_u64(), Some(300));
    assert_eq!(mechanism["releases"][0].as_f64(), Some(0.25));
    // The same release as a list, and a flag that wins in every phase.
    let list = folder.put(
        "list.toml",
        "release-mu = [0.25]\nsamples = 1000\ngroups = 10\n[[phase]]\nepochs = 8\nsigma = 9\n",
    );
    let one = json(&["account", "--config", &list, "--sigma", "2"]);
    let other = json(&[
        "account",
        "--samples",
        "1000",
        "--groups",
        "10",
        "--epochs",
        "8",
        "--release-mu",
        "0.25",
        "--sigma",
        "2",
    ]);
    assert_eq!(one["guarantees"], other["guarantees"]);
    assert!(text(&["account", "--config", &file]).contains("Phase 2 of 2"));
}

#[test]
fn bad_input_is_refused_in_one_line() {
    let folder = Folder::new("refused");
    refused(&["acount"], "acount");
    refused(&["account", "--sigmaa", "2"], "--sigmaa");
    refused(&["account", "--sigma", "two"], "two");
    for sigma in ["0", "-1", "nan", "inf", "1e-300", "1e300"] {
        refused(&["account", "--sigma", sigma], "sigma");
    }
    for delta in ["0", "1", "-1e-5", "nan"] {
        refused(&["account", "--delta", delta], "delta");
    }
    refused(&["account", "--epsilon", "-1"], "epsilon");
    refused(&["account", "--alpha", "0.1,1.5"], "alpha");
    refused(&["account", "--samples", "-5"], "-5");
    refused(&["account", "--samples", "10", "--groups", "64"], "groups");
    refused(&["account", "--epochs", "0"], "epochs");
    refused(&["account", "--differing", "0"], "differing");
    refused(&["account", "--differing", "70000"], "differing");
    refused(&["account", "--release-mu", "-1"], "release-mu");
    refused(&["account", "--epochs", "3", "--rounds", "3"], "epochs and rounds");
    refused(&["account", "--sigma", "3", "--noise-multiplier", "3"], "sigma and noise-multiplier");
    refused(&["account", "--delta", "1e-5", "--epsilon", "3"], "delta and epsilon");
    refused(&["account", "--sigma", "3", "--target-epsilon", "3"], "sigma and target-epsilon");
    refused(&["train", "--epsilon", "3"], "--target-epsilon");
    refused(&["account", "--rate", "0.1"], "poisson");
    refused(&["account", "--sampling", "poisson", "--rate", "2"], "rate");
    refused(&["account", "--sampling", "poisson", "--group-size", "2"], "substitution");
    refused(&["account", "--sampling", "poisson", "--filter"], "filter");
    refused(&["account", "--neighbours", "add-remove"], "neighbours");
    refused(&["account", "--sampling", "lottery"], "lottery");
    refused(&["account", "--config", &folder.place("missing.toml")], "missing.toml");
    for (name, content, expected) in [
        ("unknown.toml", "sigma = 2\nsigmaa = 2\n", "line 2"),
        ("type.toml", "samples = \"many\"\n", "line 1"),
        ("syntax.toml", "samples = = 3\n", "line 1"),
        ("negative.toml", "groups = -3\n", "-3"),
        ("both.toml", "epochs = 3\nrounds = 3\n", "epochs and rounds"),
        ("inside.toml", "[[phase]]\ndelta = 1e-5\n", "delta in a [[phase]]"),
        ("phase.toml", "[[phase]]\nsigmaa = 2\n", "sigmaa"),
        ("release.toml", "[[release]]\nmu = -2\n", "release-mu"),
    ] {
        refused(&["account", "--config", &folder.put(name, content)], expected);
    }
    refused(&["calibrate", "--solve", "sigma"], "--target-epsilon");
    refused(&["calibrate", "--target-epsilon", "3"], "--solve");
    refused(&["calibrate", "--target-epsilon", "3", "--target-mu", "1", "--solve", "sigma"], "give one");
    refused(&["calibrate", "--target-epsilon", "-3", "--solve", "sigma"], "epsilon");
    refused(
        &["calibrate", "--target-epsilon", "3", "--epsilon", "3", "--solve", "sigma"],
        "--target-epsilon",
    );
    refused(
        &["calibrate", "--target-epsilon", "1e-9", "--solve", "epochs", "--sigma", "0.5"],
        "no epochs meets",
    );
    refused(
        &[
            "calibrate",
            "--target-epsilon",
            "3",
            "--solve",
            "sigma",
            "--sampling",
            "shuffle",
            "--adversary",
            "A0",
        ],
        "shuffle",
    );
    refused(&["curve"], "--out");
}

#[test]
fn calibrating_and_accounting_agree() {
    let fixed = ["--samples", "200", "--delta", "1e-5", "--group-size", "1"];
    for (solve, settings) in [
        ("sigma", &["--groups", "20", "--epochs", "3"][..]),
        ("epochs", &["--groups", "20", "--sigma", "4"][..]),
        ("groups", &["--epochs", "3", "--sigma", "1.5"][..]),
    ] {
        let given = [&fixed[..], settings].concat();
        let found = json(&[&["calibrate", "--target-epsilon", "3", "--solve", solve][..], &given].concat());
        let value = found[solve].to_string();
        let reached = ends(&found["epsilon"]);
        assert!(reached.1 <= 3.0, "{solve}: {reached:?}");
        assert_eq!(found["adversary"], "A0");
        let flag = format!("--{solve}");
        let object = json(&[&["account", &flag, &value][..], &given].concat());
        assert_eq!(object["guarantees"][1]["epsilon"], found["epsilon"], "{solve}");
        let said = text(&[&["calibrate", "--target-epsilon", "3", "--solve", solve][..], &given].concat());
        let paste = said.lines().last().expect("a line").trim().strip_prefix("dpsgd ").expect("a command");
        let pasted = json(&paste.split(' ').collect::<Vec<_>>());
        assert_eq!(pasted["guarantees"][1]["epsilon"], found["epsilon"], "{solve}");
    }
}

#[test]
fn calibrating_for_mu_and_for_a1() {
    let run = ["--samples", "6000", "--groups", "60", "--epochs", "3"];
    let found = json(&[&["calibrate", "--target-mu", "1", "--solve", "sigma"][..], &run].concat());
    assert!(ends(&found["mu"]).1 <= 1.0);
    let shuffled = ["calibrate", "--target-epsilon", "8", "--solve", "sigma", "--sampling", "shuffle"];
    let found = json(&[&shuffled[..], &run].concat());
    assert_eq!(found["adversary"], "A1");
    assert!(ends(&found["epsilon"]).1 <= 8.0);
    assert_eq!(found["noise_multiplier"].as_f64(), found["sigma"].as_f64().map(|sigma| 2.0 * sigma));
}

#[test]
fn curves_are_drawn_in_both_formats() {
    let folder = Folder::new("curves");
    let (svg, png) = (folder.place("curve.svg"), folder.place("curve.png"));
    assert_eq!(text(&["curve", "--out", &svg]).lines().count(), 1);
    let drawing = fs::read_to_string(&svg).expect("a file");
    assert!(drawing.starts_with("<svg") || drawing.starts_with("<?xml"), "{}", &drawing[..40]);
    assert!(drawing.trim_end().ends_with("</svg>") && !drawing.contains("NaN"));
    let a = folder.put("weak.toml", "samples = 1000\ngroups = 10\nsigma = 1\n");
    let b = folder.put("strong.toml", "samples = 1000\ngroups = 10\nsampling = \"shuffle\"\nsigma = 4\n");
    text(&["curve", "--config", &a, "--config", &b, "--epochs", "30", "--out", &png]);
    let bytes = fs::read(&png).expect("a file");
    assert_eq!(&bytes[..8], b"\x89PNG\r\n\x1a\n");
    let size = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    assert!(size(16) >= 800 && size(20) >= 800, "{} × {}", size(16), size(20));
    assert_eq!(folder.names(), ["curve.png", "curve.svg", "strong.toml", "weak.toml"]);
}

#[test]
fn a_curve_that_cannot_be_drawn_leaves_nothing() {
    let folder = Folder::new("nothing");
    refused(&["curve", "--out", &folder.place("curve.pdf")], ".svg or .png");
    refused(&["curve", "--out", &folder.place("curve")], ".svg or .png");
    refused(&["curve", "--sigma", "0", "--out", &folder.place("curve.svg")], "sigma");
    let output = dpsgd(&["curve", "--out", &folder.place("no/such/folder/curve.svg")]);
    assert_eq!(output.status.code(), Some(1));
    assert!(folder.names().is_empty());
}

#[test]
fn help_and_version() {
    assert!(text(&["--version"]).starts_with("dpsgd "));
    for command in ["account", "calibrate", "curve"] {
        let help = text(&[command, "--help"]);
        assert!(help.contains("Examples:") && help.contains("--noise-multiplier"), "{help}");
    }
}

#[test]
fn no_arguments_show_the_help() {
    let output = dpsgd(&[]);
    assert_eq!(output.status.code(), Some(2));
    let shown = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(shown.contains("Usage: dpsgd") && shown.contains("  train "), "{shown}");
}

#[test]
fn completions_and_manual_come_from_the_flags() {
    for shell in ["bash", "zsh", "fish"] {
        assert!(text(&["completions", shell]).contains("noise-multiplier"), "{shell}");
    }
    assert!(text(&["man"]).contains(".TH dpsgd"));
    let folder = Folder::new("man");
    text(&["man", "--out", &folder.place("man1")]);
    assert!(fs::read_to_string(folder.0.join("man1/dpsgd-train.1")).expect("a page").contains("noise"));
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_dpsgd"))
        .args(PAPER)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty());
}
