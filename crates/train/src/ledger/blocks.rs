//! How many rounds are charged at once, where a run may go on after a crash, and what a part of a run
//! has spent.

use std::time::Duration;

use dpsgd_privacy::mechanism::{Length, Mechanism, MechanismError, Sampling};

/// How far ahead the ledger charges.
///
/// A crash spends the rest of the block for nothing; a short block costs time for syncing. The length
/// doubles, from `first` up to `most`, as long as syncing takes more than a hundredth of the time; with
/// shuffling a block is then extended to the end of its epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// The rounds of the first block, at least 1.
    pub first: u64,
    /// The most rounds a block grows to.
    pub most: u64,
}

impl Blocks {
    /// Sixteen rounds at first and never more than a thirty-second part of the run, which is the most
    /// a crash can then cost (one epoch with shuffling, if that is more).
    pub fn of(mechanism: &Mechanism) -> Self {
        let first = 16;
        Self { first, most: (rounds(mechanism) / 32).max(first) }
    }

    /// The length of the block behind one of `length` rounds, whose work took `work` and whose record
    /// took `sync` to be written.
    pub(crate) fn next(&self, length: u64, work: Duration, sync: Duration) -> u64 {
        let grown = if sync * 100 > work { length.saturating_mul(2) } else { length };
        grown.min(self.most).max(self.first).max(1)
    }
}

/// T, over all phases.
pub(crate) fn rounds(mechanism: &Mechanism) -> u64 {
    mechanism.phases().iter().fold(0, |sum: u64, phase| sum.saturating_add(phase.rounds()))
}

/// The first round at or behind `round` at which a run may go on in a new process: any round, but with
/// shuffling only the beginning of an epoch, because the rest of a begun permutation is forgotten with
/// the process. At most T.
pub(crate) fn boundary(mechanism: &Mechanism, round: u64) -> u64 {
    let mut start: u64 = 0;
    for phase in mechanism.phases() {
        let end = start.saturating_add(phase.rounds());
        if round < end {
            let Sampling::Shuffle { .. } = phase.sampling() else { return round };
            // A checked mechanism has B ≥ 1.
            let epoch = phase.sampling().rounds_per_epoch().max(1);
            let whole = (round - start).div_ceil(epoch).saturating_mul(epoch);
            return start.saturating_add(whole).min(end);
        }
        start = end;
    }
    start
}

/// The run that consists of the first `rounds` rounds; nothing if there are none.
///
/// # Guarantee
/// With every sampler the first rounds of a run are a run of its own that ends there, and it is what the
/// accountant is told: with shuffling a last, incomplete epoch counts as such. The further releases are always
/// included.
pub fn first_rounds(mechanism: &Mechanism, rounds: u64) -> Result<Option<Mechanism>, MechanismError> {
    if rounds == 0 {
        return Ok(None);
    }
    let mut left = rounds;
    let mut config = mechanism.config();
    config.phases.clear();
    for (mut phase, checked) in mechanism.config().phases.into_iter().zip(mechanism.phases()) {
        if left == 0 {
            break;
        }
        let rounds = checked.rounds().min(left);
        phase.length = Length::Rounds(rounds);
        config.phases.push(phase);
        left -= rounds;
    }
    config.check().map(Some)
}

/// What a run that was interrupted has spent: [`first_rounds`] of the `charged` ones, with shuffling to the end of
/// a begun epoch; nothing if no round has been charged, when at most the further releases have left.
///
/// # Guarantee
/// Whatever has left of the first `charged` rounds can be computed from the output of the run that is
/// returned, and so is at most as revealing: the rounds of a shuffled epoch share one permutation, and a prefix
/// of them is a function of all of them.
pub fn spent_mechanism(mechanism: &Mechanism, charged: u64) -> Result<Option<Mechanism>, MechanismError> {
    first_rounds(mechanism, boundary(mechanism, charged))
}

#[cfg(test)]
mod tests {
    use dpsgd_privacy::mechanism::{Noise, PhaseConfig, RunConfig};

