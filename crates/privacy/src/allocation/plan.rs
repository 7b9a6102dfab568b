//! Where a line lies and how finely it is sampled; every loop here is capped.
//!
//! A plan never decides whether a bound holds: the line measures all of its errors again and adds them. A
//! bad plan costs width or time, not correctness.

use std::f64::consts::{FRAC_PI_2, LN_2, TAU};

use super::laplace::{LogNormal, ln_aliases, ln_gamma};
use super::{Gaussian, Phase};
use crate::error::PrivacyError;

/// What a line is wanted for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Wanted {
    /// Thresholds up to this one, in both directions.
    pub(super) epsilon: f64,
    /// ln of the absolute error of δ_{P‖Q} there.
    pub(super) ln_error: f64,
}

/// A ray Im u = −ψ and what it serves.
#[derive(Clone, Debug)]
pub(super) struct Ray {
    pub(super) psi: f64,
    /// The part of ψ that the table of exp(−e^v) is turned by; the kernel has the rest.
    pub(super) table_psi: f64,
    /// The grid point nearest to the peak of the terms, in steps.
    pub(super) centre: i64,
    /// First and last node on the line.
    pub(super) nodes: (usize, usize),
    /// First and last u, in steps; for the sum with e^{−λ}, in finer steps.
    pub(super) range: (i64, i64),
    pub(super) fine_range: (i64, i64),
    /// Steps of u in one step of the inner quadrature, and such steps on either side of its centre.
    pub(super) stride: i64,
    pub(super) half_width: i64,
    /// Terms of φ's own series in λ, where that is good enough; then there is no inner quadrature.
    pub(super) series: Option<usize>,
}

/// The rays of one phase.
#[derive(Clone, Debug)]
pub(super) struct PhasePlan {
    /// Length of the transform; the step of u is 2π/(length·Δ).
    pub(super) length: usize,
    /// The sum with e^{−λ} has its step divided by this power of two: its aliases fall more slowly.
    pub(super) finer: usize,
    pub(super) rays: Vec<Ray>,
    /// An upper bound of ln M(−c).
    pub(super) ln_moment: f64,
}

/// A line Re w = −c with nodes at t = jΔ.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) c: f64,
    /// Δ, a number of five bits: b·2^a.
    pub(super) step: (u64, i32),
    /// Number of nodes.
    pub(super) nodes: usize,
    pub(super) phases: Vec<PhasePlan>,
    /// Points c₂ > c with upper bounds of ln E_Q Λ^{−c₂}, for the aliases.
    pub(super) beyond: Vec<(f64, f64)>,
    /// An upper bound of ln E_Q Λ^{−c}.
    pub(super) ln_total: f64,
    /// V of |E_Q Λ^{−c+it}| ≤ E_Q Λ^{−c}·e^{−Vt²/2}.
    pub(super) spread: f64,
    pub(super) limbs: usize,
    /// The estimated cost, in products of limbs.
    pub(super) work: f64,
}

impl Plan {
    pub(super) fn delta(&self) -> f64 {
        self.step.0 as f64 * f64::from(self.step.1).exp2()
    }
}

/// Nats a ray may lose to cancellation: few for many rays, many for few rays close to the imaginary axis.
const LOSSES: [f64; 8] = [5.0, 8.0, 12.0, 17.0, 24.0, 34.0, 48.0, 66.0];
/// Nats the parity may lose to e^{cε}·E Λ^{−c}, and how many more for each unit of ε.
const PARITY: (f64, f64) = (18.0, 1.3);
/// Few bits, so that products with it are exact and fit.
pub(super) const BITS_OF_C: i32 = 6;
/// Nodes on a line at most.
const MOST_NODES: f64 = 65_536.0;
/// The largest c.
const MOST_C: f64 = 1e5;
/// Rays at most.
const MOST_RAYS: usize = 40;

fn failed(why: &str) -> PrivacyError {
    PrivacyError::NotCertified { what: "random allocation", why: why.to_string() }
}

/// value rounded down to `bits` bits, as (b, a) with b·2^a.
pub(super) fn mantissa(value: f64, bits: i32) -> (u64, i32) {
    let a = value.log2().floor() as i32 - (bits - 1);
    ((value * f64::from(-a).exp2()).floor() as u64, a)
}

