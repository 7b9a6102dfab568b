//! The privacy loss of a whole run through its moment function: adversary A₀, and A₁ where its law
//! is too wide to list.

pub(crate) mod contour;
pub(crate) mod factor;
pub(crate) mod grid;
pub(crate) mod round;
mod tails;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::curve::{Curve, Point, check_delta, check_epsilon, epsilon_of};
use crate::error::PrivacyError;
use crate::interval::Interval;
use contour::{Contour, cumulants};
use factor::{Cumulants, Factor, Kind};
use grid::Grid;

/// The privacy loss Y = ln(dP/dQ) of a pair of distributions, as a product of moment functions.
///
/// A certificate holds on any line Re z = c, it is only narrowest near the saddle point; so lines
/// are taken from a geometric grid of c and kept, and many questions share a few lines.
#[derive(Debug)]
pub(crate) struct Loss {
    factors: Vec<Factor>,
    /// Probability left out of the factors; charged to δ.
    missing: f64,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    cumulants: HashMap<Tilt, Cumulants>,
    /// Lines, and those that were given up: they are not tried again.
    lines: HashMap<Tilt, Result<Arc<Contour>, PrivacyError>>,
    grid: Option<Arc<Grid>>,
    /// Lines that took long or were given up.
    costly: usize,
    /// Work done so far, in sines.
    spent: f64,
}

/// c = ±2^{step/64}.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Tilt {
    negative: bool,
    step: i32,
}

impl Tilt {
    fn positive(step: i32) -> Self {
        Self { negative: false, step }
    }

    fn value(self) -> f64 {
        let size = (f64::from(self.step) / 64.0).exp2();
        if self.negative { -size } else { size }
    }

    fn nearest(c: f64) -> Self {
        Self { negative: c < 0.0, step: COARSE * (64.0 / f64::from(COARSE) * c.abs().log2()).round() as i32 }
    }
}

/// Steps of the grid that are searched: c from 1e-9 to 1e9.
const STEPS: std::ops::RangeInclusive<i32> = -1920..=1920;
/// Points of the second engine's grid on the range of one round.
const GRID_POINTS: usize = 1 << 15;
/// Sines that one run's accounting may cost in all; ordinary settings need a thousandth.
const MOST_WORK: f64 = 2e9;
/// The relative width from which on a line's answer is not good enough.
const USEFUL: f64 = 1e-4;
/// Terms a line may cost, about a second.
const MOST_TERMS: usize = 400_000_000;
/// Rounds up to which the grid's own error is small. A skewed loss decays so slowly along a line there that a whole
/// curve of lines would take minutes: after some costly ones the grid answers.
const ROUNDS_FOR_GRID: u64 = 128;
/// Where a line ends for so few rounds: beyond, sines of huge numbers cost ten times as much.
const HIGHEST: f64 = 2e4;
/// Costly lines for so few rounds.
const LINES_BESIDE_GRID: usize = 12;
/// The terms from which on a line is costly.
const COSTLY: usize = 4_000_000;
/// Thresholds from which on only Chernoff's bound is given.
const FAR: f64 = 1e5;
/// Rounds below which the grid is used at once.
const FEW: u64 = 10;
/// The stride of the search; finer steps are used where the mean of the tilted loss jumps.
const COARSE: i32 = 8;

impl Loss {
    pub(crate) fn new(factors: Vec<Factor>, missing: f64) -> Self {
        Self { factors, missing, kept: Mutex::default() }
    }

