//! One step of Adam, for the inner and the outer optimizer alike.

/// The constants of one step of Adam, in PyTorch's order of operations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Adam {
    keep1: f32,
    take1: f32,
    keep2: f32,
    take2: f32,
    eta: f32,
    inverse_root: f32,
    epsilon: f32,
}

impl Adam {
    /// The constants of step t = 1, 2, …
    pub(crate) fn new(eta: f64, beta1: f64, beta2: f64, epsilon: f64, t: u64) -> Self {
        let correction = |beta: f64| 1.0 - beta.powf(t as f64);
        Self {
            keep1: beta1 as f32,
            take1: (1.0 - beta1) as f32,
            keep2: beta2 as f32,
            take2: (1.0 - beta2) as f32,
            eta: (eta / correction(beta1)) as f32,
            inverse_root: (1.0 / correction(beta2).sqrt()) as f32,
            epsilon: epsilon as f32,
        }
    }

    /// What to subtract from a parameter with gradient g.
    #[inline(always)]
    pub(crate) fn step(&self, first: &mut f32, second: &mut f32, g: f32) -> f32 {
        *first = self.keep1 * *first + self.take1 * g;
        *second = self.keep2 * *second + self.take2 * (g * g);
        self.eta * *first / (second.sqrt() * self.inverse_root + self.epsilon)
    }
}
