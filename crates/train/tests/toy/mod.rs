//! A small model in plain double precision: one hidden layer of tanh, squared loss. Optionally the
//! inputs are centred over the group, so that a group's gradient is not the mean of its samples'.
#![allow(dead_code)]

use std::num::NonZeroUsize;
use std::sync::Arc;

use dpsgd_privacy::mechanism::{Length, Mechanism, NoiseScale, PhaseConfig, RunConfig, Sampling};
use dpsgd_train::{Charge, Form, Model, ModelError, Plan, RowSink, Worker};

pub const INPUTS: usize = 50;
pub const HIDDEN: usize = 41;
/// More than one block of noise, and odd.
pub const DIMENSION: usize = INPUTS * HIDDEN + HIDDEN + 2;

/// SplitMix64 (Steele, Lea and Flood 2014): data for tests, nothing to do with the run's randomness.
pub struct Test(pub u64);

impl Test {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in [-1, 1).
    pub fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

#[derive(Clone)]
pub struct Toy {
    pub inputs: Vec<[f64; INPUTS]>,
    pub targets: Vec<f64>,
    pub centred: bool,
    /// Samples whose gradient is NaN.
    pub broken: Vec<u32>,
    /// A sample whose gradient panics.
    pub panics_at: Option<u32>,
    /// A sample whose gradient is an error.
    pub fails_at: Option<u32>,
    /// The groups of a chunk, if it delivers rows.
    pub chunk: Option<usize>,
}

impl Toy {
    pub fn new(samples: usize, seed: u64) -> Self {
        let mut random = Test(seed);
        Self {
            inputs: (0..samples).map(|_| std::array::from_fn(|_| random.uniform())).collect(),
            targets: (0..samples).map(|_| 2.0 * random.uniform()).collect(),
            centred: false,
            broken: Vec::new(),
            panics_at: None,
            fails_at: None,
            chunk: None,
        }
    }

    pub fn weights(&self, seed: u64) -> Vec<f32> {
        let mut random = Test(seed);
        (0..DIMENSION).map(|_| (0.4 * random.uniform()) as f32).collect()
    }

    /// The mean gradient and the mean loss of a group.
    pub fn gradient(&self, w: &[f64], group: &[u32]) -> (Vec<f64>, f64) {
        let (matrix, rest) = w.split_at(INPUTS * HIDDEN);
        let (out, bias) = rest.split_at(HIDDEN);
        let mut centre = [0.0; INPUTS];
        if self.centred {
            for &i in group {
                for (c, x) in centre.iter_mut().zip(&self.inputs[i as usize]) {
                    *c += x / group.len() as f64;
                }
            }
        }
        let mut gradient = vec![0.0; DIMENSION];
        let mut losses = 0.0;
        let share = 1.0 / group.len() as f64;
        for &i in group {
            let mut x = self.inputs[i as usize];
            x.iter_mut().zip(&centre).for_each(|(x, c)| *x -= c);
            let hidden: [f64; HIDDEN] = std::array::from_fn(|j| {
                let row = &matrix[j * INPUTS..(j + 1) * INPUTS];
                row.iter().zip(&x).map(|(w, x)| w * x).sum::<f64>().tanh()
            });
            let predicted = out.iter().zip(&hidden).map(|(w, h)| w * h).sum::<f64>() + bias[0] * bias[1];
            let error = predicted - self.targets[i as usize];
            losses += 0.5 * error * error * share;
            for j in 0..HIDDEN {
                let delta = error * out[j] * (1.0 - hidden[j] * hidden[j]) * share;
                for (g, x) in gradient[j * INPUTS..(j + 1) * INPUTS].iter_mut().zip(&x) {
                    *g += delta * x;
                }
                gradient[INPUTS * HIDDEN + j] += error * hidden[j] * share;
            }
            gradient[DIMENSION - 2] += error * bias[1] * share;
            gradient[DIMENSION - 1] += error * bias[0] * share;
            if self.broken.contains(&i) {
                gradient[7] = f64::NAN;
            }
        }
        (gradient, losses)
    }
}

pub struct ToyWorker {
    toy: Arc<Toy>,
    weights: Vec<f32>,
}

impl Model for Toy {
    type Worker = ToyWorker;

    fn dimension(&self) -> usize {
        DIMENSION
    }

