//! The second, independent engine: the privacy loss on a grid, convolved by FFT.
//!
//! Upper end: the mass of every cell of the grid is split between its two ends so that its mass
//! under P and under Q are both kept ("connect the dots", Doroshenko et al. 2022); the cell's law
//! is a post-processing of that, so δ can only grow. Lower end: cells are chosen so that the loss
//! of a whole cell, ln P(cell)/Q(cell), lies on the grid; revealing only the cell is
//! post-processing, so δ can only shrink. Both laws are tilted by e^{cy} before the transform, so
//! that the error of the FFT is relative to the requested tail.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use rustfft::FftPlanner;
use rustfft::num_complex::Complex64;

use super::factor::Factor;
use super::tails::{rates, scale, tails};
use crate::interval::Interval;

/// Bound on the relative L2 error of a transform of 2^k points, per k.
pub(super) const FFT_ERROR: f64 = 8.0 * f64::EPSILON;

/// How close (in steps) the loss of a merged cell comes to its grid point; the sum over all rounds
/// is charged to ε.
pub(crate) const SOLVED: f64 = 1e-7;
/// Half the cells of a window at most, before the last doubling.
const MOST_HALF: f64 = (1 << 18) as f64;
/// The relative error of a tail's probability.
const ROUNDING: f64 = 16.0 * f64::EPSILON;

/// A run's privacy loss on a grid.
#[derive(Debug)]
pub(crate) struct Grid {
    step: f64,
    upper: Vec<Discrete>,
    lower: Vec<Discrete>,
    kept: Mutex<Kept>,
}

/// What has been computed for a law (upper or lower) and a tilt 2^step.
#[derive(Debug, Default)]
struct Kept {
    moments: HashMap<(bool, i32), f64>,
    composed: HashMap<(bool, i32), Arc<Composed>>,
}

/// The tilted law of the sum: `mass[i]` on (origin + i)·step, and the share outside the window.
#[derive(Debug)]
struct Composed {
    origin: i64,
    mass: Vec<f64>,
    ln_m: f64,
    leak: f64,
}

/// One factor's law under P: `mass[i]` on the loss (first + i)·step, and what lies at infinity.
#[derive(Debug)]
pub(crate) struct Discrete {
    pub times: u64,
    pub first: i64,
    pub mass: Vec<f64>,
    pub infinite: f64,
}

impl Grid {
    /// `points` on the range of one round.
    pub(crate) fn new(factors: &[Factor], points: usize) -> Self {
        // Cells beyond these tails have a probability of 1e-40 per round.
        let ranges: Vec<(f64, f64)> = factors.iter().map(range).collect();
        let widest = ranges.iter().map(|r| r.1 - r.0).fold(0.0, f64::max);
        let step = widest / points as f64;
        let build = |make: fn(&Factor, f64, (f64, f64)) -> Discrete| {
            factors.iter().zip(&ranges).map(|(f, &r)| make(f, step, r)).collect()
        };
        Self { step, upper: build(connect_dots), lower: build(merge_cells), kept: Mutex::default() }
    }

    /// A grid for lower bounds only, from laws that were discretised elsewhere.
    pub(crate) fn of_lower(step: f64, lower: Vec<Discrete>) -> Self {
        Self { step, upper: Vec::new(), lower, kept: Mutex::default() }
    }

    /// The lower end of [`delta`](Self::delta) alone.
    pub(crate) fn delta_lower(&self, epsilon: f64) -> f64 {
        let times: f64 = self.lower.iter().map(|d| d.times as f64).sum();
        let (value, error) = self.evaluate(&self.lower, epsilon + 2.0 * times * SOLVED * self.step);
        // An underflow beside an overflow leaves NaN; then nothing is claimed.
        let lower = value - error;
        if lower.is_nan() { 0.0 } else { lower.clamp(0.0, 1.0) }
    }

    /// δ(ε) between the two laws' values, with the errors of the transform and of the window.
    pub(crate) fn delta(&self, epsilon: f64) -> Interval {
        let (upper, upper_error) = self.evaluate(&self.upper, epsilon);
        let infinite: f64 = self.upper.iter().map(|d| d.times as f64 * d.infinite).sum();
        let upper = upper + upper_error + infinite;
        let upper = if upper.is_nan() { 1.0 } else { upper.clamp(0.0, 1.0) };
        Interval { lower: self.delta_lower(epsilon).min(upper), upper }
    }

