//! Smooth windows on how loud a round is.

use num_complex::Complex64;

use crate::loss::factor::exp_m1;

/// tan of the largest |arg V| on the edge of the strip: 6·arg V ≤ 1.41 leaves Re V⁶ ≥ 0.16·|V|⁶.
pub(super) const WIDEST: f64 = 0.239;

/// The power of a window.
pub(super) const POWER: i32 = 6;

/// V/v beyond which a window counts as closed: on the upper edge of the strip Re (V/v)⁶ ≥ 0.16·3.2⁶ > 170 there, and a
/// tilt of at most `STEEPEST`/v adds less than 130 to that.
pub(super) const CLOSED: f64 = 3.2;

pub(super) const STEEPEST: f64 = 40.0;

/// Which rounds a transform is about: all, or those within a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Window {
    All,
    Within(f64),
    None,
}

impl Window {
    /// (V/v)⁶; beyond the largest value W is no number any more.
    pub(super) fn exponent(self, v: Complex64) -> Complex64 {
        const LARGEST: f64 = 1e6;
        match self {
            Window::All => Complex64::ZERO,
            Window::Within(width) => {
                let u = v / width;
                if u.norm() > 10.0 { Complex64::new(LARGEST, 0.0) } else { u.powi(POWER) }
            }
            Window::None => Complex64::new(LARGEST, 0.0),
        }
    }

    /// The same on the real line.
    pub(super) fn real_exponent(self, v: f64) -> f64 {
        match self {
            Window::All => 0.0,
            Window::Within(width) => (v / width).min(10.0).powi(POWER),
            Window::None => 1e6,
        }
    }

    /// e^{exponent}·W.
    pub(super) fn weighted(self, exponent: Complex64, v: Complex64) -> Complex64 {
        match self {
            Window::None => Complex64::ZERO,
            Window::All | Window::Within(_) => (exponent - self.exponent(v)).exp(),
        }
    }

    /// e^{exponent}·(W of this window minus W of a smaller one).
    pub(super) fn between(self, inner: Window, exponent: Complex64, v: Complex64) -> Complex64 {
        if inner == Window::None {
            return self.weighted(exponent, v);
        }
        let (outer, inner) = (self.exponent(v), inner.exponent(v));
        -(exponent - outer).exp() * exp_m1(outer - inner)
    }

    /// Whether nodes up to where the window closes are enough at tilt c.
    pub(super) fn allows(self, c: f64) -> bool {
        match self {
            Window::All | Window::None => true,
            Window::Within(width) => c * width <= STEEPEST,
        }
    }

    /// Beyond this V the window is closed.
    pub(super) fn reach(self) -> f64 {
        match self {
            Window::All => f64::INFINITY,
            Window::Within(width) => CLOSED * width,
            Window::None => 0.0,
        }
    }
}
