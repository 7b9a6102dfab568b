//! The factors of the moment function M(z) = E_P[e^{zY}] of a whole run, on a vertical line.

use num_complex::Complex64;

use super::round::{Shape, ln_sum_exp};
use crate::error::PrivacyError;

/// A part of the run whose losses are independent of the rest, repeated `times` times.
#[derive(Clone, Debug)]
pub(crate) struct Factor {
    pub kind: Kind,
    pub times: u64,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// N(µ²/2, µ²): M(z) = e^{µ² z(z+1)/2}. Holds µ².
    Gaussian(f64),
    /// Adversary A₁: with probability q the round (or epoch) is G_µ, and A₁ knows which: M(z) = Σ
    /// q·e^{µ² z(z+1)/2}. Lists (µ², q) with µ > 0, and Pr[µ = 0].
    Known { parts: Vec<(f64, f64)>, untouched: f64, relative_error: f64 },
    /// Adversary A₀.
    Round { shape: Shape, relative_error: f64 },
}

/// ln M and the mean and variance of the loss under the tilted law, at a real c.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cumulants {
    pub ln_m: f64,
    pub mean: f64,
    pub variance: f64,
    /// Bound on the error of `ln_m`.
    pub error: f64,
}

impl Cumulants {
    /// Those of a tilt that is out of reach.
    pub(crate) const INFINITE: Self =
        Self { ln_m: f64::INFINITY, mean: f64::INFINITY, variance: f64::INFINITY, error: f64::INFINITY };
}

impl std::ops::AddAssign for Cumulants {
    fn add_assign(&mut self, other: Self) {
        self.ln_m += other.ln_m;
        self.mean += other.mean;
        self.variance += other.variance;
        self.error += other.error;
    }
}

/// A factor on the line Re z = c. Everything is relative to M(c): φ(t) = M(c + it)/M(c).
pub(crate) struct Line {
    times: f64,
    cumulants: Cumulants,
    body: Body,
}

enum Body {
    Gaussian { mu_square: f64, c: f64 },
    Known { parts: Vec<(f64, f64)>, c: f64, untouched: f64, relative_error: f64 },
    Round(Box<RoundLine>),
}

struct RoundLine {
    /// Nodes: loss and tilted probability.
    y: Vec<f64>,
    w: Vec<f64>,
    atom: f64,
    /// Uniform distributions (probability, width) whose mixture lies below the law of Y.
    layers: Vec<(f64, f64)>,
    /// Error of φ(t) from the quadrature at the largest t it was built for.
    quadrature: f64,
    relative_error: f64,
    spread: f64,
}

impl RoundLine {
    /// The error of φ(t) when the terms of the sum add up to `size`.
    fn error(&self, size: f64, t: f64) -> f64 {
        ((self.y.len() + 32) as f64 * f64::EPSILON + self.relative_error) * size
            + 4.0 * f64::EPSILON * t * self.spread
            + self.quadrature
    }
}

impl Factor {
    /// ln M(c)^times and its derivatives.
    pub(crate) fn cumulants(&self, c: f64) -> Cumulants {
        let one = match &self.kind {
            Kind::Gaussian(mu_square) => gaussian(*mu_square, c),
            Kind::Known { parts, relative_error, .. } => known(parts, *relative_error, c).0,
            Kind::Round { shape, relative_error } => {
                let shape = shape.pruned(c);
                if shape.count(c, 46.0) > 4.0 * MOST_NODES {
                    // Too far out to be of use; the searches turn back here.
                    return Cumulants::INFINITE;
                }
                let nodes = shape.nodes(c, 46.0);
                let mut result = tilted(&nodes.y, &nodes.ln_q, c).0;
                result.error += relative_error * result.ln_m.abs().min(1.0);
                result
            }
        };
        scaled(one, self.times as f64)
    }

    /// Components of the pair of one round.
    pub(crate) fn parts(&self) -> usize {
        match &self.kind {
            Kind::Gaussian(_) => 1,
            Kind::Known { parts, .. } | Kind::Round { shape: Shape::Halves { parts, .. }, .. } => parts.len(),
            Kind::Round { shape: Shape::Line { plus, minus }, .. } => plus.len() + minus.len(),
        }
    }

