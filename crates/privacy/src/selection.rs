//! Choosing the best of a random number of runs, privately: Papernot and Steinke, "Hyperparameter Tuning with
//! Rényi Differential Privacy" (ICLR 2022).
//!
//! Draw K from a public law. K times, draw the settings of a run from a public list, train, and measure a
//! score. Release the run with the best score and nothing else: not the others, not their number. Its cost is
//! little more than that of one run, whatever K was, because nobody knows K: a run that was lucky may have
//! been the only one.
//!
//! Q denotes one try: the draw of the settings, the whole transcript of the run, its score.
//!
//! | law of K | theorem | τ′, where the chosen run is (λ, τ′)-RDP |
//! |---|---|---|
//! | negative binomial (η, γ) | 2 | τ(λ) + (1+η)(1−1/λ̂)τ(λ̂) + (1+η) ln(1/γ)/λ̂ + ln E\[K\]/(λ−1) |
//! | Poisson (m) | 6 | τ(λ) + m·δ̂ + ln m/(λ−1), if Q is (ε̂, δ̂)-DP with e^ε̂ ≤ 1 + 1/(λ−1) |
//!
//! where Q is (λ, τ(λ))-RDP, the negative binomial is truncated to K ≥ 1, and λ̂ ≥ 1 is free.
//! dp_accounting's `RepeatAndSelectDpEvent` states both theorems in the same form. Then (ε, δ)-DP follows with
//! ε = τ′ + ln(1−1/λ) − ln(δλ)/(λ−1) (Canonne, Kamath and Steinke 2020, Proposition 12), at the best λ.

use crate::adversary::{self, Adversary};
use crate::conversions::Renyi;
use crate::curve::Curve;
use crate::error::{PrivacyError, require};
use crate::mechanism::Mechanism;

/// The law of K, the number of tries: a public choice, made before the data are looked at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tries {
    /// P(K = k) ∝ (1−γ)^k Π_{ℓ<k} (ℓ+η)/(ℓ+1) for k ≥ 1. η = 1 is geometric; η = 0 is logarithmic, where
    /// P(K = k) ∝ (1−γ)^k/k.
    NegativeBinomial {
        /// η, from 0 on: how K clusters about its mean.
        eta: f64,
        /// γ, between 0 and 1.
        gamma: f64,
    },
    /// K = 0 has probability e^{−mean}: then there is nothing to release.
    Poisson {
        /// The mean.
        mean: f64,
    },
}

/// How far the law of [`Tries::draw`] may be from the one it stands for, in total variation.
const DRAWN_WITHIN: f64 = 1e-12;

/// The smallest and largest mean number of tries.
const MEANS: std::ops::RangeInclusive<f64> = 1.01..=1e6;

impl Tries {
    /// The negative binomial law of this η ≥ 0 whose mean is `mean`.
    pub fn negative_binomial(eta: f64, mean: f64) -> Result<Self, PrivacyError> {
        require((0.0..=100.0).contains(&eta), "eta", eta, "from 0 to 100")?;
        require(MEANS.contains(&mean), "tries", mean, "from 1.01 to 1000000")?;
        // E[K] falls in γ, from ∞ to 1.
        let (mut low, mut high) = (-60.0_f64, -1e-9_f64);
        for _ in 0..200 {
            let middle = 0.5 * (low + high);
            let law = Tries::NegativeBinomial { eta, gamma: middle.exp() };
            if law.mean() > mean { low = middle } else { high = middle }
        }
        Ok(Tries::NegativeBinomial { eta, gamma: high.exp() })
    }

    /// The Poisson law with this mean.
    pub fn poisson(mean: f64) -> Result<Self, PrivacyError> {
        require(MEANS.contains(&mean), "tries", mean, "from 1.01 to 1000000")?;
        Ok(Tries::Poisson { mean })
    }

    /// E\[K\].
    pub fn mean(&self) -> f64 {
        match *self {
            Tries::Poisson { mean } => mean,
            // η(1−γ)/(γ(1−γ^η)), and its limit for η → 0.
            Tries::NegativeBinomial { eta, gamma } => {
                let log = -gamma.ln();
                let quotient = if eta == 0.0 { 1.0 / log } else { eta / -(-eta * log).exp_m1() };
                quotient * (-gamma.ln()).exp_m1()
            }
        }
    }

