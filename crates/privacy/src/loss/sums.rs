//! Sums over the nodes of a round and over the parts of a known law, at one tilt and along a vertical line: the
//! loops a question spends its time in, vectorised.

use dpsgd_kernels::elementary::{LARGEST_ANGLE, exp, exp_m1, ln, sin_cos};
use dpsgd_kernels::fast;

use super::factor::Cumulants;

/// Partial sums, one for each lane of the widest vectors, twice.
pub(super) const LANES: usize = 16;

/// Where the largest exponent is below this, M − 1 is summed; above it M is, relative to the largest term and without
/// what does not move: an atom of at most one, whose share of M is then below e^{−40}, less than a rounding.
const LARGE: f64 = 40.0;

/// Beyond this a power alone may overflow where its weight underflows; their product does neither.
const FAR: f64 = 300.0;

/// Adds up `terms(i)` for i below `count`, several sums at once.
#[inline(always)]
fn sums<const N: usize>(count: usize, terms: impl Fn(usize) -> [f64; N]) -> [f64; N] {
    let mut lanes = [[0.0; LANES]; N];
    let whole = count / LANES * LANES;
    for start in (0..whole).step_by(LANES) {
        for lane in 0..LANES {
            for (sum, term) in lanes.iter_mut().zip(terms(start + lane)) {
                sum[lane] += term;
            }
        }
    }
    let mut total = lanes.map(|lanes| lanes.iter().sum::<f64>());
    for i in whole..count {
        for (sum, term) in total.iter_mut().zip(terms(i)) {
            *sum += term;
        }
    }
    total
}

/// The cumulants of nodes and their tilted probabilities:
/// M(c) − 1 = Σ q·(e^{(c+1)y} − 1 − (c+1)(e^y − 1)), where the subtracted terms integrate to zero
/// because P and Q are probabilities; no term cancels when y is small.
pub(super) fn tilted(y: &[f64], ln_q: &[f64], c: f64) -> (Cumulants, Vec<f64>) {
    let tilt = c + 1.0;
    let mut w = vec![0.0; y.len()];
    let y = &y[..w.len()];
    let ln_q = &ln_q[..w.len()];
    let mut cumulants = Cumulants::default();
    fast(
        #[inline(always)]
        || {
            let mut most = [f64::MIN; LANES];
            for (i, (w, (y, l))) in w.iter_mut().zip(y.iter().zip(ln_q)).enumerate() {
                *w = tilt * y + l;
                most[i % LANES] = most[i % LANES].max(*w);
            }
            let largest = most.iter().copied().fold(f64::MIN, f64::max);
            let scale = if largest < LARGE {
                let mut terms = w.clone();
                for ((term, w), (&y, &l)) in terms.iter_mut().zip(&mut w).zip(y.iter().zip(ln_q)) {
                    *w = exp(*w);
                    let far = *w - tilt * exp(y + l);
                    *term = if (tilt * y).max(y) > FAR { far } else { exp(l) * bracket(tilt, y) };
                }
                let [excess, size] = sums(
                    terms.len(),
                    #[inline(always)]
                    |i| [terms[i], terms[i].abs()],
                );
                cumulants.ln_m = excess.ln_1p();
                cumulants.error = (y.len() + 64) as f64 * f64::EPSILON * size / (1.0 + excess);
                1.0 / (1.0 + excess)
            } else {
                w.iter_mut().for_each(|w| *w = exp(*w - largest));
                let [sum] = sums(
                    w.len(),
                    #[inline(always)]
                    |i| [w[i]],
                );
                cumulants.ln_m = largest + sum.ln();
                cumulants.error = (y.len() as f64 + 64.0 + largest.abs()) * f64::EPSILON;
                1.0 / sum
            };
            w.iter_mut().for_each(|w| *w *= scale);
            let [mean, second, rounded] = sums(
                w.len(),
                #[inline(always)]
                |i| [y[i] * w[i], y[i] * y[i] * w[i], w[i] * beyond(tilt * y[i])],
            );
            cumulants.mean = mean;
            cumulants.variance = (second - mean * mean).max(0.0);
            cumulants.error += 3.0 * f64::EPSILON * rounded;
        },
    );
    (cumulants, w)
}

