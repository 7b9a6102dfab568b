//! What everybody in a federation agrees on. All of it is public.

use std::ops::Deref;
use std::str::FromStr;
use std::sync::Arc;

use dpsgd::train::outer::OuterOptimizer;
use dpsgd::train::{Outer, Rule as StepRule, Schedule, ScheduleState};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::honest::Honest;
use crate::name::{ClientId, RunId};

/// The most parameters of a model.
pub const MOST_PARAMETERS: u64 = 1 << 30;
/// The most clients.
pub const MOST_CLIENTS: u64 = 1 << 24;
/// The largest staleness that terms may allow.
pub const MOST_STALENESS: u64 = 1 << 20;
/// The largest buffer.
pub const MOST_BUFFERED: u64 = 1 << 16;

/// The terms of a federated run, as they are written down. [`Terms::check`] makes them usable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Terms {
    /// Any text. Two federations with the same terms are told apart by it, so add something random.
    pub name: String,
    /// d, the parameters of the model.
    pub dimension: u64,
    /// The clients are numbered 1 to this.
    pub clients: u64,
    /// The most rounds of any client.
    pub rounds: u64,
    /// An update that started from a model more than this many versions old is rejected.
    pub max_staleness: u64,
    /// η by the round of the client: constant or inverse-root.
    pub step: Schedule,
    /// What an honest noised update looks like.
    pub bounds: Bounds,
    /// How updates become steps of the global model.
    pub rule: Rule,
    /// What staleness does to an update's weight.
    #[serde(default)]
    pub weight: Staleness,
    /// The optimizer of the server.
    #[serde(default)]
    pub outer: ServerOuter,
}

/// The range of the clients' noise and clipping.
///
/// Clients may choose different C, σ and m: the terms give ranges only. A value for each client would tell
/// the server its number of samples wherever σ is calibrated.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Bounds {
    /// The largest length of U/m: the largest C, times the largest number of groups over the divisor where
    /// the batch size is random.
    pub signal: f64,
    /// The smallest standard deviation 2Cσ/m of a coordinate's noise.
    pub smallest_deviation: f64,
    /// The largest.
    pub largest_deviation: f64,
    /// t: an honest update is rejected with probability at most 3·e^{−t}.
    #[serde(default = "Bounds::usual_tail")]
    pub tail: f64,
}

impl Bounds {
    fn usual_tail() -> f64 {
        30.0
    }

    /// For clients that all have this largest ‖U/m‖ and this deviation 2Cσ/m.
    pub fn of(signal: f64, deviation: f64) -> Self {
        Self { signal, smallest_deviation: deviation, largest_deviation: deviation, tail: Self::usual_tail() }
    }
}

/// How updates become steps of the global model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Rule {
    /// Each update is a step of its own: w ← w − η·c(τ)·Ū/m. The paper's server, Hogwild with bounded delay.
    #[default]
    EachUpdate,
    /// `size` updates are one step (FedBuff): w ← w − (1/size)·Σ η_k·c(τ_k)·Ū_k/m.
    Buffer {
        /// K.
        size: u64,
        /// How the updates of a buffer become one.
        #[serde(default)]
        combine: Combine,
    },
}

/// A rule that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rule = {0}: each, buffer:K, trimmed:K:TRIM or median:K")]
pub struct NotARule(String);

impl FromStr for Rule {
    type Err = NotARule;

    fn from_str(text: &str) -> Result<Self, NotARule> {
        let wrong = || NotARule(text.to_owned());
        let mut parts = text.split(':');
        let name = parts.next().unwrap_or_default();
        let numbers = parts.map(|part| part.parse().map_err(|_| wrong())).collect::<Result<Vec<u64>, _>>()?;
        match (name, &numbers[..]) {
            ("each", []) => Ok(Rule::EachUpdate),
            ("buffer", &[size]) => Ok(Rule::Buffer { size, combine: Combine::Mean }),
            ("median", &[size]) => Ok(Rule::Buffer { size, combine: Combine::Median }),
            ("trimmed", &[size, trim]) => Ok(Rule::Buffer { size, combine: Combine::TrimmedMean { trim } }),
            _ => Err(wrong()),
        }
    }
}

