//! Everything there is to know about one run.

use dpsgd::Error;
use dpsgd_privacy::bounds::Bounds;
use dpsgd_privacy::mechanism::Mechanism;
use dpsgd_privacy::printed::{self, Printed};
use dpsgd_privacy::{Adversary, Interval, PrivacyError, adversary, group};

use super::band::BoundsBand;
use super::grid::Case;
use super::{ALPHAS, DELTA};

/// The certified numbers of a run, and what the paper prints about it.
#[derive(Clone)]
pub struct Answers {
    /// The run.
    pub case: Case,
    /// T.
    pub rounds: u64,
    /// Against A₁, or why nothing is certified.
    pub known: Result<Certified, String>,
    /// Against A₀, or why nothing is certified.
    pub blind: Result<Certified, String>,
    /// ε against A₀ by group privacy in g equal steps, for subsampled batches and g > 1.
    pub group: Option<Interval>,
    /// f^L and f^U, or why there are none.
    pub band: Result<BoundsBand, String>,
    /// The closed forms that are about the run.
    pub printed: Vec<Printed>,
}

/// What is certified against one adversary.
#[derive(Clone)]
pub struct Certified {
    /// ε at [`DELTA`].
    pub epsilon: Interval,
    /// µ and the smallest error rate for which it is stated, or why there is none.
    pub mu: Result<(Interval, f64), String>,
    /// β at each of [`ALPHAS`].
    pub beta: [Interval; 2],
}

impl Answers {
    /// Everything about one run. Where nothing is certified, the reason takes its place.
    pub fn of(case: &Case) -> Result<Self, Error> {
        let mechanism = case.mechanism()?;
        Ok(Self {
            case: *case,
            rounds: mechanism.rounds(),
            known: Certified::of(&mechanism, Adversary::A1).map_err(|error| error.to_string()),
            blind: Certified::of(&mechanism, Adversary::A0).map_err(|error| error.to_string()),
            group: by_groups(&mechanism).ok().flatten(),
            band: Bounds::of(&mechanism)
                .map(|bounds| BoundsBand::of(&bounds, DELTA))
                .map_err(|error| error.to_string()),
            printed: printed::as_printed(&mechanism, DELTA)?,
        })
    }
}

impl Certified {
    fn of(mechanism: &Mechanism, adversary: Adversary) -> Result<Self, PrivacyError> {
        let curve = adversary::curve(mechanism, adversary)?;
        let [first, second] = ALPHAS.map(|alpha| curve.beta(alpha));
        Ok(Self {
            epsilon: curve.epsilon(DELTA)?,
            mu: curve.mu_on_default_range().map_err(|error| error.to_string()),
            beta: [first?, second?],
        })
    }
}

/// Group privacy of the curve of one sample; none for g = 1 and for shuffled batches.
fn by_groups(mechanism: &Mechanism) -> Result<Option<Interval>, PrivacyError> {
    let g = mechanism.differing();
    if g == 1 {
        return Ok(None);
    }
    let mut single = mechanism.config();
    single.differing = 1;
    let single = adversary::curve(&single.check()?, Adversary::A0)?;
    group::epsilon(&*single, g, DELTA).map(Some)
}
