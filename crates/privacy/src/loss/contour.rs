//! Inversion of the moment function along a vertical line, with every error bounded.
//!
//! For Y the privacy loss of the whole run, M(z) = E_P[e^{zY}] and Re z = c > 0,
//!
//! ```text
//! δ(ε)   = (1/2πi) ∫ M(z) e^{−zε}     / (z(z+1)) dz
//! P[Y>ε] = (1/2πi) ∫ M(z) e^{−zε}     / z        dz      (c < 0: −P[Y≤ε])
//! Q[Y>ε] = (1/2πi) ∫ M(z) e^{−(z+1)ε} / (z+1)    dz      (c > −1)
//! ```
//!
//! by the trapezoidal rule with step h = 2π/L. Errors:
//! * aliasing: the rule returns Σ_n e^{cnL}·F(ε + nL) exactly; all terms are positive, the left
//!   ones are at most e^{−c|n|L}, the right ones are bounded by Chernoff at a second point c';
//! * truncation: past the last node |M| is bounded on the whole rest of the line by
//!   [`Line::ln_envelope`];
//! * quadrature and rounding of M: carried by [`Line::add_ln_phi`].
//!
//! An atom of Y at 0 is taken out of the integrand and put back in closed form.
//!
//! Written by hand because a general quadrature library estimates its error, while every error here
//! has a proved bound; tests compare the result with the independent FFT engine in `grid`.

use std::sync::OnceLock;

use num_complex::Complex64;

use super::factor::{Cumulants, Factor};
use super::far::{self, Decay};
use super::line::Line;
use super::sums::{LANES, roundings, turned};
use crate::curve::CurvePoint;
use crate::error::PrivacyError;
use crate::interval::Interval;

/// ln of the size, relative to the result, to which every error is pushed.
const WANTED: f64 = -28.0;
/// The most nodes on a line.
const MOST_NODES: usize = 1 << 14;
/// The most terms of sums for single values; about two milliseconds.
const DIRECT: usize = 1_500_000;
/// Up to so many rounds a line decays too slowly for the plain envelope.
const FEW: u64 = 5;
/// Roundings of a value times a kernel.
const ROUNDINGS: f64 = 16.0;
/// Values computed together.
const BLOCK: usize = 16;

#[derive(Debug)]
pub(crate) struct Contour {
    c: f64,
    period: f64,
    total: Cumulants,
    /// φ(t_j)^T minus the atom, and the bound on its error.
    values: Values,
    /// For each kernel, the values times the kernel, once they are asked for.
    weighted: [OnceLock<Weighted>; 3],
    own_width: OnceLock<f64>,
    ln_atom: f64,
    /// Bounds on ∫ |φ^T − atom|·t^{−1} and ·t^{−2} past the last node.
    rest: (f64, f64),
    /// For each kernel, an error of the sum that is not in the values'.
    more: [f64; 3],
    /// Points c' right and left of c with ln M(c').
    right: Vec<(f64, f64)>,
    left: Vec<(f64, f64)>,
}

/// Sum of the cumulants of all factors at c.
pub(crate) fn cumulants(factors: &[Factor], c: f64) -> Cumulants {
    let mut total = Cumulants::default();
    for factor in factors {
        total += factor.cumulants(c);
    }
    total
}

/// The period L of the trapezoidal rule, with the points c' that bound its aliases.
struct Period {
    period: f64,
    right: Vec<(f64, f64)>,
    left: Vec<(f64, f64)>,
}

