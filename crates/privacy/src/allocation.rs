//! Random allocation ("balls in bins"): E epochs of B rounds, and in each epoch every sample draws one round
//! uniformly.
//!
//! # Guarantee
//! Write z for the noise over the sensitivity, P = (1/B)·Σ_b N(e_b, z²I), Q = N(0, z²I), both on R^B.
//!
//! **Theorem 1** (individual clipping, one sample added or removed). For d' = d ∪ {x} the transcripts
//! (M(d'), M(d)) are a post-processing of (P^{⊗E}, Q^{⊗E}) with z = noise/C = 2σ; so every δ(ε), in both
//! directions, and the trade-off functions are bounded by those of that pair, and a one-dimensional example
//! attains them. *Proof.* Fix the allocation of all other samples and all other randomness. Given the past,
//! round t of d' is that of d plus 1[b = t]·v_t, ‖v_t‖ ≤ 1 in units of C. From X ∈ R^B make, with r = ‖v_t‖
//! and n = v_t/r, y_t = U_t + n·(r·X_t + √(1−r²)·z·ξ) + (noise z on the complement of n), ξ ~ N(0, 1)
//! fresh. If X_t ~ N(0, z²) the bracket is N(0, z²) and y is the transcript of d; if X_t ~ N(1, z²) it is
//! N(r, z²) and x is in round t. The same kernel serves every b, so by linearity it maps P to the
//! transcript of d'. Epochs' allocations are independent of each other and of the past: kernels chain. ∎
//! Everything released before may steer what the next round computes.
//!
//! **Theorem 2** (groups with any inner algorithm). Every sample draws one of the B·m cells of an epoch.
//! Adding x changes the vector of one cell by at most 2C. The kernel draws the place within the round once
//! an epoch and then acts as above, so the same pair bounds the run with z = noise/2C = σ; B counts, not
//! B·m. ∎ The inner algorithm must read its own cell and the past only, with its own randomness, and an
//! empty cell must have a fixed result. Where the vector of a cell is the projection of a sum of terms of
//! norm at most C' onto the ball of radius C, z = noise/min(2C, C').
//!
//! B, E, the divisor and every other setting must be public constants: a divisor N/B tells N.
//!
//! *Not proved:* that for the substitution of a sample the pair (mean of N(e_b), mean of N(−e_b)) is the
//! worst. Nothing here rests on it; substitution is bounded by way of the pair without the sample
//! ([`substitution`]).
//!
//! # Numbers
//! [`AllocationPair`] computes δ_{P‖Q}, δ_{Q‖P} and the laws of Y = ln dP/dQ as certified intervals
//! (`line.rs`, `moment.rs`), for products of several phases and further Gaussian releases. What every line
//! rests on: Y = N(0, s²/B) + Y' with independent summands, s = 1/z (the mean of the B Gaussians is
//! independent of the residuals), so |E_Q L^{a+it}| ≤ E_Q L^a·e^{−s²t²/2B} for all real a and t.
//!
//! *What is not an inequality in the strict sense:* sizes that enter the bounds (ln Γ, ln φ, ln M(−c)) are
//! computed in double precision, with stated slack in place of directed rounding.
//!
//! [`grid`] is a second engine that shares nothing with the first.

mod complex;
mod elementary;
mod fixed;
pub mod grid;
pub mod known;
mod laplace;
mod line;
mod moment;
mod plan;
mod renyi;
mod solve;
pub mod substitution;

use std::sync::{Arc, Mutex, MutexGuard};

use crate::curve::{Curve, CurvePoint, check_delta, check_epsilon};
use crate::error::{PrivacyError, require};
use crate::gaussian;
use crate::interval::Interval;
use crate::normal;
use complex::{Complex, Float};
use fixed::Fixed;
use laplace::LogNormal;
use line::Line;
use plan::Wanted;

/// Which of the two laws is accused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// δ_{P‖Q}: events more likely with the sample than without.
    Forward,
    /// δ_{Q‖P}: events more likely without the sample.
    Reverse,
}

impl Direction {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::Forward, Self::Reverse];
}

/// A stretch of epochs with the same settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phase {
    /// B, rounds in an epoch.
    pub rounds: u64,
    /// E, epochs.
    pub epochs: u64,
    /// z, the standard deviation of the noise over the sensitivity.
    pub noise_multiplier: f64,
}

