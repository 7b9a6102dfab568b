//! exp, cos and sin in fixed point by a table and a short series.

use std::sync::LazyLock;

use super::complex::{Complex, Float};
use super::fixed::Fixed;

/// Steps of the tables per unit (exp) and per turn (cis).
const STEPS: i64 = 256;

/// π, ln 2 and the tables, for one number of limbs.
#[derive(Debug)]
pub(super) struct Elementary<const N: usize> {
    pub(super) pi: Fixed<N>,
    ln_two: Fixed<N>,
    /// 1/n!.
    inverse_factorials: Vec<Fixed<N>>,
    /// e^{i/256}/2 up to e^{ln 2}.
    exponentials: Vec<Fixed<N>>,
    /// e^{2πi/256}.
    turns: Vec<Complex<N>>,
    /// 2π/256.
    step: Fixed<N>,
}

/// Σ sign^k / ((2k+1) x^{2k+1}): the arc tangent of 1/x for sign −1, its hyperbolic twin for +1.
fn arc<const N: usize>(x: u64, alternating: bool) -> Fixed<N> {
    let mut power = Fixed::<N>::one().divided(x);
    let mut sum = Fixed::ZERO;
    let mut k = 0;
    while power != Fixed::ZERO {
        let term = power.divided(2 * k + 1);
        sum = if alternating && k % 2 == 1 { sum - term } else { sum + term };
        power = power.divided(x * x);
        k += 1;
    }
    sum
}

/// Limbs in which the tables are made; every entry is then good to one unit of a shorter number.
const MASTER: usize = 12;
static MASTER_TABLES: LazyLock<Elementary<MASTER>> = LazyLock::new(Elementary::master);

impl Elementary<MASTER> {
    fn master() -> Self {
        // Machin, and the formula of the same kind for ln 2.
        let pi = arc::<MASTER>(5, true).times(16) - arc::<MASTER>(239, true).times(4);
        let ln_two = arc::<MASTER>(26, false).times(18) - arc::<MASTER>(4801, false).times(2)
            + arc::<MASTER>(8749, false).times(8);
        let mut inverse_factorials = vec![Fixed::one()];
        // The tables leave arguments below 2^−5; a term past the last one is below a unit.
        for n in 1.. {
            let next = inverse_factorials[n - 1].divided(n as u64);
            if next.shifted_right(5 * n as u32) == Fixed::ZERO {
                break;
            }
            inverse_factorials.push(next);
        }
        let step = pi.divided(STEPS as u64 / 2);
        let mut tables = Self {
            pi,
            ln_two,
            inverse_factorials,
            exponentials: vec![Fixed::power_of_two(-1)],
            turns: vec![Complex::new(Fixed::one(), Fixed::ZERO)],
            step,
        };
        let ratio = tables.series(Fixed::power_of_two(-8));
        let turn = tables.small_turn(step);
        for i in 0..180 {
            tables.exponentials.push(tables.exponentials[i] * ratio);
        }
        for i in 1..STEPS as usize {
            tables.turns.push(tables.turns[i - 1] * turn);
        }
        tables
    }
}

impl<const N: usize> Elementary<N> {
    /// The tables for N limbs, at most eleven.
    pub(super) fn new() -> Self {
        let master = &*MASTER_TABLES;
        let short = |x: &Fixed<MASTER>| Fixed::<N>::shortened(*x);
        let mut inverse_factorials: Vec<_> = master.inverse_factorials.iter().map(short).collect();
        let needed = (1..inverse_factorials.len())
            .find(|&n| inverse_factorials[n].shifted_right(5 * n as u32) == Fixed::ZERO)
            .unwrap_or(inverse_factorials.len());
        inverse_factorials.truncate(needed);
        Self {
            pi: short(&master.pi),
            ln_two: short(&master.ln_two),
            inverse_factorials,
            exponentials: master.exponentials.iter().map(short).collect(),
            turns: master.turns.iter().map(|t| Complex::new(short(&t.re), short(&t.im))).collect(),
            step: short(&master.step),
        }
    }

    /// e^x for |x| ≤ 2^−5, to three units.
    fn series(&self, x: Fixed<N>) -> Fixed<N> {
        self.inverse_factorials.iter().rev().fold(Fixed::ZERO, |sum, &f| sum * x + f)
    }

    /// e^{ix} for |x| ≤ 2^−5, to three units.
    fn small_turn(&self, x: Fixed<N>) -> Complex<N> {
        let minus_square = -(x * x);
        let part = |first: usize| {
            let last = (self.inverse_factorials.len() - 1 - first) / 2 * 2 + first;
            (first..=last)
                .rev()
                .step_by(2)
                .fold(Fixed::ZERO, |sum, n| sum * minus_square + self.inverse_factorials[n])
        };
        Complex::new(part(0), part(1) * x)
    }

