//! What is asked about a run.

use serde::{Deserialize, Serialize};

use crate::curve::Curve;
use crate::error::{PrivacyError, require};
use crate::interval::Interval;

/// What is asked about a run: ε at a δ, or δ at an ε.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Question {
    /// ε at this δ.
    Epsilon {
        /// δ.
        delta: f64,
    },
    /// δ at this ε.
    Delta {
        /// ε.
        epsilon: f64,
    },
}

impl Question {
    /// Asks for ε at `delta`, which must be above 0 and below 1.
    pub fn epsilon_at(delta: f64) -> Result<Self, PrivacyError> {
        let question = Question::Epsilon { delta };
        question.check().map(|()| question)
    }

    /// Asks for δ at `epsilon`, a number of at least 0.
    pub fn delta_at(epsilon: f64) -> Result<Self, PrivacyError> {
        let question = Question::Delta { epsilon };
        question.check().map(|()| question)
    }

    /// Refuses a δ or an ε outside its range.
    pub fn check(self) -> Result<(), PrivacyError> {
        match self {
            Question::Epsilon { delta } => {
                require(delta > 0.0 && delta < 1.0, "delta", delta, "above 0 and below 1")
            }
            Question::Delta { epsilon } => {
                let ok = epsilon >= 0.0 && epsilon.is_finite();
                require(ok, "epsilon", epsilon, "a number of at least 0")
            }
        }
    }

    /// The answer that a trade-off function gives.
    pub fn answer(self, curve: &dyn Curve) -> Result<Interval, PrivacyError> {
        match self {
            Question::Epsilon { delta } => curve.epsilon(delta),
            Question::Delta { epsilon } => curve.delta(epsilon),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_questions_are_refused() {
        let text = |question: Result<Question, PrivacyError>| question.unwrap_err().to_string();
        for delta in [0.0, 1.0, -1e-5, f64::NAN] {
            let expected = format!("delta = {delta}: must be above 0 and below 1");
            assert_eq!(text(Question::epsilon_at(delta)), expected);
        }
        for epsilon in [-1.0, f64::INFINITY, f64::NAN] {
            let expected = format!("epsilon = {epsilon}: must be a number of at least 0");
            assert_eq!(text(Question::delta_at(epsilon)), expected);
        }
        assert_eq!(Question::delta_at(0.0), Ok(Question::Delta { epsilon: 0.0 }));
        assert_eq!(
            crate::account::alphas(&[0.5, 1.5]).unwrap_err().to_string(),
            "alpha = 1.5: must be between 0 and 1 (it is a false-alarm rate)"
        );
        assert_eq!(crate::account::alphas(&[]).unwrap(), [0.01, 0.05, 0.5]);
    }
}
