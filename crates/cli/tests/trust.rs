//! What an attacker or an officer would try: neighbouring data, older copies, other data, test rows that were
//! trained on.

mod folder;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Output;

use folder::{Folder, TRAIN};
use serde_json::Value;

/// The files that may be published, and the two streams, of a run on the table as it is; the run's random name
/// is taken out of its facts, and with it their digest.
fn published(folder: &Folder, sampling: &str, seed: u64) -> BTreeMap<String, Vec<u8>> {
    let _ = fs::remove_dir_all(folder.path("run"));
    let _ = fs::remove_dir_all(folder.ledger());
    let seed = seed.to_string();
    let common = [
        "train",
        "--config",
        "people.toml",
        "--rounds",
        "60",
        "--sigma",
        "2",
        "--out",
        "run",
        "--seed",
        &seed,
    ];
    let sampling: Vec<&str> = sampling.split_whitespace().collect();
    let output = folder.run(&[&common[..], &sampling].concat());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let mut all = folder.content("run");
    let mut facts: Value = serde_json::from_slice(&all["facts.json"]).expect("JSON");
    let object = facts.as_object_mut().expect("an object");
    assert!(object.remove("run").is_some() && object.remove("sha256").is_some());
    // The clock is not a function of the data, and midnight may pass.
    assert!(object.remove("begun").is_some());
    all.insert("facts.json".into(), facts.to_string().into_bytes());
    all.insert("standard output".into(), output.stdout);
    all.insert("standard error".into(), output.stderr);
    all
}

/// The table with another first row, and with one row more.
fn neighbours(table: &str) -> [String; 2] {
    let (header, rows) = table.split_once('\n').expect("a header");
    let (_, rest) = rows.split_once('\n').expect("rows");
    [format!("{header}\n31.5,smith,high\n{rest}"), format!("{table}31.5,smith,high\n")]
}

/// Two data sets that differ by one row, the same key: where N is private or a filter keeps a secret number of
/// groups, everything that may be published is the same, byte for byte, in a run that never draws the row; and in
/// a run that draws it nothing differs but what the noised updates went into.
#[test]
fn neighbouring_data_show_through_the_noise_only() {
    let folder = Folder::new("trust-neighbours");
    folder.table();
    let table = folder.read("people.csv");
    let [replaced, more] = neighbours(&table);
    // The constants of a private normalisation follow every row, through their noise.
    let poisson = "--normalise none --sampling poisson --rate 0.01 --groups 100";
    // Every group is kept with probability ½, and nobody learns which: N is public here, the number kept is not.
    let filtered = "--normalise none --sampling subsample --groups 20 --filter";
    let allocate = "--normalise none --sampling allocate --rounds-per-epoch 20 --groups 100";
    // Cells as groups, with an algorithm in each that has a state.
    let cells =
        "--normalise none --sampling allocate --rounds-per-epoch 20 --groups 10 --group-size 8 --inner adam";
    // What the run keeps from round to round: outer optimizer and schedules, one of which reads the updates.
    let kept = "--normalise none --sampling poisson --rate 0.3 --groups 100 --outer adam --clip-rule \
                follow-update:0.5 --step-rule inverse-root";
    for (sampling, other, both) in [
        (poisson, &more, true),
        (filtered, &replaced, true),
        (allocate, &more, false),
        (cells, &more, false),
        (kept, &more, false),
    ] {
        let (mut same, mut drawn) = (0, 0);
        for seed in 1..=12 {
            if drawn > 0 && (same > 0 || !both) {
                break;
            }
            folder.write("people.csv", &table);
            let with = published(&folder, sampling, seed);
            folder.write("people.csv", other);
            let without = published(&folder, sampling, seed);
            assert_eq!(with.keys().collect::<Vec<_>>(), without.keys().collect::<Vec<_>>());
            let unchanged = with["model.safetensors"] == without["model.safetensors"];
            *if unchanged { &mut same } else { &mut drawn } += 1;
            for (name, bytes) in &with {
                let other = &without[name];
                let noised = ["model.safetensors", "metrics.jsonl", "summary.json", "report.html"];
                let noised = noised.contains(&name.as_str())
                    || name.starts_with("checkpoint")
                    || name.starts_with("standard");
                if unchanged || !noised {
                    assert!(bytes == other, "{name} of {sampling:?}, seed {seed}, shows the row");
                } else if name.starts_with("checkpoint") || name == "model.safetensors" {
                    assert_eq!(bytes.len(), other.len(), "{name} of {sampling:?}, seed {seed}");
                } else {
                    assert_eq!(numbers_hidden(bytes), numbers_hidden(other), "{name} of {sampling:?}");
                }
            }
        }
        assert!(drawn > 0 && (same > 0 || !both), "{sampling:?}: never drawn, or always: {same} {drawn}");
    }
}

