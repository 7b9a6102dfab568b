//! The transform of the measure between two windows along its line, with every error bounded.

use num_complex::Complex64;

use super::measure::{Difference, Run};
use super::nodes::{Body, Moments, Nodes, gaussian_moments, inner_holds, known_moments, ln_1p};
use super::window::Window;
use crate::loss::factor::exp_m1;

/// Nodes whose phase is below this are summed by the series of the exponential, to this many terms.
pub(super) const SMALL_PHASE: f64 = 0.05;

pub(super) const SERIES: usize = 9;

/// Terms below this share are dropped.
pub(super) const DEAD: f64 = 1e-16;

/// Terms that are added up side by side.
pub(super) const LANES: usize = 8;

/// Values between two looks at what has died.
pub(super) const BLOCK: usize = 32;

/// X = Π M_inner^T and Π M_outer^T/X at one z, as logarithms with bounds on their errors.
#[derive(Clone, Copy, Default)]
pub(super) struct Powers {
    pub(super) ln_inner: Complex64,
    pub(super) ln_ratio: Complex64,
    pub(super) inner_error: f64,
    pub(super) ratio_error: f64,
}

/// Σ w·e^{itd} over nodes with Im d ≥ 0, for rising t: every term decays, and those that have are dropped.
#[derive(Default)]
pub(super) struct Decaying {
    pub(super) nodes: Vec<Term>,
    /// A bound on what was dropped, for all larger t, and its terms: size and Im d.
    pub(super) dropped: f64,
    pub(super) dead: Vec<(f64, f64)>,
}

#[derive(Clone, Copy)]
pub(super) struct Term {
    pub(super) w: Complex64,
    pub(super) size: f64,
    /// The loss less its flat value.
    pub(super) d: Complex64,
    pub(super) slack: f64,
}

/// Terms side by side, for the vector units.
#[derive(Default)]
pub(super) struct Lanes {
    pub(super) re: [f64; LANES],
    pub(super) im: [f64; LANES],
    pub(super) turn_re: [f64; LANES],
    pub(super) turn_im: [f64; LANES],
}

impl Lanes {
    pub(super) fn set(&mut self, lane: usize, now: Complex64, turn: Complex64) {
        (self.re[lane], self.im[lane]) = (now.re, now.im);
        (self.turn_re[lane], self.turn_im[lane]) = (turn.re, turn.im);
    }

    /// Adds the terms up and turns them.
    #[inline]
    pub(super) fn turn(&mut self, re: &mut [f64; LANES], im: &mut [f64; LANES]) {
        for lane in 0..LANES {
            let (x, y) = (self.re[lane], self.im[lane]);
            re[lane] += x;
            im[lane] += y;
            self.re[lane] = x * self.turn_re[lane] - y * self.turn_im[lane];
            self.im[lane] = x * self.turn_im[lane] + y * self.turn_re[lane];
        }
    }
}

impl Decaying {
    pub(super) fn push(&mut self, w: Complex64, d: Complex64, slack: f64) {
        let size = w.norm();
        if size > 0.0 {
            self.nodes.push(Term { w, size, d, slack });
        }
    }

    /// The bound Σ|w|·e^{−t·Im d}, which falls with t.
    pub(super) fn size(&self, t: f64) -> f64 {
        let alive: f64 = self.nodes.iter().map(|n| n.size * (-t * n.d.im).exp()).sum();
        alive + self.dead.iter().map(|(size, im)| size * (-t * im).exp()).sum::<f64>()
    }

