//! The privacy loss of a whole run through its moment function: adversary A₀, and A₁ where its law
//! is too wide to list.

mod budget;
mod cells;
pub(crate) mod contour;
pub(crate) mod factor;
mod far;
pub(crate) mod grid;
mod lattice;
mod layers;
mod line;
mod piece;
pub(crate) mod round;
mod single;
mod sums;
mod tails;
#[cfg(test)]
mod tests;
mod transform;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::curve::{Curve, CurvePoint, check_delta, check_epsilon, epsilon_of};
use crate::error::PrivacyError;
use crate::interval::Interval;
pub(crate) use budget::Budget;
use budget::MOST_WORK;
use contour::{Contour, cumulants};
use factor::{Cumulants, Factor, Kind};
use lattice::{Lattice, Near};

/// The privacy loss Y = ln(dP/dQ) of a pair of distributions, as a product of moment functions.
///
/// A certificate holds on any line Re z = c and is narrowest near the saddle point. Lines are taken
/// from a geometric grid of c and cached, so that many questions share a few of them.
#[derive(Debug)]
pub(crate) struct Loss {
    factors: Vec<Factor>,
    /// Probability left out of the factors; charged to δ.
    missing: f64,
    kept: Mutex<Kept>,
    budget: Arc<Budget>,
}

#[derive(Debug, Default)]
struct Kept {
    cumulants: HashMap<Tilt, Cumulants>,
    /// Lines by tilt; those that were given up are not tried again.
    lines: HashMap<(Tilt, usize), Result<Arc<Contour>, PrivacyError>>,
    lattices: Vec<Arc<Lattice>>,
    /// How often none could be made.
    without_lattice: u32,
    /// What [`Loss::ln_bound`] has found.
    bounds: HashMap<Tilt, (f64, f64)>,
}

/// c = ±2^{step/64}.
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
        let size = (f64::from(self.step) / 64.0).exp2();
        if self.negative { -size } else { size }
    }

    fn nearest(c: f64) -> Self {
        Self { negative: c < 0.0, step: COARSE * (64.0 / f64::from(COARSE) * c.abs().log2()).round() as i32 }
    }
}

/// Steps of the grid that are searched: c from 1e-9 to 1e9.
const STEPS: std::ops::RangeInclusive<i32> = -1920..=1920;
/// The most rounds that are put on a lattice.
const MOST_ROUNDS: u64 = 1_000_000;
/// The relative width of ε that needs no lattice.
const FINE_EPSILON: f64 = 1e-5;
/// How often a lattice is tried in vain, and the most that are made for one loss.
const MOST_FAILURES: u32 = 3;
const MOST_LATTICES: usize = 8;
/// The relative width of ε on a lattice that needs no line.
const FINE_LATTICE_EPSILON: f64 = 1e-6;
/// How many factors of e a line may lose between its saddle point and what is asked for.
const MOST_LOST: f64 = 12.0;
/// The most values on a line, and where a lattice would take less time.
const MOST_VALUES: usize = 1 << 18;
const VALUES_BESIDE_LATTICE: usize = 1 << 16;
/// The relative width of δ on a lattice that needs no other one.
const FINE_LATTICE: f64 = 1e-3;
/// The sines that a moment may cost once the budget is spent.
const MOST_FOR_MOMENT: f64 = 5e6;
/// The relative width below which no second line is tried.
const FINE: f64 = 1e-7;
/// The relative width above which a line's answer is not good enough.
const USEFUL: f64 = 1e-3;
/// How many standard deviations of the tilted loss a line's saddle point may be away for the line to be tried: its
/// error relative to the answer grows like e^{x²/2}.
const NEAR: f64 = 5.0;
/// The relative width of a point that needs no line of its own.
const FINE_POINT: f64 = 1e-9;
/// Beyond this threshold only Chernoff's bound is used.
const FAR: f64 = 1e5;
/// The stride of the search; finer steps are taken where the mean of the tilted loss jumps.
const COARSE: i32 = 8;

impl Loss {
    pub(crate) fn new(factors: Vec<Factor>, missing: f64) -> Self {
        Self { factors, missing, kept: Mutex::default(), budget: Arc::default() }
    }

    /// The same with a budget that others spend too.
    pub(crate) fn sharing(self, budget: &Arc<Budget>) -> Self {
        Self { budget: Arc::clone(budget), ..self }
    }

