//! Clipping `[x]_C = x·min(1, C/‖x‖)`, and the sum of clipped results that knows its own sensitivity.
//!
//! | group result x | what is added to the sum | counted as |
//! |---|---|---|
//! | ‖x‖ = 0 | zero | unclipped |
//! | 0 < ‖x‖ ≤ C(1 − 2⁻¹⁴) | x | unclipped |
//! | ‖x‖ > C(1 − 2⁻¹⁴) | x·C(1 − 2⁻¹⁴)/‖x‖ | clipped |
//! | a NaN or an infinity anywhere | nothing | not finite |
//! | ‖x‖ above the largest `f32` | nothing | not finite |
//!
//! # Guarantee
//!
//! **What is added has norm at most C, after all rounding.** Let n be the norm that was computed,
//! t ≤ n(1 + [`NORM_ERROR`]) the true one, μ = [`MARGIN`] and f the factor as stored. Rounding f
//! to single precision (a subnormal one downwards) and multiplying each coordinate by it costs two factors
//! (1 + 2⁻²⁴), so
//! what is added is no longer than (C/n)(1 − μ)·n(1 + 2⁻¹⁷)·(1 + 2⁻²⁴)² < C(1 − 2⁻¹⁴ + 2⁻¹⁷ + 2⁻²²).
//! Coordinates that become subnormal add at most 2⁻¹⁴⁹·√d, which is nothing beside C ≥ 1e-6. A
//! norm that underflowed to n = 0 belongs to a vector of true norm below 2⁻⁶³·√d, again nothing.
//! Norms computed here are in double precision, where nothing over- or underflows; a model that
//! computes them itself promises [`NORM_ERROR`].
//!
//! **Substituting one group's content moves the sum as stored by at most 2C.** Groups are summed
//! in single precision in units of at most [`UNIT_GROUPS`] = 32, and units in double precision.
//! The k-th addition of a unit rounds by at most 2⁻²⁴·kC, all of them by 2⁻²⁴·(2 + … + 32)·C =
//! 527·2⁻²⁴·C < 2⁻¹⁴·⁹·C, with the old content and with the new; other units do not change. So the
//! sum moves by at most 2C(1 − 2⁻¹⁴ + 2⁻¹⁷ + 2⁻²² + 2⁻¹⁴·⁹) < 2C(1 − 2⁻¹⁶), which leaves C·2⁻¹⁵ for
//! the double precision of the total: its roundings are below (m/32)·2⁻⁵³·mC each way, less than
//! that for m up to [`MOST_GROUPS`] whatever the data. (Groups of 32 samples and more are units of their own:
//! m additions, but none in single precision, which leaves 2C(2⁻¹⁴ − 2⁻¹⁷ − 2⁻²²) > C·10⁻⁴, and 2m·2⁻⁵³·mC is
//! below that too.) The noise is added to what is stored, and all later rounding is post-processing. Adding a
//! sample to a cell of a random allocation, or removing it, is such a substitution: the cells of a round and
//! their units stay what they are, and an empty cell is one whose content is 0.
//!
//! **Adding or removing one group (Poisson sampling, allocation, filtering) moves it by at most
//! C(1 + 2⁻¹²).** The units are drawn so that those which change hold at most 33 groups with it and 32 without
//! ([`sampler`](crate::sampler), `units.rs`). They are off by at most 2⁻²⁴·(2 + … + 33)·C = 560·2⁻²⁴·C and
//! 527·2⁻²⁴·C, so the sum moves by at most C(1 − 2⁻¹⁴ + 2⁻¹⁷ + 2⁻²² + 1087·2⁻²⁴) < C(1 + 2⁻¹⁶), which leaves
//! C·(2⁻¹² − 2⁻¹⁶) for the double precision of the total: at most m additions that round by 2⁻⁵³·mC each way,
//! less than that for m up to [`MOST_GROUPS`]. The sum states 2C(1 + 2⁻¹²) as its sensitivity then, for which
//! the noise is scaled.

mod received;
mod rows;

pub use self::received::Implausible;
pub use self::rows::{Rows, WrongShape};

use dpsgd_kernels::{each2, fast, squares};

use crate::fault::{self, Fault};

/// The relative error a model may make in the norm it hands to the clip: 2⁻¹⁷ ≈ 7.6e-6.
pub const NORM_ERROR: f64 = 1.0 / 131_072.0;
/// By how much the clip stays below C: 2⁻¹⁴ ≈ 6.1e-5.
pub const MARGIN: f64 = 1.0 / 16_384.0;
/// What rounding can add to the sensitivity where a group is added or removed: 2⁻¹² ≈ 2.4e-4.
pub const SHIFT: f64 = 1.0 / 4096.0;
/// The most groups of a round, for which the sensitivity above is proved. (With Poisson sampling and random
/// allocation no such limit could be enforced without looking at N: there it is up to the user, who chooses
/// the rate or the rounds of an epoch.)
pub const MOST_GROUPS: u64 = 500_000;
/// The most groups summed in single precision before they enter the total.
pub const UNIT_GROUPS: u64 = 32;

