//! Signed fixed-point numbers of N limbs, and the elementary functions the moment function needs.
//!
//! A number is an integer multiple of one *unit*, 2^−(64N−16); fifteen bits and a sign stand before the
//! point. Sums are exact, a product is rounded down by one unit at most. Absolute errors are what the
//! caller counts, so a fixed point loses nothing against a floating one and its bounds are short.

// Limbs of two numbers and a carry go by one index; and a carry is an or.
#![allow(clippy::needless_range_loop, clippy::suspicious_arithmetic_impl)]

use std::ops::{Add, Mul, Neg, Sub};

/// Bits before the point, with the sign.
const WHOLE: u32 = 16;

/// A number of N limbs in two's complement, least significant limb first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fixed<const N: usize>([u64; N]);

impl<const N: usize> Fixed<N> {
    pub(super) const ZERO: Self = Self([0; N]);
    /// Bits after the point.
    pub(super) const FRACTION: u32 = 64 * N as u32 - WHOLE;

    pub(super) fn one() -> Self {
        Self::power_of_two(0)
    }

    /// 2^e for e from −FRACTION to 14.
    pub(super) fn power_of_two(e: i32) -> Self {
        let place = (e + Self::FRACTION as i32) as usize;
        let mut limbs = [0; N];
        limbs[place / 64] = 1 << (place % 64);
        Self(limbs)
    }

    /// One unit in the last place.
    pub(super) fn unit() -> f64 {
        (-f64::from(Self::FRACTION)).exp2()
    }

    /// A longer number rounded down to N limbs.
    pub(super) fn shortened<const M: usize>(long: Fixed<M>) -> Self {
        let mut limbs = [0; N];
        limbs.copy_from_slice(&long.0[M - N..]);
        Self(limbs)
    }

    /// The number nearest to `value` from below in size; |value| must be below 2^15.
    pub(super) fn from_f64(value: f64) -> Self {
        debug_assert!(value.abs() < 32_768.0);
        let size = value.abs();
        if size < Self::unit() {
            return Self::ZERO;
        }
        let exponent = ((size.to_bits() >> 52) & 0x7ff) as i32 - 1075;
        let mantissa = (size.to_bits() & ((1 << 52) - 1)) | (1 << 52);
        let shift = exponent + Self::FRACTION as i32;
        let mut limbs = [0; N];
        limbs[0] = mantissa;
        let result = if shift >= 0 {
            Self(limbs).shifted_left(shift as u32)
        } else {
            Self(limbs).shifted_right(-shift as u32)
        };
        if value < 0.0 { -result } else { result }
    }

    /// The value as a double, to one part in 2^52.
    pub(super) fn to_f64(self) -> f64 {
        let size = self.abs();
        let mut sum = 0.0;
        for (i, &limb) in size.0.iter().enumerate().rev() {
            sum += limb as f64 * f64::from(64 * i as u32 as i32 - Self::FRACTION as i32).exp2();
        }
        if self.is_negative() { -sum } else { sum }
    }

    pub(super) fn is_negative(self) -> bool {
        self.0[N - 1] >> 63 == 1
    }

    pub(super) fn abs(self) -> Self {
        if self.is_negative() { -self } else { self }
    }

    /// The place of the highest set bit of |self|, counted so that 1 has 0; `None` for 0.
    pub(super) fn exponent(self) -> Option<i32> {
        let size = self.abs();
        (0..N)
            .rev()
            .find(|&i| size.0[i] != 0)
            .map(|i| 64 * i as i32 + 63 - size.0[i].leading_zeros() as i32 - Self::FRACTION as i32)
    }

    pub(super) fn shifted_left(self, bits: u32) -> Self {
        let (limbs, bits) = ((bits / 64) as usize, bits % 64);
        let mut result = [0; N];
        for i in limbs..N {
            result[i] = self.0[i - limbs] << bits;
            if bits > 0 && i > limbs {
                result[i] |= self.0[i - limbs - 1] >> (64 - bits);
            }
        }
        Self(result)
    }

