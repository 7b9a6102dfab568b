//! Runs of few rounds: the law of the loss, split by how loud its rounds are.
//!
//! A round that hits no differing sample has a loss near one value, on the scale of the sampling rate; a
//! hit is larger by orders of magnitude. On a vertical line the moment function of such a round does not
//! decay before 1/rate, and a few rounds of it hardly at all, so [`super::contour`] needs too many nodes.
//!
//! Let V ≥ 0 be the distance of a round's loss from its flat value and W_v = e^{−(V/v)⁶} a smooth window.
//! With M_v(z) = E_P[W_v·e^{zY}] per round, M_∞ = M, and windows ∞ = v₀ > v₁ > … > v_n,
//!
//! ```text
//! M^T = Σ_j (M_{v_j}^T − M_{v_{j+1}}^T) + M_{v_n}^T.
//! ```
//!
//! Each term is the transform of a positive measure, since 0 ≤ W ≤ 1 and W rises with v: that of the paths on
//! which every round is within window j and not every one within window j+1. A term varies on one scale only
//! and is inverted on a line of its own. The last one, all rounds quiet, is bounded by Chernoff:
//! its part of δ(ε), P[Y>ε] and e^ε·Q[Y>ε] is at most M_{v_n}(c)^T·e^{−cε} for every c > 0.
//!
//! The nodes of M_v lie on a line in the complex plane of x (or of u on a half line) on which Im Y ≥ 0, so
//! that e^{itY} decays instead of oscillating. By Cauchy's theorem the integral is the same; the number of nodes
//! does not depend on t, and Σ|terms|, which falls with t, bounds everything past the last node.
//!
//! *The strip.* Let a be the largest shift and θ the height of the line. ln(1 + S) with S in the sector
//! 0 ≤ arg S ≤ ψ lies in that sector, because d/ds ln(1 + sS) = S/(1 + sS) does. So arg V stays within ± a·Im x on
//! the line; on a half line its derivative at Im u = 0 is at most max(1, a). W is bounded by one where 6·|arg V| < π/2.
//! arg V is harmonic and 0 on the real line, so it is enough to look at the upper edge, and every node there is
//! looked at.

mod level;
mod measure;
mod nodes;
mod walk;
mod window;

use std::sync::Arc;

use num_complex::Complex64;

use super::factor::Factor;
use crate::error::PrivacyError;
use crate::interval::Interval;
use level::Level;
use measure::{Run, alias};
use walk::{BLOCK, Walk};
use window::Window;

/// The most values on a line, and the most terms that all lines of a stack may cost.
const MOST_VALUES: usize = 60_000;

const MOST_TERMS: f64 = 4e7;

/// ln of the share of a result that aliases and the quiet rest may take.
const LN_NEGLIGIBLE: f64 = -19.0;

/// How far apart two windows are where the inner one is not the last.
const RATIO: f64 = 24.0;

/// ln of the digits that may be lost by a line away from the saddle point, if its period is shorter.
const LN_LOST: f64 = 9.0;

/// The most levels of a stack.
const MOST_LEVELS: usize = 12;

fn not_certified(why: &str) -> PrivacyError {
    PrivacyError::NotCertified { what: "the privacy loss", why: why.to_string() }
}

/// What is above ε: δ, P[Y>ε] and Q[Y>ε].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Above {
    pub delta: Interval,
    pub p: Interval,
    pub q: Interval,
}

impl Above {
    const NOTHING: Self = Self {
        delta: Interval { lower: 0.0, upper: 0.0 },
        p: Interval { lower: 0.0, upper: 0.0 },
        q: Interval { lower: 0.0, upper: 0.0 },
    };

    fn plus(self, other: Self) -> Self {
        let sum = |a: Interval, b: Interval| Interval { lower: a.lower + b.lower, upper: a.upper + b.upper };
        Self { delta: sum(self.delta, other.delta), p: sum(self.p, other.p), q: sum(self.q, other.q) }
    }
}

/// The levels that answer for thresholds near the one they were made for.
#[derive(Debug)]
pub(crate) struct Stack {
    levels: Vec<Level>,
    /// ln M_{v_n}(c)^T from above at some c, for what is quiet throughout; `None` where the levels hold everything.
    quiet: Option<Vec<(f64, f64)>>,
}

