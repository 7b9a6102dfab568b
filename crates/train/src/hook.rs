//! The post-processing B of the paper's remarks: `U = Σ B([a_h]_{C'})` with ‖B(x)‖ ≤ C enforced.

use std::fmt;
use std::sync::Arc;

type Function = dyn Fn(&mut [f32]) + Send + Sync;

/// A function applied in place to every clipped group result before it is summed.
///
/// It must be a function of its argument only. Its bound is not trusted: its result is clipped to
/// C again, so the sensitivity of the sum stays 2C whatever it does.
#[derive(Clone)]
pub struct Hook {
    bound: f64,
    function: Arc<Function>,
}

impl Hook {
    /// B with C', the norm its argument is clipped to.
    pub fn new(bound: f64, function: impl Fn(&mut [f32]) + Send + Sync + 'static) -> Self {
        Self { bound, function: Arc::new(function) }
    }

    /// C'.
    pub fn bound(&self) -> f64 {
        self.bound
    }

    pub(crate) fn apply(&self, x: &mut [f32]) {
        (self.function)(x);
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hook").field("bound", &self.bound).finish_non_exhaustive()
    }
}
