//! A coordinator at its machine: [`serve`], with a chronicle and a public test set.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::chronicle::{self, Chronicle};
use crate::coordinator::{Coordinator, Outcome};
use crate::name::ClientId;
use crate::nats::{NatsError, Seen, Signal, serve};
use crate::site::{ServerFile, SiteError};
use crate::state::State;
use crate::status::{Found, Status, now};
use crate::terms::Agreed;
use crate::tester::Tester;
use crate::wire::model::{self, Model};

/// How often a status is made for those who watch.
const SHOWN: Duration = Duration::from_millis(200);

/// Who watches a coordinator.
pub trait Watcher {
    /// Something happened that is worth a line.
    fn says(&mut self, line: &str);

    /// How it stands, a few times a second.
    fn shows(&mut self, status: &Status);

    /// Whether to stop.
    fn wants_to_stop(&mut self) -> bool;
}

/// A coordinator that can run.
pub struct Serving {
    file: ServerFile,
    terms: Arc<Agreed>,
    initial: Model,
    folder: PathBuf,
    /// Whether the model is measured on the public test set, if the file names one.
    pub tested: bool,
    /// End when no update has come for so long, once there was one.
    pub idle: Option<Duration>,
}

/// How it ended.
pub struct Served {
    /// How it stands.
    pub status: Status,
    /// The last state that was saved.
    pub state: State,
    /// The report; `None` if it could not be written.
    pub report: Option<PathBuf>,
    terms: Arc<Agreed>,
}

impl Served {
    /// The global model as a frame, which `docs/protocol.md` specifies.
    pub fn model(&self) -> Vec<u8> {
        model::encode(self.terms.run(), self.state.version, self.state.sequence, &self.state.weights)
    }
}

impl Serving {
    /// From `server.toml`; the chronicle is a folder beside it.
    pub fn open(path: &Path) -> Result<Self, SiteError> {
        let (file, terms, initial) = ServerFile::open(path)?;
        let folder = path.parent().unwrap_or(Path::new("")).join(chronicle::FOLDER);
        Ok(Self { file, terms, initial, folder, tested: true, idle: None })
    }

    /// Coordinates until it is told to stop; `None` if that was before there was a state.
    ///
    /// # Guarantee
    /// That of [`serve`]. Tester and chronicle only watch: without a disk for the latter the fold goes on.
    pub fn run(self, watcher: &mut dyn Watcher) -> Result<Option<Served>, NatsError> {
        let Self { file, terms, initial, folder, .. } = self;
        watcher.says(&format!("coordinator of run {}, over {}", terms.run(), file.identity.broker));
        let chronicle = Chronicle::open(&folder, &terms);
        let mut desk = Desk {
            chronicle: chronicle.map_err(|error| watcher.says(&unwritten(&folder, &error))).ok(),
            folder,
            tester: file.test.clone().filter(|_| self.tested).map(Tester::start),
            status: Status { broker: file.identity.broker.clone(), ..Status::default() },
            heard: BTreeMap::new(),
            shown: None,
            before: (Instant::now(), None),
        };
        let (mut last, mut end) = (None::<Instant>, None);
        serve(&file.identity, &terms, &initial.weights, file.habits(), &mut |seen| {
            let Some(coordinator) = desk.sees(seen, &mut last, watcher) else {
                return !watcher.wants_to_stop();
            };
            desk.shows(&terms, coordinator.state(), watcher);
            let rests = last.zip(self.idle).is_some_and(|(last, idle)| last.elapsed() >= idle);
            let go_on = !watcher.wants_to_stop() && !rests;
            if !go_on {
                end = Some(coordinator.state().clone());
            }
            go_on
        })?;
        Ok(end.map(|state| desk.ends(terms, state, watcher)))
    }
}

fn unwritten(folder: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}; the run goes on without a report", folder.display())
}

/// Everything beside the fold.
struct Desk {
    folder: PathBuf,
    chronicle: Option<Chronicle>,
    tester: Option<Tester>,
    status: Status,
    heard: BTreeMap<ClientId, u64>,
    shown: Option<Instant>,
    /// Updates folded, some moments ago, for the rate.
    before: (Instant, Option<u64>),
}