/// The Gaussian part of a run: µ² is a sum of squares.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gaussian {
    /// Further releases, each G_µ.
    releases: Vec<f64>,
    /// Epochs of one round: E/z².
    single: Vec<(u64, f64)>,
}

impl Gaussian {
    fn square(&self) -> f64 {
        self.releases.iter().map(|m| m * m).sum::<f64>()
            + self.single.iter().map(|&(e, z)| e as f64 / (z * z)).sum::<f64>()
    }

    /// µ²/2, to one multiplication for each part.
    fn half_square<const N: usize>(&self) -> Float<N> {
        let scale = self.square().log2().ceil() as i64;
        let mut sum = Fixed::<N>::ZERO;
        for &mu in &self.releases {
            let mu = Float::<N>::from_f64(mu, 0.0);
            sum = sum + mu.times(mu).to_fixed(scale).re;
        }
        for &(epochs, z) in &self.single {
            let z = Float::<N>::from_f64(z, 0.0);
            let each = z.times(z).reciprocal().times(Float::from_f64(epochs as f64, 0.0));
            sum = sum + each.to_fixed(scale).re;
        }
        Float::new(Complex::new(sum, Fixed::ZERO), scale - 1)
    }
}

/// The relative width an answer should have.
const WANTED_WIDTH: f64 = 1e-9;
/// −ln of the error of δ that a line for ε(δ) is planned with, relative to δ. Lines come out some 13 nats
/// better than planned, so the first is nearly always enough; every nat costs bits, nodes and rays.
const RESOLVED: [f64; 2] = [13.0, 25.0];
/// The smallest δ that is resolved; below it an answer's lower end may be 0.
const SMALLEST: f64 = 1e-25;
/// Products of limbs that all lines of a pair may cost together: about three quarters of a second. After that the
/// answers come from the lines that are there, and from bounds that need none.
const MOST_WORK: f64 = 1.5e9;

/// A line and what it was wanted for; `None` where none could be certified.
type Kept = (Wanted, Option<Arc<dyn Line>>);

/// The pair (P, Q) of a run by random allocation: phases, and further releases that are G_µ.
///
/// ```
/// use dpsgd_privacy::Curve;
/// use dpsgd_privacy::allocation::{AllocationPair, Direction, Phase};
///
/// let phase = Phase { rounds: 234, epochs: 1, noise_multiplier: 1.0 };
/// let pair = AllocationPair::new(&[phase])?;
/// let epsilon = pair.epsilon(1e-5)?;
/// assert!((epsilon.upper - 0.347457440435).abs() < 1e-11);
/// let other = pair.epsilon_of(Direction::Reverse, 1e-5)?;
/// assert!((other.upper - 0.271504262644).abs() < 1e-11);
/// # Ok::<(), dpsgd_privacy::PrivacyError>(())
/// ```
#[derive(Debug)]
pub struct AllocationPair {
    phases: Vec<(Phase, LogNormal)>,
    gaussian: Gaussian,
    moments: renyi::Moments,
    lines: Mutex<Lines>,
}

#[derive(Debug, Default)]
struct Lines {
    kept: Vec<Kept>,
    /// Products of limbs so far.
    spent: f64,
}

impl AllocationPair {
    /// The pair of some phases.
    pub fn new(phases: &[Phase]) -> Result<Self, PrivacyError> {
        Self::with_releases(phases, &[])
    }

    /// The pair of some phases and of further releases that are G_µ, one µ each.
    pub fn with_releases(phases: &[Phase], releases: &[f64]) -> Result<Self, PrivacyError> {
        let mut gaussian = Gaussian::default();
        let mut kept = Vec::new();
        for &mu in releases {
            require((0.0..=1e3).contains(&mu), "mu", mu, "between 0 and 1000")?;
            gaussian.releases.push(mu);
        }
        for phase in phases {
            let z = phase.noise_multiplier;
            require((0.1..=1e4).contains(&z), "noise_multiplier", z, "between 0.1 and 10000")?;
            let (b, e) = (phase.rounds as f64, phase.epochs as f64);
            require((1.0..=1e8).contains(&b), "rounds", b, "between 1 and 1e8")?;
            require(e <= 1e7, "epochs", e, "at most 1e7")?;
            match (phase.rounds, phase.epochs) {
                (_, 0) => {}
                (1, epochs) => gaussian.single.push((epochs, z)),
                _ => kept.push((*phase, LogNormal::new(1.0 / z))),
            }
        }
        let moments = renyi::Moments::new(kept.iter().map(|(p, _)| p), &gaussian);
        Ok(Self { phases: kept, gaussian, moments, lines: Mutex::default() })
    }

