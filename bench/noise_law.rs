//! 10⁹ numbers of the production noise against the law of the rounded Gaussian:
//!
//!     cargo run --release -p dpsgd-bench --example noise-law -- [MILLIONS] [SEED]
//!
//! The numbers are updates of the real trainer with a model whose gradients are zero, so what leaves a round
//! is its noise. Its dimension is that of LeNet-5; there is a last block that is not full. The step of the
//! grid is a power of two and no number needs more than 24 bits, so nothing is lost in single precision.
//! Without a seed the key comes from the operating system, as in a private run.

mod law;

use std::error::Error;
use std::sync::Arc;

use dpsgd_privacy::mechanism::{Length, NoiseScale, PhaseConfig, RunConfig, Sampling};
use dpsgd_train::noise::BLOCK;
use dpsgd_train::noise::exact::Exact;
use dpsgd_train::{Model, ModelError, Outer, PlanConfig, Randomness, Trainer, Unrecorded, Worker};
use law::Law;

/// The parameters of LeNet-5.
const DIMENSION: usize = 61_706;
const CLIP: f64 = 1.0;
const SIGMA: f64 = 1.0;
/// Rounds that are drawn again with other numbers of threads.
const COMPARED: usize = 20;

/// Gradients that are zero.
struct Silent;

struct SilentWorker(Vec<f32>);

impl Model for Silent {
    type Worker = SilentWorker;
    fn dimension(&self) -> usize {
        DIMENSION
    }
    fn samples(&self) -> usize {
        4
    }
    fn worker(self: &Arc<Self>, _group_size: usize) -> Result<SilentWorker, ModelError> {
        Ok(SilentWorker(vec![0.0; DIMENSION]))
    }
}

impl Worker for SilentWorker {
    fn weights_mut(&mut self) -> &mut [f32] {
        &mut self.0
    }
    fn gradient(&mut self, _group: &[u32], gradient: &mut [f32]) -> Result<f32, ModelError> {
        gradient.fill(0.0);
        Ok(0.0)
    }
}

fn trainer(
    rounds: u64,
    threads: usize,
    randomness: Randomness,
) -> Result<Trainer<Silent, Unrecorded>, Box<dyn Error>> {
    let mechanism = RunConfig::single(PhaseConfig {
        sampling: Sampling::Subsample { samples: 4, groups: 1, group_size: 1 },
        length: Length::Rounds(rounds),
        noise: NoiseScale::Sigma(SIGMA),
        filtered: false,
    });
    let mut plan = PlanConfig::new(mechanism.check()?, CLIP, 1e-9).with_divisor(1.0);
    plan.threads = threads;
    plan.outer = Outer::Plain;
    let ledger = Unrecorded::new(plan.check()?);
    Ok(Trainer::new(ledger, Arc::new(Silent), vec![0.0; DIMENSION], randomness)?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let millions: u64 = arguments.next().map_or(Ok(1000), |text| text.parse())?;
    let seed: Option<u64> = arguments.next().map(|text| text.parse()).transpose()?;
    let rounds = (millions * 1_000_000).div_ceil(DIMENSION as u64);
    let grid = Exact::for_sensitivity(2.0 * CLIP, DIMENSION, SIGMA);
    let deviation = grid.deviation() / grid.step();

    let lags: Vec<usize> = (1..=16)
        .chain([17, 31, 32, 64, 256, BLOCK / 2 - 1, BLOCK / 2, BLOCK / 2 + 1, BLOCK, 2 * BLOCK])
        .collect();
    let mut law = Law::new(deviation, &lags, 3);
    let key = || match seed {
        Some(seed) => Ok(Randomness::from_seed(seed, 0)),
        None => Randomness::from_system(),
    };
    let mut trainer_of_all = trainer(rounds, 2, key()?)?;
    let mut values = vec![0.0; DIMENSION];
    let per_unit = 1.0 / grid.step();
    for _ in 0..rounds {
        let round = trainer_of_all.round()?;
        for (value, update) in values.iter_mut().zip(round.update) {
            *value = f64::from(*update) * per_unit;
            if value.fract() != 0.0 || value.abs() >= f64::from(1 << 24) {
                return Err(format!("{value} is not a whole number below 2²⁴").into());
            }
        }
        law.see(&values);
    }

    // The same key on one, two and three threads: the same numbers.
    let compared = || -> Result<Vec<Vec<f32>>, Box<dyn Error>> {
        let mut all = Vec::new();
        for threads in [1, 2, 3] {
            let mut trainer = trainer(COMPARED as u64, threads, Randomness::from_seed(seed.unwrap_or(0), 0))?;
            let mut numbers = Vec::new();
            for _ in 0..COMPARED {
                numbers.extend_from_slice(trainer.round()?.update);
            }
            all.push(numbers);
        }
        Ok(all)
    };
    let runs = compared()?;
    let same = runs.iter().all(|run| run == &runs[0]);

    println!("{} numbers, {rounds} rounds of {DIMENSION}, D = {deviation}", law.count());
    println!("largest: {:.3} D", law.largest());
    println!("{COMPARED} rounds on 1, 2 and 3 threads are {}", if same { "the same" } else { "DIFFERENT" });
    println!("limits: all hold for a correct sampler with probability 1 − {}", law::FALSE_ALARMS);
    let statistics = law.statistics();
    for statistic in &statistics {
        let verdict = if statistic.holds() { "" } else { "  EXCEEDED" };
        println!("{:>14.3} of {:>10.3}  {}{verdict}", statistic.found, statistic.limit, statistic.name);
    }
    let failed = statistics.iter().filter(|statistic| !statistic.holds()).count();
    println!("{} statistics, {failed} beyond their limits", statistics.len());
    if failed > 0 || !same { Err("the noise does not follow the law".into()) } else { Ok(()) }
}
