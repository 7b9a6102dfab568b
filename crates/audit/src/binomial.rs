//! Exact binomial tails, and the confidence limits of Clopper and Pearson (Biometrika 26, 1934) made of them.
//!
//! Probabilities of single counts come from Loader's saddle-point form ("Fast and accurate computation of
//! binomial probabilities", 2000), in which nothing large cancels, and tails are sums of positive terms from
//! there outwards; so a tail keeps a relative error far below 1e-9 however small it is.

use std::f64::consts::PI;

/// ln n! − ln(√(2πn)·(n/e)ⁿ).
fn stirling_error(n: f64) -> f64 {
    if n < 16.0 {
        return libm::lgamma(n + 1.0) - (n + 0.5) * n.max(f64::MIN_POSITIVE).ln() + n - 0.5 * (2.0 * PI).ln();
    }
    let square = n * n;
    (1.0 / 12.0 - (1.0 / 360.0 - (1.0 / 1260.0 - (1.0 / 1680.0) / square) / square) / square) / n
}

/// x·ln(x/m) + m − x, without cancellation where x is near m.
fn deviance(x: f64, m: f64) -> f64 {
    let v = (x - m) / (x + m);
    if v.abs() >= 0.1 {
        return x * (x / m).ln() + m - x;
    }
    let mut sum = (x - m) * v;
    let mut term = 2.0 * x * v;
    for j in 1..1000 {
        term *= v * v;
        let next = sum + term / f64::from(2 * j + 1);
        if next == sum {
            break;
        }
        sum = next;
    }
    sum
}

/// Pr[Binomial(n, p) = k] for k ≤ n.
pub fn probability(k: u64, n: u64, p: f64) -> f64 {
    let (x, all, q) = (k as f64, n as f64, 1.0 - p);
    if p <= 0.0 || p >= 1.0 {
        return f64::from(u8::from(if p <= 0.0 { k == 0 } else { k == n }));
    }
    if k == 0 {
        return (all * (-p).ln_1p()).exp();
    }
    if k == n {
        return (all * p.ln()).exp();
    }
    let rest = (n - k) as f64;
    let exponent = stirling_error(all)
        - stirling_error(x)
        - stirling_error(rest)
        - deviance(x, all * p)
        - deviance(rest, all * q);
    exponent.exp() * (all / (2.0 * PI * x * rest)).sqrt()
}

/// Pr[Binomial(n, p) ≥ k].
pub fn at_least(k: u64, n: u64, p: f64) -> f64 {
    match k {
        0 => 1.0,
        k if k > n => 0.0,
        // On this side of the mean the terms fall; on the other they are summed from the other end.
        k if (k as f64) > n as f64 * p => outwards(k, n, p),
        k => (1.0 - outwards(n - k + 1, n, 1.0 - p)).max(0.0),
    }
}

/// Pr[Binomial(n, p) ≤ k].
pub fn at_most(k: u64, n: u64, p: f64) -> f64 {
    if k >= n { 1.0 } else { at_least(n - k, n, 1.0 - p) }
}

/// Σ_{j ≥ k} of the probabilities, which fall from k on.
fn outwards(k: u64, n: u64, p: f64) -> f64 {
    if k > n {
        return 0.0;
    }
    let odds = p / (1.0 - p);
    let (mut term, mut sum) = (1.0, 1.0);
    for j in k..n {
        term *= (n - j) as f64 / (j + 1) as f64 * odds;
        sum += term;
        if term < 1e-17 * sum {
            break;
        }
    }
    (probability(k, n, p) * sum).min(1.0)
}

/// The smallest p⁺ that is above the true probability except with a chance of at most `level`, when k of n
/// independent trials succeeded.
///
/// # Guarantee
/// Pr[p > p⁺(k)] ≤ `level` whatever p is (Clopper and Pearson): p⁺ solves Pr[Binomial(n, p⁺) ≤ k] = `level`,
/// and the end of the bisection on the safe side is returned.
pub fn upper_limit(k: u64, n: u64, level: f64) -> f64 {
    if k >= n {
        return 1.0;
    }
    // What rounding could have added is given away.
    let level = level * (1.0 - 1e-6);
    let (mut low, mut high) = (k as f64 / n as f64, 1.0);
    for _ in 0..100 {
        let middle = 0.5 * (low + high);
        if at_most(k, n, middle) > level {
            low = middle
        } else {
            high = middle
        }
        if high - low <= 1e-14 * high {
            break;
        }
    }
    high
}