    /// The rounds of A₀ in it. The other kinds decay along a line like Gaussians.
    pub(crate) fn rounds(&self) -> u64 {
        match &self.kind {
            Kind::Round { .. } => self.times,
            Kind::Gaussian(_) | Kind::Known { .. } => 0,
        }
    }

    /// Roughly how many terms [`cumulants`](Self::cumulants) adds up.
    pub(crate) fn work(&self, c: f64) -> f64 {
        match &self.kind {
            Kind::Gaussian(_) => 1.0,
            Kind::Known { parts, .. } => parts.len() as f64,
            Kind::Round { shape, .. } => {
                let shape = shape.pruned(c);
                shape.cost_of_node() * shape.count(c, 46.0).min(4.0 * MOST_NODES)
            }
        }
    }

    /// The largest loss of all repetitions together; infinite where there is none.
    pub(crate) fn largest_loss(&self) -> f64 {
        match &self.kind {
            Kind::Round { shape, .. } => self.times as f64 * shape.largest_loss(),
            Kind::Gaussian(_) | Kind::Known { .. } => f64::INFINITY,
        }
    }

    /// Roughly how many nodes resolve one round up to the height t.
    pub(crate) fn nodes_for(&self, c: f64, t: f64) -> f64 {
        match &self.kind {
            Kind::Gaussian(_) | Kind::Known { .. } => 0.0,
            Kind::Round { shape, .. } => shape.pruned(c).count(c, 60.0 + 1.5 * t),
        }
    }

    /// Roughly what [`line`](Self::line) costs, in sines: nodes, and edges of the strip at a quarter of them.
    pub(crate) fn work_of_line(&self, c: f64, reach: f64) -> f64 {
        match &self.kind {
            Kind::Gaussian(_) | Kind::Known { .. } => self.work(c),
            Kind::Round { shape, .. } => {
                let shape = shape.pruned(c);
                4.0 * shape.cost_of_node() * shape.count(c, 60.0 + 1.5 * reach).min(MOST_NODES)
            }
        }
    }

    /// Roughly what the raised lines of a round cost, in sines, and how many nodes they have.
    pub(crate) fn work_of_decay(&self, c: f64, density: f64) -> (f64, f64) {
        match &self.kind {
            Kind::Gaussian(_) | Kind::Known { .. } => (0.0, 0.0),
            Kind::Round { shape, .. } => {
                let shape = shape.pruned(c);
                let nodes = shape.count(c, std::f64::consts::TAU * density);
                (3.0 * shape.cost_of_node() * nodes, nodes)
            }
        }
    }

    /// The factor on the line Re z = c, good for |Im z| ≤ `reach`, with a quadrature whose error
    /// after all repetitions has the logarithm `ln_quality`. Refused where even a coarse one would have too
    /// many nodes.
    pub(crate) fn line(&self, c: f64, reach: f64, ln_quality: f64) -> Result<Line, PrivacyError> {
        let (cumulants, body) = match &self.kind {
            Kind::Gaussian(mu_square) => {
                (gaussian(*mu_square, c), Body::Gaussian { mu_square: *mu_square, c })
            }
            Kind::Known { parts, untouched, relative_error } => {
                let (cumulants, tilted) = known(parts, *relative_error, c);
                let untouched = untouched * (-cumulants.ln_m).exp();
                let relative_error = *relative_error;
                (cumulants, Body::Known { parts: tilted, c, untouched, relative_error })
            }
            Kind::Round { shape, relative_error } => {
                let wanted = ln_quality - (self.times as f64).ln();
                let (cumulants, line) = round_line(shape, *relative_error, wanted, c, reach)?;
                (cumulants, Body::Round(Box::new(line)))
            }
        };
        Ok(Line { times: self.times as f64, cumulants: scaled(cumulants, self.times as f64), body })
    }
}

fn scaled(one: Cumulants, times: f64) -> Cumulants {
    Cumulants {
        ln_m: one.ln_m * times,
        mean: one.mean * times,
        variance: one.variance * times,
        error: one.error * times,
    }
}

fn gaussian(mu_square: f64, c: f64) -> Cumulants {
    let ln_m = 0.5 * mu_square * c * (c + 1.0);
    Cumulants {
        ln_m,
        mean: 0.5 * mu_square * (2.0 * c + 1.0),
        variance: mu_square,
        error: 4.0 * f64::EPSILON * ln_m.abs(),
    }
}

