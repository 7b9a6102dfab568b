//! A client at work: updates out, global models in, and no further ahead of the coordinator than agreed.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::runtime::Runtime;

use super::connection::{Connection, Identity, Signal};
use super::coordinator::{Pulse, runtime};
use super::error::NatsError;
use super::names::member;
use super::outlet::{Outlet, Sent};
use crate::link::ClientLink;
use crate::name::ClientId;
use crate::participant::Receiver;
use crate::reject::Reject;
use crate::terms::{Agreed, Rule};
use crate::wire::model::{self, Model};

/// A client whose updates are refused so often does not go on spending its budget on them.
const TOO_MANY: u64 = 8;
/// How long to wait for a broadcast before the broker is asked.
const ASK_AFTER: Duration = Duration::from_secs(5);
/// How often a waiting trainer looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(100);

/// How many updates of one client may be under way: such that all clients together stay within the staleness
/// of the terms, and a buffer can fill.
pub fn ahead(terms: &Agreed) -> usize {
    let fair = (terms.max_staleness / (2 * terms.clients)).clamp(1, 16);
    match terms.rule {
        Rule::EachUpdate => fair as usize,
        Rule::Buffer { size, .. } => fair.max(size.min(16)) as usize,
    }
}

/// A client's connection to its federation.
pub struct Session {
    shared: Arc<Shared>,
    terms: Arc<Agreed>,
    id: ClientId,
    outlet: Arc<Outlet>,
    runtime: Arc<Runtime>,
}

struct Shared {
    progress: Mutex<Progress>,
    changed: Condvar,
    stop: AtomicBool,
}

#[derive(Default)]
struct Progress {
    /// Places in the log of updates that are not folded yet.
    logged: BTreeSet<u64>,
    view: View,
    /// Refusals that were counted before this session.
    refused_before: Option<u64>,
    failure: Option<NatsError>,
}

/// What a client knows about its federation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct View {
    /// Whether the broker can be reached.
    pub connected: bool,
    /// The newest model's version.
    pub version: u64,
    /// Models that were handed to the trainer.
    pub models: u64,
    /// Models that were refused: damaged, of another run, or not finite.
    pub refused_models: u64,
    /// Updates that are in the log.
    pub sent: u64,
    /// Updates in the log that are not folded yet.
    pub unfolded: u64,
    /// Updates of this client that the coordinator rejected, by reason; over the whole run.
    pub rejected: Vec<(String, u64)>,
    /// When the coordinator was last heard of.
    pub heard: Option<Instant>,
}

impl Session {
    /// Connects; waits for the broker as long as `goes_on` says so, and is `None` after that. `told` hears what
    /// happens to the connection.
    pub fn open(
        identity: &Identity,
        terms: Arc<Agreed>,
        id: ClientId,
        told: impl Fn(Signal) + Send + Sync + 'static,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Self>, NatsError> {
        let runtime = runtime()?;
        let view = View { connected: true, ..View::default() };
        let progress = Mutex::new(Progress { view, ..Progress::default() });
        let shared = Arc::new(Shared { progress, changed: Condvar::new(), stop: AtomicBool::new(false) });
        let seen = Arc::clone(&shared);
        let told = move |signal: Signal| {
            match signal {
                Signal::Connected => seen.lock().view.connected = true,
                Signal::Disconnected => seen.lock().view.connected = false,
                Signal::Refused(_) => {}
            }
            told(signal);
        };
        let name = member(id.0);
        let dialled = Connection::open_while(identity, &name, told, goes_on);
        let Some(connection) = runtime.block_on(dialled)? else { return Ok(None) };
        let outlet = Arc::new(Outlet::new(connection, id.0));
        Ok(Some(Self { shared, terms, id, outlet, runtime: Arc::new(runtime) }))
    }

    /// Ends every wait, from any thread.
    pub fn stop(&self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.changed.notify_all();
    }

    /// The newest model, waiting for the coordinator to have one; `None` when stopped.
    pub fn first_model(&self) -> Result<Option<Model>, NatsError> {
        let limit = model::bytes(self.terms.dimension());
        while !self.shared.stopped() {
            let found = self.runtime.block_on(async {
                match self.outlet.newest().await? {
                    Some(payload) => self.outlet.whole(payload, limit).await,
                    None => Ok(None),
                }
            });
            // A broker that cannot answer now is asked again.
            if let Ok(Some(frame)) = found {
                let found = model::decode(&frame, &self.terms);
                return found.map(Some).map_err(|why| NatsError::State(why.to_string()));
            }
            std::thread::sleep(LOOK);
        }
        Ok(None)
    }

    /// The link for the participant.
    pub fn link(&self) -> NatsLink {
        let (shared, outlet) = (Arc::clone(&self.shared), Arc::clone(&self.outlet));
        NatsLink { shared, outlet, runtime: Arc::clone(&self.runtime), ahead: ahead(&self.terms) }
    }

    /// From now on models go to the receiver, while a round is computed, too.
    pub fn deliver_to(&self, receiver: Receiver) {
        let limit = model::bytes(self.terms.dimension());
        self.runtime.spawn(receive(Arc::clone(&self.shared), Arc::clone(&self.outlet), receiver, limit));
        self.runtime.spawn(hear(Arc::clone(&self.shared), Arc::clone(&self.outlet), self.id));
    }

    /// What is known now.
    pub fn view(&self) -> View {
        self.shared.view()
    }

