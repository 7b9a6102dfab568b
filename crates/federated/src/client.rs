//! The client's side of the protocol, without I/O and without a clock of its own: which models it takes, what
//! it has to send, and what it sends again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use dpsgd::train::Round;

use crate::name::ClientId;
use crate::terms::Agreed;
use crate::wire::model::{Model, ModelRefused};
use crate::wire::{self, update};

/// How long an update waits for its acknowledgement before it is sent again, at first.
const FIRST_WAIT: Duration = Duration::from_secs(2);
/// The longest wait.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// A client's state beside its trainer.
///
/// # Guarantee
///
/// What leaves is the run, the client's number, the number of the round, the version it started from, η and
/// the noised update Ū/m: nothing else. An update that is sent again is the same bytes, so a repeated sending
/// releases nothing new.
#[derive(Clone, Debug)]
pub struct Client {
    terms: Arc<Agreed>,
    id: ClientId,
    newest: u64,
    outbox: VecDeque<Outgoing>,
    refused: u64,
}

/// An update that has not been acknowledged.
#[derive(Clone, Debug, PartialEq)]
pub struct Outgoing {
    /// Its round.
    pub round: u64,
    /// Its frame.
    pub bytes: Arc<[u8]>,
    /// When to send it (again), on the caller's clock.
    pub due: Duration,
    wait: Duration,
}

/// What a client makes of a model it was sent.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Verdict {
    /// It is newer than all before: hand it to the trainer.
    Newest(Model),
    /// It is not: late, repeated or out of order, and ignored.
    Outdated {
        /// The newest version so far.
        newest: u64,
    },
}

/// Why a round cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Unsendable {
    /// The trainer took another step size than the terms.
    #[error("round {round} was trained with η = {given}, and the terms say {expected}: take the terms' step")]
    Step {
        /// The round.
        round: u64,
        /// The trainer's.
        given: f64,
        /// That of the terms.
        expected: f64,
    },
    /// The trainer's model is of another size.
    #[error("the update has {given} coordinates, and the terms say {expected}")]
    Dimension {
        /// The trainer's.
        given: usize,
        /// That of the terms.
        expected: usize,
    },
    /// The round is beyond the terms.
    #[error("round {round} is beyond the {rounds} rounds of the terms")]
    BeyondPlan {
        /// The round.
        round: u64,
        /// Those of the terms.
        rounds: u64,
    },
}

impl Client {
    /// A client that has heard of nothing yet; w is version 0 of the model.
    pub fn new(terms: Arc<Agreed>, id: ClientId) -> Self {
        Self { terms, id, newest: 0, outbox: VecDeque::new(), refused: 0 }
    }

    /// A client that resumes from a model of this version with these updates still to be acknowledged, by
    /// round and frame.
    pub fn resume(
        terms: Arc<Agreed>,
        id: ClientId,
        version: u64,
        outbox: impl IntoIterator<Item = (u64, Arc<[u8]>)>,
    ) -> Self {
        let outgoing = |(round, bytes)| Outgoing { round, bytes, due: Duration::ZERO, wait: FIRST_WAIT };
        let outbox = outbox.into_iter().map(outgoing).collect();
        Self { newest: version, outbox, ..Self::new(terms, id) }
    }

    /// Its number.
    pub fn id(&self) -> ClientId {
        self.id
    }

    /// The terms.
    pub fn terms(&self) -> &Arc<Agreed> {
        &self.terms
    }

    /// The newest version it has accepted.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    /// How many models it has refused.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Looks at a frame from the server.
    pub fn received(&mut self, frame: &[u8]) -> Result<Verdict, ModelRefused> {
        match wire::model::decode(frame, &self.terms) {
            Ok(model) if model.version <= self.newest => Ok(Verdict::Outdated { newest: self.newest }),
            Ok(model) => {
                self.newest = model.version;
                Ok(Verdict::Newest(model))
            }
            Err(why) => {
                self.refused += 1;
                Err(why)
            }
        }
    }

    /// Puts the update of a finished round into the outbox.
    pub fn finished(&mut self, round: &Round<'_>, now: Duration) -> Result<Arc<[u8]>, Unsendable> {
        let (number, given) = (round.round, round.eta);
        let expected = self.terms.eta(number);
        if number >= self.terms.rounds {
            return Err(Unsendable::BeyondPlan { round: number, rounds: self.terms.rounds });
        }
        if given.to_bits() != expected.to_bits() {
            return Err(Unsendable::Step { round: number, given, expected });
        }
        let (given, expected) = (round.update.len(), self.terms.dimension());
        if given != expected {
            return Err(Unsendable::Dimension { given, expected });
        }
        let names = (self.id, number, round.base);
        let bytes: Arc<[u8]> = update::encode(self.terms.run(), names, round.eta as f32, round.update).into();
        self.outbox.push_back(Outgoing { round: number, bytes: bytes.clone(), due: now, wait: FIRST_WAIT });
        Ok(bytes)
    }

    /// The log has the update of this round.
    pub fn acknowledged(&mut self, round: u64) {
        self.outbox.retain(|outgoing| outgoing.round != round);
    }

    /// The first update that is to be sent by now. It becomes due again later, unless it is acknowledged.
    pub fn due(&mut self, now: Duration) -> Option<&Outgoing> {
        let outgoing = self.outbox.iter_mut().find(|outgoing| outgoing.due <= now)?;
        outgoing.due = now + outgoing.wait;
        outgoing.wait = (2 * outgoing.wait).min(LONGEST_WAIT);
        Some(outgoing)
    }

    /// When the next update is due.
    pub fn next_due(&self) -> Option<Duration> {
        self.outbox.iter().map(|outgoing| outgoing.due).min()
    }

    /// Everything that is not acknowledged.
    pub fn outbox(&self) -> impl Iterator<Item = &Outgoing> {
        self.outbox.iter()
    }
}
