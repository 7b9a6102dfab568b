//! The sampler: its draws have the law that the accountant takes them to have.

use std::collections::BTreeMap;

use dpsgd_privacy::adversary;
use dpsgd_privacy::exposure::{Law, RoundLaw, law_of_phase};
use dpsgd_privacy::mechanism::{Length, Mechanism, Sampling};

use super::Check;
use crate::binomial::{at_least, at_most, two_sided};
use crate::level;
use crate::shortened::Shortened;
use crate::tally::Tally;

/// The parts among which the level is divided.
const PARTS: f64 = 6.0;
/// The least probability of a cell of c², where there is more.
const CELL: f64 = 0.04;

/// The law of the hit groups, how often every sample is used, and fresh permutations.
pub fn sampling(short: &Shortened, tally: &Tally) -> Check {
    let what =
        "batches have the accountant's law: hits a round and over the run, use of every sample, fresh draws";
    let mut check = Check::new("sampling", what, level::of_check());
    let share = check.level / PARTS;
    let mechanism = &short.mechanism;
    let phase = &mechanism.phases()[0];
    let shuffled = matches!(phase.sampling(), Sampling::Shuffle { .. });
    if tally.twice > 0 {
        let within = if shuffled { "an epoch" } else { "a round" };
        check.fail(format!("{} times a sample was used twice in {within}", tally.twice));
    }
    if tally.misshapen > 0 {
        check.fail(format!("{} rounds had an impossible number of groups", tally.misshapen));
    }
    used(&mut check, short, tally, share);
    let law = RoundLaw::of_phase(mechanism, phase);
    if shuffled {
        let per_epoch = phase.sampling().rounds_per_epoch();
        if let Some(law) = of_rounds(mechanism, per_epoch) {
            exposure(&mut check, "an epoch", &tally.epoch_exposure, &law, share);
        }
        permutations(&mut check, short, tally, share);
    } else {
        for k in 0..tally.hits.len().max(law.mass().len()) {
            let (p, count) =
                (law.mass().get(k).copied().unwrap_or(0.0), tally.hits.get(k).copied().unwrap_or(0));
            let chance = two_sided(count, tally.rounds, p.min(1.0));
            if chance < share / law.mass().len() as f64 {
                check.fail(format!(
                    "{count} of {} rounds hit {k} groups, expected share {p:.6}: p = {chance:.1e}",
                    tally.rounds
                ));
            }
        }
        let (pairs, both) = tally.hit_pairs;
        let chance = two_sided(both, pairs, law.hit() * law.hit());
        if pairs > 0 && chance < share {
            check.fail(format!("two rounds in turn were both hit {both} times of {pairs}: p = {chance:.1e}"));
        }
        if let Sampling::Poisson { rate } = phase.sampling() {
            let draws = tally.rounds * short.samples as u64;
            let chance = two_sided(tally.groups, draws, rate);
            if chance < share {
                check.fail(format!("{} of {draws} draws kept a sample: p = {chance:.1e}", tally.groups));
            }
        }
    }
    if let Ok(Some(law)) = adversary::law(mechanism) {
        exposure(&mut check, "the run", &tally.exposure, &law, share);
    }
    check.note(format!("{} rounds, {} samples, all within their laws", tally.rounds, short.samples));
    check
}

/// c² of so many rounds.
fn of_rounds(mechanism: &Mechanism, rounds: u64) -> Option<Law> {
    let mut config = mechanism.config();
    config.phases[0].length = Length::Rounds(rounds);
    let epoch = config.check().ok()?;
    law_of_phase(&epoch, &epoch.phases()[0]).ok()
}

