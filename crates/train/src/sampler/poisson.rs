//! Poisson sampling by skipping: how many samples are passed over before the next one is kept.
//!
//! The number passed over is geometric, P(skip ≥ j) = (1 − p)ʲ. It is drawn by comparing one
//! uniform 64-bit word with a table of ⌊2⁶⁴·(1 − p)ʲ⌋, j = 1 … J, computed in 128-bit fixed point
//! from the exact value of the double p; a skip of J or more passes over J samples and draws
//! again, which is right because the geometric law forgets. So every probability is exact to
//! 2⁻⁶⁴, without a logarithm anywhere.

use crate::randomness::Stream;

/// The longest skip of one draw; the table is then at most 32 KiB.
const LONGEST: usize = 4096;

/// The table of ⌊2⁶⁴·(1 − p)ʲ⌋ for one rate p.
#[derive(Debug)]
pub struct Skips {
    survival: Vec<u64>,
}

impl Skips {
    /// The table of a rate, which a checked mechanism keeps between 1e-10 and 1.
    pub fn new(rate: f64) -> Self {
        // 1 − p as a multiple of 2⁻¹²⁸; exact, because p ≥ 1e-10 is a multiple of 2⁻⁸⁶.
        let kept = fixed(rate);
        let missed = kept.wrapping_neg();
        let mut survival = Vec::new();
        // p = 1 is 2¹²⁸ ≡ 0: nothing is ever passed over.
        let mut power = if rate >= 1.0 { 0 } else { missed };
        for _ in 0..LONGEST {
            survival.push((power >> 64) as u64);
            if power >> 64 == 0 {
                break;
            }
            power = multiply_high(power, missed);
        }
        Self { survival }
    }

    /// Appends the kept ones of the samples 0..samples, in rising order.
    pub fn draw(&self, samples: u32, stream: &mut Stream, kept: &mut Vec<u32>) {
        let mut next = 0u64;
        while next < u64::from(samples) {
            let word = stream.bits64();
            let skip = self.survival.partition_point(|&survives| word < survives);
            next += skip as u64;
            if skip < self.survival.len() {
                if next < u64::from(samples) {
                    kept.push(next as u32);
                }
                next += 1;
            }
        }
    }
}

/// p·2¹²⁸ for 1e-10 ≤ p < 1, exactly; 0 for p = 1.
fn fixed(p: f64) -> u128 {
    let bits = p.to_bits();
    let exponent = (bits >> 52) as i32 - 1023 - 52;
    let mantissa = u128::from((bits & ((1 << 52) - 1)) | (1 << 52));
    // 1e-10 > 2⁻³⁴, so the shift is at least 128 − 34 − 52 > 0; at most 76 for p = 1.
    let shift = (128 + exponent).clamp(0, 76) as u32;
    mantissa.wrapping_shl(shift)
}

/// ⌊a·b/2¹²⁸⌋, short by at most 2.
fn multiply_high(a: u128, b: u128) -> u128 {
    let low = |x: u128| x & u128::from(u64::MAX);
    let (a1, a0, b1, b0) = (a >> 64, low(a), b >> 64, low(b));
    let (mid1, mid2) = (a1 * b0, a0 * b1);
    let carry = (low(mid1) + low(mid2) + ((a0 * b0) >> 64)) >> 64;
    a1 * b1 + (mid1 >> 64) + (mid2 >> 64) + carry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_the_geometric_law() {
        for rate in [1e-10, 1e-6, 64.0 / 60_000.0, 0.1, 0.5, 0.75, 0.999, 1.0 - 1e-16] {
            let skips = Skips::new(rate);
            for (j, &survives) in skips.survival.iter().enumerate() {
                let expected = ((j as f64 + 1.0) * (-rate).ln_1p()).exp();
                let given = survives as f64 / 2f64.powi(64);
                assert!(
                    (given - expected).abs() < 4e-16 * (j as f64 + 8.0),
                    "{rate} {j}: {given} {expected}"
                );
            }
        }
        // Dyadic rates are exact to the bit.
        assert_eq!(Skips::new(0.5).survival[..3], [1 << 63, 1 << 62, 1 << 61]);
        assert_eq!(Skips::new(0.25).survival[..2], [3 << 62, 9 << 60]);
        assert_eq!(Skips::new(1.0).survival, [0]);
    }

    #[test]
    fn products_of_fixed_point() {
        assert_eq!(multiply_high(1 << 127, 1 << 127), 1 << 126);
        assert_eq!(multiply_high(u128::MAX, u128::MAX), u128::MAX - 1);
        assert_eq!(multiply_high(3 << 126, 3 << 126), 9 << 124);
        assert_eq!(multiply_high(u128::from(u64::MAX), u128::from(u64::MAX)), 0);
        assert_eq!(multiply_high((1 << 64) + 5, 1 << 100), ((1u128 << 64) + 5) >> 28);
    }
}
