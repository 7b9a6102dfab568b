//! What an algorithm A is given, and what it has to give.

use std::fmt;
use std::ops::Range;

use dpsgd_kernels::write2;

use crate::error::PlanError;
use crate::fault::{self, Fault};
use crate::inner::GroupResult;
use crate::model::{ModelError, Worker};
use crate::randomness::{Purpose, Randomness, Stream};

/// Words of the stream that the random bits of one group are taken from: more than any group can use.
const WORDS_OF_GROUP: u64 = 1 << 32;

/// Any first-order algorithm A: from w and the samples of one group to the group's result a_h.
///
/// # Guarantee
///
/// The analysis requires that a_h is a function of w, of the samples of its own group and of random bits of
/// its own. [`GroupContext`] gives access to nothing else, and everything in it starts fresh for every group:
/// the parameters at w, state vectors and the result at zero. What the trainer cannot see is state that an
/// implementation keeps in itself (a `Mutex`, an atomic, a file): there must be none. `dpsgd-audit` looks for
/// it.
///
/// Whatever a_h is, it is clipped to C and noised like any other, so an algorithm can be wrong, slow or
/// unlucky without harm to the guarantee.
///
/// ```
/// use dpsgd_train::{GroupContext, InnerAlgorithm, ModelError};
///
/// /// The gradient at the point that a first gradient step leads to (Korpelevich 1976).
/// #[derive(Debug)]
/// struct ExtraGradient {
///     step: f32,
/// }
///
/// impl InnerAlgorithm for ExtraGradient {
///     fn name(&self) -> &str {
///         "extra-gradient"
///     }
///
///     fn run(&self, group: &mut GroupContext<'_>) -> Result<f32, ModelError> {
///         group.mean_gradient()?;
///         let vectors = group.vectors();
///         for (w, g) in vectors.weights.iter_mut().zip(vectors.gradient) {
///             *w -= self.step * *g;
///         }
///         group.mean_gradient_as_result()
///     }
/// }
/// ```
pub trait InnerAlgorithm: fmt::Debug + Send + Sync {
    /// A short name, for configurations and messages.
    fn name(&self) -> &str;

    /// The name with its constants, for reports.
    fn describe(&self) -> String {
        self.name().to_string()
    }

    /// How many vectors of state a group needs, each of length d.
    fn state_vectors(&self) -> usize {
        0
    }

    /// Refuses constants that make no sense.
    fn check(&self) -> Result<(), PlanError> {
        Ok(())
    }

    /// Whether the length of a_h is bounded however long the gradients are, as with Adam's steps. An audit
    /// chooses its data accordingly; the guarantee does not depend on it.
    fn is_bounded(&self, _result: GroupResult) -> bool {
        false
    }

    /// Runs A on one group and leaves a_h in the result; returns the mean loss.
    fn run(&self, group: &mut GroupContext<'_>) -> Result<f32, ModelError>;
}

/// The vectors of length d that a thread keeps for the groups it works on.
#[derive(Debug)]
pub(crate) struct Scratch {
    gradient: Vec<f32>,
    states: Vec<Vec<f32>>,
    members: Vec<u32>,
}

impl Scratch {
    /// Forgets the last gradient, which is that of another group: a built-in algorithm overwrites it before
    /// it reads it, of others nobody knows.
    pub(crate) fn forget(&mut self) {
        self.gradient.fill(0.0);
    }

    pub(crate) fn new(dimension: usize, vectors: usize) -> Self {
        Self {
            gradient: vec![0.0; dimension],
            states: vec![vec![0.0; dimension]; vectors],
            members: Vec::new(),
        }
    }
}

/// Where the random bits of a group come from.
#[derive(Clone, Copy)]
pub(crate) struct Draws<'a> {
    pub(crate) randomness: &'a Randomness,
    pub(crate) round: u64,
    /// The group's place in the batch.
    pub(crate) group: u64,
}

impl Draws<'_> {
    /// The seed of the group for a [random](crate::Model::is_random) model; each part of a group that is
    /// split has its own.
    ///
    /// # Guarantee
    ///
    /// Uniform, of no data, and independent of the seeds of every other group, part and round, and of
    /// [`GroupContext::stream`].
    pub(crate) fn seed(&self, part: usize) -> u64 {
        let mut stream = self.randomness.stream(Purpose::Model, self.round);
        stream.seek(self.group * WORDS_OF_GROUP + 2 * part as u64);
        stream.bits64()
    }
}

/// One group, as an algorithm A sees it.
pub struct GroupContext<'a> {
    worker: &'a mut dyn Worker,
    start: &'a [f32],
    samples: &'a [u32],
    kind: GroupResult,
    scratch: &'a mut Scratch,
    result: &'a mut [f32],
    draws: Draws<'a>,
    stream: Option<Stream>,
    /// The states that were set to zero.
    vectors: usize,
}

/// The vectors of a group, all of length d.
#[derive(Debug)]
pub struct Vectors<'a> {
    /// w, from which the group starts.
    pub start: &'a [f32],
    /// Where the next gradient is taken.
    pub weights: &'a mut [f32],
    /// The last gradient.
    pub gradient: &'a mut [f32],
    /// As many as [`InnerAlgorithm::state_vectors`] asks for.
    pub states: &'a mut [Vec<f32>],
    /// a_h.
    pub result: &'a mut [f32],
}

