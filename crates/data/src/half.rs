//! Numbers of half precision (IEEE 754 binary16): 11 bits of precision, up to 65,504.

/// A number of half precision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Half(pub(crate) u16);

/// 2⁻¹¹² and 2¹¹²: what takes the exponents of one precision to those of the other.
const DOWN: f32 = f32::from_bits(15 << 23);
const UP: f32 = f32::from_bits((127 + 112) << 23);
/// The largest number.
const LARGEST: f32 = 65_504.0;

impl Half {
    /// The nearest number, ties to even; beyond the largest it is the largest. NaN stays NaN.
    pub fn new(x: f32) -> Self {
        if x.is_nan() {
            return Self(0x7e00);
        }
        let sign = (x.to_bits() >> 16) & 0x8000;
        // The product rounds what becomes subnormal; the sum rounds the rest.
        let scaled = (x.abs().min(LARGEST) * DOWN).to_bits();
        Self((sign | ((scaled + 0xfff + ((scaled >> 13) & 1)) >> 13)) as u16)
    }

    /// Whether it is neither infinite nor NaN.
    pub fn is_finite(self) -> bool {
        self.0 & 0x7c00 != 0x7c00
    }
}

impl From<Half> for f32 {
    /// Exact for every finite number.
    #[inline(always)]
    fn from(Half(bits): Half) -> Self {
        let magnitude = f32::from_bits(u32::from(bits & 0x7fff) << 13) * UP;
        f32::from_bits(magnitude.to_bits() | u32::from(bits & 0x8000) << 16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the definition of the format.
    fn value(bits: u16) -> f64 {
        let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
        let size = if exponent == 0 {
            fraction * 2.0_f64.powi(-24)
        } else {
            (1.0 + fraction / 1024.0) * 2.0_f64.powi(exponent - 15)
        };
        if bits & 0x8000 == 0 { size } else { -size }
    }

    #[test]
    fn every_number_is_read_and_written_back() {
        for bits in (0..=u16::MAX).filter(|bits| Half(*bits).is_finite()) {
            assert_eq!(f64::from(f32::from(Half(bits))), value(bits), "{bits:#x}");
            assert_eq!(Half::new(value(bits) as f32), Half(bits), "{bits:#x}");
        }
    }

    #[test]
    fn it_is_the_nearest_number() {
        for bits in 0..0x7bff_u16 {
            let (low, high) = (value(bits), value(bits + 1));
            let middle = (low + high) / 2.0;
            let even = if bits % 2 == 0 { bits } else { bits + 1 };
            assert_eq!(Half::new(middle as f32), Half(even), "{bits:#x}");
            for (part, expected) in [(0.25, bits), (0.75, bits + 1)] {
                let x = low + part * (high - low);
                assert_eq!(Half::new(x as f32), Half(expected), "{x}");
                assert_eq!(Half::new(-x as f32), Half(expected | 0x8000), "{x}");
            }
        }
        assert_eq!(f32::from(Half::new(1e9)), LARGEST);
        assert!(!Half::new(f32::NAN).is_finite());
    }
}
