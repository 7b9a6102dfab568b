//! Clipping and summing many groups' results at once, as a batched model writes them down.
//!
//! # Guarantee
//!
//! **[`ClippedSum::add_rows`] leaves the bits that [`UnitSum::add`] and [`ClippedSum::absorb`] would have
//! left**, one row after the other with the same unit boundaries, whatever the stretches, the number of rows
//! in a call and the threads; [`UnitSum::add_rows`] does so for rows of one unit. So all that [`clip`](super)
//! proves about the sum holds for them.
//! * *Norms.* [`norm`](super::norm) adds the square of coordinate i, exact in double precision, to the sum
//!   with number i mod 16, for rising i, and adds the 16 sums up from left to right. Here the stretches of a
//!   row are read in the same order and the number of the sum is carried from one to the next, so the same
//!   numbers are added to the same sums in the same order.
//! * *Factors* are the same function of the same norm.
//! * *Sums.* Coordinate i of the unit is ((0 + f₁x₁) + f₂x₂) + …, each product and each addition rounded
//!   once, and coordinate i of the total adds the units as they end. No operation reads another coordinate,
//!   so the coordinates may be worked off in any order and on any thread, each in the order of the rows.

use dpsgd_kernels::{each2, fast};
use rayon::ThreadPool;
use rayon::prelude::*;

use super::{Clipped, ClippedSum, UnitSum, factor};

/// Lanes of [`dpsgd_kernels::squares`].
const LANES: usize = 16;
/// Coordinates that are worked off together: the part of the unit and of the total stay in the cache.
const COLUMNS: usize = 2048;

/// The results of some groups, each of d coordinates, as one matrix per parameter.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    stretches: &'a [&'a [f32]],
    count: usize,
}

/// Matrices that are not rows of d coordinates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the model wrote {values} values for {count} groups of {dimension} parameters")]
pub struct WrongShape {
    /// The values of all stretches.
    pub values: usize,
    /// The rows.
    pub count: usize,
    /// d.
    pub dimension: usize,
}

impl<'a> Rows<'a> {
    /// `count` rows; every stretch is a matrix with that many rows, and their widths add up to `dimension`.
    pub fn new(stretches: &'a [&'a [f32]], count: usize, dimension: usize) -> Result<Self, WrongShape> {
        let values = stretches.iter().map(|stretch| stretch.len()).sum();
        let whole = stretches.iter().all(|stretch| count > 0 && stretch.len().is_multiple_of(count));
        if values != count * dimension || (count > 0 && !whole) {
            return Err(WrongShape { values, count, dimension });
        }
        Ok(Self { stretches, count })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The stretches of some of the rows, one after the other.
    pub(crate) fn part(&self, rows: std::ops::Range<usize>) -> Vec<&'a [f32]> {
        let parts = self.stretches.iter().map(|stretch| {
            let width = stretch.len().checked_div(self.count).unwrap_or(0);
            &stretch[rows.start * width..rows.end * width]
        });
        parts.collect()
    }

    /// The stretches of one row.
    fn row(&self, row: usize) -> impl Iterator<Item = &'a [f32]> {
        let count = self.count;
        self.stretches.iter().map(move |stretch| {
            let width = stretch.len() / count;
            &stretch[row * width..(row + 1) * width]
        })
    }

    /// ‖row‖, to the bit what [`norm`](super::norm) gives for the same values in one piece.
    pub fn norm(&self, row: usize) -> f64 {
        let (mut sums, mut lane) = ([0.0; LANES], 0);
        for stretch in self.row(row) {
            lane = add_squares(&mut sums, lane, stretch);
        }
        sums.iter().sum::<f64>().sqrt()
    }

    /// Writes one row in one piece.
    pub fn copy(&self, row: usize, out: &mut [f32]) {
        let mut rest = out;
        for stretch in self.row(row) {
            let (part, after) = rest.split_at_mut(stretch.len());
            part.copy_from_slice(stretch);
            rest = after;
        }
    }
}

