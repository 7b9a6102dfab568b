//! Loops over the elements of several slices with the caller's function, at the best level.
//!
//! Every element goes through the same sequence of operations whatever the level (no contraction, no
//! reassociation), so the results are the same to the bit.

use crate::level::fast;

#[inline(always)]
fn loop2(a: &mut [f32], b: &[f32], f: impl Fn(&mut f32, f32)) {
    for (a, &b) in a.iter_mut().zip(b) {
        f(a, b);
    }
}

#[inline(always)]
fn loop3(a: &mut [f32], b: &mut [f32], c: &[f32], f: impl Fn(&mut f32, &mut f32, f32)) {
    for ((a, b), &c) in a.iter_mut().zip(b).zip(c) {
        f(a, b, c);
    }
}

#[inline(always)]
fn loop4(
    a: &mut [f32],
    b: &mut [f32],
    c: &mut [f32],
    d: &[f32],
    f: impl Fn(&mut f32, &mut f32, &mut f32, f32),
) {
    for (((a, b), c), &d) in a.iter_mut().zip(b).zip(c).zip(d) {
        f(a, b, c, d);
    }
}

#[inline(always)]
fn loop5(
    a: &mut [f32],
    b: &mut [f32],
    c: &mut [f32],
    d: &mut [f32],
    e: &[f32],
    f: impl Fn(&mut f32, &mut f32, &mut f32, &mut f32, f32),
) {
    for ((((a, b), c), d), &e) in a.iter_mut().zip(b).zip(c).zip(d).zip(e) {
        f(a, b, c, d, e);
    }
}

#[inline(always)]
fn loop_write2(out: &mut [f32], a: &[f32], b: &[f32], f: impl Fn(f32, f32) -> f32) {
    for ((out, &a), &b) in out.iter_mut().zip(a).zip(b) {
        *out = f(a, b);
    }
}

#[inline(always)]
fn loop_squares(x: &[f32]) -> f64 {
    const LANES: usize = 16;
    let mut sums = [0.0f64; LANES];
    let (blocks, rest) = x.as_chunks::<LANES>();
    for block in blocks {
        for (sum, &x) in sums.iter_mut().zip(block) {
            *sum += f64::from(x) * f64::from(x);
        }
    }
    for (sum, &x) in sums.iter_mut().zip(rest) {
        *sum += f64::from(x) * f64::from(x);
    }
    sums.iter().sum()
}

/// f(&mut a, b) for every element. All slices have the same length.
pub fn each2(a: &mut [f32], b: &[f32], f: impl Fn(&mut f32, f32)) {
    debug_assert_eq!(a.len(), b.len());
    fast(
        #[inline(always)]
        || loop2(a, b, f),
    );
}

/// f(&mut a, &mut b, c) for every element. All slices have the same length.
pub fn each3(a: &mut [f32], b: &mut [f32], c: &[f32], f: impl Fn(&mut f32, &mut f32, f32)) {
    debug_assert!(a.len() == b.len() && a.len() == c.len());
    fast(
        #[inline(always)]
        || loop3(a, b, c, f),
    );
}

/// f(&mut a, &mut b, &mut c, d) for every element. All slices have the same length.
pub fn each4(
    a: &mut [f32],
    b: &mut [f32],
    c: &mut [f32],
    d: &[f32],
    f: impl Fn(&mut f32, &mut f32, &mut f32, f32),
) {
    debug_assert!(a.len() == b.len() && a.len() == c.len() && a.len() == d.len());
    fast(
        #[inline(always)]
        || loop4(a, b, c, d, f),
    );
}

/// f(&mut a, &mut b, &mut c, &mut d, e) for every element. All slices have the same length.
pub fn each5(
    a: &mut [f32],
    b: &mut [f32],
    c: &mut [f32],
    d: &mut [f32],
    e: &[f32],
    f: impl Fn(&mut f32, &mut f32, &mut f32, &mut f32, f32),
) {
    debug_assert!(a.len() == b.len() && a.len() == c.len() && a.len() == d.len() && a.len() == e.len());
    fast(
        #[inline(always)]
        || loop5(a, b, c, d, e, f),
    );
}

/// out = f(a, b) for every element. All slices have the same length.
pub fn write2(out: &mut [f32], a: &[f32], b: &[f32], f: impl Fn(f32, f32) -> f32) {
    debug_assert!(out.len() == a.len() && out.len() == b.len());
    fast(
        #[inline(always)]
        || loop_write2(out, a, b, f),
    );
}