/// The cumulants and the tilted parts (µ², probability). Whatever is not listed has µ = 0.
fn known(parts: &[(f64, f64)], relative_error: f64, c: f64) -> (Cumulants, Vec<(f64, f64)>) {
    let square = 0.5 * c * (c + 1.0);
    let largest = parts.iter().map(|&(v, q)| square * v + q.ln()).fold(0.0, f64::max);
    let ln_m = if largest < 30.0 {
        parts.iter().map(|&(v, q)| q * (square * v).exp_m1()).sum::<f64>().ln_1p()
    } else {
        let logs: Vec<f64> = parts.iter().map(|&(v, q)| square * v + q.ln()).collect();
        ln_sum_exp(&logs)
    };
    let tilted: Vec<(f64, f64)> = parts
        .iter()
        .map(|&(v, q)| (v, (square * v + q.ln() - ln_m).exp()))
        .filter(|&(_, w)| w > 1e-30)
        .collect();
    // Given µ the loss is N(µ²(2c+1)/2, µ²) under the tilted law.
    let half = c + 0.5;
    let mean: f64 = tilted.iter().map(|&(v, w)| w * v * half).sum();
    let second: f64 = tilted.iter().map(|&(v, w)| w * (v + v * v * half * half)).sum();
    let changed: f64 = tilted.iter().map(|&(v, w)| w * (square * v).abs().min(1.0)).sum();
    let cumulants = Cumulants {
        ln_m,
        mean,
        variance: (second - mean * mean).max(0.0),
        error: (relative_error + (parts.len() + 32) as f64 * f64::EPSILON) * changed
            + 8.0 * f64::EPSILON * ln_m.abs(),
    };
    (cumulants, tilted)
}

/// The cumulants of nodes and their tilted probabilities:
/// M(c) − 1 = Σ q·(e^{(c+1)y} − 1 − (c+1)(e^y − 1)), where the subtracted terms integrate to zero
/// because P and Q are probabilities; no term cancels when y is small.
fn tilted(y: &[f64], ln_q: &[f64], c: f64) -> (Cumulants, Vec<f64>) {
    let tilt = c + 1.0;
    let largest = y.iter().zip(ln_q).map(|(y, l)| tilt * y + l).fold(f64::MIN, f64::max);
    let (ln_m, error) = if largest < 30.0 {
        let mut excess = 0.0;
        let mut size = 0.0;
        for (&y, &l) in y.iter().zip(ln_q) {
            // Far out the weight underflows and the power overflows, but their product does neither.
            let term = if tilt * y > 300.0 { (tilt * y + l).exp() } else { l.exp() * bracket(tilt, y) };
            excess += term;
            size += term.abs();
        }
        (excess.ln_1p(), (y.len() + 64) as f64 * f64::EPSILON * size / (1.0 + excess))
    } else {
        let logs: Vec<f64> = y.iter().zip(ln_q).map(|(y, l)| tilt * y + l).collect();
        let ln_m = ln_sum_exp(&logs);
        (ln_m, (y.len() as f64 + 64.0 + largest.abs()) * f64::EPSILON)
    };
    let w: Vec<f64> = y.iter().zip(ln_q).map(|(y, l)| (tilt * y + l - ln_m).exp()).collect();
    let mean: f64 = y.iter().zip(&w).map(|(y, w)| y * w).sum();
    let second: f64 = y.iter().zip(&w).map(|(y, w)| y * y * w).sum();
    (Cumulants { ln_m, mean, variance: (second - mean * mean).max(0.0), error }, w)
}

/// e^{ay} − 1 − a(e^y − 1) with a small relative error: by its series where it would cancel.
fn bracket(a: f64, y: f64) -> f64 {
    if y.abs() * a.abs().max(1.0) > 0.3 {
        return (a * y).exp_m1() - a * y.exp_m1();
    }
    // Σ_{n≥2} a(a^{n−1} − 1)·y^n/n!, and a^{n−1} − 1 = (a − 1)·(1 + a + … + a^{n−2}).
    let mut geometric = 1.0;
    let mut power = 0.5 * y * y;
    let mut sum = 0.0;
    for n in 2..20 {
        let term = geometric * power;
        sum += term;
        if term.abs() < 1e-18 * sum.abs() {
            break;
        }
        geometric = geometric * a + 1.0;
        power *= y / f64::from(n + 1);
    }
    a * (a - 1.0) * sum
}