/// How the updates of a buffer become one; always coordinate by coordinate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Combine {
    /// Their sum, divided by K: **not** by the sum of the weights, so a stale buffer makes a smaller step.
    #[default]
    Mean,
    /// The mean without the `trim` smallest and the `trim` largest values.
    TrimmedMean {
        /// How many are left out on each side.
        trim: u64,
    },
    /// The median.
    Median,
}

/// c(τ): what staleness does to an update's weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Staleness {
    /// c(τ) = 1.
    #[default]
    Constant,
    /// c(τ) = (1 + τ)^{−power}.
    Polynomial {
        /// Above 0; FedBuff takes ½.
        power: f64,
    },
}

impl Staleness {
    /// With this power, or constant without one.
    pub fn of_power(power: Option<f64>) -> Self {
        power.map_or(Staleness::Constant, |power| Staleness::Polynomial { power })
    }

    /// c(τ).
    pub fn weight(self, staleness: u64) -> f64 {
        match self {
            Staleness::Constant => 1.0,
            Staleness::Polynomial { power } => (1.0 + staleness as f64).powf(-power),
        }
    }
}

/// The optimizer of the server, in a form that can be written down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum ServerOuter {
    /// w ← w − η·u.
    #[default]
    Plain,
    /// Momentum.
    Momentum {
        /// µ.
        momentum: f64,
        /// Whether to look ahead.
        #[serde(default)]
        nesterov: bool,
    },
    /// Adam.
    Adam {
        /// β₁.
        beta1: f64,
        /// β₂.
        beta2: f64,
        /// ε.
        epsilon: f64,
    },
}

impl TryFrom<&Outer> for ServerOuter {
    type Error = dpsgd::Error;

    fn try_from(outer: &Outer) -> Result<Self, dpsgd::Error> {
        match *outer {
            Outer::Plain => Ok(ServerOuter::Plain),
            Outer::Momentum { momentum, nesterov } => Ok(ServerOuter::Momentum { momentum, nesterov }),
            Outer::Adam { beta1, beta2, epsilon } => Ok(ServerOuter::Adam { beta1, beta2, epsilon }),
            _ => {
                let why = "outer: a server's optimizer is plain, momentum or adam";
                Err(dpsgd::Error::Refused(why.into()))
            }
        }
    }
}

impl From<ServerOuter> for Outer {
    fn from(outer: ServerOuter) -> Self {
        match outer {
            ServerOuter::Plain => Outer::Plain,
            ServerOuter::Momentum { momentum, nesterov } => Outer::Momentum { momentum, nesterov },
            ServerOuter::Adam { beta1, beta2, epsilon } => Outer::Adam { beta1, beta2, epsilon },
        }
    }
}

/// Terms that make no sense.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{name} = {given}: {allowed}")]
pub struct TermsError {
    /// Which of them.
    pub name: &'static str,
    /// What it is.
    pub given: String,
    /// What it may be.
    pub allowed: String,
}

fn refuse<T>(name: &'static str, given: impl ToString, allowed: impl Into<String>) -> Result<T, TermsError> {
    Err(TermsError { name, given: given.to_string(), allowed: allowed.into() })
}

impl Terms {
    /// Checks everything once.
    pub fn check(self) -> Result<Agreed, TermsError> {
        within("dimension", self.dimension, 1, MOST_PARAMETERS)?;
        within("clients", self.clients, 1, MOST_CLIENTS)?;
        within("rounds", self.rounds, 1, dpsgd::train::plan::MOST_ROUNDS)?;
        within("max-staleness", self.max_staleness, 0, MOST_STALENESS)?;
        self.check_bounds()?;
        self.check_rule()?;
        if !(self.step.start >= 1e-12 && self.step.start <= 1e6) {
            return refuse("step", self.step.start, "between 1e-12 and 1e6");
        }
        if !matches!(self.step.rule, StepRule::Constant | StepRule::InverseRoot) {
            return refuse(
                "step",
                "a rule that needs more than the round's number",
                "constant or inverse-root: the server checks η from the number of the round alone",
            );
        }
        if let Staleness::Polynomial { power } = self.weight
            && !(power > 0.0 && power <= 10.0)
        {
            return refuse("weight", power, "a power above 0, at most 10");
        }
        let outer = Outer::from(self.outer);
        if let Err(error) = outer.check() {
            return refuse("outer", "refused", error.to_string());
        }
        let run = self.run();
        let honest = Honest::new(&self.bounds, self.dimension);
        Ok(Agreed { run, honest, outer, terms: self })
    }

