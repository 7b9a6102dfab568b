//! One round's privacy loss cut into cells, with masses that do not cancel: every number is a sum over normal
//! distributions of differences of tails, and P − Q is formed before anything is rounded to the size of P.

use super::factor::{Factor, Kind};
use super::round::{Shape, ln_mixture};
use super::tails::{scale, solve};
use crate::normal::cdf;

/// Relative room for a tail of the normal distribution at a rounded place.
const ROUNDING: f64 = 32.0 * f64::EPSILON;

/// The pair of one round, ready to be cut.
pub(super) struct OneRound<'a> {
    pub times: u64,
    factor: &'a Factor,
    components: Vec<Component<'a>>,
    /// Probability of Y = 0, the same under P and Q.
    atom: f64,
    /// A bound on the probability under P of what was left out.
    left_out: f64,
    relative_error: f64,
}

/// A part of the round on which Y is a monotone function of a normal variable x.
struct Component<'a> {
    weight: f64,
    place: Place<'a>,
    normals: Vec<Normal>,
    /// Y → −Y with P and Q exchanged.
    mirrored: bool,
}

/// N(shift, 1) with its weights in P and in Q. The first one has shift 0.
struct Normal {
    shift: f64,
    p: f64,
    q: f64,
}

/// Where Y = y.
enum Place<'a> {
    /// Y = ln w₊(x) − ln w₋(x) on the whole line.
    Line { plus: &'a [(f64, f64)], minus: &'a [(f64, f64)] },
    /// Y = ln(1 − η + η·e^{shift·x − shift²/2}), the half with Y > 0.
    Half { shift: f64, hit: f64 },
}

/// A threshold: for every component its place, and for every normal the tail beyond it.
#[derive(Clone)]
pub(super) struct Edge {
    x: Vec<f64>,
    tails: Vec<f64>,
}

/// The masses of Y between two thresholds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cell {
    pub p: f64,
    pub q: f64,
    /// p − q.
    pub gain: f64,
    pub error_of_p: f64,
    pub error_of_q: f64,
    pub error_of_gain: f64,
}

impl<'a> OneRound<'a> {
    /// Components of less than `negligible` share together are left out; what they may do is in
    /// [`left_out`](Self::left_out).
    pub(super) fn new(factor: &'a Factor, negligible: f64) -> Self {
        let mut left_out = 0.0;
        let gaussian = |square: f64, weight: f64| Component {
            weight,
            place: Place::Half { shift: square.sqrt(), hit: 1.0 },
            normals: vec![
                Normal { shift: 0.0, p: 0.0, q: 1.0 },
                Normal { shift: square.sqrt(), p: 1.0, q: 0.0 },
            ],
            mirrored: false,
        };
        let both = |of: &dyn Fn(bool) -> Component<'a>| [of(false), of(true)];
        let (components, atom, relative_error) = match &factor.kind {
            Kind::Gaussian(square) => {
                (both(&|mirrored| Component { mirrored, ..gaussian(*square, 1.0) }).into(), 0.0, 0.0)
            }
            Kind::Known { parts, untouched, relative_error } => {
                let of = |&(square, q): &(f64, f64)| {
                    both(&|mirrored| Component { mirrored, ..gaussian(square, q) })
                };
                (parts.iter().flat_map(of).collect(), *untouched, *relative_error)
            }
            Kind::Round { shape: Shape::Halves { parts, hit }, relative_error } => {
                let of = |&(shift, share): &(f64, f64)| {
                    both(&|mirrored| Component {
                        weight: share,
                        place: Place::Half { shift, hit: *hit },
                        normals: vec![
                            Normal { shift: 0.0, p: 1.0 - hit, q: 1.0 },
                            Normal { shift, p: *hit, q: 0.0 },
                        ],
                        mirrored,
                    })
                };
                let silent = |&(shift, share): &(f64, f64)| {
                    share * (1.0 - hit) * (cdf(0.5 * shift) - cdf(-0.5 * shift))
                };
                let kept = largest_shares(parts, negligible);
                left_out = parts[kept..].iter().map(|part| part.1).sum::<f64>() * (1.0 + 1e-9);
                let parts = &parts[..kept];
                (parts.iter().flat_map(of).collect(), parts.iter().map(silent).sum(), *relative_error)
            }
            Kind::Round { shape: Shape::Line { plus, minus }, relative_error } => {
                let weight_of = |parts: &[(f64, f64)], shift: f64| {
                    let silent = if parts.is_empty() && shift == 0.0 { 1.0 } else { 0.0 };
                    silent + parts.iter().filter(|part| part.0 == shift).map(|part| part.1).sum::<f64>()
                };
                let mut shifts: Vec<f64> = plus.iter().chain(minus).map(|part| part.0).collect();
                shifts.push(0.0);
                shifts.sort_by(|a, b| a.abs().total_cmp(&b.abs()).then(a.total_cmp(b)));
                shifts.dedup();
                let normal =
                    |shift: f64| Normal { shift, p: weight_of(plus, shift), q: weight_of(minus, shift) };
                let component = Component {
                    weight: 1.0,
                    place: Place::Line { plus, minus },
                    normals: shifts.into_iter().map(normal).collect(),
                    mirrored: false,
                };
                (vec![component], 0.0, *relative_error)
            }
        };
        Self { times: factor.times, factor, components, atom, left_out, relative_error }
    }