/// The other end: the largest p⁻ that is below the true probability except with a chance of at most `level`.
pub fn lower_limit(k: u64, n: u64, level: f64) -> f64 {
    if k == 0 {
        return 0.0;
    }
    let level = level * (1.0 - 1e-6);
    let (mut low, mut high) = (0.0, k as f64 / n as f64);
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        if at_least(k, n, middle) < level {
            low = middle
        } else {
            high = middle
        }
        if high - low <= 1e-14 * high {
            break;
        }
    }
    low
}

/// The chance of a count at least as far out as k on its side, doubled: at most 2·p-value of the exact test.
pub fn two_sided(k: u64, n: u64, p: f64) -> f64 {
    (2.0 * at_least(k, n, p).min(at_most(k, n, p))).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All probabilities by the recurrence from k = 0, in small steps that cannot underflow for these n.
    fn slow(n: u64, p: f64) -> Vec<f64> {
        let mut row = vec![1.0];
        for _ in 0..n {
            let mut next = vec![0.0; row.len() + 1];
            for (k, x) in row.iter().enumerate() {
                next[k] += x * (1.0 - p);
                next[k + 1] += x * p;
            }
            row = next;
        }
        row
    }

    #[test]
    fn tails_are_direct_sums() {
        for n in [1, 2, 7, 31, 200] {
            for p in [1e-6, 0.01, 0.25, 0.5, 0.73, 0.999] {
                let row = slow(n, p);
                for k in 0..=n {
                    let (above, below): (f64, f64) =
                        (row[k as usize..].iter().rev().sum(), row[..=k as usize].iter().sum());
                    for (fast, slow) in [
                        (probability(k, n, p), row[k as usize]),
                        (at_least(k, n, p), above),
                        (at_most(k, n, p), below),
                    ] {
                        // Below, a double has no more digits.
                        assert!(
                            (fast - slow).abs() <= 1e-11 * slow + 1e-300,
                            "{k} {n} {p}: {fast:e} {slow:e}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn large_counts_have_the_normal_tail() {
        // Three and six deviations out, n = 10¹⁰: the normal tail to the correction of the continuity.
        let n = 10_000_000_000_u64;
        for deviations in [3.0, 6.0] {
            let k = (0.5 * n as f64 + deviations * 5e4) as u64;
            let tail = dpsgd_privacy::normal::cdf(-(deviations - 1e-5));
            assert!((at_least(k, n, 0.5) / tail - 1.0).abs() < 1e-4);
        }
    }

    #[test]
    fn limits_solve_their_equation_and_cover() {
        for (k, n) in [(0, 10), (1, 10), (9, 10), (50, 1000), (31_000, 100_000)] {
            for level in [0.05, 1e-4, 1e-9] {
                let (low, high) = (lower_limit(k, n, level), upper_limit(k, n, level));
                assert!(low <= k as f64 / n as f64 && k as f64 / n as f64 <= high);
                // Nearer to 1 a double is too coarse for the equation.
                if high < 1.0 - 1e-6 {
                    assert!((at_most(k, n, high) / level - 1.0).abs() < 1e-5, "{k} {n} {level}");
                }
                if k > 0 {
                    assert!((at_least(k, n, low) / level - 1.0).abs() < 1e-5, "{k} {n} {level}");
                }
            }
        }
        assert_eq!((lower_limit(0, 5, 0.01), upper_limit(5, 5, 0.01)), (0.0, 1.0));
        // The coverage itself, by enumeration: the chance that the limit lies below p.
        for p in [0.02, 0.3, 0.5, 0.9] {
            let row = slow(60, p);
            let missed: f64 =
                (0..=60).filter(|&k| upper_limit(k, 60, 0.01) < p).map(|k| row[k as usize]).sum();
            assert!(missed <= 0.01, "{p}: {missed}");
        }
    }
}
