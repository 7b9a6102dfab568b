//! The events of a federation, in the order of virtual time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;

use dpsgd::train::Model;
use rayon::prelude::*;

use super::chance::{About, Chance};
use super::conditions::Conditions;
use super::outcome::{Finished, Moment, Record};
use super::seat::{Seat, SeatError, Site, Work};
use crate::client::Client;
use crate::link::ServerLink;
use crate::memory::Memory;
use crate::name::ClientId;
use crate::server::{Server, ServerError};
use crate::terms::Agreed;

/// Clients beyond this number give up their room between rounds.
const AWAKE: usize = 64;
/// How many broadcasts may be on their way; older ones have arrived or are lost.
const ON_THEIR_WAY: usize = 256;
/// Seconds until an update is sent again, at first and at most, in rounds.
const RETRY: (f64, f64) = (1.0, 32.0);
/// Rounds that are computed at a time: enough for all threads, and not so many that updates pile up in memory.
const TOGETHER: usize = 64;
/// How many rounds a partition and a crash last, about.
const CUT_ROUNDS: f64 = 10.0;

/// Why a simulation ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimulationError {
    /// The server.
    #[error(transparent)]
    Server(#[from] ServerError<Infallible>),
    /// A client.
    #[error("client {client}: {source}")]
    Client {
        /// Which.
        client: ClientId,
        /// What happened.
        source: SeatError,
    },
    /// Fewer or more sites than clients in the terms.
    #[error("{given} sites for {expected} clients of the terms")]
    Sites {
        /// Sites.
        given: usize,
        /// Clients.
        expected: u64,
    },
}

/// A federation before its first event.
pub struct World<M: Model> {
    /// The terms.
    pub terms: Arc<Agreed>,
    /// What each client trains.
    pub sites: Vec<Site<M>>,
    /// Version 0 of the global model.
    pub weights: Vec<f32>,
    /// Speeds, delays, faults.
    pub conditions: Conditions,
    /// The seed of speeds, delays and faults.
    pub seed: u64,
    /// Whether to keep the log and every saved state.
    pub record: bool,
}

/// Nanoseconds.
type Time = u64;

fn time(seconds: f64) -> Time {
    (seconds * 1e9) as Time
}

fn seconds(time: Time) -> f64 {
    time as f64 * 1e-9
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A client is ready for its next round.
    Begin { seat: usize },
    /// The groups of a client's round are done, unless a model made it begin again.
    Finish { seat: usize },
    /// An update sets out, for the so-manieth time.
    Send { seat: usize, round: u64, attempt: u32 },
    /// An update reaches the log.
    Arrive { seat: usize, round: u64, attempt: u32 },
}

/// A model that was published.
struct Broadcast {
    number: usize,
    at: f64,
    frame: Arc<[u8]>,
}

/// An update that may still be sent or arrive.
struct Travelling {
    frame: Arc<[u8]>,
    /// Events that name it.
    events: u32,
    acknowledged: bool,
    arrived: bool,
}

struct Running<'w, M: Model> {
    chance: Chance,
    conditions: Conditions,
    terms: Arc<Agreed>,
    seats: Vec<Seat<M>>,
    memory: Memory,
    server: Option<Server<Memory>>,
    now: Time,
    /// By time, then by kind: what takes no time is over before a client begins its next round.
    events: BinaryHeap<Reverse<(Time, u8, u64, Event)>>,
    order: u64,
    broadcasts: VecDeque<Broadcast>,
    published: usize,
    travelling: BTreeMap<(usize, u64), Travelling>,
    /// Seats whose round is to be computed, in the order of its end.
    ready: VecDeque<usize>,
    waiting: Vec<usize>,
    repeated: u64,
    coordinator_crashes: u64,
    record: Option<Record>,
    watch: &'w mut dyn FnMut(&Moment<'_>),
}

