//! The same guarantee in other currencies, each with the direction of the implication.
//!
//! f ⇒ (ω, τ)-RDP: Rényi divergence is determined by the pair, so τ(ω) = ln M(ω−1)/(ω−1) is exact
//! for the pair that is composed, and an upper bound for the run. RDP for all ω ≤ Ω ⇒ (ρ, Ω)-tCDP with
//! ρ = sup τ(ω)/ω; (ρ, ∞)-tCDP is ρ-zCDP. None of these can be turned back into f without loss.

use crate::adversary::{Adversary, blind_loss, known_by_moments};
use crate::error::{PrivacyError, require};
use crate::interval::Interval;
use crate::mechanism::{Mechanism, Neighbours};

/// (ω, τ)-RDP: the Rényi divergence of order ω > 1, the worse of both directions.
///
/// # Guarantee
/// The run is (ω, `upper`)-RDP against the adversary.
pub fn renyi(mechanism: &Mechanism, adversary: Adversary, order: f64) -> Result<Interval, PrivacyError> {
    require(order > 1.0 && order <= 1e4, "order", order, "above 1 and at most 10000")?;
    let c = order - 1.0;
    let moment = match adversary {
        Adversary::A1 => known_by_moments(mechanism)?.ln_moment(c)?,
        Adversary::A0 => {
            let forward = blind_loss(mechanism, false)?.ln_moment(c)?;
            match mechanism.neighbours() {
                Neighbours::Substitute => forward,
                Neighbours::AddRemove => forward.max(blind_loss(mechanism, true)?.ln_moment(c)?),
            }
        }
    };
    Ok(Interval { lower: (moment.lower / c).max(0.0), upper: moment.upper / c })
}

/// (ρ, Ω)-tCDP: the smallest ρ with τ(ω) ≤ ρ·ω for all 1 < ω ≤ Ω.
///
/// # Guarantee
/// The run is (`upper`, Ω)-tCDP. τ is increasing in ω, so between two computed orders τ(ω)/ω is at most
/// τ(next)/ω(this); the grid has 2 % steps.
pub fn truncated_concentrated(
    mechanism: &Mechanism,
    adversary: Adversary,
    largest_order: f64,
) -> Result<Interval, PrivacyError> {
    require(
        largest_order > 1.0 && largest_order <= 1e4,
        "order",
        largest_order,
        "above 1 and at most 10000",
    )?;
    if adversary == Adversary::A1 {
        // τ(ω)/ω = ln E[e^{xc²/2σ²}]/x with x = ω(ω−1) increases with x: the last order is the worst.
        let tau = renyi(mechanism, adversary, largest_order)?;
        return Ok(Interval { lower: tau.lower / largest_order, upper: tau.upper / largest_order });
    }
    let mut best = Interval::exact(0.0);
    let mut order = largest_order;
    let mut tau = renyi(mechanism, adversary, order)?;
    loop {
        let next = (1.0 + (order - 1.0) / 1.1).min(order / 1.02);
        best.lower = best.lower.max(tau.lower / order);
        best.upper = best.upper.max(tau.upper / next.max(1.0));
        if next - 1.0 < 1e-3 {
            return Ok(best);
        }
        order = next;
        tau = renyi(mechanism, adversary, order)?;
    }
}

/// ρ-zCDP of a run against A₁, and so against A₀: the largest exposure that can happen at all,
/// ρ = max c²/(2σ²), because τ(ω)/ω rises to it as ω → ∞.
///
/// # Guarantee
/// The run is ρ-zCDP. It is the best ρ for A₁; it is usually far above what the curve says, because
/// zCDP asks about events of any probability, however small.
pub fn zero_concentrated(mechanism: &Mechanism) -> f64 {
    use crate::mechanism::Sampling;
    let g = mechanism.differing() as f64;
    let released: f64 = mechanism.releases().iter().map(|mu| 0.5 * mu * mu).sum();
    let phases = mechanism.phases().iter().map(|phase| {
        let noise = mechanism.noise_per_hit(phase);
        let rounds = phase.rounds() as f64;
        let most = match phase.sampling() {
            // Every round hits as many groups as there are differing samples.
            Sampling::Subsample { groups, .. } => rounds * g.min(groups as f64).powi(2),
            Sampling::Poisson { .. } => rounds * g * g,
            // An epoch places g samples: as many as possible in one round.
            Sampling::Shuffle { groups, .. } => {
                let per_epoch = phase.sampling().rounds_per_epoch() as f64;
                let most = g.min(groups as f64);
                (rounds / per_epoch).ceil()
                    * ((g / most).floor() * most * most + (g % most).powi(2)).min(per_epoch * most * most)
            }
        };
        0.5 * most / (noise * noise)
    });
    phases.sum::<f64>() + released
}
