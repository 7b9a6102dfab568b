//! What one training run with many canaries proves about its privacy (Steinke, Nasr and Jagielski, "Privacy
//! auditing with one (1) training run", 2023, and [`recursion`]), for (ε, δ) and for
//! trade-off functions.
//!
//! Every canary takes one of two forms, by a fair coin of its own: S_i = ±1. Which of the two is a
//! substitution of one sample. The auditor sees what the run released and guesses some of the S_i. A private
//! run does not let it guess well.

use dpsgd_privacy::normal;

use crate::{binomial, recursion};

/// The outcome of an audit: of `canaries` coins, `guesses` were guessed and `correct` of them rightly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guesses {
    /// n, the canaries.
    pub canaries: u64,
    /// r, those that were guessed; about the others the auditor said nothing.
    pub guesses: u64,
    /// v, the right guesses.
    pub correct: u64,
}

impl Guesses {
    /// The probability of at least this many right guesses if the run is (ε, δ)-private, at most.
    ///
    /// # Guarantee
    /// Theorem 5.2 of the paper above: with q = e^ε/(1 + e^ε) and W ~ Binomial(r, q) it is at most P[W ≥ v] +
    /// 2nδ·max_{i ≥ 1} P[v > W ≥ v − i]/i. The theorem speaks of coins that decide between two data sets,
    /// each pair of them neighbours; here they are neighbours by substitution.
    pub fn p_value(&self, epsilon: f64, delta: f64) -> f64 {
        let Self { canaries, guesses, correct } = *self;
        let q = 1.0 / (1.0 + (-epsilon).exp());
        let v = correct.min(guesses);
        let beta = binomial::at_least(v, guesses, q);
        let (mut alpha, mut below) = (0.0f64, 0.0);
        for i in 1..=v {
            // Below the most likely count the terms fall: one that is far below an average raises none any
            // more.
            let term = binomial::probability(v - i, guesses, q);
            below += term;
            alpha = alpha.max(below / i as f64);
            if term < 1e-3 * alpha && ((v - i) as f64) < q * guesses as f64 {
                break;
            }
        }
        // What rounding can have taken away.
        ((beta + 2.0 * canaries as f64 * delta * alpha) * (1.0 + 1e-9)).min(1.0)
    }

    /// The largest ε for which (ε, δ)-privacy is refuted at this level (1 − confidence); 0 if none is. Two
    /// bounds of one probability are compared with the level, Theorem 5.2 and the recursion: each holds, so the
    /// smaller does.
    pub fn epsilon(&self, delta: f64, level: f64) -> f64 {
        largest(50.0, |epsilon| {
            // f(1 − y) of (ε, δ)-privacy.
            let inverse = |y: f64| {
                let (steep, flat) = (1.0 - delta - epsilon.exp() * (1.0 - y), (-epsilon).exp() * (y - delta));
                steep.max(flat).max(0.0)
            };
            self.p_value(epsilon, delta) <= level || recursion::refuted(self, level, inverse)
        })
    }

    /// The largest µ for which Gaussian privacy is refuted at this level; 0 if none is. See
    /// [`recursion::refuted`].
    pub fn mu(&self, level: f64) -> f64 {
        let refuted = |mu: f64| {
            // f(1 − y) of G_µ; rounding takes some parts in 10¹⁵.
            let inverse = |y: f64| normal::cdf(normal::quantile(y) - mu) * (1.0 - 1e-12);
            recursion::refuted(self, level, inverse)
        };
        largest(20.0, refuted)
    }
}

/// The end of the stretch from 0 on which `refuted` holds, from below.
fn largest(most: f64, refuted: impl Fn(f64) -> bool) -> f64 {
    if !refuted(0.0) {
        return 0.0;
    }
    let (mut yes, mut no) = (0.0, most);
    while no - yes > 1e-4 {
        let middle = 0.5 * (yes + no);
        if refuted(middle) { yes = middle } else { no = middle }
    }
    yes
}

/// The guesses of an auditor who says +1 for the highest scores, −1 for the lowest, as many of each, and
/// nothing about the rest.
pub fn guess(scores: &[f64], coins: &[bool], guesses: usize) -> Guesses {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&a, &b| scores[a].total_cmp(&scores[b]));
    let half = (guesses / 2).min(scores.len() / 2);
    let low = order[..half].iter().filter(|&&i| !coins[i]).count();
    let high = order[order.len() - half..].iter().filter(|&&i| coins[i]).count();
    Guesses { canaries: scores.len() as u64, guesses: 2 * half as u64, correct: (low + high) as u64 }
}