    /// The loss of independent pairs together: the moment functions multiply.
    pub(crate) fn product(parts: Vec<Self>) -> Self {
        let missing = parts.iter().map(|part| part.missing).sum();
        Self::new(parts.into_iter().flat_map(|part| part.factors).collect(), missing)
    }

    /// The cumulants at c with the error of their quadrature, which those of the searches leave out: about
    /// e^`ln_quality`.
    fn certified(&self, c: f64, ln_quality: f64) -> Result<Cumulants, PrivacyError> {
        let mut total = Cumulants::default();
        for factor in &self.factors {
            total += factor.line(c, 0.0, ln_quality)?.cumulants();
        }
        Ok(total)
    }

    /// ln M(c) for c > 0, with its error. Missing probability could lie at the largest loss, which is not
    /// bounded here, so with any of it the upper end is infinite.
    pub(crate) fn ln_moment(&self, c: f64) -> Result<Interval, PrivacyError> {
        let total = self.certified(c, -30.0)?;
        if !total.ln_m.is_finite() {
            return Err(PrivacyError::NotCertified {
                what: "the Rényi divergence",
                why: "overflow".to_string(),
            });
        }
        let upper = if self.missing > 0.0 { f64::INFINITY } else { total.ln_m + total.error };
        Ok(Interval { lower: total.ln_m - total.error, upper })
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // Only complete entries are ever inserted, so a poisoned lock still guards good data.
        self.kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn cumulants(&self, tilt: Tilt) -> Cumulants {
        if let Some(&known) = self.kept().cumulants.get(&tilt) {
            return known;
        }
        // The searches turn back where it is infinite.
        let affordable = self.budget.take(self.factors.iter().map(|f| f.work(tilt.value())).sum());
        let computed = if affordable { cumulants(&self.factors, tilt.value()) } else { Cumulants::INFINITE };
        self.kept().cumulants.insert(tilt, computed);
        computed
    }

    /// The line through a tilt; where a lattice would take less time than a long one, only a short one.
    fn line(&self, tilt: Tilt) -> Result<Arc<Contour>, PrivacyError> {
        let short = self.has_rounds() && self.suits_lattice();
        self.line_of(tilt, if short { VALUES_BESIDE_LATTICE } else { MOST_VALUES })
    }

    fn line_of(&self, tilt: Tilt, most_values: usize) -> Result<Arc<Contour>, PrivacyError> {
        let key = (tilt, most_values);
        if let Some(known) = self.kept().lines.get(&key) {
            return known.clone();
        }
        self.spend(0.0)?;
        let line =
            Contour::new(&self.factors, tilt.value(), most_values, &|work| self.spend(work)).map(Arc::new);
        self.kept().lines.insert(key, line.clone());
        line
    }

    /// The tilt of the positive grid where `past` begins to hold (it must be monotone in c), or its
    /// neighbour, whichever has the smaller `cost`. Gallops from c = 4, because very large c are
    /// costly and rarely needed.
    fn best_tilt(
        &self,
        past: impl Fn(f64, &Cumulants) -> bool,
        cost: impl Fn(f64, &Cumulants) -> f64,
    ) -> Tilt {
        let at = |step: i32| {
            let tilt = Tilt::positive(step);
            (tilt.value(), self.cumulants(tilt))
        };
        let holds = |step: i32| {
            let (c, k) = at(step);
            past(c, &k)
        };
        let (mut low, mut high) = (128, 128);
        let mut stride = 4 * COARSE;
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
                stride = (stride + 4 * COARSE).min(16 * COARSE);
            }
        }
        let halve = |low: &mut i32, high: &mut i32, unit: i32| {
            let middle = *low + (*high - *low) / (2 * unit) * unit;
            let middle = if middle == *low { *low + unit } else { middle };
            if holds(middle) { *high = middle } else { *low = middle }
        };
        while high - low > COARSE {
            halve(&mut low, &mut high, COARSE);
        }
        // A tilted law with two modes: its mean moves from one to the other within a step.
        while high - low > 1 {
            let (below, above) = (at(low).1, at(high).1);
            let spread = below.variance.min(above.variance).sqrt();
            if above.mean - below.mean < 2.0 * spread {
                break;
            }
            halve(&mut low, &mut high, 1);
        }
        let cost_at = |step: i32| {
            let (c, k) = at(step);
            cost(c, &k)
        };
        let best = Tilt::positive(if cost_at(low) < cost_at(high) { low } else { high });
        // Closer to the pole at 0 than half a standard deviation nothing is gained, and the period of the
        // trapezoidal rule would grow like 1/c.
        let apart = 0.5 / self.cumulants(best).variance.sqrt().max(1e-150);
        if best.value() < apart && apart < 1e3 { Tilt::nearest(apart) } else { best }
    }

    /// c and ln of a bound on δ(ε)·e^{cε} for every ε, without a line: at the tilt, or at a smaller one where a
    /// quadrature is affordable.
    ///
    /// # Guarantee
    /// (1 − e^{ε−y})₊ ≤ e^{c(y−ε)}·c^c/(1+c)^{1+c} for every y and c > 0, the largest value being at
    /// e^{ε−y} = c/(1+c).
    fn ln_bound(&self, tilt: Tilt) -> (f64, f64) {
        if let Some(&known) = self.kept().bounds.get(&tilt) {
            return known;
        }
        let at = |c: f64| {
            let work: f64 = self.factors.iter().map(|factor| factor.work(c)).sum();
            // The edges of the strip, at several heights, cost more than the nodes.
            if work > MOST_FOR_MOMENT || !self.budget.take_from_reserve(25.0 * work) {
                return None;
            }
            // An error of e^{−3} in ln M changes ε by e^{−3}/c.
            let total = self.certified(c, -3.0).ok().filter(|k| k.ln_m.is_finite() && k.error < 1.0)?;
            let slack = 1e-12 * (1.0 + c + total.ln_m.abs());
            Some((c, total.ln_m + total.error + c * c.ln() - (1.0 + c) * c.ln_1p() + slack))
        };
        // Strides that double: a handful of tries reach any c.
        let found = (0..9)
            .map(|i| tilt.step - 16 * ((1 << i) - 1))
            .take_while(|step| step >= STEPS.start())
            .find_map(|step| at(Tilt::positive(step).value()))
            .unwrap_or((1.0, f64::INFINITY));
        self.kept().bounds.insert(tilt, found);
        found
    }

    /// An upper bound of δ(ε) from one moment.
    fn delta_by_moment(&self, epsilon: f64) -> Interval {
        let (c, ln_bound) = self.ln_bound(self.tilt_of_delta(epsilon));
        let upper = (ln_bound - c * epsilon).exp() * (1.0 + 1e-12);
        self.charged(Interval { lower: 0.0, upper: if upper.is_nan() { 1.0 } else { upper.min(1.0) } })
    }

    /// An upper bound of ε(δ) from one moment.
    fn epsilon_by_moment(&self, tilt: Tilt, delta: f64) -> Interval {
        let room = (delta - self.missing).ln();
        let (c, ln_bound) = self.ln_bound(tilt);
        let upper = (ln_bound - room) / c;
        let upper = if upper.is_nan() { f64::INFINITY } else { upper.max(0.0) * (1.0 + 1e-12) + 1e-300 };
        Interval { lower: 0.0, upper }
    }

    /// Takes the work out of the budget; an error once it is spent.
    fn spend(&self, work: f64) -> Result<(), PrivacyError> {
        if self.budget.take(work) {
            return Ok(());
        }
        Err(PrivacyError::TooCostly {
            what: "this run's accounting",
            operations: work,
            limit: MOST_WORK,
            remedy: "the setting is extreme; ask about adversary A1 or for a larger δ",
        })
    }

    /// For absurdly large thresholds: Chernoff's bound, without a line.
    fn far(&self, epsilon: f64) -> CurvePoint {
        let bound = [-16, 0, 16].map(|step| {
            let tilt = Tilt::positive(step * COARSE);
            let k = self.cumulants(tilt);
            (k.ln_m + k.error - tilt.value() * epsilon).exp()
        });
        let upper = bound.into_iter().filter(|b| b.is_finite()).fold(1.0, f64::min);
        let delta = Interval { lower: 0.0, upper: (upper + self.missing).min(1.0) };
        // Q[Y > ε] ≤ e^{−ε}, and P[Y > ε] ≤ e^{κ(c) − cε}.
        let alpha = Interval { lower: 0.0, upper: (-epsilon).exp() + self.missing };
        CurvePoint { epsilon, delta, alpha, beta: Interval { lower: 1.0 - delta.upper, upper: 1.0 } }
    }

    /// Near κ'(c) = ε + 1/c + 1/(1+c), the saddle point of the integrand of δ(ε).
    fn tilt_of_delta(&self, epsilon: f64) -> Tilt {
        self.best_tilt(
            |c, k| k.mean > epsilon + 1.0 / c + 1.0 / (1.0 + c),
            |c, k| k.ln_m - c * epsilon - (c * (1.0 + c)).ln(),
        )
    }

    fn line_of_delta(&self, epsilon: f64) -> Result<Arc<Contour>, PrivacyError> {
        self.line(self.tilt_of_delta(epsilon))
    }

    /// The line near κ'(c) = ε with c > −1, kept away from the poles at 0 and −1.
    fn line_of_tails(&self, epsilon: f64) -> Result<Arc<Contour>, PrivacyError> {
        let smallest = Tilt::positive(*STEPS.start());
        let at_zero = self.cumulants(smallest);
        let apart = 0.7 / at_zero.variance.sqrt().max(1e-150);
        if at_zero.mean < epsilon || apart > 0.25 {
            let cost = |tilt: Tilt| self.cumulants(tilt).ln_m - tilt.value() * epsilon;
            let tilt = self.best_tilt(|_, k| k.mean > epsilon, |c, k| k.ln_m - c * epsilon);
            let away = Tilt::nearest(apart);
            // Where rare rounds tell much, the moment explodes long before that distance.
            let moves = tilt.value() < apart && cost(away) < cost(tilt) + 1.0;
            return self.line(if moves { away } else { tilt });
        }
        // κ' increases with c, so with falling |c|.
        let (mut low, mut high) = (-24 * COARSE, -COARSE);
        while high - low > COARSE {
            let middle = (low + high) / (2 * COARSE) * COARSE;
            let tilt = Tilt { negative: true, step: middle };
            if self.cumulants(tilt).mean > epsilon { low = middle } else { high = middle }
        }
        let c = Tilt { negative: true, step: low }.value();
        self.line(Tilt::nearest(c.min(-apart).max(-1.0 + apart)))
    }

    /// The second, independent engine.
    #[cfg(test)]
    fn grid(&self) -> grid::both::Both {
        grid::both::Both::new(&self.factors, 1 << 15)
    }

    /// δ is convex in e^ε with slope −α, so the secants on both sides of ε bound α.
    fn point_by_differences(&self, epsilon: f64) -> Result<CurvePoint, PrivacyError> {
        // Beyond this, e^ε leaves no digits for the secants.
        if epsilon > 300.0 {
            return Ok(self.far(epsilon));
        }
        let at = |e: f64| -> Result<(f64, Interval), PrivacyError> { Ok((e.exp(), self.on_lattice(e)?)) };
        let width = 2e-3 * (1.0 + epsilon);
        let (here, delta) = at(epsilon)?;
        let (right, beyond) = at(epsilon + width)?;
        let (left, before) = if epsilon > width {
            at(epsilon - width)?
        } else {
            // e^ε·α ≤ 1 − δ − β and α ≤ 1 hold at ε = 0 as well.
            (0.0, Interval::exact(1.0))
        };
        let alpha = Interval {
            lower: ((delta.lower - beyond.upper) / (right - here)).clamp(0.0, 1.0),
            upper: ((before.upper - delta.lower) / (here - left)).clamp(0.0, 1.0),
        };
        let beta = Interval {
            lower: 1.0 - delta.upper - here * alpha.upper,
            upper: 1.0 - delta.lower - here * alpha.lower,
        };
        Ok(CurvePoint { epsilon, delta, alpha, beta: beta.clamp(0.0, 1.0) })
    }

    /// Whether a lattice is useful: its error grows with the number of rounds, its cost with their components, and
    /// Gaussians alone need none.
    fn suits_lattice(&self) -> bool {
        let plain = self.factors.iter().all(|f| matches!(f.kind, Kind::Gaussian(_)));
        !plain
            && self.factors.iter().map(|f| f.times).sum::<u64>() <= MOST_ROUNDS
            && Lattice::is_affordable(&self.factors)
    }

    /// Whether rounds of A₀ are part of it: the other factors are Gaussians and mixtures of them, whose lines are
    /// cheap and decay however few they are.
    fn has_rounds(&self) -> bool {
        self.factors.iter().any(|f| f.rounds() > 0)
    }

    /// Whether the tilted law of the loss has two modes at this tilt: its mean moves from one to the other there, and
    /// what is asked for, if `off`, lies between them.
    fn is_torn(&self, tilt: Tilt, off: bool) -> bool {
        let at = |step: i32| self.cumulants(Tilt { step, ..tilt });
        let (below, here, above) = (at(tilt.step - 1), at(tilt.step), at(tilt.step + 1));
        let moves = above.mean - below.mean > 2.0 * below.variance.min(above.variance).sqrt();
        self.has_rounds() && moves && (off || here.variance > 4.0 * below.variance)
    }

    /// [`is_torn`](Self::is_torn) at the tilt for δ(ε).
    fn is_torn_at(&self, tilt: Tilt, epsilon: f64) -> bool {
        let (c, k) = (tilt.value(), self.cumulants(tilt));
        let saddle = epsilon + 1.0 / c + 1.0 / (1.0 + c);
        self.is_torn(tilt, (k.mean - saddle).abs() > 3.0 * k.variance.sqrt())
    }

    fn lattice(&self, near: Near) -> Result<Arc<Lattice>, PrivacyError> {
        let none = || PrivacyError::NotCertified { what: "the privacy loss", why: "no lattice".to_string() };
        let made = self.kept().lattices.len();
        if self.kept().without_lattice >= MOST_FAILURES || made >= MOST_LATTICES {
            return Err(none());
        }
        self.spend(Lattice::work(&self.factors))?;
        let Some(lattice) = Lattice::new(&self.factors, near).map(Arc::new) else {
            self.kept().without_lattice += 1;
            return Err(none());
        };
        self.kept().lattices.push(Arc::clone(&lattice));
        Ok(lattice)
    }

    /// δ from the lattices that are there, and from one made for ε if none of them is narrow.
    fn on_lattice(&self, epsilon: f64) -> Result<Interval, PrivacyError> {
        let known: Vec<_> = self.kept().lattices.clone();
        let mut best = Interval { lower: 0.0, upper: 1.0 };
        for lattice in known.iter().rev() {
            best = best.intersect(lattice.delta(epsilon));
            if best.width() <= FINE_LATTICE * best.upper {
                return Ok(self.charged(best));
            }
        }
        let made = self.lattice(Near::Epsilon(epsilon)).map(|lattice| lattice.delta(epsilon));
        match made {
            Ok(made) => Ok(self.charged(best.intersect(made))),
            Err(error) if known.is_empty() => Err(error),
            Err(_) => Ok(self.charged(best)),
        }
    }

    /// The largest loss of the whole run, and infinite where there is none or where some probability is missing.
    /// Room for rounding is relative and, since −ln of a weight near one has an absolute error, for each round.
    fn largest_loss(&self) -> f64 {
        if self.missing > 0.0 {
            return f64::INFINITY;
        }
        let rounds: f64 = self.factors.iter().map(|f| f.times as f64).sum();
        self.factors.iter().map(Factor::largest_loss).sum::<f64>() * (1.0 + 1e-12) + 1e-14 * rounds
    }

    fn delta_within(&self, epsilon: f64) -> Result<Interval, PrivacyError> {
        if epsilon >= self.largest_loss() {
            return Ok(Interval::exact(0.0));
        }
        if epsilon > FAR {
            return Ok(self.far(epsilon).delta);
        }
        if let Some(round) = single::only(&self.factors) {
            return Ok(self.charged(single::point(round, epsilon).delta));
        }
        let tilt = self.tilt_of_delta(epsilon);
        let mut found = Interval { lower: 0.0, upper: 1.0 };
        let torn = self.suits_lattice() && self.is_torn_at(tilt, epsilon);
        if torn && let Ok(on_lattice) = self.on_lattice(epsilon) {
            found = on_lattice;
            if found.width() <= USEFUL * found.upper {
                return Ok(found);
            }
        }
        // Where the budget is spent or nothing could be certified, what is known without a line still holds.
        found = found.intersect(match self.line(tilt) {
            Ok(line) => self.charged(line.delta(epsilon)),
            Err(_) => self.delta_by_moment(epsilon),
        });
        if !torn
            && found.width() > USEFUL * found.upper
            && self.suits_lattice()
            && let Ok(on_lattice) = self.on_lattice(epsilon)
        {
            found = found.intersect(on_lattice);
        }
        Ok(found)
    }

    /// Whether δ(ε) is certainly below `most`, as far as one line or one moment shows it.
    pub(crate) fn is_below(&self, epsilon: f64, most: f64) -> bool {
        if epsilon >= self.largest_loss() {
            return true;
        }
        if let Some(round) = single::only(&self.factors) {
            return self.charged(single::point(round, epsilon).delta).upper < most;
        }
        let known = self.known_lines(epsilon);
        let mut right = known.iter().filter(|line| line.is_right_of_zero());
        if right.any(|line| self.charged(line.delta(epsilon)).upper < most) {
            return true;
        }
        let delta = match self.line_of_delta(epsilon) {
            Ok(line) => self.charged(line.delta(epsilon)),
            Err(_) => self.delta_by_moment(epsilon),
        };
        delta.upper < most
    }

    /// The line on each side of 0, of those that are there already, whose saddle point is nearest to ε.
    fn known_lines(&self, epsilon: f64) -> Vec<Arc<Contour>> {
        let kept = self.kept();
        let lines = || kept.lines.values().flatten();
        let nearest = |right: bool| {
            lines()
                .filter(|line| line.is_right_of_zero() == right)
                .map(|line| (line.standard_deviations_from(epsilon), line))
                .filter(|(apart, _)| *apart < NEAR)
                .min_by(|a, b| a.0.total_cmp(&b.0))
        };
        let mut found: Vec<_> = [nearest(true), nearest(false)].into_iter().flatten().collect();
        found.sort_by(|a, b| a.0.total_cmp(&b.0));
        found.into_iter().map(|(_, line)| Arc::clone(line)).collect()
    }

    /// A point for which only δ is known: α and β lie where f(α) ≥ 1 − δ − e^ε·α lets them.
    fn point_by_moment(&self, epsilon: f64) -> CurvePoint {
        let delta = self.delta_by_moment(epsilon);
        // Q[Y > ε] ≤ e^{−ε}, and P[Y > ε] = δ + e^ε·Q[Y > ε].
        let alpha = Interval { lower: 0.0, upper: ((-epsilon).exp() + self.missing).min(1.0) };
        CurvePoint { epsilon, delta, alpha, beta: Interval { lower: 0.0, upper: 1.0 } }
    }

    fn charged_point(&self, point: CurvePoint) -> CurvePoint {
        let more =
            |value: Interval| Interval { lower: value.lower, upper: (value.upper + self.missing).min(1.0) };
        CurvePoint {
            delta: self.charged(point.delta),
            alpha: more(point.alpha),
            beta: more(point.beta),
            ..point
        }
    }

    fn charged(&self, delta: Interval) -> Interval {
        Interval { lower: delta.lower, upper: (delta.upper + self.missing).min(1.0) }
    }
}

