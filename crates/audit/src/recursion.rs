//! How many right guesses a trade-off function allows in one run (Mahloujifar, Melis and Chaudhuri, "Auditing
//! f-differential privacy in one run", 2024).

use crate::one_run::Guesses;

/// Whether at least `correct` right guesses have a probability below `level` under every mechanism with a
/// symmetric trade-off function f; `inverse(y)` = f(1 − y), rounded down.
///
/// # Guarantee
/// Let p_t be the probability of exactly t right guesses among r of n coins. Flipping coin j turns "j is right,
/// t are" into "j is wrong, t − 1 are" for the same output, so 1 − f bounds the one by the other, given all
/// other coins. Averaging over coins and over j (1 − f is concave), and adding up t ≥ i,
///
/// R_i = Σ_{t ≥ i} (t/n)·p_t ≤ 1 − f(H_{i−1}), H_i = Σ_{t ≥ i} ((r − t)/n)·p_t, so H_{i−1} ≥ f(1 − R_i).
///
/// If P[at least v right] were `level`, the smallest possible total of all p_t follows by going down from v:
/// all of the tail sits at v, and every p_i is as small as H_i ≥ f(1 − R_{i+1}) allows. (Moving probability from
/// i to i − 1 lowers R and raises H for everything below, so it breaks no condition that was slack; hence no
/// other choice needs less.) If that total exceeds 1, the tail was below `level`.
pub fn refuted(guesses: &Guesses, level: f64, inverse: impl Fn(f64) -> f64) -> bool {
    let (n, r) = (guesses.canaries as f64, guesses.guesses as f64);
    let v = guesses.correct.min(guesses.guesses);
    let (mut right, mut wrong) = (level * v as f64 / n, level * (r - v as f64) / n);
    for i in (0..v).rev() {
        let needed = inverse(right.min(1.0)).max(wrong);
        right += i as f64 / (r - i as f64) * (needed - wrong);
        wrong = needed;
        if right + wrong > r / n * (1.0 + 1e-9) {
            return true;
        }
    }
    false
}

/// The probability of at least `correct` right guesses, at most: the largest level that is not refuted.
pub fn p_value(guesses: &Guesses, inverse: impl Fn(f64) -> f64) -> f64 {
    let (mut kept, mut gone) = (0.0, 1.0);
    if !refuted(guesses, gone, &inverse) {
        return 1.0;
    }
    // By shares, down to what no audit can show.
    while gone - kept > 1e-6 * gone && gone > 1e-300 {
        let middle = if kept == 0.0 { 0.1 * gone } else { 0.5 * (kept + gone) };
        if refuted(guesses, middle, &inverse) { gone = middle } else { kept = middle }
    }
    gone
}

#[cfg(test)]
mod tests {
    use dpsgd_privacy::{gaussian, normal};

    use super::*;

    fn gaussian_inverse(mu: f64) -> impl Fn(f64) -> f64 {
        move |y| normal::cdf(normal::quantile(y) - mu)
    }

    /// One coin, one guess: the probability of being right is at most 1 − f(x) with x = 1 − that, exactly.
    #[test]
    fn tight_for_one_coin() {
        let one = Guesses { canaries: 1, guesses: 1, correct: 1 };
        for mu in [0.1f64, 0.7, 2.0] {
            let best = normal::cdf(0.5 * mu);
            let bound = p_value(&one, gaussian_inverse(mu));
            assert!((bound / best - 1.0).abs() < 1e-5, "{mu}: {bound} {best}");
        }
    }

    /// The Gaussian mechanism on every coin by itself, guessed by its sign: the exact law of the right guesses
    /// is binomial, and the bound is never below it. Randomised response likewise.
    #[test]
    fn never_below_the_truth() {
        for n in [1u64, 2, 5, 20, 200] {
            for mu in [0.2f64, 1.0, 2.5] {
                let q = normal::cdf(0.5 * mu);
                for v in 0..=n {
                    let exact = crate::binomial::at_least(v, n, q);
                    let by = Guesses { canaries: n, guesses: n, correct: v };
                    let bound = p_value(&by, gaussian_inverse(mu));
                    assert!(bound >= exact * (1.0 - 1e-5) - 1e-290, "{n} {mu} {v}: {bound} {exact}");
                }
            }
            let epsilon = 1.2f64;
            let q = 1.0 / (1.0 + (-epsilon).exp());
            let inverse = |y: f64| ((-epsilon).exp() * y).max(1.0 - epsilon.exp() * (1.0 - y));
            for v in 0..=n {
                let exact = crate::binomial::at_least(v, n, q);
                let by = Guesses { canaries: n, guesses: n, correct: v };
                assert!(p_value(&by, inverse) >= exact * (1.0 - 1e-5) - 1e-290);
            }
        }
    }