    fn check_bounds(&self) -> Result<(), TermsError> {
        let Bounds { signal, smallest_deviation, largest_deviation, tail } = self.bounds;
        let numbers = [("signal", signal), ("smallest-deviation", smallest_deviation)];
        for (name, value) in numbers.into_iter().chain([("largest-deviation", largest_deviation)]) {
            if !(value > 0.0 && value <= 1e15) {
                return refuse(name, value, "above 0, at most 1e15");
            }
        }
        if smallest_deviation > largest_deviation {
            return refuse("smallest-deviation", smallest_deviation, "at most largest-deviation");
        }
        if !(1.0..=1000.0).contains(&tail) {
            return refuse(
                "tail",
                tail,
                "between 1 and 1000: the false rejection rate is at most 3·e^(-tail)",
            );
        }
        Ok(())
    }

    fn check_rule(&self) -> Result<(), TermsError> {
        let Rule::Buffer { size, combine } = self.rule else { return Ok(()) };
        within("size", size, 1, MOST_BUFFERED)?;
        if let Combine::TrimmedMean { trim } = combine
            && trim.saturating_mul(2) >= size
        {
            return refuse("trim", trim, format!("below half of the buffer's size, {size}"));
        }
        Ok(())
    }

    /// The name of the run: the SHA-256 of the terms as JSON, cut to 16 bytes.
    fn run(&self) -> RunId {
        // A checked value has numbers and texts only, which JSON can always hold.
        let text = serde_json::to_string(self).unwrap_or_default();
        let digest: [u8; 32] = Sha256::digest(text.as_bytes()).into();
        RunId(std::array::from_fn(|i| digest[i]))
    }
}

fn within(name: &'static str, given: u64, least: u64, most: u64) -> Result<(), TermsError> {
    match (least..=most).contains(&given) {
        true => Ok(()),
        false => refuse(name, given, format!("between {least} and {most}")),
    }
}

/// Checked terms.
#[derive(Clone, Debug)]
pub struct Agreed {
    terms: Terms,
    run: RunId,
    honest: Honest,
    outer: Outer,
}

impl Deref for Agreed {
    type Target = Terms;

    fn deref(&self) -> &Terms {
        &self.terms
    }
}

impl Agreed {
    /// Checks terms and shares them.
    pub fn shared(terms: Terms) -> Result<Arc<Self>, TermsError> {
        Ok(Arc::new(terms.check()?))
    }

    /// The name of the run.
    pub fn run(&self) -> RunId {
        self.run
    }

    /// η of a client's round.
    pub fn eta(&self, round: u64) -> f64 {
        self.step.value(&ScheduleState::default(), round, 0, self.rounds)
    }

    /// d.
    pub fn dimension(&self) -> usize {
        self.terms.dimension as usize
    }

    /// Whether a client takes part.
    pub fn has(&self, client: ClientId) -> bool {
        (1..=self.clients).contains(&client.0)
    }

    /// What an honest noised update looks like.
    pub fn honest(&self) -> &Honest {
        &self.honest
    }

    /// The optimizer of the server.
    pub fn outer(&self) -> &Outer {
        &self.outer
    }

    /// The largest frame of an update, in bytes; the smallest too, because all have one length.
    pub fn update_bytes(&self) -> usize {
        crate::wire::update::bytes(self.dimension())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read() {
        assert_eq!("each".parse(), Ok(Rule::EachUpdate));
        assert_eq!("buffer:8".parse(), Ok(Rule::Buffer { size: 8, combine: Combine::Mean }));
        assert_eq!("median:5".parse(), Ok(Rule::Buffer { size: 5, combine: Combine::Median }));
        let trimmed = Rule::Buffer { size: 9, combine: Combine::TrimmedMean { trim: 2 } };
        assert_eq!("trimmed:9:2".parse(), Ok(trimmed));
        for wrong in ["", "each:1", "buffer", "buffer:x", "trimmed:9", "mean:3", "buffer:-1"] {
            assert!(wrong.parse::<Rule>().is_err(), "{wrong}");
        }
    }
}
