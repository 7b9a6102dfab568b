//! The loops of the scattering transform on sixteen planes at a time: wavelets and local means as products,
//! beside the Fourier transforms of [`fourier`](crate::fourier).

use crate::fourier::{Complex, LANES, Lane, ZERO};
use crate::level::versions;

versions! {
    /// out = x·ψ, where ψ is real.
    pub fn product(level: Level, x: &[Complex], filter: &[f32], out: &mut [Complex]) {
        for ((out, x), &weight) in out.iter_mut().zip(x).zip(filter) {
            for part in 0..2 {
                for i in 0..LANES {
                    out[part][i] = x[part][i] * weight;
                }
            }
        }
    }

    /// The transform of every second number of every second row of what x·ψ is the transform of, up to a
    /// factor of 4: the sum over the four frequencies that become one.
    ///
    /// # Panics
    /// If a slice does not have the length that the size says.
    pub fn folded(level: Level, x: &[Complex], filter: &[f32], size: [usize; 2], out: &mut [Complex]) {
        let [height, width] = size;
        assert!(x.len() == height * width && filter.len() == x.len(), "planes of the size");
        assert_eq!(4 * out.len(), x.len(), "room for a quarter");
        let half = width / 2;
        for (y, out) in out.chunks_exact_mut(half).enumerate() {
            for (column, out) in out.iter_mut().enumerate() {
                let first = y * width + column;
                let second = first + height / 2 * width;
                let mut sum = ZERO;
                for at in [first, first + half, second, second + half] {
                    let (x, weight) = (&x[at], filter[at]);
                    // Most of a wavelet's spectrum is zero.
                    if weight == 0.0 {
                        continue;
                    }
                    for part in 0..2 {
                        for i in 0..LANES {
                            sum[part][i] += x[part][i] * weight;
                        }
                    }
                }
                *out = sum;
            }
        }
    }

    /// out = |x|.
    pub fn modulus(level: Level, x: &[Complex], out: &mut [Lane]) {
        for (out, [re, im]) in out.iter_mut().zip(x) {
            for i in 0..LANES {
                out[i] = (re[i] * re[i] + im[i] * im[i]).sqrt();
            }
        }
    }

    /// The transforms of two real planes from that of the complex plane which they are the parts of.
    ///
    /// # Panics
    /// If a slice does not have the length that the size says.
    pub fn apart(
        level: Level,
        both: &[Complex],
        size: [usize; 2],
        first: &mut [Complex],
        second: &mut [Complex],
    ) {
        let [height, width] = size;
        assert_eq!(both.len(), height * width, "a plane of the size");
        assert!(first.len() == both.len() && second.len() == both.len(), "room for two");
        for y in 0..height {
            for x in 0..width {
                let at = y * width + x;
                // The same frequency with the other sign.
                let other = (height - y) % height * width + (width - x) % width;
                let ([re, im], [other_re, other_im]) = (&both[at], &both[other]);
                let (first, second) = (&mut first[at], &mut second[at]);
                for i in 0..LANES {
                    first[0][i] = 0.5 * (re[i] + other_re[i]);
                    first[1][i] = 0.5 * (im[i] - other_im[i]);
                    second[0][i] = 0.5 * (im[i] + other_im[i]);
                    second[1][i] = 0.5 * (other_re[i] - re[i]);
                }
            }
        }
    }

    /// Local means: out = R·x·Kᵀ, where the rows of R (`rows`) and of K (`columns`) are the weights of a mean.
    ///
    /// # Panics
    /// If a slice does not have the length that the others say.
    pub fn means(
        level: Level,
        x: &[Lane],
        size: [usize; 2],
        rows: &[f32],
        columns: &[f32],
        out: &mut [Lane],
    ) {
        let [height, width] = size;
        assert_eq!(x.len(), height * width, "a plane of the size");
        let (down, across) = (rows.len() / height, columns.len() / width);
        assert_eq!(out.len(), down * across, "room for the means");
        // Eight means at a time, so that a number is loaded once for all of them and the sums stay in
        // registers.
        let mut lines = vec![[0.0_f32; LANES]; down * width];
        for (rows, lines) in rows.chunks(EIGHT * height).zip(lines.chunks_mut(EIGHT * width)) {
            for column in 0..width {
                let sums = eight(rows, height, |y| &x[y * width + column]);
                for (line, sum) in lines.chunks_exact_mut(width).zip(&sums) {
                    line[column] = *sum;
                }
            }
        }
        for (line, out) in lines.chunks_exact(width).zip(out.chunks_exact_mut(across)) {
            for (columns, out) in columns.chunks(EIGHT * width).zip(out.chunks_mut(EIGHT)) {
                let sums = eight(columns, width, |x| &line[x]);
                out.copy_from_slice(&sums[..out.len()]);
            }
        }
    }
}

/// The sums that are taken together.
const EIGHT: usize = 8;

/// The products of at most eight rows of weights, each of the given length, with one line of numbers.
#[inline(always)]
fn eight<'x>(weights: &[f32], length: usize, at: impl Fn(usize) -> &'x Lane) -> [Lane; EIGHT] {
    let mut sums = [[0.0_f32; LANES]; EIGHT];
    let rows = weights.len() / length;
    for k in 0..length {
        let x = at(k);
        for (row, sum) in sums.iter_mut().enumerate() {
            // Rows that are not there repeat the first; nobody reads their sums.
            let weight = weights[if row < rows { row * length + k } else { k }];
            for i in 0..LANES {
                sum[i] += weight * x[i];
            }
        }
    }
    sums
}
