//! What each printed form claims: the ε it promises at a δ.

use crate::curve::epsilon_of;
use crate::gaussian;
use crate::interval::Interval;
use crate::normal;

/// The ε of G_µ at δ.
pub(super) fn gaussian(mu: f64, delta: f64) -> f64 {
    if mu.is_finite() { gaussian::epsilon(mu, delta) } else { f64::INFINITY }
}

/// f^L = max{G_µ(α) − l, G_µ(α + l)} as a privacy profile.
///
/// δ(ε) = sup_α 1 − f^L(α) − e^ε·α. For ε ≥ 0 the supporting line touches the branch G_µ − l, which
/// gives l + δ_{G_µ}(ε), as long as it touches left of the diagonal point β = G_µ(β) − l. There the
/// two branches meet in a corner with slopes −e^κ and −e^{−κ}, so for ε < κ the line turns about
/// the corner and δ(ε) = 1 − β·(1 + e^ε).
pub(super) struct Lower {
    mu: f64,
    l: f64,
    ln_corner: f64,
    kappa: f64,
}

impl Lower {
    pub(super) fn new(mu: f64, l: f64) -> Self {
        if l >= 1.0 || !mu.is_finite() {
            return Self { mu, l: 1.0, ln_corner: f64::NEG_INFINITY, kappa: f64::INFINITY };
        }
        // β = Φ(−x) with Φ(x − µ) − l = Φ(−x), rising in x; at µ/2 the left side is too small.
        let low = 0.5 * mu;
        let x = gaussian::bisect(low, mu + 40.0, |x| normal::cdf(x - mu) - l < normal::cdf(-x));
        // |G_µ'| at Φ(−x) is e^{µx − µ²/2}.
        Self { mu, l, ln_corner: normal::ln_cdf(-x), kappa: mu * (x - low) }
    }

    pub(super) fn delta(&self, epsilon: f64) -> f64 {
        if epsilon >= self.kappa {
            self.l + gaussian::delta(self.mu, epsilon)
        } else {
            1.0 - self.ln_corner.exp() - (epsilon + self.ln_corner).exp()
        }
    }

    pub(super) fn epsilon(&self, delta: f64) -> f64 {
        if delta <= self.l {
            f64::INFINITY
        } else if delta >= self.delta(self.kappa) {
            ((1.0 - delta - self.ln_corner.exp()).ln() - self.ln_corner).max(0.0)
        } else {
            gaussian(self.mu, delta - self.l)
        }
    }
}

/// f^U as a privacy profile: for ε ≥ 0 the supporting line touches u + (1−u)·G_µ(α), so
/// δ(ε) = (1−u)·sup_α (1 − G_µ(α) − e^ε/(1−u)·α) = (1−u)·δ_{G_µ}(ε − ln(1−u)).
pub(super) struct Upper {
    pub(super) mu: f64,
    pub(super) u: f64,
}

impl Upper {
    pub(super) fn delta(&self, epsilon: f64) -> f64 {
        if self.u >= 1.0 {
            return 0.0;
        }
        (1.0 - self.u) * gaussian::delta(self.mu, epsilon - (-self.u).ln_1p())
    }

    pub(super) fn epsilon(&self, delta: f64) -> f64 {
        if delta >= 1.0 - self.u {
            return 0.0;
        }
        (gaussian(self.mu, delta / (1.0 - self.u)) + (-self.u).ln_1p()).max(0.0)
    }
}

/// The mixture of G_{√n/σ} over a law of n = c² on `first`, `first` + 1, ….
pub(super) struct Occupancy {
    first: usize,
    mass: Vec<f64>,
}

impl Occupancy {
    /// The law of j that Lemma batchshuf prints, q_j = C(x, j)·C(g−1, j−1)/C(x−1+g, g) with x = N/s. It
    /// treats occupancy vectors as equally likely, but it is the positions that are (docs/theory.md §7).
    pub(super) fn printed(rounds: f64, differing: u64) -> Self {
        let g = differing as f64;
        let mut logarithms = vec![0.0];
        for j in 1..differing {
            let j = j as f64;
            // q_{j+1}/q_j, zero once no rounds are left.
            let ratio = (rounds - j).max(0.0) * (g - j) / ((j + 1.0) * j);
            logarithms.push(logarithms[logarithms.len() - 1] + ratio.ln());
        }
        let largest = logarithms.iter().copied().fold(f64::MIN, f64::max);
        let mut mass: Vec<f64> = logarithms.iter().map(|l| (l - largest).exp()).collect();
        // By Vandermonde's identity C(x−1+g, g) is the sum of the numerators.
        let total: f64 = mass.iter().sum();
        mass.iter_mut().for_each(|q| *q /= total);
        Self { first: 1, mass }
    }

    /// Pr[c² = n].
    #[cfg(test)]
    pub(super) fn probability(&self, n: usize) -> f64 {
        n.checked_sub(self.first).and_then(|i| self.mass.get(i)).copied().unwrap_or(0.0)
    }

