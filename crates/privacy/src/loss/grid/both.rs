//! The second engine of the tests: rounds on a grid, from both sides. It shares nothing with the contour but
//! the description of the round.
//!
//! Upper end: the mass of every cell of the grid is split between its two ends so that its mass
//! under P and under Q are both kept ("connect the dots", Doroshenko et al. 2022); the cell's law
//! is a post-processing of that, so δ can only grow. Lower end: cells are chosen so that the loss
//! of a whole cell, ln P(cell)/Q(cell), lies on the grid; revealing only the cell is
//! post-processing, so δ can only shrink.

use super::{Discrete, Grid, SOLVED};
use crate::interval::Interval;
use crate::loss::factor::{Factor, Kind};
use crate::loss::tails::{rates, scale};

/// The relative error of a tail's probability.
const ROUNDING: f64 = 16.0 * f64::EPSILON;

fn tails(kind: &Kind, threshold: f64) -> (f64, f64) {
    let (p_tail, q_tail, _) = rates(kind, threshold);
    (p_tail, q_tail)
}

/// Two grids that the privacy loss lies between.
pub(crate) struct Both {
    upper: Grid,
    infinite: f64,
    lower: Grid,
}

impl Both {
    /// `points` on the range of one round.
    pub(crate) fn new(factors: &[Factor], points: usize) -> Self {
        // Cells beyond these tails have a probability of 1e-40 per round.
        let ranges: Vec<(f64, f64)> = factors.iter().map(range).collect();
        let widest = ranges.iter().map(|r| r.1 - r.0).fold(0.0, f64::max);
        let step = widest / points as f64;
        let each = || factors.iter().zip(&ranges);
        let (upper, infinite): (Vec<_>, Vec<f64>) = each().map(|(f, &r)| connect_dots(f, step, r)).unzip();
        let lower = each().map(|(f, &r)| merge_cells(f, step, r)).collect();
        Self { upper: Grid::new(step, upper), infinite: infinite.iter().sum(), lower: Grid::new(step, lower) }
    }

    /// δ(ε) between the two laws' values, with the errors of the transform and of the window.
    pub(crate) fn delta(&self, epsilon: f64) -> Interval {
        let (upper, error) = self.upper.evaluate(epsilon);
        let upper = upper + error + self.infinite;
        let upper = if upper.is_nan() { 1.0 } else { upper.clamp(0.0, 1.0) };
        Interval { lower: self.lower.delta_lower(epsilon).min(upper), upper }
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

/// The law for the upper end, and what lies at infinity in all rounds together.
fn connect_dots(factor: &Factor, step: f64, (low, high): (f64, f64)) -> (Discrete, f64) {
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
    (Discrete { times: factor.times, first, mass }, factor.times as f64 * p_tail)
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
    Discrete { times: factor.times, first, mass }
}