/// What of an exponent is large enough for its rounding to count: a power times a weight is e to the sum of two
/// numbers of about this size, which may nearly cancel.
#[inline(always)]
fn beyond(exponent: f64) -> f64 {
    (exponent.abs() - 30.0).max(0.0)
}

/// e^{ay} − 1 − a(e^y − 1) with a small relative error, for a·y and y up to 300: by its series where it would
/// cancel.
#[inline(always)]
fn bracket(a: f64, y: f64) -> f64 {
    // Σ_{n≥2} a(a^{n−1} − 1)·y^n/n!, and a^{n−1} − 1 = (a − 1)·(1 + a + … + a^{n−2}).
    let (mut geometric, mut power) = (1.0, 0.5 * y * y);
    let mut sum = power;
    // Below the limit the term for n is at most n·0.3^{n−2}·2/n! of the first.
    for n in 3..16 {
        geometric = geometric * a + 1.0;
        power *= y * (1.0 / f64::from(n));
        sum += geometric * power;
    }
    let series = a * (a - 1.0) * sum;
    let direct = exp_m1(a * y) - a * exp_m1(y);
    if y.abs() * a.abs().max(1.0) > 0.3 { direct } else { series }
}

/// Σ w·min(t·|y|, 2), a bound on Σ w·|e^{it'y} − 1| for every t' ≤ t.
pub(super) fn resolved(y: &[f64], w: &[f64], t: f64) -> f64 {
    let y = &y[..w.len()];
    let [sum] = fast(
        #[inline(always)]
        || {
            sums(
                w.len(),
                #[inline(always)]
                |i| [w[i] * (t * y[i].abs()).min(2.0)],
            )
        },
    );
    sum
}

fn largest(y: &[f64]) -> f64 {
    y.iter().fold(0.0, |most, y| y.abs().max(most))
}

/// The numbers e^{ity} − 1, turned from one value of t to the next. Without the one, roundings are relative to what
/// a number has moved, however large t is.
pub(super) struct Turning<'a> {
    w: &'a [f64],
    now: [Vec<f64>; 2],
    turn: [Vec<f64>; 2],
}

/// e^{iθ} − 1 = 2i·sin(θ/2)·e^{iθ/2}, from the sine and cosine of θ/2.
#[inline(always)]
fn less_one((sin, cos): (f64, f64)) -> (f64, f64) {
    (-2.0 * sin * sin, 2.0 * sin * cos)
}

impl<'a> Turning<'a> {
    pub(super) fn new(y: &[f64], w: &'a [f64], start: f64, step: f64) -> Self {
        let zeros = || vec![0.0; w.len()];
        let mut it = Self { w, now: [zeros(), zeros()], turn: [zeros(), zeros()] };
        let (start, step) = (0.5 * start, 0.5 * step);
        let is_small = (start + step) * largest(y) <= LARGEST_ANGLE;
        let ([now_re, now_im], [turn_re, turn_im]) = (&mut it.now, &mut it.turn);
        let now = now_re.iter_mut().zip(now_im.iter_mut());
        let turn = turn_re.iter_mut().zip(turn_im.iter_mut());
        if is_small {
            fast(
                #[inline(always)]
                || {
                    for (((now_re, now_im), (turn_re, turn_im)), &y) in now.zip(turn).zip(y) {
                        (*now_re, *now_im) = less_one(sin_cos(start * y));
                        (*turn_re, *turn_im) = less_one(sin_cos(step * y));
                    }
                },
            );
        } else {
            for (((now_re, now_im), (turn_re, turn_im)), &y) in now.zip(turn).zip(y) {
                (*now_re, *now_im) = less_one((start * y).sin_cos());
                (*turn_re, *turn_im) = less_one((step * y).sin_cos());
            }
        }
        it
    }

