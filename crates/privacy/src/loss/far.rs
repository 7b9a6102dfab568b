//! The values of a moment function far along a vertical line, where a sum for each of them would be too slow.
//!
//! With few rounds, or rare ones that tell much, φ(t)^T decays only where t resolves the losses of the quiet
//! rounds. That takes up to 10⁵ values of sums of 10⁵ terms. All values of one round come from one nonuniform
//! Fourier transform; losses that even the last value does not resolve are expanded in powers of t, so that the
//! error is relative to the weight of the others.

use num_complex::Complex64;

use super::factor::{Factor, Kind};
use super::line::Line;
use super::round::Shape;
use super::transform::transform;
use crate::error::PrivacyError;

/// The most nodes of all rounds' quadratures, times the components of their mixtures.
const MOST_NODES: f64 = 800_000.0;
/// Terms of the expansion for losses with |t·y| ≤ 1; 1/21! is below a rounding.
const TERMS: usize = 20;
/// How far past what is needed a line is cut, relative to its sum.
const NEGLIGIBLE: f64 = 1e-15;

/// The three integrands' kernels at z = c + it: |1/z(z+1)|, |1/z|, |1/(z+1)|.
pub(super) fn kernels(c: f64, t: f64) -> [f64; 3] {
    let (here, next) = (c.hypot(t), (c + 1.0).hypot(t));
    [1.0 / (here * next), 1.0 / here, 1.0 / next]
}

/// φ^T minus the atom at the nodes of a line.
pub(super) struct Values {
    /// Values with bounds on their errors.
    pub values: Vec<(Complex64, f64)>,
    /// For each kernel, what the errors that are only known together and the values left out add to the sum.
    pub more: [f64; 3],
}

/// One factor's excess φ − 1 at every node.
struct Excess {
    times: f64,
    values: Vec<Complex64>,
    /// Bounds on the errors of single values.
    each: Vec<f64>,
    gains: Vec<f64>,
    together: f64,
}

/// A bound on |φ(t)| of one round for all t past a given one.
///
/// M(z) is an integral of e^{(z+1)Y(u)} over u, and may be taken along any line in the strip where the integrand
/// is analytic. Where Im Y ≥ 0 on that line, |e^{itY}| = e^{−t·Im Y} falls with t, and so does the integral of
/// the modulus. It is smooth on the scale of the strip and is computed at nodes that resolve it.
pub(super) struct Decay {
    /// For each line: ln of the weight of every node, relative to M(c), and Im Y.
    lines: Vec<Vec<(f64, f64)>>,
    atom: f64,
    times: f64,
}

/// Where the lines lie in the strip.
const HEIGHTS: [f64; 4] = [0.9, 0.5, 0.25, 0.1];
/// Nodes on half the strip's width.
const NODES: f64 = 8.0;
/// What lies outside the nodes of a quadrature, relative to M(c), with room.
const OUTSIDE: f64 = 1e-18;

impl Decay {
    /// Roughly what [`new`](Self::new) and the bounds of a line cost, in sines.
    pub(super) fn work(factor: &Factor, c: f64) -> f64 {
        let (work, nodes) = factor.work_of_decay(c, NODES);
        HEIGHTS.len() as f64 * (work + 40.0 * nodes)
    }

    pub(super) fn new(factor: &Factor, line: &Line, c: f64) -> Option<Self> {
        let Kind::Round { shape, .. } = &factor.kind else { return None };
        let times = factor.times as f64;
        let ln_m = line.cumulants().ln_m / times;
        let shape = shape.pruned(c);
        let lines = HEIGHTS.map(|height| shape.raised(c, height, NODES, ln_m)).to_vec();
        Some(Self { lines, atom: (line.ln_atom() / times).exp(), times })
    }

