//! The clip: no group adds more than C, whatever it holds.

use dpsgd_train::PlanConfig;

use super::Check;
use super::same_key::{Done, difference, few_rounds, norm, run};
use crate::AuditError;
use crate::shortened::Shortened;

/// d of these runs.
const DIMENSION: usize = 16;
/// Keys tried until a round has a group.
const KEYS: u64 = 100;

/// Huge results in many groups and directions sum to at most C each; one group alone adds at most C.
///
/// Not statistical: the same key with and without the gradients leaves exactly U, up to a rounding that is
/// bounded and allowed for.
pub fn clipping(config: &PlanConfig, short: &Shortened) -> Result<Check, AuditError> {
    let mut check = Check::new("clipping", "a group adds at most C to the sum, m groups at most mC", 0.0);
    let rounds = (config.inner.algorithms().len() as u64).min(4);
    let config = few_rounds(config, short, rounds.max(1))?;
    let bound = config.clipping.start;
    let huge = (1000.0 * bound * short.group_size as f64).min(1e15) as f32;
    let silent = |_: u32, _: &[f32], _: &mut [f32]| {};
    let mut quiet: Vec<Done> = Vec::new();
    let mut key = 0;
    while key < KEYS && quiet.first().is_none_or(|round| round.groups.is_empty()) {
        key += 1;
        quiet = run(&config, short, DIMENSION, key, silent)?;
    }
    let Some(groups) = quiet.first().map(|round| round.groups.clone()).filter(|groups| !groups.is_empty())
    else {
        return Ok(check.not_applicable("no key drew a group"));
    };
    // All groups loud, in different directions.
    let loud = run(&config, short, DIMENSION, key, move |sample, _, sum| {
        let sign = if (sample as usize / DIMENSION).is_multiple_of(2) { 1.0 } else { -1.0 };
        sum[sample as usize % DIMENSION] += sign * huge;
    })?;
    let mut furthest = 0.0_f64;
    let mut compare = |check: &mut Check, loud: &Done, quiet: &Done, hit: usize, which: &str| {
        let (sum, rounding) = difference(&config, loud, quiet);
        let (length, most) = (norm(&sum) / bound, hit as f64);
        if hit > 0 {
            furthest = furthest.max(length / most);
        }
        if length > most + rounding / bound {
            check
                .fail(format!("{which} added a vector of length {length:.4}·C, at most {most}·C is allowed"));
        }
    };
    for (loud, quiet) in loud.iter().zip(&quiet) {
        compare(&mut check, loud, quiet, quiet.groups.len(), &format!("{} groups", quiet.groups.len()));
    }
    // One sample loud: the first of the first, of a middle and of the last group; just above C, and far
    // above.
    let bare = (1.01 * bound) as f32 * short.group_size as f32;
    for chosen in [0, groups.len() / 2, groups.len() - 1] {
        let one = groups[chosen][0];
        for length in [huge, bare] {
            let alone = run(&config, short, DIMENSION, key, move |sample, _, sum| {
                if sample == one {
                    sum.iter_mut().for_each(|g| *g += length / (DIMENSION as f32).sqrt());
                }
            })?;
            for (alone, quiet) in alone.iter().zip(&quiet) {
                let hit = quiet.groups.iter().filter(|group| group.contains(&one)).count();
                compare(&mut check, alone, quiet, hit, &format!("group {chosen} alone"));
            }
        }
    }
    check.note(format!("the longest group was {furthest:.6}·C, with what its measurement rounds"));
    Ok(check)
}
