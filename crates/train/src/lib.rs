//! Algorithm 1: differentially private SGD with any inner algorithm, sampler and clipped group size.
//!
//! ```
//! use dpsgd_privacy::mechanism::*;
//! use dpsgd_train::*;
//!
//! /// The mean of private numbers, as a model: loss ½(w − x)².
//! struct Mean(Vec<f32>);
//! struct Thread<'a>(&'a [f32], [f32; 1]);
//!
//! impl Model for Mean {
//!     type Worker<'a> = Thread<'a>;
//!     fn dimension(&self) -> usize { 1 }
//!     fn samples(&self) -> usize { self.0.len() }
//!     fn worker(&self) -> Thread<'_> { Thread(&self.0, [0.0]) }
//! }
//!
//! impl Worker for Thread<'_> {
//!     fn weights_mut(&mut self) -> &mut [f32] { &mut self.1 }
//!     fn gradient(&mut self, group: &[u32], gradient: &mut [f32]) -> f32 {
//!         let errors = group.iter().map(|&i| self.1[0] - self.0[i as usize]);
//!         gradient[0] = errors.clone().sum::<f32>() / group.len() as f32;
//!         errors.map(|e| 0.5 * e * e).sum::<f32>() / group.len() as f32
//!     }
//! }
//!
//! /// A real run charges a ledger on disk.
//! struct Forgetful;
//! impl Charge for Forgetful {
//!     type Error = std::convert::Infallible;
//!     fn charge(&mut self, _round: u64) -> Result<(), Self::Error> { Ok(()) }
//! }
//!
//! let model = Mean((0..1000).map(|i| (i % 7) as f32).collect());
//! let mechanism = RunConfig::single(PhaseConfig {
//!     sampling: Sampling::Shuffle { samples: 1000, groups: 50, group_size: 2 },
//!     length: Length::Epochs(20),
//!     noise: Noise::Sigma(1.0),
//!     filtered: false,
//! })
//! .check()?;
//! let plan = PlanConfig::new(mechanism, 4.0, 0.1).check()?;
//! let mut trainer = Trainer::new(plan, &model, vec![0.0], Randomness::from_seed(1, 0))?;
//! while !trainer.finished() {
//!     let round = trainer.round(&mut Forgetful)?;
//!     assert_eq!(round.update.len(), 1);
//! }
//! assert!((trainer.weights()[0] - 3.0).abs() < 0.5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`model`] | what the algorithm asks of a model |
//! | [`native`] | the networks of the engine as such models |
//! | [`plan`] | the whole of a run, checked once |
//! | [`trainer`] | the rounds |
//! | [`sampler`] | which samples a round uses |
//! | [`inner`] | the algorithms A inside a group |
//! | [`clip`] | the clip and the sum that knows its sensitivity |
//! | [`noise`] | the Gaussian noise |
//! | [`outer`] | what w does with the noised update |
//! | [`schedule`] | η and C from round to round |
//! | [`hook`] | the post-processing B |
//! | [`randomness`] | every random draw |
//! | [`ledger`] | what is spent, on the disk before it is spent |
//! | [`checkpoint`] | what an interrupted run goes on from |
//! | [`directory`] | the files of a run |
//! | [`fault`] | what can be made to go wrong, in a copy for tests only |

pub mod checkpoint;
pub mod clip;
pub mod directory;
pub mod error;
pub mod fault;
pub mod hook;
pub mod inner;
pub mod ledger;
pub mod model;
pub mod native;
pub mod noise;
pub mod outer;
pub mod plan;
pub mod randomness;
pub mod sampler;
pub mod schedule;
mod simd;
pub mod trainer;

pub use error::{PlanError, RoundError, TrainerError};
pub use hook::Hook;
pub use inner::{GroupResult, Inner, InnerSequence};
pub use model::{Model, Worker};
pub use native::Native;
pub use noise::NoiseKind;
pub use outer::{Outer, OuterState};
pub use plan::{Plan, PlanConfig, Position};
pub use randomness::{NoEntropy, Purpose, Randomness, Stream};
pub use schedule::{Rule, Schedule, ScheduleState};
pub use trainer::{Charge, Diagnostics, Interrupt, Round, Trainer, TrainerState};