    /// ln M(c) for c > 0, with its error; the missing probability is bounded by the largest loss there
    /// is, so a loss that leaves any out has no finite upper end.
    pub(crate) fn ln_moment(&self, c: f64) -> Result<Interval, PrivacyError> {
        let mut total = Cumulants::default();
        for factor in &self.factors {
            total += factor.line(c, 0.0, -30.0).cumulants();
        }
        if !total.ln_m.is_finite() {
            return Err(PrivacyError::NotCertified {
                what: "the Rényi divergence",
                why: "overflow".to_string(),
            });
        }
        let upper = if self.missing > 0.0 { f64::INFINITY } else { total.ln_m + total.error };
        Ok(Interval { lower: total.ln_m - total.error, upper })
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // Only complete entries are ever inserted, so a poisoned lock still guards good data.
        self.kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn cumulants(&self, tilt: Tilt) -> Cumulants {
        if let Some(&known) = self.kept().cumulants.get(&tilt) {
            return known;
        }
        let computed = cumulants(&self.factors, tilt.value());
        self.kept().spent += self.factors.iter().map(|f| f.work(tilt.value())).sum::<f64>();
        self.kept().cumulants.insert(tilt, computed);
        computed
    }

    fn line(&self, tilt: Tilt) -> Result<Arc<Contour>, PrivacyError> {
        if let Some(known) = self.kept().lines.get(&tilt) {
            return known.clone();
        }
        // A power of at least FEW decays along the line; any Gaussian part does.
        let decays = self.factors.iter().any(|f| f.times >= FEW || matches!(f.kind, Kind::Gaussian(_)));
        if !decays {
            return Err(PrivacyError::NotCertified { what: "few rounds", why: "slow decay".to_string() });
        }
        self.spend(0.0)?;
        let few = self.factors.iter().map(|f| f.times).sum::<u64>() <= ROUNDS_FOR_GRID;
        let enough = few && self.kept().costly >= LINES_BESIDE_GRID;
        let limits = match few {
            true if enough => (COSTLY, HIGHEST),
            true => (MOST_TERMS, HIGHEST),
            false => (MOST_TERMS, f64::INFINITY),
        };
        let line = Contour::new(&self.factors, tilt.value(), limits, &|work| self.spend(work)).map(Arc::new);
        if line.as_ref().map_or(!enough, |line| line.terms() > COSTLY) {
            self.kept().costly += 1;
        }
        self.kept().lines.insert(tilt, line.clone());
        line
    }

    /// The tilt of the positive grid where `past` begins to hold (it must be monotone in c), or its
    /// neighbour, whichever has the smaller `cost`. Gallops from c = 4, because very large c are
    /// costly and rarely needed.
    fn best_tilt(
        &self,
        past: impl Fn(f64, &Cumulants) -> bool,
        cost: impl Fn(f64, &Cumulants) -> f64,
    ) -> Tilt {
        let at = |step: i32| {
            let tilt = Tilt::positive(step);
            (tilt.value(), self.cumulants(tilt))
        };
        let holds = |step: i32| {
            let (c, k) = at(step);
            past(c, &k)
        };
        let (mut low, mut high) = (128, 128);
        let mut stride = 4 * COARSE;
        if holds(high) {
            while low > *STEPS.start() && holds(low) {
                high = low;
                low = (low - stride).max(*STEPS.start());
                stride *= 2;
            }
        } else {
            while high < *STEPS.end() && !holds(high) {
                low = high;
                high = (high + stride).min(*STEPS.end());
                stride = (stride + 4 * COARSE).min(16 * COARSE);
            }
        }
        let halve = |low: &mut i32, high: &mut i32, unit: i32| {
            let middle = *low + (*high - *low) / (2 * unit) * unit;
            let middle = if middle == *low { *low + unit } else { middle };
            if holds(middle) { *high = middle } else { *low = middle }
        };
        while high - low > COARSE {
            halve(&mut low, &mut high, COARSE);
        }
        // A tilted law with two modes: its mean moves from one to the other within a step.
        while high - low > 1 {
            let (below, above) = (at(low).1, at(high).1);
            let spread = below.variance.min(above.variance).sqrt();
            if above.mean - below.mean < 2.0 * spread {
                break;
            }
            halve(&mut low, &mut high, 1);
        }
        let cost_at = |step: i32| {
            let (c, k) = at(step);
            cost(c, &k)
        };
        let best = Tilt::positive(if cost_at(low) < cost_at(high) { low } else { high });
        // Closer to the pole at 0 than half a standard deviation nothing is gained, and the period of
        // the trapezoidal rule would grow like 1/c.
        let apart = 0.5 / self.cumulants(best).variance.sqrt().max(1e-150);
        if best.value() < apart && apart < 1e3 { Tilt::nearest(apart) } else { best }
    }

    /// Counts the work done on this loss; an error when it is more than some seconds' worth.
    fn spend(&self, work: f64) -> Result<(), PrivacyError> {
        let mut kept = self.kept();
        kept.spent += work;
        if kept.spent > MOST_WORK {
            return Err(PrivacyError::TooCostly {
                what: "this run's accounting",
                operations: kept.spent,
                limit: MOST_WORK,
                remedy: "the setting is extreme; ask adversary A1, or for a larger δ",
            });
        }
        Ok(())
    }

    /// For thresholds beyond any sense: Chernoff's bound, without a line.
    fn far(&self, epsilon: f64) -> Point {
        let bound = [-16, 0, 16].map(|step| {
            let tilt = Tilt::positive(step * COARSE);
            let k = self.cumulants(tilt);
            (k.ln_m + k.error - tilt.value() * epsilon).exp()
        });
        let upper = bound.into_iter().filter(|b| b.is_finite()).fold(1.0, f64::min);
        let delta = Interval { lower: 0.0, upper: (upper + self.missing).min(1.0) };
        // Q[Y > ε] ≤ e^{−ε}, and P[Y > ε] ≤ e^{κ(c) − cε}.
        let alpha = Interval { lower: 0.0, upper: (-epsilon).exp() + self.missing };
        Point { epsilon, delta, alpha, beta: Interval { lower: 1.0 - delta.upper, upper: 1.0 } }
    }

    /// The line near κ'(c) = ε + 1/c + 1/(1+c), the saddle point of the integrand of δ(ε).
    fn line_of_delta(&self, epsilon: f64) -> Result<Arc<Contour>, PrivacyError> {
        self.line(self.best_tilt(
            |c, k| k.mean > epsilon + 1.0 / c + 1.0 / (1.0 + c),
            |c, k| k.ln_m - c * epsilon - (c * (1.0 + c)).ln(),
        ))
    }

    /// The line near κ'(c) = ε with c > −1, kept away from the poles at 0 and −1.
    fn line_of_tails(&self, epsilon: f64) -> Result<Arc<Contour>, PrivacyError> {
        let smallest = Tilt::positive(*STEPS.start());
        let at_zero = self.cumulants(smallest);
        let apart = 0.7 / at_zero.variance.sqrt().max(1e-150);
        if at_zero.mean < epsilon || apart > 0.25 {
            let tilt = self.best_tilt(|_, k| k.mean > epsilon, |c, k| k.ln_m - c * epsilon);
            return self.line(if tilt.value() < apart { Tilt::nearest(apart) } else { tilt });
        }
        // κ' increases with c, so with falling |c|.
        let (mut low, mut high) = (-24 * COARSE, -COARSE);
        while high - low > COARSE {
            let middle = (low + high) / (2 * COARSE) * COARSE;
            let tilt = Tilt { negative: true, step: middle };
            if self.cumulants(tilt).mean > epsilon { low = middle } else { high = middle }
        }
        let c = Tilt { negative: true, step: low }.value();
        self.line(Tilt::nearest(c.min(-apart).max(-1.0 + apart)))
    }

    /// The second engine, built once; for few rounds, where M decays too slowly along the line.
    pub(crate) fn grid(&self) -> Arc<Grid> {
        if let Some(grid) = &self.kept().grid {
            return Arc::clone(grid);
        }
        let grid = Arc::new(Grid::new(&self.factors, GRID_POINTS));
        self.kept().grid = Some(Arc::clone(&grid));
        grid
    }

    /// δ is convex in e^ε with slope −α; so the secants to both sides of ε bound α.
    fn point_by_differences(&self, epsilon: f64) -> Result<Point, PrivacyError> {
        // Beyond, e^ε leaves no digits for the secants.
        if epsilon > 300.0 {
            return Ok(self.far(epsilon));
        }
        let at = |e: f64| -> Result<(f64, Interval), PrivacyError> { Ok((e.exp(), self.on_grid(e)?)) };
        let width = 2e-3 * (1.0 + epsilon);
        let (here, delta) = at(epsilon)?;
        let (right, beyond) = at(epsilon + width)?;
        let (left, before) = if epsilon > width {
            at(epsilon - width)?
        } else {
            // e^ε·α ≤ 1 − δ − β and α ≤ 1 hold at ε = 0 as well.
            (0.0, Interval::exact(1.0))
        };
        let alpha = Interval {
            lower: ((delta.lower - beyond.upper) / (right - here)).clamp(0.0, 1.0),
            upper: ((before.upper - delta.lower) / (here - left)).clamp(0.0, 1.0),
        };
        let beta = Interval {
            lower: 1.0 - delta.upper - here * alpha.upper,
            upper: 1.0 - delta.lower - here * alpha.lower,
        };
        Ok(Point { epsilon, delta, alpha, beta: beta.clamp(0.0, 1.0) })
    }

    /// Whether the grid can say anything: its error grows with the number of rounds.
    fn suits_grid(&self) -> bool {
        self.factors.iter().map(|f| f.times).sum::<u64>() <= 5000
    }

    /// δ from the second engine.
    fn on_grid(&self, epsilon: f64) -> Result<Interval, PrivacyError> {
        if self.kept().grid.is_none() {
            let parts: usize = self.factors.iter().map(Factor::parts).sum();
            self.spend(60.0 * (GRID_POINTS * parts) as f64)?;
        }
        self.spend(40.0 * GRID_POINTS as f64)?;
        Ok(self.charged(self.grid().delta(epsilon)))
    }

    fn delta_within(&self, epsilon: f64) -> Result<Interval, PrivacyError> {
        if epsilon > FAR {
            return Ok(self.far(epsilon).delta);
        }
        match self.line_of_delta(epsilon) {
            Ok(line) => {
                let delta = self.charged(line.delta(epsilon));
                if delta.width() <= USEFUL * delta.upper || !self.suits_grid() {
                    return Ok(delta);
                }
                Ok(delta.intersect(self.on_grid(epsilon)?))
            }
            Err(PrivacyError::NotCertified { .. }) => self.on_grid(epsilon),
            Err(error) => Err(error),
        }
    }

    fn charged(&self, delta: Interval) -> Interval {
        Interval { lower: delta.lower, upper: (delta.upper + self.missing).min(1.0) }
    }
}

impl Curve for Loss {
    fn delta(&self, epsilon: f64) -> Result<Interval, PrivacyError> {
        check_epsilon(epsilon)?;
        self.delta_within(epsilon)
    }

