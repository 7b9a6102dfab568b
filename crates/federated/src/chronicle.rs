//! What a coordinator writes down while it runs, for people: a folder that a page can show and that outlives it.
//!
//! | file | what it holds |
//! |---|---|
//! | `status.json` | how the coordinator stands: a [`Status`], replaced every second |
//! | `timeline.jsonl` | the global model over time: a [`Measured`] a line |
//! | `terms.json` | what everybody agreed on |
//! | `summary.json`, `report.html` | written at the end |
//!
//! None of it is needed to go on: the coordinator's memory is the state at the broker.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::report;
use crate::status::{Status, clock};
use crate::terms::{Agreed, Terms};
use crate::timeline::{Measured, Timeline};

/// The folder beside `server.toml`.
pub const FOLDER: &str = "coordinator";
/// How the coordinator stands.
pub const STATUS: &str = "status.json";
/// The report.
pub const REPORT: &str = "report.html";
const TIMELINE: &str = "timeline.jsonl";
const TERMS: &str = "terms.json";
const SUMMARY: &str = "summary.json";
/// How often the status is replaced.
const REPLACED: Duration = Duration::from_secs(1);
/// How often a moment without a measurement is noted.
const NOTED: Duration = Duration::from_secs(10);

/// The chronicle of a coordinator.
pub struct Chronicle {
    folder: PathBuf,
    began: f64,
    timeline: Timeline,
    replaced: Option<Instant>,
    noted: Option<Instant>,
}

/// What stands first in the timeline's file.
#[derive(Serialize, Deserialize)]
struct Head {
    run: String,
    began: f64,
}

impl Chronicle {
    /// In this folder, which is made; the chronicle of the same run is continued, that of another replaced.
    pub fn open(folder: &Path, terms: &Agreed) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let run = terms.run().to_string();
        let known = lines(&folder.join(TIMELINE)).filter(|(head, _)| head.run == run);
        let (began, timeline) =
            known.map_or((clock(), Timeline::default()), |(head, points)| (head.began, points));
        let chronicle = Self { folder: folder.to_owned(), began, timeline, replaced: None, noted: None };
        replace(&folder.join(TERMS), &serde_json::to_vec_pretty(&**terms)?)?;
        chronicle.rewrite(&run)?;
        Ok(chronicle)
    }

    /// Notes how the coordinator stands, if it is time to; `measured` says that a model was just measured.
    pub fn note(&mut self, status: &Status, measured: bool) -> io::Result<()> {
        if self.replaced.is_none_or(|last| last.elapsed() >= REPLACED) {
            self.replaced = Some(Instant::now());
            replace(&self.folder.join(STATUS), &serde_json::to_vec(status)?)?;
        }
        let changed = self.timeline.points().last().is_none_or(|last| last.version != status.version);
        let due = self.noted.is_none_or(|last| last.elapsed() >= NOTED) && changed;
        if measured || due {
            self.noted = Some(Instant::now());
            self.append(status, measured)?;
        }
        Ok(())
    }

    fn append(&mut self, status: &Status, measured: bool) -> io::Result<()> {
        let found = status.measured.filter(|_| measured);
        let point = Measured {
            seconds: (status.at - self.began).max(0.0),
            version: found.map_or(status.version, |found| found.version),
            updates: status.updates_applied,
            rejected: status.rejected(),
            staleness: status.staleness.mean,
            loss: found.map(|found| found.loss),
            accuracy: found.and_then(|found| found.accuracy),
        };
        if self.timeline.push(point) {
            return self.rewrite(&status.run);
        }
        let mut file = OpenOptions::new().append(true).create(true).open(self.folder.join(TIMELINE))?;
        file.write_all(format!("{}\n", serde_json::to_string(&point)?).as_bytes())
    }

    fn rewrite(&self, run: &str) -> io::Result<()> {
        let mut text = serde_json::to_string(&Head { run: run.into(), began: self.began })? + "\n";
        for point in self.timeline.points() {
            text.push_str(&serde_json::to_string(point)?);
            text.push('\n');
        }
        replace(&self.folder.join(TIMELINE), text.as_bytes())
    }

    /// Writes the summary and the report; the report's path.
    pub fn close(mut self, terms: &Agreed, status: &Status) -> io::Result<PathBuf> {
        self.append(status, status.measured.is_some())?;
        replace(&self.folder.join(STATUS), &serde_json::to_vec(status)?)?;
        replace(&self.folder.join(SUMMARY), dpsgd::report::json::line(&status.summary()).as_bytes())?;
        let report = self.folder.join(REPORT);
        replace(&report, report::coordinator(terms, status, self.timeline.points()).as_bytes())?;
        Ok(report)
    }
}

