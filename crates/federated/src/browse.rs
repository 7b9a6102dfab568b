//! What a page about a federation shows, as JSON: its coordinator, and the clients that run on this machine.
//! Every answer only reads.

use std::path::Path;

use dpsgd::report::html::Figure;
use serde_json::{Value, json};

use crate::attendance::Attendance;
use crate::chronicle::{FOLDER, Kept};
use crate::report::{Clock, described, over_time, shares, staleness};
use crate::status::now;

/// Seconds after which somebody who writes every second is taken to be gone.
const GONE: u64 = 10;

/// A federation whose files are in a folder, and the clients among the runs of another.
pub fn federation(folder: &Path, runs: &Path) -> Value {
    let coordinator = Kept::read(&folder.join(FOLDER)).map(|kept| coordinator(&kept));
    let clients = clients(runs);
    json!({
        "present": coordinator.is_some() || !clients.is_empty(),
        "folder": folder.display().to_string(),
        "coordinator": coordinator,
        "clients": clients,
    })
}

fn state(ended: bool, at: u64) -> &'static str {
    match ended {
        true => "ended",
        false if now().saturating_sub(at) > GONE => "not running",
        false => "running",
    }
}

fn coordinator(kept: &Kept) -> Value {
    let (status, timeline) = (&kept.status, kept.timeline.points());
    let mut figures = over_time(timeline, Clock::of(timeline));
    if status.updates_applied > 0 {
        figures.extend([staleness(status), shares(status)]);
    }
    let drawn = |figure: &Figure| json!({ "svg": figure.svg, "caption": figure.caption });
    json!({
        "status": status,
        "state": state(status.ended, status.at as u64),
        "figures": figures.iter().map(drawn).collect::<Vec<_>>(),
        "terms": kept.terms.as_ref().map(|terms| described(terms, &[])),
        "report": kept.report.is_some(),
    })
}

fn clients(runs: &Path) -> Vec<Value> {
    let entries = std::fs::read_dir(runs).into_iter().flatten().flatten();
    let mut found: Vec<(String, Attendance)> = entries
        .filter_map(|entry| Some((entry.file_name().to_str()?.to_string(), Attendance::read(&entry.path())?)))
        .collect();
    found.sort_by(|one, other| (one.1.client, &one.0).cmp(&(other.1.client, &other.0)));
    let value = |(name, client): &(String, Attendance)| {
        json!({
            "name": name,
            "attendance": client,
            "line": client.line(),
            "state": state(client.ended, client.at),
        })
    };
    found.iter().map(value).collect()
}

/// The coordinator's `report.html`, as it is on the disk.
pub fn report(folder: &Path) -> Result<Vec<u8>, String> {
    let kept = Kept::read(&folder.join(FOLDER));
    let Some(path) = kept.and_then(|kept| kept.report) else {
        return Err(format!("{}: the coordinator has written no report yet", folder.display()));
    };
    std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))
}
