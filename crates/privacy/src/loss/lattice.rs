//! A few rounds of which one tells most: the law of the sum on a lattice, convolved term by term.
//!
//! Where rounds are rare and loud, the tilted law of the loss has two modes, and ε lies between them: a line
//! and a Fourier transform work relative to modes that weigh up to 10²⁰ times δ. Here every number is a sum of
//! positive products, so each keeps a small relative error however small it is, and no tilt is needed.
//!
//! Upper end: the mass of a cell is split between its two ends so that its masses under P and under Q are kept
//! ("connect the dots", Doroshenko et al. 2022). Lower end: cells whose own loss lies on the lattice. Both are as
//! in `grid`. What leaves the window goes to where it does no harm: for the upper end, what is below is raised to
//! the window's bottom, and what is above counts as infinite; for the lower end it is dropped or lowered.

mod law;
mod round;

use law::{End, Law, Sums, Window, two_powers};
use round::{merged, split};

use super::cells::OneRound;
use super::factor::Factor;
use crate::interval::Interval;

/// Room for the places of the edges, in steps; charged to ε for every round.
const PLACED: f64 = 1e-8;
/// Probability below the window and, relative to δ, above it.
const OUTSIDE: f64 = 1e-10;
/// Points of the run that only finds the window.
const SCOUT: usize = 1 << 10;
/// The most points of a window.
const MOST_POINTS: f64 = (1 << 15) as f64;
/// Components of a smaller share of all rounds together count as infinite.
const LEAST_SHARE: f64 = 1e-42;
/// Fewer say too little.
const LEAST_POINTS: f64 = 2000.0;
/// What the edges of a cell cost at both ends for each normal distribution, in sines, and what all may cost.
const WORK_OF_POINT: f64 = 200.0;
const MOST_WORK_OF_CELLS: f64 = 4e7;
/// Multiplications of all convolutions of one end.
const MOST_PRODUCTS: f64 = 2.5e8;

/// What a lattice is made for: it is narrow there, and valid everywhere.
#[derive(Clone, Copy, Debug)]
pub(super) enum Near {
    Delta(f64),
    Epsilon(f64),
}

/// The loss of a whole run on a lattice.
#[derive(Debug)]
pub(super) struct Lattice {
    step: f64,
    /// The loss at index 0.
    origin: f64,
    /// Room in ε for the places of edges, and for the cells of the lower end.
    placed: f64,
    short: f64,
    /// The relative error of every number.
    relative: f64,
    upper: (Law, Sums),
    lower: (Law, Sums),
}

impl Lattice {
    /// Roughly what [`new`](Self::new) costs, in sines.
    pub(super) fn work(factors: &[Factor]) -> f64 {
        let points = points(factors);
        WORK_OF_POINT * normals(factors) * points + 4.0 * convolutions(factors) * points * points / 100.0
    }

    /// Whether the components leave room for enough points.
    pub(super) fn is_affordable(factors: &[Factor]) -> bool {
        points(factors) >= LEAST_POINTS
    }

    /// The laws of the sum, narrow near a δ or an ε; `None` where nothing of use can be built.
    pub(super) fn new(factors: &[Factor], near: Near) -> Option<Self> {
        let times = rounds_of(factors);
        let rounds: Vec<OneRound<'_>> =
            factors.iter().map(|f| OneRound::new(f, LEAST_SHARE / times)).collect();
        let excess = |e: f64| rounds.iter().map(|r| r.times as f64 * r.excess(e)).sum::<f64>();
        let delta = match near {
            Near::Delta(delta) => delta,
            // One round alone may not reach ε.
            Near::Epsilon(epsilon) => excess(epsilon).max(1e-60),
        };
        if delta.is_nan() || delta <= 1e-280 {
            return None;
        }
        let scale = rounds.iter().map(OneRound::scale).fold(0.0, f64::max).clamp(1e-14, 1e3);
        let (above, below) = (OUTSIDE * delta / times, OUTSIDE / times);
        let (mut high, mut low) = (0.0_f64, 0.0_f64);
        for round in &rounds {
            high = high.max(falls_to(scale, |y| round.beyond(y) <= above)?);
            low = low.min(-falls_to(scale, |y| round.below(-y) <= below)?);
        }
        // The bulk of the sum, without the rare rounds that tell most.
        let (mut mean, mut variance, mut bulk) = (0.0, 0.0, 0.0_f64);
        for round in &rounds {
            let common = falls_to(scale, |y| round.beyond(y) * times <= 1e-2)?;
            let (m, v) = round.moments(low, common.min(high));
            mean += round.times as f64 * m;
            variance += round.times as f64 * v;
            bulk = bulk.max(common);
        }
        let spread = 7.0 * variance.sqrt();
        let bottom = low + mean.min(0.0) - spread;
        let mut top = (high + mean.max(0.0) + spread + bulk).max(match near {
            Near::Epsilon(epsilon) => 1.2 * epsilon,
            Near::Delta(_) => 0.0,
        });
        // A coarse run shows how far up the sum of several loud rounds reaches.
        for attempt in 0..6 {
            let scout = Self::within(&rounds, bottom, top, (low, high), SCOUT as f64)?;
            let delta = match near {
                Near::Delta(delta) => delta,
                Near::Epsilon(epsilon) => scout.upper_end(epsilon).max(delta.min(1.0)),
            };
            if scout.beyond(top) <= 1e-7 * delta {
                let enough = |y: f64| scout.beyond(y) <= 1e-8 * delta;
                // The law may have next to nothing above 0.
                let lowest = 1e-3 * top;
                while top > lowest && enough(0.95 * top) {
                    top *= 0.95;
                }
                break;
            }
            if attempt == 5 {
                return None;
            }
            top *= 1.7;
        }
        Self::within(&rounds, bottom, top, (low, high), points(factors))
    }

