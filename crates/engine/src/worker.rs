//! What one thread needs to run a network: its weights, and buffers for the values and gradients of a chunk.
//!
//! A chunk is as many samples as fit in the cache. The steps before the first linear layer run sample by
//! sample; the linear layers run on the whole chunk, which makes each of them one multiplication that reads
//! its weights once.

mod backward;
mod forward;
mod room;

use std::mem::take;
use std::sync::Arc;

use dpsgd_kernels::{Level, elementwise};

use crate::layer::dropout;
use crate::layer::loss::{self, Label};
use crate::network::Network;
use crate::views::{Augment, Seen, Views};
pub use backward::Parts;
use backward::Sink;
use room::Room;

/// Samples by index. The engine asks for them from several threads.
pub trait Samples: Send + Sync {
    /// How many there are.
    fn count(&self) -> usize;
    /// Writes the input of a sample: rows of pixels of channels.
    fn copy_input(&self, index: u32, out: &mut [f32]);
    /// The target of the sample. Gradients and [`GradientWorker::evaluate`] use it, outputs do not.
    fn label(&self, index: u32) -> Label<'_>;
    /// What the loss of the sample is multiplied by: a public function of the sample, such as a constant for
    /// its class.
    fn weight(&self, _index: u32) -> f32 {
        1.0
    }
}

/// Runs a network on samples, for one thread.
///
/// ```
/// use std::sync::Arc;
/// use dpsgd_engine::{GradientWorker, Label, Level, Network, Samples, zoo};
///
/// /// Points on a line, positive or negative.
/// struct Points(Vec<f32>);
/// impl Samples for Points {
///     fn count(&self) -> usize {
///         self.0.len()
///     }
///     fn copy_input(&self, index: u32, out: &mut [f32]) {
///         out[0] = self.0[index as usize];
///     }
///     fn label(&self, index: u32) -> Label<'_> {
///         Label::Class(u32::from(self.0[index as usize] > 0.0))
///     }
/// }
///
/// let network = Arc::new(Network::new(&zoo::logistic([1, 1, 1], 2))?);
/// let points = Arc::new(Points(vec![-2.0, -1.0, 1.0, 2.0]));
/// let mut worker = GradientWorker::new(network.clone(), points, 1, Level::best());
///
/// // Ten steps of gradient descent, every sample's gradient clipped to norm 1.
/// let mut w = vec![0.0; network.dimension()];
/// for _ in 0..10 {
///     worker.weights_mut().copy_from_slice(&w);
///     let mut sum = vec![0.0; network.dimension()];
///     worker.add_scaled(&[0, 1, 2, 3], 1, &mut |norm| (1.0 / norm).min(1.0), &mut sum);
///     w.iter_mut().zip(&sum).for_each(|(w, g)| *w -= 0.1 * g);
/// }
/// worker.weights_mut().copy_from_slice(&w);
/// assert_eq!(worker.evaluate(&[0, 1, 2, 3]).right, 4);
/// # Ok::<(), dpsgd_engine::NetworkError>(())
/// ```
pub struct GradientWorker {
    network: Arc<Network>,
    samples: Arc<dyn Samples>,
    room: Room,
    /// The gradient of a group of several samples.
    group: Vec<f32>,
    seeds: Seeds,
    /// α of label smoothing.
    smoothing: f32,
    augment: Option<Augment>,
    views: Views,
    /// The numbers of the views of a group.
    numbers: Vec<u32>,
}

/// The random bits of dropout layers.
#[derive(Default)]
struct Seeds {
    of_groups: Vec<u64>,
    /// How many gradients have been taken since.
    draws: u64,
}

impl Seeds {
    /// Writes what decides for the samples of a part of group `h` that begins with sample `first` of it.
    fn write(&self, h: usize, first: usize, samples: usize, keys: &mut Vec<u64>) {
        let of_sample = |seed: u64, i: usize| dropout::key(seed, self.draws, i);
        keys.extend(
            self.of_groups
                .get(h)
                .into_iter()
                .flat_map(|&seed| (first..first + samples).map(move |i| of_sample(seed, i))),
        );
    }
}

impl GradientWorker {
    /// `group_size` matters only for batch normalisation, where a chunk is a group of that many samples (or
    /// of more: a larger group makes room for itself).
    ///
    /// # Panics
    /// Its methods panic if this machine cannot run the level.
    pub fn new(network: Arc<Network>, samples: Arc<dyn Samples>, group_size: usize, level: Level) -> Self {
        let room = Room::new(&network, group_size, level);
        Self {
            network,
            samples,
            room,
            group: Vec::new(),
            seeds: Seeds::default(),
            smoothing: 0.0,
            augment: None,
            views: Views::default(),
            numbers: Vec::new(),
        }
    }

    /// Takes gradients of the loss with smoothed labels: (1 − α) for the class and α/K for each of the K
    /// classes. What [`GradientWorker::evaluate`] measures stays the plain loss; the squared loss has no
    /// labels to smooth.
    pub fn smoothed(self, alpha: f32) -> Self {
        Self { smoothing: alpha, ..self }
    }