/// The same with steps so small that no weight of the model moves: then what is measured on the noised model is the
/// same too, although the row was drawn, and every digit of every file and of both streams can be compared. Only the
/// checkpoints hold the noised sums themselves.
#[test]
fn no_digit_beside_the_noised_sums_follows_a_drawn_row() {
    let folder = Folder::new("trust-digits");
    folder.table();
    let table = folder.read("people.csv");
    let [replaced, more] = neighbours(&table);
    for (sampling, other) in [
        ("--sampling poisson --rate 0.3 --groups 100", &more),
        ("--sampling poisson --rate 0.02 --groups 5 --outer adam --step-rule inverse-root", &more),
        ("--sampling allocate --rounds-per-epoch 20 --groups 100", &more),
        ("--sampling allocate --rounds-per-epoch 20 --groups 10 --group-size 8 --inner adam", &more),
        ("--sampling allocate --rounds-per-epoch 20 --groups 100 --filter", &more),
        ("--sampling subsample --groups 400 --filter", &replaced),
        ("--sampling shuffle --groups 100 --filter", &replaced),
        ("--sampling shuffle --groups 20 --group-size 5 --inner sgd --filter", &replaced),
    ] {
        let still = format!("{sampling} --normalise none --net mlp --step 1e-12 --clip 1e-6");
        folder.write("people.csv", &table);
        let with = published(&folder, &still, 1);
        folder.write("people.csv", other);
        let without = published(&folder, &still, 1);
        assert_eq!(with.keys().collect::<Vec<_>>(), without.keys().collect::<Vec<_>>());
        assert!(with["checkpoint"] != without["checkpoint"], "{sampling:?} never drew the row");
        for (name, bytes) in &with {
            if name.starts_with("checkpoint") {
                assert_eq!(bytes.len(), without[name].len(), "{name} of {sampling:?}");
            } else {
                assert!(*bytes == without[name], "{name} of {sampling:?} shows the row");
            }
        }
    }
    // What no noise covers would be seen: the training loss, which must be asked for and is not for publishing.
    let still = "--sampling poisson --rate 0.3 --groups 100 --normalise none --net mlp --step 1e-12 --clip 1e-6 \
                 --diagnostics";
    let [with, without] = [&table, &more].map(|table| {
        folder.write("people.csv", table);
        published(&folder, still, 1)
    });
    assert!(with["diagnostics.jsonl"] != without["diagnostics.jsonl"]);
    assert!(with["metrics.jsonl"] == without["metrics.jsonl"]);
}

/// A text without the digits of its numbers, which measure the noised model, and without its charts, whose ticks
/// follow those numbers. Counts of rounds, sizes and ε are compared in the files that hold nothing noised.
fn numbers_hidden(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let outside = text.split("<figure").map(|part| part.rsplit("</figure>").next().unwrap_or(part));
    let mut hidden = String::new();
    for c in outside.collect::<String>().chars() {
        let number = c.is_ascii_digit() || "-.".contains(c) || (c == 'e' && hidden.ends_with('#'));
        if !number {
            hidden.push(c);
        } else if !hidden.ends_with('#') {
            hidden.push('#');
        }
    }
    hidden
}

fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to).expect("a directory");
    for file in fs::read_dir(from).expect("a directory") {
        let file = file.expect("a file");
        fs::copy(file.path(), to.join(file.file_name())).expect("a copy");
    }
}