    /// The sums for the next values of t, with a bound on the error of each. Terms below `floor` are dropped.
    pub(super) fn block(
        &mut self,
        start: usize,
        step: f64,
        floor: f64,
        work: &mut f64,
    ) -> ([Complex64; BLOCK], f64) {
        let t = start as f64 * step;
        let end = t + BLOCK as f64 * step;
        let mut dropped = self.dropped;
        let dead = &mut self.dead;
        self.nodes.retain(|n| {
            let size = n.size * (-t * n.d.im).exp();
            if size < floor {
                dropped += size;
                dead.push((n.size, n.d.im));
            }
            size >= floor
        });
        self.dropped = dropped;
        let mut series = [Complex64::ZERO; SERIES];
        let mut turning: Vec<Lanes> = Vec::with_capacity(self.nodes.len() / LANES + 1);
        let (mut error, mut sizes, mut count) = (0.0, 0.0, 0);
        for n in &self.nodes {
            let phase = end * n.d.norm();
            let size = if phase < SMALL_PHASE {
                let mut power = n.w;
                for (m, sum) in series.iter_mut().enumerate() {
                    *sum += power;
                    power *= Complex64::I * n.d * (end / (m + 1) as f64);
                }
                n.size
            } else {
                // Exact again at the start of every block.
                let now = n.w * (Complex64::I * t * n.d).exp();
                if count % LANES == 0 {
                    turning.push(Lanes::default());
                }
                let last = turning.len() - 1;
                turning[last].set(count % LANES, now, (Complex64::I * step * n.d).exp());
                count += 1;
                now.norm()
            };
            sizes += size;
            error += size * (n.slack + 4.0 * phase);
        }
        *work += (count * (BLOCK + 16) + 4 * self.nodes.len()) as f64;
        let mut out = [Complex64::ZERO; BLOCK];
        for (i, out) in out.iter_mut().enumerate() {
            let share = (start + i) as f64 * step / end;
            let small = series.iter().rev().fold(Complex64::ZERO, |sum, term| sum * share + term);
            let (mut re, mut im) = ([0.0; LANES], [0.0; LANES]);
            for lanes in &mut turning {
                lanes.turn(&mut re, &mut im);
            }
            *out = small + Complex64::new(re.iter().sum(), im.iter().sum());
        }
        // One rounding for each term of a lane's sum, a few for each turn; the series was cut below 1e-17, and few
        // of its terms are larger than the roundings of one sum.
        let small = (self.nodes.len() - count) as f64;
        let roundings = (count / LANES) as f64 + small + 24.0 + 6.0 * BLOCK as f64;
        (out, f64::EPSILON * (error + roundings * sizes) + self.dropped)
    }
}

/// One factor on its way up a line.
pub(super) struct Rising<'a> {
    pub(super) nodes: &'a Nodes,
    pub(super) inner: Decaying,
    pub(super) between: Decaying,
    /// Bounds on the error of the quadrature.
    pub(super) quadrature: (f64, f64),
    /// M_inner(c) from above, M_between(c) and their sum.
    pub(super) most_inner: f64,
    pub(super) loud: f64,
    pub(super) whole: f64,
}

pub(super) struct Walk<'a> {
    pub(super) c: f64,
    pub(super) outer: Window,
    pub(super) inner: Window,
    pub(super) factors: Vec<Rising<'a>>,
    pub(super) ln_scale: f64,
    pub(super) terms: f64,
}

impl<'a> Walk<'a> {
    pub(super) fn new(run: &'a Run, c: f64, outer: Window, inner: Window) -> Self {
        let factors: Vec<Rising> =
            run.factors.iter().map(|nodes| Rising::new(nodes, c, outer, inner)).collect();
        let ln_scale = factors.iter().map(|f| f.nodes.times * f.whole.ln()).sum();
        Self { c, outer, inner, factors, ln_scale, terms: 0.0 }
    }

    /// The next values of J on the line, relative to e^{ln_scale}.
    pub(super) fn block(&mut self, start: usize, step: f64, out: &mut Vec<(Complex64, f64)>) {
        let mut powers = [Powers::default(); BLOCK];
        let (c, windows) = (self.c, (self.outer, self.inner));
        let none = self.inner == Window::None;
        for rising in &mut self.factors {
            let moments = rising.block(c, windows, start, step, &mut self.terms);
            for (power, m) in powers.iter_mut().zip(moments) {
                power.times(&m, rising.nodes.times, none && !rising.nodes.is_gaussian());
            }
        }
        let ln_scale = self.ln_scale;
        out.extend(powers.into_iter().map(|power| power.value(none, ln_scale)));
    }