/// The same consecutive coordinates of the vectors of a group, and its states whole.
pub(super) struct Stretch<'a> {
    /// Where it begins.
    pub(super) first: usize,
    pub(super) weights: &'a mut [f32],
    pub(super) gradient: &'a [f32],
    pub(super) states: &'a mut [Vec<f32>],
    pub(super) result: &'a mut [f32],
}

impl Stretch<'_> {
    /// Its coordinates.
    pub(super) fn range(&self) -> Range<usize> {
        self.first..self.first + self.gradient.len()
    }
}

impl<'a> GroupContext<'a> {
    /// A fresh group: the parameters at `start`, the states at zero. The result is the caller's to empty.
    pub(crate) fn new(
        worker: &'a mut dyn Worker,
        start: &'a [f32],
        samples: &'a [u32],
        kind: GroupResult,
        vectors: usize,
        (scratch, result): (&'a mut Scratch, &'a mut [f32]),
        draws: Draws<'a>,
    ) -> Self {
        if !fault::injected(Fault::StateLeaks) {
            worker.weights_mut().copy_from_slice(start);
            scratch.states.iter_mut().take(vectors).for_each(|state| state.fill(0.0));
        }
        Self { worker, start, samples, kind, scratch, result, draws, stream: None, vectors }
    }

    /// w, from which the group starts.
    pub fn start(&self) -> &[f32] {
        self.start
    }

    /// The samples of the group, in the random order in which they were drawn.
    pub fn samples(&self) -> &[u32] {
        self.samples
    }

    /// What the plan asks a group's result to be; an algorithm for which that makes no difference ignores it.
    pub fn kind(&self) -> GroupResult {
        self.kind
    }

    /// Takes the mean gradient of the whole group at the present parameters; returns the mean loss.
    pub fn mean_gradient(&mut self) -> Result<f32, ModelError> {
        self.worker.gradient(self.samples, &mut self.scratch.gradient)
    }

    /// Takes the mean gradient of the whole group at the present parameters and makes it the result; returns
    /// the mean loss.
    pub fn mean_gradient_as_result(&mut self) -> Result<f32, ModelError> {
        self.worker.gradient(self.samples, self.result)
    }

    /// Takes the gradient of one sample of the group, by its place in the group; returns its loss.
    pub fn gradient_of(&mut self, member: usize) -> Result<f32, ModelError> {
        let Some(sample) = self.samples.get(member) else { return Err(self.no_member(member)) };
        self.worker.gradient(std::slice::from_ref(sample), &mut self.scratch.gradient)
    }

    /// Takes the mean gradient of some samples of the group, by their places in it; returns their mean loss.
    pub fn gradient_of_some(&mut self, members: &[usize]) -> Result<f32, ModelError> {
        self.scratch.members.clear();
        for &member in members {
            match self.samples.get(member) {
                Some(&sample) => self.scratch.members.push(sample),
                None => return Err(self.no_member(member)),
            }
        }
        if members.is_empty() {
            return Err(ModelError::new("the inner algorithm asked for the mean gradient of no sample"));
        }
        self.worker.gradient(&self.scratch.members, &mut self.scratch.gradient)
    }

    fn no_member(&self, member: usize) -> ModelError {
        let size = self.samples.len();
        ModelError::new(format!("the inner algorithm asked for sample {member} of a group of {size}"))
    }

    /// Takes the gradient of one sample of the group, by its place in the group, and takes a step with it,
    /// stretch by stretch while it is in the cache; returns its loss.
    pub(super) fn step_of(
        &mut self,
        member: usize,
        step: &mut dyn FnMut(Stretch<'_>),
    ) -> Result<f32, ModelError> {
        let Some(sample) = self.samples.get(member) else { return Err(self.no_member(member)) };
        let Scratch { gradient, states, .. } = &mut *self.scratch;
        let (states, result) = (&mut states[..self.vectors], &mut *self.result);
        self.worker.gradient_in_parts(
            std::slice::from_ref(sample),
            gradient,
            &mut |first, weights, gradient| {
                let result = &mut result[first..][..gradient.len()];
                step(Stretch { first, weights, gradient, states, result });
            },
        )
    }

    /// The vectors of the group, to read and write.
    pub fn vectors(&mut self) -> Vectors<'_> {
        Vectors {
            start: self.start,
            weights: self.worker.weights_mut(),
            gradient: &mut self.scratch.gradient,
            // Beyond these, another group may have left something.
            states: &mut self.scratch.states[..self.vectors],
            result: self.result,
        }
    }

    /// Makes (w − w_end)/step the result, w_end being the present parameters.
    pub fn difference_as_result(&mut self, step: f64) {
        let inverse = (1.0 / step) as f32;
        let end: &[f32] = self.worker.weights_mut();
        write2(self.result, self.start, end, |from, to| (from - to) * inverse);
    }

    /// Random bits of this group's own: the same whenever the round is performed with the same key, and
    /// independent of those of every other group and round.
    ///
    /// # Guarantee
    ///
    /// They depend on no data. Groups of a round have independent bits by their places in the batch, so given
    /// the batch the results of different groups stay independent functions of their own samples.
    pub fn stream(&mut self) -> &mut Stream {
        let Draws { randomness, round, group } = self.draws;
        self.stream.get_or_insert_with(|| {
            let mut stream = randomness.stream(Purpose::Inner, round);
            stream.seek(group * WORDS_OF_GROUP);
            stream
        })
    }
}