/// ‖x‖, summed in double precision: relative error at most (d/16 + 17)·2⁻⁵⁴.
pub fn norm(x: &[f32]) -> f64 {
    squares(x).sqrt()
}

/// What became of one group's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clipped {
    /// It was added as it is.
    No,
    /// It was scaled down.
    Yes,
    /// It was NaN, infinite or overflowed, and nothing was added.
    NotFinite,
}

/// The factor that brings a vector of a given norm to at most `bound`; see the module's table.
pub fn factor(norm: f64, bound: f64) -> (f32, Clipped) {
    if norm.is_nan() || norm > f64::from(f32::MAX) {
        return (0.0, Clipped::NotFinite);
    }
    if fault::injected(Fault::ClippedAfterTheSum) {
        return (1.0, Clipped::No);
    }
    let bound = if fault::injected(Fault::ClipBoundDoubled) { 2.0 * bound } else { bound };
    let target = bound * (1.0 - MARGIN);
    if norm <= target {
        return (1.0, Clipped::No);
    }
    let exact = target / norm;
    let nearest = exact as f32;
    // Below the smallest normal number the nearest one may be far above, by 2⁻²⁴ no longer.
    let above = nearest < f32::MIN_POSITIVE && f64::from(nearest) > exact;
    (if above { nearest.next_down() } else { nearest }, Clipped::Yes)
}

/// Clips x in place.
pub fn clip(x: &mut [f32], bound: f64) -> Clipped {
    let (factor, clipped) = factor(norm(x), bound);
    match clipped {
        Clipped::No => {}
        Clipped::Yes => {
            for x in x {
                *x *= factor;
            }
        }
        Clipped::NotFinite => x.fill(0.0),
    }
    clipped
}

/// How often what happened; computed from private data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Groups in all.
    pub groups: u64,
    /// Groups scaled down.
    pub clipped: u64,
    /// Groups that counted as zero because they were not finite.
    pub not_finite: u64,
}

impl Counts {
    fn count(&mut self, clipped: Clipped) {
        self.groups += 1;
        match clipped {
            Clipped::No => {}
            Clipped::Yes => self.clipped += 1,
            Clipped::NotFinite => self.not_finite += 1,
        }
    }

    pub(crate) fn add(&mut self, other: Counts) {
        self.groups += other.groups;
        self.clipped += other.clipped;
        self.not_finite += other.not_finite;
    }
}

/// The clipped results of the at most [`UNIT_GROUPS`] groups of one unit of work, in single
/// precision.
#[derive(Debug)]
pub struct UnitSum {
    bound: f64,
    values: Vec<f32>,
    counts: Counts,
}

impl UnitSum {
    /// An empty sum of results of d coordinates, each clipped to `bound`.
    pub fn new(dimension: usize, bound: f64) -> Self {
        Self { bound, values: vec![0.0; dimension], counts: Counts::default() }
    }

    /// Empties it and sets C.
    pub fn reset(&mut self, bound: f64) {
        self.bound = bound;
        self.values.fill(0.0);
        self.counts = Counts::default();
    }

    /// C.
    pub fn bound(&self) -> f64 {
        self.bound
    }

    /// The sum.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// How many groups were clipped or not finite; computed from private data.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Adds one group's result, clipped.
    pub fn add(&mut self, result: &[f32]) {
        let (factor, clipped) = factor(norm(result), self.bound);
        self.counts.count(clipped);
        match clipped {
            Clipped::No => each2(&mut self.values, result, |sum, x| *sum += x),
            Clipped::Yes => each2(&mut self.values, result, |sum, x| *sum += factor * x),
            Clipped::NotFinite => {}
        }
    }

    /// Lets a model add many groups' results, each scaled by the factor it asks for.
    pub fn add_with<R>(&mut self, add: impl FnOnce(&mut dyn FnMut(f32) -> f32, &mut [f32]) -> R) -> R {
        let Self { bound, values, counts } = self;
        let mut scale = |norm: f32| {
            let (factor, clipped) = factor(f64::from(norm), *bound);
            counts.count(clipped);
            factor
        };
        add(&mut scale, values)
    }

    /// Counts a group whose result was found not to be finite before it came here.
    pub(crate) fn count_not_finite(&mut self) {
        self.counts.count(Clipped::NotFinite);
    }
}

