//! The optimizer outside: what w does with the noised update Ū/m. Free post-processing, because it
//! reads nothing else. PyTorch's semantics.

use crate::error::{PlanError, within};
use crate::simd;

/// The outer optimizer.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
#[non_exhaustive]
pub enum Outer {
    /// w ← w − η·Ū/m, Algorithm 1 as printed.
    #[default]
    Plain,
    /// v ← µ·v + Ū/m (v = Ū/m in the first round), w ← w − η·v; with Nesterov's variant
    /// w ← w − η·(Ū/m + µ·v).
    Momentum {
        /// µ.
        momentum: f64,
        /// Whether to look ahead.
        nesterov: bool,
    },
    /// Adam (Kingma and Ba 2015) with bias correction.
    Adam {
        /// β₁.
        beta1: f64,
        /// β₂.
        beta2: f64,
        /// ε.
        epsilon: f64,
    },
}

impl Outer {
    /// PyTorch's Adam: β = (0.9, 0.999), ε = 1e-8.
    pub const ADAM: Outer = Outer::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8 };

    pub(crate) fn check(&self) -> Result<(), PlanError> {
        match *self {
            Outer::Plain => Ok(()),
            Outer::Momentum { momentum, .. } => within("momentum", momentum, 0.0, 0.99999, "it must fade"),
            Outer::Adam { beta1, beta2, epsilon } => {
                within("beta1", beta1, 0.0, 0.99999, "it must fade")?;
                within("beta2", beta2, 0.0, 0.999999, "it must fade")?;
                within("epsilon", epsilon, 1e-30, 1.0, "the denominator must not vanish")
            }
        }
    }

    /// A state without a past.
    pub fn fresh(&self, dimension: usize) -> OuterState {
        let (first, second) = match self {
            Outer::Plain => (0, 0),
            Outer::Momentum { .. } => (dimension, 0),
            Outer::Adam { .. } => (dimension, dimension),
        };
        OuterState { steps: 0, first: vec![0.0; first], second: vec![0.0; second] }
    }
}

/// What the outer optimizer remembers; saved in checkpoints. A function of noised updates only.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct OuterState {
    /// Updates seen.
    pub steps: u64,
    /// v of momentum, the first moment of Adam, or empty.
    pub first: Vec<f32>,
    /// The second moment of Adam, or empty.
    pub second: Vec<f32>,
}

/// One step on a block of coordinates. The blocks of one round share everything here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    outer: Outer,
    eta: f64,
    /// Updates seen, this one included.
    steps: u64,
}

impl Step {
    pub(crate) fn new(outer: Outer, eta: f64, steps: u64) -> Self {
        Self { outer, eta, steps }
    }

    /// `first` and `second` are empty where the optimizer has no such state.
    pub(crate) fn apply(&self, weights: &mut [f32], update: &[f32], first: &mut [f32], second: &mut [f32]) {
        let eta = self.eta as f32;
        match self.outer {
            Outer::Plain => simd::each2(weights, update, |w, u| *w -= eta * u),
            Outer::Momentum { momentum, nesterov } => {
                let decay = momentum as f32;
                let begin = self.steps == 1;
                simd::each3(weights, first, update, |w, v, u| {
                    *v = if begin { u } else { decay * *v + u };
                    *w -= eta * if nesterov { u + decay * *v } else { *v };
                });
            }
            Outer::Adam { beta1, beta2, epsilon } => {
                let adam = simd::Adam::new(self.eta, beta1, beta2, epsilon, self.steps);
                simd::each4(weights, first, second, update, |w, m, v, u| *w -= adam.step(m, v, u));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PyTorch's loops, one coordinate, in double precision.
    fn slow(outer: Outer, eta: f64, updates: &[f64]) -> f64 {
        let (mut w, mut first, mut second) = (1.0, 0.0, 0.0);
        for (t, &u) in updates.iter().enumerate() {
            match outer {
                Outer::Plain => w -= eta * u,
                Outer::Momentum { momentum, nesterov } => {
                    first = if t == 0 { u } else { momentum * first + u };
                    w -= eta * if nesterov { u + momentum * first } else { first };
                }
                Outer::Adam { beta1, beta2, epsilon } => {
                    first = beta1 * first + (1.0 - beta1) * u;
                    second = beta2 * second + (1.0 - beta2) * u * u;
                    let t = t as i32 + 1;
                    let corrected: f64 = second / (1.0 - beta2.powi(t));
                    w -= eta * (first / (1.0 - beta1.powi(t))) / (corrected.sqrt() + epsilon);
                }
            }
        }
        w
    }

    #[test]
    fn agrees_with_the_slow_loop() {
        let updates = [0.5, -0.25, 1.5, 0.0, -2.0, 0.125];
        for outer in [
            Outer::Plain,
            Outer::Momentum { momentum: 0.9, nesterov: false },
            Outer::Momentum { momentum: 0.9, nesterov: true },
            Outer::ADAM,
        ] {
            let mut state = outer.fresh(37);
            let mut weights = vec![1.0; 37];
            for (t, &u) in updates.iter().enumerate() {
                let step = Step::new(outer, 0.1, t as u64 + 1);
                step.apply(&mut weights, &[u as f32; 37], &mut state.first, &mut state.second);
            }
            let expected = slow(outer, 0.1, &updates);
            for w in weights {
                assert!((f64::from(w) - expected).abs() < 2e-6, "{outer:?}: {w} {expected}");
            }
        }
    }
}