    /// e^x; the relative error is at most [`exp_error`](Self::exp_error) units.
    pub(super) fn exp(&self, x: Fixed<N>) -> Float<N> {
        let turns = (x.to_f64() / std::f64::consts::LN_2).floor() as i64;
        let rest = x - self.ln_two.times(turns);
        let place = ((rest.to_f64() * STEPS as f64).floor().max(0.0) as usize).min(179);
        let small = rest - Fixed::power_of_two(-8).times(place as i64);
        let value = self.exponentials[place] * self.series(small);
        Float::new(Complex::new(value, Fixed::ZERO), turns + 1)
    }

    /// Units of relative error of `exp` at x.
    pub(super) fn exp_error(x: f64) -> f64 {
        // One unit of ln 2 for each turn, the table's entry, the series and two roundings of at most two
        // parts each.
        24.0 + 2.0 * x.abs()
    }

    /// e^{ix}, each part to [`turn_error`](Self::turn_error) units.
    pub(super) fn turn(&self, x: Fixed<N>) -> Complex<N> {
        let place = (x.to_f64() * STEPS as f64 / std::f64::consts::TAU).floor() as i64;
        let small = x - self.step.times(place);
        self.turns[place.rem_euclid(STEPS) as usize] * self.small_turn(small)
    }

    /// Units of error of `turn` at x.
    pub(super) fn turn_error(x: f64) -> f64 {
        // One unit of 2π/256 for each step, the table's entry, the series and the product.
        24.0 + 48.0 * x.abs()
    }

    /// e^{−2πi·k/n} for n a power of two and an odd part of k below 2^13, to 2^8 units.
    pub(super) fn root(&self, k: usize, n: usize) -> Complex<N> {
        if k == 0 {
            return Complex::new(Fixed::one(), Fixed::ZERO);
        }
        let twos = k.trailing_zeros();
        let angle = self.pi.times((k >> twos) as i64).scaled(i64::from(twos) + 1 - i64::from(n.ilog2()));
        self.turn(-angle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocation::complex::{transform, twiddles};

    #[test]
    fn constants_have_all_their_digits() {
        let tables = Elementary::<4>::new();
        assert_eq!(tables.pi.to_f64(), std::f64::consts::PI);
        assert_eq!(tables.ln_two.to_f64(), std::f64::consts::LN_2);
        // The next digits of π and ln 2 after the double.
        let pi = (tables.pi - Fixed::from_f64(std::f64::consts::PI)).to_f64();
        assert!((pi / 1.224_646_799_147_353_2e-16 - 1.0).abs() < 1e-12);
        let ln_two = (tables.ln_two - Fixed::from_f64(std::f64::consts::LN_2)).to_f64();
        assert!((ln_two / 2.319_046_813_846_299_6e-17 - 1.0).abs() < 1e-12);
    }

    #[test]
    fn functional_equations_hold_to_the_stated_error() {
        let t = Elementary::<4>::new();
        for x in [0.0, 0.3, -0.7, 5.5, -44.25, 700.125, -900.0] {
            let a = t.exp(Fixed::from_f64(x));
            assert!((a.ln_size() - x).abs() < 1e-13 * (1.0 + x.abs()), "{x}");
            let one = a.times(t.exp(Fixed::from_f64(-x))).to_fixed(0);
            let error = (one.re - Fixed::one()).to_f64().abs();
            assert!(error < 2.0 * Elementary::<4>::exp_error(x) * Fixed::<4>::unit(), "{x} {error}");
            let c = t.turn(Fixed::from_f64(x));
            assert!((c.re.to_f64() - x.cos()).abs() < 1e-12 && (c.im.to_f64() - x.sin()).abs() < 1e-12);
            let back = c * t.turn(Fixed::from_f64(-x)) - Complex::new(Fixed::one(), Fixed::ZERO);
            assert!(back.size() < 4.0 * Elementary::<4>::turn_error(x) * Fixed::<4>::unit(), "{x}");
        }
    }

    #[test]
    fn the_transform_is_the_sum() {
        let t = Elementary::<3>::new();
        let n = 16;
        let w = twiddles(n, &|k| t.root(k, n));
        let a: Vec<_> = (0..n)
            .map(|k| {
                Complex::new(Fixed::from_f64(0.1 * k as f64), Fixed::from_f64(0.5 - 0.01 * (k * k) as f64))
            })
            .collect();
        let mut b = a.clone();
        transform(&mut b, &w);
        for (j, got) in b.iter().enumerate() {
            let sum = (0..n).fold(Complex::ZERO, |sum, k| sum + a[k] * t.root(j * k, n));
            assert!((sum - *got).size() < 1e6 * Fixed::<3>::unit(), "{j}");
        }
    }
}