    /// µ of the guarantee against an adversary who is told the allocation: one hit an epoch, c² = E, so
    /// G_{√E/z}. Telling more cannot leak less; the bound needs no line.
    fn mu_when_told(&self) -> f64 {
        let squares = self.phases.iter().map(|(p, _)| p.epochs as f64 * p.noise_multiplier.powi(-2));
        ((self.gaussian.square() + squares.sum::<f64>()) * (1.0 + 1e-14)).sqrt()
    }

    /// µ of what the sum of each epoch's rounds alone tells: N(1, Bz²) against N(0, Bz²), a lower bound that
    /// needs no line.
    fn mu_of_sums(&self) -> f64 {
        let square = |p: &Phase| p.epochs as f64 / (p.rounds as f64 * p.noise_multiplier.powi(2));
        let squares = self.phases.iter().map(|(p, _)| square(p)).sum::<f64>();
        (self.gaussian.square() + squares).sqrt() * (1.0 - 1e-12)
    }

    /// An upper bound of ln E_Q Λ^{−c}, c > 0.
    fn ln_inverse_moment(&self, c: f64) -> f64 {
        let of = |(p, law): &(Phase, LogNormal)| p.epochs as f64 * law.ln_moment(p.rounds, c);
        let value = 0.5 * self.gaussian.square() * c * (c + 1.0) + self.phases.iter().map(of).sum::<f64>();
        value + 1e-12 * value.abs()
    }

    /// The Rényi divergence of order ω > 1, the worse of both directions.
    ///
    /// # Guarantee
    /// `upper` bounds D_ω(P‖Q) = ln E_Q Λ^ω/(ω−1) and D_ω(Q‖P) = ln E_Q Λ^{1−ω}/(ω−1) of the run; it is that
    /// of the pair for integer orders up to 64, and a bound elsewhere (a chord of a convex function between
    /// them, at worst that of an adversary who is told the allocation, ωµ²/2). `lower` is at most D_ω(P‖Q):
    /// that of the integer below ω.
    pub fn renyi(&self, order: f64) -> Result<Interval, PrivacyError> {
        require(order > 1.0 && order <= 1e4, "order", order, "above 1 and at most 10000")?;
        if self.is_trivial() {
            return Ok(Interval::exact(0.0));
        }
        let told = 0.5 * order * self.mu_when_told().powi(2);
        let larger = self.moments.ln_moment(order).max(self.ln_inverse_moment(order - 1.0));
        let upper = (larger / (order - 1.0)).min(told);
        let below = (order.floor() as usize).min(renyi::ORDERS);
        let lower = match self.moments.ln_moment_below(below) {
            Some(ln) if below >= 2 => (ln / (below as f64 - 1.0)).clamp(0.0, upper),
            _ => 0.0,
        };
        Ok(Interval { lower, upper })
    }

