//! The coordinator over the broker, until it is told to stop.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;

use super::connection::{Connection, Identity, Signal};
use super::error::NatsError;
use super::names::COORDINATOR;
use super::store::{Log, Store};
use crate::coordinator::{Coordinator, Outcome};
use crate::link::{Entry, Revision, SaveError, ServerLink};
use crate::name::ClientId;
use crate::server::{Server, ServerError};
use crate::terms::Agreed;

/// How often clients hear of a coordinator that has nothing to do.
const PULSE: Duration = Duration::from_secs(1);
/// The most entries folded before they are saved: at most that many clients wait for one save.
const SAVE_EVERY: u64 = 64;

/// Entries between two purges: a fraction of what a client has room for.
const PURGE_EVERY: u64 = 16;
/// Entries folded before the connection and the owner are looked at.
const QUOTA: usize = 256;

/// What the coordinator tells all clients about the log, beside the models: small, and often.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pulse {
    /// The place in the log up to which everything is folded and saved.
    pub sequence: u64,
    /// Whether it says who was rejected.
    #[serde(default)]
    pub complete: bool,
    /// Updates rejected, by client and reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rejected: Vec<(u64, String, u64)>,
}

/// How a coordinator runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Habits {
    /// The least time between two broadcasts.
    pub pace: Duration,
    /// Whether updates stay in the log after they are folded.
    pub keep_log: bool,
}

/// What happens while a coordinator runs.
#[derive(Debug)]
pub enum Seen<'a> {
    /// The broker has not answered yet; it is asked until it does.
    Dialling,
    /// The connection.
    Link(Signal),
    /// The run goes on from a saved state, or begins.
    Opened(&'a Coordinator),
    /// An entry of the log was read.
    Folded(&'a Entry, Outcome, &'a Coordinator),
    /// Everything read so far is saved.
    Saved(&'a Coordinator),
    /// The broker failed us; everything is read anew from what is saved.
    Again(String),
    /// A moment passed.
    Idle(&'a Coordinator),
}

/// What is told what happens, and says whether to go on.
pub type Watch<'a> = dyn FnMut(Seen<'_>) -> bool + 'a;

/// Folds, saves and broadcasts until `saw` returns false or another coordinator takes over. A broker that is
/// away is waited for.
///
/// # Guarantee
/// That of [`Server`]: every entry of the log is folded exactly once, whenever this process or the broker is
/// killed.
pub fn serve(
    identity: &Identity,
    terms: &Arc<Agreed>,
    initial: &[f32],
    habits: Habits,
    saw: &mut Watch<'_>,
) -> Result<(), NatsError> {
    let runtime = runtime()?;
    let (tell, told) = std::sync::mpsc::channel();
    // Nobody listens after the end.
    let tell = move |signal| drop(tell.send(signal));
    let mut goes_on = || told.try_iter().all(|signal| saw(Seen::Link(signal))) && saw(Seen::Dialling);
    let dialled = runtime.block_on(Connection::open_while(identity, COORDINATOR, tell, &mut goes_on))?;
    let Some(connection) = dialled else { return Ok(()) };
    let mut failures = 0;
    loop {
        let link = Link::open(&runtime, connection.clone(), terms, habits);
        let opened = link.and_then(|link| {
            Server::open(link, Arc::clone(terms), || initial.to_vec(), SAVE_EVERY).map_err(ended)
        });
        let ran = opened.and_then(|mut server| {
            failures = 0;
            run(&mut server, &told, saw)
        });
        match ran {
            Ok(()) => return Ok(()),
            Err(NatsError::Broker { what, why }) => {
                failures += 1;
                if !saw(Seen::Again(format!("the broker could not {what}: {why}"))) {
                    return Ok(());
                }
                std::thread::sleep(Duration::from_millis(100 << failures.min(4)));
            }
            Err(other) => return Err(other),
        }
    }
}

fn run(
    server: &mut Server<Link<'_>>,
    told: &std::sync::mpsc::Receiver<Signal>,
    saw: &mut Watch<'_>,
) -> Result<(), NatsError> {
    let mut go_on = saw(Seen::Opened(server.coordinator()));
    let mut pulsed = Instant::now();
    while go_on {
        for signal in told.try_iter() {
            go_on &= saw(Seen::Link(signal));
        }
        let mut watched = true;
        let folded = server.fold(|entry, outcome, coordinator| {
            watched &= saw(Seen::Folded(entry, outcome, coordinator));
        });
        let folded = folded.map_err(ended)?;
        go_on &= watched;
        server.link().broadcast_when_due(false)?;
        let state = server.coordinator().state();
        if pulsed.elapsed() >= PULSE {
            pulsed = Instant::now();
            let rejected = state.clients.iter().flat_map(|(client, standing)| {
                standing.rejected.iter().map(|(why, &count)| (client.0, why.name().to_string(), count))
            });
            let pulse = Pulse { sequence: state.sequence, complete: true, rejected: rejected.collect() };
            server.link().pulse(&pulse)?;
        }
        if folded > 0 {
            go_on &= saw(Seen::Saved(server.coordinator()));
            continue;
        }
        server.link().tidy(true)?;
        server.link().wait()?;
        go_on &= saw(Seen::Idle(server.coordinator()));
    }
    server.link().broadcast_when_due(true)?;
    server.link().tidy(true)?;
    server.link().flush()
}

fn ended(error: ServerError<NatsError>) -> NatsError {
    match error {
        ServerError::Link(error) => error,
        ServerError::Fenced => NatsError::Fenced,
        ServerError::Gap(gap) => NatsError::Gap { saved: gap.expected - 1, first: gap.given },
        other => NatsError::State(other.to_string()),
    }
}

/// A runtime for one member: a thread for the connection, beside the one that works.
pub(crate) fn runtime() -> Result<Runtime, NatsError> {
    let built = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    built.map_err(|error| NatsError::Broker { what: "be reached".into(), why: error.to_string() })
}

/// The coordinator's end of the broker, as [`Server`] uses it.
struct Link<'a> {
    runtime: &'a Runtime,
    store: Store,
    log: Option<(u64, Log)>,
    waiting: Option<Entry>,
    habits: Habits,
    broadcast: Option<Instant>,
    /// The newest saved model that was not broadcast yet.
    unsent: Option<Vec<u8>>,
    /// Everything up to here is in the saved state; up to there it is purged.
    folded: u64,
    purged: u64,
    /// Entries that may be read before others have their turn.
    quota: usize,
}

