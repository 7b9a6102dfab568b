//! What several runs on the same data release together.

use dpsgd_privacy::PrivacyError;
use dpsgd_privacy::adversary::Adversary;
use dpsgd_privacy::budget::Budget;
use dpsgd_privacy::mechanism::{Mechanism, MechanismError, Neighbours, RunConfig};

use super::Entry;

/// What several runs on the same data release together.
#[derive(Clone, Debug)]
pub struct Total {
    /// The runs whose guarantees are added up.
    pub private: usize,
    /// Runs with a seed, which have no guarantee to be added.
    pub seeded: usize,
    /// All private runs as one: a sequence of their phases; nothing if there are none.
    pub mechanism: Option<Mechanism>,
}

impl Total {
    /// The certified ε at δ of all private runs together, and against whom.
    pub fn epsilon(&self, delta: f64) -> Option<Result<(f64, Adversary), PrivacyError>> {
        let mechanism = self.mechanism.as_ref()?;
        let adversary = Adversary::usual(mechanism);
        let spent = Budget { adversary, delta }.spent(mechanism, mechanism.rounds());
        Some(spent.map(|epsilon| (epsilon, adversary)))
    }
}

/// Adds up runs on the same data.
///
/// # Guarantee
/// Every output of every private run can be computed from the output of the returned mechanism, which is their
/// adaptive composition: the curves of their rounds are composed, not their ε added. It holds for the stricter
/// neighbour relation (substitution, if one run needs it) and for the most differing samples of any run. A run
/// that is accounted for under a stricter relation than its own has the same rounds; its further releases are
/// doubled by group privacy (to substitute a sample is to remove one and to add one).
pub fn total<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Result<Total, MechanismError> {
    let (private, seeded): (Vec<&Entry>, Vec<&Entry>) = entries.into_iter().partition(|entry| entry.private);
    let runs = private.iter().map(|entry| entry.spent()).collect::<Result<Vec<_>, _>>()?;
    let counted = Total { private: runs.len(), seeded: seeded.len(), mechanism: None };
    if runs.is_empty() {
        return Ok(counted);
    }
    let substituted = runs.iter().any(|run| run.neighbours() == Neighbours::Substitute);
    let neighbours = if substituted { Neighbours::Substitute } else { Neighbours::AddRemove };
    let differing = runs.iter().map(Mechanism::differing).max().unwrap_or(1);
    let mut all = RunConfig { neighbours, differing, releases: Vec::new(), phases: Vec::new() };
    for run in &runs {
        let steps = if run.neighbours() == neighbours { 1.0 } else { 2.0 };
        all.releases.extend(run.releases().iter().map(|mu| steps * mu));
        all.phases.extend(run.config().phases);
    }
    Ok(Total { mechanism: Some(all.check()?.merged()), ..counted })
}
