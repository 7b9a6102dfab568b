//! One sample replaced by another, and several samples added, by way of the pair without them.
//!
//! A substitution is bounded in two steps: from x to a silent index, and from there to x', so δ(ε) ≤ min
//! over ε₁ + ε₂ = ε of δ_{P‖Q}(ε₁) + e^{ε₁}·δ_{Q‖P}(ε₂). The best split loses nothing against the trade-off
//! form T₂(1 − T₁): with the powers g₁, g₂ of the two steps, both concave, sup_α g₂(g₁(α)) − e^ε·α is
//! attained where the slopes multiply to e^ε, and there the tangents of both steps are a split. Beside it is
//! the composition by split noise ([`SplitNoise`]). That the antipodal pair dominates is not proved and not used;
//! what it leaks is a lower end.

use super::renyi::ln_touch;
use super::{AllocationPair, Direction, Phase};
use crate::error::PrivacyError;

/// Thresholds tried for the first step; any choice gives a valid bound.
const SPLITS: usize = 40;

/// An upper bound on δ(ε) when one sample is substituted, by two steps.
///
/// # Guarantee
/// For every event S, P(S) ≤ e^{ε₁}·Q(S) + δ_{P‖Q}(ε₁) and Q(S) ≤ e^{ε₂}·P'(S) + δ_{Q‖P'}(ε₂); so
/// δ_{P‖P'}(ε₁+ε₂) ≤ δ_{P‖Q}(ε₁) + e^{ε₁}·δ_{Q‖P'}(ε₂). The upper ends of certified intervals are used, so
/// the result is a bound whichever splits are tried. Both samples have the same bounds against Q, so the
/// order does not matter.
pub fn delta_by_two_steps(pair: &AllocationPair, epsilon: f64) -> Result<f64, PrivacyError> {
    let at = |first: f64| -> Result<f64, PrivacyError> {
        let forward = pair.delta_of(Direction::Forward, first)?.upper;
        let reverse = pair.delta_of(Direction::Reverse, (epsilon - first).max(0.0))?.upper;
        Ok((forward + first.exp() * reverse) * (1.0 + 1e-12 * (1.0 + epsilon)))
    };
    // Golden section on ln of the bound; the best value seen is returned, so that no shape is assumed.
    let ratio = 0.5 * (5_f64.sqrt() - 1.0);
    let (mut low, mut high) = (0.0, epsilon);
    let mut best = at(0.5 * epsilon)?;
    let (mut a, mut b) = (high - ratio * (high - low), low + ratio * (high - low));
    let (mut at_a, mut at_b) = (at(a)?, at(b)?);
    for _ in 0..SPLITS {
        best = best.min(at_a).min(at_b);
        if at_a < at_b {
            (high, b, at_b) = (b, a, at_a);
            a = high - ratio * (high - low);
            at_a = at(a)?;
        } else {
            (low, a, at_a) = (a, b, at_b);
            b = low + ratio * (high - low);
            at_b = at(b)?;
        }
        if high - low < 1e-7 * epsilon {
            break;
        }
    }
    Ok(best.min(1.0))
}

/// Upper bounds on δ at ε = 0, `step`, …, `count`·`step` when one sample is substituted, by two steps between
/// these thresholds: 2·`count` evaluations in place of an optimisation for each.
///
/// # Guarantee
/// As for [`delta_by_two_steps`].
pub fn table_by_two_steps(pair: &AllocationPair, step: f64, count: usize) -> Result<Vec<f64>, PrivacyError> {
    let values = |direction: Direction| -> Result<Vec<f64>, PrivacyError> {
        // From the far end: the line for a threshold also serves the nearer half.
        let far_first = (0..=count).rev().map(|i| Ok(pair.delta_of(direction, i as f64 * step)?.upper));
        let mut values = far_first.collect::<Result<Vec<f64>, PrivacyError>>()?;
        values.reverse();
        Ok(values)
    };
    let (forward, reverse) = (values(Direction::Forward)?, values(Direction::Reverse)?);
    Ok((0..=count)
        .map(|k| {
            let total = k as f64 * step;
            let split = |i: usize| forward[i] + (i as f64 * step).exp() * reverse[k - i];
            let best = (0..=k).map(split).fold(f64::INFINITY, f64::min);
            (best * (1.0 + 1e-12 * (1.0 + total))).min(1.0)
        })
        .collect())
}

