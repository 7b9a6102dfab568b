//! What a question to a curve may cost.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The sines that a question may cost, all pairs of its curve together, about a second; ordinary settings need a
/// thousandth of them. What comes after that is answered from moments.
pub(super) const MOST_WORK: f64 = 2e8;
/// What each further question adds to what is left.
const RENEWED: f64 = 0.1 * MOST_WORK;

/// The work that is left, in sines; losses that answer a question together share it.
#[derive(Debug)]
pub(crate) struct Budget(Mutex<f64>);

impl Default for Budget {
    fn default() -> Self {
        Self(Mutex::new(MOST_WORK))
    }
}

impl Budget {
    fn left(&self) -> MutexGuard<'_, f64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes `work` out of it, and says whether it was there.
    pub(super) fn take(&self, work: f64) -> bool {
        let mut left = self.left();
        *left -= work;
        *left >= 0.0
    }

    /// Takes `work` out of a reserve as large as the whole, and says whether it was there.
    pub(super) fn take_from_reserve(&self, work: f64) -> bool {
        let mut left = self.left();
        *left -= work;
        *left >= -MOST_WORK
    }

    /// For a new question to the same curve: a part of the budget comes back.
    pub(crate) fn renew(&self) {
        let mut left = self.left();
        *left = (left.max(0.0) + RENEWED).min(MOST_WORK);
    }
}
