//! f^{⊗E} for a symmetric trade-off function given by its privacy profile.

use num_complex::Complex;
use rustfft::FftPlanner;

/// Grid steps within one µ of the privacy loss; the relative error of the variance of the loss, and
/// so roughly that of ε, is below a sixth of the square of the step.
const STEPS: f64 = 32.0;
/// Standard deviations kept on each side of the (tilted) loss.
const REACH: f64 = 14.0;
/// The longest transform.
const LONGEST: usize = 1 << 21;

/// The ε at `delta` of the `times`-fold product of a trade-off function that is close to G_µ, has
/// the profile `profile` on ε ≥ 0, and reveals everything with probability `revealed`.
///
/// The privacy loss is discretised so that the profile is matched at every grid point, tilted by
/// e^{θ·loss} towards the answer (so that small δ keep their relative accuracy), and convolved by
/// FFT. A printed form is wanted to a few digits, so the result is not certified. `None` for more
/// epochs than the longest transform can separate (about 10⁶).
pub(super) fn epsilon(
    profile: impl Fn(f64) -> f64,
    revealed: f64,
    mu: f64,
    times: u64,
    delta: f64,
) -> Option<f64> {
    let n = times as f64;
    let left = delta + (n * (-revealed).ln_1p()).exp_m1();
    if left <= 0.0 || revealed >= 1.0 {
        return Some(f64::INFINITY);
    }
    if mu <= 0.0 {
        return Some(0.0);
    }
    let theta = (-crate::normal::quantile(left.min(0.5))) / (n.sqrt() * mu);
    let h = mu / STEPS;
    let loss = Loss::new(&profile, revealed, mu, theta, h);
    let (mean, variance) = loss.moments(h);
    let size = (2.0 * REACH * (n * variance).sqrt() / h).max(1024.0);
    if size > LONGEST as f64 {
        return None;
    }
    let size = (size as usize).next_power_of_two();
    let mut spectrum = vec![Complex::new(0.0, 0.0); size];
    for &(j, weight) in &loss.tilted {
        spectrum[j.rem_euclid(size as i64) as usize].re += weight;
    }
    let mut planner = FftPlanner::new();
    planner.plan_fft_forward(size).process(&mut spectrum);
    for value in &mut spectrum {
        *value = power(*value, times) / size as f64;
    }
    planner.plan_fft_inverse(size).process(&mut spectrum);

    // Downwards from the largest loss: `above` = Σ w_j and `scaled` = Σ w_j·e^{t_i − t_j} over j > i,
    // so that δ(t_i) = above − scaled, and between two grid points δ is linear in e^ε.
    let lowest = (n * mean / h).round() as i64 - size as i64 / 2;
    let (mut above, mut scaled) = (0.0, 0.0);
    for i in (0..size as i64).rev().map(|i| lowest + i) {
        let t = i as f64 * h;
        if above - scaled >= left {
            let beyond = ((above - left) / scaled).ln();
            return Some((t + beyond).max(0.0));
        }
        if t < 0.0 {
            break;
        }
        let weight =
            spectrum[i.rem_euclid(size as i64) as usize].re.max(0.0) * (n * loss.ln_moment - theta * t).exp();
        above += weight;
        scaled = (scaled + weight) * (-h).exp();
    }
    Some(0.0)
}

/// One factor's privacy loss on multiples of h, tilted and normalised.
struct Loss {
    tilted: Vec<(i64, f64)>,
    ln_moment: f64,
}

impl Loss {
    fn new(profile: &impl Fn(f64) -> f64, revealed: f64, mu: f64, theta: f64, h: f64) -> Self {
        // The loss of G_µ, tilted, is N(µ²/2 + θµ², µ²).
        let centre = mu * mu * (0.5 + theta);
        let first = (((centre - REACH * mu) / h).floor() as i64).max(1);
        let last = ((centre + REACH * mu) / h).ceil() as i64;
        let mut mass = Vec::with_capacity((last - first + 2) as usize);
        let mut before = profile((first - 1) as f64 * h);
        let mut here = profile(first as f64 * h);
        for j in first..=last {
            let after = profile((j + 1) as f64 * h);
            // The mass that gives the piecewise linear function (in e^ε) through the profile its
            // corner at e^{jh} (Doroshenko et al. 2022).
            let p = (h.exp() * (before - here) - (here - after)) / h.exp_m1();
            mass.push((j, p.max(0.0)));
            (before, here) = (here, after);
        }
        // A symmetric pair: the loss −t has e^{−t} times the probability of t.
        let mirrored: Vec<(i64, f64)> =
            mass.iter().map(|&(j, p)| (-j, p * (-(j as f64) * h).exp())).collect();
        mass.extend(mirrored);
        let rest = 1.0 - revealed - mass.iter().map(|&(_, p)| p).sum::<f64>();
        mass.push((0, rest.max(0.0)));
        // Scaled by the largest exponent, so that nothing overflows.
        let top = theta * last as f64 * h;
        let tilted: Vec<(i64, f64)> =
            mass.into_iter().map(|(j, p)| (j, p * (theta * j as f64 * h - top).exp())).collect();
        let total: f64 = tilted.iter().map(|&(_, w)| w).sum();
        Self {
            tilted: tilted.into_iter().map(|(j, w)| (j, w / total)).collect(),
            ln_moment: total.ln() + top,
        }
    }