    /// A bound on the probability under P of the components that were left out.
    pub(super) fn left_out(&self) -> f64 {
        self.left_out
    }

    /// The normal distributions that an edge looks at.
    pub(super) fn normals(factor: &Factor, negligible: f64) -> usize {
        match &factor.kind {
            Kind::Gaussian(_) => 4,
            Kind::Known { .. } => 4 * factor.parts(),
            Kind::Round { shape: Shape::Halves { parts, .. }, .. } => 4 * largest_shares(parts, negligible),
            Kind::Round { shape: Shape::Line { .. }, .. } => 1 + factor.parts(),
        }
    }

    /// The relative error of the weights.
    pub(super) fn relative_error(&self) -> f64 {
        self.relative_error
    }

    /// Probability of Y = 0, from above and from below.
    pub(super) fn atom(&self) -> (f64, f64) {
        let room = self.relative_error + 2.0 * ROUNDING;
        (self.atom * (1.0 + room), self.atom * (1.0 - room))
    }

    /// How far Y moves over a standard deviation around 0.
    pub(super) fn scale(&self) -> f64 {
        scale(&self.factor.kind)
    }

    /// The ends of the cell that the lattice is centred on: the quiet part of the law, up to where the rest beyond
    /// has its loss on the next point or further.
    pub(super) fn centre(&self, step: f64) -> (f64, f64) {
        let middle = match &self.components[..] {
            [Component { place: Place::Line { plus, minus }, .. }] => {
                ln_mixture(plus, 0.0).0 - ln_mixture(minus, 0.0).0
            }
            // The law is its own mirror image.
            _ => 0.0,
        };
        let beyond = |half: f64| {
            let cell = self.cell(&self.edge(middle + half * step), &self.edge(f64::INFINITY));
            if cell.p > 0.0 && cell.q > 0.0 { cell.loss().0 - middle } else { f64::INFINITY }
        };
        let half =
            [0.5, 0.6, 0.7, 0.8, 0.9].into_iter().find(|&half| beyond(half) > 1.05 * step).unwrap_or(0.95);
        (middle - half * step, middle + half * step)
    }

    /// The loss of that cell, rounded down.
    pub(super) fn origin(&self, step: f64) -> f64 {
        match &self.components[..] {
            [Component { place: Place::Line { .. }, .. }] => {
                let (from, to) = self.centre(step);
                let from = self.edge(from);
                let (loss, error) = self.cell(&from, &self.edge(to)).loss();
                loss - error
            }
            _ => 0.0,
        }
    }

    /// The edge at Y = y, which may be infinite.
    pub(super) fn edge(&self, y: f64) -> Edge {
        let count = self.components.iter().map(|c| c.normals.len()).sum();
        let mut edge = Edge { x: vec![0.0; self.components.len()], tails: vec![0.0; count] };
        self.move_edge(&mut edge, y, None);
        edge
    }

    /// Moves an edge to Y = y; `near` is one that is not far away.
    pub(super) fn move_edge(&self, edge: &mut Edge, y: f64, near: Option<&Edge>) {
        let mut tails = edge.tails.iter_mut();
        for (i, (component, x)) in self.components.iter().zip(&mut edge.x).enumerate() {
            let y = if component.mirrored { -y } else { y };
            *x = component.place.of(y, near.map(|near| near.x[i]));
            for (normal, tail) in component.normals.iter().zip(&mut tails) {
                *tail = cdf(-(*x - normal.shift).abs());
            }
        }
    }

