//! The nodes of one factor on a line on which every term of its moment function decays.

use num_complex::Complex64;

use super::not_certified;
use super::window::{WIDEST, Window};
use crate::error::PrivacyError;
use crate::loss::factor::{Factor, Kind, exp_m1};
use crate::loss::round::{LN_PRUNED, REACH, Shape, softplus_complex};
use crate::normal;

/// (Largest shift)·(height of the line).
pub(super) const HEIGHT: f64 = 0.115;

/// 2π·height/step, less the logarithm of the number of rounds: the trapezoidal rule errs by that power of e, relative
/// to the edges of the strip.
pub(super) const RESOLUTION: f64 = 29.0;

/// Left end of u on a half line, where V and the density fall like e^u; what lies further left is a geometric
/// series, whose next term is e^{2u}.
pub(super) const LEFT_END: f64 = -26.0;

/// The most nodes of one factor.
pub(super) const MOST_NODES: f64 = 40_000.0;

/// How much wider the step is in searches, on the real line, where a few digits are enough.
pub(super) const COARSE: f64 = 3.0;

/// One factor on its line, for all tilts up to a largest one.
#[derive(Debug)]
pub(super) struct Nodes {
    pub(super) times: f64,
    pub(super) body: Body,
}

#[derive(Debug)]
pub(super) enum Body {
    /// µ².
    Gaussian(f64),
    /// (µ², q), and the probability that nothing differs.
    Known {
        parts: Vec<(f64, f64)>,
        untouched: f64,
        relative_error: f64,
    },
    Round(Round),
}

#[derive(Debug)]
pub(super) struct Round {
    pub(super) along: Vec<Place>,
    pub(super) edge: Vec<Place>,
    /// Loss, ln of its weight and V on the real line, for searches.
    pub(super) real: Vec<(f64, f64, f64)>,
    /// The loss where nothing is hit.
    pub(super) flat: f64,
    /// The probability of exactly that loss.
    pub(super) atom: f64,
    /// A bound on the moments of the components that were left out.
    pub(super) pruned: f64,
    pub(super) resolution: f64,
    pub(super) relative_error: f64,
}

/// A node: the loss, the logarithm of its weight under Q, and the distance from the flat value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) y: Complex64,
    pub(super) ln_q: Complex64,
    pub(super) v: Complex64,
}

/// M of one factor at one z: within the inner window, between the windows, and bounds on both errors.
#[derive(Clone, Copy, Default)]
pub(super) struct Moments {
    pub(super) inner: Complex64,
    pub(super) between: Complex64,
    pub(super) inner_error: f64,
    pub(super) between_error: f64,
}

impl Nodes {
    pub(super) fn new(factor: &Factor, cap: f64, window: Window) -> Result<Self, PrivacyError> {
        let times = factor.times as f64;
        let body = match &factor.kind {
            Kind::Gaussian(square) => Body::Gaussian(*square),
            Kind::Known { parts, untouched, relative_error } => {
                Body::Known { parts: parts.clone(), untouched: *untouched, relative_error: *relative_error }
            }
            Kind::Round { shape, relative_error } => {
                let atom = match shape {
                    Shape::Line { .. } => 0.0,
                    // 1 − P[Y > 0] − P[Y < 0].
                    Shape::Halves { parts, hit } => {
                        let inside = |&(shift, share): &(f64, f64)| {
                            share * libm::erf(0.5 * shift * std::f64::consts::FRAC_1_SQRT_2)
                        };
                        (1.0 - hit) * parts.iter().map(inside).sum::<f64>()
                    }
                };
                let parts = shape.parts();
                let shape = shape.pruned(cap);
                // Each of them is below e^{LN_PRUNED} along a line of some hundred units, at the largest tilt.
                let pruned = (parts - shape.parts()) as f64 * (LN_PRUNED + 8.0).exp();
                let resolution = RESOLUTION + times.ln();
                let (along, edge, real) = places(&shape, cap, window.reach(), resolution)?;
                let flat = match &shape {
                    Shape::Line { plus, minus } => {
                        Mixture::new(plus).ln_flat() - Mixture::new(minus).ln_flat()
                    }
                    Shape::Halves { .. } => 0.0,
                };
                Body::Round(Round {
                    along,
                    edge,
                    real,
                    flat,
                    atom,
                    pruned,
                    resolution,
                    relative_error: *relative_error,
                })
            }
        };
        Ok(Self { times, body })
    }

    pub(super) fn is_gaussian(&self) -> bool {
        matches!(self.body, Body::Gaussian(_))
    }