    /// ln of the bound on |φ(t)^times|.
    pub(super) fn ln_bound(&self, t: f64) -> f64 {
        let along = |nodes: &Vec<(f64, f64)>| nodes.iter().map(|(w, im)| (w - t * im).exp()).sum::<f64>();
        let least = self.lines.iter().map(along).fold(f64::INFINITY, f64::min);
        self.times * (self.atom + 1.000_001 * least + OUTSIDE).ln().min(0.0)
    }
}

/// What lies past a height: (t, ∫ bound·t^{−1}, ∫ bound·t^{−2}), for heights in a geometric sequence.
pub(super) fn rests(ln_bound: &dyn Fn(f64) -> f64, ln_atom: f64, lowest: f64) -> Vec<(f64, f64, f64)> {
    const RATIO: f64 = 1.3;
    let atom = ln_atom.exp();
    let mut rests = Vec::new();
    let mut t = lowest;
    for _ in 0..400 {
        // On each stretch the falling bound is taken at its left end.
        let excess = (ln_bound(t).exp() - atom).max(0.0);
        rests.push((t, excess * RATIO.ln(), excess * (1.0 - 1.0 / RATIO) / t));
        if excess < 1e-30 {
            break;
        }
        t *= RATIO;
    }
    // Past the last stretch the excess falls at least like 1/t: 400 stretches reach beyond 10⁴⁵ widths of the law.
    if let Some(last) = rests.last_mut() {
        last.1 /= 1.0 - 1.0 / RATIO;
        last.2 /= 1.0 - 1.0 / RATIO;
    }
    for i in (1..rests.len()).rev() {
        let (one, two) = (rests[i].1, rests[i].2);
        rests[i - 1].1 += one;
        rests[i - 1].2 += two;
    }
    rests
}

/// How high a line through c should go, with the two bounds on the rest: where the rest is small for δ, and for
/// the tails if that is not much higher, within the limits on values and nodes. `None` if even the bulk of the line is beyond them.
pub(super) fn reach(
    factors: &[Factor],
    c: f64,
    step: f64,
    most_values: usize,
    rests: &[(f64, f64, f64)],
    variance: f64,
) -> Option<(f64, (f64, f64))> {
    let spread = (variance + 1.0 / (c * c) + 1.0 / ((1.0 + c) * (1.0 + c))).sqrt();
    let (size_of_tails, size_of_delta) = (1.0 / (c.abs() * spread), 1.0 / ((c * (1.0 + c)).abs() * spread));
    let nodes = |t: f64| -> f64 { factors.iter().map(|f| f.parts() as f64 * f.nodes_for(c, t)).sum() };
    let mut best = None;
    let mut enough_for_delta = f64::INFINITY;
    for &(t, tails, delta) in rests {
        if t > (most_values as f64 - 2.0) * step || nodes(t) > MOST_NODES {
            break;
        }
        best = Some((t, (tails, delta)));
        if delta < 1e-11 * size_of_delta {
            enough_for_delta = enough_for_delta.min(t);
            if tails < 1e-9 * size_of_tails || (c > 0.0 && t > 4.0 * enough_for_delta) {
                break;
            }
        }
    }
    best
}

