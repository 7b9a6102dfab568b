//! The sampler: its draws have the law that the accountant takes them to have.

use std::collections::BTreeMap;

use dpsgd_privacy::adversary;
use dpsgd_privacy::exposure::{Law, RoundLaw, law_of_phase};
use dpsgd_privacy::mechanism::{BatchSize, Draw, EpochDraw, Independent, Length, Mechanism, Phase};

use super::Check;
use crate::binomial::{at_least, at_most, two_sided};
use crate::level;
use crate::shortened::Shortened;
use crate::tally::Tally;

/// The parts among which the level is divided.
const PARTS: f64 = 6.0;
/// The least probability of a cell of c², where there is more.
const CELL: f64 = 0.04;

/// The law of the hit groups, how often every sample is used, and fresh permutations and allocations.
pub fn sampling(short: &Shortened, tally: &Tally) -> Check {
    let what =
        "batches have the accountant's law: hits a round and over the run, use of every sample, fresh draws";
    let mut check = Check::new("sampling", what, level::of_check());
    let share = check.level / PARTS;
    let mechanism = &short.mechanism;
    let phase = &mechanism.phases()[0];
    let by_epoch = phase.sampling().draw() == Draw::EveryEpoch;
    if tally.twice > 0 {
        let within = if by_epoch { "an epoch" } else { "a round" };
        check.fail(format!("{} times a sample was used twice in {within}", tally.twice));
    }
    if tally.misshapen > 0 {
        check.fail(format!("{} rounds had an impossible number of groups", tally.misshapen));
    }
    used(&mut check, short, tally, share);
    let law = RoundLaw::of_phase(mechanism, phase);
    if by_epoch {
        let per_epoch = phase.sampling().rounds_per_epoch();
        if let Some(law) = of_rounds(mechanism, per_epoch) {
            exposure(&mut check, "an epoch", &tally.epoch_exposure, &law, share);
        }
        fresh(&mut check, short, tally, share);
        match phase.sampling().independent() {
            Independent::Epochs(EpochDraw::Allocation { rounds, cells }) => {
                places(&mut check, rounds, tally, share);
                // The samples of a filtered cell stay away together.
                if cells.is_none() || !phase.filtered() {
                    sizes(&mut check, short, rounds, tally, share);
                }
            }
            // The size of a round is counted as misshapen above, the place of a sample by c².
            Independent::Epochs(EpochDraw::Permutation(_)) | Independent::Rounds => {}
        }
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
        match phase.sampling().batch() {
            BatchSize::Random { rate } => {
                let draws = tally.rounds * short.samples as u64;
                let chance = two_sided(tally.groups, draws, rate);
                if chance < share {
                    check.fail(format!("{} of {draws} draws kept a sample: p = {chance:.1e}", tally.groups));
                }
            }
            // Counted as misshapen above; cells are drawn by epochs.
            BatchSize::Fixed { .. } | BatchSize::Cells { .. } => {}
        }
    }
    if !is_bound(phase)
        && let Ok(Some(law)) = adversary::law(mechanism)
    {
        exposure(&mut check, "the run", &tally.exposure, &law, share);
    }
    check.note(format!("{} rounds, {} samples, all within their laws", tally.rounds, short.samples));
    check
}

/// Whether the accountant's law of c² is a bound: an incomplete epoch of an allocation counts as a whole one.
fn is_bound(phase: &Phase) -> bool {
    match phase.sampling().independent() {
        Independent::Epochs(EpochDraw::Allocation { rounds, .. }) => !phase.rounds().is_multiple_of(rounds),
        Independent::Epochs(EpochDraw::Permutation(_)) | Independent::Rounds => false,
    }
}

