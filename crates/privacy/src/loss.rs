//! The privacy loss of a whole run through its moment function: adversary A₀, and A₁ where its law
//! is too wide to list.

pub(crate) mod contour;
pub(crate) mod factor;
pub(crate) mod round;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::curve::{Curve, Point, epsilon_of};
use crate::error::{PrivacyError, require};
use crate::interval::Interval;
use contour::{Contour, cumulants};
use factor::{Cumulants, Factor};

/// The privacy loss Y = ln(dP/dQ) of a pair of distributions, as a product of moment functions.
///
/// A certificate holds on any line Re z = c, it is only narrowest near the saddle point; so lines
/// are taken from a geometric grid of c and kept, and many questions share a few lines.
#[derive(Debug)]
pub(crate) struct Loss {
    factors: Vec<Factor>,
    /// Probability left out of the factors; charged to δ.
    missing: f64,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    cumulants: HashMap<Tilt, Cumulants>,
    lines: HashMap<Tilt, Arc<Contour>>,
}

/// c = ±2^{step/8}.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Tilt {
    negative: bool,
    step: i32,
}

impl Tilt {
    fn positive(step: i32) -> Self {
        Self { negative: false, step }
    }

    fn value(self) -> f64 {
        let size = (f64::from(self.step) / 8.0).exp2();
        if self.negative { -size } else { size }
    }

    fn nearest(c: f64) -> Self {
        Self { negative: c < 0.0, step: (8.0 * c.abs().log2()).round() as i32 }
    }
}

/// Steps of the grid that are searched: c from 1e-9 to 1e9.
const STEPS: std::ops::RangeInclusive<i32> = -240..=240;

impl Loss {
    pub(crate) fn new(factors: Vec<Factor>, missing: f64) -> Self {
        Self { factors, missing, kept: Mutex::default() }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // Only complete entries are ever inserted, so a poisoned lock still guards good data.
        self.kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn cumulants(&self, tilt: Tilt) -> Cumulants {
        if let Some(&known) = self.kept().cumulants.get(&tilt) {
            return known;
        }
        let computed = cumulants(&self.factors, tilt.value());
        self.kept().cumulants.insert(tilt, computed);
        computed
    }

    fn line(&self, tilt: Tilt) -> Result<Arc<Contour>, PrivacyError> {
        if let Some(known) = self.kept().lines.get(&tilt) {
            return Ok(Arc::clone(known));
        }
        let line = Arc::new(Contour::new(&self.factors, tilt.value())?);
        self.kept().lines.insert(tilt, Arc::clone(&line));
        Ok(line)
    }

    /// The first step of the positive grid where `past` holds; it must be monotone. Gallops from
    /// c = 4, because very large c are costly and rarely needed.
    fn first_step(&self, past: impl Fn(f64, Cumulants) -> bool) -> i32 {
        let holds = |step: i32| {
            let tilt = Tilt::positive(step);
            past(tilt.value(), self.cumulants(tilt))
        };
        let (mut low, mut high) = (16, 16);
        let mut stride = 4;
        if holds(high) {
            while low > *STEPS.start() && holds(low) {
                high = low;
                low = (low - stride).max(*STEPS.start());
                stride *= 2;
            }
        } else {
            while high < *STEPS.end() && !holds(high) {
                low = high;
                high = (high + stride).min(*STEPS.end());
                stride = (stride + 4).min(16);
            }
        }
        while high - low > 1 {
            let middle = (low + high) / 2;
            if holds(middle) { high = middle } else { low = middle }
        }
        high
    }

    /// The line near κ'(c) = ε + 1/c + 1/(1+c), the saddle point of the integrand of δ(ε).
    fn line_of_delta(&self, epsilon: f64) -> Result<Arc<Contour>, PrivacyError> {
        let step = self.first_step(|c, k| k.mean > epsilon + 1.0 / c + 1.0 / (1.0 + c));
        self.line(Tilt::positive(step))
    }

    /// The line near κ'(c) = ε with c > −1, kept away from the poles at 0 and −1.
    fn line_of_tails(&self, epsilon: f64) -> Result<Arc<Contour>, PrivacyError> {
        let smallest = Tilt::positive(*STEPS.start());
        let at_zero = self.cumulants(smallest);
        let apart = 0.7 / at_zero.variance.sqrt().max(1e-150);
        if at_zero.mean < epsilon || apart > 0.25 {
            let step = self.first_step(|_, k| k.mean > epsilon);
            return self.line(Tilt::nearest(Tilt::positive(step).value().max(apart)));
        }
        // κ' increases with c, so with falling |c|.
        let (mut low, mut high) = (-24, -1);
        while high - low > 1 {
            let middle = (low + high) / 2;
            let tilt = Tilt { negative: true, step: middle };
            if self.cumulants(tilt).mean > epsilon { low = middle } else { high = middle }
        }
        let c = Tilt { negative: true, step: low }.value();
        self.line(Tilt::nearest(c.min(-apart).max(-1.0 + apart)))
    }

    fn charged(&self, delta: Interval) -> Interval {
        Interval { lower: delta.lower, upper: (delta.upper + self.missing).min(1.0) }
    }
}

impl Curve for Loss {
    fn delta(&self, epsilon: f64) -> Result<Interval, PrivacyError> {
        Ok(self.charged(self.line_of_delta(epsilon)?.delta(epsilon)))
    }

    fn point(&self, epsilon: f64) -> Result<Point, PrivacyError> {
        let line = self.line_of_tails(epsilon)?;
        let alpha = line.alpha(epsilon);
        let beta = line.beta(epsilon);
        let delta = if line.is_right_of_zero() {
            line.delta(epsilon)
        } else {
            let e = epsilon.exp();
            Interval {
                lower: 1.0 - beta.upper - e * alpha.upper - 2.0 * f64::EPSILON,
                upper: 1.0 - beta.lower - e * alpha.lower + 2.0 * f64::EPSILON,
            }
            .clamp(0.0, 1.0)
        };
        Ok(Point {
            epsilon,
            delta: self.charged(delta),
            alpha: Interval { lower: alpha.lower, upper: (alpha.upper + self.missing).min(1.0) },
            beta: Interval { lower: beta.lower, upper: (beta.upper + self.missing).min(1.0) },
        })
    }

    fn epsilon(&self, delta: f64) -> Result<Interval, PrivacyError> {
        require(delta > 0.0 && delta < 1.0, "delta", delta, "above 0 and below 1")?;
        // One line near the answer serves the whole root finding. The saddle-point approximation
        // of ln δ falls as c grows.
        let target = delta.ln();
        let step = self.first_step(|c, k| {
            let epsilon = k.mean - 1.0 / c - 1.0 / (1.0 + c);
            let curvature = k.variance + 1.0 / (c * c) + 1.0 / ((1.0 + c) * (1.0 + c));
            let ln_delta =
                k.ln_m - c * epsilon - (c * (1.0 + c)).ln() - 0.5 * (std::f64::consts::TAU * curvature).ln();
            ln_delta < target
        });
        if let Ok(line) = self.line(Tilt::positive(step)) {
            let result = epsilon_of(&|e| Ok(self.charged(line.delta(e))), delta)?;
            if result.width() < 1e-8 * result.upper {
                return Ok(result);
            }
        }
        epsilon_of(&|e| self.delta(e), delta)
    }
}