    /// Why this client has to stop, if so.
    pub fn failure(&self) -> Option<NatsError> {
        self.shared.lock().failure.take()
    }
}

impl Shared {
    /// A poisoned lock is harmless: every change is complete in itself.
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn view(&self) -> View {
        let progress = self.lock();
        View { unfolded: progress.logged.len() as u64, ..progress.view.clone() }
    }
}

/// A client's end of the log.
pub struct NatsLink {
    shared: Arc<Shared>,
    outlet: Arc<Outlet>,
    runtime: Arc<Runtime>,
    ahead: usize,
}

/// Nothing was sent because this client is to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stopped before the log had the update; it stays in the outbox")]
pub struct Stopped;

impl ClientLink for NatsLink {
    type Error = Stopped;

    /// Sends the same bytes under the same name until the log has them.
    fn publish(&mut self, update: &[u8]) -> Result<(), Stopped> {
        // The end of the checksum of a frame with fresh noise: nobody can guess it before it is sent.
        let name: String = update.iter().rev().take(16).map(|byte| format!("{byte:02x}")).collect();
        let frame = Bytes::copy_from_slice(update);
        while !self.shared.stopped() {
            let sent = self.runtime.block_on(self.outlet.send(&name, frame.clone()));
            if let Sent::Logged(place) = sent {
                let mut progress = self.shared.lock();
                progress.logged.insert(place);
                progress.view.sent += 1;
                return Ok(());
            }
            self.runtime.block_on(self.outlet.pause());
        }
        Err(Stopped)
    }

    /// Asked before every round. Models go to the receiver as they come; here the trainer waits until the
    /// coordinator has caught up with this client's updates.
    fn newest_model(&mut self) -> Result<Option<Arc<[u8]>>, Stopped> {
        let mut progress = self.shared.lock();
        while progress.logged.len() >= self.ahead {
            if self.shared.stopped() || progress.failure.is_some() {
                return Err(Stopped);
            }
            let waited = self.shared.changed.wait_timeout(progress, LOOK);
            progress = waited.map_or_else(|poisoned| poisoned.into_inner().0, |(guard, _)| guard);
        }
        Ok(None)
    }
}

/// Hands every new model to the trainer, the newest only.
async fn receive(shared: Arc<Shared>, outlet: Arc<Outlet>, receiver: Receiver, limit: usize) {
    let mut models = loop {
        match outlet.models().await {
            Ok(models) => break models,
            Err(_) => outlet.pause().await,
        }
    };
    let mut seen = outlet.connection().seen();
    // A broadcast may have been lost with a connection, or before there was one.
    let mut ask = true;
    loop {
        let asked = if ask { outlet.newest().await.ok().flatten() } else { None };
        ask = false;
        let payload = match asked {
            Some(payload) => payload,
            None => tokio::select! {
                next = models.next() => match next {
                    Some(payload) => payload,
                    None => return,
                },
                () = seen.changed() => { ask = true; continue }
                () = tokio::time::sleep(ASK_AFTER) => { ask = true; continue }
            },
        };
        match outlet.whole(payload, limit).await {
            Ok(Some(frame)) => shared.take_model(&frame, &receiver),
            // Its parts are gone, or could not be had: a newer one is there, or will be.
            Ok(None) | Err(_) => {
                outlet.pause().await;
                ask = true;
            }
        }
    }
}

impl Shared {
    fn take_model(&self, frame: &Bytes, receiver: &Receiver) {
        let taken = receiver.received(frame);
        let mut progress = self.lock();
        progress.view.heard = Some(Instant::now());
        match taken {
            Ok(true) => {
                progress.view.models += 1;
                progress.view.version = receiver.newest();
            }
            Ok(false) => {}
            Err(_) => progress.view.refused_models += 1,
        }
        self.changed.notify_all();
    }
}

/// Hears how far the log is folded, and what was rejected.
async fn hear(shared: Arc<Shared>, outlet: Arc<Outlet>, id: ClientId) {
    let mut pulses = loop {
        match outlet.pulses().await {
            Ok(pulses) => break pulses,
            Err(_) => outlet.pause().await,
        }
    };
    while let Some(text) = pulses.each().await {
        let Ok(pulse) = serde_json::from_slice::<Pulse>(&text) else { continue };
        let mut progress = shared.lock();
        progress.view.heard = Some(Instant::now());
        progress.logged.retain(|&place| place > pulse.sequence);
        if pulse.complete {
            progress.rejected(pulse, id);
        }
        shared.changed.notify_all();
    }
}

impl Progress {
    /// Takes note of what the coordinator says it rejected.
    fn rejected(&mut self, pulse: Pulse, id: ClientId) {
        let mine = pulse.rejected.into_iter().filter(|(client, ..)| *client == id.0);
        let mine: Vec<(String, u64)> = mine.map(|(_, reason, count)| (reason, count)).collect();
        // Late and repeated updates are nobody's mistake.
        let harmless = [Reject::Stale.name(), Reject::Replayed.name()];
        let wrong = mine.iter().filter(|(reason, _)| !harmless.contains(&reason.as_str()));
        let wrong: u64 = wrong.map(|(_, count)| count).sum();
        let before = *self.refused_before.get_or_insert(wrong);
        if wrong >= before + TOO_MANY {
            let reasons: Vec<String> = mine.iter().map(|(why, count)| format!("{why}: {count}")).collect();
            let (count, reasons) = (wrong - before, reasons.join(", "));
            self.failure = Some(NatsError::Refused { count, reasons });
        }
        self.view.rejected = mine;
    }
}