/// The law of c² of a number of rounds.
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
    let (trials, p) = match phase.sampling().independent() {
        Independent::Rounds => (tally.rounds, kept * phase.sampling().share_of_data()),
        Independent::Epochs(draw) => {
            let per_epoch = phase.sampling().rounds_per_epoch();
            if !phase.rounds().is_multiple_of(per_epoch) && phase.rounds() > per_epoch {
                // Epochs of two lengths: the law is another, and c² covers it.
                return;
            }
            let rounds = per_epoch.min(phase.rounds());
            let share = match draw {
                EpochDraw::Permutation(sizes) => (rounds * sizes.batch()) as f64 / sizes.samples as f64,
                EpochDraw::Allocation { .. } => rounds as f64 / per_epoch as f64,
            };
            (tally.epochs, kept * share)
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
                "sample {sample} was used {count} times of {trials}, expected share {p:.4}: \
                 p = {together:.1e}"
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
fn fresh(check: &mut Check, short: &Shortened, tally: &Tally, share: f64) {
    let phase = &short.mechanism.phases()[0];
    let kept = if phase.filtered() { 0.5 } else { 1.0 };
    let chance_of_round = kept * phase.sampling().share_of_data();
    let p = phase.sampling().rounds_per_epoch() as f64 * chance_of_round * chance_of_round;
    let (pairs, same) = tally.same_round;
    if pairs == 0 {
        return;
    }
    let draw = match phase.sampling().independent() {
        Independent::Epochs(EpochDraw::Allocation { .. }) => "allocation",
        Independent::Epochs(EpochDraw::Permutation(_)) | Independent::Rounds => "permutation",
    };
    let chance = two_sided(same, pairs, p.min(1.0));
    if chance < share {
        check.fail(format!(
            "a sample was in the same round of two epochs {same} times of {pairs}, expected share {p:.4}: \
             the {draw} is not fresh (p = {chance:.1e})"
        ));
    }
}

/// A sample is in every round of a whole epoch equally often.
fn places(check: &mut Check, rounds: u64, tally: &Tally, share: f64) {
    let epochs: u64 = tally.places.iter().sum();
    for (round, &count) in tally.places.iter().enumerate() {
        let chance = two_sided(count, epochs, 1.0 / rounds as f64);
        if chance < share / rounds as f64 {
            check.fail(format!(
                "a sample was in round {round} of {count} epochs of {epochs}, expected share 1/{rounds}: \
                 p = {chance:.1e}"
            ));
        }
    }
}

/// The number of samples of a round is Binomial(N, 1/B), as it is if every sample draws for itself (half of
/// that probability where every sample is kept with probability ½). Epochs
/// are independent, so for each round of an epoch the count of every tenth of that law is binomial too.
fn sizes(check: &mut Check, short: &Shortened, rounds: u64, tally: &Tally, share: f64) {
    let kept = if short.mechanism.phases()[0].filtered() { 0.5 } else { 1.0 };
    let (samples, p) = (short.samples as u64, kept / rounds as f64);
    let mut ends: Vec<u64> = (1..10).map(|tenth| quantile(samples, p, f64::from(tenth) / 10.0)).collect();
    ends.push(samples);
    ends.dedup();
    let compared = (ends.len() * tally.sizes.len()) as f64;
    for (round, sizes) in tally.sizes.iter().enumerate() {
        let epochs: u64 = sizes.values().sum();
        let (mut first, mut before) = (0, 0.0);
        for &end in &ends {
            let count: u64 = sizes.range(first..=end).map(|(_, count)| count).sum();
            let until = if end == samples { 1.0 } else { at_most(end, samples, p) };
            let chance = two_sided(count, epochs, until - before);
            if chance < share / compared {
                check.fail(format!(
                    "round {round} of an epoch used {first} to {end} of {samples} samples {count} times of \
                     {epochs}, expected share {:.4}: samples do not draw independently (p = {chance:.1e})",
                    until - before
                ));
            }
            (first, before) = (end + 1, until);
        }
    }
}

/// The smallest k with Pr[Binomial(n, p) ≤ k] ≥ `share`.
fn quantile(n: u64, p: f64, share: f64) -> u64 {
    let (mut low, mut high) = (0, n);
    while low < high {
        let middle = low + (high - low) / 2;
        if at_most(middle, n, p) >= share {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

/// The filter keeps half of the groups.
pub fn filter(short: &Shortened, tally: &Tally) -> Check {
    let mut check = Check::new("filter", "every group is kept with probability ½", level::of_check());
    let phase = &short.mechanism.phases()[0];
    if !phase.filtered() {
        return check.not_applicable("the run does not filter");
    }
    let (kept, all, what) = match (phase.sampling().independent(), phase.sampling().sizes()) {
        (Independent::Epochs(EpochDraw::Allocation { rounds, .. }), _) => {
            if !phase.rounds().is_multiple_of(rounds) {
                return check.not_applicable("the last epoch is broken off");
            }
            // Every sample is used once an epoch, or not at all.
            (tally.used[0], tally.epochs, "epochs used a sample")
        }
        (_, sizes) => {
            (tally.groups, tally.rounds * sizes.map_or(0, |sizes| sizes.groups), "groups were kept")
        }
    };
    let chance = two_sided(kept, all, 0.5);
    if chance < check.level {
        check.fail(format!("{kept} of {all} {what}: p = {chance:.1e}"));
    }
    check.note(format!("{kept} of {all} {what}, p = {chance:.2}"));
    check
}