/// Adds squares to the sums, beginning with number `lane`; returns the number of the next.
fn add_squares(sums: &mut [f64; LANES], lane: usize, x: &[f32]) -> usize {
    let square = |x: f32| f64::from(x) * f64::from(x);
    let (first, rest) = x.split_at(((LANES - lane) % LANES).min(x.len()));
    for (sum, &x) in sums[lane..].iter_mut().zip(first) {
        *sum += square(x);
    }
    if rest.is_empty() {
        return (lane + first.len()) % LANES;
    }
    fast(
        #[inline(always)]
        || {
            let (blocks, last) = rest.as_chunks::<LANES>();
            for block in blocks {
                for (sum, &x) in sums.iter_mut().zip(block) {
                    *sum += f64::from(x) * f64::from(x);
                }
            }
            for (sum, &x) in sums.iter_mut().zip(last) {
                *sum += f64::from(x) * f64::from(x);
            }
            last.len()
        },
    )
}

/// Some coordinates of every row, of the unit and of the total.
struct Columns<'a> {
    stretch: &'a [f32],
    width: usize,
    first: usize,
    unit: &'a mut [f32],
    total: &'a mut [f64],
}

impl Columns<'_> {
    fn add(&mut self, factors: &[(f32, Clipped)], ends: &[usize]) {
        let Self { stretch, width, first, unit, total } = self;
        let mut ends = ends.iter().peekable();
        for (row, &(factor, clipped)) in factors.iter().enumerate() {
            let x = &stretch[row * *width + *first..][..unit.len()];
            match clipped {
                Clipped::No => each2(unit, x, |sum, x| *sum += x),
                Clipped::Yes => each2(unit, x, |sum, x| *sum += factor * x),
                Clipped::NotFinite => {}
            }
            if ends.next_if(|end| **end == row + 1).is_some() {
                super::absorb(total, unit);
            }
        }
    }
}

/// Adds rows, each clipped, to the unit, which the total absorbs after the rows named in `ends`; returns what
/// became of each. Without ends the total may be empty.
fn add(
    rows: &Rows<'_>,
    bound: f64,
    mut units: &mut [f32],
    mut totals: &mut [f64],
    ends: &[usize],
    pool: Option<&ThreadPool>,
) -> Vec<(f32, Clipped)> {
    let scale = |row: usize| factor(rows.norm(row), bound);
    let factors: Vec<(f32, Clipped)> = match pool {
        Some(pool) => pool.install(|| (0..rows.count).into_par_iter().map(scale).collect()),
        None => (0..rows.count).map(scale).collect(),
    };
    let mut columns = Vec::new();
    for stretch in rows.stretches {
        let width = stretch.len().checked_div(rows.count).unwrap_or(0);
        for first in (0..width).step_by(COLUMNS) {
            let length = COLUMNS.min(width - first);
            let (unit, rest) = units.split_at_mut(length);
            units = rest;
            let (total, rest) = totals.split_at_mut(length.min(totals.len()));
            totals = rest;
            columns.push(Columns { stretch, width, first, unit, total });
        }
    }
    match pool {
        Some(pool) => pool.install(|| columns.par_iter_mut().for_each(|columns| columns.add(&factors, ends))),
        None => columns.iter_mut().for_each(|columns| columns.add(&factors, ends)),
    }
    factors
}

impl UnitSum {
    /// Adds rows, each clipped, in their order; on the threads of `pool`, if there is one. See the module
    /// documentation.
    pub fn add_rows(&mut self, rows: &Rows<'_>, pool: Option<&ThreadPool>) {
        for (_, clipped) in add(rows, self.bound, &mut self.values, &mut [], &[], pool) {
            self.counts.count(clipped);
        }
    }
}

