//! `dpsgd federate` as a user runs it, on short runs.

mod folder;

use std::path::Path;

use folder::Folder;
use serde_json::Value;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const SHORT: [&str; 12] = [
    "federate", "--net", "logistic", "--groups", "50", "--rounds", "4", "--sigma", "2", "--step", "0.5",
    "--quiet",
];

fn dpsgd(folder: &Folder, more: &[&str]) -> (Option<i32>, String, String) {
    let mut command = folder.command(&[&SHORT[..], more].concat());
    command.env("DPSGD_DATA", Path::new(ROOT).join("data"));
    let output = command.output().expect("the command runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn json(folder: &Folder, more: &[&str]) -> Value {
    let (code, out, error) = dpsgd(folder, &[more, &["--json"]].concat());
    assert_eq!(code, Some(0), "{error}");
    serde_json::from_str(&out).expect("one JSON object")
}

#[test]
fn one_object_with_everything_in_it() {
    let folder = Folder::new("federate");
    let faulty =
        ["--clients", "3", "--split", "dirichlet:0.5", "--delay", "lognormal:0.5", "--spread", "0.3"];
    let faults = ["--lost", "0.2", "--repeated", "0.2", "--restarts", "1", "--seed", "4", "--out", "fed"];
    let found = json(&folder, &[&faulty[..], &faults[..]].concat());
    let global = &found["global"];
    // Four rounds of three clients with different data learn little; that it is a share is what counts here.
    assert!((0.0..=1.0).contains(&global["test_accuracy"].as_f64().unwrap()), "{global}");
    let applied = global["updates_applied"].as_u64().unwrap();
    assert_eq!((global["version"].as_u64(), applied), (Some(12), 12), "{global}");
    // A fifth of the messages comes twice; each second copy is refused, and counted under its reason.
    let rejected = global["updates_rejected"].as_object().unwrap();
    assert_eq!(rejected.keys().collect::<Vec<_>>(), ["replayed"]);
    assert!(rejected["replayed"].as_u64() > Some(0), "{global}");
    let clients = found["clients"].as_array().unwrap();
    assert_eq!(clients.len(), 3);
    for (i, client) in clients.iter().enumerate() {
        let keys: Vec<_> = client.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["id", "rounds", "updates_sent", "interrupts", "guarantees"]);
        assert_eq!(client["id"], i as u64 + 1);
        assert_eq!((&client["rounds"], &client["updates_sent"]), (&4.into(), &4.into()));
        assert!(client["interrupts"].is_u64());
        let guarantees = client["guarantees"].as_array().unwrap();
        assert!(guarantees.iter().any(|given| given["adversary"] == "A0"), "{guarantees:?}");
        assert!(guarantees.iter().all(|given| given["epsilon"]["upper"].as_f64().unwrap() > 0.0));
    }
    assert!(found["staleness"]["mean"].as_f64().is_some() && found["staleness"]["p99"].as_u64().is_some());
    assert!(found["virtual_seconds"].as_f64().unwrap() >= 2.0);
    for file in ["summary.json", "report.html", "model.safetensors", "clients/client-3.html"] {
        assert!(folder.0.join("fed").join(file).is_file(), "{file}");
    }
    let written = std::fs::read_to_string(folder.0.join("fed/summary.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), found);
}

/// The guarantee of a client is what `dpsgd account` says about its samples and settings.
#[test]
fn a_client_states_what_account_says() {
    let folder = Folder::new("federate-account");
    let found = json(&folder, &["--clients", "4"]);
    let mut account = folder.command(&[
        "account",
        "--samples",
        "15000",
        "--groups",
        "50",
        "--rounds",
        "4",
        "--sigma",
        "2",
        "--json",
    ]);
    let account: Value = serde_json::from_slice(&account.output().unwrap().stdout).unwrap();
    for client in found["clients"].as_array().unwrap() {
        assert_eq!(client["guarantees"], account["guarantees"]);
    }
}

/// One client, each update, no delay: the model that `dpsgd train` computes, bit for bit.
#[test]
fn one_client_is_the_centralised_run() {
    let folder = Folder::new("federate-one");
    json(&folder, &["--clients", "1", "--seed", "5", "--out", "fed"]);
    let words = [&["train"], &SHORT[1..], &["--seed", "5", "--out", "central"]].concat();
    let mut command = folder.command(&words);
    command.env("DPSGD_DATA", Path::new(ROOT).join("data"));
    assert_eq!(command.output().unwrap().status.code(), Some(0));
    // A safetensors file is the length of its header, the header, and the weights.
    let weights = |name: &str| {
        let bytes = std::fs::read(folder.0.join(name).join("model.safetensors")).unwrap();
        let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        bytes[8 + header..].to_vec()
    };
    assert!(weights("fed").len() > 7850 * 3);
    assert_eq!(weights("fed"), weights("central"));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let folder = Folder::new("federate-refused");
    for (words, expected) in [
        (["--clients", "0"], "clients = 0"),
        (["--clients", "100000"], "only 60000 samples"),
        (["--split", "odd"], "iid, by-label or dirichlet:ALPHA"),
        (["--rule", "buffer"], "each, buffer:K"),
        (["--rule", "trimmed:4:2"], "trim = 2"),
        (["--delay", "lognormal:-1"], "lognormal:MEDIAN"),
        (["--lost", "1.5"], "lost = 1.5"),
        (["--staleness-power", "0"], "a power above 0"),
        (["--step-rule", "step:0.5:2"], "inverse-root"),
        (["--step-rule", "cosine"], "inverse-root"),
        (["--average", "ema:0.9"], "average: not in a federation"),
        (["--weight-decay", "0.01"], "weight-decay = 0.01: not in a federation"),
        (["--clip-rule", "inverse-root"], "clip-rule"),
        (["--normalise", "private"], "normalise = private"),
    ] {
        let (code, out, error) = dpsgd(&folder, &words);
        assert_eq!(code, Some(2), "{words:?}: {out}{error}");
        // A flag that does not parse is clap's to explain, in its own layout.
        let short = error.lines().count() == 1 || error.contains("For more information, try '--help'");
        assert!(error.contains(expected) && short, "{words:?}: {error}");
    }
}