    /// The law over `epochs` independent epochs; `None` where it is too wide to list.
    pub(super) fn power(&self, mut epochs: u64) -> Option<Self> {
        let mut result = Self { first: 0, mass: vec![1.0] };
        let mut square = Self { first: self.first, mass: self.mass.clone() };
        loop {
            if epochs & 1 == 1 {
                result = result.convolve(&square)?;
            }
            epochs >>= 1;
            if epochs == 0 {
                return Some(result);
            }
            square = square.convolve(&square)?;
        }
    }

    fn convolve(&self, other: &Self) -> Option<Self> {
        // Below any δ in use; without the cut all g·E values would be kept.
        const DROPPED: f64 = 1e-60;
        // Multiplications; about a second.
        const MOST_OPERATIONS: usize = 1 << 30;
        if self.mass.len().saturating_mul(other.mass.len()) > MOST_OPERATIONS {
            return None;
        }
        let mut mass = vec![0.0; self.mass.len() + other.mass.len() - 1];
        for (i, a) in self.mass.iter().enumerate() {
            for (out, b) in mass[i..].iter_mut().zip(&other.mass) {
                *out += a * b;
            }
        }
        let start = mass.iter().position(|&q| q > DROPPED).unwrap_or(0);
        let end = mass.iter().rposition(|&q| q > DROPPED).map_or(mass.len(), |i| i + 1);
        Some(Self { first: self.first + other.first + start, mass: mass[start..end].to_vec() })
    }

    pub(super) fn epsilon(&self, sigma: f64, delta: f64) -> f64 {
        let profile = |epsilon: f64| {
            let parts = self.mass.iter().enumerate();
            parts
                .map(|(i, q)| q * gaussian::delta(((self.first + i) as f64).sqrt() / sigma, epsilon))
                .sum::<f64>()
        };
        // The closure cannot fail; if no bracket is found, nothing is promised.
        epsilon_of(&|e| Ok(Interval::exact(profile(e))), delta).map_or(f64::INFINITY, |e| e.middle())
    }
}

/// h(σ) = √(2(e^{σ⁻²}Φ(3/(2σ)) + 3Φ(−1/(2σ)) − 2)) of the limit G_{c·h(σ)} (Dong, Roth, Su 2022,
/// Cor. 5.4), which is larger than 1/σ.
///
/// ```
/// assert!((dpsgd_privacy::printed::h(2.0) - 0.627_55).abs() < 5e-6);
/// ```
pub fn h(sigma: f64) -> f64 {
    let x = 1.0 / sigma;
    // Φ(t) = ½ + erf(t/√2)/2 removes the constants; what is left is of order x².
    let half = |t: f64| 0.5 * libm::erf(t * std::f64::consts::FRAC_1_SQRT_2);
    let sum = (x * x).exp_m1() * normal::cdf(1.5 * x) + (half(1.5 * x) - 3.0 * half(0.5 * x));
    (2.0 * sum).max(0.0).sqrt()
}

