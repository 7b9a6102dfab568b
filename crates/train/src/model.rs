//! What Algorithm 1 asks of a model: the mean gradient of a group of samples at given parameters.
//!
//! A model comes in one of two forms. Most compute one group at a time, on every thread of the trainer; they
//! implement [`Worker::gradient`] and, if they can be faster, [`Worker::add_scaled`]. A model in another
//! runtime (Python, a GPU) computes many groups at once, on one thread: it chooses [`Form::Rows`] and
//! implements [`Worker::rows`]. Its worker is only ever called on the thread that calls
//! [`Trainer::round`](crate::Trainer::round); the trainer's own threads take the norms, clip, sum and draw
//! noise.

use std::error::Error;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

use crate::clip;
use crate::randomness::{Purpose, Randomness, Stream};
use crate::share::{Block, UnitSink};

/// A model as Algorithm 1 sees it: flat parameters and numbered training samples.
pub trait Model: Send + Sync + 'static {
    /// The state of one thread.
    type Worker: Worker;

    /// d, the number of parameters.
    fn dimension(&self) -> usize;

    /// N, the number of training samples; they are named 0..N.
    fn samples(&self) -> usize;

    /// Whether a group's mean gradient is the mean of its samples' gradients (false with batch
    /// normalisation); if so, the trainer may split a large group over threads.
    fn separable(&self) -> bool {
        true
    }

    /// Whether gradients depend on random bits, as with dropout. If so, the trainer gives them to every
    /// worker by [`Worker::seed`].
    fn is_random(&self) -> bool {
        false
    }

    /// How its workers deliver gradients.
    fn form(&self) -> Form {
        Form::Groups
    }

    /// What one thread needs, for groups of at most `group_size` samples; made once per thread. Where groups
    /// are the cells of a random allocation, that is only about how many they hold: one may be larger.
    ///
    /// The trainer passes the largest group size of the plan, so a model that cannot work with groups of that
    /// size refuses here, before anything is charged.
    fn worker(self: &Arc<Self>, group_size: usize) -> Result<Self::Worker, ModelError>;
}

/// How a model's workers deliver gradients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Form {
    /// One group at a time, with a worker on every thread of the trainer.
    #[default]
    Groups,
    /// Many groups at a time through [`Worker::rows`], with one worker, on the thread that calls
    /// [`Trainer::round`](crate::Trainer::round).
    Rows {
        /// The most groups of one call.
        chunk: NonZeroUsize,
    },
    /// Whole units at a time through [`Worker::units`], clipped and summed already, because other processes
    /// have a share in them; with one worker, on the thread that calls
    /// [`Trainer::round`](crate::Trainer::round). Algorithms that take more than one gradient of a group
    /// use [`Worker::gradient`] of this one worker.
    Units {
        /// The most groups that are differentiated at once.
        chunk: NonZeroUsize,
        /// The most blocks of one call.
        window: NonZeroUsize,
    },
}

/// Receives the rows of some groups, in order: one stretch per parameter tensor and one loss per group.
///
/// With k losses and a parameter of d_p values, its stretch is a k × d_p matrix, row by row; the d_p add up
/// to d.
pub type RowSink<'a> = dyn FnMut(&[&[f32]], &[f32]) + Send + 'a;

/// Receives a gradient stretch by stretch: where it begins, the parameters there, and their gradient.
pub type PartSink<'a> = dyn FnMut(usize, &mut [f32], &[f32]) + 'a;

/// Where the random bits of some samples of a round come from.
///
/// # Guarantee
///
/// They depend on no data. A sample's bits are named by the round, by its group's place in the batch and by
/// its own place in the group, in a stream that serves no other purpose: so those of different groups are
/// independent, and none depends on the number of threads.
#[derive(Clone, Copy)]
pub struct SampleBits<'a> {
    pub(crate) randomness: &'a Randomness,
    pub(crate) round: u64,
    /// The place of the first sample's group in the batch.
    pub(crate) group: u64,
    /// The place of the first sample in its group.
    pub(crate) member: u64,
    /// The samples of a group.
    pub(crate) size: u64,
}

/// Words of the stream for a sample, and for a group, as powers of two: more than can be used.
const WORDS: (u32, u32) = (12, 40);

impl SampleBits<'_> {
    /// The bits of the i-th of the samples.
    pub fn stream(&self, i: usize) -> Stream {
        let place = self.member + i as u64;
        let (group, member) = (self.group + place / self.size, place % self.size);
        let mut stream = self.randomness.stream(Purpose::Views, self.round);
        stream.seek((group << WORDS.1) | (member << WORDS.0));
        stream
    }
}

/// Gradients on one thread.
///
/// # Guarantee
///
/// The result of a call may depend on the parameters and on the samples of the group only, never on an
/// earlier call and never on other groups of the same call: the guarantee of a run rests on it. A
/// [random](Model::is_random) model may also depend on the seed of the group and on the number of calls since
/// it was given.
pub trait Worker: Send {
    /// The parameters at which the next gradients are taken (length d), to be overwritten in place.
    fn weights_mut(&mut self) -> &mut [f32];