impl Curve for Loss {
    fn delta(&self, epsilon: f64) -> Result<Interval, PrivacyError> {
        check_epsilon(epsilon)?;
        self.delta_within(epsilon)
    }

    fn point(&self, epsilon: f64) -> Result<CurvePoint, PrivacyError> {
        check_epsilon(epsilon)?;
        if epsilon >= self.largest_loss() {
            // The test that never accuses.
            let [never, always] = [0.0, 1.0].map(Interval::exact);
            return Ok(CurvePoint { epsilon, delta: never, alpha: never, beta: always });
        }
        if epsilon > FAR {
            return Ok(self.far(epsilon));
        }
        if let Some(round) = single::only(&self.factors) {
            return Ok(self.charged_point(single::point(round, epsilon)));
        }
        for line in self.known_lines(epsilon) {
            let point = line.point(epsilon);
            if point.relative_width() <= FINE_POINT.max(4.0 * line.own_width()).min(FINE) {
                return Ok(self.charged_point(point));
            }
        }
        let mut best: Option<CurvePoint> = None;
        for line in [self.line_of_tails(epsilon), self.line_of_delta(epsilon)] {
            let point = match line {
                Ok(line) => line.point(epsilon),
                Err(_) => continue,
            };
            if point.delta.width() <= USEFUL * point.delta.upper {
                return Ok(self.charged_point(point));
            }
            if best.is_none_or(|best| point.delta.width() < best.delta.width()) {
                best = Some(point);
            }
        }
        if self.suits_lattice()
            && let Ok(point) = self.point_by_differences(epsilon)
        {
            return Ok(point);
        }
        Ok(best.map_or_else(|| self.point_by_moment(epsilon), |point| self.charged_point(point)))
    }