/// The expansion of h(σ) as the paper prints it, σ⁻¹·√(1 − (5/8)·σ⁻¹/√(2π)) without its O(σ⁻²);
/// the sign is wrong: h(σ) = σ⁻¹·√(1 + √(2/π)·σ⁻¹ + O(σ⁻²)).
pub fn h_expansion(sigma: f64) -> f64 {
    let x = 1.0 / sigma;
    x * (1.0 - 0.625 * x / std::f64::consts::TAU.sqrt()).max(0.0).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds;
    use crate::exposure;
    use crate::mechanism::{Length, NoiseScale, PhaseConfig, RunConfig, Sampling};

    /// sup_α 1 − f(α) − e^ε·α on a grid that is dense near 0 and 1.
    fn conjugate(f: impl Fn(f64) -> f64, epsilon: f64) -> f64 {
        (-8000..=8000)
            .map(|i| normal::cdf(f64::from(i) * 0.001))
            .map(|alpha| 1.0 - f(alpha) - epsilon.exp() * alpha)
            .fold(0.0, f64::max)
    }

    #[test]
    fn the_profile_of_the_lower_bound_is_its_conjugate() {
        for (mu, l) in [(0.3, 1e-3), (1.0, 0.05), (1.0, 0.4), (2.5, 1e-6), (4.0, 0.9), (0.0, 0.2)] {
            let lower = Lower::new(mu, l);
            for epsilon in [0.0, 0.05, 0.3, 1.0, 3.0] {
                let by_grid = conjugate(|a| bounds::f_lower(mu, l, a), epsilon);
                let delta = lower.delta(epsilon);
                // The grid misses the corner by up to its spacing, and only from below.
                let missed = delta - by_grid;
                assert!(missed > -1e-9 && missed < 5e-4, "{mu} {l} {epsilon}: {delta} {by_grid}");
                if delta > l * (1.0 + 1e-9) && epsilon > 0.0 {
                    assert!((lower.epsilon(delta) - epsilon).abs() < 1e-6, "{mu} {l} {epsilon}");
                }
            }
            assert_eq!(lower.epsilon(l), f64::INFINITY);
            // Beyond the corner the claim is the root of δ_G(ε) + l = δ.
            let epsilon = lower.kappa + 0.7;
            let delta = gaussian::delta(mu, epsilon) + l;
            assert!(mu == 0.0 || (lower.epsilon(delta) - epsilon).abs() < 1e-6);
        }
    }

    #[test]
    fn the_profile_of_the_upper_bound_is_its_conjugate() {
        for (mu, u) in [(0.3, 1e-3), (1.0, 0.05), (1.0, 0.6), (2.5, 1e-6), (4.0, 0.9)] {
            let upper = Upper { mu, u };
            for epsilon in [0.0, 0.05, 0.3, 1.0, 3.0] {
                let by_grid = conjugate(|a| bounds::f_upper(mu, u, a), epsilon);
                let delta = upper.delta(epsilon);
                let missed = delta - by_grid;
                assert!(missed > -1e-9 && missed < 2e-6, "{mu} {u} {epsilon}: {delta} {by_grid}");
                if delta > 1e-12 {
                    assert!((upper.epsilon(delta) - epsilon).abs() < 1e-6, "{mu} {u} {epsilon}");
                }
            }
        }
    }

    #[test]
    fn h_is_larger_than_one_over_sigma_and_its_printed_expansion_smaller() {
        assert!((h(2.0) - 0.627_55).abs() < 5e-6, "{}", h(2.0));
        assert!((h(10.0) - 0.104_168).abs() < 5e-7, "{}", h(10.0));
        for sigma in [0.5, 1.0, 2.0, 10.0, 1e3, 1e6] {
            assert!(h(sigma) > 1.0 / sigma && h_expansion(sigma) < 1.0 / sigma, "{sigma}");
        }
        // The first two terms of the true expansion, √(1 + √(2/π)/σ)/σ.
        let sigma = 1e4;
        let expanded = (1.0 + (2.0 / std::f64::consts::PI).sqrt() / sigma).sqrt() / sigma;
        assert!((h(sigma) / expanded - 1.0).abs() < 1e-7);
        assert_eq!(h(1e-3), f64::INFINITY);
    }

    /// C(n, k); all values in these tests fit.
    fn choose(n: u64, k: u64) -> i128 {
        (0..k).fold(1, |c, i| c * i128::from(n.saturating_sub(i)) / i128::from(i + 1))
    }

    /// C(B, j)·Σ_i (−1)^{j−i}·C(j, i)·C(i·s, g)/C(N, g), by inclusion–exclusion.
    fn exact_occupancy(rounds: u64, size: u64, g: u64, j: u64) -> f64 {
        let sign = |i: u64| if (j - i).is_multiple_of(2) { 1 } else { -1 };
        let onto: i128 = (0..=j).map(|i| sign(i) * choose(j, i) * choose(i * size, g)).sum();
        (choose(rounds, j) * onto) as f64 / choose(rounds * size, g) as f64
    }

    /// B = 937, s = 64, g = 4.
    #[test]
    fn the_printed_occupancy_law_puts_too_much_on_few_rounds() {
        let (rounds, size, g) = (937, 64, 4);
        let printed = Occupancy::printed(rounds as f64, g);
        assert!((printed.probability(4) - 0.987_27).abs() < 5e-6, "{}", printed.probability(4));
        assert!((exact_occupancy(rounds, size, g, 4) - 0.993_71).abs() < 5e-6);
        let mut run = RunConfig::single(PhaseConfig {
            sampling: Sampling::Shuffle { samples: rounds * size, groups: 1, group_size: size },
            length: Length::Epochs(1),
            noise: NoiseScale::Sigma(2.0),
            filtered: false,
        });
        run.differing = g;
        let mechanism = run.check().unwrap();
        let law = exposure::law_of_phase(&mechanism, &mechanism.phases()[0]).unwrap();
        for j in 1..=g {
            let exact = exact_occupancy(rounds, size, g, j);
            assert!((law.probability(j) / exact - 1.0).abs() < 1e-12, "{j}");
            if j < g {
                assert!(printed.probability(j as usize) > exact, "{j}");
            }
        }
    }

    #[test]
    fn the_printed_occupancy_law_is_the_printed_formula() {
        let (rounds, g) = (12u64, 5u64);
        let printed = Occupancy::printed(rounds as f64, g);
        for j in 1..=g {
            let q = (choose(rounds, j) * choose(g - 1, j - 1)) as f64 / choose(rounds - 1 + g, g) as f64;
            assert!((printed.probability(j as usize) - q).abs() < 1e-14);
        }
        let twice = printed.power(2).unwrap();
        let by_hand: f64 = (1..=5).map(|j| printed.probability(j) * printed.probability(6 - j)).sum();
        assert!((twice.probability(6) - by_hand).abs() < 1e-15);
    }
}