impl Stack {
    /// The levels for ε, of at most `room` terms, and the terms that were added up.
    ///
    /// # Guarantee
    /// The values of [`above`](Self::above) hold for every ε ≥ 0, and are narrow near this one.
    pub(crate) fn new(factors: &[Factor], epsilon: f64, room: f64) -> (Result<Self, PrivacyError>, f64) {
        let mut builder =
            Builder { factors, epsilon, runs: Vec::new(), terms: 0.0, room: room.min(MOST_TERMS) };
        let stack = builder.stack();
        (stack, builder.terms)
    }

    pub(crate) fn above(&self, epsilon: f64) -> Above {
        let mut sum = Above::NOTHING;
        for level in &self.levels {
            sum = sum.plus(level.above(epsilon));
        }
        let (delta, p) = self.quiet_rest(epsilon);
        sum.delta.upper += delta;
        sum.p.upper += p;
        sum.q.upper += p * (-epsilon).exp();
        Above { delta: sum.delta.clamp(0.0, 1.0), p: sum.p.clamp(0.0, 1.0), q: sum.q.clamp(0.0, 1.0) }
    }

    /// Bounds on the quiet paths' parts of δ(ε) and of P[Y>ε].
    fn quiet_rest(&self, epsilon: f64) -> (f64, f64) {
        let Some(quiet) = &self.quiet else { return (0.0, 0.0) };
        let least = |of: fn(f64) -> f64| {
            let bound = |p: &(f64, f64)| chernoff(*p, epsilon) + of(p.0);
            quiet.iter().map(bound).fold(f64::INFINITY, f64::min).exp().min(1.0)
        };
        (least(ln_delta_kernel), least(|_| 0.0))
    }
}

/// ln of M(c)^T·e^{−cε}, with room for its roundings.
fn chernoff((c, ln_m): (f64, f64), epsilon: f64) -> f64 {
    ln_m - c * epsilon + 1e-12 * (1.0 + ln_m.abs() + c * epsilon)
}

/// ln of the bound on the quiet paths' part of δ(ε).
fn least_quiet(quiet: &[(f64, f64)], epsilon: f64) -> f64 {
    quiet.iter().map(|&p| chernoff(p, epsilon) + ln_delta_kernel(p.0)).fold(f64::INFINITY, f64::min)
}

/// (1 − e^{−x})₊ ≤ min(1, x₊) ≤ min(1, 1/(e·c))·e^{cx} for every x and c > 0.
fn ln_delta_kernel(c: f64) -> f64 {
    -(1.0 + c.ln()).max(0.0)
}

struct Builder<'a> {
    factors: &'a [Factor],
    epsilon: f64,
    /// Nodes by window, the last ones of each.
    runs: Vec<Arc<Run>>,
    /// Terms added up so far, and their limit.
    terms: f64,
    room: f64,
}

