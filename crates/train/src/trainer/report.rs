//! What a round reports: what may leave and, kept apart from it, what may not.

use std::time::Duration;

use crate::clip::Counts;

/// One performed round, as an observer of the updates may see it. Covered by the guarantee.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Round<'a> {
    /// The round of the run, from 0.
    pub round: u64,
    /// The epoch of the run, from 0.
    pub epoch: u64,
    /// Whether it is the last round of its epoch.
    pub ends_epoch: bool,
    /// The version of the received model from which all groups of the round started (with the local updates
    /// since); see [`Interrupt`](super::Interrupt).
    pub base: u64,
    /// The version of the model that the update was applied to: another one if it arrived during the round.
    pub applied_to: u64,
    /// η.
    pub eta: f64,
    /// C.
    pub bound: f64,
    /// Ū/m, to be sent to the server.
    pub update: &'a [f32],
    /// How long it took.
    pub wall: Duration,
    /// How often a new model made it begin again.
    pub restarts: u32,
    /// How much of that time went into groups that were given up.
    pub discarded: Duration,
}

/// Figures **computed from private data and not covered by the guarantee**: for the owner of the data
/// only, on explicit request, and never to be sent with the updates.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Diagnostics {
    /// Rounds summed up here.
    pub rounds: u64,
    /// Groups, how many of them were clipped and how many were not finite.
    pub counts: Counts,
    /// Σ over groups of the mean training loss, groups that are not finite left out.
    pub losses: f64,
    /// Groups in that sum.
    pub losses_of: u64,
    /// Samples whose gradients were taken.
    pub samples: u64,
}

impl Diagnostics {
    /// The share of groups that were scaled down.
    pub fn clipped_share(&self) -> Option<f64> {
        (self.counts.groups > 0).then(|| self.counts.clipped as f64 / self.counts.groups as f64)
    }

    /// The mean training loss.
    pub fn mean_loss(&self) -> Option<f64> {
        (self.losses_of > 0).then(|| self.losses / self.losses_of as f64)
    }
}
