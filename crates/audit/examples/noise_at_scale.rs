//! Draws a thousand million numbers of the noise that a training run adds, by the rounds of the production
//! trainer, and compares them with the law: bins, tails, moments, and correlations within a round, between
//! rounds and between threads. `docs/results/noise.md` holds what it printed.
//!
//! ```text
//! cargo run --release -p dpsgd-audit --example noise_at_scale -- [NUMBERS] [THREADS] [SEED]
//! ```
//!
//! A correct implementation fails with probability at most 1e-6 for all comparisons together (Bonferroni):
//! rare counts by exact binomial limits; common counts, moments and correlations by normal limits, which at this
//! many numbers are exact enough.

use std::collections::HashSet;
use std::error::Error;

use dpsgd_audit::binomial::{lower_limit, upper_limit};
use dpsgd_audit::probe::Probe;
use dpsgd_audit::promised::PromisedNoise;
use dpsgd_privacy::mechanism::{Length, NoiseScale, PhaseConfig, RunConfig, Sampling};
use dpsgd_privacy::normal;
use dpsgd_train::{PlanConfig, Randomness, Trainer, Unrecorded};

/// Coordinates of a round.
const DIMENSION: usize = 1 << 20;
/// Bins of a quarter of a deviation, from −5 to 5, and the two rests.
const BINS: usize = 42;
/// |x| beyond these.
const TAILS: [f64; 6] = [4.0, 4.5, 5.0, 5.5, 6.0, 6.5];
/// Distances within a round; the last are numbers that other threads draw.
const LAGS: [usize; 14] = [1, 2, 3, 4, 7, 8, 16, 64, 256, 512, 1024, 4096, 1 << 16, DIMENSION / 2];
/// Distances between rounds, same coordinate.
const ROUND_LAGS: [usize; 3] = [1, 2, 3];
/// Numbers between two that are remembered, to see whether noise repeats itself.
const STRIDE: usize = 256;
/// The false-alarm rate of everything together.
const LEVEL: f64 = 1e-6;

#[derive(Default)]
struct Sums {
    numbers: u64,
    bins: Vec<u64>,
    tails: [u64; TAILS.len()],
    powers: [f64; 4],
    lags: [(f64, u64); LAGS.len()],
    round_lags: [(f64, u64); ROUND_LAGS.len()],
    repeated: u64,
    seen: HashSet<[u32; 4]>,
}

impl Sums {
    fn round(&mut self, round: &[f64], raw: &[f32], before: &[Vec<f64>]) {
        self.numbers += round.len() as u64;
        for &x in round {
            let bin = (4.0 * (x + 5.0) + 1.0).clamp(0.0, BINS as f64 - 1.0);
            self.bins[bin as usize] += 1;
            if x.abs() > TAILS[0] {
                self.tails.iter_mut().zip(TAILS).for_each(|(count, t)| *count += u64::from(x.abs() > t));
            }
        }
        for (i, sum) in self.powers.iter_mut().enumerate() {
            *sum += round.iter().map(|x| x.powi(i as i32 + 1)).sum::<f64>();
        }
        let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        for (sum, lag) in self.lags.iter_mut().zip(LAGS) {
            sum.0 += product(&round[lag..], round);
            sum.1 += (round.len() - lag) as u64;
        }
        for (sum, lag) in self.round_lags.iter_mut().zip(ROUND_LAGS) {
            if let Some(i) = before.len().checked_sub(lag) {
                sum.0 += product(round, &before[i]);
                sum.1 += round.len() as u64;
            }
        }
        for four in raw.chunks(STRIDE).filter_map(|chunk| chunk.first_chunk::<4>()) {
            self.repeated += u64::from(!self.seen.insert(four.map(f32::to_bits)));
        }
    }