    /// Lets it take the gradients of views of the samples; see [`GradientWorker::views_mut`].
    pub fn augmented(self, augment: Augment) -> Self {
        Self { augment: Some(augment), ..self }
    }

    /// What it was told by [`GradientWorker::augmented`].
    pub fn augment(&self) -> Option<Augment> {
        self.augment
    }

    /// The views of the samples of the next gradients. The gradient of a group is then the mean over all
    /// views of all its samples. A group with a sample that has no views is taken as it is.
    pub fn views_mut(&mut self) -> &mut Views {
        &mut self.views
    }

    /// The network it runs.
    pub fn network(&self) -> &Arc<Network> {
        &self.network
    }

    /// The parameters at which the next gradients are taken.
    pub fn weights_mut(&mut self) -> &mut [f32] {
        self.room.weights_mut(self.network.dimension())
    }

    /// Gives every group of the next call its random bits, for dropout: the first group has the first seed.
    /// They last until they are replaced, and every further call takes other bits from them. Which values are
    /// dropped is a function of the seed of the group, of the number of calls since, and of the position of a
    /// sample in its group.
    ///
    /// Without a seed a gradient is taken as in an evaluation: nothing is dropped.
    pub fn seed(&mut self, seeds: &[u64]) {
        self.seeds.of_groups.clear();
        self.seeds.of_groups.extend_from_slice(seeds);
        self.seeds.draws = 0;
    }

    /// Overwrites `gradient` with the mean gradient over the samples; returns their mean loss.
    pub fn gradient(&mut self, group: &[u32], gradient: &mut [f32]) -> f32 {
        let loss = self.gradient_of_group(0, group, gradient);
        self.seeds.draws += 1;
        loss
    }

    /// Hands the mean gradient over the samples to `part`, which may change the parameters: every coordinate
    /// once, in any order, with the parameter it belongs to. Returns the mean loss.
    ///
    /// The gradient is the one that [`gradient`](Self::gradient) would write, bit for bit, as long as `part`
    /// leaves finite parameters. That of one sample is never written down whole: the steps of an algorithm meet
    /// it in the first-level cache.
    pub fn gradient_in_parts(&mut self, group: &[u32], part: &mut Parts) -> f32 {
        if let [sample] = *group
            && self.augment.is_none()
        {
            let loss = self.sample_in_parts(sample, part);
            self.seeds.draws += 1;
            return loss;
        }
        let mut gradient = take(&mut self.group);
        gradient.resize(self.network.dimension(), 0.0);
        let loss = self.gradient(group, &mut gradient);
        part(0, self.weights_mut(), &gradient);
        self.group = gradient;
        loss
    }

    fn sample_in_parts(&mut self, sample: u32, part: &mut Parts) -> f32 {
        let (network, samples, room) = (&*self.network, &*self.samples, &mut self.room);
        room.refresh(network);
        room.expect_parts(network);
        room.keys.clear();
        self.seeds.write(0, 0, 1, &mut room.keys);
        room.forward(network, samples, &[sample]);
        let loss = room.losses(network, samples, &[sample], 1.0, self.smoothing);
        room.backward(network, 1, Sink::Parts(part));
        loss
    }

    /// [`gradient`](Self::gradient) of group `h` of a call.
    fn gradient_of_group(&mut self, h: usize, group: &[u32], gradient: &mut [f32]) -> f32 {
        let seeds = |first, samples, keys: &mut Vec<u64>| self.seeds.write(h, first, samples, keys);
        if self.augment.is_some() && self.views.of(group, &mut self.numbers) {
            let (samples, views, shape) = (&*self.samples, &self.views, self.network.spec().input);
            let seen = Seen { samples, views, shape };
            let mean =
                Mean { network: &self.network, samples: &seen, smoothing: self.smoothing, seeds: &seeds };
            return mean.over(&mut self.room, &self.numbers, gradient);
        }
        let samples = &*self.samples;
        let mean = Mean { network: &self.network, samples, smoothing: self.smoothing, seeds: &seeds };
        mean.over(&mut self.room, group, gradient)
    }

    /// Splits the samples into groups of `size`, and adds each group's mean gradient to `sum`, multiplied by
    /// what `scale` returns for its norm. Where that is 0 nothing is added, whatever the gradient is. Returns
    /// the sum of the groups' mean losses.
    ///
    /// `scale` is called once for each group, in order. The norm has a relative error below 6e-6, and a group
    /// enters a coordinate of the sum by one rounded addition (single samples of a chunk in a linear layer:
    /// one for each, and one for the chunk).
    pub fn add_scaled(
        &mut self,
        samples: &[u32],
        size: usize,
        scale: &mut dyn FnMut(f32) -> f32,
        sum: &mut [f32],
    ) -> f32 {
        if size == 1 && self.augment.is_none() {
            return self.add_scaled_samples(samples, scale, sum);
        }
        // The gradient of a group is formed explicitly: the gradients of its samples may cancel, and then no
        // formula for the norm from its parts has the promised error.
        let level = self.room.level;
        let mut gradient = take(&mut self.group);
        gradient.resize(self.network.dimension(), 0.0);
        let mut loss = 0.0;
        for (h, group) in samples.chunks(size).enumerate() {
            loss += self.gradient_of_group(h, group, &mut gradient);
            let factor = scale(elementwise::square(level, &gradient).sqrt() as f32);
            if factor != 0.0 {
                elementwise::add_scaled(level, factor, &gradient, sum);
            }
        }
        self.group = gradient;
        self.seeds.draws += 1;
        loss
    }

