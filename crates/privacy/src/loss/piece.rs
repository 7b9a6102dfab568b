//! One stretch of a round's law, on which the loss is a monotone, analytic function of one variable: values for
//! many arguments at once, on the real line and along lines beside it.
//!
//! The loops are vectorised, with the elementary functions of `dpsgd_kernels`: building nodes is most of what a
//! question costs.

use dpsgd_kernels::elementary::{atan, exp, exp_m1, ln, ln_1p, sin_cos};
use dpsgd_kernels::fast;

/// Reach of the nodes beyond the centre of the tilted Gaussian: φ(10.6)/φ(0) < 1e-24.
pub(super) const REACH: f64 = 10.6;

/// Left end of u on a half line: the bracket vanishes like y² and dx/du like e^u, so e^{3u} < 1e-19.
const LEFT_END: f64 = -15.0;

/// A component whose exponent is below this is added to one; above it, one is added to the component.
const LARGE: f64 = 30.0;

/// A stretch on which Y is a monotone, analytic function of u.
pub(super) enum Piece<'a> {
    /// Densities φ·w₊ and φ·w₋ on the whole line.
    Line { plus: &'a [(f64, f64)], minus: &'a [(f64, f64)] },
    /// x = shift/2 + softplus(u), and Y = ln(1 − η + η·e^{shift·softplus(u)}) or its negative.
    Half { shift: f64, share: f64, hit: f64, mirrored: bool },
}

/// Values at points of the real line.
#[derive(Default)]
pub(super) struct Real {
    /// Y.
    pub y: Vec<f64>,
    /// ln of the density under Q.
    pub ln_q: Vec<f64>,
    /// ln |dY/du|.
    pub ln_slope: Vec<f64>,
}

/// Values at points whose imaginary parts are all the same.
#[derive(Default)]
pub(super) struct Beside {
    pub y_re: Vec<f64>,
    pub y_im: Vec<f64>,
    /// Of the logarithm of the density under Q.
    pub ln_q_re: Vec<f64>,
}