impl<M: Model> World<M> {
    /// Runs until every client has spent its plan and every update has arrived.
    pub fn run(self, watch: &mut dyn FnMut(&Moment<'_>)) -> Result<Finished, SimulationError> {
        let expected = self.terms.clients;
        if self.sites.len() as u64 != expected {
            return Err(SimulationError::Sites { given: self.sites.len(), expected });
        }
        let (chance, conditions) = (Chance(self.seed), self.conditions);
        let parks = self.sites.len() > AWAKE;
        let mut seats = Vec::new();
        for (i, site) in self.sites.into_iter().enumerate() {
            let id = ClientId(i as u64 + 1);
            let factor = (conditions.spread * chance.normal(About::Speed, [id.0, 0, 0])).exp();
            let conduct = (parks, id.0 <= conditions.attackers, conditions.round_seconds * factor);
            let seat = Seat::new(site, Client::new(self.terms.clone(), id), &self.weights, conduct);
            seats.push(seat.map_err(|source| SimulationError::Client { client: id, source })?);
        }
        let memory = Memory::default();
        let weights = self.weights;
        let server =
            Server::open(memory.clone(), self.terms.clone(), || weights, conditions.save_every.max(1))?;
        let published = memory.models() as usize;
        let running = Running {
            chance,
            conditions,
            terms: self.terms,
            seats,
            memory,
            server: Some(server),
            now: 0,
            events: BinaryHeap::new(),
            order: 0,
            broadcasts: VecDeque::new(),
            // Everybody begins with version 0.
            published,
            travelling: BTreeMap::new(),
            ready: VecDeque::new(),
            waiting: Vec::new(),
            repeated: 0,
            coordinator_crashes: 0,
            record: self.record.then(Record::default),
            watch,
        };
        running.run()
    }
}

impl<M: Model> Running<'_, M> {
    fn run(mut self) -> Result<Finished, SimulationError> {
        for seat in 0..self.seats.len() {
            self.schedule(0, Event::Begin { seat });
        }
        while let Some(Reverse((at, _, _, event))) = self.events.pop() {
            self.now = at;
            match event {
                Event::Begin { seat } => self.begin(seat),
                Event::Finish { seat } => self.finish(seat)?,
                Event::Send { seat, round, attempt } => self.send(seat, round, attempt),
                Event::Arrive { seat, round, attempt } => self.arrive(seat, round, attempt)?,
            }
        }
        while let Some(&seat) = self.ready.front() {
            self.compute(seat)?;
        }
        self.publish(true)?;
        let now = seconds(self.now);
        let state = self.server.as_ref().map(|server| server.coordinator().state().clone());
        let clients = self.seats.iter().map(|seat| {
            let mut outcome = seat.outcome;
            outcome.charged = seat.charged();
            outcome
        });
        Ok(Finished {
            clients: clients.collect(),
            // The server is missing only while it restarts.
            state: state.ok_or(ServerError::Fenced)?,
            seconds: now,
            repeated: self.repeated,
            coordinator_crashes: self.coordinator_crashes,
            record: self.record,
        })
    }

    fn schedule(&mut self, at: Time, event: Event) {
        self.order += 1;
        let kind = match event {
            Event::Send { .. } => 0,
            Event::Arrive { .. } => 1,
            Event::Finish { .. } => 2,
            Event::Begin { .. } => 3,
        };
        self.events.push(Reverse((at, kind, self.order, event)));
    }

    fn begin(&mut self, seat: usize) {
        let now = seconds(self.now);
        let holds = self.seats[seat].holds;
        let newest = self.arrived(seat, now).filter(|number| *number > holds);
        let frame = newest.and_then(|number| self.frame(number));
        let chance = self.chance;
        let this = &mut self.seats[seat];
        if this.finished() {
            return;
        }
        let names = [seat as u64, this.rounds_begun, 0];
        if chance.happens(self.conditions.partition, About::Partition, names) && now >= this.cut_until {
            let rounds = CUT_ROUNDS * chance.unit(About::Downtime, names);
            this.cut_until = now + this.pace * rounds;
        }
        this.rounds_begun += 1;
        this.restarts = 0;
        this.began = now;
        (this.from, this.before) = (newest.unwrap_or(holds), frame);
        let end = self.now + time(this.pace).max(1);
        self.schedule(end, Event::Finish { seat });
    }

    /// The end of a round, as far as no model has made it begin again.
    fn finish(&mut self, seat: usize) -> Result<(), SimulationError> {
        let now = seconds(self.now);
        let (began, from) = (self.seats[seat].began, self.seats[seat].from);
        if self.seats[seat].restarts < self.conditions.restarts
            && let Some((at, number)) = self.first_arrival(seat, from, began, now)
        {
            let frame = self.frame(number);
            let this = &mut self.seats[seat];
            this.restarts += 1;
            this.outcome.restarts += 1;
            this.outcome.interrupts += 1;
            this.outcome.discarded += at - began;
            this.outcome.computing += at - began;
            (this.began, this.from, this.before) = (at, number, frame);
            let end = time(at + this.pace).max(self.now + 1);
            self.schedule(end, Event::Finish { seat });
            return Ok(());
        }
        let newest = self.arrived(seat, now).filter(|number| *number > from);
        let during = newest.and_then(|number| self.frame(number));
        // Its last round must be computed before the next one is known.
        if self.seats[seat].work.is_some() {
            self.compute(seat)?;
        }
        let names = [seat as u64, self.seats[seat].rounds_begun, 0];
        let crashes = self.chance.happens(self.conditions.crash, About::Crash, names);
        let rest = self.chance.unit(About::Downtime, names) * CUT_ROUNDS;
        let this = &mut self.seats[seat];
        this.outcome.computing += now - began;
        if crashes {
            this.outcome.crashes += 1;
            this.outcome.discarded += now - began;
            this.work = Some(Work { before: None, during: None, crashes });
            self.ready.push_back(seat);
            self.compute(seat)?;
            let pace = self.seats[seat].pace;
            self.schedule(self.now + time(rest * pace), Event::Begin { seat });
            return Ok(());
        }
        this.outcome.interrupts += u64::from(newest.is_some());
        this.holds = newest.unwrap_or(from);
        this.work = Some(Work { before: this.before.take(), during, crashes });
        let round = this.next_round();
        this.outcome.sent += 1;
        this.outcome.left = round + 1;
        self.ready.push_back(seat);
        self.schedule_send(seat, round, 0, self.now);
        match self.conditions.synchronous {
            true => {
                self.seats[seat].waiting = true;
                self.waiting.push(seat);
            }
            false => self.schedule(self.now, Event::Begin { seat }),
        }
        Ok(())
    }