    /// Σ w·(e^{ity} − 1); then t grows by a step.
    pub(super) fn next(&mut self) -> [f64; 2] {
        let ([re, im], [turn_re, turn_im]) = (&mut self.now, &self.turn);
        let n = self.w.len();
        let (w, re, im, turn_re, turn_im) =
            (self.w, &mut re[..n], &mut im[..n], &turn_re[..n], &turn_im[..n]);
        fast(
            #[inline(always)]
            || {
                let sums = sums(
                    n,
                    #[inline(always)]
                    |i| [w[i] * re[i], w[i] * im[i]],
                );
                for (((re, im), a), b) in re.iter_mut().zip(im.iter_mut()).zip(turn_re).zip(turn_im) {
                    // (1 + z)(1 + turn) − 1.
                    (*re, *im) = ((*re * a - *im * b) + (*re + a), (*re * b + *im * a) + (*im + b));
                }
                sums
            },
        )
    }
}

/// w·(e^{x + iθ} − 1) and w times a bound on its modulus, from the sine and cosine of θ/2.
#[inline(always)]
fn part_less_one(w: f64, x: f64, (sin, cos): (f64, f64)) -> [f64; 3] {
    let less = exp_m1(x);
    let re = less * (1.0 - 2.0 * sin * sin) - 2.0 * sin * sin;
    let im = (less + 1.0) * 2.0 * sin * cos;
    [w * re, w * im, w * (re.abs() + im.abs())]
}

/// Turns of the phases in [`turned`] before fresh ones.
const TURNS: usize = 16;
/// Terms of [`turned`] that are added up together.
const TOGETHER: usize = TURNS * TURNS * LANES;

/// The roundings of one term in [`turned`], and those of a sum of n of them. The phases add 2ε·j·step·|ε| to each.
pub(super) fn roundings(n: usize) -> f64 {
    (4 * TURNS + 8 + n.min(TOGETHER) / LANES + LANES + n / TOGETHER) as f64
}

/// Re Σ (re_j + i·im_j)·e^{−i·j·step·ε} for several sequences of one length, a multiple of [`LANES`].
pub(super) fn turned<const N: usize>(terms: [(&[f64], &[f64]); N], step: f64, epsilon: f64) -> [f64; N] {
    let count = terms.iter().map(|(re, im)| re.len().min(im.len())).min().unwrap_or(0);
    let is_small = step * count as f64 * epsilon.abs() <= LARGEST_ANGLE;
    let (sin_turn, cos_turn) = (LANES as f64 * step * epsilon).sin_cos();
    let mut total = [0.0; N];
    for together in (0..count).step_by(TOGETHER) {
        let mut sum = [[0.0; LANES]; N];
        let end = count.min(together + TOGETHER);
        for first in (together..end).step_by(TURNS * LANES) {
            let block = first..end.min(first + TURNS * LANES);
            let terms = terms.map(|(re, im)| {
                (re[block.clone()].as_chunks::<LANES>().0, im[block.clone()].as_chunks::<LANES>().0)
            });
            let phases: [f64; LANES] = std::array::from_fn(|lane| (first + lane) as f64 * step * epsilon);
            let (mut sin, mut cos) = ([0.0; LANES], [0.0; LANES]);
            if !is_small {
                for lane in 0..LANES {
                    (sin[lane], cos[lane]) = phases[lane].sin_cos();
                }
            }
            fast(
                #[inline(always)]
                || {
                    if is_small {
                        for lane in 0..LANES {
                            (sin[lane], cos[lane]) = sin_cos(phases[lane]);
                        }
                    }
                    for i in 0..block.len() / LANES {
                        for (sum, (re, im)) in sum.iter_mut().zip(terms) {
                            for lane in 0..LANES {
                                sum[lane] += re[i][lane] * cos[lane] + im[i][lane] * sin[lane];
                            }
                        }
                        for lane in 0..LANES {
                            (cos[lane], sin[lane]) = (
                                cos[lane] * cos_turn - sin[lane] * sin_turn,
                                sin[lane] * cos_turn + cos[lane] * sin_turn,
                            );
                        }
                    }
                },
            );
        }
        for (total, sum) in total.iter_mut().zip(sum) {
            *total += sum.iter().sum::<f64>();
        }
    }
    total
}