    fn is_trivial(&self) -> bool {
        self.phases.is_empty() && self.gaussian.square() == 0.0
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        // Only complete entries are ever inserted, so a poisoned lock still guards good data.
        self.lines.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// A line that serves thresholds up to ε with absolute errors e^`ln_error`, and how far it serves;
    /// `None` where none could be certified within the budget.
    fn line(&self, epsilon: f64, ln_error: f64) -> Option<(Arc<dyn Line>, f64)> {
        // A grid of thresholds and errors, so that many questions share a line.
        let epsilon = (epsilon.max(1e-6).ln() / 0.125).ceil() * 0.125;
        let wanted = Wanted { epsilon: epsilon.exp(), ln_error: (ln_error / 4.0).floor() * 4.0 };
        let serves = |w: &Wanted| {
            w.ln_error <= wanted.ln_error
                && w.epsilon >= 0.999 * wanted.epsilon
                && w.epsilon <= 2.0 * wanted.epsilon + 1e-3
        };
        let known = |(w, l): &&Kept| serves(w) && (l.is_some() || *w == wanted);
        if let Some((w, line)) = self.lines().kept.iter().find(known) {
            return line.clone().map(|line| (line, w.epsilon));
        }
        let mut built = None;
        for effort in 0..2 {
            let Ok(plan) = plan::plan(&self.phases, &self.gaussian, wanted, effort) else { continue };
            if plan.work > MOST_WORK - self.lines().spent || plan.limbs > line::MOST_LIMBS {
                break;
            }
            self.lines().spent += plan.work;
            if let Ok(line) = line::build(&self.phases, &self.gaussian, &plan) {
                built = Some(Arc::from(line));
                break;
            }
        }
        self.lines().kept.push((wanted, built.clone()));
        built.map(|line| (line, wanted.epsilon))
    }

    /// Asks finer and finer lines until `width` of an answer is small, and returns the last answer.
    fn refined<T>(
        &self,
        epsilon: f64,
        ask: impl Fn(&dyn Line) -> T,
        small: impl Fn(&T) -> bool,
    ) -> Result<T, PrivacyError> {
        let mut answer = None;
        for size in [1e-5, 1e-10, 1e-16, SMALLEST] {
            let Some((line, _)) = self.line(epsilon, f64::ln(size * 1e-10)) else { break };
            let here = ask(&*line);
            let done = small(&here);
            answer = Some(here);
            if done {
                break;
            }
        }
        answer.ok_or_else(|| PrivacyError::NotCertified {
            what: "random allocation",
            why: format!("no line within the budget at {epsilon}"),
        })
    }

    /// δ(ε) of one direction, for ε ≥ 0.
    ///
    /// # Guarantee
    /// The interval holds δ_{P‖Q}(ε) or δ_{Q‖P}(ε) of the pair; where the line's budget does not suffice it
    /// is wider (at worst from what the sum of an epoch's rounds tells to a Rényi bound or to G_{√E/z}),
    /// never wrong.
    pub fn delta_of(&self, direction: Direction, epsilon: f64) -> Result<Interval, PrivacyError> {
        check_epsilon(epsilon)?;
        if self.is_trivial() {
            return Ok(Interval::exact(0.0));
        }
        let ask = |line: &dyn Line| match direction {
            Direction::Forward => line.forward(epsilon),
            Direction::Reverse => line.reverse(epsilon),
        };
        let answer = self.refined(epsilon, ask, |d| d.width() <= WANTED_WIDTH * d.lower);
        let told = self.mu_when_told();
        let slack = 1.0 + gaussian::delta_relative_error(told, epsilon);
        let mut bound = (gaussian::delta(told, epsilon) * slack).min(1.0);
        if direction == Direction::Forward {
            bound = bound.min(self.moments.delta(epsilon));
        }
        let known = answer.unwrap_or_else(|_| {
            let sums = self.mu_of_sums();
            let slack = 1.0 - gaussian::delta_relative_error(sums, epsilon);
            Interval { lower: (gaussian::delta(sums, epsilon) * slack).max(0.0), upper: 1.0 }
        });
        Ok(Interval { lower: known.lower.min(bound), upper: known.upper.min(bound) })
    }

    /// `Q[Y ≤ x]` and `Q[Y > x]` for the loss Y = ln dP/dQ.
    pub fn loss_under_q(&self, x: f64) -> Result<(Interval, Interval), PrivacyError> {
        self.tails(x, |line| line.under_q(x))
    }

    /// `P[Y ≤ x]` and `P[Y > x]` for the loss Y = ln dP/dQ.
    pub fn loss_under_p(&self, x: f64) -> Result<(Interval, Interval), PrivacyError> {
        self.tails(x, |line| line.under_p(x))
    }

    fn tails(
        &self,
        x: f64,
        ask: impl Fn(&dyn Line) -> (Interval, Interval),
    ) -> Result<(Interval, Interval), PrivacyError> {
        require(x.is_finite(), "x", x, "a number")?;
        if self.is_trivial() {
            let below = Interval::exact(if x >= 0.0 { 1.0 } else { 0.0 });
            return Ok((below, Interval::exact(1.0 - below.lower)));
        }
        let small = |i: &Interval| i.width() <= WANTED_WIDTH * i.lower;
        self.refined(x.abs(), ask, |(a, b)| small(a) && small(b))
    }

    /// A first guess of ε(δ), a little too large as a rule: the larger of what the Gaussian with the
    /// variance of the loss and what one large round alone (W weighted with itself is e^{sG + s²/2}) would
    /// need.
    fn guess(&self, delta: f64) -> f64 {
        let mut variance = self.gaussian.square();
        let mut jump = 0.0_f64;
        for (p, _) in &self.phases {
            let (b, e, s) = (p.rounds as f64, p.epochs as f64, 1.0 / p.noise_multiplier);
            variance += e * ((s * s).exp_m1() / b).ln_1p();
            let far = -normal::quantile((0.5 * delta / e).max(1e-300));
            jump = jump.max(((s * far + 0.5 * s * s).exp() / b).ln_1p());
        }
        let rough = 1.06 * gaussian::epsilon(variance.sqrt(), 0.5 * delta).max(jump);
        let renyi = self.moments.epsilon(delta);
        // A bound is never too small; where it is not much larger it saves a second line.
        if renyi < 1.3 * rough { renyi } else { rough }
    }

    /// ε(δ) of one direction.
    ///
    /// # Guarantee
    /// `upper` is an ε with δ(ε) ≤ `delta` in that direction, `lower` is at most the smallest such ε. Where
    /// no line fits the budget: from what the sum of an epoch's rounds tells to a Rényi bound or to G_{√E/z}.
    pub fn epsilon_of(&self, direction: Direction, delta: f64) -> Result<Interval, PrivacyError> {
        self.epsilon_of_worst(&[direction], delta)
    }

    /// The largest ε(δ) of some directions, all from one line. The first is solved for; another one only if a
    /// single value does not show that it is smaller.
    fn epsilon_of_worst(&self, directions: &[Direction], delta: f64) -> Result<Interval, PrivacyError> {
        check_delta(delta)?;
        if self.is_trivial() {
            return Ok(Interval::exact(0.0));
        }
        let mut bound = gaussian::epsilon(self.mu_when_told(), delta) * (1.0 + 1e-9);
        if directions == [Direction::Forward] {
            bound = bound.min(self.moments.epsilon(delta));
        }
        let mut guess = self.guess(delta).max(1e-9);
        let mut best: Option<Interval> = None;
        let mut resolved = RESOLVED[0];
        for _ in 0..12 {
            let Some((line, served)) = self.line(guess, delta.ln() - resolved) else { break };
            let mut worst: Option<Interval> = None;
            let solved = directions.iter().all(|direction| {
                let at = |e: f64| match direction {
                    Direction::Forward => line.forward(e),
                    Direction::Reverse => line.reverse(e),
                };
                if worst.is_some_and(|known| at(known.lower).upper <= delta) {
                    return true;
                }
                let found = solve::falling(&at, served, delta);
                worst = found.map(|found| worst.map_or(found, |known| known.max(found)));
                worst.is_some()
            });
            let Some(epsilon) = worst.filter(|_| solved) else {
                guess = 1.3 * served;
                continue;
            };
            best = Some(epsilon);
            if resolved == RESOLVED[1] || epsilon.width() <= WANTED_WIDTH * epsilon.upper {
                break;
            }
            resolved = RESOLVED[1];
        }
        if let Some(epsilon) = best {
            return Ok(Interval { lower: epsilon.lower.min(bound), upper: epsilon.upper.min(bound) });
        }
        let lower = gaussian::epsilon(self.mu_of_sums(), delta) * (1.0 - 1e-9);
        Ok(Interval { lower: lower.clamp(0.0, bound), upper: bound })
    }

    /// The trade-off function of one direction at α: for [`Direction::Forward`] T(Q, P), the smallest
    /// `P[accept]` over tests that reject Q with probability at most α; for [`Direction::Reverse`] T(P, Q).
    ///
    /// # Guarantee
    /// The interval holds the value; the lower end is the guarantee.
    pub fn tradeoff(&self, direction: Direction, alpha: f64) -> Result<Interval, PrivacyError> {
        require((0.0..=1.0).contains(&alpha), "alpha", alpha, "between 0 and 1")?;
        if alpha == 0.0 || alpha == 1.0 || self.is_trivial() {
            return Ok(Interval::exact(1.0 - alpha));
        }
        let edge = alpha.min(1.0 - alpha);
        let mut wanted = self.guess(0.1 * edge * edge).max(1e-9);
        for _ in 0..8 {
            let Some((line, reach)) = self.line(wanted, edge.ln() - 27.0) else { break };
            // Forward rejects above x, reverse below −x; both rates fall in x.
            let (rate, miss): (solve::Rate<'_>, solve::Rate<'_>) = match direction {
                Direction::Forward => (&|x| line.under_q(x).1, &|x| line.under_p(x).0),
                Direction::Reverse => (&|x| line.under_p(-x).0, &|x| line.under_q(-x).1),
            };
            if let Some(beta) = solve::exchange(rate, miss, reach, alpha) {
                return Ok(beta);
            }
            wanted = 1.7 * reach;
        }
        Ok(Interval { lower: 0.0, upper: 1.0 - alpha })
    }

    /// The point of one direction's trade-off function with slope −e^ε, for ε ≥ 0.
    pub fn point_of(&self, direction: Direction, epsilon: f64) -> Result<CurvePoint, PrivacyError> {
        let delta = self.delta_of(direction, epsilon)?;
        let (alpha, beta) = match direction {
            Direction::Forward => (self.loss_under_q(epsilon)?.1, self.loss_under_p(epsilon)?.0),
            Direction::Reverse => (self.loss_under_p(-epsilon)?.0, self.loss_under_q(-epsilon)?.1),
        };
        Ok(CurvePoint { epsilon, delta, alpha, beta })
    }
}

/// The worse of the two directions: a sample added or removed.
impl Curve for AllocationPair {
    fn delta(&self, epsilon: f64) -> Result<Interval, PrivacyError> {
        let [forward, reverse] = Direction::BOTH.map(|d| self.delta_of(d, epsilon));
        Ok(forward?.max(reverse?))
    }

