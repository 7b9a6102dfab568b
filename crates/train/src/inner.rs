//! The inner algorithms A: from w and the samples of one group to the group's result a_h.
//!
//! # Guarantee
//!
//! The state of an algorithm starts fresh in every group, so a_h depends on w and on the samples
//! of its own group only, as the analysis requires.

mod adagrad;
mod adam;
#[cfg(test)]
mod golden;
mod momentum;
mod rmsprop;
mod sgd;

use crate::error::{PlanError, within};
use crate::fault::{self, Fault};
use crate::model::Worker;
use crate::simd;

/// An algorithm A. All but the first take the samples of a group one at a time, in the random
/// order in which they were drawn; constants and semantics are PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq)]
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
}

/// What a group's result a_h is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
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
        Some(match name {
            "gradient" => Inner::Gradient,
            "sgd" => Inner::Sgd { step },
            "momentum" => Inner::Momentum { step, momentum: 0.9 },
            "adam" => Inner::Adam { step, beta1: 0.9, beta2: 0.999, epsilon: 1e-8 },
            "adagrad" => Inner::AdaGrad { step, epsilon: 1e-10 },
            "rmsprop" => Inner::RmsProp { step, alpha: 0.99, epsilon: 1e-8 },
            _ => return None,
        })
    }

    /// The name used in configurations.
    pub fn name(&self) -> &'static str {
        match self {
            Inner::Gradient => "gradient",
            Inner::Sgd { .. } => "sgd",
            Inner::Momentum { .. } => "momentum",
            Inner::Adam { .. } => "adam",
            Inner::AdaGrad { .. } => "adagrad",
            Inner::RmsProp { .. } => "rmsprop",
        }
    }

    /// η of the inner loop; the mean gradient has none.
    pub fn step(&self) -> Option<f64> {
        match *self {
            Inner::Gradient => None,
            Inner::Sgd { step }
            | Inner::Momentum { step, .. }
            | Inner::Adam { step, .. }
            | Inner::AdaGrad { step, .. }
            | Inner::RmsProp { step, .. } => Some(step),
        }
    }

    /// How many vectors of state a group needs.
    pub(crate) fn vectors(&self) -> usize {
        match self {
            Inner::Gradient | Inner::Sgd { .. } => 0,
            Inner::Momentum { .. } | Inner::AdaGrad { .. } | Inner::RmsProp { .. } => 1,
            Inner::Adam { .. } => 2,
        }
    }

    fn check(&self) -> Result<(), PlanError> {
        let fades = "it must fade";
        let divides = "the denominator must not vanish";
        if let Some(step) = self.step() {
            within("inner-step", step, 1e-9, 1e3, "beyond, single precision loses it")?;
        }
        match *self {
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
}

impl InnerSequence {
    /// A_b of round b of its epoch, the given round of the run.
    pub fn at(&self, round: u64, round_of_epoch: u64) -> Inner {
        match self {
            InnerSequence::Cycle(list) => list[(round_of_epoch % list.len() as u64) as usize],
            InnerSequence::Pieces(pieces) => {
                let after = pieces.partition_point(|&(start, _)| start <= round);
                pieces[after.saturating_sub(1)].1
            }
        }
    }

    /// Every algorithm in it.
    pub fn algorithms(&self) -> Vec<Inner> {
        match self {
            InnerSequence::Cycle(list) => list.clone(),
            InnerSequence::Pieces(pieces) => pieces.iter().map(|&(_, inner)| inner).collect(),
        }
    }

    pub(crate) fn check(&self) -> Result<(), PlanError> {
        let algorithms = self.algorithms();
        if algorithms.is_empty() {
            return Err(PlanError::new("inner", "none", "at least one algorithm", "a round runs one"));
        }
        algorithms.iter().try_for_each(Inner::check)?;
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

/// The vectors one thread needs for one group, made once.
#[derive(Debug)]
pub(crate) struct Scratch {
    gradient: Vec<f32>,
    first: Vec<f32>,
    second: Vec<f32>,
}

impl Scratch {
    pub(crate) fn new(dimension: usize, vectors: usize) -> Self {
        let state = |wanted: bool| vec![0.0; if wanted { dimension } else { 0 }];
        Self { gradient: vec![0.0; dimension], first: state(vectors >= 1), second: state(vectors >= 2) }
    }
}

/// Runs A on one group from `start` and overwrites `result` with a_h; returns the mean loss.
///
/// Leaves the worker's parameters wherever the algorithm ended, except for the mean gradient,
/// which needs them at `start` and leaves them there.
pub(crate) fn run(
    inner: Inner,
    kind: GroupResult,
    worker: &mut impl Worker,
    start: &[f32],
    group: &[u32],
    scratch: &mut Scratch,
    result: &mut [f32],
) -> f32 {
    let Some(step) = inner.step() else { return worker.gradient(group, result) };
    if !fault::injected(Fault::StateLeaks) {
        worker.weights_mut().copy_from_slice(start);
        scratch.first.fill(0.0);
        scratch.second.fill(0.0);
    }
    // Plain SGD walks by η times the gradients, so its end tells their sum.
    let sums = kind == GroupResult::SumOfGradients && !matches!(inner, Inner::Sgd { .. });
    if sums {
        result.fill(0.0);
    }
    let mut losses = 0.0;
    for (taken, sample) in group.iter().enumerate() {
        losses += worker.gradient(std::slice::from_ref(sample), &mut scratch.gradient);
        let Scratch { gradient, first, second } = &mut *scratch;
        let weights = worker.weights_mut();
        let sum = sums.then_some(&mut *result);
        match inner {
            // Has returned above: it has no step.
            Inner::Gradient => {}
            Inner::Sgd { step } => simd::each2(weights, gradient, sgd::step(step)),
            Inner::Momentum { step, momentum } => {
                with_one(weights, first, sum, gradient, momentum::step(step, momentum));
            }
            Inner::Adam { step, beta1, beta2, epsilon } => {
                let constants = simd::Adam::new(step, beta1, beta2, epsilon, taken as u64 + 1);
                with_two(weights, first, second, sum, gradient, adam::step(constants));
            }
            Inner::AdaGrad { step, epsilon } => {
                with_one(weights, first, sum, gradient, adagrad::step(step, epsilon));
            }
            Inner::RmsProp { step, alpha, epsilon } => {
                with_one(weights, first, sum, gradient, rmsprop::step(step, alpha, epsilon));
            }
        }
    }
    if !sums {
        let inverse = (1.0 / step) as f32;
        let end: &[f32] = worker.weights_mut();
        simd::write2(result, start, end, |from, to| (from - to) * inverse);
    }
    losses / group.len() as f32
}

/// One step of an algorithm with one vector of state, and the sum of gradients in the same pass.
fn with_one(
    weights: &mut [f32],
    state: &mut [f32],
    sum: Option<&mut [f32]>,
    gradient: &[f32],
    step: impl Fn(&mut f32, &mut f32, f32),
) {
    match sum {
        None => simd::each3(weights, state, gradient, step),
        Some(sum) => simd::each4(weights, state, sum, gradient, |w, v, sum, g| {
            *sum += g;
            step(w, v, g);
        }),
    }
}

/// The same with two vectors of state.
fn with_two(
    weights: &mut [f32],
    first: &mut [f32],
    second: &mut [f32],
    sum: Option<&mut [f32]>,
    gradient: &[f32],
    step: impl Fn(&mut f32, &mut f32, &mut f32, f32),
) {
    match sum {
        None => simd::each4(weights, first, second, gradient, step),
        Some(sum) => simd::each5(weights, first, second, sum, gradient, |w, m, v, sum, g| {
            *sum += g;
            step(w, m, v, g);
        }),
    }
}