    /// The laws in a window of the sum, from rounds within `range`.
    fn within(
        rounds: &[OneRound<'_>],
        bottom: f64,
        top: f64,
        range: (f64, f64),
        points: f64,
    ) -> Option<Self> {
        let step = (top - bottom) / points;
        let window = Window { bottom: (bottom / step).floor() as i64, top: (top / step).ceil() as i64 };
        let origins: Vec<f64> = rounds.iter().map(|r| r.origin(step)).collect();
        let powers = |laws: Vec<(Law, u64)>, end: End| -> Option<(Law, Sums)> {
            let (a, b) = two_powers(laws, window, end)?;
            Some((a, Sums::new(&b, step)))
        };
        let each = || rounds.iter().zip(&origins);
        let upper = each().map(|(r, &o)| (split(r, o, step, range, window), r.times)).collect();
        let mut short = 0.0;
        let mut lower = Vec::with_capacity(rounds.len());
        for (round, &origin) in each() {
            let (law, missing) = merged(round, origin, step, range, window);
            short += round.times as f64 * missing;
            lower.push((law, round.times));
        }
        let times: f64 = rounds.iter().map(|r| r.times as f64).sum();
        let count = (window.top - window.bottom) as f64 + 64.0;
        // An error of the weights moves Y in proportion to itself.
        let reach = top.max(-bottom);
        let placed = |r: &OneRound<'_>| r.times as f64 * (PLACED * step + 4.0 * r.relative_error() * reach);
        Some(Self {
            step,
            origin: rounds.iter().zip(&origins).map(|(r, o)| r.times as f64 * o).sum(),
            placed: rounds.iter().map(placed).sum(),
            short: short * step,
            relative: 2.0 * (times + 16.0) * count * f64::EPSILON,
            upper: powers(upper, End::Upper)?,
            lower: powers(lower, End::Lower)?,
        })
    }

    /// δ(ε).
    ///
    /// # Guarantee
    /// The upper law dominates the loss of every round in the convex order that δ respects, the lower one is
    /// dominated; their products do the same. All roundings of positive sums are in `relative`, those of edges
    /// and of solved cells in `placed` and `short`.
    pub(super) fn delta(&self, epsilon: f64) -> Interval {
        let upper = self.upper_end(epsilon);
        let (law, sums) = &self.lower;
        let lower = self.sum(law, sums, epsilon + self.placed + self.short) * (1.0 - self.relative);
        Interval { lower: lower.clamp(0.0, upper), upper }
    }

    fn upper_end(&self, epsilon: f64) -> f64 {
        let (law, sums) = &self.upper;
        let upper = self.sum(law, sums, epsilon - self.placed) * (1.0 + self.relative);
        if upper.is_nan() { 1.0 } else { upper.clamp(0.0, 1.0) }
    }

    /// E[(1 − e^{ε−Y})₊] for the sum of two independent laws.
    fn sum(&self, a: &Law, b: &Sums, epsilon: f64) -> f64 {
        let place = (epsilon - self.origin) / self.step;
        let index = place.floor();
        // How far the first index above ε lies beyond it, the same for all pairs.
        let ahead = (index + 1.0 - place) * self.step;
        let share = -(-ahead).exp_m1();
        let index = index.clamp(-1e15, 1e15) as i64 + 1;
        let of_a = |(i, &mass): (usize, &f64)| {
            mass * b.expectation(index - a.first - i as i64, share, ahead, self.step)
        };
        a.mass.iter().enumerate().map(of_a).sum::<f64>() + a.above
    }

    /// About P[Y > y], from above.
    fn beyond(&self, y: f64) -> f64 {
        let (a, b) = &self.upper;
        let index = ((y - self.origin) / self.step).floor() as i64 + 1;
        let of_a = |(i, &mass): (usize, &f64)| mass * b.tail(index - a.first - i as i64);
        a.mass.iter().enumerate().map(of_a).sum::<f64>() + a.above
    }
}

/// The convolutions that one end takes.
fn convolutions(factors: &[Factor]) -> f64 {
    let of = |times: u64| (u64::BITS - times.leading_zeros() + times.count_ones()) as f64 - 1.0;
    (factors.iter().map(|f| of(f.times)).sum::<f64>() + factors.len() as f64 - 3.0).max(0.0)
}

fn rounds_of(factors: &[Factor]) -> f64 {
    factors.iter().map(|f| f.times as f64).sum()
}

/// The normal distributions that every edge of a cell looks at.
fn normals(factors: &[Factor]) -> f64 {
    let negligible = LEAST_SHARE / rounds_of(factors);
    factors.iter().map(|f| OneRound::normals(f, negligible) as f64).sum()
}

/// How many points a window gets.
fn points(factors: &[Factor]) -> f64 {
    let by_products = (2.0 * MOST_PRODUCTS / convolutions(factors).max(0.1)).sqrt();
    by_products.min(MOST_WORK_OF_CELLS / (WORK_OF_POINT * normals(factors))).min(MOST_POINTS)
}

/// About the smallest y > 0 for which a falling condition holds, not much larger than needed.
fn falls_to(scale: f64, holds: impl Fn(f64) -> bool) -> Option<f64> {
    let mut high = scale;
    while holds(high) && high > 1e-18 {
        high *= 0.25;
    }
    while !holds(high) {
        high *= 1.3;
        if high > 1e6 {
            return None;
        }
    }
    let mut low = high / 1.3;
    for _ in 0..4 {
        let middle = 0.5 * (low + high);
        if holds(middle) { high = middle } else { low = middle }
    }
    Some(high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::contour::Contour;
    use crate::loss::factor::Kind;
    use crate::loss::grid::both::Both;
    use crate::loss::round::Shape;

    fn factor(shape: Shape, times: u64) -> Factor {
        Factor { kind: Kind::Round { shape, relative_error: 0.0 }, times }
    }

    fn removed(rate: f64, z: f64, times: u64) -> Factor {
        let plus = vec![(0.0, 1.0 - rate), (1.0 / z, rate)];
        factor(Shape::Line { plus, minus: Vec::new() }, times)
    }

    fn added(rate: f64, z: f64, times: u64) -> Factor {
        let minus = vec![(0.0, 1.0 - rate), (1.0 / z, rate)];
        factor(Shape::Line { plus: Vec::new(), minus }, times)
    }

    fn replaced(rate: f64, z: f64, times: u64) -> Factor {
        let side = |shift: f64| vec![(0.0, 1.0 - rate), (shift, rate)];
        factor(Shape::Line { plus: side(1.0 / z), minus: side(-1.0 / z) }, times)
    }

    fn subsampled(hit: f64, sigma: f64, times: u64) -> Factor {
        factor(Shape::Halves { parts: vec![(1.0 / sigma, 0.9), (2.0 / sigma, 0.1)], hit }, times)
    }

    fn known(untouched: f64, mu: f64, times: u64) -> Factor {
        let parts = vec![(mu * mu, 0.9 * (1.0 - untouched)), (4.0 * mu * mu, 0.1 * (1.0 - untouched))];
        Factor { kind: Kind::Known { parts, untouched, relative_error: 0.0 }, times }
    }

    fn runs() -> Vec<Vec<Factor>> {
        let gaussian = Factor { kind: Kind::Gaussian(0.04), times: 1 };
        vec![
            vec![removed(0.1, 1.0, 4)],
            vec![removed(0.01, 0.8, 20)],
            vec![added(0.1, 1.0, 5)],
            vec![replaced(0.05, 1.5, 7)],
            vec![subsampled(0.05, 0.8, 6)],
            vec![subsampled(0.3, 2.0, 3), subsampled(0.01, 0.7, 2)],
            vec![known(0.9, 0.7, 5)],
            vec![gaussian, removed(0.05, 0.9, 3)],
        ]
    }

    fn overlap(a: Interval, b: Interval) -> bool {
        a.lower <= b.upper && b.lower <= a.upper
    }

    /// The contour and the grid share only the description of the round with it.
    #[test]
    fn the_other_engines_agree_within_their_intervals() {
        for factors in runs() {
            let grid = Both::new(&factors, 1 << 14);
            for epsilon in [0.05, 0.5, 1.5, 3.0] {
                if epsilon >= factors.iter().map(Factor::largest_loss).sum() {
                    continue;
                }
                let lattice = Lattice::new(&factors, Near::Epsilon(epsilon)).unwrap().delta(epsilon);
                assert!(lattice.width() < 1e-3 * lattice.upper + 1e-13, "{factors:?} {epsilon}: {lattice:?}");
                let grid = grid.delta(epsilon);
                assert!(overlap(lattice, grid), "{factors:?} {epsilon}: {lattice:?} {grid:?}");
                for c in [2.0, 6.0] {
                    let Ok(line) = Contour::new(&factors, c, 1 << 18, &|_| Ok(())) else { continue };
                    let line = line.delta(epsilon);
                    assert!(overlap(lattice, line), "{factors:?} {epsilon} {c}: {lattice:?} {line:?}");
                }
            }
        }
    }

    /// What is made for one threshold holds at all others, above and below its window too.
    #[test]
    fn a_lattice_holds_far_from_where_it_was_made() {
        for factors in runs() {
            let here = Lattice::new(&factors, Near::Delta(1e-9)).unwrap();
            for epsilon in [0.0, 1e-3, 0.2, 1.0, 4.0, 20.0] {
                let Some(there) = Lattice::new(&factors, Near::Epsilon(epsilon)) else { continue };
                let (here, there) = (here.delta(epsilon), there.delta(epsilon));
                assert!(
                    here.lower <= here.upper && overlap(here, there),
                    "{factors:?} {epsilon}: {here:?} {there:?}"
                );
            }
        }
    }

    /// With next to nothing above 0, where δ(0) is far below the δ that is asked for.
    #[test]
    fn a_law_that_hardly_ever_leaks_has_an_answer() {
        let parts = vec![(20.0, 1.0)];
        let factors = [factor(Shape::Halves { parts, hit: 1e-9 }, 3)];
        let lattice = Lattice::new(&factors, Near::Delta(0.3)).unwrap();
        let delta = lattice.delta(0.0);
        assert!(delta.upper < 1e-8 && delta.lower > 1e-10, "{delta:?}");
    }

    /// The upper laws lose no probability, the lower ones gain none, whatever the window cuts off.
    #[test]
    fn probability_is_kept_on_the_safe_side() {
        for factors in runs() {
            for (bottom, top) in [(-8.0, 12.0), (-0.3, 0.4), (-0.01, 3.0)] {
                let rounds: Vec<_> = factors.iter().map(|f| OneRound::new(f, 0.0)).collect();
                let lattice = Lattice::within(&rounds, bottom, top, (-6.0, 9.0), 700.0).unwrap();
                let total = |(a, b): &(Law, Sums)| {
                    let all = a.mass.iter().sum::<f64>() * (b.total[0] + b.above);
                    all + a.above
                };
                let (upper, lower) = (total(&lattice.upper), total(&lattice.lower));
                assert!((1.0 - 1e-12..1.0 + 1e-9).contains(&upper), "{factors:?} {bottom} {top}: {upper:e}");
                assert!(lower <= 1.0 + 1e-12, "{factors:?} {bottom} {top}: {lower:e}");
            }
        }
    }

    /// Sixteen times the points: both ends close in on what is between them, in the end like the square of the step.
    #[test]
    fn finer_lattices_are_narrower() {
        for factors in runs() {
            let rounds: Vec<_> = factors.iter().map(|f| OneRound::new(f, 0.0)).collect();
            let made =
                |points| Lattice::within(&rounds, -10.0, 14.0, (-6.0, 9.0), points).unwrap().delta(0.3);
            let (coarse, fine) = (made(500.0), made(8000.0));
            assert!(overlap(coarse, fine), "{factors:?}: {coarse:?} {fine:?}");
            assert!(fine.width() < 0.1 * coarse.width(), "{factors:?}: {coarse:?} {fine:?}");
        }
    }
}