    fn point(&self, epsilon: f64) -> Result<Point, PrivacyError> {
        check_epsilon(epsilon)?;
        if epsilon > FAR {
            return Ok(self.far(epsilon));
        }
        let line = match self.line_of_tails(epsilon) {
            Ok(line) => line,
            Err(PrivacyError::NotCertified { .. }) => return self.point_by_differences(epsilon),
            Err(error) => return Err(error),
        };
        let alpha = line.alpha(epsilon);
        let beta = line.beta(epsilon);
        let delta = if line.is_right_of_zero() {
            line.delta(epsilon)
        } else {
            let e = epsilon.exp();
            Interval {
                lower: 1.0 - beta.upper - e * alpha.upper - 2.0 * f64::EPSILON,
                upper: 1.0 - beta.lower - e * alpha.lower + 2.0 * f64::EPSILON,
            }
            .clamp(0.0, 1.0)
        };
        if delta.width() > USEFUL * delta.upper && self.suits_grid() {
            return self.point_by_differences(epsilon);
        }
        Ok(Point {
            epsilon,
            delta: self.charged(delta),
            alpha: Interval { lower: alpha.lower, upper: (alpha.upper + self.missing).min(1.0) },
            beta: Interval { lower: beta.lower, upper: (beta.upper + self.missing).min(1.0) },
        })
    }

