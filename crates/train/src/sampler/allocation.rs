//! Random allocation: every sample draws its round of the epoch, or its cell.
//!
//! # Guarantee
//!
//! Given uniform bits, every sample is in exactly one of the B rounds of an epoch, each of them with
//! probability exactly 1/B, independently of all other samples. With m cells a round it is in exactly one of
//! the B·m cells, each with probability exactly 1/(B·m): what follows is the same with cells for rounds.
//!
//! **Why every sample draws for itself.** The proof of the guarantee (docs/theory.md) fixes the rounds of all
//! other samples and moves the differing one. That needs their rounds to have the same law with it and
//! without it. Rounds balanced to equal sizes, or a permutation cut into pieces, would not do: adding one
//! sample moves others to another round.
//!
//! **Why all of a round is computed at one w.** What a sample adds in round b may depend on what was released
//! before that round, and on nothing else that depends on the sample. Then one and the same post-processing
//! turns the Gaussian pair into the run, whichever round the sample drew: the mixture over the B rounds
//! carries over.
//!
//! **Why an empty round is released.** How many samples drew a round is private. Leaving an empty round out
//! would tell it without noise; so would dividing by it. For the same reason a round always has m cells, an
//! empty one adds the fixed result 0, the sum is divided by m, and the cells are summed in units that depend
//! on nothing but m and s: adding a sample changes the content of one cell and nothing else.

use crate::randomness::Stream;

/// The samples of an epoch, ordered by the round that each of them drew.
///
/// `order` and `ends` hold the result: the samples of round b are `order[ends[b − 1]..ends[b]]`, in rising
/// order. The epoch's stream is read twice, once to count and once to place, so that nothing but the result
/// takes memory. Time and memory are of the order of N + B.
pub(super) fn draw(
    samples: u32,
    rounds: u32,
    stream: impl Fn() -> Stream,
    order: &mut Vec<u32>,
    ends: &mut Vec<u32>,
) {
    let mut counting = stream();
    ends.clear();
    ends.resize(rounds as usize, 0);
    for _ in 0..samples {
        ends[counting.below(rounds) as usize] += 1;
    }
    // From the sizes of the rounds to where they begin. They end there once every sample is placed.
    let mut begin = 0;
    for end in &mut *ends {
        begin += std::mem::replace(end, begin);
    }
    let mut placing = stream();
    order.clear();
    order.resize(samples as usize, 0);
    for sample in 0..samples {
        let place = &mut ends[placing.below(rounds) as usize];
        order[*place as usize] = sample;
        *place += 1;
    }
}

/// The fault of rounds that are balanced to equal sizes: a uniform permutation, dealt out in turn.
pub(super) fn balance(
    samples: u32,
    rounds: u32,
    stream: &mut Stream,
    order: &mut Vec<u32>,
    ends: &mut Vec<u32>,
) {
    order.clear();
    order.extend(0..samples);
    for first in 0..samples {
        let other = first + stream.below(samples - first);
        order.swap(first as usize, other as usize);
    }
    let end = |round: u64| (u64::from(samples) * round / u64::from(rounds)) as u32;
    ends.clear();
    ends.extend((1..=u64::from(rounds)).map(end));
}

/// The samples of a round.
pub(super) fn of_round<'a>(order: &'a [u32], ends: &[u32], round: usize) -> &'a [u32] {
    let begin = if round == 0 { 0 } else { ends[round - 1] };
    &order[begin as usize..ends[round] as usize]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::randomness::{Purpose, Randomness};

    /// One sample after the other, each into the list of its round.
    #[test]
    fn the_rounds_are_those_that_the_samples_drew() {
        let randomness = Randomness::from_seed(5, 0);
        let (mut order, mut ends) = (vec![9; 3], vec![7; 99]);
        for (epoch, (samples, rounds)) in
            [(0, 1), (0, 5), (1, 1), (1, 7), (40, 1), (100, 7), (7, 1000), (5000, 64)].into_iter().enumerate()
        {
            let stream = || randomness.stream(Purpose::Allocation, epoch as u64);
            let mut lists = vec![Vec::new(); rounds as usize];
            let mut one = stream();
            (0..samples).for_each(|sample| lists[one.below(rounds) as usize].push(sample));
            draw(samples, rounds, stream, &mut order, &mut ends);
            for (round, list) in lists.iter().enumerate() {
                assert_eq!(of_round(&order, &ends, round), list, "{samples} {rounds} {round}");
            }
        }
    }
}
