//! Elementary functions of double precision without a branch, so that the compiler vectorises the loops that
//! call them.
//!
//! They are for loops inside [`fast`](crate::fast) or [`Level::run`](crate::Level::run); one at a time, those of
//! the standard library are as fast. Products and sums are not fused, so that every level gives the same bits.
//! Every function is within two units in the last place (of the larger of sine and cosine, for those two) over
//! its domain; the tests compare millions of values with the standard library's, which are within one.

use std::f64::consts::{FRAC_PI_2, FRAC_PI_4, LOG2_E};

/// Adding it rounds to the nearest integer and leaves that in the low bits.
const ROUND: f64 = 6_755_399_441_055_744.0;
/// ln 2 in two parts; products of the first with integers below 2²⁰ are exact (fdlibm).
const LN_2: [f64; 2] = [6.931_471_803_691_238e-1, 1.908_214_929_270_587_7e-10];
/// π/2 in three parts; products of the first two with integers below 2²⁰ are exact (fdlibm).
const HALF_PI: [f64; 3] = [1.570_796_326_734_125_6, 6.077_100_506_303_966e-11, 2.022_266_248_795_950_6e-21];

/// The largest argument of [`sin_cos`].
pub const LARGEST_ANGLE: f64 = 1e6;

/// 2ⁿ for −1022 ≤ n ≤ 1023, given as n + 1023.
#[inline(always)]
fn power_of_two(biased: u64) -> f64 {
    f64::from_bits(biased << 52)
}

/// x = n·ln 2 + r with |r| ≤ 0.35: e^r − 1, and 2ⁿ as a product of two numbers.
#[inline(always)]
fn split(x: f64) -> (f64, f64, f64) {
    let shifted = x * LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (x - n * LN_2[0]) - n * LN_2[1];
    // Taylor's series: the first term left out is r¹⁴/14! < 5e-18.
    let p = 1.605_904_383_682_161_5e-10;
    let p = p * r + 2.087_675_698_786_81e-9;
    let p = p * r + 2.505_210_838_544_172e-8;
    let p = p * r + 2.755_731_922_398_589_3e-7;
    let p = p * r + 2.755_731_922_398_589e-6;
    let p = p * r + 2.480_158_730_158_73e-5;
    let p = p * r + 1.984_126_984_126_984e-4;
    let p = p * r + 1.388_888_888_888_889e-3;
    let p = p * r + 8.333_333_333_333_333e-3;
    let p = p * r + 4.166_666_666_666_666_4e-2;
    let p = p * r + 1.666_666_666_666_666_6e-1;
    let p = p * r + 0.5;
    let less_one = r + r * r * p;
    // The low bits of `shifted` are n, counted from those of ROUND.
    let n = shifted.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(2048);
    let half = n >> 1;
    (less_one, power_of_two(half.wrapping_sub(1)), power_of_two(n.wrapping_sub(half).wrapping_sub(1)))
}

/// e^x for every x; below 2⁻¹⁰²² it loses digits as all numbers do there.
#[inline(always)]
pub fn exp(x: f64) -> f64 {
    // Comparisons that are false leave NaN alone.
    let x = if x > 710.0 { 710.0 } else { x };
    let x = if x < -746.0 { -746.0 } else { x };
    let (less_one, one, two) = split(x);
    (less_one + 1.0) * one * two
}

/// e^x − 1 for every x.
#[inline(always)]
pub fn exp_m1(x: f64) -> f64 {
    let x = if x > 710.0 { 710.0 } else { x };
    let x = if x < -60.0 { -60.0 } else { x };
    let (less_one, one, two) = split(x);
    let power = one * two;
    // 2ⁿ overflows before e^x does. The one is lost long before that.
    if x > 60.0 { (less_one + 1.0) * one * two } else { power * less_one + (power - 1.0) }
}

/// m in [√½, √2) and n with x = m·2ⁿ, for x ≥ 2⁻¹⁰²².
#[inline(always)]
fn mantissa(x: f64) -> (f64, f64) {
    const ROOT_HALF: u64 = 0x3fe6_a09e_0000_0000;
    let bits = x.to_bits().wrapping_add(0x3ff0_0000_0000_0000 - ROOT_HALF);
    // The bits of 2⁵² + integer.
    let n = f64::from_bits((bits >> 52) | 0x4330_0000_0000_0000) - 4_503_599_627_370_496.0 - 1023.0;
    (f64::from_bits((bits & 0x000f_ffff_ffff_ffff).wrapping_add(ROOT_HALF)), n)
}

/// ln(1 + f) + n·ln 2 + `more`, for 1 + f in [√½, √2) (fdlibm).
#[inline(always)]
fn ln_of_parts(f: f64, n: f64, more: f64) -> f64 {
    let s = f / (2.0 + f);
    let z = s * s;
    let r = 1.479_819_860_511_658_6e-1;
    let r = r * z + 1.531_383_769_920_937_3e-1;
    let r = r * z + 1.818_357_216_161_805e-1;
    let r = r * z + 2.222_219_843_214_978_4e-1;
    let r = r * z + 2.857_142_874_366_239e-1;
    let r = r * z + 3.999_999_999_940_942e-1;
    let r = r * z + 6.666_666_666_666_735e-1;
    let square = 0.5 * f * f;
    n * LN_2[0] - ((square - (s * (square + r * z) + (n * LN_2[1] + more))) - f)
}

