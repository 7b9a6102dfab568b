//! One term of the sum over levels, inverted on its own line.

use num_complex::Complex64;

use super::Above;
use crate::interval::Interval;

/// A term of the sum on a line of its own.
#[derive(Debug)]
pub(super) struct Level {
    pub(super) c: f64,
    pub(super) period: f64,
    /// All values are relative to e^{ln_scale}.
    pub(super) ln_scale: f64,
    pub(super) values: Vec<(Complex64, f64)>,
    /// Bounds on ∫ |J|·t^{−1} and ·t^{−2} past the last node.
    pub(super) rest: (f64, f64),
    /// ln of the whole measure, from above.
    pub(super) ln_mass: f64,
    /// Points c' > c with a bound on ln J(c').
    pub(super) right: Vec<(f64, f64)>,
}

impl Level {
    /// What lies above ε of this measure.
    pub(super) fn above(&self, epsilon: f64) -> Above {
        let step = std::f64::consts::TAU / self.period;
        // Sums and their errors for the kernels 1/z(z+1), 1/z and 1/(z+1).
        let mut sums = [(0.0, 0.0); 3];
        for (j, &(value, value_error)) in self.values.iter().enumerate() {
            let z = Complex64::new(self.c, j as f64 * step);
            let turned = value * Complex64::from_polar(1.0, -z.im * epsilon);
            let half = if j == 0 { 0.5 } else { 1.0 };
            let (p, q) = (1.0 / z, 1.0 / (z + 1.0));
            let rounding = f64::EPSILON * (8.0 + z.im * epsilon);
            for (sum, kernel) in sums.iter_mut().zip([p * q, p, q]) {
                let size = half * kernel.norm();
                sum.0 += half * (turned * kernel).re;
                sum.1 += size * (value_error + value.norm() * rounding);
            }
        }
        let count = self.values.len() as f64;
        let scale = step / std::f64::consts::PI;
        let rests = [self.rest.1, self.rest.0, self.rest.0];
        let shifts = [0.0, 0.0, 1.0];
        let [delta, p, q] = [0, 1, 2].map(|i| {
            let (sum, error) = sums[i];
            let error =
                error * scale + rests[i] / std::f64::consts::PI + count * f64::EPSILON * sum.abs() * scale;
            let ln_scale = self.ln_scale - (self.c + shifts[i]) * epsilon;
            let relative = 8.0 * f64::EPSILON * (1.0 + ln_scale.abs());
            let size = ln_scale.exp();
            let alias = self.alias(epsilon, shifts[i]);
            let spread = size * (error + sum.abs() * scale * relative);
            let (lower, upper) = (size * sum * scale - spread - alias, size * sum * scale + spread);
            // All of the measure lies above at most; no more than that is claimed where the line is unfit.
            let most = (self.ln_mass + 1e-12).exp() * if i == 2 { (-epsilon).exp() } else { 1.0 };
            Interval {
                lower: if lower.is_finite() { lower.clamp(0.0, most) } else { 0.0 },
                upper: if upper.is_finite() { upper.clamp(0.0, most) } else { most },
            }
        });
        Above { delta, p, q }
    }

    /// The aliases, which are positive: on the left at most the whole measure, on the right Chernoff's bound.
    pub(super) fn alias(&self, epsilon: f64, shift: f64) -> f64 {
        let rate = self.c + shift;
        let r = (-rate * self.period).exp();
        // e^{(c+1)ε}·Q[Y > ε'] with ε' < 0 may reach e^{−ε'} times the measure under P, so the rate is c again.
        let left = if shift == 0.0 {
            self.ln_mass.exp() * r / (1.0 - r)
        } else {
            let slow = (-self.c * self.period).exp();
            (self.ln_mass - epsilon).exp() * slow / (1.0 - slow)
        };
        let right = self.right.iter().map(|&(at, ln)| {
            let gain = (at - self.c) * self.period;
            ln - (at + shift) * epsilon - gain - (-(-gain).exp()).ln_1p()
        });
        left + right.fold(f64::INFINITY, f64::min).exp()
    }
}
