//! A₀ against random allocation: whole epochs, by the engine of [`crate::allocation`].

use std::sync::OnceLock;

use super::envelope::{Bound, Envelope};
use super::known_by_moments;
use crate::allocation::substitution::{self, SplitNoise};
use crate::allocation::{self, AllocationPair};
use crate::curve::{Curve, Remembered};
use crate::error::PrivacyError;
use crate::interval::Interval;
use crate::loss::Loss;
use crate::mechanism::{Blind, Independent, Mechanism, Neighbours, Phase};
use crate::{exposure, gaussian};

/// The largest noise multiplier the engine is tested with; a run with more noise is counted with this much.
const MOST_NOISE: f64 = 1e4;

fn is_allocated(phase: &Phase) -> bool {
    match phase.sampling().blind() {
        Blind::Allocation { .. } => true,
        Blind::Halves | Blind::Line { .. } | Blind::Unsupported { .. } => false,
    }
}

/// Whether every phase is allocated.
pub(super) fn only(mechanism: &Mechanism) -> bool {
    mechanism.phases().iter().all(is_allocated)
}

/// Whether the pair of one sample can happen: it is added or removed, as a group of its own, unfiltered.
pub(super) fn attains(mechanism: &Mechanism) -> bool {
    let plain = |phase: &Phase| is_allocated(phase) && !phase.filtered() && !phase.sampling().shares_groups();
    mechanism.neighbours() == Neighbours::AddRemove
        && mechanism.differing() == 1
        && mechanism.phases().iter().all(plain)
}

/// The theorem for one sample, in one sentence.
pub(super) fn basis(mechanism: &Mechanism) -> &'static str {
    match mechanism.neighbours() {
        Neighbours::AddRemove => {
            "composition over the epochs of the random-allocation pair (1/B)·Σ_b N(e_b, z²I) against \
             N(0, z²I), the worse of adding and removing"
        }
        Neighbours::Substitute => {
            "two steps, to the run without the sample and from there to the other sample, each bounded by \
             the random-allocation pair, or both samples at once with half the noise each (the lower end is \
             what two opposite samples attain)"
        }
    }
}

/// The phases as the engine takes them, an incomplete epoch counted as a whole one and a filter left out.
///
/// # Guarantee
/// A filter can only help: where a sample's group is dropped, the epoch is one without the sample. The kernel
/// that tosses the sample's coin, and replaces the epoch by pure noise N(0, z²I) on tails, maps Q to Q and P
/// to the filtered mixture.
fn phases(mechanism: &Mechanism) -> Vec<allocation::Phase> {
    let of = |phase: &Phase| match phase.sampling().independent() {
        Independent::Rounds => None,
        Independent::Epochs(draw) => Some(allocation::Phase {
            rounds: phase.sampling().rounds_per_epoch(),
            epochs: exposure::epochs(phase, draw).0,
            // Less noise is a bound.
            noise_multiplier: phase.noise_per_sample().min(MOST_NOISE),
        }),
    };
    mechanism.phases().iter().filter_map(of).collect()
}

/// The trade-off function of one sample against A₀; refused outside the range of the engine (less noise or
/// more epochs than it is tested with).
///
/// # Guarantee
/// That of [`basis`].
pub(super) fn curve(mechanism: &Mechanism) -> Result<Box<dyn Curve>, PrivacyError> {
    let phases = phases(mechanism);
    let pair = AllocationPair::with_releases(&phases, mechanism.releases())?;
    Ok(match mechanism.neighbours() {
        Neighbours::AddRemove => Box::new(Remembered::new(pair)),
        Neighbours::Substitute => Box::new(Envelope::new(Substituted {
            pair,
            split: SplitNoise::new(&phases, mechanism.releases()).ok(),
            orders: OnceLock::new(),
            attained: attained_mu(mechanism),
        })),
    })
}

/// The Rényi divergences of an allocated run against A₀.
///
/// # Guarantee
/// Upper ends bound the run: by the moments of the pair ([`AllocationPair::renyi`]) where one sample is added
/// or removed, by [`SplitNoise::renyi`] where one is substituted, and always by those of an adversary who is
/// told the allocation.
#[derive(Debug)]
pub(crate) struct Divergences {
    pair: Option<AllocationPair>,
    split: Option<SplitNoise>,
    told: Loss,
}

impl Divergences {
    /// `None` unless every phase is allocated.
    pub(crate) fn of(mechanism: &Mechanism) -> Result<Option<Self>, PrivacyError> {
        if !mechanism.phases().iter().all(is_allocated) {
            return Ok(None);
        }
        let (phases, releases) = (phases(mechanism), mechanism.releases());
        let (pair, split) = match (mechanism.neighbours(), mechanism.differing()) {
            (Neighbours::AddRemove, 1) => (AllocationPair::with_releases(&phases, releases).ok(), None),
            (Neighbours::Substitute, 1) => (None, SplitNoise::new(&phases, releases).ok()),
            (Neighbours::AddRemove | Neighbours::Substitute, _) => (None, None),
        };
        Ok(Some(Self { pair, split, told: known_by_moments(mechanism)? }))
    }

