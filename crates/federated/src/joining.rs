//! A client at its site: a run directory and its ledger, a session with the broker, and whoever watches.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use dpsgd::inputs::RunData;
use dpsgd::privacy::mechanism::Phase;
use dpsgd::report::rounding::up;
use dpsgd::report::run::Measurement;
use dpsgd::train::Native;
use dpsgd::train::directory::LEDGER;
use dpsgd::{Observer, Outcome, Outlook, Prepared, RawSettings, Run};

use crate::attendance::Attendance;
use crate::link::ClientLink;
use crate::nats::session::View;
use crate::nats::{NatsError, Session, Signal};
use crate::outbox::Outbox;
use crate::participant::{Conduct, Measured, Participant};
use crate::site::{ClientFile, SiteError, check_settings};
use crate::status::now;
use crate::terms::Agreed;

/// The folder of updates that are not acknowledged, in the directory of the run.
const OUTBOX: &str = "outbox";
/// How often whoever watches is shown how the client stands, also while it waits.
const SHOWN: Duration = Duration::from_millis(200);
/// How often that is written to the directory of the run.
const WRITTEN: Duration = Duration::from_secs(1);
/// The pace where the batch size is private and none is given.
const USUAL_PACE: Duration = Duration::from_secs(1);

/// Why a client did not do all its rounds.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// Its file.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// Its data, settings, ledger or training.
    #[error(transparent)]
    Run(#[from] dpsgd::Error),
    /// The broker or the coordinator.
    #[error(transparent)]
    Link(#[from] NatsError),
    /// It was told to stop.
    #[error("{0}")]
    Stopped(String),
}

/// The i-th of n equal parts of the training samples, as `i/n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    index: usize,
    of: usize,
}

/// A part that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("i/n with i from 1 to n, such as 1/3")]
pub struct NotAPart;

impl FromStr for Part {
    type Err = NotAPart;

    fn from_str(text: &str) -> Result<Self, NotAPart> {
        let numbers = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
        match numbers {
            Some((index, of)) if (1..=of).contains(&index) => Ok(Self { index, of }),
            _ => Err(NotAPart),
        }
    }
}

/// Who watches a client.
pub trait Watcher: Send {
    /// Something happened that is worth a line.
    fn says(&mut self, line: &str);

    /// Something that the owner of the data should know, also where nothing else is shown.
    fn warns(&mut self, line: &str);

    /// Training begins.
    fn begins(&mut self, outlook: &Outlook<'_>);

    /// How it stands, a few times a second; and the last measurement, once there is one.
    fn shows(&mut self, attendance: &Attendance, measured: Option<&Measurement>);

    /// Whether to stop after the round.
    fn wants_to_stop(&mut self) -> bool;
}

/// A client that can run.
pub struct Joining {
    file: ClientFile,
    terms: Arc<Agreed>,
    prepared: Prepared,
    out: PathBuf,
    conduct: Conduct,
}

/// How a client ended.
pub struct Joined {
    /// What its run guarantees and reached.
    pub outcome: Outcome,
    /// How it stands.
    pub attendance: Attendance,
    /// Rounds that took longer than the pace: the slot in which they were sent tells that their batch was large.
    pub late: u64,
}

impl Joining {
    /// From `client-N.toml`, with settings over those of the file, and a part of the samples or all.
    ///
    /// # Guarantee
    /// Settings whose updates the coordinator would reject are refused here, before anything is spent.
    pub fn open(
        path: &Path,
        settings: &RawSettings,
        (part, out): (Option<Part>, Option<PathBuf>),
        conduct: Conduct,
        watcher: &mut dyn Watcher,
    ) -> Result<Self, JoinError> {
        let (file, terms) = ClientFile::open(path)?;
        let raw = settings.over(&file.train).anchored().among_clients();
        let mut inputs = RunData::load(&raw)?;
        if let Some(Part { index, of }) = part {
            let all = inputs.split.train.len();
            inputs.keep(all * (index - 1) / of..all * index / of)?;
        }
        let prepared = Prepared::with(inputs, &raw, &mut Preparing(watcher))?;
        check_settings(&prepared.settings, &terms)?;
        let random = prepared.settings.mechanism.phases().iter().any(Phase::has_private_size);
        let conduct = Conduct { pace: conduct.pace.or(random.then_some(USUAL_PACE)), ..conduct };
        let run = terms.run().to_string();
        let out = out.unwrap_or_else(|| PathBuf::from(format!("runs/{}-client-{}", &run[..8], file.client)));
        Ok(Self { file, terms, prepared, out, conduct })
    }

