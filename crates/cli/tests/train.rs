//! `dpsgd train` and what belongs to it, run as a user runs it, on real MNIST.

mod folder;

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use folder::Folder;

impl Folder {
    fn json(&self, arguments: &[&str]) -> Value {
        let text = self.text(&[arguments, &["--json", "--quiet"]].concat());
        serde_json::from_str(&text).expect("one JSON object")
    }
}

/// A run of a second: logistic regression, 100 rounds. (The accountant takes long for much fewer.)
const SHORT: [&str; 9] = ["train", "--net", "logistic", "--groups", "600", "--rounds", "100", "--sigma", "1"];

fn short<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&SHORT[..], more].concat()
}

fn upper(summary: &Value, adversary: &str) -> f64 {
    let all = summary["guarantees"].as_array().expect("a list");
    let given = all.iter().find(|given| given["adversary"] == adversary).expect("a guarantee");
    given["epsilon"]["upper"].as_f64().expect("a number")
}

#[test]
fn a_run_learns_and_says_what_it_guarantees() {
    let folder = Folder::new("train-learns");
    let summary = folder.json(&[
        "train",
        "--net",
        "logistic",
        "--groups",
        "600",
        "--rounds",
        "120",
        "--target-epsilon",
        "3",
        "--diagnostics",
    ]);
    // Chance is 0.1; 120 private rounds reach about 0.9.
    assert!(summary["test_accuracy"].as_f64().unwrap() > 0.8, "{summary:#}");
    assert!(summary["train_seconds"].as_f64().unwrap() > 0.0);
    assert!(summary["samples_per_s"].as_f64().unwrap() > 0.0);
    assert_eq!(summary["private"], true);
    assert_eq!(summary["note"], Value::Null);
    assert_eq!((&summary["rounds_charged"], &summary["updates"]), (&Value::from(120), &Value::from(120)));
    let epsilon = upper(&summary, "A0");
    assert!(epsilon <= 3.0 && epsilon > 2.999, "{epsilon}");

    // Exactly what `dpsgd account` says about the same mechanism.
    let sigma = summary["mechanism"]["sigma"].to_string();
    let account = ["account", "--groups", "600", "--rounds", "120", "--sigma", &sigma, "--json"];
    let account: Value = serde_json::from_str(&folder.text(&account)).unwrap();
    assert_eq!(summary["guarantees"], account["guarantees"]);

    let run = "runs/mnist-logistic-1";
    let stored: Value = serde_json::from_str(&folder.read(&format!("{run}/summary.json"))).unwrap();
    assert_eq!(stored, summary);
    for line in folder.read(&format!("{run}/metrics.jsonl")).lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        for name in ["test_loss", "test_accuracy", "test_clipping_fraction", "epsilon", "clip", "step"] {
            assert!(line[name].is_number(), "{name} in {line}");
        }
        // Functions of private data have no place here.
        let text = line.to_string();
        assert!(!text.contains("train_loss") && !text.contains("\"clipped"), "{text}");
    }
    let diagnostics = folder.read(&format!("{run}/diagnostics.jsonl"));
    assert!(diagnostics.lines().next().unwrap().contains("NOT PRIVATE"), "{diagnostics}");
    assert!(diagnostics.lines().nth(1).unwrap().contains("train_loss"), "{diagnostics}");

    let evaluated = folder.json_of_evaluate(run);
    assert_eq!(evaluated["test_accuracy"], summary["test_accuracy"]);
    assert_eq!(evaluated["guarantees"], summary["guarantees"]);
    let said = folder.text(&["evaluate", run]);
    assert!(said.contains("test accuracy") && said.contains("ε ≤"), "{said}");

    let report = folder.read(&format!("{run}/report.html"));
    self_contained(&report);
    assert!(!report.contains("not private"), "the run is");
    fs::remove_file(folder.path(&format!("{run}/report.html"))).unwrap();
    folder.text(&["report", run]);
    assert_eq!(folder.read(&format!("{run}/report.html")), report);

    // A finished run is finished, and a directory that is taken is not touched.
    folder.refused(&["resume", run], "finished");
    folder.refused(&short(&["--out", run]), "not an empty directory");
    // What it wrote down is a configuration.
    let again = folder.json(&["train", "--config", &format!("{run}/config.toml"), "--rounds", "150"]);
    assert_eq!(again["mechanism"]["sigma"], summary["mechanism"]["sigma"]);
    assert!(folder.path("runs/mnist-logistic-2").is_dir());
}