    fn epsilon(&self, delta: f64) -> Result<Interval, PrivacyError> {
        check_delta(delta)?;
        // One line near the answer serves the whole root finding. The saddle-point approximation
        // of ln δ falls as c grows.
        let target = delta.ln();
        let approximate = |c: f64, k: &Cumulants| {
            let epsilon = k.mean - 1.0 / c - 1.0 / (1.0 + c);
            let curvature = k.variance + 1.0 / (c * c) + 1.0 / ((1.0 + c) * (1.0 + c));
            k.ln_m - c * epsilon - (c * (1.0 + c)).ln() - 0.5 * (std::f64::consts::TAU * curvature).ln()
        };
        let tilt =
            self.best_tilt(|c, k| approximate(c, k) < target, |c, k| (approximate(c, k) - target).abs());
        if let Ok(line) = self.line(tilt) {
            let result = epsilon_of(&|e| Ok(self.charged(line.delta(e))), delta)?;
            if result.width() < 1e-8 * result.upper {
                return Ok(result);
            }
        }
        if self.delta_within(0.0)?.upper <= delta {
            return Ok(Interval::exact(0.0));
        }
        epsilon_of(&|e| self.delta_within(e), delta)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adversary::{blind_loss, known_by_moments};
    use crate::mechanism::{Length, Neighbours, Noise, PhaseConfig, RunConfig, Sampling};

    fn run(sampling: Sampling, rounds: u64, noise: Noise, differing: u64) -> RunConfig {
        let length = Length::Rounds(rounds);
        let phase = PhaseConfig { sampling, length, noise, filtered: false };
        RunConfig { differing, ..RunConfig::single(phase) }
    }

    fn overlap(a: Interval, b: Interval) -> bool {
        a.lower <= b.upper && b.lower <= a.upper
    }

    /// The contour and the grid share nothing but the description of the round; each certifies an
    /// interval, and the two must overlap.
    #[test]
    fn both_engines_agree_within_their_intervals() {
        let subsample = Sampling::Subsample { samples: 500, groups: 5, group_size: 2 };
        let poisson = |rate| Sampling::Poisson { rate };
        let mut substitute = run(poisson(0.05), 80, Noise::Multiplier(1.5), 1);
        substitute.neighbours = Neighbours::Substitute;
        let mut released = run(subsample, 60, Noise::Sigma(1.0), 1);
        released.releases = vec![0.4];
        for (config, reversed) in [
            (run(poisson(0.02), 300, Noise::Multiplier(0.7), 1), false),
            (run(poisson(0.02), 300, Noise::Multiplier(0.7), 1), true),
            (run(poisson(0.02), 300, Noise::Multiplier(2.0), 3), false),
            (substitute, false),
            (run(subsample, 200, Noise::Sigma(0.8), 1), false),
            (run(subsample, 200, Noise::Sigma(2.0), 4), false),
            (released, false),
        ] {
            let loss = blind_loss(&config.check().unwrap(), reversed).unwrap();
            for epsilon in [0.0, 0.3, 1.0, 3.0] {
                let contour = loss.line_of_delta(epsilon).unwrap().delta(epsilon);
                let grid = loss.grid().delta(epsilon);
                assert!(overlap(contour, grid), "{config:?} {epsilon}: {contour:?} {grid:?}");
                assert!(contour.width() < 1e-7 * contour.upper, "{config:?} {epsilon}: {contour:?}");
                assert!(grid.width() < 0.2 * grid.upper, "{config:?} {epsilon}: {grid:?}");
            }
        }
    }

    #[test]
    fn both_engines_agree_for_the_adversary_who_knows_the_sampling() {
        let shuffle = Sampling::Shuffle { samples: 130, groups: 4, group_size: 4 };
        let config = run(shuffle, 8 * 12, Noise::Sigma(3.0), 2);
        let mechanism = config.check().unwrap();
        let moments = known_by_moments(&mechanism).unwrap();
        let direct = crate::adversary::mixture(&mechanism).unwrap().unwrap();
        for epsilon in [0.0, 0.5, 2.0, 6.0] {
            let contour = moments.line_of_delta(epsilon).unwrap().delta(epsilon);
            let (grid, sum) = (moments.grid().delta(epsilon), direct.delta(epsilon).unwrap());
            assert!(overlap(contour, grid), "{epsilon}: {contour:?} {grid:?}");
            assert!(overlap(contour, sum), "{epsilon}: {contour:?} {sum:?}");
            assert!(contour.width() < 1e-9 * contour.upper);
        }
    }

    /// One round has a closed form: δ(ε) = P[Y > ε] − e^ε·Q[Y > ε].
    #[test]
    fn few_rounds_are_left_to_the_grid_and_hold_the_closed_form() {
        let config = run(Sampling::Poisson { rate: 0.1 }, 1, Noise::Multiplier(1.0), 1);
        let loss = blind_loss(&config.check().unwrap(), false).unwrap();
        for epsilon in [0.1_f64, 0.5, 2.0] {
            let x = ((epsilon.exp() - 0.9) / 0.1).ln() + 0.5;
            let q = crate::normal::cdf(-x);
            let p = 0.9 * q + 0.1 * crate::normal::cdf(1.0 - x);
            let delta = loss.delta(epsilon).unwrap();
            assert!(delta.contains(p - epsilon.exp() * q), "{epsilon}: {delta:?}");
            assert!(delta.width() < 1e-5 * delta.upper, "{delta:?}");
        }
    }
}
