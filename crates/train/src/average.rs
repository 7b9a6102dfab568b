//! The average of the iterates: what w was after each round, in one vector.
//!
//! The last iterate carries the noise of its last steps whole; an average over many rounds evens it out
//! (Polyak and Juditsky 1992; De et al. 2022 for private training).
//!
//! # Guarantee
//!
//! An average reads w after each round, which is a function of the noised updates and of public numbers, and
//! the number of the round. So it is post-processing: it costs no privacy, whatever it is and whoever sees
//! it.

use dpsgd_kernels::each2;
use serde::{Deserialize, Serialize};

use crate::error::{PlanError, within};

/// Which average of the iterates is kept beside w.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Average {
    /// None.
    #[default]
    None,
    /// Exponential: after k rounds Σᵢ d^(k−i)·wᵢ divided by Σᵢ d^(k−i), so that the first iterates count no
    /// more than their share.
    Exponential {
        /// d, from 0 to below 1. About 1/(1 − d) rounds count.
        decay: f64,
    },
    /// The mean of the iterates of the last rounds of the plan.
    Tail {
        /// Their share of all planned rounds, above 0 and at most 1.
        share: f64,
    },
}

/// An average as far as it has come; saved in checkpoints. A function of released iterates only.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AverageState {
    /// The iterates in it.
    pub count: u64,
    /// The average; empty before the first.
    pub values: Vec<f32>,
}

impl Average {
    /// Whether the iterate after a round (counted from 0) of a run of `rounds` planned rounds is to be taken
    /// in.
    pub fn takes(&self, round: u64, rounds: u64) -> bool {
        match *self {
            Average::None => false,
            Average::Exponential { .. } => true,
            // At least the last one.
            Average::Tail { share } => {
                round >= rounds - ((share * rounds as f64).ceil() as u64).clamp(1, rounds)
            }
        }
    }

    /// What the k-th iterate of the average counts, k = 1, 2, …: a ← a + weight·(w − a).
    fn weight(&self, k: u64) -> f64 {
        match *self {
            Average::None => 0.0,
            Average::Exponential { decay } => (1.0 - decay) / (1.0 - decay.powf(k as f64)),
            Average::Tail { .. } => 1.0 / k as f64,
        }
    }

    pub(crate) fn check(&self) -> Result<(), PlanError> {
        match *self {
            Average::None => Ok(()),
            Average::Exponential { decay } => {
                within("average", decay, 0.0, 0.999999, "old iterates must fade")
            }
            Average::Tail { share } => within("average", share, 1e-6, 1.0, "a share of the planned rounds"),
        }
    }
}

impl AverageState {
    /// The average; none before its first iterate.
    pub fn values(&self) -> Option<&[f32]> {
        (self.count > 0).then_some(&self.values)
    }

    /// Takes in the iterate after a round.
    pub(crate) fn saw(&mut self, average: &Average, weights: &[f32], round: u64, rounds: u64) {
        if !average.takes(round, rounds) {
            return;
        }
        self.count += 1;
        if self.count == 1 {
            self.values = weights.to_vec();
            return;
        }
        let weight = average.weight(self.count) as f32;
        each2(&mut self.values, weights, |a, w| *a += weight * (w - *a));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn iterates(rounds: u64) -> Vec<Vec<f32>> {
        (0..rounds).map(|t| vec![(t as f32 * 0.7).sin(), 3.0 - t as f32 * 0.01]).collect()
    }

    fn kept(average: Average, rounds: u64) -> AverageState {
        let mut state = AverageState::default();
        for (t, w) in iterates(rounds).iter().enumerate() {
            state.saw(&average, w, t as u64, rounds);
        }
        state
    }

    /// Against sums over all iterates in double precision.
    #[test]
    fn averages_are_what_they_say() {
        for rounds in [1u64, 2, 7, 100, 501] {
            let all = iterates(rounds);
            for decay in [0.0, 0.5, 0.9, 0.99] {
                let state = kept(Average::Exponential { decay }, rounds);
                let weight = |t: u64| decay.powi((rounds - 1 - t) as i32);
                check(&state, rounds, &all, weight);
            }
            for share in [1e-6, 0.1, 0.5, 1.0] {
                let state = kept(Average::Tail { share }, rounds);
                let last = ((share * rounds as f64).ceil() as u64).max(1);
                check(&state, last, &all, |t| f64::from(u8::from(t >= rounds - last)));
            }
        }
        assert_eq!(kept(Average::None, 9).values(), None);
    }

    fn check(state: &AverageState, count: u64, all: &[Vec<f32>], weight: impl Fn(u64) -> f64) {
        assert_eq!(state.count, count);
        let total: f64 = (0..all.len()).map(|t| weight(t as u64)).sum();
        for i in 0..2 {
            let sum: f64 = all.iter().enumerate().map(|(t, w)| weight(t as u64) * f64::from(w[i])).sum();
            let given = f64::from(state.values().unwrap()[i]);
            assert!((given - sum / total).abs() < 3e-6, "{given} and {}", sum / total);
        }
    }

    #[test]
    fn senseless_constants_are_refused() {
        for average in [
            Average::Exponential { decay: 1.0 },
            Average::Exponential { decay: f64::NAN },
            Average::Tail { share: 0.0 },
            Average::Tail { share: 1.5 },
        ] {
            assert!(average.check().is_err(), "{average:?}");
        }
    }
}