/// Under the tilted law, the squares µ² of a run's Gaussian parts and their probabilities; what is not listed has
/// µ = 0.
pub(super) struct Parts {
    pub squares: Vec<f64>,
    w: Vec<f64>,
}

impl Parts {
    /// Those of the parts (µ², q) at the tilt c, with their cumulants.
    pub(super) fn new(parts: &[(f64, f64)], relative_error: f64, c: f64) -> (Self, Cumulants) {
        let square = 0.5 * c * (c + 1.0);
        let count = parts.len();
        let (mut squares, q): (Vec<f64>, Vec<f64>) = parts.iter().copied().unzip();
        let mut w = vec![0.0; count];
        let mut cumulants = Cumulants::default();
        fast(
            #[inline(always)]
            || {
                let mut most = [0.0_f64; LANES];
                for (i, (w, (v, q))) in w.iter_mut().zip(squares.iter().zip(&q)).enumerate() {
                    *w = square * v + ln(*q);
                    most[i % LANES] = most[i % LANES].max(*w);
                }
                let largest = most.iter().copied().fold(0.0, f64::max);
                let scale = if largest < LARGE {
                    let [excess] = sums(
                        count,
                        #[inline(always)]
                        |i| {
                            let x = square * squares[i];
                            [if x > FAR { exp(w[i]) } else { q[i] * exp_m1(x) }]
                        },
                    );
                    cumulants.ln_m = excess.ln_1p();
                    (-cumulants.ln_m, 0.0)
                } else {
                    let [sum] = sums(
                        count,
                        #[inline(always)]
                        |i| [exp(w[i] - largest)],
                    );
                    cumulants.ln_m = largest + sum.ln();
                    (-sum.ln(), largest)
                };
                w.iter_mut().for_each(|w| *w = exp(*w - scale.1 + scale.0));
                // Given µ the loss is N(µ²(2c+1)/2, µ²) under the tilted law.
                let half = c + 0.5;
                let [mean, second, changed, rounded] = sums(
                    count,
                    #[inline(always)]
                    |i| {
                        let (v, w) = (squares[i], w[i]);
                        let size = (square * v).abs();
                        [w * v * half, w * (v + v * v * half * half), w * size.min(1.0), w * beyond(size)]
                    },
                );
                cumulants.mean = mean;
                cumulants.variance = (second - mean * mean).max(0.0);
                cumulants.error = (relative_error + (count + 32) as f64 * f64::EPSILON) * changed
                    + 8.0 * f64::EPSILON * cumulants.ln_m.abs()
                    + 3.0 * f64::EPSILON * rounded;
            },
        );
        let mut kept = w.iter().map(|&w| w > 1e-30);
        squares.retain(|_| kept.next() == Some(true));
        w.retain(|&w| w > 1e-30);
        (Self { squares, w }, cumulants)
    }

    /// Σ w·(e^z − 1) for z = µ²·(−t² + i·t·`slope`)/2, and Σ w times a bound on |e^z − 1|.
    pub(super) fn less_one(&self, t: f64, slope: f64) -> [f64; 3] {
        let (fall, turn) = (-0.5 * t * t, 0.25 * t * slope);
        let (squares, w) = (&self.squares, &self.w[..self.squares.len()]);
        if turn.abs() * largest(squares) > LARGEST_ANGLE {
            return sums(w.len(), |i| part_less_one(w[i], fall * squares[i], (turn * squares[i]).sin_cos()));
        }
        fast(
            #[inline(always)]
            || {
                sums(
                    w.len(),
                    #[inline(always)]
                    |i| part_less_one(w[i], fall * squares[i], sin_cos(turn * squares[i])),
                )
            },
        )
    }

    /// Σ w·e^{−µ²t²/2}.
    pub(super) fn fallen(&self, t: f64) -> f64 {
        let (squares, w) = (&self.squares, &self.w[..self.squares.len()]);
        let [sum] = fast(
            #[inline(always)]
            || {
                sums(
                    w.len(),
                    #[inline(always)]
                    |i| [w[i] * exp(-0.5 * t * t * squares[i])],
                )
            },
        );
        sum
    }
}