    /// Groups of one sample: the gradients of linear layers are never formed.
    fn add_scaled_samples(
        &mut self,
        batch: &[u32],
        scale: &mut dyn FnMut(f32) -> f32,
        sum: &mut [f32],
    ) -> f32 {
        let (network, samples, room) = (&*self.network, &*self.samples, &mut self.room);
        room.refresh(network);
        let mut loss = 0.0;
        for (first, chunk) in (0..).step_by(room.capacity).zip(batch.chunks(room.capacity)) {
            room.keys.clear();
            (first..first + chunk.len()).for_each(|h| self.seeds.write(h, 0, 1, &mut room.keys));
            room.forward(network, samples, chunk);
            loss += room.losses(network, samples, chunk, 1.0, self.smoothing);
            room.squares.fill(0.0);
            room.backward(network, chunk.len(), Sink::Samples);
            for i in 0..chunk.len() {
                let factor = scale(room.norm(network, i));
                room.add_dense(network, i, factor, sum);
                room.scale_linear(network, i, factor);
            }
            room.add_linear(network, chunk.len(), sum);
        }
        self.seeds.draws += 1;
        loss
    }

    /// Measures the network on the samples.
    pub fn evaluate(&mut self, batch: &[u32]) -> Measured {
        let (network, samples, room) = (&*self.network, &*self.samples, &mut self.room);
        room.refresh(network);
        room.keys.clear();
        let mut measured = Measured::default();
        for chunk in batch.chunks(room.capacity) {
            room.forward(network, samples, chunk);
            for (i, &index) in chunk.iter().enumerate() {
                let right = loss::is_right(network.loss, room.outputs(network, i), samples.label(index));
                measured.right += usize::from(right);
            }
            measured.loss += f64::from(room.losses(network, samples, chunk, 1.0, 0.0));
            measured.samples += chunk.len();
        }
        measured
    }

    /// The outputs of one sample, before softmax or the logistic function.
    pub fn outputs(&mut self, index: u32) -> &[f32] {
        let (network, room) = (&*self.network, &mut self.room);
        room.refresh(network);
        room.keys.clear();
        room.forward(network, &*self.samples, &[index]);
        room.outputs(network, 0)
    }

    /// The outputs of a batch of samples, one row of [`Network::outputs`] numbers for each, before softmax
    /// or the logistic function. [`Network::probabilities`] and [`Network::predicted_class`] interpret a row.
    ///
    /// Without batch normalisation a row depends on its own sample alone; with it, on the `group_size`
    /// samples it is computed with.
    pub fn scores(&mut self, batch: &[u32]) -> Vec<f32> {
        let (network, room) = (&*self.network, &mut self.room);
        room.refresh(network);
        room.keys.clear();
        let mut scores = Vec::with_capacity(batch.len() * network.outputs());
        for chunk in batch.chunks(room.capacity) {
            room.forward(network, &*self.samples, chunk);
            for i in 0..chunk.len() {
                scores.extend_from_slice(room.outputs(network, i));
            }
        }
        scores
    }
}

/// The mean gradient over some samples.
struct Mean<'a> {
    network: &'a Network,
    samples: &'a dyn Samples,
    smoothing: f32,
    /// Writes what decides which values are dropped, for a number of samples from the given one on.
    seeds: &'a dyn Fn(usize, usize, &mut Vec<u64>),
}

impl Mean<'_> {
    /// Overwrites `gradient` with the mean over `group`; returns the mean loss.
    fn over(&self, room: &mut Room, group: &[u32], gradient: &mut [f32]) -> f32 {
        let Self { network, samples, smoothing, seeds } = *self;
        if network.has_batch_norm() && group.len() > room.capacity {
            // It normalises over the whole group.
            room.grow(network, group.len());
        }
        room.refresh(network);
        let weight = 1.0 / group.len() as f32;
        let mut loss = 0.0;
        for (i, chunk) in group.chunks(room.capacity).enumerate() {
            room.keys.clear();
            seeds(i * room.capacity, chunk.len(), &mut room.keys);
            room.forward(network, samples, chunk);
            loss += room.losses(network, samples, chunk, weight, smoothing);
            room.backward(network, chunk.len(), Sink::Flat { gradient, fresh: i == 0 });
        }
        loss * weight
    }
}

/// How well a network does on some samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// The number of samples evaluated.
    pub samples: usize,
    /// The sum of their losses.
    pub loss: f64,
    /// The number classified correctly.
    pub right: usize,
}