impl<'a> Link<'a> {
    fn open(
        runtime: &'a Runtime,
        connection: Connection,
        terms: &Agreed,
        habits: Habits,
    ) -> Result<Self, NatsError> {
        let (clients, frame) = (terms.clients, terms.update_bytes());
        let store = runtime.block_on(Store::open(connection, clients, frame, habits.keep_log))?;
        Ok(Self {
            runtime,
            store,
            log: None,
            waiting: None,
            habits,
            broadcast: None,
            unsent: None,
            folded: 0,
            purged: 0,
            quota: QUOTA,
        })
    }

    fn flush(&self) -> Result<(), NatsError> {
        self.runtime.block_on(self.store.flush())
    }

    fn pulse(&self, pulse: &Pulse) -> Result<(), NatsError> {
        self.runtime.block_on(self.store.pulse(pulse))
    }

    /// Waits until the log goes on, the connection changes, or it is time for another look.
    fn wait(&mut self) -> Result<(), NatsError> {
        let patience = match (&self.unsent, self.broadcast) {
            (Some(_), Some(last)) => self.habits.pace.saturating_sub(last.elapsed()),
            _ => Duration::from_millis(200),
        };
        let (runtime, store) = (self.runtime, &self.store);
        let Some((after, log)) = &mut self.log else { return Ok(()) };
        let next = runtime.block_on(async {
            let mut seen = store.connection().seen();
            // Only the arrival may be given up for the sleep: an entry that has arrived is taken from the log, and
            // getting the parts of a large one may take longer.
            tokio::select! {
                () = log.arrives() => Some(log.next().await),
                () = tokio::time::sleep(patience) => None,
                () = seen.changed() => Some(Err(NatsError::Broker {
                    what: "go on with the log".into(),
                    why: "the connection changed".into(),
                })),
            }
        });
        match next.transpose()? {
            Some(entry) if entry.sequence == *after + 1 => {
                *after = entry.sequence;
                self.waiting = Some(entry);
            }
            Some(_) => self.log = None,
            None => {}
        }
        Ok(())
    }

