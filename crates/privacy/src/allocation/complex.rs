//! Complex numbers over [`Fixed`], with and without an exponent, and the fast Fourier transform.

use std::ops::{Add, Mul, Sub};

use super::fixed::Fixed;

/// A complex number in fixed point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Complex<const N: usize> {
    pub(super) re: Fixed<N>,
    pub(super) im: Fixed<N>,
}

impl<const N: usize> Complex<N> {
    pub(super) const ZERO: Self = Self { re: Fixed::ZERO, im: Fixed::ZERO };

    pub(super) fn new(re: Fixed<N>, im: Fixed<N>) -> Self {
        Self { re, im }
    }

    pub(super) fn scaled(self, bits: i64) -> Self {
        Self { re: self.re.scaled(bits), im: self.im.scaled(bits) }
    }

    pub(super) fn times_real(self, factor: Fixed<N>) -> Self {
        Self { re: self.re * factor, im: self.im * factor }
    }

    /// |self| to a few parts in 2^50.
    pub(super) fn size(self) -> f64 {
        self.re.to_f64().hypot(self.im.to_f64())
    }
}

impl<const N: usize> Add for Complex<N> {
    type Output = Self;
    #[inline]
    fn add(self, other: Self) -> Self {
        Self { re: self.re + other.re, im: self.im + other.im }
    }
}

impl<const N: usize> Sub for Complex<N> {
    type Output = Self;
    #[inline]
    fn sub(self, other: Self) -> Self {
        Self { re: self.re - other.re, im: self.im - other.im }
    }
}

impl<const N: usize> Mul for Complex<N> {
    type Output = Self;
    /// Each part errs by less than two units.
    #[inline]
    fn mul(self, other: Self) -> Self {
        Self { re: self.re * other.re - self.im * other.im, im: self.re * other.im + self.im * other.re }
    }
}

/// mantissa·2^exponent, the larger part of the mantissa at least ½ and below 1 in size.
///
/// Products of two err by at most [`Float::ROUNDING`] units relative to their size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Float<const N: usize> {
    mantissa: Complex<N>,
    exponent: i64,
}

impl<const N: usize> Float<N> {
    /// Units by which one multiplication errs, relative to the size of the product: two units in each part
    /// before the normalisation, which multiplies by at most four, of a mantissa of at least one half;
    /// doubled.
    pub(super) const ROUNDING: f64 = 32.0;

    pub(super) fn new(mantissa: Complex<N>, exponent: i64) -> Self {
        let top = mantissa.re.exponent().max(mantissa.im.exponent());
        match top {
            None => Self { mantissa: Complex::ZERO, exponent: 0 },
            Some(top) => {
                let up = i64::from(-1 - top);
                Self { mantissa: mantissa.scaled(up), exponent: exponent - up }
            }
        }
    }

    /// Exact for two doubles.
    pub(super) fn from_f64(re: f64, im: f64) -> Self {
        let top = re.abs().max(im.abs());
        if top == 0.0 {
            return Self::new(Complex::ZERO, 0);
        }
        let up = top.log2().floor();
        let scale = |x: f64| Fixed::from_f64(x * (-up).exp2());
        Self::new(Complex::new(scale(re), scale(im)), up as i64)
    }

    pub(super) fn one() -> Self {
        Self::new(Complex::new(Fixed::one(), Fixed::ZERO), 0)
    }

    pub(super) fn times(self, other: Self) -> Self {
        Self::new(self.mantissa * other.mantissa, self.exponent + other.exponent)
    }

    /// self^power; errs by at most 2·power multiplications.
    pub(super) fn power(self, power: u64) -> Self {
        let mut result = Self::one();
        let mut square = self;
        let mut rest = power;
        while rest > 0 {
            if rest & 1 == 1 {
                result = result.times(square);
            }
            rest >>= 1;
            if rest > 0 {
                square = square.times(square);
            }
        }
        result
    }

    /// 1/self, which must not be 0; errs by at most four multiplications.
    pub(super) fn reciprocal(self) -> Self {
        let m = self.mantissa;
        // |m|² lies between 1/4 and 2.
        let inverse = (m.re * m.re + m.im * m.im).reciprocal();
        Self::new(Complex::new(m.re * inverse, -(m.im * inverse)), -self.exponent)
    }

    /// ln|self|, to 1e-14 of its size and 1e-14; −∞ for 0.
    pub(super) fn ln_size(self) -> f64 {
        self.mantissa.size().ln() + self.exponent as f64 * std::f64::consts::LN_2
    }

    /// self·2^−exponent in fixed point, rounded down by less than one unit.
    pub(super) fn to_fixed(self, exponent: i64) -> Complex<N> {
        self.mantissa.scaled(self.exponent - exponent)
    }

    pub(super) fn exponent(self) -> i64 {
        self.exponent
    }
}

/// e^{−2πi·k/n} for k below n/2, each part to 2^9 units.
pub(super) fn twiddles<const N: usize>(n: usize, root: &dyn Fn(usize) -> Complex<N>) -> Vec<Complex<N>> {
    let half = (n / 2).max(1);
    let block = 1 << (half.ilog2() / 2);
    let fine: Vec<_> = (0..block).map(root).collect();
    let coarse: Vec<_> = (0..half.div_ceil(block)).map(|i| root(i * block)).collect();
    (0..half).map(|k| coarse[k / block] * fine[k % block]).collect()
}

/// The discrete Fourier transform Σ_k a_k e^{−2πi·jk/n}, n a power of two, in place.
///
/// Each output errs by at most [`transform_error`] units.
pub(super) fn transform<const N: usize>(a: &mut [Complex<N>], twiddles: &[Complex<N>]) {
    let n = a.len();
    let bits = n.trailing_zeros();
    for i in 0..n {
        let j = i.reverse_bits() >> (usize::BITS - bits.max(1));
        if bits > 0 && i < j {
            a.swap(i, j);
        }
    }
    let mut length = 2;
    while length <= n {
        let stride = n / length;
        for chunk in a.chunks_exact_mut(length) {
            let (left, right) = chunk.split_at_mut(length / 2);
            for (k, (x, y)) in left.iter_mut().zip(right).enumerate() {
                let turned = if k == 0 { *y } else { *y * twiddles[k * stride] };
                *y = *x - turned;
                *x = *x + turned;
            }
        }
        length *= 2;
    }
}

/// Bound on the error of each output of [`transform`] in units, for inputs whose sizes sum to `sum`: a
/// twiddle errs by at most 2^10 units in size at each of the log n stages, and an output collects the
/// roundings (at most three units in size) of fewer than n products.
pub(super) fn transform_error(n: usize, sum: f64) -> f64 {
    1024.0 * f64::from(n.ilog2().max(1)) * sum * 1.01 + 4.0 * n as f64
}