impl ClippedSum {
    /// Adds rows, each clipped, to `unit`, which is absorbed after the rows named in `ends` (counted from 1,
    /// rising); on the threads of `pool`, if there is one. See the module documentation.
    pub fn add_rows(
        &mut self,
        unit: &mut UnitSum,
        rows: &Rows<'_>,
        ends: &[usize],
        pool: Option<&ThreadPool>,
    ) {
        debug_assert!(self.bound == unit.bound && ends.is_sorted_by(|a, b| a < b));
        let factors = add(rows, unit.bound, &mut unit.values, &mut self.values, ends, pool);
        let mut ends = ends.iter().peekable();
        for (row, &(_, clipped)) in factors.iter().enumerate() {
            unit.counts.count(clipped);
            if ends.next_if(|end| **end == row + 1).is_some() {
                self.take_counts(unit);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::UNIT_GROUPS;
    use super::*;

    /// Values of all sizes, some rows short, some long, some not finite.
    fn matrix(rows: usize, dimension: usize) -> Vec<Vec<f32>> {
        let mut state = 7u64;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1 << 24) as f32 - 0.5
        };
        let scales = [1e-3, 1.0, 30.0, 1e30, 0.0];
        (0..rows)
            .map(|row| {
                let mut values: Vec<f32> = (0..dimension).map(|_| scales[row % 5] * uniform()).collect();
                if row % 11 == 4 {
                    values[dimension / 2] = [f32::NAN, f32::INFINITY][row % 2];
                }
                values
            })
            .collect()
    }

    fn cut(matrix: &[Vec<f32>], widths: &[usize]) -> Vec<Vec<f32>> {
        let mut first = 0;
        widths
            .iter()
            .map(|&width| {
                first += width;
                matrix.iter().flat_map(|row| row[first - width..first].to_vec()).collect()
            })
            .collect()
    }

    #[test]
    fn the_bits_are_those_of_one_row_after_the_other() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        for widths in [&[1][..], &[5, 1, 16, 40], &[2048, 3, 0, 2500, 17], &[4096], &[15, 17, 33]] {
            let dimension = widths.iter().sum();
            let all = matrix(70, dimension);
            // Units as fixed samplers cut them, as Poisson sampling does, and of one group.
            for ends in [vec![32, 64, 70], vec![3, 31, 32, 55, 70], (1..=70).collect::<Vec<_>>()] {
                let (mut total, mut unit) = (ClippedSum::new(dimension, 1.0), UnitSum::new(dimension, 1.0));
                for (row, values) in all.iter().enumerate() {
                    unit.add(values);
                    if ends.contains(&(row + 1)) {
                        assert!(unit.counts().groups <= UNIT_GROUPS);
                        total.absorb(&mut unit);
                    }
                }
                for chunk in [1, 7, 32, 70] {
                    let (mut many, mut part) =
                        (ClippedSum::new(dimension, 1.0), UnitSum::new(dimension, 1.0));
                    for (number, rows) in all.chunks(chunk).enumerate() {
                        let parts = cut(rows, widths);
                        let stretches: Vec<&[f32]> = parts.iter().map(|part| &part[..]).collect();
                        let rows = Rows::new(&stretches, rows.len(), dimension).unwrap();
                        let first = number * chunk;
                        let ends: Vec<usize> = ends
                            .iter()
                            .filter(|end| (first + 1..=first + rows.count()).contains(end))
                            .map(|end| end - first)
                            .collect();
                        many.add_rows(&mut part, &rows, &ends, (chunk % 2 == 0).then_some(&pool));
                    }
                    assert_eq!(many.counts(), total.counts());
                    let bits =
                        |sum: &ClippedSum| sum.values().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                    assert_eq!(bits(&many), bits(&total), "{widths:?} {ends:?} {chunk}");
                }
            }
            let stretches = cut(&all, widths);
            let stretches: Vec<&[f32]> = stretches.iter().map(|part| &part[..]).collect();
            let rows = Rows::new(&stretches, 70, dimension).unwrap();
            let mut copy = vec![0.0; dimension];
            for (row, values) in all.iter().enumerate() {
                assert_eq!(rows.norm(row).to_bits(), super::super::norm(values).to_bits());
                rows.copy(row, &mut copy);
                assert!(copy.iter().zip(values).all(|(a, b)| a.to_bits() == b.to_bits()));
            }
        }
    }

    #[test]
    fn shapes_that_do_not_fit_are_refused() {
        let six = [0.0; 6];
        assert!(Rows::new(&[&six], 2, 3).is_ok() && Rows::new(&[&six[..2], &six[..4]], 2, 3).is_ok());
        assert!(Rows::new(&[], 0, 3).is_ok());
        for (stretches, count, dimension) in
            [(&[&six[..]][..], 3, 3), (&[&six[..3], &six[..3]], 2, 3), (&[&six[..]], 0, 3), (&[], 1, 3)]
        {
            assert!(Rows::new(stretches, count, dimension).is_err());
        }
        let error = Rows::new(&[&six], 1, 3).unwrap_err().to_string();
        assert_eq!(error, "the model wrote 6 values for 1 groups of 3 parameters");
    }
}
