//! Whether the files of a run agree with each other and with its ledger; needs no data.
//!
//! # Guarantee
//! An empty list of findings means: the ledger's chain of digests is whole and as long as the checkpoint
//! remembers it, the configuration is the one it was begun with, and every guarantee in `summary.json`, in
//! the metadata of the model and in
//! `report.html` is what the accountant says, now, about the rounds that the ledger charged. The ε of single
//! epochs, which `metrics.jsonl` holds and the report draws, is history and not recomputed. Nor does it mean
//! that the ledger tells the truth about the past: who can write the directory can write all of it, and what
//! else the same data were used for is not here. An old copy of the whole directory looks as it did then; only
//! the shared ledger tells, and it is asked where there is one that knows the run.

use std::path::Path;

use dpsgd_privacy::Account;
use dpsgd_train::directory::{LEDGER, METRICS, MODEL, REPORT, SUMMARY};
use dpsgd_train::ledger::Digest;
use safetensors::SafeTensors;
use serde_json::{Value, json};

use crate::Error;
use crate::facts::{FACTS, Facts};
use crate::run::directory::saved_constants;
use crate::run::{metrics, spent_account, summary};
use crate::saved::{LedgerSummary, SavedRun};
use crate::shared_ledger::{Place, Seen};

/// Something that does not agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file.
    pub file: &'static str,
    /// What it says and what it should say.
    pub what: String,
}

/// What was verified.
#[derive(Clone, Debug)]
pub struct Verification {
    /// What does not agree; empty if all does.
    pub findings: Vec<Finding>,
    /// What the charged rounds leak, computed anew.
    pub account: Account,
    /// What the ledger says.
    pub ledger: LedgerSummary,
    /// Whether the run has its results.
    pub finished: bool,
    /// What the shared ledger says.
    pub seen: Seen,
    /// Which run this is, for whoever signs it.
    pub identity: Identity,
}

/// Which run was verified: what an officer signs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The random name of the run; nothing for a run that no shared ledger recorded.
    pub run: Option<String>,
    /// The day on which it began, in UTC; nothing for tries of a private selection and
    /// for runs of earlier versions.
    pub begun: Option<String>,
    /// The SHA-256 of the list of SHA-256 of [`SIGNED`], as `sha256sum … | sha256sum` in the directory prints
    /// it; nothing for a run without results, or whose files do not agree.
    pub sha256: Option<String>,
}

/// The files that [`Identity::sha256`] covers: everything that states a result, and nothing that may not be
/// published. The ledger holds the digest of the configuration.
pub const SIGNED: [&str; 6] = [FACTS, LEDGER, METRICS, MODEL, REPORT, SUMMARY];

impl Identity {
    fn of(facts: &Facts, directory: &Path, finished: bool) -> Result<Self, Error> {
        let mut list = String::new();
        for name in SIGNED.iter().filter(|_| finished) {
            let path = directory.join(name);
            let bytes = std::fs::read(&path).map_err(Error::io(&path))?;
            list.push_str(&format!("{}  {name}\n", Digest::of(&[&bytes])));
        }
        let sha256 = finished.then(|| Digest::of(&[list.as_bytes()]).to_string());
        Ok(Self { run: facts.run.clone(), begun: facts.begun.clone(), sha256 })
    }
}

impl SavedRun {
    /// Compares everything in the directory with the ledger and with the accountant. A directory that cannot
    /// be believed at all (a damaged ledger, another configuration) is an error.
    pub fn verify(&self) -> Result<Verification, Error> {
        self.verify_with(&Place::Usual)
    }

    /// [`SavedRun::verify`] with the shared ledger in a certain place.
    pub fn verify_with(&self, place: &Place) -> Result<Verification, Error> {
        let seen = self.seen_by(place)?;
        let mut found = self.verify_alone(seen)?;
        if let Seen::Older(why) = &found.seen {
            found.findings.push(Finding { file: LEDGER, what: why.clone() });
        }
        Ok(found)
    }

