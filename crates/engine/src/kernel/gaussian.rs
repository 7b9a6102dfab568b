//! Standard normal numbers from uniform bits, many at a time.

use super::versions;

/// −ln U for U = (2³²·high + low + ½)/2⁶⁴, relative error below 3e-7.
#[inline(always)]
fn minus_ln(high: u32, low: u32) -> f32 {
    const UNIT: f32 = 1.0 / 18_446_744_073_709_551_616.0;
    let whole = |high: u32, low: u32| (number(high) * 4_294_967_296.0 + (number(low) + 0.5)) * UNIT;
    // U = (1 + m)·2^e with 1 + m in [√½, √2).
    let bits = whole(high, low).to_bits().wrapping_sub(0x3f35_04f3);
    let e = ((bits as i32) >> 23) as f32;
    let m = f32::from_bits((bits & 0x007f_ffff).wrapping_add(0x3f35_04f3)) - 1.0;
    // Near 1, where e = 0, m is −(1 − U), which has all its bits before U is rounded: otherwise small radii would
    // fall on coarse rings.
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

/// The words of bits behind two numbers.
pub const WORDS_PER_PAIR: usize = 3;

versions! {
    /// Standard normal numbers by the method of Box and Muller, two from three words.
    ///
    /// The radius takes 64 bits, so that the tails reach beyond 9 standard deviations: what is
    /// missing of the normal law has probability below 2⁻⁶⁴ for each pair. The values are single
    /// precision, with a relative error of a few units in the last place: they have the holes of
    /// floating point, which is a limit of every sampler of this kind.
    ///
    /// `out` holds an even number of values, `bits` three words for every two of them.
    pub fn standard_normal(level: Level, bits: &[u32], out: &mut [f32]) {
        assert!(out.len().is_multiple_of(2) && bits.len() / WORDS_PER_PAIR == out.len() / 2, "three words for two numbers");
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