/// The likelihood ratio of a gradient canary's two forms, for an auditor who sees every update and no batch.
///
/// In a round that draws the canary, with probability `rate`, its coordinate of Ū/C is 1 or `other` beside
/// what the other samples add; that is smooth in time and estimated from the rounds around it. The score need
/// not be exact for the bounds to hold, only good.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// How likely a round draws a sample.
    pub rate: f64,
    /// 2σ, the deviation of the noise in units of C.
    pub deviation: f64,
    /// The other form in units of C: −1 if it is substituted, 0 if it is removed.
    pub other: f64,
}

/// The rounds on either side from which the part of the other samples is estimated.
const AROUND: usize = 10;

impl Ratio {
    /// Σ over rounds of ln(P(x | form 1)/P(x | form 2)).
    pub fn score(&self, rounds: &[f32]) -> f64 {
        let mut sums = vec![0.0];
        sums.extend(rounds.iter().scan(0.0, |sum, x| {
            *sum += f64::from(*x);
            Some(*sum)
        }));
        let term = |x: f64, at: f64| {
            let exponent = (x * at - 0.5 * at * at) / (self.deviation * self.deviation);
            // ln(1 − q + q·e^exponent), without overflow.
            let (q, top) = (self.rate.min(1.0), exponent.max(0.0));
            top + ((1.0 - q) * (-top).exp() + q * (exponent - top).exp()).ln()
        };
        let each = |(i, x): (usize, &f32)| {
            let (low, high) = (i.saturating_sub(AROUND), (i + AROUND + 1).min(rounds.len()));
            let others = (high - low - 1).max(1) as f64;
            let x = f64::from(*x);
            let y = x - (sums[high] - sums[low] - x) / others;
            term(y, 1.0) - term(y, self.other)
        };
        rounds.iter().enumerate().map(each).sum()
    }
}

/// What an audit proves, the best over several numbers of guesses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Proved {
    /// ε at least, at the δ asked for.
    pub epsilon: f64,
    /// µ at least.
    pub mu: f64,
    /// The guesses that prove ε.
    pub by: Guesses,
}

/// The shares of the canaries about which the auditor says something; each has its part of the level.
pub const SHARES: [f64; 5] = [1.0, 0.5, 0.25, 0.1, 0.04];

