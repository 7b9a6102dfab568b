//! The same guarantee in other definitions of privacy, each with the direction of the implication.
//!
//! f ⇒ (ω, τ)-RDP: Rényi divergence is determined by the pair, so τ(ω) = ln M(ω−1)/(ω−1) is exact
//! for the pair that is composed, and an upper bound for the run. RDP for all ω ≤ Ω ⇒ (ρ, Ω)-tCDP with
//! ρ = sup τ(ω)/ω; (ρ, ∞)-tCDP is ρ-zCDP. Converting any of these back into f loses information.

use crate::adversary::allocated::Divergences;
use crate::adversary::{Adversary, blind_losses, known_by_moments};
use crate::error::{PrivacyError, require};
use crate::exposure::RoundLaw;
use crate::interval::Interval;
use crate::loss::Loss;
use crate::mechanism::{EpochDraw, Independent, Mechanism, Phase, RoundDraw};

/// The Rényi divergences of a run against one adversary, of any order; the moment function is built once.
#[derive(Debug)]
pub struct Renyi {
    adversary: Adversary,
    moments: Moments,
    /// ρ of the largest exposure, where some exposures are too rare for double precision to hold their
    /// probabilities: a moment that lacks them says nothing.
    ceiling: Option<f64>,
}

#[derive(Debug)]
enum Moments {
    /// All pairs that count, both directions of each where that makes a difference.
    Composed(Vec<Loss>),
    /// Random allocation: whole epochs, by their own engine.
    Allocated(Box<Divergences>),
}

impl Renyi {
    /// The divergences of a run; refused where no theorem covers the adversary.
    pub fn of(mechanism: &Mechanism, adversary: Adversary) -> Result<Self, PrivacyError> {
        let mechanism = &mechanism.merged();
        let ceiling = mechanism
            .phases()
            .iter()
            .any(|phase| underflows(mechanism, phase))
            .then(|| zero_concentrated(mechanism));
        let pairs = match adversary {
            Adversary::A1 => vec![known_by_moments(mechanism)?],
            Adversary::A0 => {
                if let Some(divergences) = Divergences::of(mechanism)? {
                    let moments = Moments::Allocated(Box::new(divergences));
                    return Ok(Self { adversary, moments, ceiling: None });
                }
                blind_losses(mechanism)?
            }
        };
        Ok(Self { adversary, moments: Moments::Composed(pairs), ceiling })
    }

    /// τ of (ω, τ)-RDP: the Rényi divergence of order ω > 1, the worse of both directions.
    ///
    /// # Guarantee
    /// The run is (ω, `upper`)-RDP against the adversary.
    pub fn divergence(&self, order: f64) -> Result<Interval, PrivacyError> {
        require(order > 1.0 && order <= 1e4, "order", order, "above 1 and at most 10000")?;
        if let Some(ceiling) = self.ceiling {
            return Ok(Interval { lower: 0.0, upper: ceiling * order * (1.0 + 1e-12) });
        }
        let c = order - 1.0;
        let mut moment = Interval::exact(0.0);
        match &self.moments {
            Moments::Allocated(divergences) => return divergences.divergence(order),
            Moments::Composed(pairs) => {
                for pair in pairs {
                    moment = moment.max(pair.ln_moment(c)?);
                }
            }
        }
        Ok(Interval { lower: (moment.lower / c).max(0.0), upper: moment.upper / c })
    }

