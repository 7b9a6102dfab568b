//! What is certified against one adversary.

use serde::{Deserialize, Serialize};

use super::Question;
use crate::adversary::{self, Adversary, Route};
use crate::conversions::Renyi;
use crate::curve::Curve;
use crate::error::PrivacyError;
use crate::interval::Interval;
use crate::mechanism::Mechanism;

/// The orders at which Rényi divergences are reported.
pub const ORDERS: [f64; 3] = [2.0, 8.0, 32.0];
/// Ω of tCDP.
pub const LARGEST_ORDER: f64 = 32.0;
/// Divergences above this are left out: they promise nothing at any δ.
const MOST_DIVERGENCE: f64 = 1e3;

/// What is certified against one adversary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Guarantee {
    /// Against whom.
    pub adversary: Adversary,
    /// The theorem; where another one gives µ or some β, it is named as well.
    pub basis: String,
    /// Whether some data attain the answer, so that no theorem can improve it; otherwise it is an upper bound.
    pub exact: bool,
    /// ε or δ, whichever was asked for.
    pub answer: Interval,
    /// µ and the smallest error rate for which it is stated, or why there is none.
    #[serde(with = "written_mu")]
    pub mu: Result<(Interval, f64), String>,
    /// (α, β).
    pub tradeoff: Vec<(f64, Interval)>,
    /// (ω, τ), where it could be computed.
    pub renyi: Vec<(f64, Interval)>,
    /// ρ of tCDP up to [`LARGEST_ORDER`], where it could be computed.
    pub truncated: Option<Interval>,
}

impl Guarantee {
    pub(super) fn of(
        mechanism: &Mechanism,
        adversary: Adversary,
        question: Question,
        alphas: &[f64],
    ) -> Result<Self, PrivacyError> {
        match adversary {
            Adversary::A1 => Self::against_a1(mechanism, question, alphas),
            Adversary::A0 => Self::against_a0(mechanism, question, alphas),
        }
    }

    fn against_a1(mechanism: &Mechanism, question: Question, alphas: &[f64]) -> Result<Self, PrivacyError> {
        let curve = adversary::curve(mechanism, Adversary::A1)?;
        let answer = question.answer(&*curve)?;
        let mut guarantee = Self {
            adversary: Adversary::A1,
            basis: adversary::basis_of_a1(mechanism),
            exact: true,
            ..Self::of_nothing_hidden(answer, alphas)
        };
        if !nothing_is_hidden(question, answer, &*curve) {
            let beta = |&alpha: &f64| Ok((alpha, curve.beta(alpha)?));
            guarantee.mu = curve.mu_on_default_range().map_err(|error| error.to_string());
            guarantee.tradeoff = alphas.iter().map(beta).collect::<Result<_, PrivacyError>>()?;
        }
        Ok(guarantee.with_moments(mechanism))
    }

    fn against_a0(mechanism: &Mechanism, question: Question, alphas: &[f64]) -> Result<Self, PrivacyError> {
        let best = adversary::against_a0(mechanism)?;
        let answer = match question {
            Question::Epsilon { delta } => best.answer_epsilon(delta)?,
            Question::Delta { epsilon } => best.answer_delta(epsilon)?,
        };
        if nothing_is_hidden(question, answer.value, &best) {
            let (basis, exact) = (best.basis(answer.route), best.is_exact(answer.route));
            return Ok(Self { basis, exact, ..Self::of_nothing_hidden(answer.value, alphas) });
        }
        let mu = best.answer_mu();
        let rates = alphas.iter().map(|&alpha| Ok((alpha, best.answer_beta(alpha)?)));
        let rates = rates.collect::<Result<Vec<_>, PrivacyError>>()?;
        let mut basis = best.basis(answer.route);
        for route in [Route::Direct, Route::Told, Route::Group] {
            let mut by: Vec<String> = rates
                .iter()
                .filter(|(_, rate)| rate.route == route)
                .map(|(alpha, _)| format!("β at α = {alpha}"))
                .collect();
            by.extend(mu.as_ref().ok().filter(|(mu, _)| mu.route == route).map(|_| "µ".to_string()));
            if route != answer.route && !by.is_empty() {
                basis.push_str(&format!("; {} by {}", by.join(", "), best.basis(route)));
            }
        }
        let guarantee = Self {
            adversary: Adversary::A0,
            basis,
            exact: best.is_exact(answer.route),
            answer: answer.value,
            mu: mu.map(|(mu, smallest)| (mu.value, smallest)).map_err(|error| error.to_string()),
            tradeoff: rates.into_iter().map(|(alpha, rate)| (alpha, rate.value)).collect(),
            renyi: Vec::new(),
            truncated: None,
        };
        Ok(guarantee.with_moments(mechanism))
    }

    /// What is left to say where nothing is hidden: every attack may succeed.
    fn of_nothing_hidden(answer: Interval, alphas: &[f64]) -> Self {
        let nothing = |&alpha: &f64| (alpha, Interval { lower: 0.0, upper: 1.0 - alpha });
        Self {
            adversary: Adversary::A0,
            basis: String::new(),
            exact: false,
            answer,
            mu: Ok((Interval { lower: 0.0, upper: f64::INFINITY }, 0.0)),
            tradeoff: alphas.iter().map(nothing).collect(),
            renyi: Vec::new(),
            truncated: None,
        }
    }

    /// Adds the Rényi divergences that are known and finite; others would say nothing.
    fn with_moments(mut self, mechanism: &Mechanism) -> Self {
        let Ok(renyi) = Renyi::of(mechanism, self.adversary) else { return self };
        let known = |value: &Interval| value.upper.is_finite() && value.upper < MOST_DIVERGENCE;
        let divergence = |&order: &f64| Some((order, renyi.divergence(order).ok().filter(known)?));
        self.renyi = ORDERS.iter().filter_map(divergence).collect();
        // τ rises with the order: where the last one says nothing, neither does ρ.
        if self.renyi.last().is_some_and(|last| last.0 == LARGEST_ORDER) {
            self.truncated = renyi.truncated_concentrated(LARGEST_ORDER).ok().filter(known);
        }
        self
    }
}

/// The ε above which a run that exceeds it with probability one half has nothing left to attack.
const NOTHING_HIDDEN: f64 = 2e3;

/// Whether the run leaks so much that error rates are far below anything a number can hold. It is asked only
/// where the answer is extreme already; saying nothing in place of µ and β is always true.
fn nothing_is_hidden(question: Question, answer: Interval, curve: &dyn Curve) -> bool {
    let extreme = match question {
        Question::Epsilon { .. } => answer.lower > NOTHING_HIDDEN,
        Question::Delta { .. } => answer.lower > 0.5,
    };
    extreme && curve.epsilon(0.5).is_ok_and(|epsilon| epsilon.lower > NOTHING_HIDDEN)
}

/// µ as `{ mu, smallest }` or `{ refused }`.
mod written_mu {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::interval::Interval;

    #[derive(Serialize, Deserialize)]
    #[serde(untagged, deny_unknown_fields)]
    enum Written {
        Stated { mu: Interval, smallest: f64 },
        Refused { refused: String },
    }

    pub(super) fn serialize<S: Serializer>(
        mu: &Result<(Interval, f64), String>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match mu.clone() {
            Ok((mu, smallest)) => Written::Stated { mu, smallest },
            Err(refused) => Written::Refused { refused },
        }
        .serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Result<(Interval, f64), String>, D::Error> {
        Ok(match Written::deserialize(deserializer)? {
            Written::Stated { mu, smallest } => Ok((mu, smallest)),
            Written::Refused { refused } => Err(refused),
        })
    }
}
