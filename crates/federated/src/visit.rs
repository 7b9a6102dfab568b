//! A client that is called: a server sends the global model, the client performs some rounds and answers with
//! their updates.
//!
//! For transports that carry messages and keep no connection, such as Flower: nothing reaches the client between
//! its answer and the next call, so no model interrupts it. Updates stay in the outbox until a later call says
//! that the server has read them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use dpsgd::privacy::mechanism::Mechanism;
use dpsgd::report::run::Measurement;
use dpsgd::train::directory::LEDGER;
use dpsgd::train::{Model as Trained, Trainer, ledger::Ledger};
use dpsgd::{Error, Observer, Outcome, Outlook, Run, SavedRun, Settings};

use crate::admission::check_settings;
use crate::link::ClientLink;
use crate::name::ClientId;
use crate::outbox::Outbox;
use crate::participant::{Conduct, Participant};
use crate::terms::Agreed;
use crate::wire::model::{self, Model};

/// The folder of updates that the server has not read, in the directory of the run.
pub const OUTBOX: &str = "outbox";

/// An update that the server has not read: its round and its frame.
pub type Waiting = (u64, Arc<[u8]>);

/// One call of a client.
///
/// # Guarantee
///
/// A call brings a model, and the model changes w and nothing else: the plan, the noise and the ledger are the
/// client's own. Each round is charged before anything of it is computed; its update is in the outbox before
/// the call is answered, and is answered again as the same bytes. What leaves beside the updates is whether the
/// client has rounds left.
#[derive(Clone, Debug)]
pub struct Visit {
    terms: Arc<Agreed>,
    client: ClientId,
    model: Model,
    frame: Arc<[u8]>,
    directory: PathBuf,
}

fn refused(why: impl ToString) -> Error {
    Error::Refused(why.to_string())
}

impl Visit {
    /// A call with the frame of the global model, to the client whose run is, or will be, in this directory.
    pub fn new(terms: Arc<Agreed>, client: ClientId, frame: &[u8], directory: &Path) -> Result<Self, Error> {
        if !terms.has(client) {
            return Err(refused(format!("client = {client}: the terms have clients 1 to {}", terms.clients)));
        }
        let model = model::decode(frame, &terms).map_err(refused)?;
        Ok(Self { terms, client, model, frame: frame.into(), directory: directory.to_owned() })
    }

    /// What a new run starts from.
    pub fn weights(&self) -> &[f32] {
        &self.model.weights
    }

    /// Refuses settings whose updates the server would reject, before anything is spent on them.
    pub fn check(&self, settings: &Settings) -> Result<(), Error> {
        check_settings(settings, &self.terms)
    }

    /// Whether the directory holds a run that an earlier call began.
    pub fn begun(&self) -> bool {
        self.directory.join(LEDGER).is_file()
    }

    /// Whether that run has ended, so that only its updates are left to be sent.
    pub fn ended(&self) -> Result<bool, Error> {
        if !self.begun() {
            return Ok(false);
        }
        let saved = SavedRun::open(&self.directory)?;
        Ok(saved.ledger(&saved.settings()?)?.closed)
    }

    /// The server has read the updates of these rounds.
    pub fn acknowledged(&self, rounds: &[u64]) -> Result<(), Error> {
        // A run begins in an empty directory, without an outbox.
        if !self.begun() {
            return Ok(());
        }
        let outbox = self.outbox()?;
        rounds.iter().try_for_each(|&round| outbox.remove(round)).map_err(self.io())
    }

    /// The updates that the server has not read, by round.
    pub fn updates(&self) -> Result<Vec<Waiting>, Error> {
        self.outbox()?.updates().map_err(self.io())
    }

    /// Performs this many rounds from the newer of the global model and the run's own, and stops; a run that has no
    /// round left ends with its report. Where the rounds of an epoch share one draw (shuffling, allocation) it goes
    /// on to the end of the epoch, because a run cannot be resumed inside it. A pace is needed where the size of a
    /// batch is private.
    pub fn train<M: Trained>(
        &self,
        mut run: Run<M>,
        rounds: u64,
        pace: Option<Duration>,
        observer: &mut dyn Observer,
    ) -> Result<Outcome, Error> {
        let (terms, conduct) = (self.terms.clone(), Conduct { restarts: 0, pace });
        let folder = self.directory.join(OUTBOX);
        let trainer = run.trainer();
        let mut participant = Participant::new(terms, self.client, trainer, Kept, &folder, conduct)?;
        participant.receiver().received(&self.frame).map_err(refused)?;
        let mechanism = run.settings().mechanism.clone();
        let mut limited = Limited { observer, left: rounds, mechanism, resumable: true };
        run.train_by(&mut limited, &mut |trainer: &mut Trainer<M, Ledger>| participant.round(trainer))
    }

    fn outbox(&self) -> Result<Outbox, Error> {
        Outbox::open(&self.directory.join(OUTBOX)).map_err(self.io())
    }

    fn io(&self) -> impl Fn(std::io::Error) -> Error + '_ {
        |source| Error::Io { path: self.directory.join(OUTBOX), source }
    }
}

/// The link between calls: what is published stays in the outbox.
struct Kept;

#[derive(Debug, thiserror::Error)]
#[error("the update leaves with the answer to the call")]
struct Later;

impl ClientLink for Kept {
    type Error = Later;

    fn publish(&mut self, _update: &[u8]) -> Result<(), Later> {
        Err(Later)
    }

    fn newest_model(&mut self) -> Result<Option<Arc<[u8]>>, Later> {
        Ok(None)
    }
}

/// An observer that stops after this many rounds, where that loses none.
struct Limited<'a> {
    observer: &'a mut dyn Observer,
    left: u64,
    mechanism: Mechanism,
    resumable: bool,
}

impl Observer for Limited<'_> {
    fn warns(&mut self, warning: &str) {
        self.observer.warns(warning);
    }

    fn begins(&mut self, outlook: &Outlook<'_>) {
        self.observer.begins(outlook);
    }

    fn round(&mut self, next: u64) {
        self.left = self.left.saturating_sub(1);
        self.resumable = self.mechanism.resume_at(next) == next;
        self.observer.round(next);
    }

    fn measured(&mut self, measurement: &Measurement) {
        self.observer.measured(measurement);
    }

    fn wants_to_stop(&mut self) -> bool {
        self.observer.wants_to_stop() || (self.left == 0 && self.resumable)
    }

    fn wants_to_end(&mut self) -> bool {
        self.observer.wants_to_end()
    }

    fn ends(&mut self) {
        self.observer.ends();
    }
}