    /// Bounds on ∫ |J|/t and ∫ |J|/t² from t on, relative to e^{ln_scale}.
    pub(super) fn rest(&self, from: f64) -> (f64, f64) {
        let (mut one, mut two) = (0.0, 0.0);
        let mut t = from;
        let mut last = (0.0, 0.0);
        for _ in 0..120 {
            let bound = self.envelope(t);
            last = (bound * std::f64::consts::LN_2, bound / (2.0 * t));
            one += last.0;
            two += last.1;
            t *= 2.0;
            if last.0 < 1e-30 {
                break;
            }
        }
        // The bound falls with t, so what follows is at most twice the last stretch for 1/t². For 1/t that is known
        // only where the bound has died out: a hundred more stretches would not add 1e-28.
        let one = if last.0 < 1e-30 { one + 1e-28 } else { f64::INFINITY };
        (one, two + 2.0 * last.1)
    }

    /// A bound on |J(t')| for all t' ≥ t: with b ≥ |M_inner| and d ≥ |M_between|, Π(b+d)^T − Πb^T, which grows
    /// with both. b and d are integrals of moduli along the line, taken at its nodes, which resolve them to many
    /// digits.
    pub(super) fn envelope(&self, t: f64) -> f64 {
        let mut difference = Difference::default();
        for rising in &self.factors {
            let (low, high) = rising.envelope(self.c, self.inner, t);
            difference.times(low, high, rising.nodes.times);
        }
        let whole = difference.ln();
        (whole - self.ln_scale).exp() * (1.0 + 1e-9)
    }
}

impl<'a> Rising<'a> {
    pub(super) fn new(nodes: &'a Nodes, c: f64, outer: Window, inner: Window) -> Self {
        let m = nodes.real(c, outer, inner);
        let most_inner = m.inner.re + m.inner_error;
        let (mut low, mut high) = (Decaying::default(), Decaying::default());
        let mut quadrature = (0.0, 0.0);
        if let Body::Round(round) = &nodes.body {
            quadrature = (round.quadrature(c, inner, Window::None), round.quadrature(c, outer, inner));
            for place in &round.along {
                let exponent = place.ln_q + (c + 1.0) * place.y;
                let (d, slack) = (place.y - round.flat, place.slack(c));
                low.push(inner.weighted(exponent, place.v), d, slack);
                high.push(outer.between(inner, exponent, place.v), d, slack);
            }
        }
        let loud = m.between.re + m.between_error;
        Self { nodes, inner: low, between: high, quadrature, most_inner, loud, whole: most_inner + loud }
    }

    pub(super) fn block(
        &mut self,
        c: f64,
        (outer, inner): (Window, Window),
        start: usize,
        step: f64,
        terms: &mut f64,
    ) -> Vec<Moments> {
        let at = |i: usize| Complex64::new(c, (start + i) as f64 * step);
        match &self.nodes.body {
            Body::Gaussian(square) => (0..BLOCK)
                .map(|i| {
                    let z = at(i);
                    let exponent = 0.5 * square * z * (z + 1.0);
                    gaussian_moments(exponent.exp(), exponent.norm())
                })
                .collect(),
            Body::Known { parts, untouched, relative_error } => {
                *terms += (BLOCK * parts.len() * 8) as f64;
                (0..BLOCK)
                    .map(|i| known_moments(parts, *untouched, *relative_error, at(i), outer, inner))
                    .collect()
            }
            Body::Round(round) => {
                let (quiet, quiet_error) = self.inner.block(start, step, DEAD * self.most_inner, terms);
                let (loud, loud_error) = self.between.block(start, step, DEAD * self.loud, terms);
                (0..BLOCK)
                    .map(|i| {
                        let angle = at(i).im * round.flat;
                        let turn = Complex64::from_polar(1.0, angle);
                        let relative = round.relative_error + f64::EPSILON * (4.0 + angle.abs());
                        let m = Moments {
                            inner: quiet[i] * turn,
                            between: loud[i] * turn,
                            inner_error: quiet_error
                                + self.quadrature.0
                                + round.pruned
                                + relative * self.most_inner,
                            between_error: loud_error
                                + self.quadrature.1
                                + round.pruned
                                + relative * self.between.size(start as f64 * step),
                        };
                        m.with_atom(round.atom, round.relative_error, outer, inner)
                    })
                    .collect()
            }
        }
    }