/// The most nodes of one round.
const MOST_NODES: f64 = 60_000.0;

fn round_line(
    shape: &Shape,
    relative_error: f64,
    wanted: f64,
    c: f64,
    reach: f64,
) -> Result<(Cumulants, RoundLine), PrivacyError> {
    let shape = &shape.pruned(c);
    let mut resolution = 8.0 - wanted;
    if shape.count(c, resolution) > 4.0 * MOST_NODES {
        return Err(PrivacyError::NotCertified {
            what: "the privacy loss",
            why: "a quadrature of too many nodes".to_string(),
        });
    }
    let mut nodes = shape.nodes(c, resolution);
    let mut quadrature = f64::INFINITY;
    for attempt in 0..4 {
        let ln_m = tilted(&nodes.y, &nodes.ln_q, c).0.ln_m;
        // The height in the strip whose bound allows the widest step.
        let (mut best, mut needed) = (f64::INFINITY, f64::INFINITY);
        for share in [1.0, 0.6, 0.36, 0.2, 0.1, 0.05] {
            let z = Complex64::new(c, reach);
            let edge = [share, -share]
                .map(|s| shape.ln_edge(c, z, s, resolution))
                .into_iter()
                .fold(f64::MIN, f64::max);
            // The two subtracted integrals are those at z = −1 and z = 0.
            let base = [-1.0, 0.0]
                .map(|z| shape.ln_edge(c, Complex64::new(z, 0.0), share, resolution))
                .into_iter()
                .fold(f64::MIN, f64::max)
                + (2.0 + c.abs() + reach).ln();
            let excess = edge.max(base) + 4.0_f64.ln() - ln_m;
            best = best.min(excess - share * resolution);
            needed = needed.min((excess - wanted).max(1.0) / share);
            if best < wanted {
                break;
            }
        }
        quadrature = best.exp();
        if best < wanted || attempt == 3 || shape.count(c, needed) > MOST_NODES {
            break;
        }
        resolution = (1.03 * needed).max(1.2 * resolution);
        nodes = shape.nodes(c, resolution);
    }
    let (mut cumulants, w) = tilted(&nodes.y, &nodes.ln_q, c);
    cumulants.error += quadrature + relative_error * cumulants.ln_m.abs().min(1.0);
    let atom = (1.0 - w.iter().sum::<f64>()).max(0.0);
    let is_atomic = matches!(shape, Shape::Halves { .. });
    let mut layers = Vec::new();
    let ends = nodes.starts.iter().skip(1).copied().chain([w.len()]);
    let pieces: Vec<_> = nodes.starts.iter().copied().zip(ends).map(|(from, to)| from..to).collect();
    let density = |i: usize| (w[i].ln() - nodes.ln_width[i]).exp();
    for part in pieces.chunks(if is_atomic { 2 } else { 1 }) {
        // A half line and its mirror image (the second of the pair) meet at Y = 0.
        let mirrored = part.get(1).cloned().unwrap_or(0..0).rev();
        let along: Vec<(f64, f64)> =
            mirrored.chain(part[0].clone()).map(|i| (nodes.y[i], density(i))).collect();
        add_layers(&along, &mut layers);
    }
    let layers = fewer(layers);
    let spread = nodes.y.iter().zip(&w).map(|(y, w)| y.abs() * w).sum();
    let (y, w) = nodes.y.into_iter().zip(w).filter(|&(_, w)| w > 1e-28).unzip();
    let line = RoundLine {
        y,
        w,
        atom: if is_atomic { atom } else { 0.0 },
        layers,
        quadrature,
        relative_error,
        spread,
    };
    Ok((cumulants, line))
}

