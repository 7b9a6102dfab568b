//! What accompanies the guarantees: exposure, limits, group privacy, the paper's approximation.

use serde::{Deserialize, Serialize};

use super::Question;
use crate::exposure::RoundLaw;
use crate::mechanism::{EpochDraw, FixedSizes, Independent, Mechanism, PaperForms, Phase};
use crate::shuffle_bound::ShuffleBound;
use crate::{conversions, gaussian, printed};

/// Lower bounds on the answer (ε or δ) for shuffled batches against A₀.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ShuffleFloor {
    /// The differing sample is zeroed out.
    #[serde(with = "crate::number")]
    pub add_remove: f64,
    /// The differing sample is substituted.
    #[serde(with = "crate::number")]
    pub substitute: f64,
    /// The bound assumes that every epoch uses every sample, which is not true here.
    pub left_over_ignored: bool,
}

/// G_{c·h(σ)}, c = (m/N)·√T: the limit for many rounds. Not a guarantee.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Approximation {
    /// c·h(σ).
    pub mu: f64,
    /// ε or δ of G_µ, whichever was asked for.
    #[serde(with = "crate::number")]
    pub answer: f64,
}

/// E\[c²\] and gE. The mean of c² is T·E\[k²\] for every sampler, because each round by itself has the
/// law of [`RoundLaw`].
pub(super) fn exposure(mechanism: &Mechanism) -> (f64, f64) {
    let mean = |phase| {
        let law = RoundLaw::of_phase(mechanism, phase);
        law.mass().iter().enumerate().map(|(k, q)| (k * k) as f64 * q).sum::<f64>()
    };
    let phases = mechanism.phases();
    let squares = phases.iter().map(|phase| phase.rounds() as f64 * mean(phase)).sum();
    let epochs: f64 = phases.iter().map(|phase| phase.epochs()).sum();
    (squares, mechanism.differing() as f64 * epochs)
}

/// How far the worst exposure may lie above the mean before zCDP, which knows only the worst, says nothing.
const FAR_ABOVE: f64 = 10.0;

/// ρ of zCDP, unless it stands for a coincidence: every round hitting every differing sample.
pub(super) fn zero_concentrated(mechanism: &Mechanism) -> Option<f64> {
    let mean = |phase: &Phase| {
        let law = RoundLaw::of_phase(mechanism, phase);
        let square = law.mass().iter().enumerate().map(|(k, q)| (k * k) as f64 * q).sum::<f64>();
        0.5 * phase.rounds() as f64 * square / mechanism.noise_per_hit(phase).powi(2)
    };
    let expected = mechanism.phases().iter().map(mean).sum::<f64>() + 0.5 * mechanism.released_mu().powi(2);
    Some(conversions::zero_concentrated(mechanism)).filter(|rho| *rho <= FAR_ABOVE * expected)
}

impl ShuffleFloor {
    /// The bound is about whole epochs with one noise, one differing sample and nothing else released;
    /// further releases can only add to it, and are ignored because they are not part of the pair.
    pub(super) fn of(mechanism: &Mechanism, question: Question) -> Option<Self> {
        let [phase] = mechanism.phases() else { return None };
        let sizes = match phase.sampling().independent() {
            Independent::Rounds | Independent::Epochs(EpochDraw::Allocation { .. }) => return None,
            Independent::Epochs(EpochDraw::Permutation(sizes)) => sizes,
        };
        let per_epoch = phase.sampling().rounds_per_epoch();
        let whole = phase.rounds().is_multiple_of(per_epoch);
        if !whole || phase.filtered() || mechanism.differing() != 1 {
            return None;
        }
        let bound = |shifts| {
            let z = phase.noise_multiplier();
            let bound = ShuffleBound::new(per_epoch, phase.rounds() / per_epoch, z, shifts).ok()?;
            match question {
                Question::Epsilon { delta } => bound.epsilon(delta).ok(),
                Question::Delta { epsilon } => Some(bound.delta(epsilon)),
            }
        };
        Some(Self {
            add_remove: bound((2.0, 1.0))?,
            substitute: bound((2.0, 0.0))?,
            left_over_ignored: !sizes.samples.is_multiple_of(sizes.batch()),
        })
    }
}

impl Approximation {
    pub(super) fn of(mechanism: &Mechanism, question: Question) -> Option<Self> {
        let [phase] = mechanism.phases() else { return None };
        let FixedSizes { samples, groups, group_size } = match phase.sampling().paper_forms() {
            PaperForms::Subsampled(sizes) => sizes,
            PaperForms::Shuffled(_) | PaperForms::Absent => return None,
        };
        let individual = group_size == 1 && mechanism.differing() == 1;
        if !individual || phase.filtered() || !mechanism.releases().is_empty() {
            return None;
        }
        let c = groups as f64 / samples as f64 * (phase.rounds() as f64).sqrt();
        let mu = c * printed::h(phase.sigma());
        let answer = match question {
            Question::Epsilon { delta } => gaussian::epsilon(mu, delta),
            Question::Delta { epsilon } => gaussian::delta(mu, epsilon),
        };
        mu.is_finite().then_some(Self { mu, answer })
    }
}