    /// That of order ω.
    pub(crate) fn divergence(&self, order: f64) -> Result<Interval, PrivacyError> {
        let told = self.told.ln_moment(order - 1.0).map(|ln| ln.upper / (order - 1.0));
        let own = match (&self.pair, &self.split) {
            (Some(pair), _) => pair.renyi(order)?,
            (None, Some(split)) => Interval { lower: 0.0, upper: split.renyi(order) },
            (None, None) => Interval { lower: 0.0, upper: f64::INFINITY },
        };
        // A filter is left out of the pair, so its own lower end says nothing about the run.
        match told {
            Ok(told) => Ok(Interval { lower: own.lower.min(told), upper: own.upper.min(told) }),
            Err(error) if own.upper.is_infinite() => Err(error),
            Err(_) => Ok(own),
        }
    }
}

/// µ of what a substitution leaks at least: the sum of an epoch's rounds.
///
/// # Guarantee
/// Attained: all other samples are silent, the differing one adds v in one data set and −v in the other, and
/// ‖2v‖ is the most that a substitution moves. Whichever round it drew, the sum of the epoch's B rounds along
/// v is N(±‖v‖, B·noise²): exactly Gaussian.
fn attained_mu(mechanism: &Mechanism) -> f64 {
    let of = |phase: &Phase| {
        // An incomplete last epoch may not hold the sample.
        let whole = phase.rounds() / phase.sampling().rounds_per_epoch();
        whole as f64 / (phase.sampling().rounds_per_epoch() as f64 * phase.sigma() * phase.sigma())
    };
    let filtered = mechanism.phases().iter().any(Phase::filtered);
    if filtered { 0.0 } else { mechanism.phases().iter().map(of).sum::<f64>().sqrt() * (1.0 - 1e-12) }
}

/// One sample is substituted: from d to the run in which it is silent, and on to d'; or both halves of the
/// noise at once.
///
/// # Guarantee
/// Upper ends: the better of [`substitution::delta_by_two_steps`] and [`SplitNoise`]. A further release that
/// is G_µ for (d, d') is charged in both steps; one would do: between the two steps stands the run that is
/// silent about the sample but releases what d releases, so that only the second step changes the release.
/// Lower ends are attained: [`attained_mu`], the opposite pair seen through one linear test. That the
/// opposite pair is the worst is not proved, and no upper end rests on it.
struct Substituted {
    pair: AllocationPair,
    split: Option<SplitNoise>,
    /// The orders of the second route, a dozen, once somebody asked.
    orders: OnceLock<Vec<(f64, f64)>>,
    attained: f64,
}

impl Substituted {
    fn orders(&self) -> &[(f64, f64)] {
        self.orders.get_or_init(|| self.split.as_ref().map(SplitNoise::orders).unwrap_or_default())
    }
}

impl Bound for Substituted {
    fn delta(&self, epsilon: f64) -> Result<f64, PrivacyError> {
        let two = substitution::delta_by_two_steps(&self.pair, epsilon)?;
        let split = self.orders().iter().map(|&(k, ln)| ln - (k - 1.0) * epsilon);
        Ok(two.min(split.fold(0.0, f64::min).exp() * (1.0 + 1e-9)))
    }

    fn epsilon(&self, delta: f64) -> Result<f64, PrivacyError> {
        let two = substitution::epsilon_by_two_steps(&self.pair, delta)?;
        let split = self.orders().iter().map(|&(k, ln)| (ln - delta.ln()) / (k - 1.0) * (1.0 + 1e-12));
        Ok(split.fold(two, f64::min).max(0.0))
    }

    fn delta_below(&self, epsilon: f64) -> Result<f64, PrivacyError> {
        if self.attained == 0.0 {
            return Ok(0.0);
        }
        let error = gaussian::delta_relative_error(self.attained, epsilon);
        Ok((gaussian::delta(self.attained, epsilon) * (1.0 - error)).max(0.0))
    }

    fn epsilon_below(&self, delta: f64) -> Result<f64, PrivacyError> {
        if self.attained == 0.0 {
            return Ok(0.0);
        }
        Ok((gaussian::epsilon(self.attained, delta) * (1.0 - 1e-9)).max(0.0))
    }

    fn table(&self, step: f64, count: usize) -> Result<Vec<f64>, PrivacyError> {
        substitution::table_by_two_steps(&self.pair, step, count)
    }
}