fn round_down(value: f64) -> f64 {
    let (b, a) = mantissa(value, BITS_OF_C);
    b as f64 * f64::from(a).exp2()
}

/// The smallest value in `[low, high]` (to one part in 2^`halvings`) where `holds`, which must be monotone.
fn bisect(mut low: f64, mut high: f64, halvings: usize, holds: impl Fn(f64) -> bool) -> f64 {
    for _ in 0..halvings {
        let middle = 0.5 * (low + high);
        if holds(middle) { high = middle } else { low = middle }
    }
    high
}

/// What the loss loses on a ray: ln Γ(c) − c ln cos ψ − ln|Γ(c−it)| − ψt, convex in ψ and in t.
fn loss(c: f64, psi: f64, t: f64) -> f64 {
    ln_gamma(c, 0.0) - c * psi.cos().ln() - ln_gamma(c, t) - psi * t
}

/// ψ, and the first and last t it serves.
type Angles = Vec<(f64, f64, f64)>;

/// Angles and the ends of what they serve, from 0 to `last`.
fn angles(c: f64, last: f64, allowed: f64) -> Result<Angles, PrivacyError> {
    let mut result = Angles::new();
    let mut start = 0.0;
    while result.len() < MOST_RAYS {
        let best = (start / c).atan();
        let steepest = FRAC_PI_2 - 1e-6;
        // The largest ψ that still serves the start.
        let mut psi = if loss(c, steepest, start) <= allowed {
            steepest
        } else {
            bisect(best, steepest, 30, |p| loss(c, p, start) > allowed)
        };
        psi = best + (psi - best) * (1.0 - 1e-7);
        if loss(c, psi, last) <= allowed || psi >= (last / c).atan() {
            // The smallest one that serves the end: aliases fall faster.
            if loss(c, best, last) <= allowed {
                psi = best;
            } else {
                psi = bisect(best, psi, 30, |p| loss(c, p, last) <= allowed);
            }
            result.push((psi, start, last));
            return Ok(result);
        }
        let foot = (c * psi.tan()).max(start);
        let end = bisect(foot, last, 30, |t| loss(c, psi, t) > allowed);
        if end <= start {
            break;
        }
        result.push((psi, start, end));
        start = end;
    }
    Err(failed("too many rays"))
}

/// One ray in real units, before the step is known.
struct Draft {
    psi: f64,
    table_psi: f64,
    t: (f64, f64),
    x: (f64, f64),
    fine_x: (f64, f64),
    /// −ln of the error φ may have.
    accuracy: f64,
    /// The step of the inner quadrature.
    inner: f64,
    series: Option<usize>,
}

struct PhaseDraft {
    /// 2π over the step, for the sum with φ and for the one with e^{−λ}.
    omega: f64,
    fine_omega: f64,
    rays: Vec<Draft>,
    ln_moment: f64,
    need: f64,
}

/// The number of terms of φ(λ) = Σ_k (−λ)^k·E W^k/k! for |λ| ≤ e^x and an error of e^{−accuracy}, if there
/// is one that keeps every number small. (The series diverges; for Re λ ≥ 0 the rest after K terms is at
/// most |λ|^K·E W^K/K!.)
fn series_terms(s: f64, x: f64, accuracy: f64) -> Option<usize> {
    if x > -0.7 {
        return None;
    }
    (4..=64)
        .find(|&k| ln_term(s, k) + k as f64 * x < -accuracy - 1.0)
        .filter(|&k| (0..k).all(|j| ln_term(s, j) < 6.0))
}

/// ln of E W^k/k!.
pub(super) fn ln_term(s: f64, k: usize) -> f64 {
    let k = k as f64;
    0.5 * s * s * k * (k - 1.0) - ln_gamma(k + 1.0, 0.0)
}

/// Where the log-concave `size` falls below `floor` on either side of `top`.
fn range(c: f64, top: f64, floor: f64, size: &dyn Fn(f64) -> f64) -> (f64, f64) {
    let end = |sign: f64| {
        let mut stride = 2.0 / c.sqrt();
        let mut reach = stride;
        for _ in 0..80 {
            if size(top + sign * reach) < floor {
                break;
            }
            stride *= 1.3;
            reach += stride;
        }
        top + sign * bisect(reach - stride, reach, 4, |r| size(top + sign * r) < floor)
    };
    (end(-1.0), end(1.0))
}

