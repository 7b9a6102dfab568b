//! One round as adversary A₀ sees it: the law of the privacy loss Y = ln(dP/dQ), as nodes of a
//! quadrature whose error is bounded through the strip in which the integrand is analytic.
//!
//! Two shapes cover every sampler. On the whole line, Poisson sampling: P and Q have densities
//! φ·w₊ and φ·w₋ with w a mixture Σ b_k·e^{kx/z − k²/2z²} (or 1). On half lines, subsampling: for
//! ε > 0 the profile of docs/theory.md §3 is that of the mixtures ηN(k/σ, 1) + (1−η)N(0, 1) against
//! N(0, 1) where their ratio exceeds one, for every k with its share q_k/η; the other half is its
//! mirror image and what is left is an atom at Y = 0.

use num_complex::Complex64;

use super::piece::{Beside, Piece, REACH, Real};

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
    /// Y, the logarithm of the weight under Q, and ln |dY/du| + ln(step), piece after piece.
    pub y: Vec<f64>,
    pub ln_q: Vec<f64>,
    pub ln_width: Vec<f64>,
    /// The first node of every piece.
    pub starts: Vec<usize>,
}

/// ln of the share of the tilted moment below which a component is left out; times the largest
/// number of rounds it stays below 1e-12.
const LN_PRUNED: f64 = -60.0;

/// The integrand of M(z) along a line in the strip, a function of z: every fourth node.
pub(crate) struct Edge(Vec<(Beside, f64)>);

impl Edge {
    /// ln ∫ |q(u)·e^{(z+1)Y(u)}| du along the line, or along its mirror image below the real one: Y and q are real
    /// on the real line, so there the values are the conjugates.
    pub(crate) fn ln_modulus(&self, z: Complex64, mirrored: bool) -> f64 {
        let (re, im) = (z.re + 1.0, if mirrored { -z.im } else { z.im });
        let mut logs = Vec::new();
        for (beside, ln_step) in &self.0 {
            let values = beside.ln_q_re.iter().zip(&beside.y_re).zip(&beside.y_im);
            logs.extend(values.map(|((ln_q, y_re), y_im)| ln_q + re * y_re - im * y_im + ln_step));
        }
        ln_sum_exp(&logs)
    }
}

impl Shape {
    /// The same shape without the components that do not matter at the tilt c: those whose largest
    /// contribution to the integrand, searched for along the line, is below e^{LN_PRUNED}.
    pub(crate) fn pruned(&self, c: f64) -> Self {
        let reach = (c + 1.0).max(-c).max(1.0);
        // Along a half line the contribution has one maximum.
        let scan = |low: f64, high: f64, contribution: &dyn Fn(f64) -> f64| {
            let step = ((high - low) / 96.0).max(0.2);
            let count = ((high - low) / step) as usize + 1;
            (0..=count).map(|i| contribution(low + i as f64 * step)).fold(f64::MIN, f64::max)
        };
        match self {
            Shape::Line { plus, minus } => {
                let keep = |parts: &[(f64, f64)]| -> Vec<(f64, f64)> {
                    if parts.len() <= 2 {
                        return parts.to_vec();
                    }
                    // A component is felt most where its mean is moved to by one up to c + 1 of the
                    // factors, and near the centre.
                    let places = parts.iter().flat_map(|&(a, _)| [a, 0.5 * (1.0 + reach) * a, reach * a]);
                    let places: Vec<(f64, f64)> = places
                        .chain([-6.0, -3.0, 0.0, 3.0, 6.0])
                        .map(|x| {
                            let (up, down) = (ln_mixture(plus, x).0, ln_mixture(minus, x).0);
                            (x, -0.5 * x * x + (c + 1.0) * up - c * down - ln_mixture(parts, x).0)
                        })
                        .collect();
                    let felt = |a: f64, b: f64| {
                        let at = |&(x, rest): &(f64, f64)| rest + b.ln() + a * x - 0.5 * a * a;
                        places.iter().map(at).fold(f64::MIN, f64::max)
                    };
                    parts.iter().copied().filter(|&(a, b)| felt(a, b) > LN_PRUNED).collect()
                };
                Shape::Line { plus: keep(plus), minus: keep(minus) }
            }
            Shape::Halves { parts, hit } => {
                let matters = |&&(shift, share): &&(f64, f64)| {
                    scan(0.0, reach * shift + REACH, &|above| {
                        let x = 0.5 * shift + above;
                        let y = ln_one_plus(*hit, shift * above);
                        share.ln() - 0.5 * x * x + (c + 1.0).max(1.0) * y
                    }) > LN_PRUNED
                };
                Shape::Halves { parts: parts.iter().filter(matters).copied().collect(), hit: *hit }
            }
        }
    }

