//! Fourier transforms of small planes, sixteen planes at a time: a number of the transform is a vector, one
//! lane for each plane, so that any length vectorises.
//!
//! Stockham's algorithm with the factors 4, 2, 3, 5 and any other prime; the lengths of the scattering
//! transform are 36, 18, 40 and 20.

use std::f64::consts::TAU;

use crate::level::versions;

/// The planes that are transformed together.
pub const LANES: usize = 16;

/// One real number of each plane.
pub type Lane = [f32; LANES];

/// One complex number of each plane: real and imaginary parts.
pub type Complex = [Lane; 2];

/// Zero in every plane.
pub const ZERO: Complex = [[0.0; LANES]; 2];

/// The transform of a line of one length, in one direction. Neither direction divides.
#[derive(Clone, Debug)]
pub struct Line {
    length: usize,
    /// −1 forwards, +1 backwards: the sign of the exponent.
    sign: f32,
    stages: Vec<Stage>,
}

#[derive(Clone, Debug)]
struct Stage {
    radix: usize,
    /// exp(±2πi pj/n) for p < n/radix and j < radix, n what is left to transform.
    twiddles: Vec<[f32; 2]>,
    /// exp(±2πi jk/radix), for a radix without a butterfly of its own.
    roots: Vec<[f32; 2]>,
}

fn root(sign: f64, numerator: usize, denominator: usize) -> [f32; 2] {
    let angle = sign * TAU * (numerator % denominator) as f64 / denominator as f64;
    [angle.cos() as f32, angle.sin() as f32]
}

/// The factors of a length, in the order of the stages.
fn factors(mut length: usize) -> Vec<usize> {
    let mut factors = Vec::new();
    let mut factor = 4;
    while length > 1 {
        if length.is_multiple_of(factor) {
            factors.push(factor);
            length /= factor;
        } else {
            factor = match factor {
                4 => 2,
                2 => 3,
                odd => odd + 2,
            };
        }
    }
    factors
}

impl Line {
    /// x ↦ Σ x_n exp(−2πi kn/N), or with the other sign.
    pub fn new(length: usize, backwards: bool) -> Self {
        let sign = if backwards { 1.0 } else { -1.0 };
        let mut left = length;
        let stages = factors(length).into_iter().map(|radix| {
            let n = left;
            left /= radix;
            let twiddles = (0..n / radix).flat_map(|p| (0..radix).map(move |j| root(sign, p * j, n)));
            let roots = (0..radix * radix).map(|jk| root(sign, jk / radix * (jk % radix), radix));
            Stage { radix, twiddles: twiddles.collect(), roots: roots.collect() }
        });
        Self { length, sign: sign as f32, stages: stages.collect() }
    }