    /// Rounds towards −∞.
    pub(super) fn shifted_right(self, bits: u32) -> Self {
        let sign = if self.is_negative() { u64::MAX } else { 0 };
        if bits >= 64 * N as u32 {
            return Self([sign; N]);
        }
        let (limbs, bits) = ((bits / 64) as usize, bits % 64);
        let at = |i: usize| if i < N { self.0[i] } else { sign };
        let mut result = [0; N];
        for (i, limb) in result.iter_mut().enumerate() {
            *limb = at(i + limbs) >> bits;
            if bits > 0 {
                *limb |= at(i + limbs + 1) << (64 - bits);
            }
        }
        Self(result)
    }

    /// self·2^bits.
    pub(super) fn scaled(self, bits: i64) -> Self {
        if bits >= 0 {
            self.shifted_left(bits.min(64 * N as i64) as u32)
        } else {
            self.shifted_right((-bits).min(64 * N as i64) as u32)
        }
    }

    /// self/divisor, rounded towards zero.
    pub(super) fn divided(self, divisor: u64) -> Self {
        let size = self.abs();
        let mut rest = 0_u128;
        let mut result = [0; N];
        for i in (0..N).rev() {
            let value = (rest << 64) | u128::from(size.0[i]);
            result[i] = (value / u128::from(divisor)) as u64;
            rest = value % u128::from(divisor);
        }
        if self.is_negative() { -Self(result) } else { Self(result) }
    }

    /// self·factor, exact as long as it fits.
    pub(super) fn times(self, factor: i64) -> Self {
        let size = self.abs();
        let mut carry = 0_u128;
        let mut result = [0; N];
        for (limb, &given) in result.iter_mut().zip(&size.0) {
            let value = u128::from(given) * u128::from(factor.unsigned_abs()) + carry;
            *limb = value as u64;
            carry = value >> 64;
        }
        if self.is_negative() != (factor < 0) { -Self(result) } else { Self(result) }
    }

    /// 1/self for |self| from 2^−14 to 2^14, to four units times 1/self².
    pub(super) fn reciprocal(self) -> Self {
        let mut x = Self::from_f64(1.0 / self.to_f64());
        // Newton doubles the 48 good bits of the start each time.
        let mut good = 48;
        while good < 64 * N {
            x = x + x * (Self::one() - self * x);
            good *= 2;
        }
        x
    }
}

impl<const N: usize> Add for Fixed<N> {
    type Output = Self;
    #[inline]
    fn add(self, other: Self) -> Self {
        let mut result = [0; N];
        let mut carry = false;
        for i in 0..N {
            let (sum, first) = self.0[i].overflowing_add(other.0[i]);
            let (sum, second) = sum.overflowing_add(u64::from(carry));
            result[i] = sum;
            carry = first | second;
        }
        Self(result)
    }
}

impl<const N: usize> Sub for Fixed<N> {
    type Output = Self;
    #[inline]
    fn sub(self, other: Self) -> Self {
        let mut result = [0; N];
        let mut borrow = false;
        for i in 0..N {
            let (rest, first) = self.0[i].overflowing_sub(other.0[i]);
            let (rest, second) = rest.overflowing_sub(u64::from(borrow));
            result[i] = rest;
            borrow = first | second;
        }
        Self(result)
    }
}

impl<const N: usize> Neg for Fixed<N> {
    type Output = Self;
    #[inline]
    fn neg(self) -> Self {
        Self::ZERO - self
    }
}