    /// The larger δ has the supporting line of the two directions' common lower convex hull; where the two
    /// cannot be told apart both points are included.
    fn point(&self, epsilon: f64) -> Result<CurvePoint, PrivacyError> {
        let [forward, reverse] = Direction::BOTH.map(|d| self.point_of(d, epsilon));
        let (a, b) = (forward?, reverse?);
        if a.delta.lower > b.delta.upper {
            return Ok(a);
        }
        if b.delta.lower > a.delta.upper {
            return Ok(b);
        }
        let hull =
            |x: Interval, y: Interval| Interval { lower: x.lower.min(y.lower), upper: x.upper.max(y.upper) };
        let delta = a.delta.max(b.delta);
        Ok(CurvePoint { epsilon, delta, alpha: hull(a.alpha, b.alpha), beta: hull(a.beta, b.beta) })
    }

    fn epsilon(&self, delta: f64) -> Result<Interval, PrivacyError> {
        self.epsilon_of_worst(&Direction::BOTH, delta)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines planned so coarsely that aliases, cuts and quadrature are what limits them must still hold
    /// what a fine line says.
    #[test]
    fn coarse_lines_hold_what_fine_lines_say() {
        let mut wide = 0;
        for (rounds, epochs, z) in [(2, 3, 0.8), (10, 1, 1.0), (50, 2, 0.5), (300, 20, 1.5), (2000, 1, 4.0)] {
            let phase = Phase { rounds, epochs, noise_multiplier: z };
            let pair = AllocationPair::new(&[phase]).unwrap();
            let reach = pair.guess(1e-6);
            let (fine, _) = pair.line(reach, -45.0).unwrap();
            for ln_error in [0.0, -4.0, -8.0, -12.0, -16.0] {
                let wanted = Wanted { epsilon: reach, ln_error };
                let plan = plan::plan(&pair.phases, &pair.gaussian, wanted, 0).unwrap();
                let Ok(line) = line::build(&pair.phases, &pair.gaussian, &plan) else { continue };
                for share in [0.0, 0.1, 0.3, 0.6, 1.0] {
                    let x = share * reach;
                    let pairs = [
                        (line.forward(x), fine.forward(x)),
                        (line.reverse(x), fine.reverse(x)),
                        (line.under_q(x).1, fine.under_q(x).1),
                        (line.under_q(-x).0, fine.under_q(-x).0),
                        (line.under_p(x).0, fine.under_p(x).0),
                        (line.under_p(-x).0, fine.under_p(-x).0),
                    ];
                    for (i, (coarse, fine)) in pairs.into_iter().enumerate() {
                        assert!(
                            coarse.lower <= fine.upper && fine.lower <= coarse.upper,
                            "{phase:?} {ln_error} {x} {i}: {coarse:?} {fine:?}"
                        );
                        wide += usize::from(coarse.width() > 1e-6 * coarse.upper);
                    }
                }
            }
        }
        assert!(wide > 20, "only {wide} answers were coarse");
    }
}
