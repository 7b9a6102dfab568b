//! Σ_k w_k·e^{i·j·step·y_k} for all j below a count at once: a nonuniform Fourier transform with a proved error.
//!
//! Each w_k is spread over a regular grid of M points by a Gaussian, the grid is transformed by FFT, and the
//! Gaussian's own transform is divided out (Greengard and Lee 2004). With θ_k = step·y_k, l = j − count/2,
//! a_k = w_k·e^{i·(count/2)·θ_k} and g(x) = e^{−x²/4τ}, Poisson summation gives
//!
//! ```text
//! Σ_r e^{ilξ_r} Σ_k a_k·g(ξ_r − θ_k) = M·Σ_p ĝ(l − pM)·Σ_k a_k·e^{i(l − pM)θ_k},   ĝ(l) = √(τ/π)·e^{−τl²},
//! ```
//!
//! so what p ≠ 0 adds, relative to Σ w, is at most Σ_{p≠0} e^{−τ((l−pM)² − l²)}, and cutting g off after S
//! points costs at most 2·Σ_{s≥S} e^{−κs²}/(M·ĝ(l)) with κ = π²/τM². Both are made smaller than a rounding.
//!
//! Written by hand because the libraries that do this promise a tolerance but not a bound.

use std::f64::consts::{PI, TAU};

use rustfft::FftPlanner;
use rustfft::num_complex::Complex64;

use super::grid::FFT_ERROR;

/// −ln of each of the two errors, relative to Σ w: below a rounding.
const WANTED: f64 = 38.0;
/// Roundings of one spread value: three exponentials, two products a step and the phase.
const ROUNDINGS: f64 = 96.0;

/// The sums and how far they may be off.
pub(super) struct Transform {
    /// The sum for each j.
    pub values: Vec<Complex64>,
    /// What each value was divided by, relative to the middle one, inverted: at least one. Both errors below
    /// grow by it.
    pub gains: Vec<f64>,
    /// A bound on the error of every single value, without the errors of θ.
    pub each: f64,
    /// A bound on the square root of the sum of all squared errors of the FFT.
    pub together: f64,
}

/// The sums for 0 ≤ j < `count`.
///
/// # Guarantee
/// Each value is within `gains·each` of the exact sum over the given `step·y`, plus an error e_j of the FFT with
/// Σ (e_j/gains_j)² ≤ `together`². Weights must not be negative. The errors of rounding `step·y` are not counted.
pub(super) fn transform(step: f64, count: usize, y: &[f64], w: &[f64]) -> Transform {
    let size = (2 * count).next_power_of_two().max(64);
    // Of |l|/M.
    let edge = count.div_ceil(2) as f64 / size as f64;
    let spread = WANTED / (1.0 - 2.0 * edge);
    let kappa = PI * PI / spread;
    let reach = ((WANTED + spread * edge * edge) / kappa).sqrt().ceil() as usize;
    let middle = (count / 2) as f64;
    let (grid, most) = spread_out(step, middle, size, kappa, reach, y, w);
    let norm = grid.iter().map(Complex64::norm_sqr).sum::<f64>().sqrt();

    let mut buffer = grid;
    FftPlanner::new().plan_fft_inverse(size).process(&mut buffer);
    // M·ĝ(0).
    let scale = (spread / PI).sqrt();
    let mut values = Vec::with_capacity(count);
    let mut gains = Vec::with_capacity(count);
    for j in 0..count {
        let l = j as i64 - (count / 2) as i64;
        let gain = (spread * (l as f64 / size as f64).powi(2)).exp();
        values.push(buffer[l.rem_euclid(size as i64) as usize] * (gain / scale));
        gains.push(gain);
    }
    let total: f64 = w.iter().sum();
    let cut_off =
        2.0 * (-kappa * (reach * reach) as f64).exp() / (1.0 - (-2.0 * kappa * reach as f64).exp()) / scale;
    let alias = 2.02 * (-spread * (1.0 - 2.0 * edge)).exp();
    let rounding = (most as f64 + ROUNDINGS) * f64::EPSILON;
    Transform {
        values,
        gains,
        // The spread values of one weight add up to at most 1.001 of `scale`.
        each: total * (alias + cut_off + 1.001 * rounding),
        together: FFT_ERROR * (size as f64).log2() * (size as f64).sqrt() * norm / scale,
    }
}

