//! A client as it runs at a site: the production trainer, its ledger and its run directory, with the
//! interrupt, an outbox on the disk, and a pace that does not follow the data.
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use dpsgd_federated::{Agreed, ClientId, Memory, participant::*};
//! # fn join(terms: Arc<Agreed>, run: dpsgd::Run<dpsgd::train::Native>) -> Result<(), dpsgd::Error> {
//! let link = Memory::default().client(ClientId(1));
//! let mut run = run;
//! let outbox = run.path().join("outbox");
//! let mut participant = Participant::new(terms, ClientId(1), run.trainer(), link, &outbox, Conduct::default())?;
//! // A thread of the transport hands over models, also during a round.
//! let receiver = participant.receiver();
//! run.train_by(&mut (), &mut |trainer| participant.round(trainer))?;
//! # Ok(())
//! # }
//! ```

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dpsgd::privacy::mechanism::Phase;
use dpsgd::train::{Charge, Interrupt, Model, RoundError, Trainer};
use dpsgd::{Done, Error};

use crate::client::{Client, Verdict};
use crate::link::ClientLink;
use crate::name::ClientId;
use crate::outbox::Outbox;
use crate::terms::Agreed;
use crate::wire::model::ModelRefused;

/// How a client goes about its rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conduct {
    /// How often a new model may begin a round again; 0: a round is finished first.
    pub restarts: u32,
    /// Each round takes exactly this long, from its beginning to its update's leaving; one that needs more takes
    /// two or more times as long. Needed where the size of a batch is private.
    pub pace: Option<Duration>,
}

/// What a participant has measured; for its own screen, never sent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// Rounds whose update is in the outbox or beyond.
    pub rounds: u64,
    /// Updates that the log has.
    pub sent: u64,
    /// Models that replaced w.
    pub models: u64,
    /// Rounds that were begun again.
    pub restarts: u64,
    /// Time spent on groups that were given up.
    pub discarded: Duration,
    /// Time spent on rounds.
    pub computing: Duration,
    /// Rounds that took longer than the pace.
    pub late: u64,
}

/// A client at its site.
///
/// # Guarantee
///
/// Each round is charged to the client's own ledger before anything of it is computed, and its update is in
/// the outbox before it is sent. A model from the server changes w and nothing else: the plan, the noise and
/// the ledger are the client's own. Where the size of a batch is private, rounds begin and leave at fixed
/// moments. All that a round longer than the pace tells is how many slots it took.
pub struct Participant<L: ClientLink> {
    client: Arc<Mutex<Client>>,
    interrupt: Interrupt,
    link: L,
    outbox: Outbox,
    conduct: Conduct,
    began: Instant,
    measured: Measured,
}

/// Hands models to a participant, from any thread and at any moment.
#[derive(Clone, Debug)]
pub struct Receiver {
    client: Arc<Mutex<Client>>,
    interrupt: Interrupt,
}

/// How long to wait for the end of a slot of length `pace`, and whether it is a later slot than the first.
///
/// # Guarantee
/// What has passed and the wait are a whole number of slots together: who sees the end of it learns how many there
/// were, and not how long the work took.
fn until_the_slot_ends(passed: Duration, pace: Duration) -> (Duration, bool) {
    let slots = passed.as_nanos().div_ceil(pace.as_nanos().max(1)).max(1);
    let end = slots.saturating_mul(pace.as_nanos());
    let rest = u64::try_from(end.saturating_sub(passed.as_nanos())).unwrap_or(u64::MAX);
    (Duration::from_nanos(rest), slots > 1)
}

fn lock(client: &Mutex<Client>) -> MutexGuard<'_, Client> {
    // A poisoned lock is harmless: the outbox is on the disk and the newest version only rises.
    client.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Receiver {
    /// The newest version that was accepted.
    pub fn newest(&self) -> u64 {
        lock(&self.client).newest()
    }

    /// Hands over the frame of a model; whether it will replace w.
    pub fn received(&self, frame: &[u8]) -> Result<bool, ModelRefused> {
        let mut client = lock(&self.client);
        match client.received(frame)? {
            // The frame was checked for length and finiteness, so the trainer takes it.
            Verdict::Newest(model) => Ok(self.interrupt.replace(model.version, model.weights).is_ok()),
            Verdict::Outdated { .. } => Ok(false),
        }
    }
}

