//! A simulated client.

use std::sync::Arc;

use dpsgd::train::{
    Charge, Model, Parked, Plan, Randomness, RoundError, Trainer, TrainerError, TrainerState, Unrecorded,
};

use super::outcome::ClientOutcome;
use crate::client::{Client, Unsendable, Verdict};

/// What a client of a simulation trains: its own samples, by its own plan.
pub struct Site<M> {
    /// The model on the samples of the client.
    pub model: Arc<M>,
    /// Its plan, with a mechanism of its own.
    pub plan: Arc<Plan>,
    /// The seed of its noise and of its batches.
    pub seed: u64,
}

/// A trainer with or without the room for rounds.
pub(super) enum Seated<M: Model> {
    Awake(Box<Trainer<M, Unrecorded>>),
    Parked(Box<Parked<M, Unrecorded>>),
}

/// A round whose beginning and end are known, and whose result is not.
pub(super) struct Work {
    /// The frame of the model that became w before the groups.
    pub(super) before: Option<Arc<[u8]>>,
    /// The frame of the model that arrived during the groups.
    pub(super) during: Option<Arc<[u8]>>,
    /// A crash: the round is charged, and that is all.
    pub(super) crashes: bool,
}

/// A simulated client: its trainer, its side of the protocol, and where it is in virtual time.
pub(super) struct Seat<M: Model> {
    pub(super) site: Site<M>,
    pub(super) client: Client,
    trainer: Option<Seated<M>>,
    parks: bool,
    resumes: u64,
    pub(super) work: Option<Work>,
    /// Whether that round is among those computed now.
    pub(super) chosen: bool,
    /// The frame of the last round.
    pub(super) frame: Option<(u64, Arc<[u8]>)>,
    pub(super) outcome: ClientOutcome,
    /// Seconds of a round.
    pub(super) pace: f64,
    /// When the groups of the round were begun.
    pub(super) began: f64,
    /// The broadcast that w comes from, and the one from which the round started; 0: none.
    pub(super) holds: usize,
    pub(super) from: usize,
    /// The frame of the latter, until it is w.
    pub(super) before: Option<Arc<[u8]>>,
    pub(super) restarts: u32,
    pub(super) rounds_begun: u64,
    /// Cut off until then.
    pub(super) cut_until: f64,
    pub(super) waiting: bool,
    attacks: bool,
}

/// Why a simulated client cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SeatError {
    /// Model, plan and state do not fit together.
    #[error(transparent)]
    Trainer(#[from] TrainerError),
    /// A round failed.
    #[error(transparent)]
    Round(#[from] RoundError<std::convert::Infallible>),
    /// The plan is not one of the terms.
    #[error(transparent)]
    Unsendable(#[from] Unsendable),
}

impl<M: Model> Seat<M> {
    pub(super) fn new(
        site: Site<M>,
        client: Client,
        weights: &[f32],
        (parks, attacks, pace): (bool, bool, f64),
    ) -> Result<Self, SeatError> {
        let ledger = Unrecorded::new(site.plan.clone());
        let randomness = Randomness::from_seed(site.seed, 0);
        let trainer = Trainer::new(ledger, site.model.clone(), weights.to_vec(), randomness)?;
        let mut seat = Self {
            site,
            client,
            trainer: None,
            parks,
            resumes: 0,
            work: None,
            chosen: false,
            frame: None,
            outcome: ClientOutcome::default(),
            pace,
            began: 0.0,
            holds: 0,
            from: 0,
            before: None,
            restarts: 0,
            rounds_begun: 0,
            cut_until: 0.0,
            waiting: false,
            attacks,
        };
        seat.seat(trainer);
        Ok(seat)
    }

    fn seat(&mut self, trainer: Trainer<M, Unrecorded>) {
        self.trainer = Some(match self.parks {
            true => Seated::Parked(Box::new(trainer.park())),
            false => Seated::Awake(Box::new(trainer)),
        });
    }

    fn wake(&mut self) -> Result<Trainer<M, Unrecorded>, SeatError> {
        match self.trainer.take() {
            Some(Seated::Awake(trainer)) => Ok(*trainer),
            Some(Seated::Parked(parked)) => Ok(parked.wake()?),
            // A trainer is missing only after an error, which ends the simulation.
            None => Err(TrainerError::State("the client has failed before".into()).into()),
        }
    }

    /// Rounds charged.
    pub(super) fn charged(&self) -> u64 {
        match &self.trainer {
            Some(Seated::Awake(trainer)) => trainer.ledger().spent(),
            Some(Seated::Parked(parked)) => parked.ledger().spent(),
            None => 0,
        }
    }

    fn state(&self) -> Option<&TrainerState> {
        match self.trainer.as_ref()? {
            Seated::Awake(trainer) => Some(trainer.state()),
            Seated::Parked(parked) => Some(parked.state()),
        }
    }

    /// Whether every round is spent, the one that waits for its computation included.
    pub(super) fn finished(&self) -> bool {
        let next = self.state().map_or(u64::MAX, |state| state.round) + u64::from(self.work.is_some());
        next >= self.site.plan.rounds()
    }

    /// The number of the round that is waiting.
    pub(super) fn next_round(&self) -> u64 {
        self.state().map_or(0, |state| state.round)
    }

    /// Computes the round that is waiting.
    pub(super) fn compute(&mut self) -> Result<(), SeatError> {
        let Some(work) = self.work.take() else { return Ok(()) };
        if work.crashes {
            return self.crash();
        }
        let mut trainer = self.wake()?;
        let interrupt = trainer.interrupt();
        let hand_over = |client: &mut Client, frame: Option<Arc<[u8]>>| -> Result<(), SeatError> {
            // A model that is refused or late changes nothing.
            if let Some(Ok(Verdict::Newest(model))) = frame.map(|frame| client.received(&frame)) {
                interrupt.replace(model.version, model.weights)?;
            }
            Ok(())
        };
        hand_over(&mut self.client, work.before)?;
        let begun = trainer.begin()?;
        hand_over(&mut self.client, work.during)?;
        let mut round = begun.finish();
        let opposite: Vec<f32>;
        if self.attacks {
            opposite = round.update.iter().map(|u| -u).collect();
            round.update = &opposite;
        }
        let number = round.round;
        let bytes = self.client.finished(&round, std::time::Duration::ZERO)?;
        self.frame = Some((number, bytes));
        self.seat(trainer);
        Ok(())
    }

    /// The process dies after the charge of a round: what it computed is lost, and a new process goes on with
    /// the next round that may happen, with fresh randomness.
    fn crash(&mut self) -> Result<(), SeatError> {
        let Some(state) = self.state().cloned() else { return Ok(()) };
        // The round that was charged last; rounds that an earlier crash passed over lie below it.
        let charged = state.round + 1;
        self.trainer = None;
        self.resumes += 1;
        let ledger = Unrecorded::at(self.site.plan.clone(), charged);
        let randomness = Randomness::from_seed(self.site.seed, self.resumes);
        let trainer = Trainer::resume(ledger, self.site.model.clone(), state, randomness)?;
        self.seat(trainer);
        Ok(())
    }
}