impl Period {
    /// The shortest of a geometric sequence of periods whose aliases are proved to be small.
    fn new(factors: &[Factor], c: f64, total: &Cumulants, spread: f64) -> Result<Self, PrivacyError> {
        let epsilon = total.mean;
        // ln of the size of what is computed, up to a factor near one.
        let size =
            total.ln_m - c * epsilon - (c.abs() * (1.0 + c).abs().max(1.0) * spread * 2.5).max(1.0).ln();
        let nearest = if c > 0.0 { c } else { (-c).min(1.0 + c) };
        let mut period = 1.1 * ((-WANTED - size.min(0.0)) / nearest).max(8.6 * spread);
        for _ in 0..=24 {
            let try_points = |sign: f64| -> Vec<(f64, f64)> {
                // e^{−(c'−c)L} must beat the growth of M: near c the growth is linear and known, so a
                // long enough period always succeeds; for a Gaussian L/variance is best.
                let gaussian = period / (spread * spread);
                let close = -2.0 * WANTED / period;
                [close.min(gaussian), (2.0 * close).min(gaussian), 0.5 * gaussian.min(8.0 * close)]
                    .map(|distance| c + sign * distance)
                    .map(|at| (at, cumulants(factors, at).ln_m))
                    .to_vec()
            };
            let right = try_points(1.0);
            let left = if c < 0.0 { try_points(-1.0) } else { Vec::new() };
            let reached = |points: &[(f64, f64)]| {
                points
                    .iter()
                    .map(|&(at, ln_m)| ln_m - at * epsilon - (at - c).abs() * period)
                    .fold(f64::INFINITY, f64::min)
                    < size + WANTED
            };
            if reached(&right) && (left.is_empty() || reached(&left)) {
                return Ok(Self { period, right, left });
            }
            period *= 1.6;
        }
        Err(not_certified("aliasing"))
    }
}

/// φ^T minus the atom at the nodes 0, h, 2h, …, with the bound on each error.
type Values = Vec<(Complex64, f64)>;

/// Those values with the two bounds on the rest of the line.
type Walk = (Values, (f64, f64));

/// The values along the line, block by block, until the envelope proves that the rest of the line
/// is small or more than `most` nodes are used. `None` if that would take more than [`DIRECT`] terms.
fn walk(
    lines: &[Line],
    step: f64,
    most: usize,
    ln_atom: f64,
    spend: &dyn Fn(f64) -> Result<(), PrivacyError>,
) -> Result<Option<Walk>, PrivacyError> {
    let atom = ln_atom.exp();
    let cost = lines.iter().map(Line::cost).sum::<usize>();
    let mut values = Vec::with_capacity(128);
    let mut rest = (f64::INFINITY, f64::INFINITY);
    while values.len() <= most && rest.0 > WANTED.exp() {
        if values.len() * cost > DIRECT {
            return Ok(None);
        }
        spend(lines.iter().map(|line| line.work(BLOCK)).sum())?;
        let start = values.len();
        let mut block = [(Complex64::ZERO, 0.0); BLOCK];
        for line in lines {
            line.add_ln_phi(start, step, &mut block);
        }
        for (ln, error) in block {
            let power = ln.exp();
            values.push((power - atom, power.norm() * error.exp_m1()));
        }
        let last = values[values.len() - 1].0.norm();
        if last < (WANTED + 4.0).exp() || values.len() > most {
            rest = envelope_rest(lines, (values.len() as f64 - 0.5) * step, ln_atom);
        }
    }
    Ok(Some((values, rest)))
}

/// The values along a line times a kernel.
#[derive(Debug)]
struct Weighted {
    re: Vec<f64>,
    im: Vec<f64>,
    /// The error of their sum, and what it grows by with |ε|.
    error: f64,
    error_of_epsilon: f64,
}

#[derive(Clone, Copy)]
enum Kernel {
    Delta = 0,
    UpperP = 1,
    UpperQ = 2,
}

