//! The runs of a folder: how they stand, their curves, their reports.

use std::path::{Path, PathBuf};

use crate::SavedRun;
use crate::run::metrics;
use dpsgd_report::html::Figure;
use dpsgd_report::rounding::up;
use dpsgd_report::run::{Measurement, charts, compared};
use dpsgd_report::text::subscript;
use dpsgd_train::directory::{LEDGER, REPORT, SUMMARY};
use serde_json::{Value, json};

use super::refused;

/// The directories of runs in a folder, by name.
fn directories(folder: &Path) -> Vec<(String, PathBuf)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<(String, PathBuf)> = entries
        .filter(|entry| entry.path().join(LEDGER).is_file())
        .filter_map(|entry| Some((entry.file_name().to_str()?.to_string(), entry.path())))
        .collect();
    found.sort();
    found
}

/// The run of this name: one of the folder's, so that no other path can be asked for.
fn named(folder: &Path, name: &str) -> Result<PathBuf, String> {
    let found = directories(folder).into_iter().find(|(known, _)| known == name);
    found.map(|(_, path)| path).ok_or_else(|| format!("{name}: no such run in {}", folder.display()))
}

/// How every run stands.
pub fn list(folder: &Path) -> Value {
    let runs: Vec<Value> = directories(folder)
        .into_iter()
        .map(|(name, path)| match standing(&path) {
            Ok(mut value) => {
                value["name"] = json!(name);
                value
            }
            Err(why) => json!({ "name": name, "error": why }),
        })
        .collect();
    json!({ "folder": folder.display().to_string(), "runs": runs })
}

fn standing(path: &Path) -> Result<Value, String> {
    let run = SavedRun::open(path).map_err(|error| error.to_string())?;
    let facts = run.facts().map_err(|error| error.to_string())?;
    let settings = run.settings().map_err(|error| error.to_string())?;
    let measured = metrics::read(path).map_err(|error| error.to_string())?;
    let last = measured.last();
    Ok(json!({
        "data": facts.data,
        "net": facts.net,
        "note": facts.note(&settings),
        "rounds": settings.mechanism.rounds(),
        "round": last.map_or(0, |last| last.round),
        "finished": path.join(SUMMARY).is_file(),
        "accuracy": last.and_then(|last| last.test_accuracy),
        "majority": facts.majority_share,
        "auc": last.and_then(|last| last.two_classes).map(|two| two.auc),
        "loss": last.map(|last| last.test_loss),
        "epsilon": last.map(|last| up(last.epsilon, 4)),
        "delta": settings.budget.delta,
        "adversary": subscript(settings.budget.adversary),
        "warning": last.and_then(|last| dpsgd_report::run::verdict(last, facts.baseline())),
    }))
}

fn drawn(figures: Vec<Figure>) -> Value {
    let each = figures.into_iter().map(|figure| json!({ "svg": figure.svg, "caption": figure.caption }));
    each.collect()
}

/// The curves of a run, also while it trains.
pub fn curves(folder: &Path, name: &str) -> Result<Value, String> {
    let path = named(folder, name)?;
    let run = SavedRun::open(&path).map_err(|error| error.to_string())?;
    let facts = run.facts().map_err(|error| error.to_string())?;
    let measured = metrics::read(&path).map_err(|error| error.to_string())?;
    let settings = run.settings().map_err(|error| error.to_string())?;
    let from_zero = settings.mechanism.releases().is_empty();
    Ok(json!({
        "name": name,
        "standing": standing(&path)?,
        "report": path.join(REPORT).is_file(),
        "figures": drawn(charts(&measured, facts.baseline(), from_zero)),
    }))
}

/// The curves of several runs over each other.
pub fn compare(folder: &Path, asked: impl Iterator<Item = (String, String)>) -> Result<Value, String> {
    let mut runs: Vec<(String, Vec<Measurement>)> = Vec::new();
    for (_, name) in asked.filter(|(key, _)| key == "run") {
        let path = named(folder, &name)?;
        runs.push((name, metrics::read(&path).map_err(|error| error.to_string())?));
    }
    Ok(json!({ "figures": drawn(compared(&runs)) }))
}

/// What `dpsgd verify` says.
pub fn verify(folder: &Path, name: &str) -> Result<Value, String> {
    let path = named(folder, name)?;
    let found = SavedRun::open(&path).and_then(|run| run.verify());
    Ok(match found {
        Ok(found) => {
            let findings: Vec<String> =
                found.findings.iter().map(|finding| format!("{}: {}", finding.file, finding.what)).collect();
            json!({ "agrees": findings.is_empty(), "findings": findings, "finished": found.finished })
        }
        Err(error) => refused(error),
    })
}

/// `report.html` as it is on the disk.
pub fn report(folder: &Path, name: &str) -> Result<Vec<u8>, String> {
    let path = named(folder, name)?.join(REPORT);
    std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))
}