/// Σ x² in double precision, in a fixed order: 16 interleaved sums, then those from left to right.
///
/// The square of a float is exact in double precision, so the relative error is at most
/// (d/16 + 16)·2⁻⁵³; nothing overflows.
pub fn squares(x: &[f32]) -> f64 {
    fast(
        #[inline(always)]
        || loop_squares(x),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;

    /// Numbers of many magnitudes, with the special ones among them.
    fn numbers(seed: u32, n: usize) -> Vec<f32> {
        let special = [0.0, -0.0, f32::INFINITY, f32::MIN_POSITIVE, 1e-42, f32::MAX];
        let mut state = seed;
        let mut next = move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / 8_388_608.0 - 1.0
        };
        let number =
            |i: usize| if i % 29 == 28 { special[i / 29 % 6] } else { next() * 10f32.powi(i as i32 % 9 - 4) };
        (0..n).map(number).collect()
    }

    fn bits(slices: [&[f32]; 4]) -> Vec<u32> {
        slices.concat().iter().map(|x| x.to_bits()).collect()
    }

    /// All loops, with a multiply-add, a root and a quotient in each: what contraction would change.
    #[inline(always)]
    fn everything([a, b, c, d]: [&mut [f32]; 4], e: &[f32]) -> f64 {
        loop2(a, e, |a, e| *a = *a * 0.9 + 0.1 * e);
        loop3(a, b, e, |a, b, e| {
            *b = 0.999 * *b + e * e;
            *a -= 0.01 * e / (b.sqrt() + 1e-8);
        });
        loop4(a, b, c, e, |a, b, c, e| {
            *c = *a * *b + e;
            *a += 0.3 * *c;
        });
        loop5(a, b, c, d, e, |a, b, c, d, e| *d += *a * e + *b / (1.0 + *c * *c));
        loop_write2(c, a, b, |a, b| (a - b) * 0.7 + b);
        loop_squares(d) + loop_squares(e)
    }

    #[test]
    fn every_level_gives_the_same_bits() {
        for n in [0, 1, 7, 8, 15, 16, 17, 31, 33, 64, 1000, 4099] {
            let e = numbers(5, n);
            let results: Vec<(Vec<u32>, u64)> = Level::available()
                .into_iter()
                .map(|level| {
                    let [mut a, mut b, mut c, mut d] = [1, 2, 3, 4].map(|seed| numbers(seed, n));
                    let sum = level.run(
                        #[inline(always)]
                        || everything([&mut a, &mut b, &mut c, &mut d], &e),
                    );
                    (bits([&a, &b, &c, &d]), sum.to_bits())
                })
                .collect();
            assert!(results.windows(2).all(|pair| pair[0] == pair[1]), "{n} numbers");
        }
    }

    #[test]
    fn the_exported_loops_are_those_that_were_compared() {
        let e = numbers(5, 100);
        let slices = || [1, 2, 3, 4].map(|seed| numbers(seed, 100));
        let [mut a, mut b, mut c, mut d] = slices();
        each2(&mut a, &e, |a, e| *a = *a * 0.9 + 0.1 * e);
        each3(&mut a, &mut b, &e, |a, b, e| {
            *b = 0.999 * *b + e * e;
            *a -= 0.01 * e / (b.sqrt() + 1e-8);
        });
        each4(&mut a, &mut b, &mut c, &e, |a, b, c, e| {
            *c = *a * *b + e;
            *a += 0.3 * *c;
        });
        each5(&mut a, &mut b, &mut c, &mut d, &e, |a, b, c, d, e| *d += *a * e + *b / (1.0 + *c * *c));
        write2(&mut c, &a, &b, |a, b| (a - b) * 0.7 + b);
        let sum = squares(&d) + squares(&e);
        let [mut w, mut x, mut y, mut z] = slices();
        let expected = everything([&mut w, &mut x, &mut y, &mut z], &e);
        assert_eq!((bits([&a, &b, &c, &d]), sum.to_bits()), (bits([&w, &x, &y, &z]), expected.to_bits()));
    }

    #[test]
    fn squares_have_the_promised_error() {
        let x: Vec<f32> =
            numbers(9, 10_007).into_iter().map(|x| if x.abs() < 1e6 { x } else { 1.0 }).collect();
        // Terms sorted by size lose nothing that matters at this tolerance.
        let mut terms: Vec<f64> = x.iter().map(|x| f64::from(*x) * f64::from(*x)).collect();
        terms.sort_by(f64::total_cmp);
        let exact: f64 = terms.iter().sum();
        let allowed = (x.len() as f64 / 16.0 + 16.0) * 2f64.powi(-53);
        assert!((squares(&x) - exact).abs() <= (allowed + 1e-12) * exact);
    }
}