    /// The directory by itself.
    fn verify_alone(&self, seen: Seen) -> Result<Verification, Error> {
        let facts = self.facts()?;
        let settings = facts.resolve(self.raw())?;
        let ledger = self.ledger(&settings)?;
        let account = spent_account(&settings, ledger.charged)?;
        let measurements = metrics::read(self.path())?;
        let Some(last) = measurements.last() else {
            let findings = closed_without(&ledger);
            let identity = Identity::of(&facts, self.path(), false)?;
            return Ok(Verification { findings, account, ledger, finished: false, seen, identity });
        };
        let constants = saved_constants(self.path())?;
        let told = summary(&settings, &facts, &account, last, ledger, constants.as_ref(), self.path()).json();
        let mut expected: Vec<(&str, Value)> = Vec::new();
        for (name, value) in told.as_object().into_iter().flatten() {
            expected.push((name, value.clone()));
        }
        let budget = settings.budget;
        let epsilon = budget.spent(&settings.mechanism, ledger.charged)?;
        let budget =
            json!({ "epsilon": epsilon, "delta": budget.delta, "adversary": budget.adversary.name() });
        let charged = json!(ledger.charged);
        for (name, value) in &mut expected {
            match *name {
                "budget" => *value = budget.clone(),
                "rounds_charged" => *value = charged.clone(),
                _ => {}
            }
        }
        expected.retain(|(name, _)| !OF_THE_MOMENT.contains(name));
        let finished = self.path().join(SUMMARY).is_file();
        let mut findings = if finished { Vec::new() } else { closed_without(&ledger) };
        if finished {
            let summary = read_json(&self.path().join(SUMMARY))?;
            if summary.get("algorithm").is_none() {
                // Written before summaries had it; the ledger binds the configuration, which says the same.
                expected.retain(|(name, _)| *name != "algorithm");
            }
            compare(SUMMARY, &summary, &expected, &mut findings);
            let model = model_metadata(&self.path().join(MODEL))?;
            let inside: Vec<_> =
                expected.into_iter().filter(|(name, _)| IN_THE_MODEL.contains(name)).collect();
            compare(MODEL, &model, &inside, &mut findings);
            let page = std::fs::read_to_string(self.path().join(REPORT)).unwrap_or_default();
            if page != self.page()? {
                let what =
                    "is not what this version writes from this directory; `dpsgd report` writes it again";
                findings.push(Finding { file: REPORT, what: what.into() });
            }
        }
        let identity = Identity::of(&facts, self.path(), finished && findings.is_empty())?;
        Ok(Verification { findings, account, ledger, finished, seen, identity })
    }
}

/// What the file of the model says about its run.
const IN_THE_MODEL: [&str; 9] =
    ["private", "note", "data", "net", "guarantees", "uncovered", "features", "normalisation", "iterates"];
/// What says when, where and by which version a summary was written.
const OF_THE_MOMENT: [&str; 4] = ["train_seconds", "samples_per_s", "directory", "version"];

/// A run that is closed must have its results.
fn closed_without(ledger: &LedgerSummary) -> Vec<Finding> {
    let missing = Finding { file: SUMMARY, what: "is missing, and the run is closed".into() };
    if ledger.closed { vec![missing] } else { Vec::new() }
}

/// The first place at which each value differs.
fn compare(file: &'static str, found: &Value, expected: &[(&str, Value)], findings: &mut Vec<Finding>) {
    for (name, expected) in expected {
        let found = found.get(name).unwrap_or(&Value::Null);
        if let Some((place, found, expected)) = difference(name.to_string(), found, expected) {
            let what = format!("{place} is {found}, and should be {expected}");
            findings.push(Finding { file, what });
        }
    }
}

/// Where two values differ first, and how.
fn difference(place: String, found: &Value, expected: &Value) -> Option<(String, String, String)> {
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) if found.len() == expected.len() => {
            expected.iter().find_map(|(name, expected)| {
                difference(format!("{place}.{name}"), found.get(name).unwrap_or(&Value::Null), expected)
            })
        }
        (Value::Array(found), Value::Array(expected)) if found.len() == expected.len() => {
            let pairs = found.iter().zip(expected).enumerate();
            pairs
                .into_iter()
                .find_map(|(i, (found, expected))| difference(format!("{place}[{i}]"), found, expected))
        }
        _ if found == expected => None,
        _ => Some((place, found.to_string(), expected.to_string())),
    }
}

fn read_json(path: &Path) -> Result<Value, Error> {
    let text = std::fs::read(path).map_err(Error::io(path))?;
    serde_json::from_slice(&text).map_err(|error| Error::file(path, error.to_string()))
}

/// What the file of the model says about itself.
fn model_metadata(path: &Path) -> Result<Value, Error> {
    let bytes = std::fs::read(path).map_err(Error::io(path))?;
    let refuse = |why: String| Error::file(path, why);
    let (_, metadata) = SafeTensors::read_metadata(&bytes).map_err(|error| refuse(error.to_string()))?;
    let text = metadata.metadata().as_ref().and_then(|texts| texts.get("dpsgd"));
    let text = text.ok_or_else(|| refuse("has no statement of its guarantee".into()))?;
    serde_json::from_str(text).map_err(|error| refuse(error.to_string()))
}