impl Folder {
    fn json_of_evaluate(&self, run: &str) -> Value {
        serde_json::from_str(&self.text(&["evaluate", run, "--json"])).expect("one JSON object")
    }
}

fn self_contained(html: &str) {
    for part in ["http:", "https:", "<script", "src=", "href=", "url(", "@import"] {
        assert!(!html.contains(part), "{part}");
    }
    // Accuracy, loss, clipping, ε and the trade-off function on two scales.
    assert_eq!(html.matches("<figure").count(), 6);
}

#[test]
fn a_seed_repeats_every_bit_on_any_number_of_threads_and_is_marked_everywhere() {
    let folder = Folder::new("train-seed");
    for (threads, out) in [("1", "one"), ("2", "two"), ("2", "again")] {
        folder.text(&short(&["--seed", "7", "--threads", threads, "--out", out, "--json"]));
    }
    let model = fs::read(folder.path("one/model.safetensors")).unwrap();
    for out in ["two", "again"] {
        assert!(fs::read(folder.path(&format!("{out}/model.safetensors"))).unwrap() == model, "{out}");
    }
    folder.text(&short(&["--seed", "8", "--threads", "2", "--out", "other", "--json"]));
    assert!(fs::read(folder.path("other/model.safetensors")).unwrap() != model);

    let mark = "reproducible, not private";
    let output = folder.run(&short(&["--seed", "7", "--out", "shown"]));
    for text in [&output.stdout, &output.stderr] {
        let text = String::from_utf8_lossy(text).to_lowercase();
        assert!(text.contains(mark), "{text}");
    }
    for name in ["summary.json", "metrics.jsonl", "report.html"] {
        assert!(folder.read(&format!("shown/{name}")).contains(mark), "{name}");
    }
    assert!(String::from_utf8_lossy(&model).contains(mark), "the model's own description");
    let summary: Value = serde_json::from_str(&folder.read("shown/summary.json")).unwrap();
    assert_eq!((&summary["private"], &summary["note"]), (&Value::Bool(false), &Value::from(mark)));
    assert!(folder.text(&["evaluate", "shown"]).contains(mark));
}

