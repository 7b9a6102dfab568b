//! The exact law of c: how often, and how hard, the differing samples are hit.
//!
//! c² = Σ over the rounds of L_b², where L_b is the number of groups of round b that hold a
//! differing sample (paper, Def. q_E(c); docs/theory.md §2). Nothing is bounded by a formula: the law of
//! one round comes from a generating function with positive terms only, rounds (or epochs) are
//! convolved, and what is cut off in the tails is added up and charged.

mod law;
mod round;
mod shuffle;

pub use law::Law;
pub use round::RoundLaw;

use crate::error::PrivacyError;
use crate::mechanism::{Mechanism, Phase, Sampling};

/// The law of c² of one phase.
///
/// # Guarantee
/// No listed probability is too large by more than a share of `law.relative_error()`, and all that
/// is lost (values not listed, and what the dropped ends would have added to the listed ones) has a
/// probability of at most `law.missing()` together. So Σ law·h + missing·sup h bounds any mean from
/// above, and Σ law·h bounds it from below, up to the relative error.
pub fn law_of_phase(mechanism: &Mechanism, phase: &Phase) -> Result<Law, PrivacyError> {
    let differing = mechanism.differing();
    match phase.sampling() {
        Sampling::Subsample { .. } | Sampling::Poisson { .. } => {
            RoundLaw::of_phase(mechanism, phase).power_law(phase.rounds())
        }
        Sampling::Shuffle { samples, groups, group_size } => {
            let per_epoch = phase.sampling().rounds_per_epoch();
            let epoch =
                |rounds| shuffle::epoch_law(samples, groups, group_size, rounds, differing, phase.filtered());
            let mut law = epoch(per_epoch)?.power(phase.rounds() / per_epoch)?;
            let rest = phase.rounds() % per_epoch;
            if rest > 0 {
                law = law.convolve(&epoch(rest)?)?;
            }
            Ok(law)
        }
    }
}

/// The law of one epoch of a shuffled phase and the epochs it is repeated for, with the rounds of
/// a last, incomplete epoch apart. The moments of c² need no more than this.
pub(crate) fn epochs_of_shuffle(
    mechanism: &Mechanism,
    phase: &Phase,
) -> Result<Vec<(u64, Law)>, PrivacyError> {
    let Sampling::Shuffle { samples, groups, group_size } = phase.sampling() else {
        return Ok(Vec::new());
    };
    let per_epoch = phase.sampling().rounds_per_epoch();
    [(phase.rounds() / per_epoch, per_epoch), (1, phase.rounds() % per_epoch)]
        .into_iter()
        .filter(|&(times, rounds)| times > 0 && rounds > 0)
        .map(|(times, rounds)| {
            let law = shuffle::epoch_law(
                samples,
                groups,
                group_size,
                rounds,
                mechanism.differing(),
                phase.filtered(),
            )?;
            Ok((times, law))
        })
        .collect()
}