    /// Every law of right guesses that obeys the conditions has a tail that is not refuted, and with the tail
    /// just above the bound there is none: compared with a search over all laws on a grid.
    #[test]
    fn the_smallest_total_is_found() {
        let (r, v, mu) = (3u64, 2u64, 0.8);
        let inverse = gaussian_inverse(mu);
        let by = Guesses { canaries: 4, guesses: r, correct: v };
        let bound = p_value(&by, &inverse);
        let steps = 60;
        let mut best: f64 = 0.0;
        for a in 0..=steps {
            for b in 0..=steps - a {
                for c in 0..=steps - a - b {
                    let law = [steps - a - b - c, c, b, a].map(|k| f64::from(k) / f64::from(steps));
                    let tail = |i: u64, weight: &dyn Fn(f64) -> f64| -> f64 {
                        (i..=r).map(|t| weight(t as f64) / 4.0 * law[t as usize]).sum()
                    };
                    let allowed =
                        (1..=r).all(|i| tail(i - 1, &|t| r as f64 - t) >= inverse(tail(i, &|t| t)) - 1e-12);
                    if allowed {
                        best = best.max(law[2] + law[3]);
                    }
                }
            }
        }
        assert!(best <= bound && best > bound - 0.04, "{best} {bound}");
    }

    /// How much more it proves than the smallest bound over (ε, δ) pairs; see docs/results/audit.md.
    #[test]
    fn it_proves_more_than_pairs() {
        let pairs = |by: &Guesses, mu: f64| {
            let bound = |i: u32| {
                let epsilon = 0.05 * f64::from(i) * (mu + mu * mu).max(0.02);
                by.p_value(epsilon, gaussian::delta(mu, epsilon))
            };
            (0..=120).map(bound).fold(1.0, f64::min)
        };
        println!("true µ | guesses of 4000 | right | µ by pairs | µ by the recursion");
        for mu in [0.5f64, 1.0, 2.0, 4.0] {
            for share in [1.0, 0.1] {
                let guesses = (4000.0 * share) as u64;
                // About what the best scores give: the expected share of right guesses among the extreme ones.
                let right = expected_right(mu, share);
                let by = Guesses { canaries: 4000, guesses, correct: (right * guesses as f64) as u64 };
                let level = 0.05;
                let largest = |refuted: &dyn Fn(f64) -> bool| {
                    let (mut yes, mut no) = (0.0, 20.0);
                    while no - yes > 1e-3 {
                        let middle = 0.5 * (yes + no);
                        if refuted(middle) { yes = middle } else { no = middle }
                    }
                    yes
                };
                let old = largest(&|mu| pairs(&by, mu) <= level);
                let new = largest(&|mu| refuted(&by, level, gaussian_inverse(mu)));
                println!("{mu} | {guesses} | {} | {old:.3} | {new:.3}", by.correct);
                assert!(new > old && new < mu, "{mu} {share}: {old} {new}");
            }
        }
    }

    /// Of ±µ/2 + noise, the share of signs that are right among the most extreme `share`.
    fn expected_right(mu: f64, share: f64) -> f64 {
        let tail = |t: f64| (normal::cdf(-t + 0.5 * mu), normal::cdf(-t - 0.5 * mu));
        let (mut low, mut high) = (0.0, 20.0);
        while high - low > 1e-9 {
            let t = 0.5 * (low + high);
            let (right, wrong) = tail(t);
            if right + wrong > share { low = t } else { high = t }
        }
        let (right, wrong) = tail(low);
        right / (right + wrong)
    }
}
