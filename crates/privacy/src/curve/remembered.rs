//! A curve that remembers the points of earlier questions: for a whole trade-off function, those of one rate are
//! close to the next.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::beta::{Points, beta_of};
use super::{Curve, CurvePoint};
use crate::error::{PrivacyError, require};
use crate::interval::Interval;

/// A curve with its points so far.
///
/// # Guarantee
/// That of the curve: every point is certified, and [`beta_of`] takes nothing else from memory.
pub(crate) struct Remembered<C> {
    curve: C,
    points: Mutex<Points>,
}

impl<C: Curve> Remembered<C> {
    /// For curves that find β from their points.
    pub(crate) fn new(curve: C) -> Self {
        Self { curve, points: Mutex::default() }
    }

    fn points(&self) -> MutexGuard<'_, Points> {
        // Only complete points are ever inserted, so a poisoned lock still guards good data.
        self.points.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C: Curve> Curve for Remembered<C> {
    fn delta(&self, epsilon: f64) -> Result<Interval, PrivacyError> {
        self.curve.delta(epsilon)
    }

    fn point(&self, epsilon: f64) -> Result<CurvePoint, PrivacyError> {
        self.curve.point(epsilon)
    }

    fn epsilon(&self, delta: f64) -> Result<Interval, PrivacyError> {
        self.curve.epsilon(delta)
    }

    fn beta(&self, alpha: f64) -> Result<Interval, PrivacyError> {
        require((0.0..=1.0).contains(&alpha), "alpha", alpha, "between 0 and 1")?;
        let mut known = self.points().clone();
        let value = beta_of(&|epsilon| self.curve.point(epsilon), alpha, &mut known);
        self.points().merge(&known);
        value
    }

    fn mu(&self, smallest: f64) -> Result<Interval, PrivacyError> {
        self.curve.mu(smallest)
    }

    fn mu_on_default_range(&self) -> Result<(Interval, f64), PrivacyError> {
        self.curve.mu_on_default_range()
    }
}
