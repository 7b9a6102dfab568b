//! The units in which the groups of a round are summed, where every group is kept or left out independently
//! (Poisson sampling, allocation, filtering).
//!
//! # Guarantee
//!
//! **A group that is added to a batch or removed from it changes few sums.** If the batch were cut into
//! consecutive runs, every unit after it would be another one, and each rounds in its own way. So every group
//! draws a tag of 64 bits, independently of its number and of all others, and the units are the leaves of a
//! binary tree over the tags in which a node is split as long as it holds more than `most` groups. Let x be
//! removed, the others keeping their tags; only nodes above x lose a group.
//! * If none of them held `most` + 1, the same nodes are split and x's leaf alone changes.
//! * Otherwise the first of them that did, which was split, is now a leaf. All that changes held `most` + 1
//!   groups before and holds `most` now.
//!
//! In both cases the units that change hold at most `most` + 1 groups with x and `most` without. Tags are
//! part of the draw: rows that are the same in two data sets have tags of the same law, whatever their
//! numbers are.

use crate::randomness::Stream;

/// Memory for the tags of a round.
#[derive(Debug, Default)]
pub(crate) struct Units {
    tagged: Vec<(u64, u32)>,
    before: Vec<u32>,
}

impl Units {
    /// Puts the groups of a batch in the order of new tags and appends where its units of at most `most`
    /// groups end.
    pub(crate) fn draw(
        &mut self,
        batch: &mut [u32],
        group_size: usize,
        most: usize,
        stream: &mut Stream,
        ends: &mut Vec<usize>,
    ) {
        self.tagged.clear();
        self.tagged.extend((0..batch.len() / group_size).map(|group| (stream.bits64(), group as u32)));
        self.tagged.sort_unstable();
        self.before.clear();
        self.before.extend_from_slice(batch);
        for ((_, group), place) in self.tagged.iter().zip(batch.chunks_exact_mut(group_size)) {
            let start = *group as usize * group_size;
            place.copy_from_slice(&self.before[start..start + group_size]);
        }
        cut(&self.tagged, most, &mut ends_of(group_size, ends));
    }
}

/// Takes the number of groups of each unit.
fn ends_of(group_size: usize, ends: &mut Vec<usize>) -> impl FnMut(usize) + '_ {
    let mut end = ends.last().copied().unwrap_or(0);
    move |groups| {
        end += groups * group_size;
        ends.push(end);
    }
}