#[cfg(test)]
mod tests {
    use num_complex::Complex64;

    use super::*;

    /// The same sums, term by term with the standard library.
    #[test]
    fn the_sums_are_those_of_a_plain_loop() {
        for count in [0, 1, 15, 16, 100, 1003] {
            let y: Vec<f64> = (0..count).map(|i| (0.37 * f64::from(i)).sin() * 3.0).collect();
            let w: Vec<f64> = (0..count).map(|i| 1.0 / f64::from(i + 1)).collect();
            for t in [0.0, 0.3, 1234.5, 3e7] {
                let mut plain = [0.0; 2];
                for (y, w) in y.iter().zip(&w) {
                    plain[0] += w * ((t * y).cos() - 1.0);
                    plain[1] += w * (t * y).sin();
                }
                let mut turning = Turning::new(&y, &w, t - 0.3, 0.1);
                for _ in 0..3 {
                    turning.next();
                }
                let found = turning.next();
                let most = resolved(&y, &w, t);
                assert!(plain[0].hypot(plain[1]) <= most * (1.0 + 1e-12), "{count} {t}");
                // The phases are rounded.
                let room = 1e-14 + 4.0 * f64::EPSILON * t;
                for (a, b) in found.into_iter().zip(plain) {
                    assert!((a - b).abs() <= room * (1.0 + w.len() as f64), "{count} {t}: {a} {b}");
                }
            }
        }
    }

    #[test]
    fn the_turned_sums_are_those_of_a_plain_loop() {
        for count in [16, 32, 4096, 10_000] {
            let re: Vec<f64> = (0..count).map(|i| 1.0 / f64::from(i + 1)).collect();
            let im: Vec<f64> = (0..count).map(|i| (0.1 * f64::from(i)).cos() / f64::from(i + 3)).collect();
            for (step, epsilon) in [(0.01, 3.0), (2.0, -7.0), (300.0, 40.0)] {
                let plain: f64 = (0..count as usize)
                    .map(|j| {
                        let (sin, cos) = (j as f64 * step * epsilon).sin_cos();
                        re[j] * cos + im[j] * sin
                    })
                    .sum();
                let size: f64 = re.iter().chain(&im).map(|x| x.abs()).sum();
                let [found, twice] = turned([(&re, &im), (&im, &re)], step, epsilon);
                assert_eq!([twice], turned([(&im, &re)], step, epsilon));
                assert!(
                    (found - plain).abs()
                        <= f64::EPSILON
                            * size
                            * (roundings(re.len()) + 2.0 * count as f64 * step * f64::abs(epsilon)),
                    "{found} {plain}"
                );
            }
        }
    }

    #[test]
    fn the_sums_over_parts_are_those_of_a_plain_loop() {
        for (count, size) in [(1, 0.3), (40, 0.01), (40, 3.0), (300, 1e3), (7, 1e8)] {
            let parts: Vec<(f64, f64)> =
                (1..=count).map(|i| (size * f64::from(i), 0.9 / f64::from(count))).collect();
            for c in [-0.7, 0.4, 3.0] {
                let (tilted, cumulants) = Parts::new(&parts, 0.0, c);
                let exponents = parts.iter().map(|(v, q)| 0.5 * c * (c + 1.0) * v + q.ln());
                let most = exponents.clone().fold(0.0, f64::max);
                let ln_m =
                    most + (exponents.map(|x| (x - most).exp()).sum::<f64>() + 0.1 * (-most).exp()).ln();
                assert!((cumulants.ln_m - ln_m).abs() <= 1e-13 * (1.0 + ln_m.abs()), "{cumulants:?} {ln_m}");
                let total: f64 = tilted.w.iter().sum();
                assert!((total + 0.1 * (-ln_m).exp() - 1.0).abs() < 1e-12 * (1.0 + ln_m.abs()), "{total}");
                for t in [0.0, 0.01, 2.0] {
                    let slope = 2.0 * c + 1.0;
                    let mut plain = Complex64::ZERO;
                    for (&v, &w) in tilted.squares.iter().zip(&tilted.w) {
                        plain += w * ((0.5 * v * Complex64::new(-t * t, t * slope)).exp() - 1.0);
                    }
                    let [re, im, bound] = tilted.less_one(t, slope);
                    let room = 1e-14 + 1e-15 * t * size * slope.abs() * (-0.5 * size * t * t).exp();
                    assert!(
                        (Complex64::new(re, im) - plain).norm() <= room,
                        "{count} {size} {c} {t}: {re} {im} {plain}"
                    );
                    assert!(plain.norm() <= bound + 1e-14);
                }
            }
        }
    }