/// Waits until the run's metrics have a line, then kills the process.
fn killed(folder: &Folder, arguments: &[&str], run: &str) {
    let mut child = folder
        .command(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the command starts");
    let metrics = folder.path(&format!("{run}/metrics.jsonl"));
    let begun = Instant::now();
    while fs::metadata(&metrics).map_or(0, |file| file.len()) == 0 {
        assert!(begun.elapsed() < Duration::from_secs(300), "no epoch in five minutes");
        assert!(child.try_wait().expect("a child").is_none(), "it ended before it was killed");
        thread::sleep(Duration::from_millis(2));
    }
    // Into the next epoch, most likely.
    thread::sleep(Duration::from_millis(40));
    // SIGKILL on Unix: nothing can be tidied up.
    child.kill().expect("a running child");
    child.wait().expect("a child");
}

#[test]
fn a_killed_run_goes_on_and_keeps_its_guarantee() {
    for (sampling, adversary) in [("subsample", "A0"), ("shuffle", "A1")] {
        let folder = Folder::new(&format!("train-killed-{sampling}"));
        // Small rounds, so that the kill comes in the middle.
        let arguments = [
            "train",
            "--net",
            "logistic",
            "--groups",
            "60",
            "--epochs",
            "6",
            "--sigma",
            "2",
            "--out",
            "run",
            "--sampling",
            sampling,
        ];
        killed(&folder, &arguments, "run");
        assert!(!folder.path("run/model.safetensors").exists());
        folder.refused(&["evaluate", "run"], "resume");
        folder.text(&["report", "run"]);
        assert!(folder.read("run/report.html").contains("has not finished"));

        // A changed setting is refused before anything happens, and leaves the run as it was.
        let config = folder.read("run/config.toml");
        for (from, to) in
            [("sigma = 2.0", "sigma = 1.0"), ("step = ", "step = 1"), ("epochs = 6", "epochs = 7")]
        {
            assert!(config.contains(from), "{config}");
            folder.write("run/config.toml", &config.replace(from, to));
            folder.refused(&["resume", "run"], "another run");
        }
        folder.write("run/config.toml", &config);
        // So is a ledger that lost a record that was acknowledged. (The kill may have come between the record
        // and the head: then the last record was never acknowledged, none of its rounds happened, and it may
        // go.)
        let ledger = folder.read("run/ledger");
        let head = folder.read("run/ledger.head");
        let number = |line: &str| line.split(' ').next().and_then(|n| n.parse::<u64>().ok()).unwrap();
        let shorter: Vec<&str> = ledger.lines().filter(|line| number(line) < number(&head)).collect();
        folder.write("run/ledger", &format!("{}\n", shorter.join("\n")));
        folder.refused(&["resume", "run"], "shortened");
        folder.write("run/ledger", &ledger);

        let resumed = folder.json(&["resume", "run"]);
        assert_eq!(resumed["resumes"], 1);
        let (updates, charged) = (&resumed["updates"], &resumed["rounds_charged"]);
        assert_eq!(charged, 6000);
        // A kill in the middle of a block loses rounds, one at its end does not.
        assert!(updates.as_u64() <= charged.as_u64(), "{updates}");
        let whole =
            ["account", "--groups", "60", "--epochs", "6", "--sigma", "2", "--sampling", sampling, "--json"];
        let whole: Value = serde_json::from_str(&folder.text(&whole)).unwrap();
        assert!(upper(&resumed, adversary) >= upper(&whole, adversary));
        assert!(resumed["test_accuracy"].as_f64().unwrap() > 0.5);
        let report = folder.read("run/report.html");
        assert!(report.contains("once") && !report.contains("has not finished"));
    }
}

/// Ctrl-C ends a run after its current round, says how to continue it, and loses no update.
#[cfg(unix)]
#[test]
fn ctrl_c_ends_the_run_after_the_round() {
    let folder = Folder::new("train-interrupted");
    folder.table();
    let arguments =
        ["train", "--config", "people.toml", "--rounds", "200000", "--sigma", "2", "--out", "run"];
    let child = folder.command(&arguments).stderr(Stdio::piped()).spawn().expect("the command runs");
    let metrics = folder.0.join("run/metrics.jsonl");
    while !fs::metadata(&metrics).is_ok_and(|file| file.len() > 0) {
        thread::sleep(Duration::from_millis(5));
    }
    let signal = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(signal.expect("kill").success());
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("stopping after this round") && said.contains("dpsgd resume run"), "{said}");
    let stopped = said.split("stopped after round ").nth(1).and_then(|rest| rest.split(' ').next());
    let stopped: u64 = stopped.expect("a round").parse().expect("a number");
    let checkpoint = dpsgd::train::checkpoint::Checkpoint::read(&folder.0.join("run/checkpoint"));
    assert_eq!(checkpoint.expect("a checkpoint").round, stopped);
    // What was charged ahead and not run is given back: exactly the rounds that were run count.
    let shown: Value = serde_json::from_str(&folder.text(&["ledger", "--json"])).expect("JSON");
    assert_eq!(shown["data_sets"][0]["runs"][0]["rounds_charged"], stopped);
    assert!(said.contains(&format!("{stopped} rounds are charged, ε ≤ ")), "{said}");
}

#[test]
fn a_budget_ends_the_run_before_it_is_exceeded() {
    let folder = Folder::new("train-budget");
    let summary = folder.json(&[
        "train",
        "--net",
        "logistic",
        "--groups",
        "600",
        "--epochs",
        "2",
        "--sigma",
        "1",
        "--max-epsilon",
        "0.9",
    ]);
    let rounds = summary["rounds_charged"].as_u64().unwrap();
    assert!(rounds > 0 && rounds < 200 && summary["stopped"].is_string(), "{summary:#}");
    assert!(upper(&summary, "A0") <= 0.9);
    let one_more = (rounds + 1).to_string();
    let account = ["account", "--groups", "600", "--rounds", &one_more, "--sigma", "1", "--json"];
    let account: Value = serde_json::from_str(&folder.text(&account)).unwrap();
    assert!(upper(&account, "A0") > 0.9, "one more round would have fitted");
}