impl Desk {
    fn sees<'a>(
        &mut self,
        seen: Seen<'a>,
        last: &mut Option<Instant>,
        watcher: &mut dyn Watcher,
    ) -> Option<&'a Coordinator> {
        match seen {
            Seen::Dialling => None,
            Seen::Link(signal) => {
                match signal {
                    Signal::Connected => self.status.connected = true,
                    Signal::Disconnected => self.status.connected = false,
                    Signal::Refused(_) => {}
                }
                watcher.says(&said(signal));
                None
            }
            Seen::Again(why) => {
                watcher.says(&format!("{why}; reading everything anew"));
                None
            }
            Seen::Opened(coordinator) => {
                self.status.connected = true;
                let state = coordinator.state();
                watcher.says(&format!("at version {}, entry {} of the log", state.version, state.sequence));
                Some(coordinator)
            }
            Seen::Folded(entry, outcome, coordinator) => {
                *last = Some(Instant::now());
                if let Outcome::Accepted { .. } = outcome {
                    self.heard.insert(entry.sender, now());
                }
                Some(coordinator)
            }
            Seen::Saved(coordinator) | Seen::Idle(coordinator) => Some(coordinator),
        }
    }

    fn shows(&mut self, terms: &Agreed, state: &State, watcher: &mut dyn Watcher) {
        let measured = match self.tester.as_mut().and_then(Tester::found) {
            Some(Ok(found)) => {
                self.status.measured = Some(found);
                true
            }
            Some(Err(why)) => {
                watcher.says(&format!("the model is not measured: {why}"));
                self.tester = None;
                false
            }
            None => false,
        };
        if let Some(tester) = &mut self.tester {
            tester.offer(state);
        }
        // Making a status costs a pass over all clients: not for every update.
        if !measured && self.shown.is_some_and(|shown| shown.elapsed() < SHOWN) {
            return;
        }
        self.shown = Some(Instant::now());
        self.counts(state.accepted());
        self.status = self.made(terms, state);
        watcher.shows(&self.status);
        let noted = self.chronicle.as_mut().map_or(Ok(()), |kept| kept.note(&self.status, measured));
        if let Err(error) = noted {
            watcher.says(&unwritten(&self.folder, &error));
            self.chronicle = None;
        }
    }

    fn counts(&mut self, accepted: u64) {
        let seconds = self.before.0.elapsed().as_secs_f64();
        match self.before.1 {
            Some(before) if seconds >= 1.0 => {
                self.status.rate = accepted.saturating_sub(before) as f64 / seconds;
                self.before = (Instant::now(), Some(accepted));
            }
            Some(_) => {}
            // What an earlier process folded does not count towards the speed of this one.
            None => self.before = (Instant::now(), Some(accepted)),
        }
    }

    fn made(&self, terms: &Agreed, state: &State) -> Status {
        let mut status = Status {
            broker: self.status.broker.clone(),
            connected: self.status.connected,
            rate: self.status.rate,
            measured: self.status.measured,
            ..Status::of(terms, state)
        };
        for member in &mut status.members {
            member.heard = self.heard.get(&ClientId(member.id)).copied();
        }
        status
    }

    fn ends(mut self, terms: Arc<Agreed>, state: State, watcher: &mut dyn Watcher) -> Served {
        let last: Option<Found> = self.tester.take().and_then(|tester| tester.last(&state));
        self.status.measured = last.or(self.status.measured);
        let mut status = self.made(&terms, &state);
        (status.ended, status.rate) = (true, 0.0);
        let report = self.chronicle.take().and_then(|chronicle| {
            let closed = chronicle.close(&terms, &status);
            closed.map_err(|error| watcher.says(&unwritten(&self.folder, &error))).ok()
        });
        Served { status, state, report, terms }
    }
}

fn said(signal: Signal) -> String {
    match signal {
        Signal::Connected => "the broker answers".into(),
        Signal::Disconnected => "the connection to the broker broke; dialling again".into(),
        Signal::Refused(why) => format!("the broker: {why}"),
    }
}
