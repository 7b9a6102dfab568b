//! One round as adversary A₀ sees it: the law of the privacy loss Y = ln(dP/dQ), as nodes of a
//! quadrature whose error is bounded through the strip in which the integrand is analytic.
//!
//! Two shapes cover every sampler. On the whole line, Poisson sampling: P and Q have densities
//! φ·w₊ and φ·w₋ with w a mixture Σ b_k·e^{kx/z − k²/2z²} (or 1). On half lines, subsampling: for
//! ε > 0 the profile of notes §4 is that of the mixtures ηN(k/σ, 1) + (1−η)N(0, 1) against
//! N(0, 1) where their ratio exceeds one, for every k with its share q_k/η; the other half is its
//! mirror image and what is left is an atom at Y = 0.

use num_complex::Complex64;

use crate::normal;

/// The pair of distributions of one round.
#[derive(Clone, Debug)]
pub(crate) enum Shape {
    /// Densities φ·w₊ and φ·w₋; each mixture lists (shift of the mean, weight), empty means 1.
    Line { plus: Vec<(f64, f64)>, minus: Vec<(f64, f64)> },
    /// (k/σ, q_k/η) and η.
    Halves { parts: Vec<(f64, f64)>, hit: f64 },
}

/// The nodes of a quadrature of M(z) = E_P[e^{zY}] for z = c + it.
pub(crate) struct Nodes {
    /// Y, the logarithm of the weight under Q, and ln |dY/du|, piece after piece.
    pub y: Vec<f64>,
    pub ln_q: Vec<f64>,
    pub ln_slope: Vec<f64>,
    /// The first node of every piece.
    pub starts: Vec<usize>,
    /// Step of the trapezoidal rule.
    pub step: f64,
}

/// Mixture components whose share of the tilted moment is below this are left out; times the
/// largest number of rounds it stays below 1e-12.
const PRUNED: f64 = 1e-26;

/// Reach of the nodes beyond the centre of the tilted Gaussian: φ(10.6)/φ(0) < 1e-24.
const REACH: f64 = 10.6;

/// Left end of u on a half line: the bracket vanishes like y² and dx/du like e^u, so e^{3u} < 1e-19.
const LEFT_END: f64 = -15.0;

impl Shape {
    /// The largest shift of the mean that matters at tilt c.
    fn widest(&self, c: f64) -> f64 {
        let tilt = (c * (c + 1.0)).max(0.0);
        let matters =
            |&&(shift, weight): &&(f64, f64)| weight.ln() + 0.5 * tilt * shift * shift > PRUNED.ln();
        let of = |parts: &[(f64, f64)]| {
            parts.iter().filter(matters).map(|&(shift, _)| shift.abs()).fold(0.0, f64::max)
        };
        match self {
            Shape::Line { plus, minus } => of(plus).max(of(minus)),
            Shape::Halves { parts, .. } => of(parts),
        }
    }

    fn pruned(&self, c: f64) -> Self {
        let widest = self.widest(c);
        let keep = |parts: &Vec<(f64, f64)>| {
            parts.iter().copied().filter(|&(shift, _)| shift.abs() <= widest).collect()
        };
        match self {
            Shape::Line { plus, minus } => Shape::Line { plus: keep(plus), minus: keep(minus) },
            Shape::Halves { parts, hit } => Shape::Halves { parts: keep(parts), hit: *hit },
        }
    }

    /// Half the width of a strip in which no mixture has a zero (|Im| of every exponent below
    /// π/2), at the tilt c.
    pub(crate) fn strip(&self, c: f64) -> f64 {
        let zero_free = 1.4 / self.widest(c).max(1e-9);
        match self {
            Shape::Line { .. } => zero_free.min(5.0),
            // x = x_k + softplus(u) has |dx/du| ≤ 1 for |Im u| ≤ π/2.
            Shape::Halves { .. } => zero_free.min(1.4),
        }
    }