    /// About M_inner and M_between at a real c.
    pub(super) fn estimate(&self, c: f64, outer: Window, inner: Window) -> (f64, f64) {
        let Body::Round(round) = &self.body else {
            let m = self.real(c, outer, inner);
            return (m.inner.re, m.between.re);
        };
        let (mut low, mut high) = (0.0, 0.0);
        for &(y, ln_q, v) in &round.real {
            let exponent = ln_q + (c + 1.0) * y;
            let (wide, narrow) = (outer.real_exponent(v), inner.real_exponent(v));
            let size = (exponent - wide).exp();
            low += (exponent - narrow).exp();
            high -= size * (wide - narrow).exp_m1();
        }
        if inner == Window::None { (0.0, high + round.atom) } else { (low + round.atom, high) }
    }

    /// The transforms at a real c.
    pub(super) fn real(&self, c: f64, outer: Window, inner: Window) -> Moments {
        match &self.body {
            Body::Gaussian(square) => {
                let value = (0.5 * square * c * (c + 1.0)).exp();
                gaussian_moments(Complex64::new(value, 0.0), *square * c.abs() * (c + 1.0).abs())
            }
            Body::Known { parts, untouched, relative_error } => {
                known_moments(parts, *untouched, *relative_error, Complex64::new(c, 0.0), outer, inner)
            }
            Body::Round(round) => {
                let mut sums = Sums::default();
                for place in &round.along {
                    let exponent = place.ln_q + (c + 1.0) * place.y;
                    let (low, high) =
                        (inner.weighted(exponent, place.v), outer.between(inner, exponent, place.v));
                    sums.add(low, high, place.slack(c));
                }
                let mut result = sums.moments(round.along.len(), round.relative_error);
                result.inner_error += round.quadrature(c, inner, Window::None) + round.pruned;
                result.between_error += round.quadrature(c, outer, inner) + round.pruned;
                result.with_atom(round.atom, round.relative_error, outer, inner)
            }
        }
    }
}

impl Round {
    /// The error of the trapezoidal rule: 2·e^{−resolution}·∫|q·(W_outer − W_inner)·e^{(c+1)Y}| along the upper edge of the strip,
    /// twice for its coarse nodes. Along the lower edge, the real line, the integrand is positive, so its integral is
    /// the moment itself, and by Cauchy's theorem no larger.
    pub(super) fn quadrature(&self, c: f64, outer: Window, inner: Window) -> f64 {
        let size = |place: &Place| outer.between(inner, place.ln_q + (c + 1.0) * place.y, place.v).norm();
        4.0 * (-self.resolution).exp() * self.edge.iter().map(size).sum::<f64>()
    }
}

pub(super) fn gaussian_moments(value: Complex64, exponent: f64) -> Moments {
    // A Gaussian has no flat part; as it is a factor of every term, all of it counts as quiet.
    let error = value.norm() * f64::EPSILON * (8.0 + 4.0 * exponent);
    Moments { inner: value, between: Complex64::ZERO, inner_error: error, between_error: 0.0 }
}

pub(super) fn known_moments(
    parts: &[(f64, f64)],
    untouched: f64,
    relative_error: f64,
    z: Complex64,
    outer: Window,
    inner: Window,
) -> Moments {
    let half = 0.5 * z * (z + 1.0);
    let mut result = Moments::default();
    if inner == Window::None {
        result.between += untouched;
    } else {
        result.inner += untouched;
    }
    for &(square, q) in parts {
        // µ, the scale of this component, decides to which side it belongs.
        let (low, high) = (inner_holds(inner, square.sqrt()), inner_holds(outer, square.sqrt()));
        let term = q * (square * half).exp();
        if low {
            result.inner += term;
        } else if high {
            result.between += term;
        }
    }
    let rounding = (parts.len() + 64) as f64 * f64::EPSILON + relative_error;
    let size: f64 = parts.iter().map(|&(square, q)| q * (square * half.re).exp()).sum();
    let spread = 4.0 * f64::EPSILON * parts.iter().map(|p| p.0).fold(0.0, f64::max) * half.norm();
    result.inner_error = (rounding + spread) * (untouched + size);
    result.between_error =
        (rounding + spread) * if result.between.norm() > 0.0 { untouched + size } else { 0.0 };
    result
}

/// Whether a component of scale µ lies within a window; the split of a mixture may be sharp, since its
/// components are told apart.
pub(super) fn inner_holds(window: Window, mu: f64) -> bool {
    match window {
        Window::All => true,
        Window::Within(width) => mu < 0.1 * width,
        Window::None => false,
    }
}

/// Sums of complex terms in eight lanes, with the sums of their sizes.
#[derive(Default)]
pub(super) struct Sums {
    pub(super) inner: [Complex64; 8],
    pub(super) between: [Complex64; 8],
    pub(super) inner_slack: f64,
    pub(super) between_slack: f64,
    pub(super) inner_size: f64,
    pub(super) between_size: f64,
    pub(super) lane: usize,
}