impl Piece<'_> {
    /// Half the width of a strip in which no mixture has a zero: |Im| of every exponent stays below
    /// π/2. On a half line x = x_k + softplus(u) has |dx/du| ≤ 1 for |Im u| ≤ π/2.
    pub(super) fn strip(&self) -> f64 {
        match *self {
            Piece::Line { plus, minus } => {
                let widest = plus.iter().chain(minus).map(|p| p.0.abs()).fold(0.0, f64::max);
                (1.4 / widest.max(1e-9)).min(5.0)
            }
            Piece::Half { shift, .. } => (1.4 / shift.max(1e-9)).min(1.4),
        }
    }

    /// Whether Y falls as u grows.
    pub(super) fn falls(&self) -> bool {
        match *self {
            Piece::Line { plus, .. } => plus.is_empty(),
            Piece::Half { mirrored, .. } => mirrored,
        }
    }

    /// The stretch of u that matters at tilt c.
    pub(super) fn range(&self, c: f64) -> (f64, f64) {
        let reach = (c + 1.0).max(-c).max(1.0);
        match *self {
            Piece::Line { plus, minus } => {
                let of = |parts: &[(f64, f64)]| parts.iter().map(|p| p.0.abs()).fold(0.0, f64::max);
                let right = if plus.is_empty() { of(minus).max(0.0) } else { reach * of(plus) };
                let left = if minus.is_empty() || plus.is_empty() { 0.0 } else { of(minus) };
                (-left - REACH, right + REACH)
            }
            Piece::Half { shift, mirrored, .. } => {
                let centre = if mirrored { (-c).max(1.0) } else { reach } * shift;
                (LEFT_END, centre - 0.5 * shift + REACH)
            }
        }
    }

    /// The values at the real points `u`, in increasing order.
    pub(super) fn real(&self, u: &[f64]) -> Real {
        match *self {
            Piece::Line { plus, minus } => {
                let (mut up, mut up_slope) = ln_mixtures(plus, u);
                let (mut down, down_slope) = ln_mixtures(minus, u);
                fast(
                    #[inline(always)]
                    || {
                        let ups = up.iter_mut().zip(&mut up_slope);
                        let downs = down.iter_mut().zip(&down_slope);
                        for (((up, up_slope), (down, down_slope)), &u) in ups.zip(downs).zip(u) {
                            *up -= *down;
                            *down += ln_density(u);
                            *up_slope = ln((*up_slope - down_slope).abs());
                        }
                    },
                );
                Real { y: up, ln_q: down, ln_slope: up_slope }
            }
            Piece::Half { shift, share, hit, mirrored } => {
                let zeros = || vec![0.0; u.len()];
                let mut out = Real { y: zeros(), ln_q: zeros(), ln_slope: zeros() };
                let (ln_share, ln_steepest) = (share.ln(), (hit * shift).ln());
                let (ln_hit, odds) = (hit.ln(), (1.0 - hit) / hit);
                let sign = if mirrored { -1.0 } else { 1.0 };
                fast(
                    #[inline(always)]
                    || {
                        let out = out.y.iter_mut().zip(&mut out.ln_q).zip(&mut out.ln_slope);
                        for (((y, ln_q), ln_slope), &u) in out.zip(u) {
                            let more = ln_1p(exp(-u.abs()));
                            let above = u.max(0.0) + more;
                            let ln_dx = u.min(0.0) - more;
                            let l = shift * above;
                            // ln(1 − η + η·e^l).
                            let is_large = l >= LARGE;
                            let rest = if is_large { odds * exp(-l) } else { hit * exp_m1(l.min(LARGE)) };
                            let loss = ln_1p(rest) + if is_large { l + ln_hit } else { 0.0 };
                            *ln_slope = ln_steepest + l - loss + ln_dx;
                            *ln_q = ln_share + ln_density(0.5 * shift + above) + ln_dx;
                            *ln_q += if mirrored { loss } else { 0.0 };
                            *y = sign * loss;
                        }
                    },
                );
                out
            }
        }
    }

    /// The values at u + i·`height` for the points `u` in increasing order; |height| must be below the strip's
    /// half width.
    pub(super) fn beside(&self, u: &[f64], height: f64) -> Beside {
        match *self {
            Piece::Line { plus, minus } => {
                let (mut up_re, mut up_im) = ln_mixtures_beside(plus, u, height);
                let (mut down_re, down_im) = ln_mixtures_beside(minus, u, height);
                fast(
                    #[inline(always)]
                    || {
                        let ups = up_re.iter_mut().zip(&mut up_im);
                        let downs = down_re.iter_mut().zip(&down_im);
                        for (((up_re, up_im), (down_re, down_im)), &u) in ups.zip(downs).zip(u) {
                            *up_re -= *down_re;
                            *up_im -= *down_im;
                            *down_re += ln_density(u) + 0.5 * height * height;
                        }
                    },
                );
                Beside { y_re: up_re, y_im: up_im, ln_q_re: down_re }
            }
            Piece::Half { shift, share, hit, mirrored } => {
                let zeros = || vec![0.0; u.len()];
                let mut out = Beside { y_re: zeros(), y_im: zeros(), ln_q_re: zeros() };
                let ln_share = share.ln();
                let sign = if mirrored { -1.0 } else { 1.0 };
                let (sin, cos) = height.sin_cos();
                fast(
                    #[inline(always)]
                    || {
                        let out = out.y_re.iter_mut().zip(&mut out.y_im).zip(&mut out.ln_q_re);
                        for (((y_re, y_im), ln_q_re), &u) in out.zip(u) {
                            // softplus: ln(1 + e^u), by e^{−u} where u > 0.
                            let size = exp(-u.abs());
                            let (more_re, more_im) =
                                ln_complex(1.0 + size * cos, if u > 0.0 { -size } else { size } * sin);
                            let above_re = u.max(0.0) + more_re;
                            let above_im = if u > 0.0 { height } else { 0.0 } + more_im;
                            let x_re = 0.5 * shift + above_re;
                            // ln(1 − η + η·e^l), and l + ln(η + (1 − η)·e^{−l}) where e^l is large.
                            let (l_re, l_im) = (shift * above_re, shift * above_im);
                            let is_large = l_re >= LARGE;
                            let (base, other) = if is_large { (hit, 1.0 - hit) } else { (1.0 - hit, hit) };
                            let weight = other * exp(if is_large { -l_re } else { l_re });
                            let (sin_l, cos_l) = sin_cos(l_im);
                            let weighted_sin = if is_large { -weight } else { weight } * sin_l;
                            let (rest_re, rest_im) = ln_complex(base + weight * cos_l, weighted_sin);
                            let loss = rest_re + if is_large { l_re } else { 0.0 };
                            let loss_im = rest_im + if is_large { l_im } else { 0.0 };
                            let ln_density = ln_density(x_re) + 0.5 * above_im * above_im;
                            *ln_q_re = ln_share + ln_density - (above_re - u);
                            *ln_q_re += if mirrored { loss } else { 0.0 };
                            *y_re = sign * loss;
                            *y_im = sign * loss_im;
                        }
                    },
                );
                out
            }
        }
    }
}

/// ln of the density of N(0, 1).
#[inline(always)]
fn ln_density(x: f64) -> f64 {
    const LN_ROOT_TAU: f64 = 0.918_938_533_204_672_8;
    -0.5 * x * x - LN_ROOT_TAU
}