/// The smallest ω, about, at which the aliases are below `floor`.
fn smallest_omega(c: f64, psi: f64, t: (f64, f64), decay: f64, floor: f64) -> f64 {
    let aliased = |w: f64| ln_aliases(c, psi, t, w, decay) > floor;
    let mut far = 1.5 * t.1 + 4.0 * c.sqrt() + 10.0;
    for _ in 0..60 {
        if !aliased(far) {
            break;
        }
        far *= 1.5;
    }
    bisect(0.0, far, 18, |w| !aliased(w))
}

/// The angles whose loss makes the phase cheapest, and that loss.
fn cheapest(c: f64, last: f64, tolerance: f64, decay: f64) -> Result<(f64, Angles), PrivacyError> {
    let mut best = None;
    for loss in LOSSES {
        let Ok(rays) = angles(c, last, loss) else { continue };
        let limbs = ((loss + tolerance + 20.0) / LN_2 / 64.0).ceil();
        let mut omega = 100.0_f64;
        let mut points = 0.0;
        for &(psi, t0, t1) in &rays {
            let floor = ln_gamma(c, 0.0) - c * psi.cos().ln() - loss - tolerance;
            omega = omega.max(smallest_omega(c, psi, (t0, t1), decay, floor));
            let (low, high) = range(c, c.ln() - psi.cos().ln(), floor, &|x| c * x - x.exp() * psi.cos());
            points += high - low;
        }
        let cost = limbs * limbs * points * omega;
        if best.as_ref().is_none_or(|&(least, _, _)| cost < least) {
            best = Some((cost, loss, rays));
        }
    }
    best.map(|(_, loss, rays)| (loss, rays)).ok_or_else(|| failed("too many rays"))
}

/// The step and the turn of the inner quadrature: 2e^{(d+α)²/2s²}/(e^{2πd/h} − 1) ≤ e^{−accuracy}, d ≤ π/2
/// − ψ₁.
fn inner_step(s: f64, psi: f64, accuracy: f64) -> (f64, f64) {
    let alpha = psi.min(4.0 * s);
    let room = FRAC_PI_2 - (psi - alpha);
    let step = (1..=40)
        .map(|i| room * f64::from(i) / 40.0)
        .map(|d| TAU * d / (accuracy + 2.0 + (d + alpha) * (d + alpha) / (2.0 * s * s)))
        .fold(0.0, f64::max);
    (psi - alpha, step)
}

fn draft(
    phase: &Phase,
    law: &LogNormal,
    c: f64,
    last: f64,
    tolerance: f64,
    ln_moment: f64,
) -> Result<PhaseDraft, PrivacyError> {
    let b = phase.rounds as f64;
    let s = 1.0 / phase.noise_multiplier;
    let decay = s * s / b;
    let ln_b = b.ln();
    let (loss, angles) = cheapest(c, last, tolerance, decay)?;
    let mut result = PhaseDraft { omega: 0.0, fine_omega: 0.0, rays: Vec::new(), ln_moment, need: 0.0 };
    for (psi, t0, t1) in angles {
        let ln_cos = psi.cos().ln();
        // What a sum may err by: the size of its result less the loss and the tolerance.
        let floor = ln_gamma(c, 0.0) - c * ln_cos - loss - tolerance - c * ln_b;
        let top = (c / b).ln() - ln_cos;
        let size = |x: f64, copies: f64| c * x + copies * law.ln_phi((x + ln_cos).exp());
        let (low, high) = range(c, top, floor - 4.0, &|x| size(x, b));
        let fine_x = range(c, top, floor - 4.0, &|x| c * x - b * (x + ln_cos).exp());
        let largest = (0..=16)
            .map(|i| top - 1.0 / c.sqrt() + (high - top + 1.0 / c.sqrt()) * f64::from(i) / 16.0)
            .map(|x| size(x, b - 1.0))
            .fold(f64::NEG_INFINITY, f64::max);
        let accuracy = largest + ln_b + (high - low).max(1.0).ln() - floor + 3.0;
        let (table_psi, inner) = inner_step(s, psi, accuracy);
        let target = floor + c * ln_b - 1.0;
        let omega = smallest_omega(c, psi, (t0, t1), decay, target - ln_moment);
        let series = series_terms(s, high, accuracy);
        let inner = if series.is_some() { f64::INFINITY } else { inner };
        result.omega = result.omega.max(omega).max(TAU / inner);
        result.fine_omega = result.fine_omega.max(smallest_omega(c, psi, (t0, t1), 0.0, target));
        result.need = result.need.max(accuracy + 11.0).max(loss + tolerance + 14.0);
        result.rays.push(Draft {
            psi,
            table_psi,
            t: (t0, t1),
            x: (low, high),
            fine_x,
            accuracy,
            inner,
            series,
        });
    }
    Ok(result)
}