/// The grid of `size` points, 2π around, and the most terms that were added up at one of them.
fn spread_out(
    step: f64,
    middle: f64,
    size: usize,
    kappa: f64,
    reach: usize,
    y: &[f64],
    w: &[f64],
) -> (Vec<Complex64>, usize) {
    let width = 2 * reach;
    // e^{−κs²} for s from 1 − reach to reach.
    let fixed: Vec<f64> =
        (0..width).map(|i| (-kappa * (i as f64 + 1.0 - reach as f64).powi(2)).exp()).collect();
    // Room for what runs over the end; it is carried round.
    let mut grid = vec![Complex64::ZERO; size + width];
    let mut terms = vec![0_usize; size];
    for (&y, &w) in y.iter().zip(w) {
        let turns = step * y / TAU;
        let place = (turns - turns.floor()) * size as f64;
        let cell = (place as usize).min(size - 1);
        let off = place - cell as f64;
        terms[cell] += 1;
        let phase = middle * turns;
        let weight = Complex64::from_polar(w, TAU * (phase - phase.floor()));
        // e^{−κ(s − off)²} = e^{−κs²}·e^{−κ·off²}·(e^{2κ·off})^s.
        let ratio = (2.0 * kappa * off).exp();
        let mut factor = (-kappa * off * (off + 2.0 * (reach as f64 - 1.0))).exp();
        for (target, fixed) in grid[cell..cell + width].iter_mut().zip(&fixed) {
            let share = factor * fixed;
            target.re += weight.re * share;
            target.im += weight.im * share;
            factor *= ratio;
        }
    }
    let over = grid.split_off(size);
    for (target, value) in grid.iter_mut().zip(over) {
        *target += value;
    }
    // The first of the points a weight is spread over lies reach − 1 before its own.
    grid.rotate_left(reach - 1);
    let mut window: usize = terms.iter().cycle().take(width).sum();
    let mut most = window;
    for i in 0..size {
        window += terms[(i + width) % size];
        window -= terms[i];
        most = most.max(window);
    }
    (grid, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against the sum itself, in the worst places for it: all weights in one cell, at the edges of cells, far
    /// around the circle, and the highest j.
    #[test]
    fn it_is_the_sum_within_its_bound() {
        let mut state = 7_u64;
        let mut uniform = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        for (count, step, spread) in [(10, 0.3, 1.0), (100, 0.01, 1e-6), (1000, 0.02, 40.0), (2048, 1.0, 3.0)]
        {
            let mut y: Vec<f64> = (0..300).map(|_| spread * (uniform() - 0.3)).collect();
            y.push(0.0);
            y.push(TAU / step / 4096.0);
            let w: Vec<f64> = y.iter().map(|_| uniform().powi(8)).collect();
            let found = transform(step, count, &y, &w);
            let total: f64 = w.iter().sum();
            let mut errors = 0.0;
            for (j, &value) in found.values.iter().enumerate() {
                let angle = |y: f64| j as f64 * step * y;
                let exact: Complex64 =
                    y.iter().zip(&w).map(|(&y, &w)| Complex64::from_polar(w, angle(y))).sum();
                let theta =
                    y.iter().zip(&w).map(|(&y, w)| w * angle(y).abs()).sum::<f64>() * 8.0 * f64::EPSILON;
                let off = ((value - exact).norm() - theta - found.gains[j] * found.each).max(0.0);
                errors += (off / found.gains[j]).powi(2);
                assert!((value - exact).norm() < 1e-11 * total, "{count} {j}: {value} {exact}");
            }
            assert!(errors.sqrt() <= found.together, "{count}: {errors:e} {:e}", found.together);
        }
    }
}