/// What scores prove with probability `confidence`.
///
/// # Guarantee
/// If the run is (ε, δ)-private, or G_µ-private, for the substitution between a canary's two forms, the
/// stated ε and µ are above the true ones with probability at most 1 − confidence: every share of [`SHARES`]
/// is tested at a fifth of it, for ε and for µ at a half of that.
pub fn prove(scores: &[f64], coins: &[bool], delta: f64, confidence: f64) -> Proved {
    let level = (1.0 - confidence) / SHARES.len() as f64 / 2.0;
    let mut best: Option<Proved> = None;
    let mut mu: f64 = 0.0;
    for share in SHARES {
        let by = guess(scores, coins, (share * scores.len() as f64) as usize);
        let epsilon = by.epsilon(delta, level);
        mu = mu.max(by.mu(level));
        if best.is_none_or(|best| epsilon > best.epsilon) {
            best = Some(Proved { epsilon, mu, by });
        }
    }
    let none = Guesses { canaries: scores.len() as u64, guesses: 0, correct: 0 };
    Proved { mu, ..best.unwrap_or(Proved { epsilon: 0.0, mu, by: none }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dpsgd_privacy::gaussian;
    use dpsgd_train::{Purpose, Randomness, noise};

    /// The values of the program in the paper's appendix, with SciPy's binomial law.
    #[test]
    fn the_p_values_are_those_of_the_paper() {
        for (canaries, guesses, correct, epsilon, delta, expected) in P_VALUES {
            let found = Guesses { canaries, guesses, correct }.p_value(epsilon, delta);
            assert!((found / expected - 1.0).abs() < 1e-7, "{found} {expected}");
        }
    }

    /// Randomised response is the mechanism the bound is tight for: for δ = 0 the probability is the bound.
    #[test]
    fn tight_for_randomised_response() {
        let (r, epsilon) = (10u64, 1.2f64);
        let q = epsilon.exp() / (1.0 + epsilon.exp());
        for v in 0..=r {
            // Every one of the 2^10 patterns of truth and lie.
            let exact: f64 = (0u32..1 << r)
                .filter(|pattern| u64::from(pattern.count_ones()) >= v)
                .map(|pattern| {
                    q.powi(pattern.count_ones() as i32)
                        * (1.0 - q).powi((r as u32 - pattern.count_ones()) as i32)
                })
                .sum();
            let bound = Guesses { canaries: 100, guesses: r, correct: v }.p_value(epsilon, 0.0);
            assert!((bound / exact - 1.0).abs() < 1e-8, "{v}: {bound} {exact}");
        }
    }

    /// A Gaussian mechanism on every canary by itself, which is G_µ-private for each: what is proved stays
    /// below the truth. Twelve audits with a confidence of 0.9999: false-alarm rate 1.2e-3 by the theorem,
    /// with a fixed seed. And where it is neither tiny nor so large that every guess is right, they prove at
    /// least a quarter of µ. (More confidence proves nothing at this δ: the theorem's bound is never below
    /// 2nδ/v.)
    #[test]
    fn never_above_the_truth_and_not_far_below() {
        let randomness = Randomness::from_seed(31, 0);
        let n = 4000;
        for (round, mu) in [0.3, 1.0, 2.0, 4.0].into_iter().cycle().take(12).enumerate() {
            let mut stream = randomness.stream(Purpose::Splitting, round as u64);
            let coins: Vec<bool> = (0..n).map(|_| stream.below(2) == 1).collect();
            let mut noise = vec![0.0f32; n];
            noise::standard_normals(&mut randomness.stream(Purpose::Noise, round as u64), &mut noise);
            let scores: Vec<f64> = coins
                .iter()
                .zip(&noise)
                .map(|(coin, z)| f64::from(*z) + if *coin { 0.5 * mu } else { -0.5 * mu })
                .collect();
            let delta = 1e-7;
            let found = prove(&scores, &coins, delta, 0.9999);
            assert!(found.epsilon <= gaussian::epsilon(mu, delta) && found.mu <= mu, "{mu}: {found:?}");
            assert!(
                !(0.5..3.0).contains(&mu) || (found.mu > 0.25 * mu && found.epsilon > 0.5 * mu),
                "{mu}: {found:?}"
            );
        }
    }

    #[test]
    fn the_ratio_is_that_of_the_densities() {
        let ratio = Ratio { rate: 0.1, deviation: 0.8, other: -1.0 };
        // No rounds around it: what the others add is taken to be 0.
        let density = |x: f64, mean: f64| (-0.5 * ((x - mean) / 0.8).powi(2)).exp();
        for x in [-3.0f32, -0.2, 0.0, 0.7, 2.5, 200.0] {
            let y = f64::from(x);
            let of = |form: f64| 0.9 * density(y, 0.0) + 0.1 * density(y, form);
            let found = ratio.score(&[x]);
            let exact = if x > 100.0 { found } else { (of(1.0) / of(-1.0)).ln() };
            assert!(found.is_finite() && (found - exact).abs() < 1e-9, "{x}: {found} {exact}");
        }
        // A constant that others add does not matter.
        let rounds: Vec<f32> = (0..50).map(|i| if i == 20 { 1.0 } else { 0.0 }).collect();
        let shifted: Vec<f32> = rounds.iter().map(|x| x + 7.0).collect();
        assert!((ratio.score(&rounds) - ratio.score(&shifted)).abs() < 1e-4 && ratio.score(&rounds) > 0.03);
    }

    #[test]
    fn nothing_is_proved_by_chance() {
        let coins: Vec<bool> = (0..1000).map(|i| i % 2 == 0).collect();
        let scores: Vec<f64> = (0..1000).map(|i| f64::from(i * 7919 % 1000)).collect();
        let found = prove(&scores, &coins, 1e-5, 0.95);
        assert!(found.epsilon < 0.3 && found.mu < 0.3, "{found:?}");
        let by = guess(&[3.0, 1.0, 2.0, 0.0], &[true, false, false, true], 2);
        assert_eq!(by, Guesses { canaries: 4, guesses: 2, correct: 1 });
    }

    /// n, r, v, ε, δ and the probability.
    const P_VALUES: [(u64, u64, u64, f64, f64, f64); 7] = [
        (1000, 1000, 600, 0.3, 1e-05, 0.05459831694066796),
        (1000, 100, 95, 1.5, 1e-05, 0.0011119160979557801),
        (1000, 100, 95, 1.5, 0.0, 9.560631879821358e-05),
        (200, 200, 150, 0.5, 0.001, 0.010729701961876231),
        (5000, 500, 300, 0.2, 1e-06, 0.01354037562856255),
        (10, 10, 10, 2.0, 0.01, 0.35710145703306995),
        (100, 40, 40, 3.0, 1e-05, 0.1437730867836111),
    ];
}
