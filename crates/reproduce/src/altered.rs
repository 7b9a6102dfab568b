//! Algorithm 1 with noise other than what it is accounted for, or none: what the real one is compared with.
//!
//! Nothing here is private, and `dpsgd train` uses nothing of it. Sampler and gradients are those of the
//! trainer. The trainer itself cannot do it: a plan needs σ ≥ 0.05, and the comparison goes down to no noise
//! at all. Where the noise is as printed, the trainer runs instead (`Runner` in the laboratory).

use dpsgd::Error;
use dpsgd_train::clip::norm;
use dpsgd_train::noise::standard_normals;
use dpsgd_train::sampler::Sampler;
use dpsgd_train::{Model, ModelError, Outer, Plan, Purpose, Randomness, RoundError, TrainerState, Worker};
use rayon::ThreadPool;
use std::sync::Arc;

use crate::error;

/// A run.
pub struct Altered<M: Model> {
    plan: Arc<Plan>,
    pool: ThreadPool,
    /// One for each thread.
    shares: Vec<Share<M::Worker>>,
    sampler: Sampler,
    randomness: Randomness,
    /// Whether group results are clipped to the plan's C.
    clipped: bool,
    /// The standard deviation of the noise on the sum.
    deviation: f64,
    noise: Vec<f32>,
    state: TrainerState,
}

/// What one thread adds up.
struct Share<W> {
    worker: W,
    sum: Vec<f32>,
    done: Result<(), ModelError>,
}

impl<M: Model> Altered<M> {
    /// Continues from a state. The noise of the plan times `factor`; no noise and no clipping for `None`.
    pub fn new(
        plan: Arc<Plan>,
        model: &Arc<M>,
        state: TrainerState,
        randomness: Randomness,
        factor: Option<f64>,
    ) -> Result<Self, Error> {
        if plan.config().outer != Outer::Plain {
            return Err(Error::Refused("altered noise: only with plain steps".into()));
        }
        let threads = plan.threads();
        let share = || -> Result<_, ModelError> {
            let worker = model.worker(plan.largest_group())?;
            Ok(Share { worker, sum: vec![0.0; model.dimension()], done: Ok(()) })
        };
        let shares = (0..threads).map(|_| share()).collect::<Result<_, _>>();
        let sigma = plan.mechanism().phases()[0].sigma();
        let deviation = factor.unwrap_or(0.0) * 2.0 * plan.config().clipping.start * sigma;
        Ok(Self {
            pool: error::pool(threads)?,
            shares: shares.map_err(dpsgd_train::TrainerError::Model)?,
            sampler: Sampler::new(model.samples() as u32),
            randomness,
            clipped: factor.is_some(),
            deviation,
            noise: vec![0.0; if deviation > 0.0 { model.dimension() } else { 0 }],
            plan,
            state,
        })
    }

    /// Performs the next round; returns η if it ends its epoch.
    pub fn round(&mut self) -> Result<Option<f64>, Error> {
        let round = self.state.round;
        let position = self.plan.position(round);
        let rounds = self.plan.rounds();
        let eta = self.plan.config().step.value(&self.state.step, round, position.epoch, rounds);
        let bound = self.plan.config().clipping.start;
        let clipped = self.clipped;
        let factor = move |norm: f64| match clipped {
            _ if !norm.is_finite() => 0.0,
            true if norm > bound => bound / norm,
            _ => 1.0,
        };
        let batch = self.sampler.batch(&self.plan, &position, &self.randomness);
        let size = batch.group_size;
        let groups = batch.samples.len() / size;
        let summed = add(&self.pool, &mut self.shares, &self.state.weights, (batch.samples, size), factor);
        let sum = summed.map_err(|source| RoundError::Model { round, source })?;
        let scale = if groups == 1 { factor(norm(sum)) } else { 1.0 };
        let step = eta / groups as f64;
        let (signal, noise) = ((step * scale) as f32, (step * self.deviation) as f32);
        if scale > 0.0 {
            self.state.weights.iter_mut().zip(sum).for_each(|(w, u)| *w -= signal * u);
        }
        if noise > 0.0 {
            standard_normals(&mut self.randomness.stream(Purpose::Noise, round), &mut self.noise);
            self.state.weights.iter_mut().zip(&self.noise).for_each(|(w, n)| *w -= noise * n);
        }
        self.state.round += 1;
        Ok((position.epoch_end == self.state.round).then_some(eta))
    }

    /// Takes note of the accuracy after an epoch.
    pub fn saw_accuracy(&mut self, accuracy: f64) {
        let step = self.plan.config().step;
        step.saw_accuracy(&mut self.state.step, accuracy);
    }

    /// What a checkpoint must hold.
    pub fn state(&self) -> &TrainerState {
        &self.state
    }
}

/// The sum of the scaled group results of a batch; the plain result where there is only one group, whose
/// samples are split over the threads and clipped as a whole afterwards.
fn add<'s, W: Worker>(
    pool: &ThreadPool,
    shares: &'s mut [Share<W>],
    weights: &[f32],
    (samples, size): (&[u32], usize),
    factor: impl Fn(f64) -> f64 + Copy + Send + Sync,
) -> Result<&'s [f32], ModelError> {
    let whole = samples.len() == size;
    let unit = if whole { 1 } else { size };
    let length = (samples.len() / unit).div_ceil(shares.len()) * unit;
    pool.scope(|scope| {
        let mut parts = samples.chunks(length);
        for Share { worker, sum, done } in &mut *shares {
            let part = parts.next();
            scope.spawn(move |_| {
                sum.fill(0.0);
                let Some(part) = part else { return };
                worker.weights_mut().copy_from_slice(weights);
                *done = if whole {
                    let weight = part.len() as f32 / size as f32;
                    let result = worker.gradient(part, sum);
                    sum.iter_mut().for_each(|value| *value *= weight);
                    result.map(drop)
                } else {
                    let mut scale = |norm: f32| factor(f64::from(norm)) as f32;
                    worker.add_scaled(part, size, &mut scale, sum).map(drop)
                };
            });
        }
    });
    for share in &mut *shares {
        std::mem::replace(&mut share.done, Ok(()))?;
    }
    let Some((first, rest)) = shares.split_first_mut() else { return Ok(&[]) };
    for other in rest {
        first.sum.iter_mut().zip(&other.sum).for_each(|(sum, other)| *sum += *other);
    }
    Ok(&first.sum)
}