/// Cuts a density, given at nodes along the line, into horizontal layers: uniform distributions on
/// nested intervals. The density is first lowered to one with a single mode; on a cell it is taken
/// as the smaller of its values at the ends (the nodes resolve it to many digits). Khinchine's
/// representation: for a single mode nothing is lost.
fn add_layers(along: &[(f64, f64)], layers: &mut Vec<(f64, f64)>) {
    let mut cells: Vec<f64> = along.windows(2).map(|p| p[0].1.min(p[1].1)).collect();
    if cells.is_empty() {
        return;
    }
    let mode = (0..cells.len()).fold(0, |best, i| if cells[i] > cells[best] { i } else { best });
    for i in (0..mode).rev() {
        cells[i] = cells[i].min(cells[i + 1]);
    }
    for i in mode + 1..cells.len() {
        cells[i] = cells[i].min(cells[i - 1]);
    }
    let (mut low, mut high) = (0, cells.len() - 1);
    let mut level = 0.0;
    loop {
        let next = cells[low].min(cells[high]);
        let width = (along[high + 1].0 - along[low].0).abs();
        if next > level && (next - level) * width > 1e-25 {
            layers.push(((next - level) * width, width));
        }
        level = level.max(next);
        if low == high {
            return;
        }
        if cells[low] <= cells[high] && low < mode || high == mode {
            low += 1;
        } else {
            high -= 1;
        }
    }
}

/// Layers of nearly the same width as one of the smallest width among them: the envelope can only grow.
fn fewer(mut layers: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    layers.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut kept: Vec<(f64, f64)> = Vec::new();
    for (probability, width) in layers {
        match kept.last_mut() {
            Some(last) if width <= 1.02 * last.1 => last.0 += probability,
            _ => kept.push((probability, width)),
        }
    }
    kept
}

/// sup over x' ≥ x of |sin x'/x'|, from above.
fn sinc_envelope(x: f64) -> f64 {
    // The first side lobe of |sin x/x| is 0.21724, at x = 4.4934.
    if x < 2.6 {
        if x < 1e-4 { 1.0 - x * x / 7.0 } else { x.sin() / x }
    } else {
        // For x ≥ 1/0.21724 the bound 1/x is the smaller one whatever the sine is; sines of huge numbers are
        // slow.
        if x > 4.7 { 1.0 / x } else { (1.0 / x).min(0.217_24_f64.max(x.sin() / x)) }
    }
}

impl Line {
    /// Work, in sines, for `count` values on the line; a rotation costs about a tenth of a sine.
    pub(crate) fn work(&self, count: usize) -> f64 {
        let share = if self.turns() { 0.1 } else { 1.0 };
        share * (count * self.cost()) as f64
    }

    /// Whether to rotate vectors instead of computing sines. Each rotation adds one rounding, which
    /// counts `times` times: for few rounds that is negligible, and a rotation is ten times as fast
    /// as a sine.
    fn turns(&self) -> bool {
        self.times < 2000.0 && matches!(self.body, Body::Round(_))
    }

    /// The operations for one value on the line.
    pub(crate) fn cost(&self) -> usize {
        match &self.body {
            Body::Gaussian { .. } => 1,
            Body::Known { parts, .. } => parts.len(),
            Body::Round(line) => line.y.len(),
        }
    }

    pub(crate) fn cumulants(&self) -> Cumulants {
        self.cumulants
    }

    /// Adds (ln φ(t)^times, bound on its error) for t = (start + i)·step to `out[i]`.
    pub(crate) fn add_ln_phi(&self, start: usize, step: f64, out: &mut [(Complex64, f64)]) {
        let at = |i: usize| (start + i) as f64 * step;
        match &self.body {
            Body::Gaussian { mu_square, c } => {
                for (i, out) in out.iter_mut().enumerate() {
                    let t = at(i);
                    let value = 0.5 * mu_square * Complex64::new(-t * t, t * (2.0 * c + 1.0)) * self.times;
                    out.0 += value;
                    out.1 += 4.0 * f64::EPSILON * (value.re.abs() + value.im.abs());
                }
            }
            Body::Known { parts, c, relative_error, .. } => {
                let rounding = (parts.len() + 32) as f64 * f64::EPSILON + relative_error;
                for (i, out) in out.iter_mut().enumerate() {
                    let t = at(i);
                    let (mut excess, mut size) = (Complex64::ZERO, 0.0);
                    for &(v, w) in parts {
                        let term = w * exp_m1(0.5 * v * Complex64::new(-t * t, t * (2.0 * c + 1.0)));
                        excess += term;
                        size += term.norm();
                    }
                    self.add_power(excess, rounding * size, out);
                }
            }
            Body::Round(line) => {
                if self.turns() {
                    self.add_turned(line, start, step, out);
                    return;
                }
                for (i, out) in out.iter_mut().enumerate() {
                    let t = at(i);
                    let (mut excess, mut size) = (Complex64::ZERO, 0.0);
                    for (&y, &w) in line.y.iter().zip(&line.w) {
                        // e^{iθ} − 1 = 2i·sin(θ/2)·e^{iθ/2}.
                        let (sin, cos) = (0.5 * t * y).sin_cos();
                        excess.re -= 2.0 * w * sin * sin;
                        excess.im += 2.0 * w * sin * cos;
                        size += 2.0 * w * sin.abs();
                    }
                    self.add_power(excess, line.error(size, t), out);
                }
            }
        }
    }

