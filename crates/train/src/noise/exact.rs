//! Noise with no holes: the rounded Gaussian, drawn exactly.
//!
//! # Guarantee
//!
//! The sum U is rounded to whole multiples a of a step h, a power of two that depends on public sizes only.
//! Rounding moves each coordinate by at most h/2, so two sums that differ by Δ differ by at most Δ + √d·h
//! afterwards. To a are added whole numbers Z drawn from round(N(0, D²)), D = deviation/h. For whole a, a +
//! round(x) = round(a + x): what leaves is the ideal Gaussian mechanism on a·h, rounded, which is
//! post-processing. All of it is exact: a, Z and their sum are whole numbers below 2⁵³ in double precision.
//!
//! **The deviation is (2C + 2√d·h)·σ, rounded up.** Substituting a group's content moves U by at most 2C
//! ([`ClippedSum::sensitivity`](crate::clip::ClippedSum::sensitivity)) and a·h by 2C + √d·h; adding or
//! removing one moves U by C and a·h by C + √d·h, which is half of 2C + 2√d·h. So a mechanism with σ is one
//! with σ. h is 2C·2⁻¹²/√d or less, so this costs at most 0.05 % of the noise (more only where σ is so large
//! that D would leave the range of the sampler).
//!
//! **Z is drawn without error.** Box and Muller's √(−2 ln U₁)·cos 2πU₂ is a normal number if U₁ and U₂ are
//! uniform real numbers. Their first 64 bits decide almost always which whole number is nearest to D times it
//! ([`rounded_normal`], double precision with a proven bound of its error); where they do not, once in some
//! 500,000 numbers, `refine.rs` draws further bits and computes with more digits until it is
//! decided. The same bits are never replaced, only continued, so the law is that of the real number. There is
//! no largest value.
//!
//! What is assumed: ChaCha20's output cannot be told from random bits by whoever sees the updates, and the
//! library for multiple precision rounds as it says.

use dpsgd_kernels::gaussian::{LARGEST_DEVIATION, WORDS_PER_ROUNDED_PAIR, rounded_normal};
use dpsgd_kernels::{Level, fast};

use super::BLOCK;
use super::refine::Refinement;
use crate::randomness::{Purpose, Randomness};

/// Words of a block.
const WORDS: usize = BLOCK / 2 * WORDS_PER_ROUNDED_PAIR;
/// −log₂ of √d·h/2C.
const FINENESS: i32 = 12;
/// No coordinate of a sum has more steps; a sum that is cut there moves no further than it did.
const MOST_STEPS: f64 = 1_125_899_906_842_624.0;

/// The grid and the noise on it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exact {
    /// h, a power of two.
    step: f64,
    /// D, the deviation in steps.
    steps: f64,
}

impl Exact {
    /// For a sensitivity 2C in d dimensions; see the module documentation.
    pub fn for_sensitivity(sensitivity: f64, dimension: usize, sigma: f64) -> Self {
        let root = (dimension as f64).sqrt();
        let fine = FINENESS + root.log2().ceil() as i32;
        // D is about 2^fine·σ, at most four times that.
        let finest = LARGEST_DEVIATION.log2() as i32 - 3 - sigma.log2().ceil().max(0.0) as i32;
        let step = 2f64.powi(sensitivity.log2().floor() as i32 - fine.min(finest));
        // A handful of roundings, each of 2⁻⁵³; the division by a power of two is exact.
        let deviation = (sensitivity + 2.0 * root * step) * sigma * (1.0 + 2f64.powi(-49));
        Self { step, steps: deviation / step }
    }

    /// The standard deviation of the noise: at least 2Cσ.
    pub fn deviation(&self) -> f64 {
        self.step * self.steps
    }

    /// h.
    pub fn step(&self) -> f64 {
        self.step
    }

    /// Writes the noised sum of a block's coordinates.
    pub(super) fn add(&self, draws: (&Randomness, u64), block: usize, sum: &[f64], out: &mut [f32]) {
        let mut whole = [0.0; BLOCK];
        self.draw(draws, block, &mut whole);
        let (step, per_unit) = (self.step, 1.0 / self.step);
        fast(
            #[inline(always)]
            || {
                for ((out, &u), &z) in out.iter_mut().zip(sum).zip(&whole) {
                    // In steps, exactly; to the nearest whole number; both are below 2⁵¹, and so is what
                    // leaves.
                    let a = (u * per_unit).clamp(-MOST_STEPS, MOST_STEPS);
                    let a = (a + 1.5 * 2f64.powi(52)) - 1.5 * 2f64.powi(52);
                    *out = ((a + z) * step) as f32;
                }
            },
        );
    }

    /// Z of a whole block, so that a coordinate's noise does not depend on d.
    fn draw(&self, (randomness, round): (&Randomness, u64), block: usize, out: &mut [f64; BLOCK]) {
        let mut words = [0; WORDS];
        randomness.fill(Purpose::Noise, round, (block * WORDS) as u64, &mut words);
        if rounded_normal(Level::best(), &words, self.steps, out) {
            for (place, z) in out.iter_mut().enumerate().filter(|(_, z)| z.is_nan()) {
                let pair = place % (BLOCK / 2);
                let first = first_bits(&words, pair);
                let refinement = Refinement::new(randomness, round, block * BLOCK / 2 + pair);
                *z = refinement.rounded(first, place >= BLOCK / 2, self.steps);
            }
        }
    }
}

/// The first 64 bits of U₁ and of U₂ of a pair.
fn first_bits(words: &[u32], pair: usize) -> (u64, u64) {
    let quarter = words.len() / WORDS_PER_ROUNDED_PAIR;
    let word = |part: usize| u64::from(words[part * quarter + pair]);
    ((word(0) << 32) | word(1), (word(2) << 32) | word(3))
}

/// A whole number from round(N(0, steps²)) for something that is released before the first round: the mean
/// and variance of a private normalisation. Every `index` names a draw of its own. NaN above
/// [`LARGEST_DEVIATION`], which the caller must refuse.
pub fn before_training(randomness: &Randomness, index: u64, steps: f64) -> f64 {
    if !(steps > 0.0 && steps <= LARGEST_DEVIATION) {
        return f64::NAN;
    }
    let mut words = [0; WORDS_PER_ROUNDED_PAIR];
    randomness.stream(Purpose::Normalisation, index).fill(&mut words);
    let mut out = [0.0; 2];
    rounded_normal(Level::best(), &words, steps, &mut out);
    if out[0].is_nan() {
        // After every round: a plan has fewer than 2⁴⁸.
        let refinement = Refinement::new(randomness, (1 << 55) + index, 0);
        out[0] = refinement.rounded(first_bits(&words, 0), false, steps);
    }
    out[0]
}

/// The whole numbers that a round draws for a deviation of `steps`, in the order of the coordinates:
/// the view of tests and benchmarks on what is added.
pub fn draws(randomness: &Randomness, round: u64, steps: f64, out: &mut [f64]) {
    let exact = Exact { step: 1.0, steps };
    let mut whole = [0.0; BLOCK];
    for (block, out) in out.chunks_mut(BLOCK).enumerate() {
        exact.draw((randomness, round), block, &mut whole);
        out.copy_from_slice(&whole[..out.len()]);
    }
}

#[cfg(test)]
mod tests;
