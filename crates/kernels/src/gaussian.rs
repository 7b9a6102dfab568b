//! Normal numbers from uniform bits, many at a time.
//!
//! Written by hand because rejection samplers (the ziggurat, OpenDP's discrete Gaussian) branch on their
//! input and do not vectorise, and because [`rounded_normal`] needs a proved bound on its rounding errors.
//! With ChaCha20 included it draws 92 million exact numbers a second on one thread with AVX2, OpenDP's
//! `sample_discrete_gaussian` 0.2 million.

use crate::Level;
use crate::level::versions;

/// −ln U for U = (2³²·high + low + ½)/2⁶⁴, relative error below 3e-7.
#[inline(always)]
fn minus_ln(high: u32, low: u32) -> f32 {
    const UNIT: f32 = 1.0 / 18_446_744_073_709_551_616.0;
    let whole = |high: u32, low: u32| (number(high) * 4_294_967_296.0 + (number(low) + 0.5)) * UNIT;
    // U = (1 + m)·2^e with 1 + m in [√½, √2).
    let bits = whole(high, low).to_bits().wrapping_sub(0x3f35_04f3);
    let e = ((bits as i32) >> 23) as f32;
    let m = f32::from_bits((bits & 0x007f_ffff).wrapping_add(0x3f35_04f3)) - 1.0;
    // Near 1, where e = 0, m is −(1 − U), which has all its bits before U is rounded: otherwise small radii
    // would fall on coarse rings.
    let m = if high >= 0xc000_0000 { -whole(!high, !low) } else { m };
    let z = m * m;
    let p = 7.037_683_6e-2_f32;
    let p = p * m - 1.151_461e-1;
    let p = p * m + 1.167_699_9e-1;
    let p = p * m - 1.242_014_1e-1;
    let p = p * m + 1.424_932_3e-1;
    let p = p * m - 1.666_805_8e-1;
    let p = p * m + 2.000_071_5e-1;
    let p = p * m - 2.499_999_4e-1;
    let p = p * m + 3.333_333e-1;
    let e = if high >= 0xc000_0000 { 0.0 } else { e };
    let y = p * m * z - 2.121_944_4e-4 * e - 0.5 * z;
    -(m + y + 0.693_359_4 * e)
}

/// A word as a number in [0, 2³²], rounded to nearest.
#[inline(always)]
fn number(word: u32) -> f32 {
    // The halves are exact, and their sum is rounded once; vectors have no unsigned conversion.
    ((word >> 16) as i32 as f32) * 65536.0 + ((word & 0xffff) as i32 as f32)
}

/// cos and sin of 2π·word/2³² to 2e-7.
#[inline(always)]
fn cos_sin(word: u32) -> (f32, f32) {
    // The angle within ±π/4 of the nearest quarter turn, which the top two bits count.
    let shifted = word.wrapping_add(0x2000_0000);
    let quarter = shifted >> 30;
    let within = ((shifted & 0x3fff_ffff) as i32 - 0x2000_0000) as f32;
    let a = within * (std::f32::consts::PI / 2_147_483_648.0);
    let z = a * a;
    let sin = ((-1.951_529_6e-4 * z + 8.332_161e-3) * z - 1.666_665_5e-1) * z * a + a;
    let cos = ((2.443_315_7e-5 * z - 1.388_731_6e-3) * z + 4.166_664_6e-2) * z * z - 0.5 * z + 1.0;
    let (x, y) = if quarter & 1 == 0 { (cos, sin) } else { (sin, cos) };
    // Turned by a quarter: (−sin, cos); by a half: (−cos, −sin); by three: (sin, −cos).
    let negative_x = ((quarter ^ (quarter >> 1)) & 1) << 31;
    let negative_y = (quarter >> 1) << 31;
    (f32::from_bits(x.to_bits() ^ negative_x), f32::from_bits(y.to_bits() ^ negative_y))
}

/// The words of random bits for two numbers.
pub const WORDS_PER_PAIR: usize = 3;