    fn add_turned(&self, line: &RoundLine, start: usize, step: f64, out: &mut [(Complex64, f64)]) {
        let t = start as f64 * step;
        let n = line.y.len();
        let mut now: [Vec<f64>; 2] = [Vec::with_capacity(n), Vec::with_capacity(n)];
        let mut turn: [Vec<f64>; 2] = [Vec::with_capacity(n), Vec::with_capacity(n)];
        for (&y, &w) in line.y.iter().zip(&line.w) {
            let (sin, cos) = (t * y).sin_cos();
            now[0].push(w * cos);
            now[1].push(w * sin);
            let (sin, cos) = (step * y).sin_cos();
            turn[0].push(cos);
            turn[1].push(sin);
        }
        let whole: f64 = line.w.iter().sum();
        let turns = out.len() as f64;
        for (i, out) in out.iter_mut().enumerate() {
            let [re, im] = &mut now;
            let (mut sum_re, mut sum_im) = (0.0, 0.0);
            for (((re, im), cos), sin) in re.iter_mut().zip(im.iter_mut()).zip(&turn[0]).zip(&turn[1]) {
                sum_re += *re;
                sum_im += *im;
                (*re, *im) = (*re * cos - *im * sin, *re * sin + *im * cos);
            }
            let t = (start + i) as f64 * step;
            let error = line.error(2.0, t) + 4.0 * turns * f64::EPSILON;
            self.add_power(Complex64::new(sum_re - whole, sum_im), error, out);
        }
    }

    fn add_power(&self, excess: Complex64, error: f64, out: &mut (Complex64, f64)) {
        let norm = (1.0 + excess).norm().max(1e-300);
        let ln = Complex64::new(
            0.5 * (2.0 * excess.re + excess.norm_sqr()).max(-1.0).ln_1p(),
            excess.im.atan2(1.0 + excess.re),
        );
        let value = ln * self.times;
        out.0 += value;
        out.1 += self.times * error / norm + 4.0 * f64::EPSILON * value.norm();
    }

    /// The limit of φ(t)^times: the share of an atom at Y = 0, as a logarithm.
    pub(crate) fn ln_atom(&self) -> f64 {
        self.times
            * match &self.body {
                Body::Gaussian { .. } => f64::NEG_INFINITY,
                Body::Known { untouched, .. } => untouched.ln(),
                Body::Round(line) => line.atom.ln(),
            }
    }

    /// A bound on ln |φ(t')|^times for every t' ≥ t, decreasing in t.
    pub(crate) fn ln_envelope(&self, t: f64) -> f64 {
        let one = match &self.body {
            Body::Gaussian { mu_square, .. } => -0.5 * mu_square * t * t,
            Body::Known { parts, untouched, .. } => {
                let rest: f64 = parts.iter().map(|&(v, w)| w * (-0.5 * v * t * t).exp()).sum();
                (untouched + rest).ln()
            }
            // |φ| ≤ Σ (probability of a layer)·|sinc| + the probability outside the layers.
            Body::Round(line) => {
                let lost: f64 =
                    line.layers.iter().map(|&(m, d)| m * (1.0 - sinc_envelope(0.5 * t * d))).sum();
                (1e-13 - lost).ln_1p()
            }
        };
        self.times * one.min(0.0)
    }
}

/// e^z − 1 without cancellation.
fn exp_m1(z: Complex64) -> Complex64 {
    let (sin, cos) = z.im.sin_cos();
    let half = (0.5 * z.im).sin();
    Complex64::new(z.re.exp_m1() * cos - 2.0 * half * half, z.re.exp() * sin)
}