    /// (ρ, Ω)-tCDP: the smallest ρ with τ(ω) ≤ ρ·ω for all 1 < ω ≤ Ω.
    ///
    /// # Guarantee
    /// The run is (`upper`, Ω)-tCDP. τ is increasing in ω, so between two computed orders τ(ω)/ω is at
    /// most τ(next)/ω(this); the grid has 2 % steps.
    pub fn truncated_concentrated(&self, largest_order: f64) -> Result<Interval, PrivacyError> {
        let in_range = largest_order > 1.0 && largest_order <= 1e4;
        require(in_range, "order", largest_order, "above 1 and at most 10000")?;
        if matches!(self.moments, Moments::Allocated(_)) {
            return Err(PrivacyError::Unsupported {
                what: "tCDP against A0 with random allocation".to_string(),
                why: "moments of integer orders are computed; near order 1 they bound it by twice its value"
                    .to_string(),
            });
        }
        if self.adversary == Adversary::A1 {
            // τ(ω)/ω = ln E[e^{xc²/2σ²}]/x with x = ω(ω−1) increases with x: the last order is the worst.
            let tau = self.divergence(largest_order)?;
            return Ok(Interval { lower: tau.lower / largest_order, upper: tau.upper / largest_order });
        }
        let mut best = Interval::exact(0.0);
        let mut order = largest_order;
        let mut tau = self.divergence(order)?;
        loop {
            let next = (1.0 + (order - 1.0) / 1.1).min(order / 1.02);
            best.lower = best.lower.max(tau.lower / order);
            best.upper = best.upper.max(tau.upper / next.max(1.0));
            if next - 1.0 < 1e-3 {
                return Ok(best);
            }
            order = next;
            tau = self.divergence(order)?;
        }
    }
}

/// ρ-zCDP of a run against A₁, and so against A₀: the largest exposure that can happen at all,
/// ρ = max c²/(2σ²), because τ(ω)/ω rises to it as ω → ∞.
///
/// # Guarantee
/// The run is ρ-zCDP. It is the best ρ for A₁; it is usually far above what the curve says, because
/// zCDP asks about events of any probability, however small.
pub fn zero_concentrated(mechanism: &Mechanism) -> f64 {
    let released = 0.5 * mechanism.released_mu().powi(2);
    let phases = mechanism.phases().iter().map(|phase| {
        let noise = mechanism.noise_per_hit(phase);
        0.5 * most_exposed(phase, mechanism.differing() as f64) / (noise * noise)
    });
    phases.sum::<f64>() + released
}

/// The most groups that a round can hit.
fn most_hit(phase: &Phase, g: f64) -> f64 {
    match phase.sampling().round() {
        RoundDraw::Subset(sizes) => g.min(sizes.groups as f64),
        RoundDraw::Cells { groups, .. } => g.min(groups as f64),
        RoundDraw::EachSample { .. } => g,
    }
}

/// Whether rounds are independent and hit so many groups so rarely that the probability is not a normal number.
fn underflows(mechanism: &Mechanism, phase: &Phase) -> bool {
    if !matches!(phase.sampling().independent(), Independent::Rounds) {
        // What the laws of epochs lack is charged.
        return false;
    }
    let most = most_hit(phase, mechanism.differing() as f64) as usize;
    let rarest = |law: RoundLaw| law.mass().get(most).copied().unwrap_or(0.0);
    [RoundLaw::unfiltered(mechanism, phase), RoundLaw::of_phase(mechanism, phase)]
        .map(rarest)
        .into_iter()
        .any(|probability| probability < f64::MIN_POSITIVE)
}

/// The largest c² of a phase that has any probability, for g differing samples.
fn most_exposed(phase: &Phase, g: f64) -> f64 {
    let rounds = phase.rounds() as f64;
    match phase.sampling().independent() {
        // Every round hits as many groups as it can.
        Independent::Rounds => rounds * most_hit(phase, g).powi(2),
        // An allocation may place all g samples in the same round of every epoch, in different cells as far
        // as there are that many; what is left over then goes to the next round, if there is one.
        Independent::Epochs(EpochDraw::Allocation { rounds: per_epoch, cells }) => {
            let most = cells.map_or(g, |cells| g.min(cells as f64));
            let full = (g / most).floor().min(per_epoch as f64);
            let rest = if full < per_epoch as f64 { g - full * most } else { 0.0 };
            (rounds / per_epoch as f64).ceil() * (full * most * most + rest * rest)
        }
        // An epoch places g samples: as many as possible in one round.
        Independent::Epochs(EpochDraw::Permutation(sizes)) => {
            let per_epoch = phase.sampling().rounds_per_epoch() as f64;
            let most = g.min(sizes.groups as f64);
            (rounds / per_epoch).ceil()
                * ((g / most).floor() * most * most + (g % most).powi(2)).min(per_epoch * most * most)
        }
    }
}