impl Sums {
    #[inline]
    pub(super) fn add(&mut self, inner: Complex64, between: Complex64, slack: f64) {
        self.inner[self.lane] += inner;
        self.between[self.lane] += between;
        let (a, b) = (inner.norm(), between.norm());
        self.inner_size += a;
        self.between_size += b;
        self.inner_slack += a * slack;
        self.between_slack += b * slack;
        self.lane = (self.lane + 1) % 8;
    }

    pub(super) fn moments(&self, count: usize, relative_error: f64) -> Moments {
        let rounding = (count as f64 / 8.0 + 24.0) * f64::EPSILON + relative_error;
        Moments {
            inner: self.inner.iter().sum(),
            between: self.between.iter().sum(),
            inner_error: rounding * self.inner_size + f64::EPSILON * self.inner_slack,
            between_error: rounding * self.between_size + f64::EPSILON * self.between_slack,
        }
    }
}

impl Moments {
    pub(super) fn with_atom(mut self, atom: f64, relative_error: f64, outer: Window, inner: Window) -> Self {
        let error = (8.0 * f64::EPSILON + relative_error) * atom;
        // The atom at Y = 0 lies within every window.
        if inner != Window::None {
            self.inner += atom;
            self.inner_error += error;
        } else if outer != Window::None {
            self.between += atom;
            self.between_error += error;
        }
        self
    }
}

impl Place {
    /// How many roundings the exponential of this node may be off by at tilt c.
    pub(super) fn slack(&self, c: f64) -> f64 {
        16.0 + 4.0 * (self.ln_q.norm() + (c + 1.0).abs() * self.y.norm())
    }
}

/// Nodes on the line, on the upper edge of the strip, and on the real line (loss, ln of its weight, V).
type Places = (Vec<Place>, Vec<Place>, Vec<(f64, f64, f64)>);

/// The step of the trapezoidal rule on a line of this height.
pub(super) fn step_of(height: f64, resolution: f64) -> f64 {
    std::f64::consts::TAU * height / resolution
}

/// The end of a stretch that begins where the window is open (at 0 or at the other end), moved inwards to where it
/// closes.
pub(super) fn ended(end: f64, open: &dyn Fn(f64) -> bool) -> f64 {
    if open(end) {
        return end;
    }
    let (mut inside, mut outside) = (if open(0.0) { 0.0 } else { LEFT_END.min(-REACH) }, end);
    for _ in 0..40 {
        let middle = 0.5 * (inside + outside);
        if open(middle) { inside = middle } else { outside = middle }
    }
    outside
}