    /// Nodes that carry all of M(c + it) except a share of 1e-20. The step of a piece is 2π·(half
    /// width of its strip)/`resolution`. The shape must be pruned for c.
    pub(crate) fn nodes(&self, c: f64, resolution: f64) -> Nodes {
        let mut nodes = Nodes { y: Vec::new(), ln_q: Vec::new(), ln_width: Vec::new(), starts: Vec::new() };
        for piece in self.pieces() {
            nodes.starts.push(nodes.y.len());
            let step = std::f64::consts::TAU * piece.strip() / resolution;
            let (low, high) = piece.range(c);
            let u: Vec<f64> = ((low / step).floor() as i64..=(high / step).ceil() as i64)
                .map(|i| i as f64 * step)
                .collect();
            let Real { y, ln_q, ln_slope } = piece.real(&u);
            let ln_step = step.ln();
            nodes.y.extend(y);
            nodes.ln_q.extend(ln_q.into_iter().map(|ln| ln + ln_step));
            nodes.ln_width.extend(ln_slope.into_iter().map(|ln| ln + ln_step));
        }
        nodes
    }

    /// Roughly what one node costs, in sines: an exponential for each component of a mixture.
    pub(crate) fn cost_of_node(&self) -> f64 {
        match self {
            Shape::Line { plus, minus } => 4.0 + (plus.len() + minus.len()) as f64,
            Shape::Halves { .. } => 4.0,
        }
    }

    /// Roughly how many nodes [`nodes`](Self::nodes) would make.
    pub(crate) fn count(&self, c: f64, resolution: f64) -> f64 {
        let length = |p: &Piece| (p.range(c).1 - p.range(c).0) / p.strip();
        self.pieces().iter().map(length).sum::<f64>() * resolution / std::f64::consts::TAU
    }

    /// The integrand along the line at `share` of the half width of the strip. With ln ∫ |q(u)·e^{(z+1)Y(u)}| du
    /// there and on the mirrored line, 2·(the larger)/(e^{share·resolution} − 1) bounds the error of the
    /// trapezoidal rule (Trefethen and Weideman 2014, Thm 5.1; by Hardy's convexity theorem the edges of the strip
    /// suffice).
    pub(crate) fn edge(&self, c: f64, share: f64, resolution: f64) -> Edge {
        let edge = |piece: Piece<'_>| {
            // Every fourth node suffices for a bound: the strip is more than six steps wide, so
            // the modulus is smooth on that scale.
            let step = 4.0 * std::f64::consts::TAU * piece.strip() / resolution;
            (piece.beside(&points(piece.range(c), step), share * piece.strip()), step.ln())
        };
        Edge(self.pieces().into_iter().map(edge).collect())
    }

    /// The largest loss that can occur; infinite where there is none.
    pub(crate) fn largest_loss(&self) -> f64 {
        match self {
            // Y = −ln w₋ falls with x, towards −ln of the weight that is not shifted.
            Shape::Line { plus, minus } if plus.is_empty() => {
                -minus.iter().filter(|part| part.0 == 0.0).map(|part| part.1).sum::<f64>().ln()
            }
            _ => f64::INFINITY,
        }
    }

    /// Nodes along the lines at `height` of the half width of every piece's strip, on the side where e^{itY}
    /// falls for t > 0, with `density` of them on that half width: ln |q·e^{(c+1)Y}|·step − `ln_m`, and |Im Y|.
    pub(crate) fn raised(&self, c: f64, height: f64, density: f64, ln_m: f64) -> Vec<(f64, f64)> {
        let mut nodes = Vec::new();
        for piece in self.pieces() {
            let step = piece.strip() / density;
            // Where Y falls as u grows, its imaginary part is positive below the real line.
            let side = if piece.falls() { -height } else { height };
            let beside = piece.beside(&points(piece.range(c), step), side * piece.strip());
            let ln_step = step.ln();
            let values = beside.ln_q_re.iter().zip(&beside.y_re).zip(&beside.y_im);
            nodes.extend(values.map(|((ln_q, y_re), &y_im)| {
                // Roundings below zero may stay; anything else would not fall with t, and bounds nothing.
                let ln = if y_im < -1e-14 { f64::INFINITY } else { ln_q + (c + 1.0) * y_re + ln_step - ln_m };
                (ln, y_im.max(0.0))
            }));
        }
        nodes
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

/// Points from one end of a stretch to the other.
fn points((low, high): (f64, f64), step: f64) -> Vec<f64> {
    (0..=((high - low) / step) as usize).map(|i| low + i as f64 * step).collect()
}

/// ln(1 − η + η·e^l) for l ≥ 0.
fn ln_one_plus(hit: f64, l: f64) -> f64 {
    if l < 30.0 {
        (hit * l.exp_m1()).ln_1p()
    } else {
        l + hit.ln() + ((1.0 - hit) / hit * (-l).exp()).ln_1p()
    }
}

/// ln Σ b·e^{a·x − a²/2} and its derivative, for Σ b = 1; (0, 0) for the empty mixture.
pub(super) fn ln_mixture(parts: &[(f64, f64)], x: f64) -> (f64, f64) {
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

pub(crate) fn ln_sum_exp(logs: &[f64]) -> f64 {
    let largest = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if largest == f64::NEG_INFINITY {
        return largest;
    }
    largest + logs.iter().map(|l| (l - largest).exp()).sum::<f64>().ln()
}