impl Contour {
    /// A line through c, for the thresholds ε whose saddle point is near c. Gives up where it takes more than
    /// `most_values` values.
    pub(crate) fn new(
        factors: &[Factor],
        c: f64,
        most_values: usize,
        spend: &dyn Fn(f64) -> Result<(), PrivacyError>,
    ) -> Result<Self, PrivacyError> {
        let total = cumulants(factors, c);
        if !(total.ln_m.is_finite() && total.mean.is_finite()) {
            return Err(not_certified("overflow"));
        }
        let spread = total.variance.sqrt().max(1e-150);
        let Period { period, right, left } = Period::new(factors, c, &total, spread)?;
        let step = std::f64::consts::TAU / period;
        let mut reach = 20.0 / spread;
        let mut more = [0.0; 3];
        let (lines, values, rest) = loop {
            spend(factors.iter().map(|f| f.work_of_line(c, reach)).sum())?;
            let lines: Vec<Line> =
                factors.iter().map(|f| f.line(c, reach, WANTED - 1.0)).collect::<Result<_, _>>()?;
            let ln_atom: f64 = lines.iter().map(Line::ln_atom).sum();
            let most = ((reach / step) as usize).saturating_add(1).min(MOST_NODES);
            let cost = lines.iter().map(Line::cost).sum::<usize>();
            let few = (1..=FEW).contains(&factors.iter().map(Factor::rounds).sum());
            let direct = if few || 128.min(most) * cost > DIRECT {
                None
            } else {
                walk(&lines, step, most, ln_atom, spend)?
            };
            if let Some((values, rest)) = direct {
                // δ needs only the smaller of the two bounds; the tails report their own width.
                let end = values.len() as f64 * step;
                if rest.0 < WANTED.exp() || rest.1 * end < (WANTED + 8.0).exp() {
                    break (lines, values, rest);
                }
                // Higher up there are more values of longer sums.
                let nodes: f64 = factors.iter().map(|f| f.nodes_for(c, 5.0 * reach)).sum();
                if 5.0 * reach / step * nodes < 4.0 * DIRECT as f64 && most < MOST_NODES {
                    reach *= 5.0;
                    continue;
                }
            }
            spend(factors.iter().map(|f| Decay::work(f, c)).sum())?;
            let decays: Vec<_> = factors.iter().zip(&lines).map(|(f, line)| Decay::new(f, line, c)).collect();
            let ln_bound = |t: f64| -> f64 {
                let one = |(line, decay): (&Line, &Option<Decay>)| {
                    line.ln_envelope(t).min(decay.as_ref().map_or(0.0, |d| d.ln_bound(t)))
                };
                lines.iter().zip(&decays).map(one).sum()
            };
            let rests = far::rests(&ln_bound, ln_atom, 20.0 / spread);
            let (reach, rest) = far::reach(factors, c, step, most_values, &rests, total.variance)
                .ok_or_else(|| not_certified("too many nodes"))?;
            spend(100.0 * (reach / step))?;
            let found = far::values(factors, &lines, c, step, reach, WANTED - 1.0)?;
            more = found.more.map(|error| error * step / std::f64::consts::PI);
            break (lines, found.values, rest);
        };
        let mut total = Cumulants::default();
        lines.iter().for_each(|line| total += line.cumulants());
        let ln_atom: f64 = lines.iter().map(Line::ln_atom).sum();
        let weighted = std::array::from_fn(|_| OnceLock::new());
        let own_width = OnceLock::new();
        Ok(Self { c, period, total, values, weighted, own_width, ln_atom, rest, more, right, left })
    }

    pub(crate) fn is_right_of_zero(&self) -> bool {
        self.c > 0.0
    }

    /// How far ε is from the saddle point that the line goes through.
    pub(crate) fn standard_deviations_from(&self, epsilon: f64) -> f64 {
        (self.total.mean - epsilon).abs() / self.total.variance.sqrt()
    }

    fn weighted(&self, kernel: Kernel) -> &Weighted {
        self.weighted[kernel as usize].get_or_init(|| {
            let step = std::f64::consts::TAU / self.period;
            let n = self.values.len();
            let (mut re, mut im) = (Vec::with_capacity(n), Vec::with_capacity(n));
            let (mut error, mut sizes, mut error_of_epsilon) = (0.0, 0.0, 0.0);
            for (j, &(value, value_error)) in self.values.iter().enumerate() {
                let z = Complex64::new(self.c, j as f64 * step);
                let half = if j == 0 { 0.5 } else { 1.0 };
                let k = half
                    * match kernel {
                        Kernel::Delta => (z * (z + 1.0)).inv(),
                        Kernel::UpperP => z.inv(),
                        Kernel::UpperQ => (z + 1.0).inv(),
                    };
                let term = value * k;
                re.push(term.re);
                im.push(term.im);
                let size = k.norm_sqr().sqrt();
                error += size * value_error;
                sizes += size * value.l1_norm();
                error_of_epsilon += size * value.l1_norm() * z.im;
            }
            error += sizes * f64::EPSILON * (ROUNDINGS + roundings(n));
            re.resize(n.next_multiple_of(LANES), 0.0);
            im.resize(n.next_multiple_of(LANES), 0.0);
            Weighted { re, im, error, error_of_epsilon: 2.0 * error_of_epsilon * f64::EPSILON }
        })
    }