/// ln x for every x: −∞ for 0, and not a number below that.
#[inline(always)]
pub fn ln(x: f64) -> f64 {
    // Below 2⁻¹⁰²² a number has leading zeros.
    let is_small = x < f64::MIN_POSITIVE;
    let (m, n) = mantissa(if is_small { x * 18_014_398_509_481_984.0 } else { x });
    let value = ln_of_parts(m - 1.0, if is_small { n - 54.0 } else { n }, 0.0);
    of_logarithm(x, value)
}

/// The logarithm of x where x is positive and finite, and its limits elsewhere.
#[inline(always)]
fn of_logarithm(x: f64, value: f64) -> f64 {
    let at_most_zero = if x < 0.0 { f64::NAN } else { f64::NEG_INFINITY };
    let value = if x <= 0.0 { at_most_zero } else { value };
    if x <= f64::MAX { value } else { x }
}

/// ln(1 + x) for x ≥ −1: −∞ for −1, and not a number below that.
#[inline(always)]
pub fn ln_1p(x: f64) -> f64 {
    let u = 1.0 + x;
    let (m, n) = mantissa(u);
    // What the sum lost, relative to it.
    let lost = if x < 1.0 { x - (u - 1.0) } else { 1.0 - (u - x) } / u;
    of_logarithm(u, ln_of_parts(m - 1.0, n, lost))
}

/// sin x and cos x for |x| ≤ [`LARGEST_ANGLE`].
#[inline(always)]
pub fn sin_cos(x: f64) -> (f64, f64) {
    let shifted = x * (1.0 / FRAC_PI_2) + ROUND;
    let n = shifted - ROUND;
    let r = ((x - n * HALF_PI[0]) - n * HALF_PI[1]) - n * HALF_PI[2];
    let z = r * r;
    let s = 1.589_690_995_211_55e-10;
    let s = s * z - 2.505_076_025_340_686_3e-8;
    let s = s * z + 2.755_731_370_707_006_8e-6;
    let s = s * z - 1.984_126_982_985_795e-4;
    let s = s * z + 8.333_333_333_322_49e-3;
    let s = s * z - 1.666_666_666_666_663_2e-1;
    let s = r + r * z * s;
    let c = -1.135_964_755_778_819_5e-11;
    let c = c * z + 2.087_572_321_298_175e-9;
    let c = c * z - 2.755_731_435_139_066_3e-7;
    let c = c * z + 2.480_158_728_947_673e-5;
    let c = c * z - 1.388_888_888_887_411e-3;
    let c = c * z + 4.166_666_666_666_66e-2;
    let half = 0.5 * z;
    let w = 1.0 - half;
    let c = w + ((1.0 - w) - half + z * z * c);
    // The quadrant is in the two lowest bits.
    let quadrant = shifted.to_bits();
    let (sin, cos) = if quadrant & 1 == 0 { (s, c) } else { (c, s) };
    let sign = |bits: u64| (bits & 2) << 62;
    (
        f64::from_bits(sin.to_bits() ^ sign(quadrant)),
        f64::from_bits(cos.to_bits() ^ sign(quadrant.wrapping_add(1))),
    )
}