    /// Purges what is folded, now and then: a model need not wait for it.
    fn tidy(&mut self, now: bool) -> Result<(), NatsError> {
        let waiting = self.folded - self.purged;
        if !self.habits.keep_log && (waiting >= PURGE_EVERY || now && waiting > 0) {
            self.runtime.block_on(self.store.purge(self.folded))?;
            self.purged = self.folded;
        }
        Ok(())
    }

    fn broadcast_when_due(&mut self, now: bool) -> Result<(), NatsError> {
        let due = now || self.broadcast.is_none_or(|last| last.elapsed() >= self.habits.pace);
        if let Some(model) = self.unsent.take_if(|_| due) {
            self.broadcast = Some(Instant::now());
            self.runtime.block_on(self.store.broadcast(model))?;
        }
        Ok(())
    }
}

impl ServerLink for Link<'_> {
    type Error = NatsError;

    /// Saves what it loads again, which turns away a coordinator that is still running.
    fn load(&mut self) -> Result<Option<(Revision, Vec<u8>)>, NatsError> {
        let Some(state) = self.runtime.block_on(self.store.load())? else { return Ok(None) };
        let revision = self.runtime.block_on(self.store.save(state.clone()))?;
        Ok(Some((Revision(revision), state)))
    }

    fn save(
        &mut self,
        _expected: Option<Revision>,
        state: Vec<u8>,
    ) -> Result<Revision, SaveError<NatsError>> {
        // The store holds the expected revision: it may have to look up what became of a lost answer.
        match self.runtime.block_on(self.store.save(state)) {
            Ok(revision) => Ok(Revision(revision)),
            Err(NatsError::Fenced) => Err(SaveError::Fenced),
            Err(error) => Err(SaveError::Link(error)),
        }
    }

    fn entries(&mut self, after: u64, most: usize) -> Result<Vec<Entry>, NatsError> {
        let mut entries = Vec::new();
        let most = most.min(self.quota);
        if most == 0 {
            self.quota = QUOTA;
            return Ok(entries);
        }
        entries.extend(self.waiting.take().filter(|entry| entry.sequence == after + 1));
        let reached = after + entries.len() as u64;
        let log = match self.log.take() {
            Some((at, log)) if at == reached => log,
            _ => {
                entries.clear();
                self.runtime.block_on(self.store.follow(after))?
            }
        };
        let (at, log) = self.log.insert((after + entries.len() as u64, log));
        while entries.len() < most {
            let Some(entry) = self.runtime.block_on(log.ready()) else { break };
            let entry = entry?;
            if entry.sequence != *at + 1 {
                // Messages went down with a connection. They are still in the log: ask for them again.
                self.log = None;
                break;
            }
            *at = entry.sequence;
            entries.push(entry);
        }
        self.quota = if entries.is_empty() { QUOTA } else { self.quota - entries.len() };
        Ok(entries)
    }

    fn publish_model(&mut self, frame: Vec<u8>) -> Result<(), NatsError> {
        self.unsent = Some(frame);
        self.broadcast_when_due(false)
    }

    fn folded(&mut self, up_to: u64) -> Result<(), NatsError> {
        self.folded = up_to;
        self.pulse(&Pulse { sequence: up_to, ..Pulse::default() })?;
        self.tidy(false)
    }
}

/// The sender that a subject names; 0, whom no terms know, for none.
pub(crate) fn client(sender: Option<u64>) -> ClientId {
    ClientId(sender.unwrap_or(0))
}