    fn evaluate(&self, laws: &[Discrete], epsilon: f64) -> (f64, f64) {
        let is_upper = std::ptr::eq(laws, &self.upper[..]);
        let ln_m = |step: i32| self.ln_moment(laws, is_upper, step);
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
        let composed = self.composed(laws, is_upper, step);
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

    fn ln_moment(&self, laws: &[Discrete], is_upper: bool, step: i32) -> f64 {
        let key = (is_upper, step);
        if let Some(&known) = self.kept().moments.get(&key) {
            return known;
        }
        let c = f64::from(step).exp2();
        let value = laws.iter().map(|d| d.times as f64 * d.ln_moment(c, self.step)).sum::<f64>();
        self.kept().moments.insert(key, value);
        value
    }

    /// The law of the sum tilted by e^{cy}, c = 2^step, in a window around its mean.
    fn composed(&self, laws: &[Discrete], is_upper: bool, step: i32) -> Arc<Composed> {
        let key = (is_upper, step);
        if let Some(known) = self.kept().composed.get(&key) {
            return Arc::clone(known);
        }
        let c = f64::from(step).exp2();
        let ln_m = |c: f64| laws.iter().map(|d| d.times as f64 * d.ln_moment(c, self.step)).sum::<f64>();
        let ln_c = self.ln_moment(laws, is_upper, step);
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
        self.kept().composed.insert(key, Arc::clone(&composed));
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

/// Thresholds below and above which one round's loss has negligible probability.
fn range(factor: &Factor) -> (f64, f64) {
    const NEGLIGIBLE: f64 = 1e-40;
    let start = scale(&factor.kind).clamp(1e-12, 1e3);
    let (mut low, mut high) = (-start, start);
    while rates(&factor.kind, high).0 > NEGLIGIBLE && high < 1e6 {
        high *= 1.2;
    }
    // Losses further down are rounded up.
    while rates(&factor.kind, low).2 > 1e-17 && low > -1e6 {
        low *= 1.2;
    }
    (low, high)
}

fn connect_dots(factor: &Factor, step: f64, (low, high): (f64, f64)) -> Discrete {
    let first = (low / step).floor() as i64;
    let last = (high / step).ceil() as i64;
    let mut mass = vec![0.0; (last - first + 1) as usize];
    // Losses below the range are rounded up to its first point.
    let (mut p_tail, mut q_tail) = tails(&factor.kind, first as f64 * step);
    mass[0] = 1.0 - p_tail;
    for i in first..last {
        let (lower, upper) = (i as f64 * step, (i + 1) as f64 * step);
        let (p_next, q_next) = tails(&factor.kind, upper);
        let (p, q) = (p_tail - p_next, q_tail - q_next);
        // q_up·e^upper + (q − q_up)·e^lower = p.
        let q_up = ((p * (-lower).exp() - q) / step.exp_m1()).clamp(0.0, q.max(0.0));
        let up = (q_up * upper.exp()).min(p);
        mass[(i - first) as usize] += (p - up).max(0.0);
        mass[(i - first) as usize + 1] += up.max(0.0);
        (p_tail, q_tail) = (p_next, q_next);
    }
    Discrete { times: factor.times, first, mass, infinite: p_tail }
}

fn merge_cells(factor: &Factor, step: f64, (low, high): (f64, f64)) -> Discrete {
    let first = (low / step).floor() as i64;
    let last = (high / step).ceil() as i64;
    let mut mass = vec![0.0; (last - first + 1) as usize];
    let mut left = low;
    // An atom at 0 is its own cell, so cells may not straddle 0.
    let (mut p_left, mut q_left) = tails(&factor.kind, left);
    while left < high {
        // The next grid point at least a quarter of a step inside the cell: cells of about one step,
        // centred on the grid, and a deviation to one side is followed by one to the other.
        let target = ((left / step + 0.25).ceil() as i64).clamp(first, last);
        let wanted = target as f64 * step;
        let limit = if left < 0.0 { (wanted + 2.0 * step).min(0.0) } else { wanted + 2.0 * step };
        let cell = |right: f64| {
            let (p_right, q_right) = tails(&factor.kind, right);
            (p_right, q_right, p_left - p_right, q_left - q_right)
        };
        // The loss of a cell is close to its middle, so this converges in a few steps.
        let mut right = (2.0 * wanted - left).clamp(left + 0.1 * step, limit.max(left + 0.1 * step));
        let (mut p_right, mut q_right, mut p, mut q) = cell(right);
        let mut solved = false;
        for _ in 0..8 {
            if p <= 0.0 || q <= 0.0 {
                break;
            }
            let gap = wanted - (p / q).ln();
            solved = gap.abs() < SOLVED * step;
            let next = (right + 2.0 * gap).clamp(left + 0.1 * step, limit.max(left + 0.1 * step));
            if solved || next == right {
                break;
            }
            right = next;
            (p_right, q_right, p, q) = cell(right);
        }
        if left < 0.0 && right > 0.0 {
            right = 0.0;
            (p_right, q_right, p, q) = cell(-1e-300);
            solved = false;
        }
        // p and q are differences and may be nothing but rounding: only mass that is certain counts, at a
        // loss that it certainly has.
        let (p_sure, q_most) = (p - ROUNDING * p_left, q + ROUNDING * q_left);
        if p_sure > 0.0 && q > 0.0 {
            let loss = (p_sure / q_most).ln();
            // Rounded down where the cell ended at a limit before its loss reached the grid point.
            let solved = solved && loss > wanted - 2.0 * SOLVED * step;
            let at = if solved { target } else { (loss / step).floor() as i64 };
            if at >= first {
                mass[(at.min(last) - first) as usize] += p_sure;
            }
        }
        (left, p_left, q_left) = (right, p_right, q_right);
        if left == 0.0 {
            let (p_after, q_after) = tails(&factor.kind, 0.0);
            let atom = (p_left - p_after).min(q_left - q_after) - ROUNDING * p_left.max(q_left);
            mass[(-first) as usize] += atom.max(0.0);
            (left, p_left, q_left) = (1e-9 * step, p_after, q_after);
        }
    }
    Discrete { times: factor.times, first, mass, infinite: 0.0 }
}
