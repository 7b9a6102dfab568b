//! The second engine: Λ = dP/dQ under Q on a geometric grid, ordered convexly on both sides.
//!
//! δ_{P‖Q}(ε) = E_Q(Λ − e^ε)₊ and δ_{Q‖P}(ε) = E_Q(1 − e^ε·Λ)₊ are expectations of convex functions of Λ.
//! Moving mass to the two neighbouring grid points so that the mean is kept makes a law larger in the
//! convex order, merging a cell into its mean makes it smaller; sums and products of independent
//! non-negative variables keep the order. So the split law bounds both directions from above and the merged
//! law from below, with an error of second order in the grid's step. It shares nothing with the first
//! engine but the description of the pair.

use super::{Direction, Phase};
use crate::error::{PrivacyError, require};
use crate::interval::Interval;
use crate::normal;

/// Standard deviations at which the law of one round is cut.
const CUT: f64 = 9.5;
/// Relative slack for the rounding of sums of at most 2^40 positive terms.
const ROUNDING: f64 = 1e-11;

#[derive(Clone, Copy, PartialEq)]
enum Side {
    Split,
    Merge,
}

/// Atoms (value, mass).
type Law = Vec<(f64, f64)>;

/// Both laws of Λ, certified to surround the true one.
#[derive(Debug)]
pub struct Grid {
    above: Law,
    below: Law,
    /// Probability of what was cut off, under Q and under P.
    cut: (f64, f64),
}

/// Atoms collected in cells between the points e^{ih}.
struct Cells {
    h: f64,
    first: i64,
    side: Side,
    /// Mass and first moment of each cell; on the split side at points.
    cells: Vec<(f64, f64)>,
    /// Atoms at 0 and beyond the last point, where nothing is split.
    kept: Law,
}

impl Cells {
    fn new(h: f64, (low, high): (f64, f64), side: Side) -> Self {
        let first = (low / h).floor() as i64;
        let count = ((high / h).ceil() as i64 - first + 2) as usize;
        Self { h, first, side, cells: vec![(0.0, 0.0); count], kept: vec![(0.0, 0.0)] }
    }

    fn point(&self, i: usize) -> f64 {
        ((self.first + i as i64) as f64 * self.h).exp()
    }

    fn add(&mut self, value: f64, mass: f64) {
        if mass == 0.0 {
            return;
        }
        if value <= 0.0 {
            self.kept[0].1 += mass;
            return;
        }
        let place = ((value.ln() / self.h).floor() as i64 - self.first).max(-1);
        if place > self.cells.len() as i64 - 2 {
            self.kept.push((value, mass));
            return;
        }
        match self.side {
            Side::Merge => {
                let cell = &mut self.cells[(place + 1) as usize];
                cell.0 += mass;
                cell.1 += mass * value;
            }
            Side::Split => {
                let low = if place < 0 { 0.0 } else { self.point(place as usize) };
                let high = self.point((place + 1) as usize);
                let share = ((value - low) / (high - low)).clamp(0.0, 1.0);
                self.cells[(place + 1) as usize].0 += mass * share;
                if place < 0 {
                    self.kept[0].1 += mass * (1.0 - share);
                } else {
                    self.cells[place as usize].0 += mass * (1.0 - share);
                }
            }
        }
    }

    fn law(self) -> Law {
        let mut law = self.kept.clone();
        for (i, &(mass, moment)) in self.cells.iter().enumerate() {
            if mass > 0.0 {
                law.push((if self.side == Side::Merge { moment / mass } else { self.point(i) }, mass));
            }
        }
        law
    }
}

/// The law of f(x, y) for independent x and y.
fn combined(a: &Law, b: &Law, h: f64, range: (f64, f64), side: Side, f: impl Fn(f64, f64) -> f64) -> Law {
    let mut cells = Cells::new(h, range, side);
    for &(x, p) in a {
        for &(y, q) in b {
            cells.add(f(x, y), p * q);
        }
    }
    cells.law()
}