versions! {
    /// Standard normal numbers by the method of Box and Muller, two from three words.
    ///
    /// The radius takes 64 bits, so that the tails reach beyond 9 standard deviations: the part of
    /// the normal law that is missing has probability below 2⁻⁶⁴ for each pair. The values are
    /// single precision, with a relative error of a few units in the last place: they have the gaps
    /// of floating point, which is a limit of every sampler of this kind.
    ///
    /// `out` holds an even number of values, `bits` three words for every two of them.
    pub fn standard_normal(level: Level, bits: &[u32], out: &mut [f32]) {
        assert!(out.len().is_multiple_of(2), "pairs of numbers");
        assert!(bits.len() / WORDS_PER_PAIR == out.len() / 2, "three words for two numbers");
        let half = out.len() / 2;
        let (x, y) = out.split_at_mut(half);
        let (high, rest) = bits.split_at(half);
        let (low, angle) = rest.split_at(half);
        for i in 0..half {
            let length = (2.0 * minus_ln(high[i], low[i])).sqrt();
            let (cos, sin) = cos_sin(angle[i]);
            x[i] = length * cos;
            y[i] = length * sin;
        }
    }
}

/// The words of random bits for two numbers of [`rounded_normal`].
pub const WORDS_PER_ROUNDED_PAIR: usize = 4;

/// How far a product R·cos or R·sin of [`rounded_normal`] is from the real one, at most.
///
/// With U in a cell of width 2⁻⁶⁴ and both U ≥ 2⁻²⁰ and 1 − U ≥ 2⁻³² (all others are undecided):
///
/// * U and 1 − U are formed with one rounding, 2⁻⁵³ relative, and stand for the whole cell, 2⁻⁶⁵ absolute.
///   For −ln U that is 2⁻⁵³ + 2⁻⁴⁵ absolute below ¾ (where −ln U ≥ 0.28), and above it 2⁻⁵³ + 2⁻³³ relative
///   to 1 − U only in the cells next to 1, where R is 2⁻¹⁶ and the error of R = √(2·(−ln U)) therefore
///   2⁻⁶⁵/2⁻¹⁶ = 2⁻⁴⁹ absolute.
/// * ln(1 + m) = 2·artanh(s), s = m/(2 + m), |s| ≤ 0.1716: ten terms of the series leave 2·0.1716²¹/21 <
///   1e-17; its 26 roundings, fewer where products are fused, are below 2⁻⁴⁹ relative. e·ln 2 is added in two
///   parts, with no cancellation (−ln U ≥ 0.28 where e ≠ 0).
/// * The angle's cell is 2π·2⁻⁶⁴ wide; it is rounded three times, 2⁻⁵¹ relative to at most π/4. Sine to a¹⁵
///   and cosine to a¹⁶ leave less than 5e-17; their roundings are below 2⁻⁵⁰.
/// * R ≤ √(40·ln 2) < 5.27. In all: 5.27·(½·(2⁻⁴⁵ + 2⁻⁴⁸) + 2⁻⁴⁹ + 2⁻⁵¹) < 2⁻⁴³·⁴.
pub const ROUNDED_ERROR: f64 = 1.0 / 8_796_093_022_208.0;

/// A word as a number, exactly.
#[inline(always)]
fn exact(word: u32) -> f64 {
    // Vectors have no unsigned conversion.
    f64::from((word >> 16) as i32) * 65536.0 + f64::from((word & 0xffff) as i32)
}

/// (2³²·high + low + ½)/2⁶⁴, rounded once.
#[inline(always)]
fn unit(high: u32, low: u32) -> f64 {
    const UNIT: f64 = 1.0 / 18_446_744_073_709_551_616.0;
    (exact(high) * 4_294_967_296.0 + (exact(low) + 0.5)) * UNIT
}