    fn samples(&self) -> usize {
        self.inputs.len()
    }

    fn separable(&self) -> bool {
        !self.centred
    }

    fn form(&self) -> Form {
        match self.chunk.and_then(NonZeroUsize::new) {
            Some(chunk) => Form::Rows { chunk },
            None => Form::Groups,
        }
    }

    fn worker(self: &Arc<Self>, _group_size: usize) -> Result<ToyWorker, ModelError> {
        Ok(ToyWorker { toy: self.clone(), weights: vec![f32::NAN; DIMENSION] })
    }
}

impl Worker for ToyWorker {
    fn weights_mut(&mut self) -> &mut [f32] {
        &mut self.weights
    }

    fn gradient(&mut self, group: &[u32], gradient: &mut [f32]) -> Result<f32, ModelError> {
        if let Some(sample) = self.toy.panics_at {
            assert!(!group.contains(&sample), "the toy was told to fail");
        }
        if let Some(sample) = self.toy.fails_at
            && group.contains(&sample)
        {
            let cause = std::io::Error::other(format!("sample {sample} is unreadable"));
            return Err(ModelError::caused_by(cause));
        }
        let weights: Vec<f64> = self.weights.iter().map(|&w| f64::from(w)).collect();
        let (exact, loss) = self.toy.gradient(&weights, group);
        gradient.iter_mut().zip(&exact).for_each(|(g, &e)| *g = e as f32);
        Ok(loss as f32)
    }

    /// Five stretches, as a framework with a tensor per parameter would write them, and two calls if there
    /// are enough groups.
    fn rows(&mut self, samples: &[u32], size: usize, sink: &mut RowSink<'_>) -> Result<(), ModelError> {
        let widths = [INPUTS * HIDDEN - 3, 3, HIDDEN, 1, 1];
        let groups: Vec<&[u32]> = samples.chunks_exact(size).collect();
        let (first, second) = groups.split_at(groups.len() / 3);
        let mut gradient = vec![0.0; DIMENSION];
        for part in [first, second] {
            let mut stretches = vec![Vec::new(); widths.len()];
            let mut losses = Vec::new();
            for group in part {
                losses.push(self.gradient(group, &mut gradient)?);
                let mut rest = &gradient[..];
                for (stretch, width) in stretches.iter_mut().zip(widths) {
                    stretch.extend_from_slice(&rest[..width]);
                    rest = &rest[width..];
                }
            }
            let stretches: Vec<&[f32]> = stretches.iter().map(|stretch| &stretch[..]).collect();
            sink(&stretches, &losses);
        }
        Ok(())
    }
}

/// A ledger that only remembers.
#[derive(Clone)]
pub struct Remember {
    plan: Arc<Plan>,
    spent: u64,
    pub charged: Vec<u64>,
}

impl Remember {
    pub fn new(plan: Plan) -> Self {
        Self::at(plan, 0)
    }

    /// As if the rounds before `spent` had been charged.
    pub fn at(plan: Plan, spent: u64) -> Self {
        Self { plan: Arc::new(plan), spent, charged: Vec::new() }
    }
}

impl Charge for Remember {
    type Error = std::io::Error;

    fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    fn spent(&self) -> u64 {
        self.spent
    }

    fn charge(&mut self, round: u64) -> Result<(), std::io::Error> {
        self.charged.push(round);
        self.spent = self.spent.max(round + 1);
        Ok(())
    }
}

pub fn mechanism(sampling: Sampling, rounds: u64, sigma: f64, filtered: bool) -> Mechanism {
    let phase =
        PhaseConfig { sampling, length: Length::Rounds(rounds), noise: NoiseScale::Sigma(sigma), filtered };
    RunConfig::single(phase).check().unwrap()
}

pub fn subsample(samples: u64, groups: u64, group_size: u64) -> Sampling {
    Sampling::Subsample { samples, groups, group_size }
}

pub fn shuffle(samples: u64, groups: u64, group_size: u64) -> Sampling {
    Sampling::Shuffle { samples, groups, group_size }
}

pub fn distance(a: impl IntoIterator<Item = f64>, b: impl IntoIterator<Item = f64>) -> f64 {
    a.into_iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt()
}

pub fn length(a: &[f64]) -> f64 {
    a.iter().map(|a| a * a).sum::<f64>().sqrt()
}
