//! The few noise values that 64 bits of each uniform number do not decide: more bits, and as many digits as
//! it takes.

use astro_float_num::{BigFloat, Consts, RoundingMode, Sign};

use crate::randomness::{Purpose, Randomness, Stream};

/// Further words of 64 bits that a uniform number can have: it would take a probability of 2⁻¹⁰⁰⁰ to need
/// them all.
const MORE: usize = 16;

/// The further bits of one pair of uniform numbers.
pub(super) struct Refinement {
    stream: Stream,
}

impl Refinement {
    /// For a pair of a round, counted over all blocks. Every pair has bits of its own.
    pub(super) fn new(randomness: &Randomness, round: u64, pair: usize) -> Self {
        let mut stream = randomness.stream(Purpose::Refinement, round);
        // Two numbers, two words of 32 bits for each of 64.
        stream.seek((pair * 4 * MORE) as u64);
        Self { stream }
    }

    /// The whole number nearest to steps·√(−2 ln U₁)·cos 2πU₂, or sin, where U₁ and U₂ begin with the given
    /// bits.
    pub(super) fn rounded(mut self, first: (u64, u64), sine: bool, steps: f64) -> f64 {
        let mut more = || -> [u64; MORE] { std::array::from_fn(|_| self.stream.bits64()) };
        let (radius, angle) = (more(), more());
        rounded(first, (&radius, &angle), sine, steps)
    }
}

/// [`Refinement::rounded`] with given further bits.
pub(super) fn rounded(first: (u64, u64), more: (&[u64; MORE], &[u64; MORE]), sine: bool, steps: f64) -> f64 {
    let mut last = 0.0;
    for words in [1, 2, 4, 8, MORE] {
        let bits = |first: u64, more: &[u64]| -> Vec<u64> {
            // The library takes the last word first.
            more[..words].iter().rev().copied().chain([first]).collect()
        };
        if let Some((nearest, decided)) = attempt(&bits(first.0, more.0), &bits(first.1, more.1), sine, steps)
        {
            if decided {
                return nearest;
            }
            last = nearest;
        }
    }
    last
}

/// The nearest whole number for numbers U₁ and U₂ of which only the given bits are known, and whether all
/// others lead to the same. None if U₁ may still be 0.
///
/// Every operation is correctly rounded to p bits, 64 more than are known of the numbers, so a dozen of them
/// are off by less than 2^(8−p) relative. U₁ in [l, u): R is between those of u and l. U₂ in a cell of width
/// w: cos and sin move by at most 2πw.
fn attempt(radius: &[u64], angle: &[u64], sine: bool, steps: f64) -> Option<(f64, bool)> {
    let known = 64 * radius.len();
    let (p, mode) = (known + 64, RoundingMode::ToEven);
    let mut constants = Consts::new().ok()?;
    let unit = |words: &[u64]| BigFloat::from_words(words, Sign::Pos, 0);
    // One more in the last known bit.
    let above = |low: &BigFloat| {
        let mut last = vec![0; radius.len()];
        last[0] = 1;
        low.add(&unit(&last), p, mode)
    };
    let low = unit(radius);
    if low.is_zero() {
        return None;
    }
    let length = |u: &BigFloat, constants: &mut Consts| {
        let minus_ln = u.ln(p, mode, constants).neg();
        minus_ln.add(&minus_ln, p, mode).sqrt(p, mode)
    };
    let (longest, shortest) = (length(&low, &mut constants), length(&above(&low), &mut constants));
    let tau = BigFloat::from_f64(2.0, p).mul(&constants.pi(p, mode), p, mode);
    let turned = tau.mul(&unit(angle), p, mode);
    let direction =
        if sine { turned.sin(p, mode, &mut constants) } else { turned.cos(p, mode, &mut constants) };
    let y = BigFloat::from_f64(steps, p).mul(&shortest, p, mode).mul(&direction, p, mode);
    let nearest = y.add(&BigFloat::from_f64(0.5, p), p, mode).floor();
    let off = to_f64(&y.sub(&nearest, p, mode)).abs();
    // Each part a little too large; 2πw < 2^(3 − known).
    let unknown = 1.01 * to_f64(&longest.sub(&shortest, p, mode));
    let rounding = to_f64(&longest) * (2f64.powi(3 - known as i32) + 2f64.powi(8 - p as i32));
    let doubt = 1.01 * steps * (unknown + rounding);
    Some((to_f64(&nearest), off < 0.5 - doubt))
}

/// The leading 64 bits as a double: exact for whole numbers below 2⁵³, to 2⁻⁵³ for others.
fn to_f64(value: &BigFloat) -> f64 {
    match value.as_raw_parts() {
        Some((words, _, sign, exponent, _)) if !value.is_zero() => {
            let leading = words.last().map_or(0.0, |word| *word as f64) * 2f64.powi(-64);
            let magnitude = leading * 2f64.powi(exponent);
            if sign == Sign::Neg { -magnitude } else { magnitude }
        }
        _ => 0.0,
    }
}