/// The c on whose line the parity loses what it may, if the loss were Gaussian.
fn line_for(phases: &[(Phase, LogNormal)], mu_squared: f64, epsilon: f64) -> f64 {
    let of_phase =
        |p: &Phase| p.epochs as f64 * ((p.noise_multiplier.powi(-2)).exp_m1() / p.rounds as f64).ln_1p();
    let variance = mu_squared + phases.iter().map(|(p, _)| of_phase(p)).sum::<f64>();
    let rate = epsilon + 0.5 * variance;
    let parity = PARITY.0 + PARITY.1 * epsilon;
    let best = 2.0 * parity / (rate + (rate * rate + 2.0 * variance * parity).sqrt());
    round_down(best.min(MOST_C))
}

/// Points c₂ > c with ln E Λ^{−c₂}, and the period with which the aliases on both sides are small enough.
fn aliases(c: f64, epsilon: f64, tolerance: f64, ln_total: &dyn Fn(f64) -> f64) -> (Vec<(f64, f64)>, f64) {
    let mut beyond = Vec::new();
    let mut period = f64::INFINITY;
    for factor in [1.5, 2.0, 3.0, 5.0] {
        let at = factor * c;
        let ln = ln_total(at);
        let wanted = (tolerance + ln + at * epsilon) / (at - c);
        beyond.push((at, ln));
        if wanted > 1.5 * period {
            break;
        }
        period = period.min(wanted);
    }
    (beyond, period.max(tolerance / c))
}

/// A line for what is wanted; more `effort` asks for smaller errors.
pub(super) fn plan(
    phases: &[(Phase, LogNormal)],
    gaussian: &Gaussian,
    wanted: Wanted,
    effort: u32,
) -> Result<Plan, PrivacyError> {
    let epsilon = wanted.epsilon;
    let extra = 12.0 * f64::from(effort);
    let tolerance_of_put = -wanted.ln_error + epsilon + 3.0 + extra;
    let mu_squared = gaussian.square();
    let c = line_for(phases, mu_squared, epsilon);
    let moments = |c: f64| -> Vec<f64> { phases.iter().map(|(p, law)| law.ln_moment(p.rounds, c)).collect() };
    let total = |c: f64, each: &[f64]| {
        0.5 * mu_squared * c * (c + 1.0)
            + phases.iter().zip(each).map(|((p, _), m)| p.epochs as f64 * m).sum::<f64>()
    };
    let here = moments(c);
    let ln_total = total(c, &here);
    let tolerance = tolerance_of_put + (ln_total + c * epsilon).max(0.0);
    let spread = mu_squared
        + phases
            .iter()
            .map(|(p, _)| p.epochs as f64 / p.rounds as f64 * p.noise_multiplier.powi(-2))
            .sum::<f64>();
    // A little further, because the last node lies up to a step before it.
    let last = 1.02 * (2.0 * (tolerance + 3.0) / spread).sqrt();
    // Exponents must fit before the point.
    let turn = 0.5 * mu_squared * last * (2.0 * c + 1.0);
    if !(ln_total + c * epsilon < 4000.0 && turn < 20_000.0) {
        return Err(failed("too large an exponent"));
    }
    let (beyond, period) = aliases(c, epsilon, tolerance_of_put, &|at| total(at, &moments(at)));
    let count = phases.len().max(1) as f64;
    let drafts = phases
        .iter()
        .zip(&here)
        .map(|((p, law), &m)| {
            let tolerance = tolerance + (p.epochs as f64 * count).ln() + 3.0;
            draft(p, law, c, last, tolerance, m)
        })
        .collect::<Result<Vec<_>, _>>()?;
    // The transform's length is a power of two; what rounding it up gains goes into the period. The step is
    // rounded up by a sixteenth at most, so that the length need not double.
    let mut step = TAU / (1.07 * period);
    if let Some(first) = drafts.first() {
        step = first.omega / (first.omega / step).max(1.0).log2().ceil().exp2();
    }
    let step = mantissa(step * (1.0 + 1.0 / 16.0), 5);
    let delta = step.0 as f64 * f64::from(step.1).exp2();
    if last / delta > MOST_NODES {
        return Err(failed("too many nodes"));
    }
    let need = drafts.iter().map(|d| d.need).fold(tolerance + 22.0, f64::max);
    let limbs = ((need / LN_2 + 16.0) / 64.0).ceil() as usize;
    let mut result = Plan {
        c,
        step,
        nodes: ((last / delta) as usize + 1).max(2),
        phases: Vec::new(),
        beyond,
        ln_total,
        spread,
        limbs,
        work: 0.0,
    };
    for ((phase, _), draft) in phases.iter().zip(drafts) {
        result.phases.push(settle(phase, &draft, &result)?);
    }
    let unit = (limbs * limbs) as f64;
    result.work = unit * result.phases.iter().map(work).sum::<f64>() + unit * 8.0 * result.nodes as f64;
    Ok(result)
}

