//! The optimizer outside: what w does with the noised update Ū/m. PyTorch's semantics.
//!
//! [`OuterOptimizer`] is the trait, and [`Outer`] holds the built-in optimizers or one of the user's own. A
//! server that averages the updates of many clients takes the same step with [`Outer::apply`], without a
//! trainer.
//!
//! # Guarantee
//!
//! An outer optimizer reads noised updates and public numbers only, so whatever it does is post-processing.

use std::fmt;
use std::sync::Arc;

use dpsgd_kernels::{each2, each3, each4};

use crate::adam::Adam;
use crate::error::{PlanError, TrainerError, within};
use crate::inner::constants::{ADAM_BETA1, ADAM_BETA2, ADAM_EPSILON};

/// One step: what all coordinates have in common.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OuterStep {
    /// η.
    pub eta: f64,
    /// Updates seen, this one included.
    pub steps: u64,
}

/// Any optimizer that acts on coordinates alike.
///
/// The trainer calls [`OuterOptimizer::apply_block`] on blocks of coordinates, on several threads, in any
/// order.
pub trait OuterOptimizer: fmt::Debug + Send + Sync {
    /// A short name, for configurations and messages.
    fn name(&self) -> &str;

    /// The name with its constants, for reports.
    fn describe(&self) -> String {
        self.name().to_string()
    }

    /// The names of the vectors of state, each of length d, zero before the first step. They are the names in
    /// checkpoints.
    fn state_names(&self) -> &[&'static str] {
        &[]
    }

    /// Refuses constants that make no sense.
    fn check(&self) -> Result<(), PlanError> {
        Ok(())
    }

    /// Applies the update to a block of w. `states` are the same coordinates of the vectors of state, in the
    /// order of [`OuterOptimizer::state_names`].
    fn apply_block(&self, step: OuterStep, weights: &mut [f32], update: &[f32], states: &mut [&mut [f32]]);
}

/// The outer optimizer.
#[derive(Clone, Debug, Default)]
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
    /// An optimizer of the user's own.
    Custom(Arc<dyn OuterOptimizer>),
}

/// Custom optimizers are equal if they are the same value.
impl PartialEq for Outer {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Outer::Plain, Outer::Plain) => true,
            (Outer::Momentum { momentum: a, nesterov: b }, Outer::Momentum { momentum: c, nesterov: d }) => {
                (a, b) == (c, d)
            }
            (
                Outer::Adam { beta1: a, beta2: b, epsilon: c },
                Outer::Adam { beta1: d, beta2: e, epsilon: f },
            ) => (a, b, c) == (d, e, f),
            (Outer::Custom(one), Outer::Custom(other)) => Arc::ptr_eq(one, other),
            (Outer::Plain | Outer::Momentum { .. } | Outer::Adam { .. } | Outer::Custom(_), _) => false,
        }
    }
}

impl Outer {
    /// PyTorch's Adam.
    pub const ADAM: Outer = Outer::Adam { beta1: ADAM_BETA1, beta2: ADAM_BETA2, epsilon: ADAM_EPSILON };

    /// An optimizer of the user's own.
    pub fn custom(optimizer: impl OuterOptimizer + 'static) -> Self {
        Outer::Custom(Arc::new(optimizer))
    }

    /// A state without a past.
    pub fn fresh(&self, dimension: usize) -> OuterState {
        let vectors = self.state_names().iter().map(|name| (name.to_string(), vec![0.0; dimension]));
        OuterState { steps: 0, vectors: vectors.collect() }
    }

    /// Applies one update to w, bit for bit as the trainer does: what a server does with an update it
    /// received, or with the mean of many.
    ///
    /// ```
    /// use dpsgd_train::Outer;
    ///
    /// let outer = Outer::Momentum { momentum: 0.5, nesterov: false };
    /// let (mut weights, mut state) = (vec![1.0, 2.0], outer.fresh(2));
    /// outer.apply(&mut state, &mut weights, &[1.0, 0.0], 0.5)?;
    /// outer.apply(&mut state, &mut weights, &[0.0, 1.0], 0.5)?;
    /// assert_eq!(weights, [0.25, 1.5]);
    /// # Ok::<(), dpsgd_train::TrainerError>(())
    /// ```
    pub fn apply(
        &self,
        state: &mut OuterState,
        weights: &mut [f32],
        update: &[f32],
        eta: f64,
    ) -> Result<(), TrainerError> {
        let expected = weights.len();
        if update.len() != expected {
            return Err(TrainerError::Dimension { what: "the update", given: update.len(), expected });
        }
        state.fit(self, expected)?;
        state.steps += 1;
        let step = OuterStep { eta, steps: state.steps };
        let mut states: Vec<&mut [f32]> =
            state.vectors.iter_mut().map(|(_, values)| &mut values[..]).collect();
        self.apply_block(step, weights, update, &mut states);
        Ok(())
    }
}

impl OuterOptimizer for Outer {
    fn name(&self) -> &str {
        match self {
            Outer::Plain => "plain",
            Outer::Momentum { .. } => "momentum",
            Outer::Adam { .. } => "adam",
            Outer::Custom(optimizer) => optimizer.name(),
        }
    }

    fn describe(&self) -> String {
        match self {
            Outer::Plain => "plain".to_string(),
            Outer::Momentum { momentum, nesterov: false } => format!("momentum ({momentum})"),
            Outer::Momentum { momentum, nesterov: true } => format!("Nesterov's momentum ({momentum})"),
            Outer::Adam { beta1, beta2, epsilon } => {
                format!("adam (beta1 {beta1}, beta2 {beta2}, epsilon {epsilon})")
            }
            Outer::Custom(optimizer) => optimizer.describe(),
        }
    }