/// Every sample is used as often as every other.
fn used(check: &mut Check, short: &Shortened, tally: &Tally, share: f64) {
    let phase = &short.mechanism.phases()[0];
    let kept = if phase.filtered() { 0.5 } else { 1.0 };
    let (trials, p) = match phase.sampling() {
        Sampling::Poisson { rate } => (tally.rounds, rate),
        Sampling::Subsample { samples, groups, group_size } => {
            (tally.rounds, kept * (groups * group_size) as f64 / samples as f64)
        }
        Sampling::Shuffle { samples, groups, group_size } => {
            let per_epoch = phase.sampling().rounds_per_epoch();
            if !phase.rounds().is_multiple_of(per_epoch) && phase.rounds() > per_epoch {
                // Epochs of two lengths: the law is another, and c² covers it.
                return;
            }
            let rounds = per_epoch.min(phase.rounds());
            (tally.epochs, kept * (rounds * groups * group_size) as f64 / samples as f64)
        }
    };
    let (least, most) = (tally.used.iter().min().copied(), tally.used.iter().max().copied());
    // All have the same law, so only the two extremes need to be looked at.
    for (count, chance) in
        [(least, at_most(least.unwrap_or(0), trials, p)), (most, at_least(most.unwrap_or(0), trials, p))]
    {
        let together = 2.0 * short.samples as f64 * chance;
        if let (Some(count), true) = (count, together < share) {
            let sample = tally.used.iter().position(|&used| used == count).unwrap_or(0);
            check.fail(format!(
                "sample {sample} was used {count} times of {trials}, expected share {p:.4}: p = {together:.1e}"
            ));
        }
    }
}

/// c² has its law, over cells of a few hundredths.
fn exposure(check: &mut Check, of: &str, seen: &BTreeMap<u64, u64>, law: &Law, share: f64) {
    let mut cells: Vec<(u64, f64, u64)> = Vec::new();
    let mut open = false;
    let (mut listed, total) = (0, seen.values().sum::<u64>());
    for (square, q) in law.iter() {
        let count = seen.get(&square).copied().unwrap_or(0);
        listed += count;
        match cells.last_mut() {
            Some(cell) if open => {
                cell.1 += q;
                cell.2 += count;
            }
            _ => cells.push((square, q, count)),
        }
        open = cells.last().is_some_and(|cell| cell.1 < CELL);
    }
    let number = cells.len() as f64 + 1.0;
    for (first, q, count) in cells {
        let chance = two_sided(count, total, q.min(1.0));
        if chance < share / number {
            check.fail(format!(
                "c² of {of} from {first} on: {count} of {total}, expected share {q:.5}: p = {chance:.1e}"
            ));
        }
    }
    let others = total - listed;
    if others > 0 && at_least(others, total, law.missing()) < share / number {
        check.fail(format!("c² of {of} had an impossible value {others} times of {total}"));
    }
}

/// A sample's round in an epoch says nothing about its round in the next.
fn permutations(check: &mut Check, short: &Shortened, tally: &Tally, share: f64) {
    let phase = &short.mechanism.phases()[0];
    let Sampling::Shuffle { samples, groups, group_size } = phase.sampling() else { return };
    let kept = if phase.filtered() { 0.5 } else { 1.0 };
    let chance_of_round = kept * (groups * group_size) as f64 / samples as f64;
    let p = phase.sampling().rounds_per_epoch() as f64 * chance_of_round * chance_of_round;
    let (pairs, same) = tally.same_round;
    if pairs == 0 {
        return;
    }
    let chance = two_sided(same, pairs, p.min(1.0));
    if chance < share {
        check.fail(format!(
            "a sample was in the same round of two epochs {same} times of {pairs}, expected share {p:.4}: the \
             permutation is not fresh (p = {chance:.1e})"
        ));
    }
}

/// The filter keeps half of the groups.
pub fn filter(short: &Shortened, tally: &Tally) -> Check {
    let mut check = Check::new("filter", "every group is kept with probability ½", level::of_check());
    let phase = &short.mechanism.phases()[0];
    let groups = match phase.sampling() {
        Sampling::Subsample { groups, .. } | Sampling::Shuffle { groups, .. } if phase.filtered() => groups,
        _ => return check.not_applicable("the run does not filter"),
    };
    let all = tally.rounds * groups;
    let chance = two_sided(tally.groups, all, 0.5);
    if chance < check.level {
        check.fail(format!("{} of {all} groups were kept: p = {chance:.1e}", tally.groups));
    }
    check.note(format!("{} of {all} groups were kept, p = {chance:.2}", tally.groups));
    check
}