#[test]
fn every_sampler_inner_algorithm_and_schedule_runs() {
    let folder = Folder::new("train-kinds");
    let kinds: [&[&str]; 10] = [
        &["--sampling", "shuffle"],
        &["--sampling", "poisson"],
        &["--sampling", "poisson", "--rate", "0.01", "--groups", "600"],
        &["--filter"],
        &["--inner", "sgd,adam", "--group-size", "10", "--groups", "60", "--inner-result", "difference"],
        &["--outer", "adam", "--step", "0.01", "--step-rule", "inverse-root"],
        &["--clip-rule", "follow-update:0.3", "--step-rule", "when-worse"],
        &["--normalise", "private", "--differing", "2"],
        &["--average", "tail:0.5", "--choose", "better", "--step-rule", "warmup:0.1+cosine", "--step", "1"],
        &["--label-smoothing", "0.1", "--augment", "shift:2", "--views", "2", "--weight-decay", "0.001"],
    ];
    for kind in kinds {
        let fixed = ["train", "--net", "logistic", "--rounds", "100", "--sigma", "1"];
        let groups: &[&str] = if kind.contains(&"--groups") { &[] } else { &["--groups", "600"] };
        let summary = folder.json(&[&fixed, groups, kind].concat());
        assert!(summary["test_accuracy"].as_f64().unwrap() > 0.2, "{kind:?}: {summary:#}");
    }
    // The private normalisation is in the guarantee; its µ is that of one sample.
    let summary: Value = serde_json::from_str(&folder.read("runs/mnist-logistic-8/summary.json")).unwrap();
    assert_eq!(summary["mechanism"]["releases"], serde_json::json!([0.1]));
    assert!(summary["normalisation"]["mean"][0].as_f64().unwrap() > 0.1);
    let evaluated = folder.json_of_evaluate("runs/mnist-logistic-8");
    assert_eq!(evaluated["test_accuracy"], summary["test_accuracy"]);
}

#[test]
fn a_table_of_ones_own() {
    let folder = Folder::new("train-table");
    let config = folder.table();
    let summary = folder.json(&["train", "--config", config, "--sigma", "1", "--step", "2"]);
    assert!(summary["test_accuracy"].as_f64().unwrap() > 0.7, "{summary:#}");
    assert_eq!((&summary["private"], &summary["note"]), (&Value::Bool(true), &Value::Null));
    // A range that is taken from the private data is released without noise.
    folder.write("looked.toml", &folder.read(config).replace("range = [0, 100]", "range = \"from-data\""));
    let summary = folder.json(&["train", "--config", "looked.toml", "--sigma", "1", "--out", "looked"]);
    assert_eq!(summary["private"], false);
    assert!(summary["note"].as_str().unwrap().contains("of age were taken"), "{summary:#}");
    assert!(folder.read("looked/report.html").contains("not covered by the guarantee"));

    folder.refused(&["train", "--config", config, "--sampling", "poisson"], "rate and groups");
    let poisson = ["train", "--config", config, "--sampling", "poisson", "--rate", "0.05", "--sigma", "1"];
    let summary = folder.json(&poisson);
    // The size of a table is private where samples are added and removed.
    assert_eq!(summary["mechanism"]["samples"], Value::Null);
    // So is the time that rounds of a drawn size took.
    assert_eq!((&summary["train_seconds"], &summary["samples_per_s"]), (&Value::Null, &Value::Null));
    assert!(!folder.read("runs/people-logistic-2/report.html").contains("samples/s"));
    for name in ["summary.json", "report.html", "metrics.jsonl", "config.toml", "facts.json"] {
        let text = folder.read(&format!("runs/people-logistic-2/{name}"));
        // Whole numbers only: a time of 0.042000 s is not a size.
        let mut numbers = text.split(|c: char| !c.is_ascii_digit() && c != '.');
        assert!(!numbers.any(|number| number == "2000"), "{name} tells the size: {text}");
    }
    folder.refused(&["train", "--data", "people.csv"], "schema");
    folder.refused(&["train", "--config", config, "--net", "lenet5"], "not images");
    folder.refused(&["train", "--config", config, "--normalise", "public"], "normalise");
    // What is measured on the test set has no noise: it may not be the private data, under whatever name.
    folder.write("copy.csv", &folder.read("people.csv"));
    for test in ["people.csv", "./people.csv", "copy.csv"] {
        folder.refused(&["train", "--config", config, "--sigma", "1", "--test", test], "must be public");
    }
    folder.write("public.csv", "age,job,income\n12,pilot,low\n");
    folder.refused(&["train", "--config", config], "pilot");
}

