//! Groups: what one holds does not change what another adds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dpsgd_train::{Hook, Inner, PlanConfig};

use super::Check;
use super::same_key::{Done, difference, few_rounds, run};
use crate::AuditError;
use crate::shortened::Shortened;

/// Keys tried until a round is followed by another group that can be compared.
const KEYS: u64 = 300;

/// Changes one sample `a` of the first group and looks at what all other groups add.
///
/// Gradients have two coordinates that matter. The sample a has +L, 0 or −L in the first, the rest of its
/// group nothing. Every other sample has a small gradient in the second coordinate, plus the first coordinate
/// of w: so if w, or the state of the inner algorithm (a built-in one or the user's own), is not what a group
/// has to begin with, the second coordinate of the sum shows it. It must not change at all; the first may
/// change by C each way. With the same key nothing is left to chance. Where a second round without a can be
/// had it is compared too, w set back to 0 between the rounds.
pub fn groups(config: &PlanConfig, short: &Shortened) -> Result<Check, AuditError> {
    let mut check = Check::new("groups", "a group's result does not depend on what another group holds", 0.0);
    let mut compared = 0;
    let mut algorithms: Vec<Inner> = Vec::new();
    for inner in config.inner.algorithms() {
        if !algorithms.contains(&inner) {
            algorithms.push(inner);
        }
    }
    for inner in algorithms {
        let config = PlanConfig { inner: inner.into(), ..config.clone() };
        compared += one_algorithm(&mut check, &config, short)?;
    }
    if compared == 0 && !check.failed() {
        return Ok(check.not_applicable("no round was followed by a group that could be compared"));
    }
    check.note(format!("{compared} rounds compared, none changed"));
    Ok(check)
}

/// The first algorithm that adds something to the sum although every gradient is zero. Checks and attacks
/// read the noise off coordinates without gradients, and would take what such an algorithm adds there for
/// wrong noise.
pub fn moves_without_gradient(config: &PlanConfig, short: &Shortened) -> Result<Option<String>, AuditError> {
    for inner in config.inner.algorithms() {
        let moved = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&moved);
        // The hook sees every group's result before it is summed.
        let hook = Hook::new(config.clipping.start, move |result| {
            if result.iter().any(|x| *x != 0.0) {
                seen.store(true, Ordering::Relaxed);
            }
        });
        let name = inner.name().to_string();
        let config = PlanConfig { inner: inner.into(), hook: Some(hook), ..few_rounds(config, short, 1)? };
        run(&config, short, 2, 0, |_, _, _| {})?;
        if moved.load(Ordering::Relaxed) {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// The number of rounds that were compared.
fn one_algorithm(check: &mut Check, config: &PlanConfig, short: &Shortened) -> Result<usize, AuditError> {
    let Some((config, key, first)) = usable(config, short)? else { return Ok(0) };
    let bound = config.clipping.start;
    let large = (1000.0 * bound * short.group_size as f64).min(1e15) as f32;
    let small = 0.01 * bound as f32;
    let changed = first[0];
    let with = |value: f32| {
        let first = first.clone();
        run(&config, short, 2, key, move |sample, w, sum| {
            if sample == changed {
                sum[0] += value;
            } else if !first.contains(&sample) {
                sum[1] += small * (1 + sample % 3) as f32 + w[0];
            }
        })
    };
    let (none, up, down) = (with(0.0)?, with(large)?, with(-large)?);
    for loud in [&up, &down] {
        for (round, (loud, quiet)) in loud.iter().zip(&none).enumerate() {
            let (sum, rounding) = difference(&config, loud, quiet);
            // The group of a, if this round has it.
            let most = if round == 0 { bound } else { 0.0 };
            let name = config.inner.at(0, 0).name();
            if sum[1].abs() > rounding {
                let by = sum[1] / bound;
                check.fail(format!(
                    "{name}, round {round}: changing one group moved what the others add by {by:.4}·C"
                ));
            }
            if sum[0].abs() > most + rounding {
                let by = sum[0] / bound;
                check.fail(format!(
                    "{name}, round {round}: changing one group moved the sum by {by:.4}·C along it"
                ));
            }
        }
    }
    Ok(none.len())
}

/// A configuration and key whose first round has a group and other groups after it, in the same round or in a
/// second one without the sample that is changed; and that first group.
fn usable(config: &PlanConfig, short: &Shortened) -> Result<Option<(PlanConfig, u64, Vec<u32>)>, AuditError> {
    let silent = |_: u32, _: &[f32], _: &mut [f32]| {};
    let whole = short.rounds().min(2);
    for rounds in (1..=whole).rev() {
        let config = few_rounds(config, short, rounds)?;
        for key in 0..KEYS {
            let done: Vec<Done> = run(&config, short, 2, key, silent)?;
            let Some(first) = done[0].groups.first() else { continue };
            let apart =
                done[1..].iter().all(|round| round.groups.iter().all(|group| !group.contains(&first[0])));
            let after =
                done[0].groups.len() - 1 + done[1..].iter().map(|round| round.groups.len()).sum::<usize>();
            if apart && after > 0 {
                return Ok(Some((config, key, first.clone())));
            }
        }
    }
    Ok(None)
}