    /// Nodes that carry all of M(c + it) but a share of 1e-20.
    pub(crate) fn nodes(&self, c: f64, step: f64) -> Nodes {
        let shape = self.pruned(c);
        let widest = self.widest(c);
        let mut nodes =
            Nodes { y: Vec::new(), ln_q: Vec::new(), ln_slope: Vec::new(), starts: Vec::new(), step };
        let piece = |nodes: &mut Nodes, piece: &Piece, low: f64, high: f64| {
            nodes.starts.push(nodes.y.len());
            let first = (low / step).floor() as i64;
            let last = (high / step).ceil() as i64;
            for i in first..=last {
                let (y, ln_q, ln_slope) = piece.real(i as f64 * step);
                nodes.y.push(y);
                nodes.ln_q.push(ln_q + step.ln());
                nodes.ln_slope.push(ln_slope);
            }
        };
        let far = widest * (c + 1.0).max(-c).max(1.0);
        for part in shape.pieces() {
            match part {
                Piece::Line { plus, minus } => {
                    let right = if plus.is_empty() && c > 0.0 { 0.0 } else { far };
                    let left = if minus.is_empty() || plus.is_empty() { 0.0 } else { widest };
                    piece(&mut nodes, &part, -left - REACH, right + REACH);
                }
                Piece::Half { shift, mirrored, .. } => {
                    let centre = if mirrored { -c } else { c + 1.0 } * shift;
                    let high = (centre.max(shift).max(0.5 * shift) - 0.5 * shift + REACH).max(2.0);
                    piece(&mut nodes, &part, LEFT_END, high);
                }
            }
        }
        nodes
    }

    /// ln ∫ |q(u)·e^{(z+1)Y(u)}| du along Im u = `height`, on the same nodes, for the bound
    /// 2·(that)/(e^{2π·height/step} − 1) on the error of the trapezoidal rule (Trefethen and
    /// Weideman 2014, Thm 5.1; by Hardy's convexity theorem the edges of the strip suffice).
    pub(crate) fn ln_edge(&self, c: f64, z: Complex64, height: f64, nodes: &Nodes) -> f64 {
        let shape = self.pruned(c);
        let far = self.widest(c) * (c + 1.0).max(-c).max(1.0);
        let mut logs = Vec::with_capacity(nodes.y.len());
        for part in shape.pieces() {
            // Every fourth node suffices for a bound: the strip is more than seven steps wide, so
            // the modulus is smooth on that scale.
            let step = 4.0 * nodes.step;
            let (low, high) = match part {
                Piece::Line { .. } => (-far - REACH, far + REACH),
                Piece::Half { .. } => (LEFT_END, far + REACH),
            };
            let mut u = low;
            while u <= high {
                let (y, ln_q) = part.complex(Complex64::new(u, height));
                logs.push((ln_q + (z + 1.0) * y).re + step.ln());
                u += step;
            }
        }
        ln_sum_exp(&logs)
    }

    fn pieces(&self) -> Vec<Piece<'_>> {
        match self {
            Shape::Line { plus, minus } => vec![Piece::Line { plus, minus }],
            Shape::Halves { parts, hit } => parts
                .iter()
                .flat_map(|&(shift, share)| {
                    [false, true].map(|mirrored| Piece::Half { shift, share, hit: *hit, mirrored })
                })
                .collect(),
        }
    }
}

/// A stretch on which Y is a monotone, analytic function of u.
enum Piece<'a> {
    Line { plus: &'a [(f64, f64)], minus: &'a [(f64, f64)] },
    Half { shift: f64, share: f64, hit: f64, mirrored: bool },
}