/// a·b + c, rounded once where the machine has an instruction for it and twice where it has none: there a
/// fused sum would be a call of a slow function.
#[inline(always)]
fn multiply_add<const FUSED: bool>(a: f64, b: f64, c: f64) -> f64 {
    if FUSED { a.mul_add(b, c) } else { a * b + c }
}

/// −ln U for U = (2³²·high + low + ½)/2⁶⁴; see [`ROUNDED_ERROR`].
#[inline(always)]
fn precise_minus_ln<const FUSED: bool>(high: u32, low: u32) -> f64 {
    let sum = multiply_add::<FUSED>;
    /// √½ as bits.
    const ROOT_HALF: u64 = 0x3fe6_a09e_667f_3bcd;
    const ONE: u64 = 0x3ff0_0000_0000_0000;
    const FRACTION: u64 = 0x000f_ffff_ffff_ffff;
    /// 2⁵² as bits; with a small integer in its fraction it is 2⁵² plus that integer.
    const LARGE: u64 = 0x4330_0000_0000_0000;
    let near_one = high >= 0xc000_0000;
    // U = (1 + m)·2^e with 1 + m in [√½, √2); near 1 it is 1 − (1 − U), which has all its bits.
    let bits = unit(high, low).to_bits().wrapping_sub(ROOT_HALF).wrapping_add(ONE);
    let e = f64::from_bits(LARGE | (bits >> 52)) - (4_503_599_627_370_496.0 + 1023.0);
    let m = f64::from_bits((bits & FRACTION).wrapping_add(ROOT_HALF)) - 1.0;
    let e = if near_one { 0.0 } else { e };
    let m = if near_one { -unit(!high, !low) } else { m };
    let s = m / (2.0 + m);
    let z = s * s;
    let p = sum(z, 1.0 / 19.0, 1.0 / 17.0);
    let p = sum(p, z, 1.0 / 15.0);
    let p = sum(p, z, 1.0 / 13.0);
    let p = sum(p, z, 1.0 / 11.0);
    let p = sum(p, z, 1.0 / 9.0);
    let p = sum(p, z, 1.0 / 7.0);
    let p = sum(p, z, 1.0 / 5.0);
    let p = sum(p, z, 1.0 / 3.0);
    let ln = 2.0 * sum(s, z * p, s);
    // ln 2 in two parts; the first has few bits, so that its product with e is exact.
    -sum(e, 6.931_471_803_691_238e-1, sum(e, 1.908_214_929_270_587_7e-10, ln))
}

/// cos and sin of 2π·(2³²·high + low + ½)/2⁶⁴; see [`ROUNDED_ERROR`].
#[inline(always)]
fn precise_cos_sin<const FUSED: bool>(high: u32, low: u32) -> (f64, f64) {
    let sum = multiply_add::<FUSED>;
    // The angle within ±π/4 of the nearest quarter turn, which the top two bits count.
    let shifted = high.wrapping_add(0x2000_0000);
    let quarter = shifted >> 30;
    let within = f64::from((shifted & 0x3fff_ffff) as i32 - 0x2000_0000);
    let a = (within * 4_294_967_296.0 + (exact(low) + 0.5))
        * (std::f64::consts::TAU / 18_446_744_073_709_551_616.0);
    let z = a * a;
    let p = sum(z, -1.0 / 1_307_674_368_000.0, 1.0 / 6_227_020_800.0);
    let p = sum(p, z, -1.0 / 39_916_800.0);
    let p = sum(p, z, 1.0 / 362_880.0);
    let p = sum(p, z, -1.0 / 5_040.0);
    let p = sum(p, z, 1.0 / 120.0);
    let p = sum(p, z, -1.0 / 6.0);
    let sin = sum(p * z, a, a);
    let p = sum(z, 1.0 / 20_922_789_888_000.0, -1.0 / 87_178_291_200.0);
    let p = sum(p, z, 1.0 / 479_001_600.0);
    let p = sum(p, z, -1.0 / 3_628_800.0);
    let p = sum(p, z, 1.0 / 40_320.0);
    let p = sum(p, z, -1.0 / 720.0);
    let p = sum(p, z, 1.0 / 24.0);
    let cos = sum(p * z, z, -0.5 * z) + 1.0;
    let (x, y) = if quarter & 1 == 0 { (cos, sin) } else { (sin, cos) };
    let negative_x = u64::from((quarter ^ (quarter >> 1)) & 1) << 63;
    let negative_y = u64::from(quarter >> 1) << 63;
    (f64::from_bits(x.to_bits() ^ negative_x), f64::from_bits(y.to_bits() ^ negative_y))
}

