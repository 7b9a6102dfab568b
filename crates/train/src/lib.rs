//! Algorithm 1: differentially private SGD with any inner algorithm, sampler and clipped group size.
//!
//! A model says how to compute the gradient of a group of samples; a plan says what to do with it; a ledger
//! owns the plan and writes down what is spent; a [`Trainer`] performs the rounds.
//!
//! ```
//! use std::sync::Arc;
//!
//! use dpsgd_privacy::mechanism::*;
//! use dpsgd_train::*;
//!
//! /// The mean of private numbers, as a model: loss ½(w − x)².
//! struct Mean(Vec<f32>);
//! struct Thread(Arc<Mean>, [f32; 1]);
//!
//! impl Model for Mean {
//!     type Worker = Thread;
//!     fn dimension(&self) -> usize { 1 }
//!     fn samples(&self) -> usize { self.0.len() }
//!     fn worker(self: &Arc<Self>, _group_size: usize) -> Result<Thread, ModelError> {
//!         Ok(Thread(self.clone(), [0.0]))
//!     }
//! }
//!
//! impl Worker for Thread {
//!     fn weights_mut(&mut self) -> &mut [f32] { &mut self.1 }
//!     fn gradient(&mut self, group: &[u32], gradient: &mut [f32]) -> Result<f32, ModelError> {
//!         let errors = group.iter().map(|&i| self.1[0] - self.0.0[i as usize]);
//!         gradient[0] = errors.clone().sum::<f32>() / group.len() as f32;
//!         Ok(errors.map(|e| 0.5 * e * e).sum::<f32>() / group.len() as f32)
//!     }
//! }
//!
//! let model = Arc::new(Mean((0..1000).map(|i| (i % 7) as f32).collect()));
//! let mechanism = RunConfig::single(PhaseConfig {
//!     sampling: Sampling::Shuffle { samples: 1000, groups: 50, group_size: 2 },
//!     length: Length::Epochs(20),
//!     noise: NoiseScale::Sigma(1.0),
//!     filtered: false,
//! })
//! .check()?;
//! let plan = PlanConfig::new(mechanism, 4.0, 0.1).check()?;
//! // A run on private data charges a ledger on disk: `directory::RunDirectory::start`.
//! let ledger = Unrecorded::new(plan);
//! let mut trainer = Trainer::new(ledger, model, vec![0.0], Randomness::from_seed(1, 0))?;
//! while !trainer.finished() {
//!     let round = trainer.round()?;
//!     assert_eq!(round.update.len(), 1);
//! }
//! assert!((trainer.weights()[0] - 3.0).abs() < 0.5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`model`] | what the algorithm asks of a model |
//! | `native` | the networks of the engine as such models (feature `native`) |
//! | [`plan`] | everything about a run, checked once |
//! | [`charge`] | the permission to spend a round's privacy |
//! | [`trainer`] | the rounds |
//! | [`sampler`] | which samples a round uses |
//! | [`inner`] | the algorithms A inside a group |
//! | [`clip`] | the clip and the sum that knows its sensitivity |
//! | [`noise`] | the Gaussian noise |
//! | [`outer`] | what w does with the noised update |
//! | [`schedule`] | η and C from round to round |
//! | [`average`] | the average of the iterates beside w |
//! | [`hook`] | the post-processing B |
//! | [`randomness`] | every random draw |
//! | [`ledger`] | what is spent, on the disk before it is spent |
//! | [`checkpoint`] | what an interrupted run resumes from |
//! | [`directory`] | the files of a run |
//! | [`fault`] | what can be made to go wrong, in a copy for tests only |

mod adam;
pub mod average;
pub mod charge;
pub mod checkpoint;
pub mod clip;
pub mod directory;
pub mod error;
pub mod fault;
pub mod hook;
pub mod inner;
pub mod ledger;
pub mod model;
#[cfg(feature = "native")]
pub mod native;
pub mod noise;
pub mod outer;
pub mod plan;
pub mod randomness;
pub mod sampler;
pub mod schedule;
pub mod share;
pub mod trainer;

pub use average::{Average, AverageState};
pub use charge::{Charge, Unrecorded};
pub use error::{PlanError, RoundError, TrainerError};
pub use hook::Hook;
pub use inner::{GroupContext, GroupResult, Inner, InnerAlgorithm, InnerSequence, Vectors};
pub use model::{Form, Model, ModelError, PartSink, RowSink, SampleBits, Worker};
#[cfg(feature = "native")]
pub use native::Native;
pub use noise::NoiseKind;
pub use outer::{Outer, OuterOptimizer, OuterState, OuterStep};
pub use plan::{Plan, PlanConfig, Position};
pub use randomness::{NoEntropy, Purpose, Randomness, Stream};
pub use schedule::{Rule, Schedule, ScheduleState, Shape};
pub use trainer::{
    Begun, Diagnostics, Interrupt, MissingField, Parked, Received, Round, Trainer, TrainerState,
};