/// The nodes on the line and, more coarsely, on the upper edge of the strip.
pub(super) fn places(shape: &Shape, cap: f64, most: f64, resolution: f64) -> Result<Places, PrivacyError> {
    let (mut along, mut edge, mut real) = (Vec::new(), Vec::new(), Vec::new());
    let reach = (cap + 1.0).max(1.0);
    let mut stretch = |along: &mut Vec<Place>,
                       edge: &mut Vec<Place>,
                       (low, high): (f64, f64),
                       height: f64,
                       at: &dyn Fn(Complex64) -> Place| {
        let step = step_of(height, resolution);
        // V rises away from where it is flat: nothing is needed where the window is closed.
        let open = |x: f64| at(Complex64::new(x, 0.0)).v.re <= most;
        let (low, high) = (ended(low, &open), ended(high, &open));
        let count = (high - low) / step;
        if count + along.len() as f64 > MOST_NODES {
            return Err(not_certified("too many nodes"));
        }
        for i in 0..=count as usize {
            let mut place = at(Complex64::new(low + i as f64 * step, height));
            place.ln_q += step.ln();
            along.push(place);
        }
        // The strip reaches twice as far from the real line.
        for i in 0..=(count / COARSE) as usize {
            let place = at(Complex64::new(low + i as f64 * COARSE * step, 0.0));
            real.push((place.y.re, place.ln_q.re + (COARSE * step).ln(), place.v.re));
        }
        // The modulus is smooth on the scale of the height.
        let wide = 4.0 * step;
        for i in 0..=(count / 4.0) as usize {
            let mut place = at(Complex64::new(low + i as f64 * wide, 2.0 * height));
            place.ln_q += wide.ln();
            if place.v.im.abs() > WIDEST * place.v.re {
                return Err(not_certified("no strip"));
            }
            edge.push(place);
        }
        Ok(())
    };
    match shape {
        Shape::Line { plus, minus } => {
            let widest = |parts: &[(f64, f64)]| parts.iter().map(|p| p.0.abs()).fold(0.0, f64::max);
            let largest = widest(plus).max(widest(minus)).max(1e-9);
            let height = (HEIGHT / largest).min(1.0);
            // Where Y falls with x, the line on which Im Y ≥ 0 lies below the real one: mirror it.
            let falling = plus.is_empty();
            let right = if falling { widest(minus) } else { reach * widest(plus) };
            let left = if falling || minus.is_empty() { 0.0 } else { widest(minus) };
            let (up, down) = (Mixture::new(plus), Mixture::new(minus));
            stretch(&mut along, &mut edge, (-left - REACH, right + REACH), height, &|x| {
                let (up, down) = (up.at(x), down.at(x));
                let density = -0.5 * x * x - 0.5 * std::f64::consts::TAU.ln();
                let place = Place { y: up.ln - down.ln, ln_q: density + down.ln, v: up.above + down.above };
                if falling {
                    Place { y: place.y.conj(), ln_q: place.ln_q.conj(), v: place.v.conj() }
                } else {
                    place
                }
            })?;
        }
        Shape::Halves { parts, hit } => {
            for &(shift, share) in parts {
                let height = HEIGHT / shift.max(1.0);
                // Σ_{n ≥ 1} h·e^{u₀ − nh}, the nodes left of the first one.
                let step = step_of(height, resolution);
                let first = Complex64::new(LEFT_END, height);
                let ln_q =
                    share.ln() + normal::ln_density(0.5 * shift) + first + step.ln() - step.exp_m1().ln();
                let y = *hit * shift * first.exp();
                along.push(Place { y, ln_q, v: y });
                along.push(Place { y: -y.conj(), ln_q: ln_q.conj(), v: y.conj() });
                for mirrored in [false, true] {
                    let centre = if mirrored { 1.0 } else { reach } * shift;
                    let ends = (LEFT_END, centre - 0.5 * shift + REACH);
                    stretch(&mut along, &mut edge, ends, height, &|u| {
                        let above = softplus_complex(u);
                        let x = 0.5 * shift + above;
                        let l = shift * above;
                        let y = if l.re < 30.0 {
                            ln_1p(*hit * exp_m1(l))
                        } else {
                            l + (*hit + (1.0 - hit) * (-l).exp()).ln()
                        };
                        let density = -0.5 * x * x - 0.5 * std::f64::consts::TAU.ln();
                        let ln_q = share.ln() + density - softplus_complex(-u);
                        if mirrored {
                            Place { y: -y.conj(), ln_q: (ln_q + y).conj(), v: y.conj() }
                        } else {
                            Place { y, ln_q, v: y }
                        }
                    })?;
                }
            }
        }
    }
    Ok((along, edge, real))
}

/// A mixture Σ b·e^{ax − a²/2}, with its flat value b₀ (the weight of a = 0) apart.
pub(super) struct Mixture<'a> {
    pub(super) parts: &'a [(f64, f64)],
    pub(super) flat: f64,
}

/// The logarithm of a mixture, and its distance from that of the flat value.
pub(super) struct Logarithm {
    pub(super) ln: Complex64,
    pub(super) above: Complex64,
}

impl<'a> Mixture<'a> {
    pub(super) fn new(parts: &'a [(f64, f64)]) -> Self {
        Self { parts, flat: parts.iter().filter(|p| p.0 == 0.0).map(|p| p.1).sum() }
    }

    /// ln b₀; 0 where nothing is flat.
    pub(super) fn ln_flat(&self) -> f64 {
        if self.flat > 0.0 { self.flat.ln() } else { 0.0 }
    }

    pub(super) fn at(&self, x: Complex64) -> Logarithm {
        if self.parts.is_empty() {
            return Logarithm { ln: Complex64::ZERO, above: Complex64::ZERO };
        }
        let hits = self.parts.iter().filter(|p| p.0 != 0.0);
        let largest = hits.clone().map(|&(a, _)| a * x.re - 0.5 * a * a).fold(0.0, f64::max);
        let sum: Complex64 = hits.map(|&(a, b)| b * (a * x - 0.5 * a * a - largest).exp()).sum();
        if self.flat == 0.0 {
            // Nothing is flat: every round is loud.
            return Logarithm { ln: largest + sum.ln(), above: Complex64::new(1e30, 0.0) };
        }
        let above = if largest < 30.0 {
            ln_1p(sum * (largest.exp() / self.flat))
        } else {
            largest - self.flat.ln() + (sum + self.flat * (-largest).exp()).ln()
        };
        Logarithm { ln: self.flat.ln() + above, above }
    }
}

/// ln(1 + z) without cancellation.
pub(super) fn ln_1p(z: Complex64) -> Complex64 {
    Complex64::new(0.5 * (2.0 * z.re + z.norm_sqr()).ln_1p(), z.im.atan2(1.0 + z.re))
}