impl Builder<'_> {
    /// The nodes for a window, rebuilt where the tilt exceeds what they are good for.
    fn run(&mut self, c: f64, window: Window) -> Result<Arc<Run>, PrivacyError> {
        if let Some(run) = self.runs.iter().find(|run| run.window == window && run.cap >= c) {
            return Ok(Arc::clone(run));
        }
        let run = Arc::new(Run::new(self.factors, (2.0 * c).max(8.0), window)?);
        // A node costs a few logarithms and exponentials.
        self.terms += 100.0 * run.count();
        if self.terms > self.room {
            return Err(not_certified("too many nodes"));
        }
        self.runs.retain(|run| run.window != window);
        self.runs.push(Arc::clone(&run));
        Ok(run)
    }

    fn ln_between(&mut self, c: f64, outer: Window, inner: Window) -> Result<f64, PrivacyError> {
        Ok(self.run(c, outer)?.about_between(c, outer, inner))
    }

    /// The c = 2^{i/2} with the smallest ln J(c) − cε − ln c(1+c), which is convex in c, and that value.
    fn saddle(&mut self, outer: Window, inner: Window, start: f64) -> Result<(f64, f64), PrivacyError> {
        let epsilon = self.epsilon;
        let mut cost = |i: i32| -> Result<f64, PrivacyError> {
            let c = (0.5 * f64::from(i)).exp2();
            Ok(self.ln_between(c, outer, inner)? - c * epsilon - (c * (1.0 + c)).ln())
        };
        let mut i = (2.0 * start.log2()).round() as i32;
        let mut here = cost(i)?;
        let up = cost(i + 1).unwrap_or(f64::INFINITY);
        let stride = if up < here { 1 } else { -1 };
        loop {
            let next = cost(i + stride).unwrap_or(f64::INFINITY);
            if next.is_nan() || next >= here || !(-80..=40).contains(&i) {
                break;
            }
            (i, here) = (i + stride, next);
        }
        if !here.is_finite() {
            return Err(not_certified("no saddle point"));
        }
        Ok(((0.5 * f64::from(i)).exp2(), here))
    }

    /// Bounds on ln M_window(c)^T at tilts around the one where its Chernoff bound at ε is smallest.
    fn quiet(&mut self, window: Window, start: f64) -> Result<Vec<(f64, f64)>, PrivacyError> {
        let epsilon = self.epsilon;
        let mut at = |i: i32| -> f64 {
            let c = f64::from(i).exp2();
            let Ok(run) = self.run(c, window) else { return f64::INFINITY };
            let bound = run.about_quiet(c, window) - c * epsilon + ln_delta_kernel(c);
            if bound.is_nan() { f64::INFINITY } else { bound }
        };
        let mut i = start.log2().round() as i32;
        let mut here = at(i);
        let stride = if at(i + 1) < here { 1 } else { -1 };
        for _ in 0..40 {
            let next = at(i + stride);
            if next.is_nan() || next >= here {
                break;
            }
            (i, here) = (i + stride, next);
        }
        let mut points = Vec::new();
        for c in [0.5, 1.0, 2.0].map(|factor| factor * f64::from(i).exp2()) {
            if let Ok(run) = self.run(c, window) {
                points.push((c, run.ln_quiet(c, window)));
            }
        }
        points.retain(|p| p.1.is_finite());
        Ok(points)
    }

    fn stack(&mut self) -> Result<Stack, PrivacyError> {
        let epsilon = self.epsilon;
        let mut levels: Vec<Level> = Vec::new();
        let mut outer = Window::All;
        let mut start = 1.0;
        let mut found = 0.0_f64;
        for _ in 0..MOST_LEVELS {
            let (c, cost) = self.saddle(outer, Window::None, start)?;
            start = c;
            if cost < -500.0 {
                // Nothing lies above ε that any δ could see.
                let quiet = self.quiet(outer, c)?;
                return Ok(Stack { levels, quiet: Some(quiet) });
            }
            // About the period that this measure needs.
            let scale = (8.0 - LN_NEGLIGIBLE - cost.min(0.0)) / c;
            let widest = match outer {
                Window::Within(width) => width / 4.0,
                _ => f64::INFINITY,
            };
            // A window so narrow that quiet rounds cannot exceed ε ends the stack.
            let mut last = None;
            for share in [1.5, 2.0, 3.0, 4.0, 6.0, 10.0, 16.0] {
                let width = epsilon / share;
                if !(width < widest && width > 0.4 * scale / RATIO) {
                    continue;
                }
                let inner = Window::Within(width);
                let (c, cost) = self.saddle(outer, inner, c)?;
                let quiet = self.quiet(inner, 4.0 * c)?;
                let rest = least_quiet(&quiet, epsilon);
                if rest < (cost - 2.0).max(found.ln()) + LN_NEGLIGIBLE {
                    last = Some((inner, c, cost, quiet));
                    break;
                }
            }
            if let Some((inner, c, cost, quiet)) = last {
                levels.push(self.level(outer, inner, c, cost)?);
                return Ok(Stack { levels, quiet: Some(quiet) });
            }
            let width = (scale / RATIO).min(widest);
            let inner = Window::Within(width);
            // Where nothing is quiet at this tilt, the whole measure varies on its own scale.
            let run = self.run(c, outer)?;
            let shares = run.about_quiet(c, inner) - run.about_between(c, outer, Window::None);
            if shares < LN_NEGLIGIBLE {
                levels.push(self.level(outer, Window::None, c, cost)?);
                return Ok(Stack { levels, quiet: None });
            }
            let (c, cost) = self.saddle(outer, inner, c)?;
            let level = self.level(outer, inner, c, cost)?;
            found += level.above(epsilon).delta.lower;
            levels.push(level);
            let quiet = self.quiet(inner, 4.0 * c)?;
            let rest = least_quiet(&quiet, epsilon);
            if rest < found.ln() + LN_NEGLIGIBLE {
                return Ok(Stack { levels, quiet: Some(quiet) });
            }
            outer = inner;
        }
        Err(not_certified("too many levels"))
    }

    /// Away from the saddle point a line may have a shorter period: a smaller tilt reaches less far to the right. Of
    /// the tilts that lose few digits, the one with the shortest period, both by estimates.
    fn tilt_and_period(
        &mut self,
        outer: Window,
        inner: Window,
        saddle: f64,
        cost: f64,
    ) -> Result<(f64, f64), PrivacyError> {
        let epsilon = self.epsilon;
        let aim = cost - 2.0 + LN_NEGLIGIBLE;
        let steps: Vec<f64> = (-8..=6).map(|i| saddle * (0.5 * f64::from(i)).exp2()).collect();
        let mut points = Vec::new();
        for &c in &steps {
            points.push((c, self.ln_between(c, outer, inner).unwrap_or(f64::INFINITY)));
        }
        let ln_mass = self.ln_between(0.0, outer, inner)?.min(0.0);
        let mut best = (saddle, f64::INFINITY);
        for (i, &(c, ln)) in points.iter().enumerate() {
            if c > 2.0 * saddle || ln - c * epsilon - (c * (1.0 + c)).ln() > cost + LN_LOST {
                continue;
            }
            let left = (ln_mass - aim) / c;
            let right = points[i + 1..]
                .iter()
                .map(|&(at, ln)| (ln - at * epsilon - aim) / (at - c))
                .fold(f64::INFINITY, f64::min);
            let period = left.max(right).max(1e-9 / c);
            if period < best.1 {
                best = (c, period);
            }
        }
        if best.1.is_finite() { Ok(best) } else { Err(not_certified("aliasing")) }
    }

    /// The measure between two windows on the line Re z = c; `cost` is about ln of its part of δ(ε).
    fn level(&mut self, outer: Window, inner: Window, c: f64, cost: f64) -> Result<Level, PrivacyError> {
        let aim = cost - 2.0 + LN_NEGLIGIBLE;
        let (c, period) = self.tilt_and_period(outer, inner, c, cost)?;
        let epsilon = self.epsilon;
        let (terms, room) = (self.terms, self.room);
        let run = self.run(8.0 * c, outer).or_else(|_| self.run(2.0 * c, outer))?;
        let run = &*run;
        let (ln_mass, right) = run.aliases(c, outer, inner);
        let mut period = period;
        for _ in 0..40 {
            if (ln_mass - c * period).max(alias(&right, c, epsilon, period)) < aim {
                break;
            }
            period *= 1.15;
        }
        let mut walk = Walk::new(run, c, outer, inner);
        let step = std::f64::consts::TAU / period;
        let mut values: Vec<(Complex64, f64)> = Vec::new();
        let (mut sum, mut next_look) = (0.0, 0);
        let ln_scale = walk.ln_scale;
        let rest = loop {
            walk.block(values.len(), step, &mut values);
            if terms + walk.terms > room || values.len() > MOST_VALUES {
                self.terms = terms + walk.terms;
                return Err(not_certified("truncation"));
            }
            let from = values.len() - BLOCK;
            for (j, (value, _)) in values.iter().enumerate().skip(from) {
                let z = Complex64::new(c, j as f64 * step);
                let half = if j == 0 { 0.5 } else { 1.0 };
                sum += half * (value * Complex64::from_polar(1.0, -z.im * epsilon) / (z * (z + 1.0))).re;
            }
            let end = (values.len() as f64 - 0.5) * step;
            let size = values[values.len() - 1].0.norm();
            let wanted = LN_NEGLIGIBLE.exp() * sum.abs();
            if values.len() >= next_look && size / (1.0 + end) < 64.0 * wanted * step {
                let rest = walk.rest(end);
                if rest.1 < wanted * step {
                    break rest;
                }
                // A look costs as much as some blocks.
                next_look = values.len() + values.len() / 8;
            }
        };
        self.terms = terms + walk.terms;
        Ok(Level { c, period, ln_scale, values, rest, ln_mass, right })
    }
}