    /// Trains its rounds and sends their updates.
    pub fn run(self, watcher: &mut dyn Watcher) -> Result<Joined, JoinError> {
        let attendance = Attendance {
            run: self.terms.run().to_string(),
            client: self.file.client.0,
            ..Attendance::default()
        };
        let desk = Mutex::new(Desk { watcher, attendance, measured: None, directory: None, written: None });
        let (told, session) = (Arc::new(Mutex::new(Vec::new())), OnceLock::new());
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    look(&desk, &told, session.get());
                    std::thread::sleep(SHOWN);
                }
            });
            // Also when a panic ends the work: the scope waits for the thread.
            let _ended = Ended(&done);
            let tells = Arc::clone(&told);
            let tell = move |signal| {
                if let Signal::Refused(why) = signal {
                    lock(&tells).push(format!("the broker: {why}"));
                }
            };
            let mut goes_on = || !lock(&desk).watcher.wants_to_stop();
            let (identity, terms) = (&self.file.identity, Arc::clone(&self.terms));
            match Session::open(identity, terms, self.file.client, tell, &mut goes_on)? {
                Some(opened) => self.works(session.get_or_init(|| opened), &desk),
                None => {
                    Err(JoinError::Stopped("stopped before the broker answered; nothing was spent".into()))
                }
            }
        })
    }

    fn works(self, session: &Session, desk: &Mutex<Desk<'_>>) -> Result<Joined, JoinError> {
        let Self { file, terms, prepared, out, conduct } = self;
        let mut run = begin(prepared, session, &out, desk)?;
        let outbox = run.path().join(OUTBOX);
        let link = session.link();
        let mut participant = Participant::new(terms, file.client, run.trainer(), link, &outbox, conduct)?;
        session.deliver_to(participant.receiver());
        let found = Cell::new(Measured::default());
        let mut failure = None;
        let trained = run.train_by(&mut Reporter { desk, found: &found }, &mut |trainer| {
            failure = failure.take().or_else(|| session.failure());
            if failure.is_some() {
                return Err(dpsgd::Error::Refused("stopped by the federation".into()));
            }
            let done = participant.round(trainer);
            found.set(participant.measured());
            done
        });
        if let Some(failure) = failure {
            return Err(failure.into());
        }
        let outcome = trained?;
        while participant.client().outbox().next().is_some() && !lock(desk).watcher.wants_to_stop() {
            participant.flush()?;
            std::thread::sleep(Duration::from_millis(50));
        }
        let mut desk = lock(desk);
        desk.looks(&session.view());
        desk.attendance.ended = true;
        desk.writes();
        let (attendance, late) = (desk.attendance.clone(), participant.measured().late);
        Ok(Joined { outcome, attendance, late })
    }
}

/// Whoever works in the directory of a run holds its lock.
const LOCK: &str = "lock";
/// What a run writes before its first checkpoint, and so before its first charge.
const FIRST_FILES: [&str; 8] = [
    LOCK,
    "config.toml",
    "config.toml.new",
    "facts.json",
    "facts.json.new",
    "ledger",
    "ledger.head",
    "ledger.head.new",
];

