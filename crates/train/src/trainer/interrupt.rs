//! The interrupt service routine of Algorithm 1: a newly received global model replaces w.

use std::sync::{Arc, Mutex, PoisonError};

use crate::error::TrainerError;

/// A handle through which any thread can hand the trainer a new global model at any moment.
///
/// The newest model handed over wins. It takes effect at the next of two moments: before the
/// groups of a round are computed, or before the round's noised update is subtracted. So all
/// groups of a round start from the same w, and a model that arrives while they are computed
/// becomes w ← ŵ − η·Ū/m at the end of that round. The state of the outer optimizer stays.
///
/// # Guarantee
///
/// The guarantee does not depend on it: the analysis lets w be anything an observer of the
/// updates knows, and a received model is that.
#[derive(Clone, Debug)]
pub struct Interrupt {
    received: Arc<Mutex<Option<Vec<f32>>>>,
    dimension: usize,
}

impl Interrupt {
    pub(crate) fn new(dimension: usize) -> Self {
        Self { received: Arc::default(), dimension }
    }

    /// Hands over a new global model; refuses one of the wrong length or with values not finite.
    pub fn replace(&self, weights: Vec<f32>) -> Result<(), TrainerError> {
        check_weights("the received model", &weights, self.dimension)?;
        // A poisoned lock is harmless: the value is replaced whole.
        *self.received.lock().unwrap_or_else(PoisonError::into_inner) = Some(weights);
        Ok(())
    }

    pub(crate) fn take(&self) -> Option<Vec<f32>> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).take()
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