    /// A weight and a power that underflow and overflow alone.
    #[test]
    fn tiny_weights_of_huge_powers_count() {
        // c(c + 1)/2 = 1.
        for (v, q) in [(720.0, 1e-300), (1200.0, 1e-310), (4096.0, 1e-320), (715.0, 2e-308)] {
            let (tilted, cumulants) = Parts::new(&[(0.5, 0.25), (v, q)], 0.0, 1.0);
            // Subnormal weights have few digits, but those they have are exact.
            let (rest, ln) = (0.75 + 0.25 * f64::exp(0.5), v + f64::ln(q));
            let expected = ln.max(0.0) + (f64::exp(ln - ln.max(0.0)) + rest * f64::exp(-ln.max(0.0))).ln();
            assert!(
                (cumulants.ln_m - expected).abs() <= 1e-12 * (1.0 + expected),
                "{v}: {cumulants:?} {expected}"
            );
            assert!(cumulants.mean.is_finite() && tilted.squares.contains(&v), "{v}: {cumulants:?}");
        }
    }

    /// Where the largest exponent is about 30, an atom at 0 is 1e-13 of the moment.
    #[test]
    fn an_atom_counts_beside_large_powers() {
        // e^y and e^{−y} with weights that make both laws probabilities; c = 2.
        let (y, ln_q) = (16.5, -19.4);
        let (more, less) = (f64::exp(ln_q), f64::exp(ln_q + y));
        let (found, _) = tilted(&[y, -y], &[ln_q, ln_q + y], 2.0);
        let excess = (1.0 - more - less) * f64::exp(-3.0 * y - ln_q);
        let ln_m = 3.0 * y + ln_q + excess;
        assert!((found.ln_m - ln_m).abs() <= found.error + f64::EPSILON * ln_m, "{found:?} {ln_m}");
        // The same for an adversary who is told.
        let (v, q) = (37.0, 1e-3);
        let (_, found) = Parts::new(&[(v, q)], 0.0, 1.0);
        let ln_m = v + f64::ln(q) + 0.999 * f64::exp(-v) / q;
        assert!((found.ln_m - ln_m).abs() <= found.error + f64::EPSILON * ln_m, "{found:?} {ln_m}");
    }

    /// Against the definition where it does not cancel, and the first terms of the series where it does.
    #[test]
    fn the_bracket_keeps_its_digits() {
        for a in [-0.5, 0.3, 1.5, 7.0, 100.0] {
            for y in [-2.0, -0.29, 0.31, 1.0, 0.3 / 7.0, 0.003] {
                let plain = f64::exp(a * y) - 1.0 - a * (f64::exp(y) - 1.0);
                let size = f64::exp(a * y) + 1.0 + f64::abs(a) * (f64::exp(y) + 1.0);
                assert!((bracket(a, y) - plain).abs() < 4e-16 * size, "{a} {y}");
            }
            // The next term is a³·y³/60 of the first.
            let y = 1e-7;
            let series =
                a * (a - 1.0) * y * y * (0.5 + (a + 1.0) * y / 6.0 + (a * a + a + 1.0) * y * y / 24.0);
            assert!((bracket(a, y) - series).abs() <= 4e-15 * series.abs(), "{a}");
        }
    }
}