    fn moments(&self, h: f64) -> (f64, f64) {
        let mean: f64 = self.tilted.iter().map(|&(j, w)| w * j as f64 * h).sum();
        let variance = self.tilted.iter().map(|&(j, w)| w * (j as f64 * h - mean).powi(2)).sum();
        (mean, variance)
    }
}

fn power(mut base: Complex<f64>, mut times: u64) -> Complex<f64> {
    let mut result = Complex::new(1.0, 0.0);
    while times > 0 {
        if times & 1 == 1 {
            result *= base;
        }
        base *= base;
        times >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gaussian;
    use crate::printed::claim::Lower;

    #[test]
    fn the_product_of_gaussians_is_gaussian() {
        for (mu, times) in [(1.0, 1), (0.7, 100), (0.05, 1000), (5.0, 3), (40.0, 10)] {
            for delta in [0.1, 1e-5, 1e-12, 1e-40] {
                let exact = gaussian::epsilon((times as f64).sqrt() * mu, delta);
                let got = epsilon(|e| gaussian::delta(mu, e), 0.0, mu, times, delta).unwrap();
                assert!((got - exact).abs() < 3e-4 * exact + 1e-9, "{mu} {times} {delta}: {got} {exact}");
            }
        }
    }

    /// With probability u nothing is learned, otherwise G_µ: the number of G_µ factors is binomial.
    #[test]
    fn the_product_of_mixtures_is_the_binomial_mixture() {
        let (mu, u, times) = (1.3, 0.2_f64, 6u64);
        let mixture = |e: f64| {
            let mut weight = u.powi(times as i32);
            let mut sum = 0.0;
            for k in 1..=times {
                weight *= (1.0 - u) / u * (times - k + 1) as f64 / k as f64;
                sum += weight * gaussian::delta((k as f64).sqrt() * mu, e);
            }
            sum
        };
        for delta in [0.1, 1e-3, 1e-9] {
            let exact = gaussian::bisect(0.0, 100.0, |e| mixture(e) > delta);
            let got = epsilon(|e| (1.0 - u) * gaussian::delta(mu, e), 0.0, mu, times, delta).unwrap();
            assert!((got / exact - 1.0).abs() < 3e-4, "{delta}: {got} {exact}");
        }
    }

    /// f^L lies between the functions that reveal everything with probability l and with
    /// l/(1 − δ_G(0)), and otherwise are G_µ; the products of those are known.
    #[test]
    fn the_product_of_lower_bounds_lies_between_known_products() {
        let (mu, times) = (0.8, 20u64);
        for (l, delta) in [(1e-7, 1e-5), (4e-7, 1e-5), (1e-4, 0.1), (1e-4, 2.1e-3)] {
            let known = |l: f64| {
                let all = -(times as f64 * (-l).ln_1p()).exp_m1();
                let left = (delta - all) / (1.0 - all);
                if left > 0.0 { gaussian::epsilon((times as f64).sqrt() * mu, left) } else { f64::INFINITY }
            };
            let lower = Lower::new(mu, l);
            let got = epsilon(|e| lower.delta(e), l, mu, times, delta).unwrap();
            let (least, most) = (known(l), known(l / (1.0 - gaussian::delta(mu, 0.0))));
            assert!(got > least * (1.0 - 3e-4) && got < most * (1.0 + 3e-4), "{least} {got} {most}");
        }
        assert_eq!(epsilon(|_| 0.5, 1e-3, 1.0, 100, 1e-2), Some(f64::INFINITY));
    }
}