/// `U = Σ_h [a_h]_C` of a round, together with the C it was clipped to.
///
/// # Guarantee
///
/// Results enter only through the clip, so substituting the content of one group moves U by at
/// most [`ClippedSum::sensitivity`] = 2C, rounding included; see the module documentation.
#[derive(Debug)]
pub struct ClippedSum {
    bound: f64,
    /// [`SHIFT`] where groups are drawn independently.
    shift: f64,
    values: Vec<f64>,
    counts: Counts,
}

impl ClippedSum {
    /// An empty sum of results of d coordinates, each clipped to `bound`.
    pub fn new(dimension: usize, bound: f64) -> Self {
        Self { bound, shift: 0.0, values: vec![0.0; dimension], counts: Counts::default() }
    }

    /// Empties it, sets C, and says whether its groups are drawn
    /// [independently](dpsgd_privacy::mechanism::Phase::independent_groups).
    pub fn reset(&mut self, bound: f64, independent_groups: bool) {
        self.bound = bound;
        self.shift = if independent_groups { SHIFT } else { 0.0 };
        self.values.fill(0.0);
        self.counts = Counts::default();
    }

    /// 2C: how far the sum moves at most when one group's content is substituted; twice as far as when one is
    /// added or removed. Where that is what happens it is 2C(1 + [`SHIFT`]).
    pub fn sensitivity(&self) -> f64 {
        2.0 * self.bound * (1.0 + self.shift)
    }

    /// U.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// How many groups were clipped or not finite; computed from private data.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Adds the sum of a unit, which must have been clipped to the same C, and empties it.
    pub fn absorb(&mut self, unit: &mut UnitSum) {
        debug_assert!(self.bound == unit.bound && unit.counts.groups <= UNIT_GROUPS);
        absorb(&mut self.values, &mut unit.values);
        self.take_counts(unit);
    }

    fn take_counts(&mut self, unit: &mut UnitSum) {
        self.counts.add(std::mem::take(&mut unit.counts));
        if fault::injected(Fault::ClippedAfterTheSum) {
            let norm = self.values.iter().map(|x| x * x).sum::<f64>().sqrt();
            let longest = self.counts.groups as f64 * self.bound;
            self.values.iter_mut().for_each(|x| *x *= (longest / norm).min(1.0));
        }
    }
}

