//! The interrupt service routine of Algorithm 1: a newly received global model replaces w.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::TrainerError;

/// A handle through which any thread can hand the trainer a new global model at any moment.
///
/// Models are numbered by their sender, and the newest one wins: a model whose version is not above all that
/// were handed over before it is ignored, because networks deliver late and twice. The initial w has the
/// version of the state it came with, 0 in a new run.
///
/// A received model takes effect at the next of two moments: before the groups of a round are computed, or
/// before the round's noised update is subtracted. So a model that arrives while the groups are computed
/// becomes w ← ŵ − η·Ū/m at the end of that round, unless the groups are begun again
/// ([`Trainer::restart_up_to`](super::Trainer::restart_up_to)). The state of the outer optimizer stays.
///
/// # Guarantee
///
/// The analysis lets w be anything that an observer of the updates knows, and a received model is that. But
/// **all groups of a round start from the same w**: which groups had already begun when a model arrives
/// depends on how long each took to compute, and so on the data. A sum over groups that started from
/// different models would leak those times, and the analysis says nothing about it.
#[derive(Clone, Debug)]
pub struct Interrupt {
    slot: Arc<Mutex<Slot>>,
    dimension: usize,
}

/// What became of a model that was handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Received {
    /// It is the newest, and becomes w.
    Newest,
    /// It was ignored: a model of this version, or a newer one, is there already.
    Outdated {
        /// The newest version so far.
        newest: u64,
    },
}

#[derive(Debug)]
struct Slot {
    /// The newest version handed over.
    newest: u64,
    /// The model of that version, until the trainer takes it.
    pending: Option<Vec<f32>>,
}

impl Interrupt {
    pub(crate) fn new(dimension: usize, version: u64) -> Self {
        Self { slot: Arc::new(Mutex::new(Slot { newest: version, pending: None })), dimension }
    }

    /// Hands over the global model of a version; refuses one of the wrong length or with values not finite.
    pub fn replace(&self, version: u64, weights: Vec<f32>) -> Result<Received, TrainerError> {
        check_weights("the received model", &weights, self.dimension)?;
        let mut slot = self.slot();
        if version <= slot.newest {
            return Ok(Received::Outdated { newest: slot.newest });
        }
        *slot = Slot { newest: version, pending: Some(weights) };
        Ok(Received::Newest)
    }

    /// Whether there is a model that has not been used yet.
    pub(crate) fn has_arrived(&self) -> bool {
        self.slot().pending.is_some()
    }

    /// The model that has not been used yet, and its version.
    pub(crate) fn take(&self) -> Option<(u64, Vec<f32>)> {
        let mut slot = self.slot();
        let newest = slot.newest;
        slot.pending.take().map(|weights| (newest, weights))
    }

    /// A poisoned lock is harmless: the slot is replaced as a whole.
    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn check_weights(
    what: &'static str,
    weights: &[f32],
    dimension: usize,
) -> Result<(), TrainerError> {
    if weights.len() != dimension {
        return Err(TrainerError::Dimension { what, given: weights.len(), expected: dimension });
    }
    if !weights.iter().all(|w| w.is_finite()) {
        return Err(TrainerError::NotFinite { what });
    }
    Ok(())
}