fn error(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn an_older_copy_of_a_run_is_refused_shown_and_charged() {
    let folder = Folder::interrupted("trust-rollback", "subsample");
    copy(&folder.path("run"), &folder.path("old"));
    folder.text(&["resume", "run", "--quiet"]);
    assert!(folder.text(&["verify", "run"]).contains("the shared ledger knows this run"));

    copy(&folder.path("old"), &folder.path("run"));
    folder.refused(&["resume", "run"], "older copy of the run");
    let verified = folder.run(&["verify", "run"]);
    assert_eq!(verified.status.code(), Some(1));
    assert!(error(&verified).contains("ledger: this directory is an older copy"), "{}", error(&verified));
    // Without the ledger nobody can tell, and that is said.
    let alone = folder.command(&["verify", "run"]).env("DPSGD_LEDGER", "none").output().expect("it runs");
    let text = String::from_utf8_lossy(&alone.stdout).into_owned();
    assert!(alone.status.success() && text.contains("an older copy of the directory would look"), "{text}");

    let shown: Value = serde_json::from_str(&folder.text(&["ledger", "--json"])).expect("JSON");
    let set = &shown["data_sets"][0];
    assert_eq!(set["runs"][0]["rounds_charged"], 400);
    let epsilon = set["epsilon"].as_f64().expect("a number");
    folder.text(&["resume", "run", "--quiet", "--charge-rollback"]);
    let summary: Value = serde_json::from_str(&folder.read("run/summary.json")).expect("JSON");
    assert_eq!(summary["rounds_charged"], 400);
    let stated = summary["guarantees"].as_array().expect("a list").iter();
    assert!(stated.clone().any(|given| given["epsilon"]["upper"].as_f64() == Some(epsilon)), "{summary:#}");

    // Another run on the same data is added up; it costs less than twice as much.
    let args = [&TRAIN[..8], &["--out", "second"]].concat();
    let said = folder.text(&args);
    let joined = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(joined.contains("2 private runs on ") && joined.contains("Together they are ε ≤"), "{said}");
    let shown: Value = serde_json::from_str(&folder.text(&["ledger", "--json"])).expect("JSON");
    let both = shown["data_sets"][0]["epsilon"].as_f64().expect("a number");
    assert!(both > epsilon && both < 2.0 * epsilon, "{both} {epsilon}");
    assert!(folder.text(&["ledger"]).contains("together: ε ≤"));
}

/// What is measured on a private test set is counted once, so it is measured once, in whichever copy of the run.
#[test]
fn two_copies_of_a_run_measure_a_private_test_set_once() {
    let private = |folder: &Folder| {
        let config = folder.read("people.toml").replacen("test =", "private-test =", 1);
        folder.write("people.toml", &config);
    };
    let folder = Folder::interrupted_with("trust-private-test", "subsample", private);
    copy(&folder.path("run"), &folder.path("old"));
    folder.text(&["resume", "run", "--quiet"]);
    assert!(folder.path("run/private-test.json").is_file());
    let said = folder.text(&["resume", "old", "--quiet", "--charge-rollback"]);
    assert!(!folder.path("old/private-test.json").exists(), "the test set was measured a second time");
    assert!(said.contains("private test set"), "{said}");
    folder.text(&["verify", "old"]);
    // A directory that has lost the measurement does not get another one.
    copy(&folder.path("old"), &folder.path("run"));
    folder.text(&["report", "run"]);
    assert!(!folder.path("run/private-test.json").exists());
}

#[test]
fn a_run_is_not_resumed_on_other_data_of_the_same_size() {
    for sampling in ["subsample", "shuffle"] {
        let folder = Folder::interrupted(&format!("trust-data-{sampling}"), sampling);
        let table = folder.read("people.csv");
        folder.write("people.csv", &table.replacen("37,", "38,", 1));
        folder.refused(&["resume", "run"], "the data are not those the run was begun with");
        folder.write("people.csv", &table);
        folder.text(&["resume", "run", "--quiet"]);
    }
}

/// What is measured on the test set is published without noise, so it must not be the training set, in whatever
/// order and with whatever else.
#[test]
fn test_rows_that_were_trained_on() {
    let folder = Folder::new("trust-test-rows");
    folder.table();
    let header = "age,job,income\n";
    let rows = |range: std::ops::Range<u32>| {
        let row = |i: u32| {
            let age = f64::from(i) * 0.01;
            format!("{age:.2},nurse,{}\n", if age >= 5.0 { "high" } else { "low" })
        };
        range.map(row).collect::<String>()
    };
    folder.write("people.csv", &format!("{header}{}", rows(0..1000)));
    let arguments = &["train", "--config", "people.toml", "--rounds", "40", "--sigma", "2", "--out", "run"];
    for (name, test) in [
        ("rotated", format!("{}{}", rows(300..1000), rows(0..300))),
        ("one more", format!("{}{}", rows(0..1000), rows(5000..5001))),
        ("one third", format!("{}{}", rows(100..200), rows(5000..5200))),
    ] {
        folder.write("public.csv", &format!("{header}{test}"));
        let output = folder.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{name}");
        assert!(error(&output).contains("holds the same samples as data"), "{name}: {}", error(&output));
    }
    folder.write("public.csv", &format!("{header}{}{}", rows(5000..5200), rows(7..8)));
    let output = folder.run(arguments);
    assert_eq!(output.status.code(), Some(0), "{}", error(&output));
    assert!(error(&output).contains("warning: 1 of 201 test samples also occur"), "{}", error(&output));
    // Rows that repeat themselves everywhere are no copy: a hundred different ones in both files.
    folder.table();
    folder.write("public.csv", &folder.read("people.csv"));
    folder.write("public.csv", &format!("{}7,smith,low\n", folder.read("public.csv")));
    folder.text(&["train", "--config", "people.toml", "--rounds", "40", "--sigma", "2", "--quiet"]);
}