/// The draft in steps of the grid.
fn settle(phase: &Phase, draft: &PhaseDraft, plan: &Plan) -> Result<PhasePlan, PrivacyError> {
    let s = 1.0 / phase.noise_multiplier;
    let delta = plan.delta();
    let length = (draft.omega * 0.999_999 / delta).max(2.0).log2().ceil().exp2();
    if length > 1e6 {
        return Err(failed("too fine a grid"));
    }
    let h = TAU / (length * delta);
    let finer = (draft.fine_omega / (length * delta)).max(1.0).log2().ceil().exp2();
    if length * finer > 4e6 {
        return Err(failed("too fine a grid"));
    }
    let fine = h / finer;
    let mut rays = Vec::new();
    for (i, ray) in draft.rays.iter().enumerate() {
        let first = if i == 0 { 0 } else { (ray.t.0 / delta).ceil() as usize };
        let last = if i + 1 == draft.rays.len() {
            plan.nodes - 1
        } else {
            ((ray.t.1 / delta).ceil() as usize).saturating_sub(1).min(plan.nodes - 1)
        };
        if last < first {
            continue;
        }
        let alpha = ray.psi - ray.table_psi;
        let stride =
            if ray.series.is_some() { 1 } else { ((ray.inner * 1.000_001 / h).floor() as i64).max(1) };
        let reach = s * (2.0 * (ray.accuracy + 3.0) + alpha * alpha / (s * s)).sqrt();
        rays.push(Ray {
            psi: ray.psi,
            table_psi: ray.table_psi,
            centre: (((plan.c / phase.rounds as f64).ln() - ray.psi.cos().ln()) / h).round() as i64,
            nodes: (first, last),
            range: ((ray.x.0 / h).floor() as i64, (ray.x.1 / h).ceil() as i64),
            fine_range: ((ray.fine_x.0 / fine).floor() as i64, (ray.fine_x.1 / fine).ceil() as i64),
            stride,
            half_width: if ray.series.is_some() {
                0
            } else {
                (reach / (stride as f64 * h)).ceil() as i64 + 1
            },
            series: ray.series,
        });
    }
    Ok(PhasePlan { length: length as usize, finer: finer as usize, rays, ln_moment: draft.ln_moment })
}

/// Products of numbers that a phase costs, about.
fn work(phase: &PhasePlan) -> f64 {
    let length = phase.length as f64;
    phase
        .rays
        .iter()
        .map(|ray| {
            let points = (ray.range.1 - ray.range.0) as f64;
            let (half, stride) = (ray.half_width as f64, ray.stride as f64);
            let per_point = if ray.table_psi == 0.0 { 2.0 } else { 4.0 };
            points * (per_point * half + 4.0 * ray.series.unwrap_or(0) as f64 + 200.0)
                + 60.0 * (points + 2.0 * half * stride)
                + 150.0 * (ray.fine_range.1 - ray.fine_range.0) as f64
                + 2.0 * length * (1.0 + phase.finer as f64) * (length * phase.finer as f64).log2()
        })
        .sum()
}