    /// Prints every comparison; whether all are within their limits.
    fn judge(&self) -> bool {
        let comparisons = BINS + TAILS.len() + 4 + LAGS.len() + ROUND_LAGS.len();
        let level = LEVEL / comparisons as f64;
        let limit = -normal::quantile(0.5 * level);
        let n = self.numbers;
        let mut right = self.repeated == 0;
        println!("{n} numbers; {comparisons} comparisons, each at level {level:.2e}: |z| ≤ {limit:.2}");
        let mut counted = |name: String, count: u64, p: f64, shown: bool| {
            let z = (count as f64 - n as f64 * p) / (n as f64 * p * (1.0 - p)).sqrt();
            // Few of them: by the exact law. (The grid of the noise and single precision move an edge by less than
            // 1e-6 deviations, which no comparison here can see.)
            let within = match n as f64 * p > 1e4 {
                true => z.abs() <= limit,
                false => lower_limit(count, n, 0.5 * level) <= p && p <= upper_limit(count, n, 0.5 * level),
            };
            right &= within;
            if shown || !within {
                println!("  {name}: {count}, expected {:.1}, z = {z:+.2}", n as f64 * p);
            }
            z.abs()
        };
        let mut most: f64 = 0.0;
        for (i, &count) in self.bins.iter().enumerate() {
            let edge = |i: usize| normal::cdf(-5.0 + 0.25 * i as f64);
            let p = match i {
                0 => edge(0),
                _ if i == BINS - 1 => normal::cdf(-5.0),
                // By the nearer tail, where differences are exact.
                _ if i > BINS / 2 => edge(BINS - 1 - i) - edge(BINS - 2 - i),
                _ => edge(i) - edge(i - 1),
            };
            most = most.max(counted(format!("bin {i}"), count, p, false));
        }
        println!("  {BINS} bins of a quarter of a deviation: largest |z| = {most:.2}");
        for (&count, t) in self.tails.iter().zip(TAILS) {
            counted(format!("|x| > {t}"), count, 2.0 * normal::cdf(-t), true);
        }
        let mut sum = |name: String, sum: f64, count: u64, mean: f64, variance: f64| {
            let z = (sum - count as f64 * mean) / (count as f64 * variance).sqrt();
            right &= z.abs() <= limit;
            println!("  {name}: z = {z:+.2}");
        };
        let moments = [("Σx", 0.0, 1.0), ("Σx²", 1.0, 2.0), ("Σx³", 0.0, 15.0), ("Σx⁴", 3.0, 96.0)];
        for ((name, mean, variance), power) in moments.into_iter().zip(self.powers) {
            sum(name.to_string(), power, n, mean, variance);
        }
        for (&(product, count), lag) in self.lags.iter().zip(LAGS) {
            sum(format!("lag {lag} within a round"), product, count, 0.0, 1.0);
        }
        for (&(product, count), lag) in self.round_lags.iter().zip(ROUND_LAGS) {
            sum(format!("same coordinate, {lag} rounds apart"), product, count, 0.0, 1.0);
        }
        println!("  repeated quadruples among {}: {}", self.seen.len() as u64 + self.repeated, self.repeated);
        right
    }
}

/// The noise of every round, in deviations and as it left.
fn noise(
    rounds: u64,
    threads: usize,
    key: Randomness,
    mut see: impl FnMut(&[f64], &[f32]),
) -> Result<(), Box<dyn Error>> {
    let phase = PhaseConfig {
        sampling: Sampling::Subsample { samples: 10, groups: 1, group_size: 1 },
        length: Length::Rounds(rounds),
        noise: NoiseScale::Sigma(2.0),
        filtered: false,
    };
    let mut config = PlanConfig::new(RunConfig::single(phase).check()?, 1.0, 0.1);
    config.threads = threads;
    let plan = config.check()?;
    let promised = PromisedNoise::of(&config, &plan.mechanism().phases()[0], DIMENSION, 1.0);
    // No sample has a gradient: what leaves is noise.
    let silent = Probe::new(DIMENSION, 10, |_, _: &[f32], _: &mut [f32]| {});
    let mut trainer = Trainer::new(Unrecorded::new(plan), silent, vec![0.0; DIMENSION], key)?;
    let mut scaled = vec![0.0; DIMENSION];
    while !trainer.finished() {
        let round = trainer.round()?;
        for (x, &update) in scaled.iter_mut().zip(round.update) {
            *x = f64::from(update) / promised.deviation;
        }
        see(&scaled, round.update);
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<u64> = std::env::args().skip(1).map(|text| text.parse()).collect::<Result<_, _>>()?;
    let get = |i: usize, usual: u64| arguments.get(i).copied().unwrap_or(usual);
    let (numbers, threads, seed) = (get(0, 1_000_000_000), get(1, 2) as usize, get(2, 1));
    let rounds = numbers.div_ceil(DIMENSION as u64);
    let mut sums = Sums { bins: vec![0; BINS], ..Sums::default() };
    let mut before: Vec<Vec<f64>> = Vec::new();
    noise(rounds, threads, Randomness::from_seed(seed, 0), |round, raw| {
        sums.round(round, raw, &before);
        if before.len() == ROUND_LAGS.len() {
            before.remove(0);
        }
        before.push(round.to_vec());
    })?;
    println!("{rounds} rounds of {DIMENSION} numbers on {threads} threads, seed {seed}");
    let mut right = sums.judge();
    let mut first: [Vec<Vec<f32>>; 2] = Default::default();
    for (all, threads) in first.iter_mut().zip([1, threads]) {
        noise(4, threads, Randomness::from_seed(seed, 0), |_, raw| all.push(raw.to_vec()))?;
    }
    right &= first[0] == first[1];
    println!(
        "  4 rounds on 1 and on {threads} threads: {}",
        if first[0] == first[1] { "equal" } else { "NOT EQUAL" }
    );
    if right { Ok(()) } else { Err("the noise does not follow the law".into()) }
}
