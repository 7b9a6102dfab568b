//! Train models with differential privacy, and know exactly what the training leaks.
//!
//! Settings are written once and resolved once; everything else reads the result:
//!
//! ```
//! use dpsgd::RawSettings;
//!
//! // What would this run leak?
//! let settings = RawSettings {
//!     samples: Some(60_000),
//!     groups: Some(256),
//!     epochs: Some(30),
//!     sigma: Some(1.0),
//!     ..Default::default()
//! }
//! .resolve()?;
//! let account = settings.account()?;
//! println!("{}", dpsgd::report::statement::trained(&account, dpsgd::Sizes::default()));
//! # Ok::<(), dpsgd::Error>(())
//! ```
//!
//! A run of a built-in network on a data set is [`Prepared`]; a run of any other model is a [`Job`]. Both
//! become a [`Run`], which charges a ledger before every round, saves checkpoints, measures on public
//! samples, and writes a report. A directory that a run left is a [`SavedRun`]: evaluate it, predict with it,
//! verify it.
//!
//! | module | what it holds |
//! |---|---|
//! | [`settings`] | one configuration, raw then resolved; the table of defaults |
//! | [`run`] | a run from its first round to its end |
//! | [`prepare`] | data set and network of a native run |
//! | [`saved`], [`verify`] | run directories that are read |
//! | [`shared_ledger`] | what all runs have spent, remembered outside of their directories |
//! | [`evaluation`] | how a model does on samples it was not trained on |
//! | [`predict`], [`pytorch`] | the model on new samples, here and in PyTorch |
//! | [`sweep`], [`compare`] | many runs: what they reach and leak together, the best chosen privately |
//! | [`canaries`] | the training once more, with canaries |
//! | [`observer`] | how a run shows itself |
//! | [`browse`] | what a page about mechanisms and runs shows |
//!
//! The crates below are re-exported: [`privacy`] (what a run leaks), [`train`] (Algorithm 1 over any model),
//! [`engine`] (the CPU engine), [`data`], [`audit`] and [`report`].

pub mod browse;
pub mod canaries;
pub mod compare;
mod date;
mod error;
pub mod evaluation;
pub mod facts;
pub mod inputs;
pub mod net;
pub mod observer;
mod per_sample;
pub mod predict;
pub mod prepare;
pub mod pytorch;
pub mod run;
pub mod saved;
mod sealed;
pub mod settings;
pub mod shared_ledger;
pub mod sweep;
mod temperature;
pub mod verify;

pub use dpsgd_audit as audit;
pub use dpsgd_data as data;
pub use dpsgd_engine as engine;
pub use dpsgd_privacy as privacy;
pub use dpsgd_report as report;
pub use dpsgd_train as train;

pub use dpsgd_report::Sizes;
pub use error::{Blame, Error};
pub use evaluation::{Evaluate, Evaluation, MeasuredBy};
pub use observer::{Observer, Outlook};
pub use per_sample::{PerSample, PerSampleWorker};
pub use predict::Predictions;
pub use prepare::Prepared;
pub use run::{Done, Job, Outcome, Run};
pub use saved::SavedRun;
pub use settings::{RawSettings, Settings, SettingsError};
pub use shared_ledger::SharedLedger;

// What is trained must be the trainer that is accounted for: the copy into which the audit's tests inject
// faults must never be part of this library. See `dpsgd_train::fault` for why no feature can bring it in.
const _: () = assert!(!dpsgd_train::fault::POSSIBLE);