    fn epsilon(&self, delta: f64) -> Result<Interval, PrivacyError> {
        check_delta(delta)?;
        if single::only(&self.factors).is_some() {
            return epsilon_of(&|e| self.delta_within(e), delta);
        }
        // One line near the answer serves the whole root finding. The saddle-point approximation of
        // ln δ falls as c grows.
        let target = delta.ln();
        let approximate = |c: f64, k: &Cumulants| {
            let epsilon = k.mean - 1.0 / c - 1.0 / (1.0 + c);
            let curvature = k.variance + 1.0 / (c * c) + 1.0 / ((1.0 + c) * (1.0 + c));
            k.ln_m - c * epsilon - (c * (1.0 + c)).ln() - 0.5 * (std::f64::consts::TAU * curvature).ln()
        };
        let tilt =
            self.best_tilt(|c, k| approximate(c, k) < target, |c, k| (approximate(c, k) - target).abs());
        let mut found = Interval { lower: 0.0, upper: self.largest_loss() };
        let suits_lattice = self.suits_lattice();
        let on_lattice = || -> Result<Interval, PrivacyError> {
            let lattice = self.lattice(Near::Delta(delta))?;
            epsilon_of(&|e| Ok(self.charged(lattice.delta(e))), delta)
        };
        let off = (approximate(tilt.value(), &self.cumulants(tilt)) - target).abs() > 3.0;
        let torn = suits_lattice && self.is_torn(tilt, off);
        if torn && let Ok(known) = on_lattice() {
            found = found.intersect(known);
            let settled = found.width() <= FINE_LATTICE_EPSILON * found.upper;
            // With ε known, a tilt whose law has one mode there may be at hand.
            if settled
                || (found.width() <= USEFUL * found.upper
                    && self.is_torn_at(self.tilt_of_delta(found.upper), found.upper))
            {
                return Ok(found);
            }
        }
        let on = |line: &Contour| epsilon_of(&|e| Ok(self.charged(line.delta(e))), delta);
        match self.line(tilt) {
            Ok(line) => found = found.intersect(on(&line)?),
            Err(_) => found = found.intersect(self.epsilon_by_moment(tilt, delta)),
        }
        // Where the tilted law has two modes the approximation may be far off; the saddle points at the two ends
        // that came out are not.
        for end in [|found: Interval| found.upper, |found: Interval| found.lower] {
            if found.width() > FINE * found.upper
                && end(found) < FAR
                && let Ok(line) = self.line_of_delta(end(found))
            {
                found = found.intersect(on(&line)?);
            }
        }
        if found.width() <= if suits_lattice && !torn { FINE_EPSILON } else { USEFUL } * found.upper {
            return Ok(found);
        }
        if self.delta_within(0.0)?.upper <= delta {
            return Ok(Interval::exact(0.0));
        }
        if suits_lattice
            && !torn
            && let Ok(known) = on_lattice()
        {
            found = found.intersect(known);
        }
        // Not far from the quiet mode its own lines still have digits.
        if torn && approximate(tilt.value(), &self.cumulants(tilt)) - target < MOST_LOST {
            for back in [16, 64] {
                if found.width() > FINE_LATTICE_EPSILON * found.upper
                    && let Ok(line) = self.line(Tilt { step: tilt.step - back, ..tilt })
                {
                    found = found.intersect(on(&line)?);
                }
            }
        }
        // A long line may still say more.
        if suits_lattice
            && found.width() > FINE_EPSILON * found.upper
            && found.upper < FAR
            && let Ok(line) = self.line_of(self.tilt_of_delta(found.upper), MOST_VALUES)
        {
            found = found.intersect(on(&line)?);
        }
        Ok(found)
    }
}