/// Adds single-precision values to double-precision ones and empties them.
fn absorb(total: &mut [f64], unit: &mut [f32]) {
    fast(
        #[inline(always)]
        || {
            for (sum, x) in total.iter_mut().zip(unit) {
                *sum += f64::from(*x);
                *x = 0.0;
            }
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The norm of f32 values, slowly.
    fn slow(x: &[f32]) -> f64 {
        x.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt()
    }

    /// Whoever chooses w can make gradients as long as single precision holds: the factor is then subnormal.
    #[test]
    fn no_factor_is_rounded_up_beyond_its_share() {
        for bound in [1e-6, 3e-6, 1e-5, 1e-4, 1e-3, 0.1, 1.0, 1e6] {
            for power in (-6..=38).map(|power| 10f64.powi(power)) {
                for digits in [1.0, 1.3, 1.7, 2.0, 2.3, 2.9, 3.3, 3.4] {
                    let norm = digits * power;
                    let (factor, clipped) = factor(norm, bound);
                    assert_ne!(clipped, Clipped::NotFinite);
                    let longest = bound * (1.0 - MARGIN) * (1.0 + 2f64.powi(-24));
                    assert!(f64::from(factor) * norm <= longest, "{bound} {norm}: {factor}");
                }
            }
        }
    }

    #[test]
    fn the_table() {
        let below = 1.0 - MARGIN;
        // The factor for 3e38 is subnormal, a multiple of 2⁻¹⁴⁹, and never rounded up.
        let spacing = 2f64.powi(-149);
        let huge = f64::from(3.0e38f32);
        let below_huge = (below / huge / spacing).floor() * spacing * huge;
        for (x, added, count) in [
            (vec![0.0, 0.0, 0.0], vec![0.0, 0.0, 0.0], Clipped::No),
            (vec![0.25, -0.5, 0.0], vec![0.25, -0.5, 0.0], Clipped::No),
            (vec![1e-30, 1e-38, -1e-45], vec![1e-30, 1e-38, -1e-45], Clipped::No),
            (vec![0.0, -1.0, 0.0], vec![0.0, -below as f32, 0.0], Clipped::Yes),
            (vec![0.0, 1e30, 0.0], vec![0.0, below as f32, 0.0], Clipped::Yes),
            (vec![0.0, 3.0e38, 0.0], vec![0.0, below_huge as f32, 0.0], Clipped::Yes),
            (vec![3.0e38, 3.0e38, 0.0], vec![0.0; 3], Clipped::NotFinite),
            (vec![0.0, f32::NAN, 0.0], vec![0.0; 3], Clipped::NotFinite),
            (vec![f32::INFINITY, 0.0, 0.0], vec![0.0; 3], Clipped::NotFinite),
            (vec![0.0, 0.0, f32::NEG_INFINITY], vec![0.0; 3], Clipped::NotFinite),
            (vec![f32::NAN, f32::INFINITY, 1.0], vec![0.0; 3], Clipped::NotFinite),
        ] {
            let mut sum = UnitSum::new(3, 1.0);
            sum.add(&x);
            for (a, b) in sum.values().iter().zip(&added) {
                assert!((a - b).abs() <= 1e-7 * b.abs(), "{x:?}: {:?} {added:?}", sum.values());
            }
            let counts = sum.counts();
            assert_eq!(counts.groups, 1);
            assert_eq!(counts.clipped == 1, count == Clipped::Yes, "{x:?}");
            assert_eq!(counts.not_finite == 1, count == Clipped::NotFinite, "{x:?}");
            // The same in place.
            let mut y = x.clone();
            assert_eq!(clip(&mut y, 1.0), count);
            assert_eq!(y, sum.values());
        }
    }

    #[test]
    fn never_longer_than_the_bound_after_rounding() {
        // Lengths, bounds and a model's norm with the worst error it is allowed, downwards.
        let mut state = 1u64;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1 << 24) as f32 - 0.5
        };
        for dimension in [1, 2, 3, 16, 17, 1000, 61_706] {
            for bound in [1e-6, 0.013, 1.0, 3.0, 1e6] {
                for length in [1e-20, 0.5, 0.99999, 1.0, 1.00001, 7.0, 1e20] {
                    let mut x: Vec<f32> = (0..dimension).map(|_| uniform()).collect();
                    let scale = length * bound / slow(&x).max(1e-3);
                    x.iter_mut().for_each(|x| *x = (f64::from(*x) * scale) as f32);
                    let mut sum = UnitSum::new(dimension, bound);
                    sum.add(&x);
                    assert!(slow(sum.values()) <= bound, "{dimension} {bound} {length}");
                    let reported = (slow(&x) * (1.0 - NORM_ERROR * 0.999)) as f32;
                    sum.reset(bound);
                    sum.add_with(|scale, sum| {
                        let factor = scale(reported);
                        sum.iter_mut().zip(&x).for_each(|(sum, x)| *sum += factor * x);
                    });
                    assert!(slow(sum.values()) <= bound, "{dimension} {bound} {length}");
                }
            }
        }
    }

    #[test]
    fn hardly_shorter_than_the_bound() {
        let mut sum = UnitSum::new(2, 0.7);
        sum.add(&[30.0, 40.0]);
        assert!(slow(sum.values()) > 0.7 * (1.0 - 1.1 * MARGIN));
        assert_eq!(ClippedSum::new(2, 0.7).sensitivity(), 1.4);
    }

    #[test]
    fn the_norm_is_accurate() {
        let x: Vec<f32> = (0..100_003).map(|i| ((i * 7919) % 1000) as f32 / 500.0 - 1.0).collect();
        assert!((norm(&x) / slow(&x) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn substituting_a_group_moves_the_stored_sum_by_at_most_twice_the_bound() {
        // The worst the rounding can do: full units of aligned, clipped results; one group of the
        // last unit turns round. Without the margin the sum moves by more than 2C.
        let bound = 0.3;
        let sum = |turned: bool, direction: &[f32]| {
            let mut total = ClippedSum::new(direction.len(), bound);
            let mut unit = UnitSum::new(direction.len(), bound);
            for h in 0..64 {
                let sign = if turned && h == 63 { -1.0 } else { 1.0 };
                unit.add(&direction.iter().map(|x| sign * x).collect::<Vec<_>>());
                if h % 32 == 31 {
                    total.absorb(&mut unit);
                }
            }
            assert_eq!(total.counts(), Counts { groups: 64, clipped: 64, not_finite: 0 });
            total.values().to_vec()
        };
        for dimension in [1, 2, 3, 7, 100, 1001] {
            let direction: Vec<f32> = (0..dimension).map(|i| 1.0 + (i as f32 * 0.37).sin()).collect();
            let (before, after) = (sum(false, &direction), sum(true, &direction));
            let moved = before.iter().zip(&after).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt();
            assert!(
                moved <= 2.0 * bound && moved > 2.0 * bound * (1.0 - 2.0 * MARGIN),
                "{dimension}: {moved}"
            );
        }
    }
}