    /// The masses between two edges, without the atom.
    pub(super) fn cell(&self, left: &Edge, right: &Edge) -> Cell {
        let mut cell = Cell::default();
        let mut at = 0;
        for (i, component) in self.components.iter().enumerate() {
            let (from, to) = (left.x[i], right.x[i]);
            let first = at;
            at += component.normals.len();
            if from == to {
                continue;
            }
            let mut one = Cell::default();
            let mut silent = (0.0, 0.0);
            for (k, normal) in component.normals.iter().enumerate() {
                let (mass, error) = between(
                    (from - normal.shift, left.tails[first + k]),
                    (to - normal.shift, right.tails[first + k]),
                );
                let error = error + self.relative_error * mass;
                if k == 0 {
                    silent = (mass, error);
                }
                one.p += normal.p * mass;
                one.q += normal.q * mass;
                one.error_of_p += normal.p * error;
                one.error_of_q += normal.q * error;
                // The weights of P and of Q add up to one.
                let weight = normal.p - normal.q;
                let apart = 2.0 * self.relative_error * (mass + silent.0);
                one.gain += weight * (mass - silent.0);
                one.error_of_gain +=
                    (normal.p + normal.q) * if k == 0 { 0.0 } else { error + silent.1 + apart };
            }
            if component.mirrored {
                one = Cell {
                    p: one.q,
                    q: one.p,
                    gain: -one.gain,
                    error_of_p: one.error_of_q,
                    error_of_q: one.error_of_p,
                    error_of_gain: one.error_of_gain,
                };
            }
            cell.p += component.weight * one.p;
            cell.q += component.weight * one.q;
            cell.gain += component.weight * one.gain;
            let room = self.relative_error + 4.0 * f64::EPSILON * self.components.len() as f64;
            cell.error_of_p += component.weight * (one.error_of_p + room * one.p);
            cell.error_of_q += component.weight * (one.error_of_q + room * one.q);
            cell.error_of_gain += component.weight * (one.error_of_gain + room * one.gain.abs());
        }
        cell
    }

    /// About P[Y > y].
    pub(super) fn beyond(&self, y: f64) -> f64 {
        self.cell(&self.edge(y), &self.edge(f64::INFINITY)).p
    }

    /// About P[Y ≤ y] for y < 0.
    pub(super) fn below(&self, y: f64) -> f64 {
        self.cell(&self.edge(f64::NEG_INFINITY), &self.edge(y)).p
    }

    /// About δ(ε) of this round.
    pub(super) fn excess(&self, epsilon: f64) -> f64 {
        let cell = self.cell(&self.edge(epsilon), &self.edge(f64::INFINITY));
        if epsilon > 600.0 { cell.p } else { (cell.gain - epsilon.exp_m1() * cell.q).max(0.0) }
    }

    /// About the mean and the mean square of Y where it lies in a range.
    pub(super) fn moments(&self, low: f64, high: f64) -> (f64, f64) {
        const CELLS: usize = 256;
        let at = |i: usize| low + (high - low) * i as f64 / CELLS as f64;
        let mut left = self.edge(low);
        let (mut mean, mut square) = (0.0, 0.0);
        for i in 1..=CELLS {
            let right = self.edge(at(i));
            let cell = self.cell(&left, &right);
            if cell.p > 0.0 && cell.q > 0.0 {
                let loss = cell.loss().0;
                mean += cell.p * loss;
                square += cell.p * loss * loss;
            }
            left = right;
        }
        (mean, square)
    }
}

impl Cell {
    /// ln(p/q) and a bound on its error.
    pub(super) fn loss(&self) -> (f64, f64) {
        let loss = (self.gain / self.q).ln_1p();
        let relative = (self.error_of_gain + (self.gain / self.q).abs() * self.error_of_q) / self.p;
        // Of first order; the factor is room for the rest.
        (loss, 2.0 * relative + 4.0 * f64::EPSILON * loss.abs())
    }
}

impl Place<'_> {
    fn of(&self, y: f64, near: Option<f64>) -> f64 {
        match *self {
            Place::Line { plus, minus } => {
                let sign = if plus.is_empty() { -1.0 } else { 1.0 };
                if y.is_infinite() {
                    return sign * y;
                }
                let f = |x: f64| {
                    let ((up, up_slope), (down, down_slope)) = (ln_mixture(plus, x), ln_mixture(minus, x));
                    (sign * (up - down - y), sign * (up_slope - down_slope))
                };
                near.filter(|x| x.is_finite()).and_then(|x| newton(&f, x)).unwrap_or_else(|| solve(f))
            }
            Place::Half { shift, hit } => {
                if y <= 0.0 {
                    return 0.5 * shift;
                }
                // e^L = 1 + (e^y − 1)/η.
                let l = if y < 30.0 { (y.exp_m1() / hit).ln_1p() } else { y - hit.ln() };
                l / shift + 0.5 * shift
            }
        }
    }
}

