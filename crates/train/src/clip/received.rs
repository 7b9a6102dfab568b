//! The sum of a unit that another process clipped and summed.

use super::{Counts, UnitSum, norm};

/// A sum that no unit of so many groups can have.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Implausible {
    /// Not d coordinates.
    #[error("the sum of a unit has {given} coordinates, the model {expected} parameters")]
    Dimension {
        /// What arrived.
        given: usize,
        /// d.
        expected: usize,
    },
    /// Not the groups that were asked for.
    #[error("the sum of a unit counts {} groups ({} clipped, {} not finite), it was asked for {expected}", given.groups, given.clipped, given.not_finite)]
    Groups {
        /// What arrived.
        given: Counts,
        /// What was asked for.
        expected: u64,
    },
    /// Longer than clipped results can add up to, or not finite.
    #[error("the sum of {groups} groups has norm {norm}: results clipped to {bound} cannot add up to it")]
    Norm {
        /// ‖sum‖.
        norm: f64,
        /// The groups of the unit.
        groups: u64,
        /// C.
        bound: f64,
    },
}

impl UnitSum {
    /// Takes over the sum of a unit of `expected` groups that another process clipped to the same C.
    ///
    /// # Guarantee
    ///
    /// **The sum holds the bits that arrived, or nothing is taken over.** So if they are the bits of a
    /// [`UnitSum`] in the other process, [`ClippedSum::absorb`](super::ClippedSum::absorb) adds what it would
    /// have added had that unit been summed here.
    ///
    /// **A sum that is taken over has norm at most k·C**, k being the groups of the unit, and it is finite. A
    /// true one always passes: with each result at most C(1 − 2⁻¹⁴ + 2⁻¹⁷ + 2⁻²²) long (see [`clip`](super))
    /// and k ≤ 32 roundings of at most 2⁻²⁴·kC, the sum is no longer than kC(1 − 2⁻¹⁴ + 2⁻¹⁷ + 2⁻²² + 2⁻¹⁹),
    /// and the norm that is taken here is off by much less than the rest.
    ///
    /// This bounds the harm of damaged bits; it does not prove that anything was clipped. That the sensitivity of
    /// the total is 2C rests on the other process running this code on its groups: it must be trusted with the
    /// data anyway.
    pub fn receive(&mut self, values: &[f32], counts: Counts, expected: u64) -> Result<(), Implausible> {
        if values.len() != self.values.len() {
            return Err(Implausible::Dimension { given: values.len(), expected: self.values.len() });
        }
        let named = counts.clipped.checked_add(counts.not_finite);
        if counts.groups != expected || named.is_none_or(|named| named > expected) {
            return Err(Implausible::Groups { given: counts, expected });
        }
        let (norm, bound) = (norm(values), self.bound);
        if norm.is_nan() || norm > expected as f64 * bound {
            return Err(Implausible::Norm { norm, groups: expected, bound });
        }
        self.values.copy_from_slice(values);
        self.counts = counts;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ClippedSum, UNIT_GROUPS};
    use super::*;

    fn counts(groups: u64, clipped: u64, not_finite: u64) -> Counts {
        Counts { groups, clipped, not_finite }
    }

    /// The longest sums there are: full units of aligned results at the bound, above it and just below it.
    #[test]
    fn every_true_sum_is_taken_over_with_its_bits() {
        for dimension in [1, 3, 17, 1001, 61_706] {
            for bound in [1e-6, 0.3, 1.0, 7.7, 1e6] {
                for length in [1e-30, 0.5, 0.9999, 0.99993, 1.0, 1.0001, 1e20] {
                    let direction: Vec<f32> = (0..dimension).map(|i| 1.0 + (i as f32 * 0.37).sin()).collect();
                    let scale = length * bound / norm(&direction);
                    let x: Vec<f32> = direction.iter().map(|x| (f64::from(*x) * scale) as f32).collect();
                    let (mut there, mut here) =
                        (UnitSum::new(dimension, bound), UnitSum::new(dimension, bound));
                    for _ in 0..UNIT_GROUPS {
                        there.add(&x);
                    }
                    here.receive(there.values(), there.counts(), UNIT_GROUPS).unwrap();
                    let bits =
                        |sum: &ClippedSum| sum.values().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                    let mut totals = [(); 2].map(|()| ClippedSum::new(dimension, bound));
                    totals[0].absorb(&mut there);
                    totals[1].absorb(&mut here);
                    assert_eq!(bits(&totals[0]), bits(&totals[1]));
                    assert_eq!(totals[0].counts(), totals[1].counts());
                }
            }
        }
    }

    #[test]
    fn a_sum_that_cannot_be_is_refused_and_changes_nothing() {
        let (bound, c) = (0.5, 0.5f32);
        let over = (3.0 * c).next_up();
        for (values, counted, fine) in [
            (vec![3.0 * c, 0.0], counts(3, 3, 0), true),
            (vec![0.0, 0.0], counts(3, 0, 3), true),
            (vec![over, 0.0], counts(3, 3, 0), false),
            (vec![2.0 * c, 2.5 * c], counts(3, 3, 0), false),
            (vec![f32::NAN, 0.0], counts(3, 0, 0), false),
            (vec![f32::INFINITY, 0.0], counts(3, 0, 0), false),
            (vec![f32::MAX, f32::MAX], counts(3, 0, 0), false),
            (vec![c, 0.0], counts(2, 0, 0), false),
            (vec![c, 0.0], counts(4, 0, 0), false),
            (vec![c, 0.0], counts(3, 2, 2), false),
            (vec![c, 0.0], counts(3, u64::MAX, 2), false),
            (vec![c], counts(3, 0, 0), false),
            (vec![c, 0.0, 0.0], counts(3, 0, 0), false),
        ] {
            let mut unit = UnitSum::new(2, bound);
            assert_eq!(unit.receive(&values, counted, 3).is_ok(), fine, "{values:?} {counted:?}");
            if !fine {
                assert_eq!((unit.values(), unit.counts()), (&[0.0, 0.0][..], Counts::default()));
            }
        }
    }
}