    /// N.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there is nothing to transform.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

/// x·(c + is) for every plane, written into `to`.
#[inline(always)]
fn turned([re, im]: Complex, [c, s]: [f32; 2], to: &mut Complex) {
    for i in 0..LANES {
        (to[0][i], to[1][i]) = (re[i] * c - im[i] * s, re[i] * s + im[i] * c);
    }
}

#[inline(always)]
fn two(x: [&Complex; 2]) -> [Complex; 2] {
    let mut y = [ZERO; 2];
    for part in 0..2 {
        for i in 0..LANES {
            let (a, b) = (x[0][part][i], x[1][part][i]);
            (y[0][part][i], y[1][part][i]) = (a + b, a - b);
        }
    }
    y
}

#[inline(always)]
fn three(x: [&Complex; 3], sign: f32) -> [Complex; 3] {
    let sine = sign * 0.866_025_4;
    let mut y = [ZERO; 3];
    for i in 0..LANES {
        let sum = [0, 1].map(|part| x[1][part][i] + x[2][part][i]);
        let difference = [0, 1].map(|part| (x[1][part][i] - x[2][part][i]) * sine);
        let middle = [0, 1].map(|part| x[0][part][i] - 0.5 * sum[part]);
        (y[0][0][i], y[0][1][i]) = (x[0][0][i] + sum[0], x[0][1][i] + sum[1]);
        (y[1][0][i], y[1][1][i]) = (middle[0] - difference[1], middle[1] + difference[0]);
        (y[2][0][i], y[2][1][i]) = (middle[0] + difference[1], middle[1] - difference[0]);
    }
    y
}

#[inline(always)]
fn four(x: [&Complex; 4], sign: f32) -> [Complex; 4] {
    let mut y = [ZERO; 4];
    for i in 0..LANES {
        let even = [0, 1].map(|part| x[0][part][i] + x[2][part][i]);
        let even_less = [0, 1].map(|part| x[0][part][i] - x[2][part][i]);
        let odd = [0, 1].map(|part| x[1][part][i] + x[3][part][i]);
        let odd_less = [0, 1].map(|part| (x[1][part][i] - x[3][part][i]) * sign);
        (y[0][0][i], y[0][1][i]) = (even[0] + odd[0], even[1] + odd[1]);
        (y[1][0][i], y[1][1][i]) = (even_less[0] - odd_less[1], even_less[1] + odd_less[0]);
        (y[2][0][i], y[2][1][i]) = (even[0] - odd[0], even[1] - odd[1]);
        (y[3][0][i], y[3][1][i]) = (even_less[0] + odd_less[1], even_less[1] - odd_less[0]);
    }
    y
}

#[inline(always)]
fn five(x: [&Complex; 5], sign: f32) -> [Complex; 5] {
    // cos and sin of 2π/5 and 4π/5.
    let (c1, c2) = (0.309_017_f32, -0.809_017_f32);
    let (s1, s2) = (sign * 0.951_056_5, sign * 0.587_785_25);
    let mut y = [ZERO; 5];
    for i in 0..LANES {
        let outer = [0, 1].map(|part| x[1][part][i] + x[4][part][i]);
        let outer_less = [0, 1].map(|part| x[1][part][i] - x[4][part][i]);
        let inner = [0, 1].map(|part| x[2][part][i] + x[3][part][i]);
        let inner_less = [0, 1].map(|part| x[2][part][i] - x[3][part][i]);
        let first = [0, 1].map(|part| x[0][part][i] + c1 * outer[part] + c2 * inner[part]);
        let second = [0, 1].map(|part| x[0][part][i] + c2 * outer[part] + c1 * inner[part]);
        let across = [0, 1].map(|part| s1 * outer_less[part] + s2 * inner_less[part]);
        let over = [0, 1].map(|part| s2 * outer_less[part] - s1 * inner_less[part]);
        for part in 0..2 {
            y[0][part][i] = x[0][part][i] + outer[part] + inner[part];
        }
        (y[1][0][i], y[1][1][i]) = (first[0] - across[1], first[1] + across[0]);
        (y[4][0][i], y[4][1][i]) = (first[0] + across[1], first[1] - across[0]);
        (y[2][0][i], y[2][1][i]) = (second[0] - over[1], second[1] + over[0]);
        (y[3][0][i], y[3][1][i]) = (second[0] + over[1], second[1] - over[0]);
    }
    y
}

/// One number of a transform whose length is a larger prime: the definition.
#[inline(always)]
fn defined(from: &[Complex], at: usize, apart: usize, roots: &[[f32; 2]]) -> Complex {
    let (mut sum, mut term) = (ZERO, ZERO);
    for (k, root) in roots.iter().enumerate() {
        turned(from[at + k * apart], *root, &mut term);
        for part in 0..2 {
            for i in 0..LANES {
                sum[part][i] += term[part][i];
            }
        }
    }
    sum
}

/// The stages of a line, from one buffer to the other; whether the result is in `a`.
#[inline(always)]
fn line<'b>(plan: &Line, mut a: &'b mut [Complex], mut b: &'b mut [Complex]) -> bool {
    let (mut n, mut stride) = (plan.length, 1);
    for stage in &plan.stages {
        let r = stage.radix;
        let m = n / r;
        for p in 0..m {
            let twiddles = &stage.twiddles[p * r..(p + 1) * r];
            for q in 0..stride {
                let (from, to) = (q + stride * p, q + stride * r * p);
                let at = |k: usize| &a[from + k * stride * m];
                macro_rules! put {
                    ($y:expr) => {
                        for (j, y) in $y.into_iter().enumerate() {
                            turned(y, twiddles[j], &mut b[to + j * stride]);
                        }
                    };
                }
                match r {
                    2 => put!(two([at(0), at(1)])),
                    3 => put!(three([at(0), at(1), at(2)], plan.sign)),
                    4 => put!(four([at(0), at(1), at(2), at(3)], plan.sign)),
                    5 => put!(five([at(0), at(1), at(2), at(3), at(4)], plan.sign)),
                    _ => {
                        for (j, twiddle) in twiddles.iter().enumerate() {
                            let y = defined(a, from, stride * m, &stage.roots[j * r..(j + 1) * r]);
                            turned(y, *twiddle, &mut b[to + j * stride]);
                        }
                    }
                }
            }
        }
        (n, stride) = (m, stride * r);
        std::mem::swap(&mut a, &mut b);
    }
    plan.stages.len().is_multiple_of(2)
}

versions! {
    /// Transforms planes of rows of numbers in place, along the rows and along the columns.
    ///
    /// # Panics
    /// If the plane does not have as many rows and columns as the lines have numbers.
    pub fn transform(level: Level, rows: &Line, columns: &Line, plane: &mut [Complex]) {
        let (height, width) = (columns.length, rows.length);
        assert_eq!(plane.len(), height * width, "a plane of the size");
        let mut a = vec![ZERO; height.max(width)];
        let mut b = a.clone();
        for row in plane.chunks_exact_mut(width.max(1)) {
            a[..width].copy_from_slice(row);
            let first = line(rows, &mut a[..width], &mut b[..width]);
            row.copy_from_slice(if first { &a[..width] } else { &b[..width] });
        }
        for x in 0..width {
            for y in 0..height {
                a[y] = plane[y * width + x];
            }
            let first = line(columns, &mut a[..height], &mut b[..height]);
            let done = if first { &a } else { &b };
            for y in 0..height {
                plane[y * width + x] = done[y];
            }
        }
    }
}