    /// P(K = k) for k = 0, 1, …, one after the other.
    pub fn probabilities(&self) -> impl Iterator<Item = f64> + use<> {
        let law = *self;
        let first = match law {
            Tries::Poisson { mean } => (-mean).exp(),
            Tries::NegativeBinomial { .. } => 0.0,
        };
        std::iter::successors(Some((0_u64, first)), move |(k, p)| {
            let n = *k as f64;
            let next = match law {
                Tries::Poisson { mean } => p * mean / (n + 1.0),
                Tries::NegativeBinomial { eta: 0.0, gamma } if *k == 0 => (1.0 - gamma) / -gamma.ln(),
                Tries::NegativeBinomial { eta, gamma } if *k == 0 => {
                    (1.0 - gamma) * eta / (-eta * gamma.ln()).exp_m1()
                }
                Tries::NegativeBinomial { eta, gamma } => p * (1.0 - gamma) * (n + eta) / (n + 1.0),
            };
            Some((k + 1, next))
        })
        .map(|(_, p)| p)
    }

    /// K, from a uniform number between 0 and 1.
    ///
    /// # Guarantee
    /// K has the law up to the rounding of `f64`: its distribution is within 10⁻¹² of the exact one, which
    /// adds at most that to δ. A mean above 700 of a Poisson law is refused by [`Selection::of`], because
    /// e^{−mean} would be 0.
    pub fn draw(&self, uniform: f64) -> u64 {
        let mut left = uniform;
        for (k, p) in self.probabilities().enumerate() {
            left -= p;
            // The rest of the law is below the resolution of the uniform number.
            let exhausted = p < 1e-18 && k as f64 > self.mean();
            if left < 0.0 || exhausted {
                return k as u64;
            }
        }
        0
    }
}

/// The guarantee of the best of K tries.
pub struct Selection {
    tries: Tries,
    /// Every kind of run that a try may be.
    runs: Vec<(Renyi, Box<dyn Curve>)>,
    /// (λ, τ(λ)) of one try.
    orders: Vec<(f64, f64)>,
}

impl Selection {
    /// The best of K tries, each of which is one of `runs` with a probability that does not depend on the
    /// data.
    pub fn of(runs: &[Mechanism], adversary: Adversary, tries: Tries) -> Result<Self, PrivacyError> {
        let unsupported = |why: &str| PrivacyError::Unsupported {
            what: "private selection".to_string(),
            why: why.to_string(),
        };
        let Some(first) = runs.first() else { return Err(unsupported("there is no run to select from")) };
        let relation = |run: &Mechanism| (run.neighbours(), run.differing());
        if runs.iter().any(|run| relation(run) != relation(first)) {
            return Err(unsupported("all runs must have the same neighbours and differing samples"));
        }
        if matches!(tries, Tries::Poisson { mean } if mean > 700.0) {
            return Err(unsupported("a Poisson number of tries has a mean of at most 700"));
        }
        // Runs that differ in what does not matter to privacy are accounted for once.
        let mut different: Vec<&Mechanism> = Vec::new();
        for run in runs {
            if !different.contains(&run) {
                different.push(run);
            }
        }
        let runs = different
            .iter()
            .map(|run| Ok((Renyi::of(run, adversary)?, adversary::curve(run, adversary)?)))
            .collect::<Result<Vec<_>, PrivacyError>>()?;
        let mut selection = Self { tries, runs, orders: Vec::new() };
        // λ − 1 from 0.02 to 1000 in steps of a fifth; an order that cannot be computed is left out, which
        // only makes the best one worse.
        let excess = std::iter::successors(Some(0.02), |x| Some(x * 1.2)).take_while(|x| *x < 1000.0);
        for order in excess.map(|x| 1.0 + x) {
            if let Ok(tau) = selection.one_try(order)
                && tau.is_finite()
            {
                selection.orders.push((order, tau));
            }
        }
        Ok(selection)
    }

