//! The inner algorithms A: from w and the samples of one group to the group's result a_h.
//!
//! The paper allows any first-order algorithm: [`InnerAlgorithm`] is the trait, and [`Inner`] holds the
//! built-in ones or one of the user's own.
//!
//! # Guarantee
//!
//! The state of an algorithm starts fresh in every group, so a_h depends on w and on the samples
//! of its own group only, as the analysis requires.

mod adagrad;
mod adam;
pub(crate) mod algorithm;
pub mod constants;
#[cfg(all(test, feature = "native"))]
mod golden;
mod momentum;
mod rmsprop;
mod sgd;
mod walk;

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use self::algorithm::{GroupContext, InnerAlgorithm, Vectors};

use self::algorithm::{Draws, Scratch};
use crate::error::{PlanError, within};
use crate::model::{ModelError, Worker};

/// An algorithm A. All built-in ones but the first take the samples of a group one at a time, in the
/// random order in which they were drawn; constants and semantics are PyTorch's.
#[derive(Clone)]
#[non_exhaustive]
pub enum Inner {
    /// The mean gradient of the group at w.
    Gradient,
    /// Classical SGD.
    Sgd {
        /// η of the inner loop.
        step: f64,
    },
    /// SGD with momentum: v ← µv + g.
    Momentum {
        /// η of the inner loop.
        step: f64,
        /// µ.
        momentum: f64,
    },
    /// Adam.
    Adam {
        /// η of the inner loop.
        step: f64,
        /// β₁.
        beta1: f64,
        /// β₂.
        beta2: f64,
        /// ε.
        epsilon: f64,
    },
    /// AdaGrad.
    AdaGrad {
        /// η of the inner loop.
        step: f64,
        /// ε.
        epsilon: f64,
    },
    /// RMSProp.
    RmsProp {
        /// η of the inner loop.
        step: f64,
        /// α.
        alpha: f64,
        /// ε.
        epsilon: f64,
    },
    /// An algorithm of the user's own.
    Custom(Arc<dyn InnerAlgorithm>),
}

/// Custom algorithms are equal if they are the same value.
impl PartialEq for Inner {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Inner::Custom(one), Inner::Custom(other)) => Arc::ptr_eq(one, other),
            (Inner::Custom(_), _) | (_, Inner::Custom(_)) => false,
            (one, other) => one.name() == other.name() && one.constants() == other.constants(),
        }
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Inner::Custom(algorithm) => fmt::Debug::fmt(algorithm, f),
            builtin => f.write_str(&builtin.describe()),
        }
    }
}

/// What a group's result a_h is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum GroupResult {
    /// The sum of the gradients the algorithm used (the paper's eq. batchclip).
    #[default]
    SumOfGradients,
    /// (w − w_end)/η with the η of the inner loop.
    ModelDifference,
}

/// The sequence {A_b}.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum InnerSequence {
    /// Round b = 0, 1, … *of every epoch* uses the algorithm at b modulo the length.
    Cycle(Vec<Inner>),
    /// From the given round of the run on (counted from 0; the first must be 0, rising).
    Pieces(Vec<(u64, Inner)>),
}

impl From<Inner> for InnerSequence {
    fn from(inner: Inner) -> Self {
        InnerSequence::Cycle(vec![inner])
    }
}

impl Inner {
    /// By the name used in configurations, with PyTorch's constants and the given inner step.
    pub fn named(name: &str, step: f64) -> Option<Self> {
        use constants::*;
        Some(match name {
            "gradient" => Inner::Gradient,
            "sgd" => Inner::Sgd { step },
            "momentum" => Inner::Momentum { step, momentum: MOMENTUM },
            "adam" => Inner::Adam { step, beta1: ADAM_BETA1, beta2: ADAM_BETA2, epsilon: ADAM_EPSILON },
            "adagrad" => Inner::AdaGrad { step, epsilon: ADAGRAD_EPSILON },
            "rmsprop" => Inner::RmsProp { step, alpha: RMSPROP_ALPHA, epsilon: RMSPROP_EPSILON },
            _ => return None,
        })
    }

