//! The named checks: what a trade-off curve alone would show late or not at all.

mod clipping;
pub(crate) mod groups;
mod ledger;
mod noise;
mod same_key;
mod sampling;
mod threads;

pub use clipping::clipping;
pub use groups::groups;
pub use ledger::ledger;
pub use noise::{independence, noise};
pub use sampling::{filter, sampling};
pub use threads::threads;

/// What a check says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing speaks against the implementation.
    Passed,
    /// The implementation is not the one that is claimed about.
    Failed,
    /// It has nothing to say about this mechanism.
    NotApplicable,
}

/// A named check with its outcome.
#[derive(Clone, Debug)]
pub struct Check {
    /// Its name.
    pub name: &'static str,
    /// What is checked, in a sentence.
    pub what: &'static str,
    /// What it says.
    pub verdict: Verdict,
    /// The figures, or the first thing that is wrong.
    pub detail: String,
    /// The probability with which it fails at most, on a correct implementation.
    pub level: f64,
}

impl Check {
    fn new(name: &'static str, what: &'static str, level: f64) -> Self {
        Self { name, what, verdict: Verdict::Passed, detail: String::new(), level }
    }

    /// Notes what is wrong; the first finding is kept.
    fn fail(&mut self, why: String) {
        if self.verdict != Verdict::Failed {
            self.verdict = Verdict::Failed;
            self.detail = why;
        }
    }

    /// Figures, unless something is wrong.
    fn note(&mut self, detail: String) {
        if self.verdict != Verdict::Failed {
            self.detail = detail;
        }
    }

    fn not_applicable(mut self, why: &str) -> Self {
        self.verdict = Verdict::NotApplicable;
        self.detail = why.to_string();
        self
    }

    /// Whether it failed.
    pub fn failed(&self) -> bool {
        self.verdict == Verdict::Failed
    }
}
