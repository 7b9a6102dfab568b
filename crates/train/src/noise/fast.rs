//! Single-precision normals: as fast as it gets, and with the holes of floating point.
//!
//! Normals come from uniform bits by Box and Muller ([`standard_normal`]): a 64-bit uniform for the radius,
//! so that tails reach √(2·65·ln 2) = 9.4 deviations, and 32 bits for the angle, one pair from three words.
//! The noised sum is rounded to a multiple of a power of two near 2⁻¹⁸ deviations, which does not depend on
//! the data: the low-order bits of a floating-point sum, which can betray the summand (Mironov 2012), are
//! rounded away. This makes such attacks impractical; it is not a proof that single-precision noise is the
//! real Gaussian.

use dpsgd_kernels::gaussian::{WORDS_PER_PAIR, standard_normal};
use dpsgd_kernels::{Level, fast};

use super::BLOCK;
use crate::randomness::{Purpose, Randomness, Stream};

/// Words of a block.
const WORDS: usize = BLOCK / 2 * WORDS_PER_PAIR;

/// Writes U + deviation·normal, rounded to the [`grid`], for the coordinates of a block.
///
/// The addition is in double precision; rounding to the grid and to single precision comes
/// after it and is post-processing.
pub(super) fn add(
    (randomness, round): (&Randomness, u64),
    deviation: f64,
    block: usize,
    sum: &[f64],
    out: &mut [f32],
) {
    standard_block(randomness, round, block, out);
    let magic = 1.5 * 2f64.powi(52) * grid(deviation);
    fast(
        #[inline(always)]
        || {
            for (out, &u) in out.iter_mut().zip(sum) {
                *out = (((u + deviation * f64::from(*out)) + magic) - magic) as f32;
            }
        },
    );
}

/// The power of two at or below 2⁻¹⁸ deviations, to multiples of which noised sums are rounded.
///
/// Adding and subtracting 1.5·2⁵²·grid rounds a double below 2⁵¹·grid to the nearest multiple.
pub fn grid(deviation: f64) -> f64 {
    2f64.powi(deviation.log2().floor() as i32 - 18)
}

/// The standard normals of a block of a round, for at most [`BLOCK`] coordinates.
fn standard_block(randomness: &Randomness, round: u64, block: usize, out: &mut [f32]) {
    let mut words = [0; WORDS];
    randomness.fill(Purpose::Noise, round, (block * WORDS) as u64, &mut words);
    block_from(&words, out);
}

fn block_from(words: &[u32; WORDS], out: &mut [f32]) {
    if out.len() == BLOCK {
        standard_normal(Level::best(), words, out);
    } else {
        // A whole block all the same, so that a coordinate's noise does not depend on d.
        let mut whole = [0.0; BLOCK];
        standard_normal(Level::best(), words, &mut whole);
        out.copy_from_slice(&whole[..out.len()]);
    }
}

/// The standard normals that a round draws, in the order of the coordinates: the view of the
/// tests on what fast noise scales and adds.
pub fn draws(randomness: &Randomness, round: u64, out: &mut [f32]) {
    for (block, out) in out.chunks_mut(BLOCK).enumerate() {
        standard_block(randomness, round, block, out);
    }
}

/// Standard normals from the next words of any stream.
pub fn standard_normals(stream: &mut Stream, out: &mut [f32]) {
    let mut words = [0; WORDS];
    for out in out.chunks_mut(BLOCK) {
        stream.fill(&mut words);
        block_from(&words, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_does_not_depend_on_its_neighbours() {
        let randomness = Randomness::from_seed(5, 0);
        let mut long = vec![0.0; 3 * BLOCK + 7];
        draws(&randomness, 4, &mut long);
        for length in [1, 2, 3, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 5] {
            let mut short = vec![0.0; length];
            draws(&randomness, 4, &mut short);
            assert_eq!(short, long[..length]);
        }
    }

    /// Box and Muller in double precision: words high, low and angle one after the other, then
    /// all cosines before all sines.
    fn slow_normals(words: &[u32]) -> Vec<f64> {
        let half = words.len() / 3;
        let (high, rest) = words.split_at(half);
        let (low, angle) = rest.split_at(half);
        let polar = |i: usize| {
            let word = (u64::from(high[i]) << 32) | u64::from(low[i]);
            // −ln U, by the distance from 1 where U is near it.
            let minus_ln = if word >> 63 == 0 {
                -((word as f64 + 0.5) * 2f64.powi(-64)).ln()
            } else {
                -(-((!word) as f64 + 0.5) * 2f64.powi(-64)).ln_1p()
            };
            ((2.0 * minus_ln).sqrt(), f64::from(angle[i]) * (std::f64::consts::TAU / 2f64.powi(32)))
        };
        let x = (0..half).map(|i| polar(i).0 * polar(i).1.cos());
        let y = (0..half).map(|i| polar(i).0 * polar(i).1.sin());
        x.chain(y).collect()
    }

    #[test]
    fn the_transformation_is_that_of_box_and_muller() {
        let mut words = vec![0; 30_000];
        Randomness::from_seed(4, 0).stream(Purpose::Noise, 0).fill(&mut words);
        // The longest and the shortest radius, the axes and the diagonals.
        for (i, (high, low, angle)) in [
            (0, 0, 0),
            (0, 1, 1 << 30),
            (0, u32::MAX, 1 << 31),
            (1, 0, 3 << 30),
            (u32::MAX, u32::MAX, 0),
            (u32::MAX, 0, 1 << 29),
            (1 << 31, 0, 3 << 29),
            ((1 << 31) - 1, u32::MAX, u32::MAX),
        ]
        .into_iter()
        .enumerate()
        {
            (words[i], words[10_000 + i], words[20_000 + i]) = (high, low, angle);
        }
        let slow = slow_normals(&words);
        let mut fast = vec![0.0; 20_000];
        standard_normal(Level::best(), &words, &mut fast);
        assert!((slow[0] - 9.4926).abs() < 1e-4);
        for (i, (fast, slow_one)) in fast.iter().zip(&slow).enumerate() {
            let radius = slow_one.hypot(slow[(i + 10_000) % 20_000]);
            let error = (f64::from(*fast) - slow_one).abs();
            assert!(error < 1e-6 * radius, "{fast} {slow_one}");
        }
    }

    #[test]
    fn the_noised_sum_is_on_the_grid() {
        let randomness = Randomness::from_seed(7, 0);
        for (bound, sigma) in [(1.0, 2.0), (0.013, 0.7), (1e-6, 0.05), (1e6, 1e5)] {
            let deviation = 2.0 * bound * sigma;
            let step = grid(deviation);
            assert!(step <= deviation * 2f64.powi(-18) && step > deviation * 2f64.powi(-20));
            let mut normals = vec![0.0; 1000];
            draws(&randomness, 3, &mut normals);
            let mut out = vec![0.0; 1000];
            let u: Vec<f64> = (0..1000).map(|i| f64::from(i) * bound / 1000.0).collect();
            add((&randomness, 3), deviation, 0, &u, &mut out);
            for ((&out, u), &z) in out.iter().zip(&u).zip(&normals) {
                let exact = u + deviation * f64::from(z);
                assert!((f64::from(out) - exact).abs() <= 0.51 * step + 6e-8 * exact.abs());
                // On the grid wherever single precision can hold it.
                assert!(exact.abs() > 2f64.powi(23) * step || (f64::from(out) / step).fract() == 0.0);
            }
        }
    }
}