    use super::*;

    fn mechanism(phases: &[(bool, u64, u64)]) -> Mechanism {
        let phases: Vec<PhaseConfig> = phases
            .iter()
            .map(|&(shuffled, epoch, rounds)| {
                let (samples, groups, group_size) = (epoch * 6 + 5, 3, 2);
                PhaseConfig {
                    sampling: match shuffled {
                        true => Sampling::Shuffle { samples, groups, group_size },
                        false => Sampling::Subsample { samples, groups, group_size },
                    },
                    length: Length::Rounds(rounds),
                    noise: Noise::Sigma(1.5),
                    filtered: false,
                }
            })
            .collect();
        RunConfig { phases: phases.clone(), releases: vec![0.25], ..RunConfig::single(phases[0]) }
            .check()
            .unwrap()
    }

    /// Walks over the run round by round and notes where an epoch or an independent round begins.
    fn beginnings(phases: &[(bool, u64, u64)]) -> Vec<u64> {
        let mut all = Vec::new();
        let mut round = 0;
        for &(shuffled, epoch, rounds) in phases {
            for i in 0..rounds {
                if !shuffled || i % epoch == 0 {
                    all.push(round);
                }
                round += 1;
            }
        }
        all.push(round);
        all
    }

    #[test]
    fn runs_go_on_and_are_cut_at_beginnings_only() {
        let layouts: [&[(bool, u64, u64)]; 5] = [
            &[(false, 5, 12)],
            &[(true, 5, 15)],
            &[(true, 5, 13)],
            &[(true, 4, 10), (false, 3, 7), (true, 3, 9)],
            &[(false, 3, 4), (true, 7, 20), (true, 1, 3)],
        ];
        for phases in layouts {
            let (mechanism, beginnings) = (mechanism(phases), beginnings(phases));
            let total = rounds(&mechanism);
            assert_eq!(spent_mechanism(&mechanism, 0).unwrap(), None);
            for charged in 0..=total + 3 {
                let first = beginnings.iter().copied().find(|&b| b >= charged.min(total)).unwrap();
                assert_eq!(boundary(&mechanism, charged), first, "{phases:?} at {charged}");
                if charged == 0 {
                    continue;
                }
                let spent = spent_mechanism(&mechanism, charged).unwrap().unwrap();
                assert_eq!(rounds(&spent), first);
                assert_eq!(spent.releases(), mechanism.releases());
                let mut end = 0;
                for (part, whole) in spent.phases().iter().zip(mechanism.phases()) {
                    assert_eq!((part.sampling(), part.sigma()), (whole.sampling(), whole.sigma()));
                    end += part.rounds();
                    assert!(part.rounds() == whole.rounds() || end == first);
                }
            }
            assert_eq!(spent_mechanism(&mechanism, total).unwrap(), Some(mechanism));
        }
    }

    #[test]
    fn blocks_grow_until_syncing_is_a_hundredth() {
        let blocks = Blocks { first: 2, most: 100_000 };
        let (round, sync) = (Duration::from_micros(20), Duration::from_millis(5));
        let (mut length, mut spent, mut synced) = (blocks.first, Duration::ZERO, Duration::ZERO);
        let mut late = (Duration::ZERO, Duration::ZERO);
        for i in 0..100 {
            let work = round * length as u32;
            spent += work;
            synced += sync;
            if i >= 50 {
                late = (late.0 + work, late.1 + sync);
            }
            length = blocks.next(length, work, sync);
        }
        assert!(late.1 * 100 <= late.0, "{late:?} of {spent:?} and {synced:?}");
        // No longer than needed: half of it would have been too short.
        assert!(round * (length / 2) as u32 <= sync * 100);
        assert_eq!(blocks.next(70_000, Duration::ZERO, sync), 100_000);
        assert_eq!(Blocks { first: 0, most: 0 }.next(0, round, Duration::ZERO), 1);
    }
}
