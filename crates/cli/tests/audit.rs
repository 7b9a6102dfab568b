//! `dpsgd audit`, run as a user runs it. The seed is fixed; the audit's own false-alarm rate is 1e-6.

mod folder;

use folder::Folder;
use serde_json::Value;

const SMALL_AUDIT: [&str; 14] = [
    "audit",
    "mechanism",
    "--samples",
    "1000",
    "--sampling",
    "shuffle",
    "--groups",
    "4",
    "--sigma",
    "0.5",
    "--trials",
    "500",
    "--seed",
    "1",
];

#[test]
fn an_audit_finds_nothing_and_says_so() {
    let statement = Folder::new("audit-statement").text(&SMALL_AUDIT);
    for part in [
        "THE RUN AS CONFIGURED",
        "1000 samples",
        "THE RUN THAT WAS AUDITED",
        "16 samples",
        "THE BEST TEST OF A₁",
        "THE BEST TEST OF A₀",
        "Proved: µ ≥",
        "Proved: ε ≥",
        "500 runs on D and 500 on D'",
        "Nothing contradicts the claim",
        "probability at most",
        "keys from the seed",
    ] {
        assert!(statement.contains(part), "{part} is missing in\n{statement}");
    }
    for check in ["noise", "independence", "sampling", "clipping", "groups", "threads", "ledger"] {
        let line = statement.lines().find(|line| line.starts_with(&format!("  {check} "))).expect(check);
        assert!(line.contains("passed"), "{line}");
    }
    assert!(statement.lines().all(|line| line.chars().count() <= 100), "{statement}");
}

#[test]
fn an_audit_as_json_and_as_a_page() {
    let folder = Folder::new("audit");
    let printed = folder.text(&[&SMALL_AUDIT[..], &["--out", "found", "--json"]].concat());
    let object: Value = serde_json::from_str(&printed).expect("one JSON object");
    assert_eq!(object["contradiction"], false);
    assert_eq!(object["trials"], 500);
    assert_eq!(object["false_alarm_rate"], 1e-6);
    assert_eq!(object["configured"]["mechanism"]["samples"], 1000);
    assert_eq!(object["audited"]["mechanism"]["samples"], 16);
    let known = &object["attacks"][0];
    assert_eq!(known["adversary"], "A1");
    let (proved, claimed) = (known["mu"]["proved"].as_f64(), known["mu"]["claimed_there"].as_f64());
    assert!(proved > Some(1.5) && proved < claimed, "{known}");
    assert_eq!(known["points"].as_array().map(Vec::len), Some(15));
    assert_eq!(object["checks"].as_array().map(Vec::len), Some(8));
    // What is written is what is printed, and the page needs nothing from elsewhere.
    let written: Value = serde_json::from_str(&folder.read("found/audit.json")).expect("JSON");
    assert_eq!(written["attacks"], object["attacks"]);
    let page = folder.read("found/audit.html");
    assert!(page.contains("<svg") && page.contains("nothing contradicts the claim"));
    assert!(!page.contains("http") && !page.contains("<script"));
    // The private normalisation is in the claim, as it would be in a training run, though no data are there.
    let more = ["--normalise", "private", "--json"];
    let normalised: Value =
        serde_json::from_str(&folder.text(&[&SMALL_AUDIT[..], &more].concat())).expect("JSON");
    assert_eq!(normalised["configured"]["mechanism"]["releases"], serde_json::json!([0.1]));
    let claim = |audit: &Value| audit["configured"]["claims"][0]["epsilon"].as_f64().expect("a number");
    assert!(claim(&normalised) > claim(&object));
}

#[test]
fn an_audit_that_makes_no_sense_is_refused() {
    let folder = Folder::new("audit-refused");
    let missing = folder.run(&["audit"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("Usage: dpsgd audit"));
    folder.refused(
        &["audit", "mechanism", "--samples", "100", "--groups", "4", "--trials", "5"],
        "at least 100",
    );
    folder.refused(
        &["audit", "mechanism", "--samples", "100", "--groups", "4", "--seconds", "0"],
        "seconds = 0",
    );
    folder.refused(
        &["audit", "mechanism", "--samples", "100", "--groups", "200", "--sigma", "1"],
        "at most samples = 100",
    );
    folder.refused(
        &["audit", "mechanism", "--samples", "100", "--trials", "500", "--seconds", "5"],
        "cannot be used with",
    );
}

/// Canaries in a training with little noise prove a good part of what is claimed, and never more.
#[test]
fn a_training_audit_proves_less_than_is_claimed_and_more_than_nothing() {
    let folder = Folder::new("audit-training");
    folder.table();
    let train = "train --config people.toml --net mlp --groups 100 --rounds 400 --sigma 0.3 --sampling shuffle --step 0.5";
    let arguments = [&train.split(' ').collect::<Vec<_>>()[..], &["--quiet", "--out", "run"]].concat();
    folder.text(&arguments);
    let audit = |more: &[&str]| -> Value {
        let fixed = ["audit", "training", "run", "--json", "--quiet"];
        serde_json::from_str(&folder.text(&[&fixed[..], more].concat())).expect("one JSON object")
    };
    // What is shown exceeds the truth with probability 0.01 at most, and the claim, which is far above it,
    // practically never.
    let found = audit(&["--canaries", "500", "--confidence", "0.99", "--out", "found"]);
    let number = |name: &str| found[name].as_f64().unwrap_or_else(|| panic!("{name} in {found}"));
    assert!(number("epsilon_lower") > 0.8 && number("mu_lower") > 0.2, "{found}");
    assert!(number("epsilon_lower") <= number("epsilon_claimed"), "{found}");
    assert_eq!(found["contradiction"], false);
    let page = folder.read("found/audit-training.html");
    // It is made of private data, and says so wherever it goes.
    let cost = found["cost"].as_str().expect("a sentence");
    assert!(cost.contains("once more") && page.contains(cost));
    assert!(page.contains("<svg") && page.contains("Training audit") && !page.contains("http"));
    let label = audit(&["--kind", "label", "--canaries", "300", "--confidence", "0.99"]);
    assert!(label["epsilon_lower"].as_f64().unwrap() <= label["epsilon_claimed"].as_f64().unwrap());
    for (arguments, expected) in [
        (["audit", "training", "nowhere", "--quiet"], "nowhere"),
        (["audit", "training", "run", "--canaries=3"], "canaries"),
        (["audit", "training", "run", "--confidence=1"], "confidence"),
    ] {
        folder.refused(&arguments, expected);
    }
}