    /// The trapezoidal sums of some kernels at ε, divided by M(c)·e^{−cε} (or e^{−(c+1)ε}), with their
    /// errors from the values and the truncation.
    fn sums<const N: usize>(&self, kernels: [Kernel; N], epsilon: f64) -> [(f64, f64); N] {
        let step = std::f64::consts::TAU / self.period;
        let weighted = kernels.map(|kernel| self.weighted(kernel));
        let sums = turned(weighted.map(|terms| (&terms.re[..], &terms.im[..])), step, epsilon);
        let scale = step / std::f64::consts::PI;
        std::array::from_fn(|n| {
            let error = weighted[n].error + epsilon.abs() * weighted[n].error_of_epsilon;
            let rest = match kernels[n] {
                Kernel::Delta => self.rest.1,
                Kernel::UpperP | Kernel::UpperQ => self.rest.0,
            };
            let more = self.more[kernels[n] as usize] + rest / std::f64::consts::PI;
            (sums[n] * scale, error * scale + 4.0 * f64::EPSILON * sums[n].abs() * scale + more)
        })
    }

    /// ln of the bound on the aliases of a kernel whose exponent is z + `shift`.
    fn alias(&self, points: &[(f64, f64)], epsilon: f64, shift: f64) -> f64 {
        points
            .iter()
            .map(|&(at, ln_m)| {
                let gain = (at - self.c).abs() * self.period;
                ln_m - (at + shift) * epsilon - gain - (-(-gain).exp()).ln_1p()
            })
            .fold(f64::INFINITY, f64::min)
    }

    /// `e^{ln_scale}·(sum ± error)` minus the aliases, which are positive.
    fn interval(&self, ln_scale: f64, (sum, error): (f64, f64), alias: f64, atom: f64) -> Interval {
        let relative = (self.total.error + 8.0 * f64::EPSILON * (1.0 + ln_scale.abs())).exp_m1();
        let scale = ln_scale.exp();
        let spread = scale * (error + sum.abs() * relative);
        let lower = scale * sum - spread - alias + atom * (1.0 - relative);
        let upper = scale * sum + spread + atom * (1.0 + relative);
        // Far from the saddle an overflow may leave NaN; then nothing is claimed.
        Interval {
            lower: if lower.is_finite() { lower.clamp(0.0, 1.0) } else { 0.0 },
            upper: if upper.is_finite() { upper.clamp(0.0, 1.0) } else { 1.0 },
        }
    }

    /// δ(ε); needs c > 0 and ε ≥ 0 (where the atom adds nothing).
    pub(crate) fn delta(&self, epsilon: f64) -> Interval {
        let [sum] = self.sums([Kernel::Delta], epsilon);
        self.delta_from(sum, epsilon)
    }

    fn delta_from(&self, sum: (f64, f64), epsilon: f64) -> Interval {
        let ln_scale = self.total.ln_m - self.c * epsilon;
        let alias = self.left_of_one(self.c) + self.alias(&self.right, epsilon, 0.0).exp();
        let delta = self.interval(ln_scale, sum, alias, 0.0);
        // Chernoff's bound needs no integral: (1 − e^{ε−y})₊ ≤ e^{c(y−ε)} for every y.
        let chernoff = (ln_scale + self.total.error + 1e-12 * (1.0 + ln_scale.abs())).exp();
        if chernoff < delta.upper {
            return Interval { lower: delta.lower.min(chernoff), upper: chernoff };
        }
        delta
    }

