//! What a simulation found.

use std::sync::Arc;

use crate::name::ClientId;
use crate::state::State;

/// A finished simulation.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The coordinator at the end.
    pub state: State,
    /// Each client, in order.
    pub clients: Vec<ClientOutcome>,
    /// The virtual time at the end.
    pub seconds: f64,
    /// Entries of the log beyond the first of each update.
    pub repeated: u64,
    /// How often the coordinator was killed.
    pub coordinator_crashes: u64,
    /// The log and every saved state, if they were asked for.
    pub record: Option<Record>,
}

/// Everything that happened to the coordinator.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// The log: sender and frame.
    pub log: Vec<(ClientId, Arc<[u8]>)>,
    /// Each state that was saved.
    pub saved: Vec<Vec<u8>>,
}

/// What became of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClientOutcome {
    /// Rounds charged to its ledger.
    pub charged: u64,
    /// Updates that left, each counted once.
    pub sent: u64,
    /// One past the last round whose update left.
    pub left: u64,
    /// Models that arrived while a round was computed.
    pub interrupts: u64,
    /// Rounds begun again.
    pub restarts: u64,
    /// Virtual seconds of computing that were thrown away: restarted and crashed rounds.
    pub discarded: f64,
    /// Virtual seconds of computing.
    pub computing: f64,
    /// How often it crashed.
    pub crashes: u64,
}

/// A moment of the simulation, for whoever watches.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// The virtual time.
    pub seconds: f64,
    /// The coordinator.
    pub state: &'a State,
}