    /// Random bits for a [random](Model::is_random) model: one seed for each group of the next call. Further
    /// calls before the next seeds are about the same groups, in which an algorithm A takes several
    /// gradients.
    ///
    /// # Guarantee
    ///
    /// Seeds are uniform, depend on no data, and are independent between groups and rounds. What a worker
    /// draws for a group must be a function of that group's seed, and of no other source: then the results of
    /// different groups stay independent functions of their own samples.
    fn seed(&mut self, _seeds: &[u64]) {}

    /// Announces the samples of the next calls, whole groups or parts of one, with random bits of their own
    /// for a model that needs some (views of images). Called before the gradients of these samples, on the
    /// same thread; not with [`Form::Rows`].
    ///
    /// Provided: it does nothing.
    fn prepare(&mut self, _samples: &[u32], _bits: &SampleBits<'_>) {}

    /// Overwrites `gradient` (length d) with the mean gradient over the samples of `group`;
    /// returns the mean loss.
    fn gradient(&mut self, group: &[u32], gradient: &mut [f32]) -> Result<f32, ModelError>;

    /// Takes the mean gradient over the samples of `group` and hands it to `part`, which may change the
    /// parameters: every coordinate exactly once, in any number of stretches and in any order, each with where
    /// it begins, the parameters there, and their gradient at the parameters before the call. Returns the mean
    /// loss. `room` has length d.
    ///
    /// Provided by [`Worker::gradient`], in one stretch; an engine that hands over what is still in the cache
    /// is faster.
    fn gradient_in_parts(
        &mut self,
        group: &[u32],
        room: &mut [f32],
        part: &mut PartSink<'_>,
    ) -> Result<f32, ModelError> {
        let loss = self.gradient(group, room)?;
        part(0, self.weights_mut(), room);
        Ok(loss)
    }

    /// For every consecutive `size` samples of `samples` (a group): g = mean gradient,
    /// factor = scale(‖g‖), `sum += factor·g`. A factor of 0 adds nothing at all, even if g is
    /// NaN or infinite; scale is called exactly once per group, in order. Returns the sum over
    /// groups of the mean losses.
    ///
    /// The norm handed to `scale` must be within a relative [`clip::NORM_ERROR`] of the true one.
    /// After an error the trainer discards `sum`.
    ///
    /// Provided by [`Worker::gradient`]; an engine that never materialises a group's gradient is
    /// much faster.
    fn add_scaled(
        &mut self,
        samples: &[u32],
        size: usize,
        scale: &mut dyn FnMut(f32) -> f32,
        sum: &mut [f32],
    ) -> Result<f32, ModelError> {
        let mut gradient = vec![0.0; sum.len()];
        let mut losses = 0.0;
        for group in samples.chunks_exact(size) {
            losses += self.gradient(group, &mut gradient)?;
            let factor = scale(clip::norm(&gradient) as f32);
            if factor != 0.0 {
                for (total, &g) in sum.iter_mut().zip(&gradient) {
                    *total += factor * g;
                }
            }
        }
        Ok(losses)
    }

    /// Hands the mean gradients of the groups of `samples` (every consecutive `size` of them) to `sink`, in
    /// order, in as many calls as suit the worker. Used with [`Form::Rows`] only.
    ///
    /// The rows are what is clipped and added, so the worker computes neither norms nor sums. A sink that
    /// gets rows of the wrong shape, or more or fewer than there are groups, ends the round with an error.
    ///
    /// Provided by [`Worker::gradient`], one row at a time.
    fn rows(&mut self, samples: &[u32], size: usize, sink: &mut RowSink<'_>) -> Result<(), ModelError> {
        let mut gradient = vec![0.0; self.weights_mut().len()];
        for group in samples.chunks_exact(size) {
            let loss = self.gradient(group, &mut gradient)?;
            sink(&[&gradient], &[loss]);
        }
        Ok(())
    }

    /// Hands the sums of all units of some blocks to `sink`, in order. Used with [`Form::Units`] only.
    ///
    /// # Guarantee
    ///
    /// A sum must be what [`Block::sum`] makes of the block at these weights, with this C and chunk, in whatever
    /// process: the sensitivity of the round rests on it. What no such sum can be ends the round with an
    /// error.
    ///
    /// Provided by [`Block::sum`] with this worker.
    fn units(
        &mut self,
        blocks: &[Block],
        bound: f64,
        chunk: NonZeroUsize,
        sink: &mut UnitSink<'_>,
    ) -> Result<(), ModelError>
    where
        Self: Sized,
    {
        for block in blocks {
            block.sum(self, bound, chunk.get(), None, sink)?;
        }
        Ok(())
    }
}

/// A model could not compute what it was asked for.
///
/// The message is for the owner of the data: it may quote a private sample.
#[derive(Debug)]
pub struct ModelError {
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl ModelError {
    /// With a message and nothing else.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), source: None }
    }

    pub(crate) fn miscounted(given: usize, expected: usize) -> Self {
        Self::new(format!("the model wrote the rows of {given} groups where it was asked for {expected}"))
    }

    /// Caused by another error, whose message it takes over.
    pub fn caused_by(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let source = source.into();
        Self { message: source.to_string(), source: Some(source) }
    }

    /// The cause, if there is one, for whoever knows its type.
    pub fn cause(&self) -> Option<&(dyn Error + Send + Sync + 'static)> {
        self.source.as_deref()
    }
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for ModelError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}
