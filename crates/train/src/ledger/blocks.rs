//! How many rounds are charged at once.

use std::time::Duration;

use dpsgd_privacy::mechanism::Mechanism;

/// How far ahead the ledger charges.
///
/// A crash spends the rest of the block for nothing; a short block costs time for syncing. The length
/// doubles, from `first` up to `most`, as long as syncing takes more than a hundredth of the time, and always
/// where the size of a batch is private; with shuffling and allocation a block is then extended to the end of its epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// The rounds of the first block, at least 1.
    pub first: u64,
    /// The most rounds a block grows to.
    pub most: u64,
}

impl Blocks {
    /// Sixteen rounds at first and never more than a thirty-second part of the run, which is the most
    /// a crash can then cost (one epoch with shuffling and allocation, if that is more).
    pub fn of(mechanism: &Mechanism) -> Self {
        let first = 16;
        Self { first, most: (mechanism.rounds() / 32).max(first) }
    }

    /// The length of the block after one of `length` rounds, whose work took `work` and whose record
    /// took `sync` to be written.
    pub(crate) fn next(&self, length: u64, work: Duration, sync: Duration) -> u64 {
        if sync * 100 > work { self.doubled(length) } else { self.allowed(length) }
    }

    /// The length of the block after one of `length` rounds where the size of a batch is private.
    ///
    /// # Guarantee
    /// A function of public sizes: the time of a round follows the size of its batch, and so N or what a filter
    /// kept, and a schedule that followed it would write that into the ledger.
    pub(crate) fn doubled(&self, length: u64) -> u64 {
        self.allowed(length.saturating_mul(2))
    }

    fn allowed(&self, length: u64) -> u64 {
        length.min(self.most).max(self.first).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    /// Where N is private, the blocks of a run do not depend on how long its rounds take.
    #[test]
    fn the_schedule_of_a_private_size_follows_nothing() {
        let blocks = Blocks { first: 16, most: 200 };
        let lengths = std::iter::successors(Some(16), |&length| Some(blocks.doubled(length)));
        assert_eq!(lengths.take(6).collect::<Vec<_>>(), [16, 32, 64, 128, 200, 200]);
    }
}