/// Clears the directory of a process that was killed before its run could begin, so that the client can begin
/// again by itself.
///
/// # Guarantee
/// Nothing is removed unless this process holds the lock of the directory, every file is one of [`FIRST_FILES`]
/// and the ledger, if there is one, has no charge: then no round has happened, and none is about to. Anything else
/// is left for the run to judge. The lock itself stays.
fn clear_unbegun(out: &Path) -> Result<(), JoinError> {
    let io = |source| dpsgd::Error::Io { path: out.to_owned(), source };
    // Without its lock this is not the directory of a run, and with somebody else's the run is alive.
    let Ok(lock) = std::fs::OpenOptions::new().write(true).open(out.join(LOCK)) else { return Ok(()) };
    if lock.try_lock().is_err() {
        return Ok(());
    }
    let entries = std::fs::read_dir(out).map_err(io)?;
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry.map_err(io)?.file_name());
    }
    let first = |name: &std::ffi::OsString| FIRST_FILES.iter().any(|known| name == known);
    let spent = match std::fs::read(out.join(LEDGER)) {
        Ok(bytes) => bytes.split(|byte| byte.is_ascii_whitespace()).any(|word| word == b"charge"),
        Err(error) => error.kind() != std::io::ErrorKind::NotFound,
    };
    if spent || !names.iter().all(first) {
        return Ok(());
    }
    let mut files = names.iter().filter(|name| *name != LOCK);
    files.try_for_each(|name| std::fs::remove_file(out.join(name))).map_err(io)?;
    Ok(())
}

/// A new run from the global model of now, or the interrupted one.
fn begin(
    prepared: Prepared,
    session: &Session,
    out: &Path,
    desk: &Mutex<Desk<'_>>,
) -> Result<Run<Native>, JoinError> {
    clear_unbegun(out)?;
    if out.join(LEDGER).is_file() {
        // First of all, because a run that has ended cannot be resumed, and may have left some.
        send_left(session, &out.join(OUTBOX))?;
        return Ok(prepared.resume(out)?);
    }
    lock(desk).watcher.says("waiting for the global model");
    let Some(model) = session.first_model()? else {
        return Err(JoinError::Stopped("stopped before the first model came; nothing was spent".into()));
    };
    let mut run = prepared.start_from(out, model.weights.clone())?;
    // Version 0 is what a new run starts from.
    run.trainer().replace(model.version, model.weights).map_err(dpsgd::Error::from)?;
    Ok(run)
}

/// Sends what an earlier process left.
fn send_left(session: &Session, folder: &Path) -> Result<(), JoinError> {
    let io = |source| dpsgd::Error::Io { path: folder.to_owned(), source };
    let outbox = Outbox::open(folder).map_err(io)?;
    let mut link = session.link();
    for (round, frame) in outbox.updates().map_err(io)? {
        if link.publish(&frame).is_err() {
            return Err(JoinError::Stopped("stopped; the outbox is kept".into()));
        }
        outbox.remove(round).map_err(io)?;
    }
    Ok(())
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    // A poisoned lock is harmless: what is in it is only shown.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets a flag at the end of a scope, however that ends.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Tells whoever watches what is new, also while the trainer waits, and passes on that it is to stop.
fn look(desk: &Mutex<Desk<'_>>, told: &Mutex<Vec<String>>, session: Option<&Session>) {
    let mut desk = lock(desk);
    lock(told).drain(..).for_each(|line| desk.watcher.says(&line));
    if let Some(session) = session {
        if desk.watcher.wants_to_stop() {
            session.stop();
        }
        desk.looks(&session.view());
    }
}

/// What is shown and written down of a client.
struct Desk<'a> {
    watcher: &'a mut dyn Watcher,
    attendance: Attendance,
    measured: Option<Measurement>,
    directory: Option<PathBuf>,
    written: Option<Instant>,
}

impl Desk<'_> {
    fn looks(&mut self, view: &View) {
        let at = now();
        let attendance = &mut self.attendance;
        attendance.at = at;
        attendance.connected = view.connected;
        attendance.heard = view.heard.map(|heard| at.saturating_sub(heard.elapsed().as_secs()));
        attendance.version = attendance.version.max(view.version);
        (attendance.sent, attendance.unfolded) = (view.sent, view.unfolded);
        attendance.rejected = view.rejected.iter().cloned().collect();
        attendance.refused_models = view.refused_models;
        if self.directory.is_some() {
            self.watcher.shows(&self.attendance, self.measured.as_ref());
        }
        if self.written.is_none_or(|written| written.elapsed() >= WRITTEN) {
            self.writes();
        }
    }

    fn writes(&mut self) {
        self.written = Some(Instant::now());
        if let Some(directory) = &self.directory {
            // Nothing rests on it; a disk that is full stops the ledger, which says so.
            let _ = self.attendance.write(directory);
        }
    }
}