    fn schedule_send(&mut self, seat: usize, round: u64, attempt: u32, at: Time) {
        // The frame is there when the first event that needs it comes: see `arrive`.
        let update = self.travelling.entry((seat, round)).or_insert_with(|| Travelling {
            frame: Arc::from([]),
            events: 0,
            acknowledged: false,
            arrived: false,
        });
        update.events += 1;
        self.schedule(at, Event::Send { seat, round, attempt });
    }

    fn send(&mut self, seat: usize, round: u64, attempt: u32) {
        let Conditions { delay, lost, repeated, round_seconds, .. } = self.conditions;
        let chance = self.chance;
        let names = |copy: u64| [seat as u64, round, 2 * u64::from(attempt) + copy];
        let Some(update) = self.travelling.get_mut(&(seat, round)) else { return };
        update.events -= 1;
        if update.acknowledged {
            self.settle(seat, round);
            return;
        }
        let cut = seconds(self.now) < self.seats[seat].cut_until;
        let copies = 1 + u64::from(chance.happens(repeated, About::Repeated, names(0)));
        for copy in 0..copies {
            if cut || chance.happens(lost, About::LostUpdate, names(copy)) {
                continue;
            }
            if let Some(update) = self.travelling.get_mut(&(seat, round)) {
                update.events += 1;
            }
            let at = self.now + time(delay.draw(chance, About::Uplink, names(copy)));
            self.schedule(at, Event::Arrive { seat, round, attempt: 2 * attempt + copy as u32 });
        }
        let faulty = lost > 0.0 || self.conditions.partition > 0.0;
        if faulty {
            let wait = (RETRY.0 * 2f64.powi(attempt.min(20) as i32)).min(RETRY.1) * round_seconds;
            // Longer than messages usually travel, or everything would be sent twice.
            let wait = wait + 2.0 * delay.draw(chance, About::Uplink, names(0));
            self.schedule_send(seat, round, attempt + 1, self.now + time(wait));
        }
    }

    fn arrive(&mut self, seat: usize, round: u64, attempt: u32) -> Result<(), SimulationError> {
        let computed = |travelling: &BTreeMap<(usize, u64), Travelling>| {
            travelling.get(&(seat, round)).is_some_and(|update| !update.frame.is_empty())
        };
        if !computed(&self.travelling) {
            self.compute(seat)?;
        }
        let names = [seat as u64, round, u64::from(attempt)];
        let receipt = !self.chance.happens(self.conditions.lost, About::LostReceipt, names);
        let Some(update) = self.travelling.get_mut(&(seat, round)) else { return Ok(()) };
        update.events -= 1;
        let sender = ClientId(seat as u64 + 1);
        self.repeated += u64::from(update.arrived);
        update.arrived = true;
        if receipt {
            update.acknowledged = true;
            self.seats[seat].client.acknowledged(round);
        }
        let frame = update.frame.clone();
        self.settle(seat, round);
        let sequence = self.memory.append(sender, frame.clone());
        if let Some(record) = &mut self.record {
            record.log.push((sender, frame));
        }
        self.fold(sequence)
    }

    /// Forgets an update that nobody will name again.
    fn settle(&mut self, seat: usize, round: u64) {
        if self.travelling.get(&(seat, round)).is_some_and(|update| update.events == 0) {
            self.travelling.remove(&(seat, round));
        }
    }