    /// P[Y ≤ ε], with full relative accuracy on a line left of 0.
    fn beta_from(&self, sum: (f64, f64), epsilon: f64) -> Interval {
        let ln_scale = self.total.ln_m - self.c * epsilon;
        // The atom at 0 lies at or below ε ≥ 0.
        let atom = (self.total.ln_m + self.ln_atom).exp();
        if self.c > 0.0 {
            let alias = self.left_of_one(self.c) + self.alias(&self.right, epsilon, 0.0).exp();
            let upper = self.interval(ln_scale, sum, alias, 0.0);
            Interval { lower: 1.0 - upper.upper - f64::EPSILON, upper: 1.0 - upper.lower + f64::EPSILON }
                .clamp(0.0, 1.0)
        } else {
            let alias = self.left_of_one(-self.c) + self.alias(&self.left, epsilon, 0.0).exp();
            self.interval(ln_scale, (-sum.0, sum.1), alias, atom)
        }
    }

    /// Q[Y > ε].
    fn alpha_from(&self, sum: (f64, f64), epsilon: f64) -> Interval {
        let ln_scale = self.total.ln_m - (self.c + 1.0) * epsilon;
        let alias = self.left_of_one(self.c + 1.0) + self.alias(&self.right, epsilon, 1.0).exp();
        self.interval(ln_scale, sum, alias, 0.0)
    }

    /// The point of slope −e^ε.
    pub(crate) fn point(&self, epsilon: f64) -> CurvePoint {
        if self.c > 0.0 {
            let [delta, alpha, beta] = self.sums([Kernel::Delta, Kernel::UpperQ, Kernel::UpperP], epsilon);
            let (delta, alpha) = (self.delta_from(delta, epsilon), self.alpha_from(alpha, epsilon));
            return CurvePoint { epsilon, delta, alpha, beta: self.beta_from(beta, epsilon) };
        }
        let [alpha, beta] = self.sums([Kernel::UpperQ, Kernel::UpperP], epsilon);
        let (alpha, beta) = (self.alpha_from(alpha, epsilon), self.beta_from(beta, epsilon));
        let e = epsilon.exp();
        let delta = Interval {
            lower: 1.0 - beta.upper - e * alpha.upper - 2.0 * f64::EPSILON,
            upper: 1.0 - beta.lower - e * alpha.lower + 2.0 * f64::EPSILON,
        };
        CurvePoint { epsilon, delta: delta.clamp(0.0, 1.0), alpha, beta }
    }

    /// The largest relative width of the point at the line's own saddle, which is about the least it can give.
    pub(crate) fn own_width(&self) -> f64 {
        *self.own_width.get_or_init(|| self.point(self.total.mean.max(0.0)).relative_width())
    }

    /// Σ_{n ≥ 1} e^{−rate·n·L}, for aliases of a function that is at most one.
    fn left_of_one(&self, rate: f64) -> f64 {
        let r = (-rate * self.period).exp();
        r / (1.0 - r)
    }
}

/// ∫ (e^{envelope(t)} − atom)·t^{−1} and ·t^{−2} over t ≥ `from`, in doubling stretches; on each the
/// decreasing envelope is taken at its left end.
fn envelope_rest(lines: &[Line], from: f64, ln_atom: f64) -> (f64, f64) {
    let atom = ln_atom.exp();
    let (mut one, mut two) = (0.0, 0.0);
    let mut t = from;
    let mut last = (0.0, 0.0);
    for _ in 0..200 {
        let bound = lines.iter().map(|line| line.ln_envelope(t)).sum::<f64>().exp();
        let excess = (bound - atom).max(0.0);
        last = (excess * std::f64::consts::LN_2, excess / (2.0 * t));
        one += last.0;
        two += last.1;
        t *= 2.0;
        if last.0 < 1e-30 {
            break;
        }
    }
    // Past the last stretch the excess halves with every doubling (it is V/t for large t).
    (one + 2.0 * last.0, two + 2.0 * last.1)
}

fn not_certified(why: &str) -> PrivacyError {
    PrivacyError::NotCertified { what: "the privacy loss", why: why.to_string() }
}
