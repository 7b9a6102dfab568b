//! The server as a fold: the same log gives the same model, however often it is read and wherever it is
//! interrupted.

mod combine;

use std::sync::Arc;

use dpsgd::train::outer::OuterOptimizer;

use crate::name::ClientId;
use crate::reject::Reject;
use crate::state::{Standing, State};
use crate::terms::{Agreed, Combine, Rule};
use crate::wire::model::Model;
use crate::wire::state::StateRefused;
use crate::wire::update::Update;
use crate::wire::{self, model};

/// The coordinator of a federation.
///
/// # Guarantee
///
/// [`Coordinator::apply`] is a function of the state and of the entry: no clock, no randomness, no I/O. Each
/// (client, round) is folded at most once. Whatever the bytes are, the state keeps its size (but for a
/// bounded record for each client of the terms), w stays finite, and nothing panics.
#[derive(Clone, Debug)]
pub struct Coordinator {
    terms: Arc<Agreed>,
    state: State,
}

/// What became of an entry of the log.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Outcome {
    /// The state has read it before.
    AlreadyRead,
    /// It was not folded.
    Rejected(Reject),
    /// It was folded.
    Accepted {
        /// Its client.
        client: ClientId,
        /// Its round.
        round: u64,
        /// How many versions old the model was that it started from.
        staleness: u64,
        /// Whether it completed a step, so that there is a new version to publish.
        stepped: bool,
    },
}

/// An entry of the log is missing: it must not be passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the log goes on at entry {given} where the saved state expects {expected}: entries between them are \
     lost, and folding without them would lose updates for which clients have paid privacy"
)]
pub struct Gap {
    /// The entry that should come.
    pub expected: u64,
    /// The one that came.
    pub given: u64,
}

/// An initial model that cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("the initial model has {given} parameters, {finite}; the terms ask for {expected} finite ones")]
pub struct InitialRefused {
    given: usize,
    finite: &'static str,
    expected: usize,
}

impl Coordinator {
    /// Before the first entry, with the given global model as version 0.
    pub fn new(terms: Arc<Agreed>, weights: Vec<f32>) -> Result<Self, InitialRefused> {
        let finite = weights.iter().all(|w| w.is_finite());
        if weights.len() != terms.dimension() || !finite {
            return Err(InitialRefused {
                given: weights.len(),
                finite: if finite { "all finite" } else { "not all finite" },
                expected: terms.dimension(),
            });
        }
        let state = State {
            sequence: 0,
            version: 0,
            outer: terms.outer().fresh(weights.len()),
            weights,
            buffered: 0,
            etas: 0.0,
            buffer: Vec::new(),
            clients: Default::default(),
            strangers: 0,
            staleness: Default::default(),
        };
        Ok(Self { terms, state })
    }

    /// From what [`Coordinator::snapshot`] saved.
    pub fn restore(terms: Arc<Agreed>, saved: &[u8]) -> Result<Self, StateRefused> {
        let state = wire::state::decode(saved, &terms)?;
        Ok(Self { terms, state })
    }

    /// Everything, to be saved.
    pub fn snapshot(&self) -> Vec<u8> {
        wire::state::encode(&self.state, &self.terms)
    }

    /// The state.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The terms.
    pub fn terms(&self) -> &Arc<Agreed> {
        &self.terms
    }

    /// The global model.
    pub fn model(&self) -> Model {
        let State { version, sequence, ref weights, .. } = self.state;
        Model { run: self.terms.run(), version, sequence, weights: weights.clone() }
    }

    /// The global model as a frame.
    pub fn model_frame(&self) -> Vec<u8> {
        model::encode(self.terms.run(), self.state.version, self.state.sequence, &self.state.weights)
    }