/// The nearest whole number of y, or NaN if y is within `doubt` of the middle of two, or not `inside`.
#[inline(always)]
fn decided(y: f64, doubt: f64, inside: bool) -> f64 {
    const MAGIC: f64 = 6_755_399_441_055_744.0;
    let whole = (y + MAGIC) - MAGIC;
    if inside & ((y - whole).abs() < 0.5 - doubt) { whole } else { f64::NAN }
}

/// The largest deviation of [`rounded_normal`]: above it hardly anything would be decided.
pub const LARGEST_DEVIATION: f64 = 1_099_511_627_776.0;

/// [`rounded_normal`], compiled into the function of each level.
#[inline(always)]
fn rounded<const FUSED: bool>(bits: &[u32], deviation: f64, out: &mut [f64]) -> bool {
    assert!(out.len().is_multiple_of(2), "pairs of numbers");
    assert!(bits.len() / WORDS_PER_ROUNDED_PAIR == out.len() / 2, "four words for two numbers");
    assert!(deviation > 0.0 && deviation <= LARGEST_DEVIATION, "a deviation within the range");
    // The product with the deviation is rounded once more: 2⁻⁵³ of at most 5.27·deviation.
    let doubt = deviation * (ROUNDED_ERROR + 1e-15);
    let half = out.len() / 2;
    let (x, y) = out.split_at_mut(half);
    let (high, rest) = bits.split_at(half);
    let (low, rest) = rest.split_at(half);
    let (angle_high, angle_low) = rest.split_at(half);
    let mut undecided = false;
    for i in 0..half {
        let inside = (high[i] >= 1 << 12) & (high[i] < u32::MAX);
        let length = (2.0 * precise_minus_ln::<FUSED>(high[i], low[i])).sqrt() * deviation;
        let (cos, sin) = precise_cos_sin::<FUSED>(angle_high[i], angle_low[i]);
        x[i] = decided(length * cos, doubt, inside);
        y[i] = decided(length * sin, doubt, inside);
        undecided |= x[i].is_nan() | y[i].is_nan();
    }
    undecided
}

/// N(0, deviation²) rounded to whole numbers, **exactly**, wherever double precision decides which whole
/// number it is, and NaN elsewhere. Returns whether there is a NaN.
///
/// # Guarantee
///
/// Let (U₁, U₂) be any point of the cell of width 2⁻⁶⁴ that the 128 bits of a pair name. A result that is
/// not NaN is the whole number nearest to deviation·√(−2 ln U₁)·cos 2πU₂, or sin for the second half of
/// `out`: the computed value is off by less than deviation·[`ROUNDED_ERROR`], and no middle of two whole
/// numbers is that near. Further bits, which would make U₁ and U₂ real uniform numbers, would not change
/// it. So all levels agree wherever they decide; a level with fused operations may decide a few more or
/// fewer.
///
/// `out` holds an even number of values, `bits` four words for every two of them: the high and low words
/// of all U₁, then those of all U₂. `deviation` is at most [`LARGEST_DEVIATION`].
#[inline]
pub fn rounded_normal(level: Level, bits: &[u32], deviation: f64, out: &mut [f64]) -> bool {
    match level {
        Level::Portable => rounded::<false>(bits, deviation, out),
        fused => fused.run(
            #[inline(always)]
            || rounded::<true>(bits, deviation, out),
        ),
    }
}