    /// Bounds on |M_inner| and |M_between| for all larger t.
    pub(super) fn envelope(&self, c: f64, inner: Window, t: f64) -> (f64, f64) {
        let room = 1.0 + 1e-9;
        match &self.nodes.body {
            Body::Gaussian(square) => (self.most_inner * (-0.5 * square * t * t).exp(), 0.0),
            Body::Known { parts, untouched, .. } => {
                let tilt = 0.5 * (c * (c + 1.0) - t * t);
                let (mut low, mut high) = (*untouched, 0.0);
                for &(square, q) in parts {
                    let size = q * (square * tilt).exp() * room;
                    if inner_holds(inner, square.sqrt()) { low += size } else { high += size }
                }
                if inner == Window::None { (0.0, low + high) } else { (low, high) }
            }
            Body::Round(round) => {
                let high = self.between.size(t) * room;
                if inner == Window::None {
                    return (0.0, high + round.atom);
                }
                let low = (self.inner.size(t) + round.atom) * room;
                (low.min(self.most_inner), high)
            }
        }
    }
}

impl Powers {
    /// Multiplies by one factor; `alone` where there is no inner window and all of it is between.
    pub(super) fn times(&mut self, m: &Moments, times: f64, alone: bool) {
        let rounding = |ln: Complex64| 4.0 * f64::EPSILON * ln.norm();
        if alone {
            let ln = times * m.between.ln();
            self.ln_inner += ln;
            self.inner_error += times * m.between_error / m.between.norm().max(1e-300) + rounding(ln);
            return;
        }
        let size = m.inner.norm().max(1e-300);
        let ratio = m.between / m.inner;
        let after = (1.0 + ratio).norm().max(1e-300);
        let ln_inner = times * m.inner.ln();
        let ln_ratio = times * if ratio.norm() < 0.5 { ln_1p(ratio) } else { (1.0 + ratio).ln() };
        self.ln_inner += ln_inner;
        self.ln_ratio += ln_ratio;
        self.inner_error += times * m.inner_error / size + rounding(ln_inner);
        self.ratio_error +=
            times * (m.between_error + ratio.norm() * m.inner_error) / (size * after) + rounding(ln_ratio);
    }

    /// J = X·(e^R − 1) relative to e^{ln_scale}, and a bound on its error: that of X counts with J, that of R with
    /// X·e^R.
    pub(super) fn value(&self, alone: bool, ln_scale: f64) -> (Complex64, f64) {
        let inner = (self.ln_inner - ln_scale).exp();
        let rounding = 8.0 * f64::EPSILON * (1.0 + ln_scale.abs());
        let relative = (self.inner_error + rounding).exp_m1();
        if alone {
            return (inner, inner.norm() * relative);
        }
        let value = if self.ln_ratio.norm() < 0.5 {
            inner * exp_m1(self.ln_ratio)
        } else {
            inner * (self.ln_ratio.exp() - 1.0)
        };
        let whole = (self.ln_inner + self.ln_ratio - ln_scale).re.exp();
        let cancelled =
            4.0 * f64::EPSILON * if self.ln_ratio.norm() < 0.5 { 0.0 } else { inner.norm() + whole };
        (value, value.norm() * relative + whole * self.ratio_error.exp_m1() * (1.0 + relative) + cancelled)
    }
}