/// The sizes of the leaves over sorted tags, from left to right.
fn cut<T>(tagged: &[(u64, T)], most: usize, leaf: &mut impl FnMut(usize)) {
    /// Tags that agree in the bits before this one.
    fn node<T>(tagged: &[(u64, T)], bit: u32, most: usize, leaf: &mut impl FnMut(usize)) {
        match tagged.len() {
            0 => {}
            few if few <= most => leaf(few),
            // That many tags are never equal: the chance of it is below 2⁻⁶⁴ to the power of `most`.
            _ if bit == u64::BITS => tagged.chunks(most).for_each(|equal| leaf(equal.len())),
            _ => {
                let half = tagged.partition_point(|(tag, _)| tag << bit >> 63 == 0);
                node(&tagged[..half], bit + 1, most, leaf);
                node(&tagged[half..], bit + 1, most, leaf);
            }
        }
    }
    node(tagged, 0, most, leaf);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clip::{ClippedSum, SHIFT, UNIT_GROUPS, UnitSum};
    use crate::randomness::{Purpose, Randomness};

    const MOST: usize = UNIT_GROUPS as usize;

    fn tagged(count: u32, round: u64) -> Vec<(u64, u32)> {
        let mut stream = Randomness::from_seed(1, 0).stream(Purpose::Units, round);
        let mut all: Vec<(u64, u32)> = (0..count).map(|row| (stream.bits64(), row)).collect();
        all.sort_unstable();
        all
    }

    fn units(tagged: &[(u64, u32)]) -> Vec<Vec<u32>> {
        let (mut units, mut start) = (Vec::new(), 0);
        cut(tagged, MOST, &mut |groups| {
            units.push(tagged[start..start + groups].iter().map(|(_, row)| *row).collect());
            start += groups;
        });
        assert_eq!(start, tagged.len());
        units
    }

    #[test]
    fn every_group_is_in_one_unit() {
        let randomness = Randomness::from_seed(2, 0);
        for (count, group_size) in [(0, 1), (1, 1), (32, 1), (33, 1), (1000, 1), (90, 7)] {
            let before: Vec<u32> = (0..count * group_size as u32).map(|i| 3 * i).collect();
            let (mut batch, mut ends) = (before.clone(), Vec::new());
            let mut stream = randomness.stream(Purpose::Units, u64::from(count));
            Units::default().draw(&mut batch, group_size, 32 / group_size, &mut stream, &mut ends);
            let mut groups: Vec<&[u32]> = batch.chunks(group_size).collect();
            groups.sort_unstable();
            assert_eq!(groups.concat(), before);
            assert_eq!(ends.last().copied().unwrap_or(0), batch.len());
            let mut start = 0;
            for end in ends {
                assert!(
                    end > start && end % group_size == 0 && (end - start) / group_size <= 32 / group_size
                );
                start = end;
            }
        }
    }

    /// The two cases of the module's guarantee, both of which occur.
    #[test]
    fn a_removed_group_changes_the_units_beside_it_only() {
        let (mut alone, mut merged) = (0, 0);
        for round in 0..40 {
            let all = tagged(50 + 17 * round, u64::from(round));
            let before = units(&all);
            for gone in 0..all.len() {
                let mut rest = all.clone();
                rest.remove(gone);
                let after = units(&rest);
                let only = |these: &[Vec<u32>], those: &[Vec<u32>]| {
                    these.iter().filter(|unit| !those.contains(unit)).map(Vec::len).collect::<Vec<usize>>()
                };
                let (with, without) = (only(&before, &after), only(&after, &before));
                if with.len() == 1 {
                    alone += 1;
                } else {
                    assert_eq!((with.iter().sum::<usize>(), &without[..]), (MOST + 1, &[MOST][..]));
                    merged += 1;
                }
                assert!(with.iter().sum::<usize>() <= MOST + 1 && without.iter().sum::<usize>() <= MOST);
            }
        }
        assert!(alone > 1000 && merged > 100, "{alone} {merged}");
    }

    /// Rows that round against each other as hard as they can, one of them really removed: those after it are
    /// renumbered.
    #[test]
    fn removing_a_row_moves_the_stored_sum_by_hardly_more_than_the_bound() {
        let bound = 0.3;
        // All aligned and clipped, of different lengths in the last bits.
        let result = |row: u32| [1.0 + 1e-6 * row as f32, 0.7 - 1e-6 * row as f32, 1e-3];
        let sum = |tagged: &[(u64, u32)]| {
            let (mut total, mut unit) = (ClippedSum::new(3, bound), UnitSum::new(3, bound));
            total.reset(bound, true);
            for rows in units(tagged) {
                rows.iter().for_each(|row| unit.add(&result(*row)));
                total.absorb(&mut unit);
            }
            assert_eq!(total.counts().groups, tagged.len() as u64);
            assert_eq!(total.sensitivity(), 2.0 * bound * (1.0 + SHIFT));
            total.values().to_vec()
        };
        let mut farthest: f64 = 0.0;
        for round in 0..4 {
            let all = tagged(700, round);
            let whole = sum(&all);
            for gone in 0..all.len() {
                let mut rest = all.clone();
                rest.remove(gone);
                let moved = whole.iter().zip(sum(&rest)).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt();
                farthest = farthest.max(moved);
            }
        }
        assert!(farthest <= bound * (1.0 + SHIFT) && farthest > bound * (1.0 - 1e-4), "{farthest}");
    }
}
