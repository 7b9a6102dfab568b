//! Weights arranged for products: panels of columns, of a matrix as it is and of its transpose.
//!
//! An inner algorithm moves the weights after every sample, and then they are arranged again: with scattered
//! stores that was a quarter of a step of SGD on the paper's CNN.

use crate::Level;
use crate::level::versions;

versions! {
    /// Cuts a matrix with rows of `columns` numbers into panels of `width` columns, one after the other:
    /// out\[j / width\]\[i\]\[j % width\] = from\[i\]\[j\]. Places beyond the last column keep what they hold.
    ///
    /// `out` holds as many whole panels as the columns fill or begin.
    pub fn panels(level: Level, from: &[f32], columns: usize, width: usize, out: &mut [f32]) {
        let rows = from.len() / columns;
        assert!(out.len() >= columns.div_ceil(width) * rows * width, "room for all panels");
        for (panel, first) in out.chunks_exact_mut(rows * width).zip((0..columns).step_by(width)) {
            let n = width.min(columns - first);
            for (to, from) in panel.chunks_exact_mut(width).zip(from.chunks_exact(columns)) {
                let from = &from[first..][..n];
                if n.is_multiple_of(8) {
                    // Of known lengths: a copy of unknown length is a call, once for every row.
                    for (to, from) in to.as_chunks_mut::<8>().0.iter_mut().zip(from.as_chunks::<8>().0) {
                        *to = *from;
                    }
                } else {
                    to[..n].copy_from_slice(from);
                }
            }
        }
    }
}

/// [`panels`] of the transpose: out\[i / width\]\[j\]\[i % width\] = from\[i\]\[j\], for rows i of `columns`
/// numbers. Places beyond the last row keep what they hold.
pub fn transposed_panels(level: Level, from: &[f32], columns: usize, width: usize, out: &mut [f32]) {
    let level = level.check();
    let rows = from.len() / columns;
    assert!(out.len() >= rows.div_ceil(width) * columns * width, "room for all panels");
    let stretches = from.chunks(width * columns).zip(out.chunks_exact_mut(columns * width));
    for (from, panel) in stretches {
        let rows = from.len() / columns;
        let [whole_rows, whole_columns] = squares(level, from, columns, panel, width);
        // What is left: rows at the right edge of the panel, and columns at its lower edge.
        for (j, to) in panel.chunks_exact_mut(width).enumerate() {
            let first = if j < whole_columns { whole_rows } else { 0 };
            for i in first..rows {
                to[i] = from[i * columns + j];
            }
        }
    }
}

/// Transposes the squares of 8 × 8 numbers, if the level has a way of its own; returns how many rows and columns
/// are done. The rows of `panel` have `width` numbers, and `from` has no more rows than that.
#[cfg(target_arch = "x86_64")]
fn squares(level: Level, from: &[f32], columns: usize, panel: &mut [f32], width: usize) -> [usize; 2] {
    let rows = from.len() / columns;
    assert!(rows <= width && panel.len() == columns * width, "a panel for these rows");
    if !matches!(level, Level::Avx2 | Level::Avx512) {
        return [0, 0];
    }
    let whole = [rows - rows % 8, columns - columns % 8];
    // SAFETY: the caller has checked the level. Both slices hold what the last place needs: row
    // whole[0] − 1 < rows of `from`, and row whole[1] − 1 < columns of the panel, of which the first
    // whole[0] ≤ width places are written.
    unsafe { x86::transpose(from, columns, panel, width, whole) };
    whole
}

#[cfg(not(target_arch = "x86_64"))]
fn squares(_: Level, _: &[f32], _: usize, _: &mut [f32], _: usize) -> [usize; 2] {
    [0, 0]
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    /// to\[j\]\[i\] = from\[i\]\[j\] for i, j below `extents`, which are multiples of 8.
    ///
    /// # Safety
    /// The machine has AVX2; `from` has `extents[0]` rows of `columns` ≥ `extents[1]` numbers, `to` has
    /// `extents[1]` rows of `width` ≥ `extents[0]`.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn transpose(
        from: &[f32],
        columns: usize,
        to: &mut [f32],
        width: usize,
        extents: [usize; 2],
    ) {
        debug_assert!(extents[0] * columns <= from.len() && extents[1] * width <= to.len());
        for i in (0..extents[0]).step_by(8) {
            for j in (0..extents[1]).step_by(8) {
                // SAFETY: the caller vouches for the extents.
                unsafe {
                    let at = from.as_ptr().add(i * columns + j);
                    let row = |r: usize| _mm256_loadu_ps(at.add(r * columns));
                    // Pairs of rows, then of pairs, then halves.
                    let two = |r: usize| {
                        let (a, b) = (row(r), row(r + 1));
                        (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b))
                    };
                    let four = |r: usize| {
                        let ((a, b), (c, d)) = (two(r), two(r + 2));
                        [
                            _mm256_shuffle_ps::<0b01_00_01_00>(a, c),
                            _mm256_shuffle_ps::<0b11_10_11_10>(a, c),
                            _mm256_shuffle_ps::<0b01_00_01_00>(b, d),
                            _mm256_shuffle_ps::<0b11_10_11_10>(b, d),
                        ]
                    };
                    let (upper, lower) = (four(0), four(4));
                    let to = to.as_mut_ptr().add(j * width + i);
                    for k in 0..4 {
                        let low = _mm256_permute2f128_ps::<0x20>(upper[k], lower[k]);
                        let high = _mm256_permute2f128_ps::<0x31>(upper[k], lower[k]);
                        _mm256_storeu_ps(to.add(k * width), low);
                        _mm256_storeu_ps(to.add((k + 4) * width), high);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_where_it_belongs_and_nothing_else_is_touched() {
        for (rows, columns) in
            [(1_usize, 1_usize), (3, 5), (8, 8), (30, 16), (96, 64), (33, 41), (64, 10), (17, 128)]
        {
            let from: Vec<f32> = (0..rows * columns).map(|i| i as f32).collect();
            for width in [8, 16, 32] {
                for level in Level::available() {
                    let mut out = vec![-1.0; columns.div_ceil(width) * rows * width + 3];
                    panels(level, &from, columns, width, &mut out);
                    let mut across = vec![-1.0; rows.div_ceil(width) * columns * width + 3];
                    transposed_panels(level, &from, columns, width, &mut across);
                    for i in 0..rows {
                        for j in 0..columns {
                            let x = from[i * columns + j];
                            assert_eq!(out[((j / width) * rows + i) * width + j % width], x);
                            assert_eq!(across[((i / width) * columns + j) * width + i % width], x);
                        }
                    }
                    let kept = |out: &[f32]| out.iter().filter(|x| **x == -1.0).count();
                    assert_eq!(kept(&out), out.len() - from.len(), "{rows} {columns} {width}");
                    assert_eq!(kept(&across), across.len() - from.len(), "{rows} {columns} {width}");
                }
            }
        }
    }
}