    /// τ of a single try: the worst of its kinds, since the draw of the settings is part of the output and
    /// has the same law for neighbours.
    fn one_try(&self, order: f64) -> Result<f64, PrivacyError> {
        let mut worst = 0.0_f64;
        for (renyi, _) in &self.runs {
            worst = worst.max(renyi.divergence(order)?.upper);
        }
        Ok(worst)
    }

    /// δ̂ of a single try at ε̂.
    fn one_delta(&self, epsilon: f64) -> Result<f64, PrivacyError> {
        let mut worst = 0.0_f64;
        for (_, curve) in &self.runs {
            worst = worst.max(curve.delta(epsilon)?.upper);
        }
        Ok(worst)
    }

    /// τ′ of the chosen run at one of the orders, (λ, τ(λ)).
    fn chosen(&self, (order, tau): (f64, f64)) -> Result<f64, PrivacyError> {
        let counted = self.tries.mean().ln() / (order - 1.0);
        Ok(match self.tries {
            Tries::NegativeBinomial { eta, gamma } => {
                let log = -gamma.ln();
                let at = |(other, tau): &(f64, f64)| (1.0 - 1.0 / other) * tau + log / other;
                let best = self.orders.iter().map(at).fold(f64::INFINITY, f64::min);
                // λ̂ = 1 costs ln(1/γ) alone.
                tau + (1.0 + eta) * best.min(log) + counted
            }
            Tries::Poisson { mean } => {
                // A little below what is allowed, where δ̂ is larger: rounding cannot make it too small.
                let epsilon = (1.0 / (order - 1.0)).ln_1p() * (1.0 - 1e-12);
                tau + mean * self.one_delta(epsilon)? + counted
            }
        })
    }

    /// ε at δ of what is released: the run with the best score.
    ///
    /// # Guarantee
    /// Releasing the best of K tries is (ε, δ)-DP against the adversary, if K and the settings of each try
    /// are drawn as declared, the score is a function of the try (measured on public samples, or with noise
    /// that the mechanism counts), ties are broken without the data, and neither the other tries nor K are
    /// released.
    pub fn epsilon(&self, delta: f64) -> Result<f64, PrivacyError> {
        require(delta > 0.0 && delta < 1.0, "delta", delta, "between 0 and 1")?;
        // A K that is drawn a little wrong moves both laws by as much, and δ by (1 + e^ε) times that.
        for share in [0.999, 0.99, 0.9, 0.5] {
            let epsilon = self.epsilon_of_exact_tries(share * delta)?;
            if (1.0 + epsilon.exp()) * DRAWN_WITHIN <= (1.0 - share) * delta {
                return Ok(epsilon);
            }
        }
        Err(PrivacyError::NotCertified {
            what: "ε of the selection",
            why: format!("δ = {delta:e} is too small for the precision with which the tries are drawn"),
        })
    }