impl Piece<'_> {
    /// Y, ln of the density under Q, ln |dY/du| at a real u.
    fn real(&self, u: f64) -> (f64, f64, f64) {
        match *self {
            Piece::Line { plus, minus } => {
                let (up, up_slope) = ln_mixture(plus, u);
                let (down, down_slope) = ln_mixture(minus, u);
                (up - down, normal::ln_density(u) + down, (up_slope - down_slope).abs().ln())
            }
            Piece::Half { shift, share, hit, mirrored } => {
                let above = softplus(u);
                let x = 0.5 * shift + above;
                let ln_dx = -softplus(-u);
                let l = shift * above;
                // ln(1 − η + η·e^l) with l ≥ 0.
                let y = if l < 30.0 {
                    (hit * l.exp_m1()).ln_1p()
                } else {
                    l + hit.ln() + ((1.0 - hit) / hit * (-l).exp()).ln_1p()
                };
                let ln_slope = hit.ln() + l - y + shift.ln() + ln_dx;
                let ln_q = share.ln() + normal::ln_density(x) + ln_dx;
                if mirrored { (-y, ln_q + y, ln_slope) } else { (y, ln_q, ln_slope) }
            }
        }
    }

    fn complex(&self, u: Complex64) -> (Complex64, Complex64) {
        let ln_density = |x: Complex64| -0.5 * x * x - 0.5 * std::f64::consts::TAU.ln();
        match *self {
            Piece::Line { plus, minus } => {
                let up = ln_mixture_complex(plus, u);
                let down = ln_mixture_complex(minus, u);
                (up - down, ln_density(u) + down)
            }
            Piece::Half { shift, share, hit, mirrored } => {
                let above = softplus_complex(u);
                let x = 0.5 * shift + above;
                let l = shift * above;
                let y = if l.re < 30.0 {
                    (1.0 - hit + hit * l.exp()).ln()
                } else {
                    l + (hit + (1.0 - hit) * (-l).exp()).ln()
                };
                let ln_q = share.ln() + ln_density(x) - softplus_complex(-u);
                if mirrored { (-y, ln_q + y) } else { (y, ln_q) }
            }
        }
    }
}

/// ln Σ b·e^{a·x − a²/2} and its derivative, for Σ b = 1; (0, 0) for the empty mixture.
fn ln_mixture(parts: &[(f64, f64)], x: f64) -> (f64, f64) {
    if parts.is_empty() {
        return (0.0, 0.0);
    }
    let largest = parts.iter().map(|&(a, _)| a * x - 0.5 * a * a).fold(f64::MIN, f64::max);
    if largest < 30.0 {
        let mut excess = 0.0;
        let mut slope = 0.0;
        for &(a, b) in parts {
            let e = (a * x - 0.5 * a * a).exp_m1();
            excess += b * e;
            slope += b * a * (e + 1.0);
        }
        (excess.ln_1p(), slope / (1.0 + excess))
    } else {
        let mut sum = 0.0;
        let mut slope = 0.0;
        for &(a, b) in parts {
            let e = b * (a * x - 0.5 * a * a - largest).exp();
            sum += e;
            slope += a * e;
        }
        (largest + sum.ln(), slope / sum)
    }
}

fn ln_mixture_complex(parts: &[(f64, f64)], x: Complex64) -> Complex64 {
    if parts.is_empty() {
        return Complex64::ZERO;
    }
    let largest = parts.iter().map(|&(a, _)| a * x.re - 0.5 * a * a).fold(f64::MIN, f64::max);
    let sum: Complex64 = parts.iter().map(|&(a, b)| b * (a * x - 0.5 * a * a - largest).exp()).sum();
    largest + sum.ln()
}

fn softplus(u: f64) -> f64 {
    if u > 0.0 { u + (-u).exp().ln_1p() } else { u.exp().ln_1p() }
}

fn softplus_complex(u: Complex64) -> Complex64 {
    if u.re > 0.0 { u + (1.0 + (-u).exp()).ln() } else { (1.0 + u.exp()).ln() }
}

pub(crate) fn ln_sum_exp(logs: &[f64]) -> f64 {
    let largest = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if largest == f64::NEG_INFINITY {
        return largest;
    }
    largest + logs.iter().map(|l| (l - largest).exp()).sum::<f64>().ln()
}