    /// An algorithm of the user's own.
    pub fn custom(algorithm: impl InnerAlgorithm + 'static) -> Self {
        Inner::Custom(Arc::new(algorithm))
    }

    /// The name used in configurations.
    pub fn name(&self) -> &str {
        match self {
            Inner::Gradient => "gradient",
            Inner::Sgd { .. } => "sgd",
            Inner::Momentum { .. } => "momentum",
            Inner::Adam { .. } => "adam",
            Inner::AdaGrad { .. } => "adagrad",
            Inner::RmsProp { .. } => "rmsprop",
            Inner::Custom(algorithm) => algorithm.name(),
        }
    }

    /// The constants by name; those of a custom algorithm are its own affair.
    fn constants(&self) -> Vec<(&'static str, f64)> {
        match *self {
            Inner::Gradient | Inner::Custom(_) => Vec::new(),
            Inner::Sgd { step } => vec![("step", step)],
            Inner::Momentum { step, momentum } => vec![("step", step), ("momentum", momentum)],
            Inner::Adam { step, beta1, beta2, epsilon } => {
                vec![("step", step), ("beta1", beta1), ("beta2", beta2), ("epsilon", epsilon)]
            }
            Inner::AdaGrad { step, epsilon } => vec![("step", step), ("epsilon", epsilon)],
            Inner::RmsProp { step, alpha, epsilon } => {
                vec![("step", step), ("alpha", alpha), ("epsilon", epsilon)]
            }
        }
    }

    /// η of the inner loop; the mean gradient has none, and a custom algorithm keeps its own.
    pub fn step(&self) -> Option<f64> {
        match *self {
            Inner::Gradient | Inner::Custom(_) => None,
            Inner::Sgd { step }
            | Inner::Momentum { step, .. }
            | Inner::Adam { step, .. }
            | Inner::AdaGrad { step, .. }
            | Inner::RmsProp { step, .. } => Some(step),
        }
    }
}

impl InnerAlgorithm for Inner {
    fn name(&self) -> &str {
        Inner::name(self)
    }

    fn describe(&self) -> String {
        if let Inner::Custom(algorithm) = self {
            return algorithm.describe();
        }
        let constants: Vec<String> =
            self.constants().iter().map(|(name, value)| format!("{name} {value}")).collect();
        match constants.is_empty() {
            true => self.name().to_string(),
            false => format!("{} ({})", self.name(), constants.join(", ")),
        }
    }

    fn state_vectors(&self) -> usize {
        match self {
            Inner::Gradient | Inner::Sgd { .. } => 0,
            Inner::Momentum { .. } | Inner::AdaGrad { .. } | Inner::RmsProp { .. } => 1,
            Inner::Adam { .. } => 2,
            Inner::Custom(algorithm) => algorithm.state_vectors(),
        }
    }

    fn is_bounded(&self, result: GroupResult) -> bool {
        match self {
            Inner::Gradient | Inner::Sgd { .. } | Inner::Momentum { .. } => false,
            Inner::Adam { .. } | Inner::AdaGrad { .. } | Inner::RmsProp { .. } => {
                result == GroupResult::ModelDifference
            }
            Inner::Custom(algorithm) => algorithm.is_bounded(result),
        }
    }

    fn check(&self) -> Result<(), PlanError> {
        let fades = "it must fade";
        let divides = "the denominator must not vanish";
        if let Some(step) = self.step() {
            within("inner-step", step, 1e-9, 1e3, "beyond, single precision loses it")?;
        }
        match *self {
            Inner::Custom(ref algorithm) => algorithm.check(),
            Inner::Gradient | Inner::Sgd { .. } => Ok(()),
            Inner::Momentum { momentum, .. } => within("inner-momentum", momentum, 0.0, 0.99999, fades),
            Inner::Adam { beta1, beta2, epsilon, .. } => {
                within("inner-beta1", beta1, 0.0, 0.99999, fades)?;
                within("inner-beta2", beta2, 0.0, 0.999999, fades)?;
                within("inner-epsilon", epsilon, 1e-30, 1.0, divides)
            }
            Inner::AdaGrad { epsilon, .. } => within("inner-epsilon", epsilon, 1e-30, 1.0, divides),
            Inner::RmsProp { alpha, epsilon, .. } => {
                within("inner-alpha", alpha, 0.0, 0.99999, fades)?;
                within("inner-epsilon", epsilon, 1e-30, 1.0, divides)
            }
        }
    }