/// An ε with δ(ε) ≤ `delta` when one sample is substituted, by two steps.
///
/// # Guarantee
/// For every share t, ε₁ with δ_{P‖Q}(ε₁) ≤ tδ and ε₂ with δ_{Q‖P}(ε₂) ≤ (1−t)·δ·e^{−ε₁} give
/// δ(ε₁+ε₂) ≤ δ by [`delta_by_two_steps`]; upper ends are used and t is free, so every t tried is a bound.
pub fn epsilon_by_two_steps(pair: &AllocationPair, delta: f64) -> Result<f64, PrivacyError> {
    let at = |log_odds: f64| -> Result<f64, PrivacyError> {
        let share = 1.0 / (1.0 + (-log_odds).exp());
        let first = pair.epsilon_of(Direction::Forward, share * delta)?.upper;
        // Room for rounding e^{−ε₁} and 1 − t.
        let rest = (1.0 - share) * delta * (-first).exp() * (1.0 - 1e-12 * (1.0 + first));
        let second = pair.epsilon_of(Direction::Reverse, rest)?.upper;
        Ok((first + second).next_up())
    };
    // Golden section; the best value seen is returned, so that no shape is assumed.
    let ratio = 0.5 * (5_f64.sqrt() - 1.0);
    let (mut low, mut high) = (-8.0, 8.0);
    let (mut a, mut b) = (high - ratio * (high - low), low + ratio * (high - low));
    let (mut at_a, mut at_b) = (at(a)?, at(b)?);
    let mut best = at(0.0)?;
    while high - low > 1e-3 {
        best = best.min(at_a).min(at_b);
        if at_a < at_b {
            (high, b, at_b) = (b, a, at_a);
            a = high - ratio * (high - low);
            at_a = at(a)?;
        } else {
            (low, a, at_a) = (a, b, at_b);
            b = low + ratio * (high - low);
            at_b = at(b)?;
        }
    }
    Ok(best.min(at_a).min(at_b))
}

/// The second route: the noise is split into two halves, z² = z²/2 + z²/2, and one carries x, the other x'.
///
/// # Guarantee
/// The sum of the halves is a post-processing of (P ⊗ Q, Q ⊗ P)^{⊗E} with z/√2, by the kernel of theorem 1 on
/// each half. Its moments are E Λ^k = M(k)^E·M(1−k)^E, M(w) = E_Q L^w at z/√2, and a further release G_µ
/// multiplies them by e^{µ²k(k−1)/2}. Every order k bounds δ(ε) ≤ E Λ^k·e^{−(k−1)ε}·(k−1)^{k−1}/k^k. The pair
/// is symmetric, so this is both directions.
#[derive(Debug)]
pub struct SplitNoise {
    pair: AllocationPair,
    releases: f64,
}

/// Orders tried for the split noise.
const ORDERS: [f64; 12] = [2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 11.0, 16.0, 22.0, 32.0, 45.0, 64.0];

impl SplitNoise {
    /// For some phases and further releases that are G_µ for the substituted sample.
    pub fn new(phases: &[Phase], releases: &[f64]) -> Result<Self, PrivacyError> {
        let halves: Vec<Phase> = split_noise(phases, 2)
            .into_iter()
            .zip(phases)
            .map(|(h, p)| Phase { epochs: p.epochs, ..h })
            .collect();
        Ok(Self { pair: AllocationPair::new(&halves)?, releases: releases.iter().map(|mu| mu * mu).sum() })
    }

    /// An upper bound of ln E Λ^ω, ω > 1.
    fn ln_moment(&self, order: f64) -> f64 {
        self.pair.moments.ln_moment(order)
            + self.pair.ln_inverse_moment(order - 1.0)
            + 0.5 * self.releases * order * (order - 1.0)
    }

    /// (k, upper bound of ln E Λ^k − ln of the touching factor).
    pub fn orders(&self) -> Vec<(f64, f64)> {
        ORDERS.iter().map(|&k| (k, self.ln_moment(k) + ln_touch(k))).collect()
    }

    /// An upper bound of the Rényi divergence of order ω.
    pub fn renyi(&self, order: f64) -> f64 {
        self.ln_moment(order) / (order - 1.0)
    }
}

/// The phases that bound g samples added (or removed) at once, by splitting the noise: z/√g and gE epochs.
///
/// # Guarantee
/// Theorem (noise splitting): z² = g·(z²/g), each share carries one of the g samples; the sum of the shares
/// is a post-processing of the product of g independent pairs with noise z/√g. Worse than the g-fold
/// iterate of the trade-off function where that is nearly Gaussian, better at some tiny δ.
pub fn split_noise(phases: &[Phase], g: u64) -> Vec<Phase> {
    let root = (g.max(1) as f64).sqrt();
    phases
        .iter()
        .map(|p| Phase {
            epochs: p.epochs.saturating_mul(g.max(1)),
            // Rounded down: less noise is a larger bound.
            noise_multiplier: (p.noise_multiplier / root).next_down().next_down(),
            ..*p
        })
        .collect()
}

/// The pair of [`split_noise`].
pub fn group(phases: &[Phase], g: u64) -> Result<AllocationPair, PrivacyError> {
    AllocationPair::new(&split_noise(phases, g))
}