/// The logarithm of a number whose real part is positive.
#[inline(always)]
fn ln_complex(re: f64, im: f64) -> (f64, f64) {
    let tangent = im / re;
    (ln(re) + 0.5 * ln_1p(tangent * tangent), atan(tangent))
}

/// The largest exponent a·x − a²/2 of a component at every point, and the ends of the stretch where it stays
/// below [`LARGE`]: it is convex in x.
fn largest_exponents(parts: &[(f64, f64)], u: &[f64]) -> (Vec<f64>, usize, usize) {
    let mut largest = vec![f64::MIN; u.len()];
    fast(
        #[inline(always)]
        || {
            for &(a, _) in parts {
                for (largest, &u) in largest.iter_mut().zip(u) {
                    *largest = largest.max(a * u - 0.5 * a * a);
                }
            }
        },
    );
    let first = largest.iter().position(|&l| l < LARGE).unwrap_or(u.len());
    let last = largest.iter().rposition(|&l| l < LARGE).map_or(first, |i| i + 1);
    (largest, first, last)
}

/// ln Σ b·e^{a·x − a²/2} and its derivative at every point, for Σ b = 1; zeros for the empty mixture.
fn ln_mixtures(parts: &[(f64, f64)], u: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let (mut value, mut slope) = (vec![0.0; u.len()], vec![0.0; u.len()]);
    if parts.is_empty() {
        return (value, slope);
    }
    let (largest, first, last) = largest_exponents(parts, u);
    fast(
        #[inline(always)]
        || {
            for &(a, b) in parts {
                let near = value[first..last].iter_mut().zip(&mut slope[first..last]).zip(&u[first..last]);
                for ((value, slope), &u) in near {
                    let e = exp_m1(a * u - 0.5 * a * a);
                    *value += b * e;
                    *slope += b * a * (e + 1.0);
                }
            }
            for (value, slope) in value[first..last].iter_mut().zip(&mut slope[first..last]) {
                *slope /= 1.0 + *value;
                *value = ln_1p(*value);
            }
            for far in [0..first, last..u.len()] {
                for &(a, b) in parts {
                    let points = u[far.clone()].iter().zip(&largest[far.clone()]);
                    let out = value[far.clone()].iter_mut().zip(&mut slope[far.clone()]);
                    for ((value, slope), (&u, &largest)) in out.zip(points) {
                        let e = b * exp(a * u - 0.5 * a * a - largest);
                        *value += e;
                        *slope += a * e;
                    }
                }
                let out = value[far.clone()].iter_mut().zip(&mut slope[far.clone()]);
                for ((value, slope), largest) in out.zip(&largest[far.clone()]) {
                    *slope /= *value;
                    *value = largest + ln(*value);
                }
            }
        },
    );
    (value, slope)
}

/// Real and imaginary part of ln Σ b·e^{a·x − a²/2} at the points x = u + i·`height`.
fn ln_mixtures_beside(parts: &[(f64, f64)], u: &[f64], height: f64) -> (Vec<f64>, Vec<f64>) {
    let (mut re, mut im) = (vec![0.0; u.len()], vec![0.0; u.len()]);
    if parts.is_empty() {
        return (re, im);
    }
    // Relative to the largest term, which may have a tiny weight.
    let parts: Vec<_> =
        parts.iter().map(|&(a, b)| (a, b.ln() - 0.5 * a * a, (a * height).sin_cos())).collect();
    let mut largest = vec![f64::MIN; u.len()];
    fast(
        #[inline(always)]
        || {
            for &(a, ln_b, _) in &parts {
                for (largest, &u) in largest.iter_mut().zip(u) {
                    *largest = largest.max(a * u + ln_b);
                }
            }
            for &(a, ln_b, (sin, cos)) in &parts {
                for (((re, im), &u), &largest) in re.iter_mut().zip(&mut im).zip(u).zip(&largest) {
                    let e = exp(a * u + ln_b - largest);
                    *re += cos * e;
                    *im += sin * e;
                }
            }
            for ((re, im), &largest) in re.iter_mut().zip(&mut im).zip(&largest) {
                let (ln, angle) = ln_complex(*re, *im);
                *re = largest + ln;
                *im = angle;
            }
        },
    );
    (re, im)
}

#[cfg(test)]
mod tests {
    use num_complex::Complex64;

    use super::*;
    use crate::loss::round::ln_mixture;

    const MIXTURES: [&[(f64, f64)]; 5] = [
        &[],
        &[(0.0, 0.999), (0.8, 0.001)],
        &[(0.0, 0.75), (-0.3, 0.25)],
        &[(0.0, 0.9), (1.0, 0.09), (2.0, 0.009), (40.0, 0.001)],
        // A weight that only huge exponents let matter.
        &[(0.0, 1.0), (64.0, 1e-310)],
    ];

