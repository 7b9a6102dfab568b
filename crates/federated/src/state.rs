//! What the coordinator knows: all of it, so that nothing else has to be saved.

use std::collections::BTreeMap;

use dpsgd::train::OuterState;

use crate::name::ClientId;
use crate::reject::Reject;
use crate::window::Window;

/// The state of a coordinator after a prefix of the log.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// The last entry of the log that it has read; 0 before the first.
    pub sequence: u64,
    /// The steps that the global model has made.
    pub version: u64,
    /// w.
    pub weights: Vec<f32>,
    /// The server's optimizer.
    pub outer: OuterState,
    /// How many updates wait for their buffer to fill.
    pub buffered: u64,
    /// The sum of their η.
    pub etas: f64,
    /// Their η·c(τ)·Ū/m: the sum of all where a buffer takes means, one by one where it does not.
    pub buffer: Vec<Vec<f32>>,
    /// Each client that was heard of.
    pub clients: BTreeMap<ClientId, Standing>,
    /// Rejections of senders that are not in the terms.
    pub strangers: u64,
    /// How many accepted updates had which staleness; at most one entry for each that the terms allow.
    pub staleness: BTreeMap<u64, u64>,
}

/// What the coordinator knows of a client.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Standing {
    /// The rounds that were accepted.
    pub window: Window,
    /// How many there were.
    pub accepted: u64,
    /// How many updates were rejected, by reason.
    pub rejected: BTreeMap<Reject, u64>,
}

impl State {
    /// Updates accepted from all clients.
    pub fn accepted(&self) -> u64 {
        self.clients.values().map(|standing| standing.accepted).sum()
    }

    /// Updates rejected, by reason.
    pub fn rejected(&self) -> BTreeMap<Reject, u64> {
        let mut all = BTreeMap::new();
        for standing in self.clients.values() {
            for (reason, count) in &standing.rejected {
                *all.entry(*reason).or_insert(0) += count;
            }
        }
        if self.strangers > 0 {
            *all.entry(Reject::Sender).or_insert(0) += self.strangers;
        }
        all
    }

    /// The mean staleness of accepted updates.
    pub fn mean_staleness(&self) -> Option<f64> {
        let total: u64 = self.staleness.values().sum();
        let sum: f64 =
            self.staleness.iter().map(|(&staleness, &count)| staleness as f64 * count as f64).sum();
        (total > 0).then(|| sum / total as f64)
    }

    /// The least staleness that at least this share of the accepted updates does not exceed.
    pub fn staleness_quantile(&self, share: f64) -> Option<u64> {
        let total: u64 = self.staleness.values().sum();
        let wanted = (share * total as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        self.staleness.iter().find_map(|(&staleness, &count)| {
            seen += count;
            (seen >= wanted).then_some(staleness)
        })
    }
}
