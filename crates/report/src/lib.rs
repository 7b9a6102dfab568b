//! Privacy accounts and training runs as statements, JSON, charts and self-contained pages.
//!
//! Values in, text out: nothing here reads a file, knows a command line or trains a model.
//!
//! | module | what it makes |
//! |---|---|
//! | [`statement`] | an account as a statement for people |
//! | [`json`] | an account as JSON |
//! | [`curve`] | the trade-off functions of one or more runs as charts |
//! | [`run`] | the page and the summary of a training run |
#![cfg_attr(feature = "audit", doc = "| [`audit`] | the statement, page and JSON of an audit |")]
//! | [`chart`] | line charts as SVG and PNG |
//! | [`html`] | the building blocks of a page |
//! | [`rounding`], [`text`] | numbers for people, each bound rounded to its safe side |
//!
//! From a run to a statement and a picture:
//!
//! ```
//! use dpsgd_privacy::account::{Account, Question};
//! use dpsgd_privacy::mechanism::{Length, NoiseScale, PhaseConfig, RunConfig, Sampling};
//! use dpsgd_report::curve::{CurveRun, Tradeoff};
//! use dpsgd_report::{Sizes, statement};
//!
//! let mechanism = RunConfig::single(PhaseConfig {
//!     sampling: Sampling::Subsample { samples: 60_000, groups: 64, group_size: 1 },
//!     length: Length::Epochs(100),
//!     noise: NoiseScale::Sigma(2.0),
//!     filtered: false,
//! })
//! .check()?;
//! let question = Question::epsilon_at(1e-5)?;
//!
//! let account = Account::of(&mechanism, question, &[])?;
//! let text = statement::account(&account, Sizes::default());
//! assert!(text.contains("0.744682"));
//!
//! let run = CurveRun { name: String::new(), mechanism: &mechanism, question, alphas: &[] };
//! let svg = Tradeoff::of(&[run])?.svg();
//! assert!(svg.starts_with("<svg"));
//! # Ok::<(), dpsgd_privacy::PrivacyError>(())
//! ```
//!
//! # Guarantee
//!
//! A bound is never printed smaller than it is: ε, δ, µ and the power of attacks are the certified upper ends
//! of their intervals, rounded up ([`rounding::up`]); what an attack proved is rounded down.

#[cfg(feature = "audit")]
pub mod audit;
pub mod chart;
pub mod curve;
pub mod html;
pub mod json;
pub mod rounding;
pub mod run;
pub mod statement;
pub mod text;

use dpsgd_privacy::Account;
use dpsgd_privacy::account::Guarantee;

/// The public sizes of a run that a Poisson mechanism does not contain, for display only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// N, if it is public.
    pub samples: Option<u64>,
    /// m, if it was given instead of a rate.
    pub groups: Option<u64>,
}

/// The false-alarm rates at which an account states the power of attacks.
///
/// An account that was read from a file may lack what one computed by [`Account::of`] always has.
fn reported_alphas(account: &Account) -> Vec<f64> {
    let first = account.guarantees.first();
    first.map(|given| given.tradeoff.iter().map(|point| point.0).collect()).unwrap_or_default()
}

/// The power of the best attack at a false-alarm rate that the account reports.
pub fn detected(given: &Guarantee, alpha: f64) -> String {
    let point = given.tradeoff.iter().find(|point| point.0 == alpha);
    point.map_or("–".to_string(), |point| text::percent(point.1))
}