    fn halves() -> impl Iterator<Item = Piece<'static>> {
        let shapes = [(0.5, 1.0, 0.01), (0.01, 0.5, 1e-6), (30.0, 1e-3, 0.2), (2.0, 1.0, 1.0)];
        shapes.into_iter().flat_map(|(shift, share, hit)| {
            [false, true].map(|mirrored| Piece::Half { shift, share, hit, mirrored })
        })
    }

    fn lines() -> impl Iterator<Item = Piece<'static>> {
        MIXTURES.into_iter().flat_map(|plus| MIXTURES.map(|minus| Piece::Line { plus, minus }))
    }

    fn points(piece: &Piece<'_>) -> Vec<f64> {
        let (low, high) = piece.range(3.0);
        (0..=997).map(|i| low + (high - low) * f64::from(i) / 997.0).collect()
    }

    #[track_caller]
    fn close(found: f64, expected: f64, room: f64) {
        let same = found == expected || (found - expected).abs() <= room * (1.0 + expected.abs());
        assert!(same, "{found:e} {expected:e}");
    }

    /// Y, ln of the density under Q, and of the slope, point by point with the standard library.
    #[test]
    fn values_on_the_real_line_are_those_of_the_definition() {
        let softplus = |u: f64| u.max(0.0) + (-u.abs()).exp().ln_1p();
        for piece in halves().chain(lines()) {
            let u = points(&piece);
            let found = piece.real(&u);
            for (i, &u) in u.iter().enumerate() {
                let (y, ln_q, slope) = match piece {
                    Piece::Line { plus, minus } => {
                        let ((up, rise), (down, fall)) = (ln_mixture(plus, u), ln_mixture(minus, u));
                        (up - down, ln_density(u) + down, (rise - fall).abs())
                    }
                    Piece::Half { shift, share, hit, mirrored } => {
                        let l = shift * softplus(u);
                        let loss = match l < 30.0 {
                            true => (hit * l.exp_m1()).ln_1p(),
                            false => l + (hit + (1.0 - hit) * (-l).exp()).ln(),
                        };
                        let ln_q = share.ln() + ln_density(0.5 * shift + softplus(u)) - softplus(-u);
                        let slope = hit * shift * (l - loss - softplus(-u)).exp();
                        if mirrored { (-loss, ln_q + loss, slope) } else { (loss, ln_q, slope) }
                    }
                };
                close(found.y[i], y, 1e-13);
                close(found.ln_q[i], ln_q, 1e-13);
                // Where the slopes of two mixtures are nearly the same, few digits of their difference are left.
                close(found.ln_slope[i].exp(), slope, 1e-12);
            }
        }
    }

    #[test]
    fn values_beside_the_real_line_are_those_of_the_definition() {
        let mixture = |parts: &[(f64, f64)], x: Complex64| {
            let exponent = |&(a, b): &(f64, f64)| a * x - 0.5 * a * a + b.ln();
            let largest = parts.iter().map(|part| exponent(part).re).fold(f64::MIN, f64::max);
            let sum: Complex64 = parts.iter().map(|part| (exponent(part) - largest).exp()).sum();
            if parts.is_empty() { Complex64::ZERO } else { largest + sum.ln() }
        };
        let softplus = |u: Complex64| match u.re > 0.0 {
            true => u + (1.0 + (-u).exp()).ln(),
            false => (1.0 + u.exp()).ln(),
        };
        for piece in halves().chain(lines()) {
            for height in [0.9, -0.9, 0.05].map(|share| share * piece.strip()) {
                let u = points(&piece);
                let found = piece.beside(&u, height);
                for (i, &u) in u.iter().enumerate() {
                    let u = Complex64::new(u, height);
                    let (y, ln_q) = match piece {
                        Piece::Line { plus, minus } => {
                            let down = mixture(minus, u);
                            (mixture(plus, u) - down, -0.5 * u * u + down)
                        }
                        Piece::Half { shift, share, hit, mirrored } => {
                            let x = 0.5 * shift + softplus(u);
                            let l = shift * softplus(u);
                            let loss = match l.re < 30.0 {
                                true => (1.0 - hit + hit * l.exp()).ln(),
                                false => l + (hit + (1.0 - hit) * (-l).exp()).ln(),
                            };
                            let ln_q = share.ln() - 0.5 * x * x - softplus(-u);
                            if mirrored { (-loss, ln_q + loss) } else { (loss, ln_q) }
                        }
                    };
                    close(found.y_re[i], y.re, 1e-13);
                    close(found.y_im[i], y.im, 1e-12);
                    close(found.ln_q_re[i], ln_q.re - 0.5 * std::f64::consts::TAU.ln(), 1e-13);
                }
            }
        }
    }
}
