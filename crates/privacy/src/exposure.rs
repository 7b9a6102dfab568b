//! The exact law of c: how often, and how hard, the differing samples are hit.
//!
//! c² = Σ over the rounds of L_b², where L_b is the number of groups of round b that hold a differing sample
//! (paper, Def. q_E(c); docs/theory.md §2). Nothing is replaced by a bound: the law of one round comes from
//! a generating function with positive terms only, rounds (or epochs) are convolved, and whatever is cut off
//! in the tails is added up and charged.

mod allocate;
mod law;
mod round;
mod shuffle;

pub use law::Law;
pub use round::RoundLaw;

use crate::error::PrivacyError;
use crate::mechanism::{EpochDraw, Independent, Mechanism, Phase};

/// The law of c² of one phase.
///
/// No listed probability is too large by more than a share of `law.relative_error()`, and all that
/// is lost (values not listed, and what the dropped ends would have added to the listed ones) has a
/// total probability of at most `law.missing()`. So Σ law·h + missing·sup h bounds any mean from
/// above, and Σ law·h bounds it from below, up to the relative error.
pub fn law_of_phase(mechanism: &Mechanism, phase: &Phase) -> Result<Law, PrivacyError> {
    match phase.sampling().independent() {
        Independent::Rounds => RoundLaw::of_phase(mechanism, phase).power_law(phase.rounds()),
        Independent::Epochs(draw) => {
            let per_epoch = phase.sampling().rounds_per_epoch();
            let (whole, rest) = epochs(phase, draw);
            let mut law = epoch_law(mechanism, phase, draw, per_epoch)?.power(whole)?;
            if rest > 0 {
                law = law.convolve(&epoch_law(mechanism, phase, draw, rest)?)?;
            }
            Ok(law)
        }
    }
}

/// How many epochs of a phase count as whole, and how many rounds of an incomplete last one are counted.
///
/// # Guarantee
/// An incomplete epoch of an allocation counts as a whole one. That is a bound: the released prefix of an
/// epoch is a function of the whole epoch, and post-processing never makes two data sets easier to tell
/// apart. (Draw by draw, c² of the prefix is a sum of fewer terms, so it is never larger.)
pub(crate) fn epochs(phase: &Phase, draw: EpochDraw) -> (u64, u64) {
    let per_epoch = phase.sampling().rounds_per_epoch();
    match draw {
        EpochDraw::Permutation(_) => (phase.rounds() / per_epoch, phase.rounds() % per_epoch),
        EpochDraw::Allocation { .. } => (phase.rounds().div_ceil(per_epoch), 0),
    }
}

/// The law of one epoch with the number of epochs that have it, and separately that of an
/// incomplete last epoch. The moments of c² need no more than this.
pub(crate) fn laws_of_epochs(
    mechanism: &Mechanism,
    phase: &Phase,
    draw: EpochDraw,
) -> Result<Vec<(u64, Law)>, PrivacyError> {
    let per_epoch = phase.sampling().rounds_per_epoch();
    let (whole, rest) = epochs(phase, draw);
    [(whole, per_epoch), (1, rest)]
        .into_iter()
        .filter(|&(times, rounds)| times > 0 && rounds > 0)
        .map(|(times, rounds)| Ok((times, epoch_law(mechanism, phase, draw, rounds)?)))
        .collect()
}

/// The law of c² of the first `rounds` rounds of an epoch; an allocation counts all of its rounds.
fn epoch_law(
    mechanism: &Mechanism,
    phase: &Phase,
    draw: EpochDraw,
    rounds: u64,
) -> Result<Law, PrivacyError> {
    match draw {
        EpochDraw::Permutation(sizes) => {
            shuffle::epoch_law(sizes, rounds, mechanism.differing(), phase.filtered())
        }
        EpochDraw::Allocation { rounds, cells } => {
            allocate::epoch_law(rounds, cells, mechanism.differing(), phase.filtered())
        }
    }
}