#[test]
fn what_is_wrong_is_refused_before_anything_is_written() {
    let folder = Folder::new("train-hostile");
    let flags: &[(&[&str], &str)] = &[
        (&["--data", "imagenet"], "data"),
        (&["--data-dir", "nowhere"], "nowhere"),
        (&["--test", "x.csv"], "test"),
        (&["--net", "resnet"], "net"),
        (&["--features", "hog"], "scattering"),
        (&["--features", "scattering", "--normalise", "public"], "normalise"),
        (&["--groups", "0"], "groups"),
        (&["--groups", "-1"], "groups"),
        (&["--groups", "70000"], "groups"),
        (&["--group-size", "0"], "group-size"),
        (&["--group-size", "18446744073709551615"], "group-size"),
        (&["--epochs", "0"], "epochs"),
        (&["--rounds", "0"], "rounds"),
        (&["--rounds", "1", "--epochs", "1"], "rounds"),
        (&["--sigma", "0"], "sigma"),
        (&["--sigma", "NaN"], "sigma"),
        (&["--noise-multiplier", "-3"], "noise-multiplier"),
        (&["--sigma", "1", "--target-epsilon", "1"], "target-epsilon"),
        (&["--target-epsilon", "0"], "epsilon"),
        (&["--target-epsilon", "nan"], "epsilon"),
        (&["--max-epsilon", "-1"], "max-epsilon"),
        (&["--max-epsilon", "1e-9"], "max-epsilon"),
        (&["--delta", "0"], "delta"),
        (&["--delta", "1"], "delta"),
        (&["--rate", "0.1"], "rate"),
        (&["--sampling", "poisson", "--rate", "2"], "rate"),
        (&["--sampling", "poisson", "--group-size", "2"], "group-size"),
        (&["--sampling", "shuffle", "--adversary", "a0"], "shuffl"),
        // What no accountant can answer for, though σ is given and nothing is to be calibrated.
        (&["--sampling", "shuffle", "--adversary", "a0", "--sigma", "4"], "shuffl"),
        (&["--delta", "1e-250", "--sigma", "4"], "delta"),
        (&["--sampling", "shuffle", "--groups", "15000", "--differing", "300", "--sigma", "4"], "c²"),
        (&["--neighbours", "add-remove"], "neighbours"),
        (&["--differing", "0"], "differing"),
        (&["--clip", "0"], "clip"),
        (&["--clip", "inf"], "clip"),
        (&["--clip-rule", "median"], "clip-rule"),
        (&["--step", "-0.1"], "step"),
        (&["--step-rule", "follow-update:0.5"], "step-rule"),
        (&["--inner-step", "0.1"], "inner-step"),
        (&["--average", "ema:2"], "average"),
        (&["--choose", "last"], "choose"),
        (&["--augment", "turn"], "augment"),
        (&["--augment", "shift:20", "--sigma", "1"], "at most 13"),
        (&["--augment", "flip", "--features", "scattering"], "augment"),
        (&["--views", "2"], "views"),
        (&["--weight-decay", "-1", "--sigma", "1"], "weight-decay"),
        (&["--label-smoothing", "1"], "label-smoothing"),
        (&["--outer", "plain", "--momentum", "0.5"], "momentum"),
        (&["--threads", "0"], "threads"),
    ];
    for (flags, expected) in flags {
        folder.refused(&[&["train", "--net", "logistic"][..], flags].concat(), expected);
    }
    let files = [
        ("samples = 5\n", "samples"),
        ("epochs = \"many\"\n", "line 1"),
        ("sigma = 1\nnoise-multiplier = 2\n", "sigma"),
        ("[network]\ninput = [28, 28, 1]\n", "network"),
        (
            "[network]\ninput = [8, 8, 1]\n[[network.layer]]\nkind = \"flatten\"\n[[network.layer]]\nkind = \"linear\"\nfeatures = 10\n",
            "input",
        ),
        (
            "[network]\ninput = [28, 28, 1]\n[[network.layer]]\nkind = \"flatten\"\n[[network.layer]]\nkind = \"linear\"\nfeatures = 9\n",
            "outputs",
        ),
        ("\u{0}", "bad.toml"),
    ];
    for (text, expected) in files {
        folder.write("bad.toml", text);
        folder.refused(&["train", "--config", "bad.toml"], expected);
    }
    folder.refused(&["train", "--config", "missing.toml"], "missing.toml");
    folder.write("net.toml", "input = [28, 28, 1]\n[[layer]]\nkind = \"recurrent\"\n");
    folder.refused(&["train", "--net", "net.toml"], "net.toml");
    folder.write(
        "norm.toml",
        "input = [28, 28, 1]\n[[layer]]\nkind = \"flatten\"\n[[layer]]\nkind = \"linear\"\nfeatures = 10\n\
         [[layer]]\nkind = \"batch-norm\"\n",
    );
    folder.refused(&["train", "--net", "norm.toml"], "group-size = 1");
    for command in ["resume", "evaluate", "report"] {
        folder.refused(&[command, "nowhere"], "nowhere");
        folder.refused(&[command, "."], "not the directory of a run");
    }
    folder.refused(&["data", "get", "imagenet"], "imagenet");
    assert_eq!(folder.run(&["data"]).status.code(), Some(2));
    assert!(folder.text(&["data", "list"]).contains("mnist"));
}

