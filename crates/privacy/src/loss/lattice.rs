//! A few rounds of which one tells most: the law of the sum on a lattice, convolved term by term.
//!
//! Where rounds are rare and loud, the tilted law of the loss has two modes, and ε lies between them: a line
//! and a Fourier transform work relative to modes that weigh up to 10²⁰ times δ. Here every number is a sum of
//! positive products, so each keeps a small relative error however small it is, and no tilt is needed.
//!
//! Upper end: the mass of a cell is split between its two ends so that its masses under P and under Q are kept
//! ("connect the dots", Doroshenko et al. 2022). Lower end: cells whose own loss lies on the lattice. Both are as
//! in `grid`. What leaves the window goes to where it does no harm: for the upper end down to the window's
//! bottom is raised to it and what is above counts as infinite, for the lower end it is dropped or lowered.

use dpsgd_kernels::fast;

use super::cells::OneRound;
use super::factor::Factor;
use crate::interval::Interval;

/// How close, in steps, the search for a merged cell's end brings its loss to a lattice point, and how far below
/// the point its proved loss may lie. The farthest of all is charged to ε for every round.
const SOLVED: f64 = 1e-7;
const MOST_SHORT: f64 = 1e-5;
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
/// Masses below this are not carried on.
const TINY: f64 = 1e-290;

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

/// A law under P: `mass[i]` at index `first` + i, and what counts as infinite.
#[derive(Clone, Debug)]
struct Law {
    first: i64,
    mass: Vec<f64>,
    above: f64,
}

/// For a law b and every index J: Σ b_j, Σ b_j·e^{−(j−J)h} and Σ b_j·(1 − e^{−(j−J)h}) over j ≥ J.
#[derive(Debug)]
struct Sums {
    first: i64,
    total: Vec<f64>,
    discounted: Vec<f64>,
    gained: Vec<f64>,
    above: f64,
}

/// Which of the two ends a law is for.
#[derive(Clone, Copy, PartialEq)]
enum End {
    Upper,
    Lower,
}