/// A chronicle that is read.
pub struct Kept {
    /// How the coordinator stands, or stood.
    pub status: Status,
    /// The global model over time.
    pub timeline: Timeline,
    /// What everybody agreed on.
    pub terms: Option<Agreed>,
    /// The report, if it is written.
    pub report: Option<PathBuf>,
}

impl Kept {
    /// Reads what is in a folder; `None` if no coordinator has written there. Lines that are not whole are
    /// passed over: the coordinator may be writing them.
    pub fn read(folder: &Path) -> Option<Self> {
        let status: Status = parsed(&folder.join(STATUS))?;
        let timeline = lines(&folder.join(TIMELINE)).filter(|(head, _)| head.run == status.run);
        let terms = parsed::<Terms>(&folder.join(TERMS)).and_then(|terms| terms.check().ok());
        let report = Some(folder.join(REPORT)).filter(|report| status.ended && report.is_file());
        Some(Self {
            status,
            timeline: timeline.map_or_else(Timeline::default, |(_, points)| points),
            terms,
            report,
        })
    }
}

fn parsed<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

fn lines(path: &Path) -> Option<(Head, Timeline)> {
    let text = fs::read_to_string(path).ok()?;
    let mut lines = text.lines();
    let head = serde_json::from_str(lines.next()?).ok()?;
    Some((head, Timeline::new(lines.filter_map(|line| serde_json::from_str(line).ok()))))
}

/// Replaces a file as a whole, so that a reader never sees half of it. It need not survive a power cut.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let fresh = path.with_extension("writing");
    File::create(&fresh)?.write_all(bytes)?;
    fs::rename(&fresh, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Found;
    use crate::terms::{Bounds, Rule, ServerOuter, Staleness};

    fn terms(name: &str) -> Agreed {
        let terms = Terms {
            name: name.into(),
            dimension: 3,
            clients: 2,
            rounds: 9,
            max_staleness: 5,
            step: dpsgd::train::Schedule::constant(0.1),
            bounds: Bounds::of(1.0, 0.5),
            rule: Rule::EachUpdate,
            weight: Staleness::Constant,
            outer: ServerOuter::Plain,
        };
        terms.check().unwrap()
    }

    fn status(terms: &Agreed, version: u64) -> Status {
        let measured = Some(Found { version, loss: 0.5, accuracy: Some(0.75) });
        Status { run: terms.run().to_string(), at: clock(), version, measured, ..Status::default() }
    }

    #[test]
    fn a_killed_coordinator_continues_its_chronicle() {
        let folder = tempfile::tempdir().unwrap();
        let (path, terms) = (folder.path().join(FOLDER), terms("one"));
        let mut first = Chronicle::open(&path, &terms).unwrap();
        first.note(&status(&terms, 1), true).unwrap();
        drop(first);
        // A line that a crash cut short.
        let mut file = OpenOptions::new().append(true).open(path.join(TIMELINE)).unwrap();
        file.write_all(b"{\"seconds\":1").unwrap();
        let mut second = Chronicle::open(&path, &terms).unwrap();
        second.note(&status(&terms, 2), true).unwrap();
        assert!(Kept::read(&path).unwrap().report.is_none(), "it has not ended");
        let last = Status { ended: true, ..status(&terms, 3) };
        let report = second.close(&terms, &last).unwrap();
        let kept = Kept::read(&path).unwrap();
        let versions: Vec<u64> = kept.timeline.points().iter().map(|point| point.version).collect();
        assert_eq!(versions, [1, 2, 3]);
        assert_eq!((kept.status, kept.terms.unwrap().run()), (last, terms.run()));
        assert_eq!(kept.report, Some(report.clone()));
        let page = fs::read_to_string(report).unwrap();
        assert!(page.contains("75.00 %") && page.contains(&terms.run().to_string()));
    }

    #[test]
    fn another_run_in_the_same_folder_begins_anew() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (terms("one"), terms("other"));
        Chronicle::open(folder.path(), &one).unwrap().note(&status(&one, 1), true).unwrap();
        let mut chronicle = Chronicle::open(folder.path(), &other).unwrap();
        chronicle.note(&status(&other, 7), true).unwrap();
        let kept = Kept::read(folder.path()).unwrap();
        assert_eq!(kept.timeline.points().len(), 1);
        assert_eq!(kept.timeline.points()[0].version, 7);
        assert!(Kept::read(&folder.path().join("nothing")).is_none());
    }
}