    fn run(&self, group: &mut GroupContext<'_>) -> Result<f32, ModelError> {
        match *self {
            Inner::Gradient => group.mean_gradient_as_result(),
            Inner::Sgd { step } => sgd::run(group, step),
            Inner::Momentum { step, momentum } => momentum::run(group, step, momentum),
            Inner::Adam { step, beta1, beta2, epsilon } => adam::run(group, step, (beta1, beta2), epsilon),
            Inner::AdaGrad { step, epsilon } => adagrad::run(group, step, epsilon),
            Inner::RmsProp { step, alpha, epsilon } => rmsprop::run(group, step, alpha, epsilon),
            Inner::Custom(ref algorithm) => algorithm.run(group),
        }
    }
}

/// Runs A on one group from `start` and overwrites `result` with a_h; returns the mean loss.
///
/// Leaves the worker's parameters wherever the algorithm ended.
pub(crate) fn run(
    inner: &Inner,
    kind: GroupResult,
    worker: &mut impl Worker,
    (start, samples): (&[f32], &[u32]),
    (scratch, result): (&mut Scratch, &mut [f32]),
    draws: Draws<'_>,
) -> Result<f32, ModelError> {
    // The mean gradient moves no parameters and has no state: they are at `start` already.
    if matches!(inner, Inner::Gradient) {
        return worker.gradient(samples, result);
    }
    // The built-in algorithms overwrite the result; of others nobody knows.
    if let Inner::Custom(_) = inner {
        result.fill(0.0);
        scratch.forget();
    }
    let vectors = inner.state_vectors();
    inner.run(&mut GroupContext::new(worker, start, samples, kind, vectors, (scratch, result), draws))
}

impl InnerSequence {
    /// A_b of round b of its epoch, the given round of the run.
    pub fn at(&self, round: u64, round_of_epoch: u64) -> &Inner {
        match self {
            InnerSequence::Cycle(list) => &list[(round_of_epoch % list.len() as u64) as usize],
            InnerSequence::Pieces(pieces) => {
                let after = pieces.partition_point(|(start, _)| *start <= round);
                &pieces[after.saturating_sub(1)].1
            }
        }
    }

    /// The same sequence with every algorithm replaced.
    pub fn map(&self, mut replace: impl FnMut(&Inner) -> Inner) -> Self {
        match self {
            InnerSequence::Cycle(list) => InnerSequence::Cycle(list.iter().map(replace).collect()),
            InnerSequence::Pieces(pieces) => {
                InnerSequence::Pieces(pieces.iter().map(|(start, inner)| (*start, replace(inner))).collect())
            }
        }
    }

    /// Every algorithm in it.
    pub fn algorithms(&self) -> Vec<Inner> {
        match self {
            InnerSequence::Cycle(list) => list.clone(),
            InnerSequence::Pieces(pieces) => pieces.iter().map(|(_, inner)| inner.clone()).collect(),
        }
    }

    pub(crate) fn check(&self) -> Result<(), PlanError> {
        let algorithms = self.algorithms();
        if algorithms.is_empty() {
            return Err(PlanError::new("inner", "none", "at least one algorithm", "a round runs one"));
        }
        algorithms.iter().try_for_each(InnerAlgorithm::check)?;
        if let InnerSequence::Pieces(pieces) = self
            && (pieces[0].0 != 0 || !pieces.is_sorted_by(|a, b| a.0 < b.0))
        {
            let starts: Vec<_> = pieces.iter().map(|piece| piece.0.to_string()).collect();
            return Err(PlanError::new(
                "inner",
                format!("pieces from rounds {}", starts.join(", ")),
                "rising rounds, the first 0",
                "every round runs exactly one algorithm",
            ));
        }
        Ok(())
    }
}