    /// [`epsilon`](Self::epsilon), if K had exactly its law.
    fn epsilon_of_exact_tries(&self, delta: f64) -> Result<f64, PrivacyError> {
        let mut best = f64::INFINITY;
        for &(order, tau) in &self.orders {
            let floor = tau + (1.0 - 1.0 / order).ln() - (delta * order).ln() / (order - 1.0);
            // The selection only adds to it.
            if floor < best {
                best = best.min(floor - tau + self.chosen((order, tau))?);
            }
        }
        if best.is_finite() {
            return Ok(best.max(0.0));
        }
        Err(PrivacyError::NotCertified { what: "ε of the selection", why: "no order is finite".to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanism::{Length, NoiseScale, PhaseConfig, RunConfig, Sampling};

    fn laws() -> Vec<Tries> {
        let mut laws = vec![Tries::poisson(3.0).unwrap(), Tries::poisson(40.0).unwrap()];
        for eta in [0.0, 0.5, 1.0, 3.0] {
            laws.extend([1.5, 10.0, 60.0].map(|mean| Tries::negative_binomial(eta, mean).unwrap()));
        }
        laws
    }

    /// The sums of the series, term by term.
    #[test]
    fn the_laws_sum_to_one_and_have_their_means() {
        for law in laws() {
            let terms: Vec<f64> = law.probabilities().take(20_000).collect();
            let sum: f64 = terms.iter().sum();
            let mean: f64 = terms.iter().enumerate().map(|(k, p)| k as f64 * p).sum();
            assert!((sum - 1.0).abs() < 1e-9, "{law:?} {sum}");
            assert!((mean / law.mean() - 1.0).abs() < 1e-7, "{law:?} {mean}");
        }
        // η = 1 is geometric.
        let Tries::NegativeBinomial { gamma, .. } = Tries::negative_binomial(1.0, 8.0).unwrap() else {
            panic!()
        };
        assert!((gamma - 0.125).abs() < 1e-9);
        let first: Vec<f64> = Tries::negative_binomial(1.0, 8.0).unwrap().probabilities().take(4).collect();
        for (k, p) in first.iter().enumerate().skip(1) {
            assert!((p - 0.125 * 0.875_f64.powi(k as i32 - 1)).abs() < 1e-9);
        }
    }

    /// Quantiles: the smallest k whose distribution function is above the uniform number.
    #[test]
    fn k_is_drawn_by_its_law() {
        for law in laws() {
            let mut sum = 0.0;
            for (k, p) in law.probabilities().enumerate().take(50) {
                if p > 1e-6 {
                    assert_eq!(law.draw(sum + 0.5 * p), k as u64, "{law:?}");
                }
                sum += p;
            }
            assert!(law.draw(1.0 - f64::EPSILON) < 100_000);
        }
    }

    /// One Gaussian release of parameter µ; golden values for it are in `tests/selection.rs`.
    fn gaussian_run(mu: f64) -> Mechanism {
        RunConfig::single(PhaseConfig {
            sampling: Sampling::Subsample { samples: 1, groups: 1, group_size: 1 },
            length: Length::Rounds(1),
            noise: NoiseScale::Sigma(1.0 / mu),
            filtered: false,
        })
        .check()
        .unwrap()
    }

    #[test]
    fn more_tries_cost_more_and_one_try_costs_least() {
        let run = gaussian_run(0.5);
        let alone = adversary::curve(&run, Adversary::A1).unwrap().epsilon(1e-5).unwrap().upper;
        for eta in [0.0, 1.0] {
            let mut before = alone;
            for mean in [2.0, 10.0, 100.0] {
                let law = Tries::negative_binomial(eta, mean).unwrap();
                let cost = Selection::of(std::slice::from_ref(&run), Adversary::A1, law)
                    .unwrap()
                    .epsilon(1e-5)
                    .unwrap();
                assert!(cost > before, "η = {eta}, mean {mean}: {cost} after {before}");
                before = cost;
            }
        }
    }

    #[test]
    fn a_list_of_runs_costs_as_much_as_its_worst() {
        let (mild, harsh) = (gaussian_run(0.3), gaussian_run(0.6));
        let law = Tries::negative_binomial(1.0, 5.0).unwrap();
        let cost =
            |runs: &[Mechanism]| Selection::of(runs, Adversary::A1, law).unwrap().epsilon(1e-5).unwrap();
        let worst = cost(std::slice::from_ref(&harsh));
        assert_eq!(cost(&[mild.clone(), harsh.clone(), mild.clone()]), worst);
        assert!(cost(&[mild]) < worst);
        assert!(Selection::of(&[], Adversary::A1, law).is_err());
    }

    #[test]
    fn what_no_theorem_covers_is_refused() {
        assert!(Tries::negative_binomial(-0.5, 3.0).is_err());
        assert!(Tries::negative_binomial(f64::NAN, 3.0).is_err());
        assert!(Tries::poisson(0.5).is_err());
        let law = Tries::Poisson { mean: 800.0 };
        assert!(Selection::of(&[gaussian_run(0.5)], Adversary::A1, law).is_err());
        let law = Tries::poisson(3.0).unwrap();
        assert!(Selection::of(&[gaussian_run(0.5)], Adversary::A1, law).unwrap().epsilon(0.0).is_err());
    }
}