/// Indices that are kept.
#[derive(Clone, Copy)]
struct Window {
    bottom: i64,
    top: i64,
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
                while enough(0.95 * top) {
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

/// Every cell's mass split between its ends.
fn split(round: &OneRound<'_>, origin: f64, step: f64, (low, high): (f64, f64), window: Window) -> Law {
    let first = (((low - origin) / step).floor() as i64).max(window.bottom);
    let last = (((high - origin) / step).ceil() as i64).min(window.top).max(first + 1);
    let mut mass = vec![0.0; (last - first + 1) as usize];
    let (mut left, mut right) = (round.edge(f64::NEG_INFINITY), round.edge(origin + first as f64 * step));
    // Losses below the window are raised to its bottom.
    let below = round.cell(&left, &right);
    mass[0] = below.p + below.error_of_p;
    let shrunk = -(-step).exp_m1();
    for i in first..last {
        std::mem::swap(&mut left, &mut right);
        let (lower, upper) = (origin + i as f64 * step, origin + (i + 1) as f64 * step);
        round.move_edge(&mut right, upper, Some(&left));
        let cell = round.cell(&left, &right);
        // (p − up)·e^{−lower} + up·e^{−upper} = q. Both numbers are rounded up, which only raises losses.
        let p = (cell.p + cell.error_of_p).max(0.0);
        let factor = lower.exp_m1();
        let difference = cell.gain - factor * cell.q;
        let error = cell.error_of_gain
            + factor.abs() * (cell.error_of_q + 4.0 * f64::EPSILON * cell.q)
            + 4.0 * f64::EPSILON * (cell.gain.abs() + difference.abs());
        let up = (difference + error) / shrunk;
        let up = if up.is_nan() { p } else { up.clamp(0.0, p) };
        let at = (i - first) as usize;
        mass[at] += p - up;
        mass[at + 1] += up;
    }
    let beyond = round.cell(&right, &round.edge(f64::INFINITY));
    let mut above = beyond.p + beyond.error_of_p + round.left_out();
    let atom = round.atom().0;
    if last < 0 {
        above += atom;
    } else {
        mass[(-first).max(0) as usize] += atom;
    }
    let mut law = Law { first, mass, above };
    law.without_tiny(End::Upper);
    law
}

/// Cells whose own loss ln(p/q) lies on the lattice, and how far below it at most, in steps.
fn merged(
    round: &OneRound<'_>,
    origin: f64,
    step: f64,
    (low, high): (f64, f64),
    window: Window,
) -> (Law, f64) {
    let first = (((low - origin) / step).floor() as i64).max(window.bottom).min(0);
    let last = (((high - origin) / step).ceil() as i64).clamp(1, window.top.max(1));
    let mut mass = vec![0.0; (last - first + 1) as usize];
    // The central cell has its loss at the origin, or just above it.
    let (from, to) = round.centre(step);
    let central = round.cell(&round.edge(from), &round.edge(to));
    mass[(-first) as usize] += (central.p - central.error_of_p).max(0.0) + round.atom().1;
    let mut short = 0.0_f64;
    for (sign, start, limit) in [(1.0, to, high), (-1.0, from, low)] {
        let mut at = start;
        let mut near = round.edge(at);
        let mut far = near.clone();
        while sign * (limit - at) > 0.0 {
            let place = sign * (at - origin) / step;
            // The next point at least a quarter of a step inside the cell, so that cells are about a step wide.
            // Where the law falls so steeply that no cell reaches it, one that is nearer.
            let mut found = None;
            let mut reached = at;
            for inside in [0.25, 0.01] {
                let index = sign * (place + inside).ceil();
                if found.is_some_and(|(_, _, other)| other == index) {
                    break;
                }
                let wanted = origin + index * step;
                // In steps, counted away from the centre.
                let clamped = |length: f64| at + sign * step * length.clamp(0.02, 3.5);
                let mut end = clamped(2.0 * (wanted - at) * sign / step);
                let mut is_solved = false;
                for _ in 0..8 {
                    round.move_edge(&mut far, end, Some(&near));
                    reached = end;
                    let cell = if sign > 0.0 { round.cell(&near, &far) } else { round.cell(&far, &near) };
                    if cell.p.is_nan() || cell.p <= TINY || cell.q <= 0.0 {
                        found = None;
                        break;
                    }
                    let (loss, error) = cell.loss();
                    found = Some((cell, loss - error, index));
                    let gap = wanted - loss;
                    is_solved = gap.abs() < SOLVED * step;
                    let next = clamped(sign * (end + 2.0 * gap - at) / step);
                    if is_solved || next == end {
                        break;
                    }
                    end = next;
                }
                if is_solved || found.is_none() {
                    break;
                }
            }
            if let Some((cell, loss, index)) = found {
                let missing = (origin + index * step - loss) / step;
                let index = if missing <= MOST_SHORT {
                    short = short.max(missing);
                    index
                } else {
                    ((loss - origin) / step).floor()
                };
                if index >= first as f64 {
                    let at = index.min(last as f64) as i64 - first;
                    mass[at as usize] += (cell.p - cell.error_of_p).max(0.0);
                }
            }
            std::mem::swap(&mut near, &mut far);
            at = reached;
        }
    }
    let mut law = Law { first, mass, above: 0.0 };
    law.without_tiny(End::Lower);
    (law, short)
}

/// The product of all powers, but for the last multiplication.
fn two_powers(laws: Vec<(Law, u64)>, window: Window, end: End) -> Option<(Law, Law)> {
    let alone = laws.len() == 1;
    let mut list: Vec<Law> = Vec::new();
    for (law, times) in laws {
        let mut power = law;
        let mut left = times;
        while left > 0 {
            if alone && left == 2 && list.is_empty() {
                return Some((power.clone(), power));
            }
            if left & 1 == 1 {
                list.push(power.clone());
            }
            left >>= 1;
            if left > 0 {
                power = convolve(&power, &power, window, end);
            }
        }
    }
    while list.len() > 2 {
        let (a, b) = (list.remove(0), list.remove(0));
        list.push(convolve(&a, &b, window, end));
    }
    let b = list.pop()?;
    Some((list.pop()?, b))
}

/// Rows that are added together.
const ROWS: usize = 4;

/// The law of the sum of two.
fn convolve(a: &Law, b: &Law, window: Window, end: End) -> Law {
    let first = (a.first + b.first).max(window.bottom);
    let last = (a.last() + b.last()).min(window.top).max(first);
    let size = (last - first + 1) as usize;
    let mut mass = vec![0.0; size];
    // Zeros on both sides, so that every row of a block has the same range.
    let mut padded = vec![0.0; b.mass.len() + 2 * (ROWS - 1)];
    padded[ROWS - 1..ROWS - 1 + b.mass.len()].copy_from_slice(&b.mass);
    let start = a.first + b.first - first;
    fast(
        #[inline(always)]
        || {
            for (block, rows) in a.mass.chunks(ROWS).enumerate() {
                let mut row = [0.0; ROWS];
                row[..rows.len()].copy_from_slice(rows);
                if row == [0.0; ROWS] {
                    continue;
                }
                // Where the block's first term lands; the window cuts both ends.
                let at = start + (block * ROWS) as i64;
                let skip = (-at).max(0) as usize;
                let count = b.mass.len() + ROWS - 1;
                let room = (size as i64 - at).max(0) as usize;
                let until = count.min(room);
                if skip >= until {
                    continue;
                }
                let out = &mut mass[(at + skip as i64) as usize..(at + until as i64) as usize];
                let n = out.len();
                let b0 = &padded[skip + 3..][..n];
                let b1 = &padded[skip + 2..][..n];
                let b2 = &padded[skip + 1..][..n];
                let b3 = &padded[skip..][..n];
                for i in 0..n {
                    out[i] += (row[0] * b0[i] + row[1] * b1[i]) + (row[2] * b2[i] + row[3] * b3[i]);
                }
            }
        },
    );
    // What lies outside the window: sums of b up to and from every index.
    let mut up_to = Vec::with_capacity(b.mass.len() + 1);
    up_to.push(0.0);
    for &m in &b.mass {
        up_to.push(up_to[up_to.len() - 1] + m);
    }
    let mut from = vec![0.0; b.mass.len() + 1];
    for (j, &m) in b.mass.iter().enumerate().rev() {
        from[j] = from[j + 1] + m;
    }
    let (mut below, mut above) = (0.0, 0.0);
    let clamped = |j: i64| j.clamp(0, b.mass.len() as i64) as usize;
    for (i, &m) in a.mass.iter().enumerate() {
        let offset = a.first + i as i64 + b.first;
        below += m * up_to[clamped(first - offset)];
        above += m * from[clamped(last + 1 - offset)];
    }
    let mut law = Law { first, mass, above: 0.0 };
    match end {
        End::Upper => {
            law.mass[0] += below;
            let (all_a, all_b) = (a.mass.iter().sum::<f64>(), b.mass.iter().sum::<f64>());
            law.above = above + a.above * (all_b + b.above) + all_a * b.above;
        }
        End::Lower => law.mass[size - 1] += above,
    }
    law.without_tiny(end);
    law
}

impl Law {
    fn last(&self) -> i64 {
        self.first + self.mass.len() as i64 - 1
    }

    /// Sets masses to zero that would only make subnormal products; the upper end counts them as infinite.
    fn without_tiny(&mut self, end: End) {
        let mut gone = 0.0;
        for mass in self.mass.iter_mut().filter(|m| **m < TINY) {
            gone += *mass;
            *mass = 0.0;
        }
        if end == End::Upper {
            self.above += gone;
        }
    }
}

impl Sums {
    fn new(law: &Law, step: f64) -> Self {
        let n = law.mass.len();
        let (mut total, mut discounted, mut gained) = (vec![0.0; n + 1], vec![0.0; n + 1], vec![0.0; n + 1]);
        let (kept, lost) = ((-step).exp(), -(-step).exp_m1());
        for j in (0..n).rev() {
            total[j] = total[j + 1] + law.mass[j];
            discounted[j] = kept * discounted[j + 1] + law.mass[j];
            gained[j] = gained[j + 1] + lost * discounted[j + 1];
        }
        Self { first: law.first, total, discounted, gained, above: law.above }
    }

    /// Σ b_j·(1 − e^{−(j−J)h − ahead}) over j ≥ J, with `share` = 1 − e^{−ahead}, and what counts as infinite.
    #[inline]
    fn expectation(&self, index: i64, share: f64, ahead: f64, step: f64) -> f64 {
        let j = index - self.first;
        if j >= self.total.len() as i64 {
            return self.above;
        }
        if j >= 0 {
            let j = j as usize;
            return self.above + self.gained[j] + share * self.discounted[j];
        }
        // All of b lies above, by −j steps more.
        let share = -(-(ahead - j as f64 * step)).exp_m1();
        self.above + self.gained[0] + share * self.discounted[0]
    }

    fn tail(&self, index: i64) -> f64 {
        let j = (index - self.first).clamp(0, self.total.len() as i64 - 1) as usize;
        self.above + self.total[j]
    }
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

    #[test]
    fn convolution_is_the_double_sum() {
        let law = |first: i64, mass: &[f64], above: f64| Law { first, mass: mass.to_vec(), above };
        let a = law(-3, &[0.1, 0.2, 0.0, 0.3, 0.15, 0.05, 0.1], 0.1);
        let b = law(-2, &[0.3, 0.1, 0.25, 0.05, 0.2], 0.1);
        for (bottom, top) in [(-10, 20), (-4, 3), (-2, 6), (0, 1)] {
            let window = Window { bottom, top };
            let mut expected = std::collections::BTreeMap::new();
            let mut above = a.above + b.above - a.above * b.above;
            let mut cut = 0.0;
            for (i, x) in a.mass.iter().enumerate() {
                for (j, y) in b.mass.iter().enumerate() {
                    let at = a.first + b.first + (i + j) as i64;
                    if at > top {
                        above += x * y;
                        cut += x * y;
                    }
                    *expected.entry(at).or_insert(0.0) += x * y;
                }
            }
            let (upper, lower) = (convolve(&a, &b, window, End::Upper), convolve(&a, &b, window, End::Lower));
            assert!((upper.above - above).abs() < 1e-15, "{upper:?} {above}");
            let below: f64 = expected.range(..bottom).map(|(_, v)| v).sum();
            for (&at, &value) in expected.range(bottom..=top) {
                let got = |law: &Law| law.mass[(at - law.first) as usize];
                let raised = if at == upper.first { below } else { 0.0 };
                let lowered = if at == lower.last() { cut } else { 0.0 };
                assert!((got(&upper) - value - raised).abs() < 1e-15, "{at} {upper:?}");
                assert!((got(&lower) - value - lowered).abs() < 1e-15, "{at} {lower:?}");
            }
        }
    }
}
