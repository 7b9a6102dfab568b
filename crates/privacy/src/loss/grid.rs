//! Laws of a privacy loss on a grid, tilted and convolved by FFT: lower bounds from laws that were made elsewhere,
//! and in the tests the second, independent engine for rounds ([`both`]).
//!
//! Laws are tilted by e^{cy} before the transform, so that the error of the FFT is relative to the requested tail.

#[cfg(test)]
pub(crate) mod both;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use rustfft::FftPlanner;
use rustfft::num_complex::Complex64;

/// Bound on the relative L2 error of a transform of 2^k points, per k.
pub(super) const FFT_ERROR: f64 = 8.0 * f64::EPSILON;

/// How close (in steps) the loss of a merged cell comes to its grid point; the sum over all rounds
/// is charged to ε.
pub(crate) const SOLVED: f64 = 1e-7;
/// Half the cells of a window at most, before the last doubling.
const MOST_HALF: f64 = (1 << 18) as f64;

/// A run's privacy loss on a grid.
#[derive(Debug)]
pub(crate) struct Grid {
    step: f64,
    laws: Vec<Discrete>,
    kept: Mutex<Kept>,
}

/// What has been computed for a tilt 2^step.
#[derive(Debug, Default)]
struct Kept {
    moments: HashMap<i32, f64>,
    composed: HashMap<i32, Arc<Composed>>,
}

/// The tilted law of the sum: `mass[i]` on (origin + i)·step, and the share outside the window.
#[derive(Debug)]
struct Composed {
    origin: i64,
    mass: Vec<f64>,
    ln_m: f64,
    leak: f64,
}

/// One factor's law under P: `mass[i]` on the loss (first + i)·step.
#[derive(Debug)]
pub(crate) struct Discrete {
    pub times: u64,
    pub first: i64,
    pub mass: Vec<f64>,
}

impl Grid {
    /// The sum of independent laws, each as often as it says.
    pub(crate) fn new(step: f64, laws: Vec<Discrete>) -> Self {
        Self { step, laws, kept: Mutex::default() }
    }

    /// δ(ε) from below, for laws whose cells' losses are solved to [`SOLVED`].
    pub(crate) fn delta_lower(&self, epsilon: f64) -> f64 {
        let times: f64 = self.laws.iter().map(|d| d.times as f64).sum();
        let (value, error) = self.evaluate(epsilon + 2.0 * times * SOLVED * self.step);
        // An underflow beside an overflow leaves NaN; then nothing is claimed.
        let lower = value - error;
        if lower.is_nan() { 0.0 } else { lower.clamp(0.0, 1.0) }
    }

    /// δ(ε) of the laws, and a bound on its error.
    fn evaluate(&self, epsilon: f64) -> (f64, f64) {
        let laws = &self.laws;
        let ln_m = |step: i32| self.ln_moment(step);
        // The saddle of κ(c) − cε − ln c among powers of two; an approximate one is enough.
        let cost = |step: i32| {
            let c = f64::from(step).exp2();
            ln_m(step) - c * epsilon - c.ln()
        };
        let mut step = 0;
        while step < 13 && cost(step + 1) < cost(step) {
            step += 1;
        }
        while step > -17 && cost(step - 1) < cost(step) {
            step -= 1;
        }
        let c = f64::from(step).exp2();
        let composed = self.composed(step);
        let scale = composed.ln_m - c * epsilon;
        let mut sum = 0.0;
        let mut weights = 0.0;
        let first = ((epsilon / self.step) as i64).saturating_sub(composed.origin).max(0) as usize;
        for (i, value) in composed.mass.iter().enumerate().skip(first) {
            let above = (composed.origin + i as i64) as f64 * self.step - epsilon;
            if c * above >= 80.0 {
                break;
            }
            if above > 0.0 {
                // (1 − e^{ε−y})·e^{−c(y−ε)}.
                let weight = (-c * above).exp() * -(-above).exp_m1();
                sum += value * weight;
                weights += weight * weight;
            }
        }
        let times: f64 = laws.iter().map(|d| d.times as f64).sum();
        // A cell's mass is a difference of numbers up to one.
        let cells = laws.iter().map(|d| d.times as f64 * d.mass.len() as f64).sum::<f64>() * f64::EPSILON;
        let size = composed.mass.len() as f64;
        let transform = FFT_ERROR * size.log2() * (times + 2.0) * weights.sqrt();
        // The mass in the window counts only if ε lies in it; what lies above it is in `leak`.
        (scale.exp() * sum, scale.exp() * (transform + 2.0 * composed.leak + cells))
    }

    fn ln_moment(&self, step: i32) -> f64 {
        if let Some(&known) = self.kept().moments.get(&step) {
            return known;
        }
        let c = f64::from(step).exp2();
        let value = self.laws.iter().map(|d| d.times as f64 * d.ln_moment(c, self.step)).sum::<f64>();
        self.kept().moments.insert(step, value);
        value
    }