/// A root near x to the last digits, if a few steps find it.
fn newton(f: &impl Fn(f64) -> (f64, f64), start: f64) -> Option<f64> {
    let mut x = start;
    for _ in 0..8 {
        let (value, slope) = f(x);
        let step = value / slope;
        if step.is_nan() || step.abs() >= 4.0 {
            return None;
        }
        x -= step;
        if step.abs() <= 1e-8 * (1.0 + x.abs()) {
            // The next one would be below the last digit; it is taken, since the error counts.
            let (value, slope) = f(x);
            let step = value / slope;
            return (step.abs() < 1e-8 * (1.0 + x.abs())).then_some(x - step);
        }
    }
    None
}

/// How many of the first components leave less than `negligible` to the others; at least one.
fn largest_shares(parts: &[(f64, f64)], negligible: f64) -> usize {
    let mut rest = 0.0;
    let mut kept = parts.len();
    while kept > 1 {
        rest += parts[kept - 1].1;
        if rest * (1.0 + 1e-9) > negligible {
            break;
        }
        kept -= 1;
    }
    kept
}

/// The mass of N(0, 1) between two places with their tails, in either order, and its error. A place u is a rounded
/// difference, which changes its tail by u² roundings.
fn between(a: (f64, f64), b: (f64, f64)) -> (f64, f64) {
    let ((from, near), (to, far)) = if a.0 < b.0 { (a, b) } else { (b, a) };
    let error = |u: f64, tail: f64| if tail > 0.0 { tail * (ROUNDING + f64::EPSILON * u * u) } else { 0.0 };
    let errors = error(from, near) + error(to, far);
    if from >= 0.0 {
        (near - far, errors)
    } else if to <= 0.0 {
        (far - near, errors)
    } else {
        (1.0 - (near + far), errors + f64::EPSILON)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::tails::rates;

    fn kinds() -> Vec<Kind> {
        let round = |shape: Shape| Kind::Round { shape, relative_error: 0.0 };
        let side = |shift: f64| vec![(0.0, 0.97), (shift, 0.03)];
        vec![
            round(Shape::Line { plus: side(1.3), minus: Vec::new() }),
            round(Shape::Line { plus: Vec::new(), minus: side(1.3) }),
            round(Shape::Line { plus: side(0.8), minus: side(-0.8) }),
            round(Shape::Halves { parts: vec![(0.7, 0.8), (1.4, 0.2)], hit: 0.1 }),
            Kind::Gaussian(0.3),
            Kind::Known { parts: vec![(0.2, 0.3), (0.8, 0.1)], untouched: 0.6, relative_error: 0.0 },
        ]
    }

    /// Masses of cells are differences of tails, which `tails` has in closed form.
    #[test]
    fn cells_are_differences_of_tails() {
        for kind in kinds() {
            let factor = Factor { kind, times: 1 };
            let round = OneRound::new(&factor, 0.0);
            for (from, to) in [(-0.9, -0.4), (-0.02, -0.001), (0.001, 0.3), (0.5, 0.52), (1.0, 4.0)] {
                let cell = round.cell(&round.edge(from), &round.edge(to));
                let ((p_from, q_from, _), (p_to, q_to, _)) =
                    (rates(&factor.kind, from), rates(&factor.kind, to));
                let (p, q) = (p_from - p_to, q_from - q_to);
                assert!((cell.p - p).abs() < 1e-14, "{factor:?} {from} {to}: {cell:?} {p}");
                assert!((cell.q - q).abs() < 1e-14, "{factor:?} {from} {to}: {cell:?} {q}");
                assert!((cell.gain - (p - q)).abs() < 1e-14, "{factor:?} {from} {to}: {cell:?}");
                if cell.p > 0.0 {
                    let (loss, error) = cell.loss();
                    assert!(
                        loss > from - error - 1e-12 && loss < to + error + 1e-12,
                        "{factor:?}: {loss} {error}"
                    );
                }
            }
        }
    }

    /// The atom and all cells add up to one.
    #[test]
    fn nothing_is_left_out() {
        for kind in kinds() {
            let factor = Factor { kind, times: 1 };
            let round = OneRound::new(&factor, 0.0);
            let all = round.cell(&round.edge(f64::NEG_INFINITY), &round.edge(f64::INFINITY));
            assert!((all.p + round.atom - 1.0).abs() < 1e-14, "{factor:?} {all:?}");
            assert!((all.q + round.atom - 1.0).abs() < 1e-14, "{factor:?} {all:?}");
        }
    }
}