/// Warnings before the run begins.
struct Preparing<'a>(&'a mut dyn Watcher);

impl Observer for Preparing<'_> {
    fn warns(&mut self, warning: &str) {
        self.0.warns(warning);
    }

    fn calibrating(&mut self, epsilon: f64) {
        self.0.says(&format!("choosing the smallest σ for ε ≤ {epsilon} …"));
    }
}

/// The run, told to the desk.
struct Reporter<'d, 'w> {
    desk: &'d Mutex<Desk<'w>>,
    found: &'d Cell<Measured>,
}

impl Observer for Reporter<'_, '_> {
    fn warns(&mut self, warning: &str) {
        lock(self.desk).watcher.warns(warning);
    }

    fn begins(&mut self, outlook: &Outlook<'_>) {
        let mut desk = lock(self.desk);
        (desk.attendance.round, desk.attendance.rounds) = (outlook.next, outlook.rounds);
        desk.directory = Some(outlook.directory.to_owned());
        desk.watcher.begins(outlook);
    }

    fn round(&mut self, next: u64) {
        let found = self.found.get();
        let mut desk = lock(self.desk);
        desk.attendance.round = next;
        (desk.attendance.models, desk.attendance.restarts) = (found.models, found.restarts);
        desk.attendance.discarded =
            found.discarded.as_secs_f64() / found.computing.as_secs_f64().max(f64::MIN_POSITIVE);
    }

    fn measured(&mut self, seen: &Measurement) {
        let mut desk = lock(self.desk);
        desk.attendance.epsilon = Some(up(seen.epsilon, 4));
        desk.measured = Some(seen.clone());
    }

    fn wants_to_stop(&mut self) -> bool {
        lock(self.desk).watcher.wants_to_stop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read() {
        assert_eq!("2/3".parse(), Ok(Part { index: 2, of: 3 }));
        for wrong in ["", "3", "0/3", "4/3", "1/0", "a/b", "1/2/3"] {
            assert_eq!(wrong.parse::<Part>(), Err(NotAPart), "{wrong}");
        }
    }

    /// Only what a run left that never began is cleared.
    #[test]
    fn an_unbegun_run_is_cleared_and_nothing_else() {
        let cases: [(&[(&str, &str)], bool); 6] = [
            (&[("lock", ""), ("config.toml", "x")], true),
            (&[("lock", ""), ("config.toml", "x"), ("ledger", "0 begin x y\n"), ("ledger.head", "z")], true),
            (&[("lock", ""), ("ledger", "0 begin x\n1 charge 0 16 y\n")], false),
            (&[("lock", ""), ("ledger", "0 begin x\n"), ("checkpoint", "x")], false),
            (&[("config.toml", "x")], false),
            (&[("lock", ""), ("photo.png", "x")], false),
        ];
        for (files, cleared) in cases {
            let folder = tempfile::tempdir().unwrap();
            for (name, text) in files {
                std::fs::write(folder.path().join(name), text).unwrap();
            }
            clear_unbegun(folder.path()).unwrap();
            let left = std::fs::read_dir(folder.path()).unwrap().count();
            assert_eq!(left, if cleared { 1 } else { files.len() }, "{files:?}");
        }
        assert!(clear_unbegun(Path::new("nowhere at all")).is_ok());
        // Somebody is at work.
        let folder = tempfile::tempdir().unwrap();
        let held = std::fs::File::create(folder.path().join("lock")).unwrap();
        held.try_lock().unwrap();
        std::fs::write(folder.path().join("config.toml"), "x").unwrap();
        clear_unbegun(folder.path()).unwrap();
        assert!(folder.path().join("config.toml").exists());
    }
}
