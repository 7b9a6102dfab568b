//! Algorithm 1 with other noise than it is accounted for, or none: what the real one is compared with.
//!
//! Nothing here is private, and nothing here is used by `dpsgd train`. The sampler and the gradients are
//! those of the trainer.

use dpsgd_train::clip::norm;
use dpsgd_train::noise::standard_normals;
use dpsgd_train::sampler::Sampler;
use dpsgd_train::{Model, Native, Outer, Plan, Purpose, Randomness, TrainerState};
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::Failure;

/// A run.
pub struct Altered<'m> {
    plan: Plan,
    pool: ThreadPool,
    /// A worker and its sum for every thread.
    workers: Vec<(<Native<'m> as Model>::Worker<'m>, Vec<f32>)>,
    sampler: Sampler,
    randomness: Randomness,
    /// Whether group results are clipped to the plan's C.
    clipped: bool,
    /// The standard deviation of the noise on the sum.
    deviation: f64,
    noise: Vec<f32>,
    state: TrainerState,
}

impl<'m> Altered<'m> {
    /// Goes on from a state. `factor` times the noise of the plan; none, and no clipping, for `None`.
    pub fn new(
        plan: Plan,
        model: &'m Native<'m>,
        state: TrainerState,
        randomness: Randomness,
        factor: Option<f64>,
    ) -> Result<Self, Failure> {
        if plan.config().outer != Outer::Plain {
            return Err(Failure::Input("altered noise goes with plain steps only".into()));
        }
        let threads = plan.threads();
        let pool = ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .map_err(|error| Failure::Machine(error.to_string()))?;
        let workers = (0..threads).map(|_| (model.worker(), vec![0.0; model.dimension()])).collect();
        let sigma = plan.mechanism().phases()[0].sigma();
        let deviation = factor.unwrap_or(0.0) * 2.0 * plan.config().clipping.start * sigma;
        Ok(Self {
            pool,
            workers,
            sampler: Sampler::new(model.samples() as u32),
            randomness,
            clipped: factor.is_some(),
            deviation,
            noise: vec![0.0; if deviation > 0.0 { model.dimension() } else { 0 }],
            plan,
            state,
        })
    }

    /// The next round; η if it ends its epoch.
    pub fn round(&mut self) -> Option<f64> {
        let round = self.state.round;
        let position = self.plan.position(round);
        let eta = self.plan.config().step.value(&self.state.step, round, position.epoch);
        let bound = self.plan.config().clipping.start;
        let batch = self.sampler.batch(&self.plan, &position, &self.randomness);
        let (size, clipped) = (batch.group_size, self.clipped);
        let m = batch.samples.len() / size;
        let factor = move |norm: f64| match clipped {
            _ if !norm.is_finite() => 0.0,
            true if norm > bound => bound / norm,
            _ => 1.0,
        };
        // One group is split over the threads and clipped as a whole afterwards.
        let whole = m == 1;
        let unit = if whole { 1 } else { size };
        let share = (batch.samples.len() / unit).div_ceil(self.workers.len()) * unit;
        let weights = &self.state.weights;
        self.pool.scope(|scope| {
            let mut parts = batch.samples.chunks(share);
            for (worker, sum) in &mut self.workers {
                let part = parts.next();
                scope.spawn(move |_| {
                    let Some(part) = part else { return sum.fill(0.0) };
                    worker.weights_mut().copy_from_slice(weights);
                    if whole {
                        worker.gradient(part, sum);
                        let weight = part.len() as f32 / size as f32;
                        sum.iter_mut().for_each(|value| *value *= weight);
                    } else {
                        sum.fill(0.0);
                        worker.add_scaled(part, size, &mut |norm| factor(f64::from(norm)) as f32, sum);
                    }
                });
            }
        });
        let Some(((_, sum), rest)) = self.workers.split_first_mut() else { return Some(eta) };
        for (_, other) in rest {
            sum.iter_mut().zip(other).for_each(|(sum, other)| *sum += *other);
        }
        let scale = if whole { factor(norm(sum)) } else { 1.0 };
        let step = eta / m as f64;
        let (signal, noise) = ((step * scale) as f32, (step * self.deviation) as f32);
        if scale > 0.0 {
            self.state.weights.iter_mut().zip(&*sum).for_each(|(w, u)| *w -= signal * u);
        }
        if noise > 0.0 {
            standard_normals(&mut self.randomness.stream(Purpose::Noise, round), &mut self.noise);
            self.state.weights.iter_mut().zip(&self.noise).for_each(|(w, n)| *w -= noise * n);
        }
        self.state.round += 1;
        (position.epoch_end == self.state.round).then_some(eta)
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