    fn fold(&mut self, sequence: u64) -> Result<(), SimulationError> {
        let names = [sequence, 0, 0];
        let dies = self.chance.happens(self.conditions.coordinator_crash, About::CoordinatorCrash, names);
        let Some(server) = &mut self.server else { return Ok(()) };
        server.read(|_, _, _| {})?;
        if dies {
            // What it has read since it saved is read again.
            self.coordinator_crashes += 1;
            self.server = None;
            let (memory, every) = (self.memory.clone(), self.conditions.save_every.max(1));
            let mut server = Server::open(memory, self.terms.clone(), Vec::new, every)?;
            server.read(|_, _, _| {})?;
            self.server = Some(server);
        }
        self.publish(false)?;
        if let Some(server) = &self.server {
            let state = server.coordinator().state();
            (self.watch)(&Moment { seconds: seconds(self.now), state });
        }
        Ok(())
    }

    /// Notes a model that the server has published, and wakes clients that wait for it.
    fn publish(&mut self, end: bool) -> Result<(), SimulationError> {
        let Some(server) = &mut self.server else { return Ok(()) };
        if end {
            server.save()?;
        }
        let published = self.memory.models();
        if published == self.published as u64 {
            return Ok(());
        }
        self.published = published as usize;
        if let Some(record) = &mut self.record
            && let Ok(Some((_, saved))) = self.memory.clone().load()
        {
            record.saved.push(saved);
        }
        let Some(frame) = self.memory.model() else { return Ok(()) };
        let (number, at) = (self.published, seconds(self.now));
        self.broadcasts.push_back(Broadcast { number, at, frame });
        if self.broadcasts.len() > ON_THEIR_WAY {
            self.broadcasts.pop_front();
        }
        for seat in std::mem::take(&mut self.waiting) {
            self.seats[seat].waiting = false;
            let delay =
                self.conditions.delay.draw(self.chance, About::Downlink, [seat as u64, number as u64, 0]);
            self.schedule(self.now + time(delay), Event::Begin { seat });
        }
        Ok(())
    }

    /// When a broadcast reaches a client, if it does.
    fn arrival(&self, seat: usize, broadcast: &Broadcast) -> Option<f64> {
        let names = [seat as u64, broadcast.number as u64, 0];
        let at = broadcast.at + self.conditions.delay.draw(self.chance, About::Downlink, names);
        let lost = self.chance.happens(self.conditions.lost, About::LostModel, names);
        (!lost && at >= self.seats[seat].cut_until).then_some(at)
    }

    /// The newest broadcast that has reached a client.
    fn arrived(&self, seat: usize, by: f64) -> Option<usize> {
        let reached = |broadcast: &&Broadcast| self.arrival(seat, broadcast).is_some_and(|at| at <= by);
        self.broadcasts.iter().rev().find(reached).map(|broadcast| broadcast.number)
    }

    /// The first moment within (after, by) at which a newer broadcast reaches a client, and the newest that
    /// has by then.
    fn first_arrival(&self, seat: usize, newer_than: usize, after: f64, by: f64) -> Option<(f64, usize)> {
        let newer = self.broadcasts.iter().rev().take_while(|broadcast| broadcast.number > newer_than);
        let at = newer
            .filter_map(|broadcast| self.arrival(seat, broadcast))
            .filter(|at| *at > after && *at < by)
            .min_by(f64::total_cmp)?;
        Some((at, self.arrived(seat, at)?))
    }

    fn frame(&self, number: usize) -> Option<Arc<[u8]>> {
        let found = self.broadcasts.iter().rev().find(|broadcast| broadcast.number == number);
        found.map(|broadcast| broadcast.frame.clone())
    }

    /// Computes the round of a seat, and others that are ready, on all threads.
    fn compute(&mut self, seat: usize) -> Result<(), SimulationError> {
        let Some(place) = self.ready.iter().position(|ready| *ready == seat) else { return Ok(()) };
        self.ready.remove(place);
        let more = self.ready.len().min(TOGETHER - 1);
        let mut chosen: Vec<usize> = self.ready.drain(..more).collect();
        chosen.push(seat);
        let failed = |seat: usize, source: SeatError| SimulationError::Client {
            client: ClientId(seat as u64 + 1),
            source,
        };
        if let [seat] = chosen[..] {
            self.seats[seat].compute().map_err(|source| failed(seat, source))?;
        } else {
            chosen.iter().for_each(|&seat| self.seats[seat].chosen = true);
            let seats = self.seats.par_iter_mut().enumerate().filter(|(_, seat)| seat.chosen);
            seats
                .map(|(i, seat)| seat.compute().map_err(|source| failed(i, source)))
                .collect::<Result<(), _>>()?;
        }
        for seat in chosen {
            self.seats[seat].chosen = false;
            if let Some((round, frame)) = self.seats[seat].frame.take()
                && let Some(update) = self.travelling.get_mut(&(seat, round))
            {
                update.frame = frame;
            }
        }
        Ok(())
    }
}