/// The values along the line Re z = c at 0, step, 2·step, … up to `reach`.
///
/// # Guarantee
/// For each kernel k, Σ |exact − value|·|k| over the nodes is at most Σ error·|k| + `more`, with `value` = 0 at
/// nodes that were left out.
pub(super) fn values(
    factors: &[Factor],
    lines: &[Line],
    c: f64,
    step: f64,
    reach: f64,
    ln_quality: f64,
) -> Result<Values, PrivacyError> {
    // A falling function's sum over the nodes past the last one is at most its integral from that one on.
    let count = (reach / step) as usize + 2;
    let mut smooth = vec![(Complex64::ZERO, 0.0); count];
    let mut rough = Vec::new();
    for (factor, line) in factors.iter().zip(lines) {
        match &factor.kind {
            Kind::Round { shape, relative_error } => {
                let ln_m = line.cumulants().ln_m / factor.times as f64;
                let wanted = ln_quality - (factor.times as f64).ln();
                let nodes = Nodes::new(shape, ln_m, c, reach, wanted)?;
                rough.push(nodes.excess(factor.times as f64, *relative_error, step, count));
            }
            _ => line.add_ln_phi(0, step, &mut smooth),
        }
    }
    let atom = lines.iter().map(Line::ln_atom).sum::<f64>().exp();
    let mut values = Vec::with_capacity(count);
    let mut squares = vec![[0.0; 3]; rough.len()];
    for (j, &(ln, ln_error)) in smooth.iter().enumerate() {
        // ln φ^T, and the logarithm of a bound on every |φ̃|^T with φ̃ between φ and the computed value.
        let (mut ln, mut ln_most) = (ln, ln.re + ln_error);
        let mut error = ln_error.exp_m1();
        for part in &rough {
            let (excess, most) = (part.values[j], part.most(j));
            let one = Complex64::new(
                0.5 * (2.0 * excess.re + excess.norm_sqr()).max(-1.0).ln_1p(),
                excess.im.atan2(1.0 + excess.re),
            );
            ln += one * part.times;
            ln_most += part.times * most.ln();
            // |x^T − y^T| ≤ T·|x − y|·max(|x|, |y|)^{T−1}.
            error += part.times * part.each[j] / most + 8.0 * f64::EPSILON * (part.times * one).norm();
        }
        let most = ln_most.exp();
        let kernels = kernels(c, j as f64 * step);
        for (part, squares) in rough.iter().zip(&mut squares) {
            let gain = most * part.times * part.gains[j] / part.most(j);
            for (square, kernel) in squares.iter_mut().zip(kernels) {
                *square += (gain * kernel).powi(2);
            }
        }
        let value = ln.exp() - atom;
        values.push((value, most * error));
    }
    let mut more = [0.0; 3];
    for (part, squares) in rough.iter().zip(&squares) {
        for (more, square) in more.iter_mut().zip(squares) {
            *more += part.together * square.sqrt();
        }
    }
    cut(&mut values, &mut more, c, step);
    Ok(Values { values, more })
}

/// Leaves out values at the end that add next to nothing to any of the three sums.
fn cut(values: &mut Vec<(Complex64, f64)>, more: &mut [f64; 3], c: f64, step: f64) {
    let size = |j: usize, value: f64| kernels(c, j as f64 * step).map(|k| k * value);
    let mut sums = [0.0; 3];
    for (j, (value, _)) in values.iter().enumerate() {
        for (sum, more) in sums.iter_mut().zip(size(j, value.norm())) {
            *sum += more;
        }
    }
    let mut left_out = [0.0; 3];
    while let Some(&(value, error)) = values.last() {
        let last = size(values.len() - 1, value.norm() + error);
        let next = [0, 1, 2].map(|i| left_out[i] + last[i]);
        if (0..3).any(|i| next[i] > NEGLIGIBLE * sums[i] + more[i]) {
            break;
        }
        left_out = next;
        values.pop();
    }
    for (more, left_out) in more.iter_mut().zip(left_out) {
        *more += left_out;
    }
}

impl Excess {
    /// A bound on |φ| and on its computed value, positive.
    fn most(&self, j: usize) -> f64 {
        (1.0 + self.values[j]).norm() + self.each[j] + self.together * self.gains[j] + 1e-300
    }
}

/// The sum with an error of at most (64 + log₂ n) roundings.
fn pairwise(values: &[f64]) -> f64 {
    if values.len() <= 64 {
        return values.iter().sum();
    }
    let (left, right) = values.split_at(values.len() / 2);
    pairwise(left) + pairwise(right)
}

/// A round's quadrature, fine enough for all t up to a highest one.
struct Nodes {
    y: Vec<f64>,
    w: Vec<f64>,
    highest: f64,
    quadrature: f64,
}