impl<L: ClientLink> Participant<L> {
    /// A client with its trainer; updates that an earlier process left in the outbox are sent first.
    pub fn new<M: Model, C: Charge>(
        terms: Arc<Agreed>,
        id: ClientId,
        trainer: &mut Trainer<M, C>,
        link: L,
        outbox: &Path,
        conduct: Conduct,
    ) -> Result<Self, Error> {
        let plan = trainer.plan();
        let random = plan.mechanism().phases().iter().any(Phase::has_private_size);
        if random && conduct.pace.is_none() {
            return Err(Error::Refused(
                "pace: where the size of a batch is private (poisson, allocate, filter), rounds must leave at \
                 a fixed pace, or the moment of an update would tell how large its batch was; give the \
                 seconds of a round, enough for a large batch"
                    .into(),
            ));
        }
        if trainer.model().dimension() != terms.dimension() {
            return Err(Error::Refused(format!(
                "the model has {} parameters, the terms of the federation say {}",
                trainer.model().dimension(),
                terms.dimension
            )));
        }
        trainer.restart_up_to(conduct.restarts)?;
        let io = |source| Error::Io { path: outbox.to_owned(), source };
        let kept = Outbox::open(outbox).map_err(io)?;
        let left = kept.updates().map_err(io)?;
        let client = Client::resume(terms, id, trainer.state().version, left);
        Ok(Self {
            client: Arc::new(Mutex::new(client)),
            interrupt: trainer.interrupt(),
            link,
            outbox: kept,
            conduct,
            began: Instant::now(),
            measured: Measured::default(),
        })
    }

    /// A handle for the thread of the transport.
    pub fn receiver(&self) -> Receiver {
        Receiver { client: self.client.clone(), interrupt: self.interrupt.clone() }
    }

    /// What was measured so far.
    pub fn measured(&self) -> Measured {
        self.measured
    }

    /// The client's state.
    pub fn client(&self) -> MutexGuard<'_, Client> {
        lock(&self.client)
    }

    /// The link.
    pub fn link(&mut self) -> &mut L {
        &mut self.link
    }

    /// One round: newest model, groups, the rest of the pace, noise, outbox, link.
    pub fn round<M: Model, C: Charge>(&mut self, trainer: &mut Trainer<M, C>) -> Result<Done, Error>
    where
        Error: From<RoundError<C::Error>>,
    {
        self.poll();
        let slot = Instant::now();
        let before = trainer.state().version;
        let begun = trainer.begin()?;
        if let Some(pace) = self.conduct.pace {
            let (rest, late) = until_the_slot_ends(slot.elapsed(), pace);
            self.measured.late += u64::from(late);
            std::thread::sleep(rest);
        }
        let round = begun.finish();
        let done = Done::of(&round);
        let measured = &mut self.measured;
        measured.rounds += 1;
        measured.models += u64::from(round.applied_to != before);
        measured.restarts += u64::from(round.restarts);
        measured.discarded += round.discarded;
        measured.computing += round.wall;
        let now = self.began.elapsed();
        let bytes = lock(&self.client)
            .finished(&round, now)
            .map_err(|unsendable| Error::Refused(unsendable.to_string()))?;
        let kept = self.outbox.put(round.round, &bytes);
        kept.map_err(|source| Error::Io { path: "outbox".into(), source })?;
        self.flush()?;
        Ok(done)
    }

    /// Takes a model that the link holds ready.
    fn poll(&mut self) {
        // A link that fails now is noticed when something is to be sent.
        if let Ok(Some(frame)) = self.link.newest_model() {
            // What is refused is counted by the client; w stays as it is.
            let _ = self.receiver().received(&frame);
        }
    }

    /// Sends what is due. A link that fails leaves the rest in the outbox, to be sent later.
    pub fn flush(&mut self) -> Result<(), Error> {
        loop {
            let now = self.began.elapsed();
            let due = lock(&self.client).due(now).cloned();
            let Some(outgoing) = due else { return Ok(()) };
            if self.link.publish(&outgoing.bytes).is_err() {
                return Ok(());
            }
            lock(&self.client).acknowledged(outgoing.round);
            let gone = self.outbox.remove(outgoing.round);
            gone.map_err(|source| Error::Io { path: "outbox".into(), source })?;
            self.measured.sent += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wait_ends_with_a_slot() {
        let pace = Duration::from_millis(7);
        for micros in [0, 1, 6_999, 7_000, 7_001, 13_999, 14_000, 123_456_789] {
            let passed = Duration::from_micros(micros);
            let (rest, late) = until_the_slot_ends(passed, pace);
            let all = (passed + rest).as_nanos();
            assert!(rest < pace || passed.is_zero(), "{micros}");
            assert_eq!((all % pace.as_nanos(), late), (0, passed > pace), "{micros}");
        }
    }
}
