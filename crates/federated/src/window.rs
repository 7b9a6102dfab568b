//! Which rounds of a client have been folded.

/// How many rounds back a late one is still told from a repeated one.
pub const WINDOW: u64 = 64;

/// The last [`WINDOW`] rounds of a client: bit i of `bits` is set if round `next − 1 − i` was folded.
///
/// A high-water mark alone would lose honest rounds that a network delivered out of order.
///
/// # Guarantee
///
/// [`Window::insert`] says yes at most once for each round, in whatever order rounds come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// One past the highest folded round.
    pub next: u64,
    /// The rounds before it.
    pub bits: u64,
}

impl Window {
    /// Whether a round has been folded, or is too old to tell.
    pub fn contains(&self, round: u64) -> bool {
        match self.next.checked_sub(round) {
            None | Some(0) => false,
            Some(back) if back > WINDOW => true,
            Some(back) => self.bits >> (back - 1) & 1 == 1,
        }
    }

    /// Notes a round; false if it is contained already.
    pub fn insert(&mut self, round: u64) -> bool {
        if self.contains(round) || round == u64::MAX {
            return false;
        }
        if round >= self.next {
            let ahead = round + 1 - self.next;
            self.bits = if ahead < WINDOW { self.bits << ahead } else { 0 };
            self.next = round + 1;
        }
        self.bits |= 1 << (self.next - 1 - round);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a set of all rounds, which forgets nothing.
        #[test]
        fn agrees_with_a_set(rounds in proptest::collection::vec(0u64..300, 0..400)) {
            let (mut window, mut all) = (Window::default(), BTreeSet::new());
            for round in rounds {
                let highest = all.last().map_or(0, |last| last + 1);
                let expected = round + WINDOW >= highest && !all.contains(&round);
                prop_assert_eq!(window.insert(round), expected);
                if expected {
                    all.insert(round);
                }
            }
        }

        #[test]
        fn no_round_is_too_large(rounds in proptest::collection::vec(any::<u64>(), 0..50)) {
            let mut window = Window::default();
            for round in rounds {
                window.insert(round);
                prop_assert!(!window.insert(round));
            }
        }
    }
}