impl Nodes {
    fn new(shape: &Shape, ln_m: f64, c: f64, highest: f64, wanted: f64) -> Result<Self, PrivacyError> {
        let shape = shape.pruned(c);
        let z = Complex64::new(c, highest);
        // The widest strip is best where t is large: the modulus on its edges grows about linearly with its width.
        let edge = |resolution: f64| {
            let along = shape.edge(c, 1.0, resolution);
            let edge = along.ln_modulus(z, false).max(along.ln_modulus(z, true));
            let base = along.ln_modulus(-Complex64::ONE, false).max(along.ln_modulus(Complex64::ZERO, false));
            edge.max(base + (2.0 + c.abs() + highest).ln()) + 4.0_f64.ln() - ln_m
        };
        // The modulus on the edge has peaks about as wide as the strip over the root of t: nodes that resolve it.
        let fine_enough = |resolution: f64| 32.0 * resolution.sqrt();
        let resolution = 2.0 + edge(fine_enough(highest.max(64.0))) - wanted;
        if !resolution.is_finite() {
            return Err(PrivacyError::NotCertified {
                what: "the privacy loss",
                why: "quadrature".to_string(),
            });
        }
        let nodes = shape.nodes(c, resolution);
        let quadrature = (edge(fine_enough(resolution).min(resolution)) - resolution).exp();
        let w = nodes.y.iter().zip(&nodes.ln_q).map(|(y, l)| ((c + 1.0) * y + l - ln_m).exp());
        let (y, w) = nodes.y.iter().copied().zip(w).filter(|&(_, w)| w > 1e-28).unzip();
        Ok(Self { y, w, highest, quadrature })
    }

    /// φ(t) − 1 = Σ w·(e^{ity} − 1) at t = 0, step, …
    fn excess(&self, times: f64, relative_error: f64, step: f64, count: usize) -> Excess {
        let is_quiet = |y: f64| y.abs() * self.highest <= 1.0;
        let (mut y_loud, mut w_loud) = (Vec::new(), Vec::new());
        let (mut y_quiet, mut w_quiet) = (Vec::new(), Vec::new());
        for (&y, &w) in self.y.iter().zip(&self.w) {
            let (ys, ws) =
                if is_quiet(y) { (&mut y_quiet, &mut w_quiet) } else { (&mut y_loud, &mut w_loud) };
            ys.push(y);
            ws.push(w);
        }
        // Σ w·y^n over the quiet losses, n from 1, each for y in units of 1/highest.
        let mut moments = [0.0; TERMS];
        let mut powers = w_quiet.clone();
        for moment in &mut moments {
            powers.iter_mut().zip(&y_quiet).for_each(|(power, y)| *power *= y * self.highest);
            *moment = pairwise(&powers);
        }
        let size = |y: &[f64], w: &[f64]| y.iter().zip(w).map(|(y, w)| y.abs() * w).sum::<f64>();
        let (quiet, loud) = (size(&y_quiet, &w_quiet), size(&y_loud, &w_loud));
        let found = transform(step, count, &y_loud, &w_loud);
        let weight = pairwise(&w_loud);
        // Those of a pairwise sum, of the powers and of the weights themselves.
        let roundings = 128.0 * f64::EPSILON;
        let mut values = Vec::with_capacity(count);
        let mut each = Vec::with_capacity(count);
        for (j, (value, gain)) in found.values.iter().zip(&found.gains).enumerate() {
            let t = j as f64 * step;
            let scaled = Complex64::new(0.0, t / self.highest);
            // Horner: Σ moments[n−1]·(it)^n/n!.
            let mut series = Complex64::ZERO;
            for n in (0..TERMS).rev() {
                series = (series + moments[n]) * scaled / (n as f64 + 1.0);
            }
            values.push(series + value - weight);
            let size = (t * loud).min(2.0 * weight) + t * quiet;
            each.push(
                (roundings + relative_error) * size
                    + 8.0 * f64::EPSILON * t * loud
                    + gain * found.each
                    + roundings * weight
                    + self.quadrature,
            );
        }
        Excess { times, values, each, gains: found.gains, together: found.together }
    }
}
