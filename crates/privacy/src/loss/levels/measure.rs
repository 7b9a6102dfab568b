//! The measure between two windows, at real tilts: estimates for the plan, and bounds for the certificate.

use super::nodes::{Body, Nodes};
use super::window::Window;
use crate::error::PrivacyError;
use crate::loss::factor::Factor;

/// All factors, good for tilts up to a cap.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) factors: Vec<Nodes>,
    /// What the nodes are good for.
    pub(super) cap: f64,
    pub(super) window: Window,
}

impl Run {
    pub(super) fn new(factors: &[Factor], cap: f64, window: Window) -> Result<Self, PrivacyError> {
        let factors = factors.iter().map(|f| Nodes::new(f, cap, window)).collect::<Result<_, _>>()?;
        Ok(Self { factors, cap, window })
    }

    /// Nodes of all factors.
    pub(super) fn count(&self) -> f64 {
        let one = |nodes: &Nodes| match &nodes.body {
            Body::Round(round) => round.along.len() as f64,
            Body::Gaussian(_) => 1.0,
            Body::Known { parts, .. } => parts.len() as f64,
        };
        self.factors.iter().map(one).sum()
    }

    pub(super) fn is_good_for(&self, c: f64) -> bool {
        c <= self.cap && self.window.allows(c)
    }

    /// ln Π M_window^T at a real c, from above.
    pub(super) fn ln_quiet(&self, c: f64, window: Window) -> f64 {
        let one = |nodes: &Nodes| {
            let m = nodes.real(c, window, window);
            nodes.times * ((m.inner.re + m.inner_error).max(0.0).ln() + 4.0 * f64::EPSILON)
        };
        if self.is_good_for(c) { self.factors.iter().map(one).sum() } else { f64::INFINITY }
    }

    /// About the same.
    pub(super) fn about_quiet(&self, c: f64, window: Window) -> f64 {
        let one = |nodes: &Nodes| nodes.times * nodes.estimate(c, window, window).0.ln();
        if self.is_good_for(c) { self.factors.iter().map(one).sum() } else { f64::INFINITY }
    }

    /// About ln of the measure between two windows, tilted by c.
    pub(super) fn about_between(&self, c: f64, outer: Window, inner: Window) -> f64 {
        if !self.is_good_for(c) {
            return f64::INFINITY;
        }
        let mut difference = Difference::default();
        for nodes in &self.factors {
            let (low, high) = nodes.estimate(c, outer, inner);
            difference.times(low, high, nodes.times);
        }
        difference.ln()
    }

    /// A bound on ln of the same measure.
    pub(super) fn ln_between_above(&self, c: f64, outer: Window, inner: Window) -> f64 {
        if !self.is_good_for(c) {
            return f64::INFINITY;
        }
        let mut difference = Difference::default();
        for nodes in &self.factors {
            let m = nodes.real(c, outer, inner);
            let alone = inner == Window::None && !nodes.is_gaussian();
            let low = if alone { 0.0 } else { (m.inner.re + m.inner_error).max(f64::MIN_POSITIVE) };
            difference.times(low, (m.between.re + m.between_error).max(0.0), nodes.times);
        }
        let measure = difference.ln();
        measure + 1e-12 * (1.0 + measure.abs())
    }
}

impl Run {
    /// ln of the whole measure from above, and points c' > c with a bound on its ln J(c').
    pub(super) fn aliases(&self, c: f64, outer: Window, inner: Window) -> (f64, Vec<(f64, f64)>) {
        // At c = 0 the transform is the mass, which bounds the aliases on the left.
        let ln_mass = self.ln_between_above(0.0, outer, inner).min(0.0);
        let right = [1.19, 1.41, 2.0, 2.83, 4.0, 5.66, 8.0]
            .map(|factor| (factor * c, self.ln_between_above(factor * c, outer, inner)))
            .into_iter()
            .filter(|p| p.1.is_finite())
            .collect();
        (ln_mass, right)
    }
}

/// ln of the largest alias on the right.
pub(super) fn alias(right: &[(f64, f64)], c: f64, epsilon: f64, period: f64) -> f64 {
    right.iter().map(|&(at, ln)| ln - at * epsilon - (at - c) * period).fold(f64::INFINITY, f64::min)
}

/// ln of Π(b+d)^T − Πb^T from the b and d of all factors; of Π d^T where there is no inner window (b = 0).
#[derive(Default)]
pub(super) struct Difference {
    pub(super) ln_inner: f64,
    pub(super) ratio: f64,
    pub(super) alone: bool,
}

impl Difference {
    pub(super) fn times(&mut self, low: f64, high: f64, times: f64) {
        if low == 0.0 {
            self.alone = true;
            self.ln_inner += times * high.ln();
        } else {
            self.ln_inner += times * low.ln();
            self.ratio += times * (high / low).ln_1p();
        }
    }

    pub(super) fn ln(&self) -> f64 {
        let value = match self.alone {
            true => self.ln_inner + self.ratio,
            false => self.ln_inner + ln_exp_m1(self.ratio),
        };
        // An overflow bounds nothing.
        if value.is_nan() { f64::INFINITY } else { value }
    }
}

/// ln(e^x − 1) for x ≥ 0.
pub(super) fn ln_exp_m1(x: f64) -> f64 {
    if x > 30.0 { x + (-(-x).exp()).ln_1p() } else { x.exp_m1().ln() }
}