/// The law of W = e^{sG − s²/2}: exact mass and mean of each cell, then split or merged.
fn one_round(s: f64, h: f64, side: Side) -> (Law, (f64, f64)) {
    let edges = (-CUT * s - 0.5 * s * s, CUT * s + 0.5 * s * s);
    let mut cells = Cells::new(h, edges, side);
    let last = cells.cells.len() - 1;
    // Q[W ≤ e^x] and E[W; W ≤ e^x], and the upper tails of both.
    let below = |x: f64| (normal::cdf(x / s + 0.5 * s), normal::cdf(x / s - 0.5 * s));
    let above = |x: f64| (normal::cdf(-x / s - 0.5 * s), normal::cdf(-x / s + 0.5 * s));
    let x = |i: usize| (cells.first + i as i64) as f64 * h;
    let mut exact = vec![(x(0), below(x(0)))];
    for i in 0..last {
        let (a, b) = (x(i), x(i + 1));
        let difference = if a < 0.0 {
            (below(b).0 - below(a).0, below(b).1 - below(a).1)
        } else {
            (above(a).0 - above(b).0, above(a).1 - above(b).1)
        };
        exact.push((a, difference));
    }
    let cut = above(x(last));
    for (_, (mass, moment)) in exact {
        if mass > 0.0 {
            cells.add(moment / mass, mass);
        }
    }
    if side == Side::Merge && cut.0 > 0.0 {
        cells.add(cut.1 / cut.0, cut.0);
    }
    (cells.law(), cut)
}

/// The sum of `copies` copies, or the product.
fn repeated(law: &Law, copies: u64, h: f64, range: (f64, f64), side: Side, f: fn(f64, f64) -> f64) -> Law {
    let mut result: Option<Law> = None;
    let mut square = law.clone();
    let mut rest = copies;
    loop {
        if rest & 1 == 1 {
            result = Some(match result {
                None => square.clone(),
                Some(r) => combined(&r, &square, h, range, side, f),
            });
        }
        rest >>= 1;
        if rest == 0 {
            return result.unwrap_or_default();
        }
        square = combined(&square, &square, h, range, side, f);
    }
}

impl Grid {
    /// The laws of one phase with step `h` of ln Λ; the work grows with (z·h)^−2, the logarithms of B and
    /// E, and E² for the range of the product.
    pub fn new(phase: Phase, h: f64) -> Result<Self, PrivacyError> {
        require(h > 0.0 && h < 0.5, "step", h, "above 0 and below 0.5")?;
        let s = 1.0 / phase.noise_multiplier;
        let width = 2.0 * CUT * s + s * s + (phase.rounds as f64).ln();
        let points = (1.0 + phase.epochs as f64) * width / h;
        let operations = points * points * (phase.rounds as f64 * phase.epochs as f64).log2().max(1.0);
        if operations > 4e10 {
            return Err(PrivacyError::TooCostly {
                what: "the convex grid",
                operations,
                limit: 4e10,
                remedy: "take a larger step",
            });
        }
        let low = -CUT * s - 0.5 * s * s;
        let high = CUT * s + 0.5 * s * s + h;
        let law = |side: Side| {
            let (one, cut) = one_round(s, h, side);
            let ln_b = (phase.rounds as f64).ln();
            let sum = repeated(&one, phase.rounds, h, (low, high + ln_b), side, |a, b| a + b);
            let b = phase.rounds as f64;
            let mean: Law = sum.into_iter().map(|(v, m)| (v / b, m)).collect();
            // Points of the mean lie off the product's grid; they are split or merged once more.
            let range = (low - ln_b, high + 3.0 * h);
            let mut cells = Cells::new(h, range, side);
            mean.iter().for_each(|&(v, m)| cells.add(v, m));
            let e = phase.epochs as f64;
            let range = (e * range.0, e * (range.1 + 2.0 * h));
            (repeated(&cells.law(), phase.epochs, h, range, side, |a, b| a * b), cut)
        };
        let (above, cut) = law(Side::Split);
        let (below, _) = law(Side::Merge);
        let (b, e) = (phase.rounds as f64, phase.epochs as f64);
        // Some of the B·E draws beyond the cut; under P one draw of each epoch is weighted with W.
        let cut = (b * e * cut.0, e * (cut.1 + (b - 1.0) * cut.0));
        Ok(Self { above, below, cut })
    }

    /// δ(ε) of one direction, for ε of either sign.
    ///
    /// # Guarantee
    /// The interval holds δ for the pair of the phase; rounding is covered by 1e-11 of each end.
    pub fn delta(&self, direction: Direction, epsilon: f64) -> Interval {
        let x = epsilon.exp();
        let expect = |law: &Law| -> f64 {
            law.iter()
                .map(|&(v, m)| match direction {
                    Direction::Forward => m * (v - x).max(0.0),
                    Direction::Reverse => m * (1.0 - x * v).max(0.0),
                })
                .sum()
        };
        let cut = match direction {
            Direction::Forward => self.cut.1,
            Direction::Reverse => self.cut.0,
        };
        let (lower, upper) = (expect(&self.below), expect(&self.above) + cut);
        Interval {
            lower: (lower * (1.0 - ROUNDING) - 1e-15).max(0.0),
            upper: upper * (1.0 + ROUNDING) + 1e-15,
        }
    }
}