    fn state_names(&self) -> &[&'static str] {
        match self {
            Outer::Plain => &[],
            Outer::Momentum { .. } => &["first"],
            Outer::Adam { .. } => &["first", "second"],
            Outer::Custom(optimizer) => optimizer.state_names(),
        }
    }

    fn check(&self) -> Result<(), PlanError> {
        match *self {
            Outer::Plain => Ok(()),
            Outer::Momentum { momentum, .. } => within("momentum", momentum, 0.0, 0.99999, "it must fade"),
            Outer::Adam { beta1, beta2, epsilon } => {
                within("beta1", beta1, 0.0, 0.99999, "it must fade")?;
                within("beta2", beta2, 0.0, 0.999999, "it must fade")?;
                within("epsilon", epsilon, 1e-30, 1.0, "the denominator must not vanish")
            }
            Outer::Custom(ref optimizer) => optimizer.check(),
        }
    }

    fn apply_block(&self, step: OuterStep, weights: &mut [f32], update: &[f32], states: &mut [&mut [f32]]) {
        let eta = step.eta as f32;
        match (self, states) {
            (Outer::Plain, _) => each2(weights, update, |w, u| *w -= eta * u),
            (Outer::Momentum { momentum, nesterov }, [first]) => {
                let decay = *momentum as f32;
                let begin = step.steps == 1;
                each3(weights, first, update, |w, v, u| {
                    *v = if begin { u } else { decay * *v + u };
                    *w -= eta * if *nesterov { u + decay * *v } else { *v };
                });
            }
            (Outer::Adam { beta1, beta2, epsilon }, [first, second]) => {
                let adam = Adam::new(step.eta, *beta1, *beta2, *epsilon, step.steps);
                each4(weights, first, second, update, |w, m, v, u| *w -= adam.step(m, v, u));
            }
            (Outer::Custom(optimizer), states) => optimizer.apply_block(step, weights, update, states),
            // The caller hands over one vector for every name.
            (Outer::Momentum { .. } | Outer::Adam { .. }, states) => {
                unreachable!("{} has other states than {}", self.name(), states.len())
            }
        }
    }
}

/// What the outer optimizer remembers; saved in checkpoints. A function of noised updates only.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct OuterState {
    /// Updates seen.
    pub steps: u64,
    /// The vectors of state by name, in the order of [`OuterOptimizer::state_names`].
    pub vectors: Vec<(String, Vec<f32>)>,
}

impl OuterState {
    /// The vector of a name.
    pub fn vector(&self, name: &str) -> Option<&[f32]> {
        self.vectors.iter().find(|(known, _)| known == name).map(|(_, values)| &values[..])
    }

    /// Puts the vectors in the order of the optimizer, or says why the state is not one of it.
    pub(crate) fn fit(&mut self, outer: &Outer, dimension: usize) -> Result<(), TrainerError> {
        let names = outer.state_names();
        let matches = |state: &Self| {
            names.len() == state.vectors.len()
                && names.iter().zip(&state.vectors).all(|(name, (known, _))| name == known)
        };
        if !matches(self) {
            let place = |name: &str| names.iter().position(|known| *known == name).unwrap_or(usize::MAX);
            self.vectors.sort_by_key(|(name, _)| place(name));
        }
        if !matches(self) {
            let given: Vec<&str> = self.vectors.iter().map(|(name, _)| &name[..]).collect();
            return Err(TrainerError::State(format!(
                "the outer optimizer {} remembers {}, the state holds {}",
                outer.name(),
                list(names),
                list(&given)
            )));
        }
        for (_, values) in &self.vectors {
            if values.len() != dimension {
                let (what, given) = ("a vector of the outer optimizer", values.len());
                return Err(TrainerError::Dimension { what, given, expected: dimension });
            }
        }
        Ok(())
    }
}

fn list(names: &[&str]) -> String {
    if names.is_empty() { "nothing".to_string() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PyTorch's loops, one coordinate, in double precision.
    fn slow(outer: &Outer, eta: f64, updates: &[f64]) -> f64 {
        let (mut w, mut first, mut second) = (1.0, 0.0, 0.0);
        for (t, &u) in updates.iter().enumerate() {
            match *outer {
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
                Outer::Custom(_) => panic!("no transcription"),
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
            for &u in &updates {
                outer.apply(&mut state, &mut weights, &[u as f32; 37], 0.1).unwrap();
            }
            let expected = slow(&outer, 0.1, &updates);
            for w in weights {
                assert!((f64::from(w) - expected).abs() < 2e-6, "{outer:?}: {w} {expected}");
            }
        }
    }

    #[test]
    fn states_of_another_optimizer_are_refused() {
        let (mut weights, momentum) = (vec![1.0; 3], Outer::Momentum { momentum: 0.9, nesterov: false });
        let mut state = Outer::ADAM.fresh(3);
        let error = momentum.apply(&mut state, &mut weights, &[0.0; 3], 0.1).unwrap_err().to_string();
        assert!(error.contains("momentum remembers first, the state holds first, second"), "{error}");
        assert!(Outer::ADAM.apply(&mut state, &mut weights, &[0.0; 2], 0.1).is_err());
        // The order in which a checkpoint names them does not matter.
        state.vectors.reverse();
        Outer::ADAM.apply(&mut state, &mut weights, &[0.5; 3], 0.1).unwrap();
        assert!(state.vector("first").unwrap()[0] > state.vector("second").unwrap()[0]);
        assert_eq!((weights.len(), state.steps), (3, 1));
    }
}