    /// The law of the sum tilted by e^{cy}, c = 2^step, in a window around its mean.
    fn composed(&self, step: i32) -> Arc<Composed> {
        if let Some(known) = self.kept().composed.get(&step) {
            return Arc::clone(known);
        }
        let c = f64::from(step).exp2();
        let laws = &self.laws;
        let ln_m = |c: f64| laws.iter().map(|d| d.times as f64 * d.ln_moment(c, self.step)).sum::<f64>();
        let ln_c = self.ln_moment(step);
        let moments: Vec<(f64, f64)> = laws.iter().map(|d| d.tilted_moments(c, self.step)).collect();
        let mean: f64 = laws.iter().zip(&moments).map(|(d, m)| d.times as f64 * m.0).sum();
        let spread = laws.iter().zip(&moments).map(|(d, m)| d.times as f64 * m.1).sum::<f64>().sqrt();
        // A window outside which the tilted law has little mass, by Chernoff's bound.
        let variance = spread.powi(2).max(1e-12);
        let outside = |half: f64| {
            let reach = half * self.step;
            let (close, gaussian) = (60.0 / reach, reach / variance);
            let best = |sign: f64| {
                [close, 2.0 * close, gaussian]
                    .map(|distance| c + sign * distance.min(gaussian))
                    .map(|at| ln_m(at) - ln_c - (at - c) * (mean + sign * reach))
                    .into_iter()
                    .fold(0.0, f64::min)
                    .exp()
            };
            best(1.0) + best(-1.0)
        };
        let longest = laws.iter().map(|d| d.mass.len()).max().unwrap_or(1);
        let mut half = (12.0 * spread / self.step).max(0.6 * longest as f64) + 64.0;
        let mut leak = outside(half);
        while leak > 1e-14 && half < MOST_HALF {
            half *= 2.0;
            leak = outside(half);
        }
        let size = (2.0 * half).log2().ceil().exp2() as usize;
        let (power, shift) = self.power(laws, c, size);
        // Positions are known modulo the window; centre it on the mean.
        let origin = ((mean / self.step) as i64) - (size as i64) / 2;
        let turn = (origin - shift).rem_euclid(size as i64) as usize;
        let mass = power[turn..].iter().chain(&power[..turn]).copied().collect();
        let composed = Arc::new(Composed { origin, mass, ln_m: ln_c, leak });
        self.kept().composed.insert(step, Arc::clone(&composed));
        composed
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // Only complete entries are ever inserted, so a poisoned lock still guards good data.
        self.kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The tilted law of the sum, normalised, and the grid position of its first entry (both modulo
    /// the size).
    fn power(&self, laws: &[Discrete], c: f64, size: usize) -> (Vec<f64>, i64) {
        let mut planner = FftPlanner::new();
        let forward = planner.plan_fft_forward(size);
        let mut product = vec![Complex64::new(1.0, 0.0); size];
        let mut shift = 0_i64;
        for law in laws {
            let ln_m = law.ln_moment(c, self.step);
            let mut buffer = vec![Complex64::ZERO; size];
            for (i, &mass) in law.mass.iter().enumerate() {
                let y = (law.first + i as i64) as f64 * self.step;
                buffer[i % size] += mass * (c * y - ln_m).exp();
            }
            forward.process(&mut buffer);
            for (out, value) in product.iter_mut().zip(&buffer) {
                *out *= value.powf(law.times as f64);
            }
            let turns = i128::from(law.first) * i128::from(law.times);
            shift = (shift + turns.rem_euclid(size as i128) as i64).rem_euclid(size as i64);
        }
        planner.plan_fft_inverse(size).process(&mut product);
        (product.iter().map(|v| v.re / size as f64).collect(), shift)
    }
}

impl Discrete {
    fn ln_moment(&self, c: f64, step: f64) -> f64 {
        // Relative to the largest exponent, so that nothing overflows.
        let last = self.mass.len() as i64 - 1;
        let end = (self.first + if c > 0.0 { last } else { 0 }) as f64 * step;
        let term = |(i, m): (usize, &f64)| m * (c * ((self.first + i as i64) as f64 * step - end)).exp();
        self.mass.iter().enumerate().map(term).sum::<f64>().ln() + c * end
    }

    fn tilted_moments(&self, c: f64, step: f64) -> (f64, f64) {
        let ln_m = self.ln_moment(c, step);
        let (mut mean, mut second) = (0.0, 0.0);
        for (i, m) in self.mass.iter().enumerate() {
            let y = (self.first + i as i64) as f64 * step;
            let w = m * (c * y - ln_m).exp();
            mean += w * y;
            second += w * y * y;
        }
        (mean, (second - mean * mean).max(0.0))
    }
}