    /// Reads the next entry of the log: bytes from a sender whose identity the transport vouches for.
    pub fn apply(&mut self, sequence: u64, sender: ClientId, bytes: &[u8]) -> Result<Outcome, Gap> {
        let expected = self.state.sequence + 1;
        if sequence < expected {
            return Ok(Outcome::AlreadyRead);
        }
        if sequence > expected {
            return Err(Gap { expected, given: sequence });
        }
        self.state.sequence = sequence;
        if !self.terms.has(sender) {
            self.state.strangers += 1;
            return Ok(Outcome::Rejected(Reject::Sender));
        }
        match self.accept(sender, bytes) {
            Ok(update) => Ok(self.fold(update)),
            Err(reason) => {
                let standing = self.state.clients.entry(sender).or_default();
                *standing.rejected.entry(reason).or_insert(0) += 1;
                Ok(Outcome::Rejected(reason))
            }
        }
    }

    /// Every check of an update, the cheap ones first.
    fn accept(&self, sender: ClientId, bytes: &[u8]) -> Result<Update, Reject> {
        let update = wire::update::decode(bytes, &self.terms)?;
        if update.client != sender {
            return Err(Reject::Sender);
        }
        if update.round >= self.terms.rounds {
            return Err(Reject::BeyondPlan);
        }
        if self.state.clients.get(&sender).is_some_and(|known| known.window.contains(update.round)) {
            return Err(Reject::Replayed);
        }
        if update.step.to_bits() != (self.terms.eta(update.round) as f32).to_bits() {
            return Err(Reject::Step);
        }
        let Some(staleness) = self.state.version.checked_sub(update.base) else {
            return Err(Reject::FromFuture);
        };
        if staleness > self.terms.max_staleness {
            return Err(Reject::Stale);
        }
        self.terms.honest().check(&update.values)?;
        Ok(update)
    }

    fn fold(&mut self, update: Update) -> Outcome {
        let Update { client, round, base, values, .. } = update;
        let staleness = self.state.version - base;
        let standing: &mut Standing = self.state.clients.entry(client).or_default();
        standing.window.insert(round);
        standing.accepted += 1;
        *self.state.staleness.entry(staleness).or_insert(0) += 1;
        let eta = self.terms.eta(round);
        let weight = self.terms.weight.weight(staleness);
        let stepped = match self.terms.rule {
            Rule::EachUpdate => {
                self.step(&values, eta, weight);
                true
            }
            Rule::Buffer { size, combine } => {
                self.keep(values, eta, weight, combine);
                let full = self.state.buffered >= size;
                if full {
                    self.flush(combine);
                }
                full
            }
        };
        Outcome::Accepted { client, round, staleness, stepped }
    }

    /// One step of w. A weight of 1 leaves every bit as a trainer would have it.
    fn step(&mut self, values: &[f32], eta: f64, weight: f64) {
        let State { weights, outer, version, .. } = &mut self.state;
        outer.steps += 1;
        let step = dpsgd::train::OuterStep { eta: eta * weight, steps: outer.steps };
        let mut states: Vec<&mut [f32]> = outer.vectors.iter_mut().map(|(_, v)| &mut v[..]).collect();
        self.terms.outer().apply_block(step, weights, values, &mut states);
        // Bounded updates can still add up to an overflow over a long run: a model that is not finite would
        // be refused by every client.
        for w in weights.iter_mut() {
            *w = if w.is_finite() { *w } else { 0.0 };
        }
        *version += 1;
    }

    fn keep(&mut self, mut values: Vec<f32>, eta: f64, weight: f64, combine: Combine) {
        let factor = (eta * weight) as f32;
        self.state.buffered += 1;
        self.state.etas += eta;
        match (combine, self.state.buffer.first_mut()) {
            (Combine::Mean, Some(sum)) => {
                for (sum, value) in sum.iter_mut().zip(&values) {
                    *sum += factor * value;
                }
            }
            _ => {
                values.iter_mut().for_each(|value| *value *= factor);
                self.state.buffer.push(values);
            }
        }
    }

    /// Makes a step of a full buffer: its direction is (1/K)·Σ η_k·c(τ_k)·u_k / η̄, its η is η̄ = (1/K)·Σ η_k.
    fn flush(&mut self, combine: Combine) {
        let buffer = std::mem::take(&mut self.state.buffer);
        let (count, eta) = (self.state.buffered, self.state.etas / self.state.buffered as f64);
        (self.state.buffered, self.state.etas) = (0, 0.0);
        let direction = combine::combine(combine, buffer, count, eta);
        self.step(&direction, eta, 1.0);
    }
}