/// A linear model on the scattering transform learns in a few rounds, and everything that is written names
/// it.
#[test]
fn features_take_the_place_of_pixels() {
    let folder = Folder::new("train-features");
    let run = ["train", "--features", "scattering", "--groups", "600", "--rounds", "100", "--sigma", "1"];
    let summary = folder.json(&[&run[..], &["--features-cache", "kept"]].concat());
    // The same on pixels reaches about 0.85.
    assert!(summary["test_accuracy"].as_f64().unwrap() > 0.92, "{summary:#}");
    assert_eq!((&summary["features"], &summary["net"]), (&"scattering".into(), &"logistic".into()));
    // 7 · 7 · 81 features, 10 classes.
    assert_eq!(summary["parameters"], 39_700);
    let run = "runs/mnist-logistic-1";
    assert!(folder.read(&format!("{run}/config.toml")).contains("features = \"scattering\""));
    assert!(folder.read(&format!("{run}/report.html")).contains("fixed functions of each image"));
    // The features of both sets are kept where it was said, and nowhere in the run.
    assert_eq!(std::fs::read_dir(folder.path("kept")).unwrap().count(), 2);
    assert!(!folder.read(&format!("{run}/config.toml")).contains("features-cache"));
    // Nothing was spent on it.
    let account = ["account", "--groups", "600", "--rounds", "100", "--sigma", "1", "--json"];
    let account: Value = serde_json::from_str(&folder.text(&account)).unwrap();
    assert_eq!(summary["guarantees"], account["guarantees"]);
    assert_eq!(folder.json_of_evaluate(run)["test_accuracy"], summary["test_accuracy"]);
}

/// A step that is far too long: the run comes apart, and says so with files that can be read.
#[test]
fn a_run_that_comes_apart_still_ends() {
    let folder = Folder::new("train-apart");
    let summary =
        folder.json(&short(&["--step", "1e6", "--clip", "1e6", "--outer", "plain", "--out", "run"]));
    assert!(summary["test_accuracy"].as_f64().unwrap() < 0.9, "{summary:#}");
    self_contained(&folder.read("run/report.html"));
    folder.text(&["report", "run"]);
    folder.text(&["evaluate", "run"]);
}