impl<const N: usize> Mul for Fixed<N> {
    type Output = Self;
    /// Rounded down by less than one unit and 2^−40 of one: the columns whose carries reach no higher than
    /// 48 bits below the last unit are left out. The product of the two's complements, less the other
    /// factor's copy for each negative one, is the signed product.
    #[inline]
    fn mul(self, other: Self) -> Self {
        // Columns N−2 and N−1, then N and higher.
        let mut low = [0_u64; 2];
        let mut high = [0_u64; N];
        for i in 0..N {
            let mut carry = 0_u64;
            for j in (N - 2).saturating_sub(i)..N {
                let column = i + j + 2 - N;
                let place = if column < 2 { &mut low[column] } else { &mut high[column - 2] };
                let value =
                    u128::from(self.0[i]) * u128::from(other.0[j]) + u128::from(*place) + u128::from(carry);
                *place = value as u64;
                carry = (value >> 64) as u64;
            }
            high[i] = carry;
        }
        let mask = |x: Self, y: Self| {
            let sign = ((x.0[N - 1] as i64) >> 63) as u64;
            let mut copy = [0; N];
            for i in 0..N {
                copy[i] = y.0[i] & sign;
            }
            Self(copy)
        };
        let high = Self(high) - mask(self, other) - mask(other, self);
        let mut result = [0; N];
        let mut below = low[1];
        for i in 0..N {
            result[i] = (below >> (64 - WHOLE)) | (high.0[i] << WHOLE);
            below = high.0[i];
        }
        Self(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_agrees_with_doubles() {
        let values = [0.0, 1.0, -1.0, 0.5, -0.75, 3.25, -1234.5, 1e-9, -3e-7, 141.421_356];
        for a in values {
            for b in values {
                let (x, y) = (Fixed::<3>::from_f64(a), Fixed::<3>::from_f64(b));
                assert!(((x + y).to_f64() - (a + b)).abs() <= 1e-15 * (a + b).abs());
                assert!(((x - y).to_f64() - (a - b)).abs() <= 1e-15 * (a - b).abs());
                if (a * b).abs() < 32_000.0 {
                    assert!(((x * y).to_f64() - a * b).abs() <= 1e-15 * (a * b).abs(), "{a} {b}");
                }
                assert_eq!(x.times(7).to_f64(), Fixed::<3>::from_f64(7.0 * a).to_f64());
            }
            if a.abs() > 1e-4 {
                let r = Fixed::<5>::from_f64(a).reciprocal() * Fixed::from_f64(a) - Fixed::one();
                assert!(r.to_f64().abs() < 1e5 * Fixed::<5>::unit(), "{a} {}", r.to_f64());
            }
        }
    }

    /// Numbers with every bit in use: (x + y)² = x² + 2xy + y², up to the three roundings.
    #[test]
    fn products_err_by_a_unit_at_most() {
        fn check<const N: usize>() {
            let mut state = 0x9e37_79b9_7f4a_7c15_u64;
            let mut next = || {
                let mut limbs = [0; N];
                for limb in &mut limbs {
                    state =
                        state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    *limb = state ^ (state >> 29);
                }
                // Below 2^4 in size, of either sign.
                Fixed::<N>(limbs).shifted_right(11)
            };
            for _ in 0..2000 {
                let (x, y) = (next(), next());
                let rest = (x + y) * (x + y) - x * x - (x * y).shifted_left(1) - y * y;
                assert!(rest.to_f64().abs() <= 4.0 * Fixed::<N>::unit(), "{N} limbs: {}", rest.to_f64());
            }
        }
        check::<2>();
        check::<3>();
        check::<4>();
        check::<5>();
        check::<8>();
    }

    #[test]
    fn shifts_are_floors() {
        let x = Fixed::<3>::from_f64(-5.0);
        assert_eq!(x.scaled(-1).to_f64(), -2.5);
        assert_eq!(x.scaled(3).to_f64(), -40.0);
        assert_eq!(x.shifted_right(500).to_f64(), -Fixed::<3>::unit());
        assert_eq!(Fixed::<3>::from_f64(5.0).exponent(), Some(2));
        assert_eq!(Fixed::<3>::from_f64(-0.3).exponent(), Some(-2));
        assert_eq!(Fixed::<3>::ZERO.exponent(), None);
    }
}