/// atan x for every x (Cephes).
#[inline(always)]
pub fn atan(x: f64) -> f64 {
    let size = x.abs();
    let (large, middle) = (size > 2.414_213_562_373_095, size > 0.66);
    let above = if large { -1.0 } else { size - 1.0 };
    let below = if large { size } else { size + 1.0 };
    let (r, base) = (
        if middle { above / below } else { size },
        if large {
            FRAC_PI_2
        } else if middle {
            FRAC_PI_4
        } else {
            0.0
        },
    );
    let z = r * r;
    let p = -8.750_608_600_031_904e-1;
    let p = p * z - 1.615_753_718_733_365e1;
    let p = p * z - 7.500_855_792_314_705e1;
    let p = p * z - 1.228_866_684_490_136_2e2;
    let p = p * z - 6.485_021_904_942_025e1;
    let q = z + 2.485_846_490_142_306_3e1;
    let q = q * z + 1.650_270_098_316_988_6e2;
    let q = q * z + 4.328_810_604_912_903e2;
    let q = q * z + 4.853_903_996_359_137e2;
    let q = q * z + 1.945_506_571_482_614e2;
    // What π/2 and π/4 lack beyond double precision.
    let lacking = if large {
        6.123_233_995_736_766e-17
    } else if middle {
        3.061_616_997_868_383e-17
    } else {
        0.0
    };
    (base + (r + (r * (z * p / q) + lacking))).copysign(x)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;

    /// A million arguments between two ends, evenly and by their logarithms.
    fn arguments(low: f64, high: f64) -> Vec<f64> {
        let mut all: Vec<f64> =
            (0..=500_000).map(|i| low + (high - low) * f64::from(i) / 500_000.0).collect();
        let most = low.abs().max(high.abs()).ln();
        for i in 0..=250_000 {
            let size = (most - f64::from(i) * 2e-4).exp();
            all.extend([size, -size].into_iter().filter(|x| (low..=high).contains(x)));
        }
        all
    }

    /// Units in the last place between two numbers.
    fn apart(a: f64, b: f64) -> f64 {
        if a == b {
            return 0.0;
        }
        let unit = (b.abs().to_bits() + 1).max(f64::MIN_POSITIVE.to_bits() + 1);
        (a - b).abs() / (f64::from_bits(unit) - f64::from_bits(unit - 1))
    }

    #[track_caller]
    fn agree(ours: impl Fn(f64) -> f64, theirs: impl Fn(f64) -> f64, ends: [(f64, f64); 3]) {
        for (low, high) in ends {
            for x in arguments(low, high) {
                let (a, b) = (ours(x), theirs(x));
                assert!(apart(a, b) <= 2.0, "{x:e}: {a:e} {b:e}");
            }
        }
    }

    #[test]
    fn they_are_those_of_the_standard_library_to_two_units() {
        agree(exp, f64::exp, [(-745.0, 709.7), (-1.0, 1.0), (-40.0, 40.0)]);
        agree(exp_m1, f64::exp_m1, [(-80.0, 709.7), (-1.5, 1.5), (-1e-5, 1e-5)]);
        agree(ln, f64::ln, [(1e-300, 1e300), (1e-3, 10.0), (0.99, 1.01)]);
        agree(ln, f64::ln, [(5e-324, 1e-323), (5e-324, 1e-315), (1e-310, 1e-305)]);
        agree(ln_1p, f64::ln_1p, [(-0.999_999_999, 1e300), (-0.6, 1.5), (-1e-5, 1e-5)]);
        agree(atan, f64::atan, [(-1e300, 1e300), (-4.0, 4.0), (-0.7, 0.7)]);
    }

    #[test]
    fn sines_and_cosines_are_right_to_two_units_of_the_larger() {
        for (low, high) in [(-LARGEST_ANGLE, LARGEST_ANGLE), (-10.0, 10.0), (-0.8, 0.8)] {
            for x in arguments(low, high) {
                let (sin, cos) = sin_cos(x);
                let off = (sin - x.sin()).abs().max((cos - x.cos()).abs());
                assert!(off <= 2.0 * f64::EPSILON, "{x:e}: {off:e}");
            }
        }
        // Where the argument is not reduced, the sine is right to its own last place.
        agree(|x| sin_cos(x).0, f64::sin, [(-0.78, 0.78), (-1e-3, 1e-3), (-1e-9, 1e-9)]);
    }

    #[test]
    fn the_ends_of_the_domains_are_kept() {
        assert_eq!(exp(f64::NEG_INFINITY), 0.0);
        assert_eq!(exp(-800.0), 0.0);
        assert_eq!(exp(f64::INFINITY), f64::INFINITY);
        assert_eq!(exp(800.0), f64::INFINITY);
        assert!(exp(f64::NAN).is_nan() && ln(f64::NAN).is_nan() && ln_1p(f64::NAN).is_nan());
        assert_eq!(exp_m1(f64::NEG_INFINITY), -1.0);
        assert_eq!([709.8, 800.0, 4096.0, 1e10, f64::INFINITY].map(exp_m1), [f64::INFINITY; 5]);
        assert!(exp_m1(f64::NAN).is_nan() && [-5e-324, -1.0, -2.0].into_iter().all(|x| ln(x).is_nan()));
        assert!(ln_1p(-1.5).is_nan());
        assert_eq!([ln(0.0), ln_1p(-1.0)], [f64::NEG_INFINITY; 2]);
        assert_eq!([ln(f64::INFINITY), ln_1p(f64::INFINITY)], [f64::INFINITY; 2]);
        assert_eq!([ln(1.0), ln_1p(0.0), exp_m1(0.0), exp(0.0) - 1.0, sin_cos(0.0).0, atan(0.0)], [0.0; 6]);
    }

    #[test]
    fn every_level_gives_the_same_bits() {
        let x = arguments(-700.0, 700.0);
        let all = |level: Level| -> Vec<[u64; 6]> {
            level.run(
                #[inline(always)]
                || {
                    x.iter()
                        .map(|&x| {
                            let (sin, cos) = sin_cos(x);
                            [exp(x), exp_m1(x), ln(x.abs()), ln_1p(x.abs()), sin + 2.0 * cos, atan(x)]
                                .map(f64::to_bits)
                        })
                        .collect()
                },
            )
        };
        let portable = all(Level::Portable);
        for level in Level::available() {
            assert!(all(level) == portable, "{}", level.name());
        }
    }
}
