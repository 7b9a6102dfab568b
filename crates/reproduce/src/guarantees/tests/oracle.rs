//! The same numbers the slow and obvious way, without the accounting that is tested.

/// Φ(x): the Taylor series near 0, the continued fraction of Mills' ratio in the tails.
pub fn cdf(x: f64) -> f64 {
    let density = (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt();
    if x > 2.5 {
        return 1.0 - cdf(-x);
    }
    if x < -2.5 {
        let fraction = (1..=400).rev().fold(-x, |rest, k| -x + f64::from(k) / rest);
        return density / fraction;
    }
    // ½ + φ(x)·(x + x³/3 + x⁵/(3·5) + …)
    let mut term = x;
    let mut sum = x;
    for k in 1..200 {
        term *= x * x / f64::from(2 * k + 1);
        sum += term;
    }
    0.5 + density * sum
}

/// δ(ε) of G_µ.
pub fn delta_of_gaussian(mu: f64, epsilon: f64) -> f64 {
    if mu == 0.0 {
        0.0
    } else {
        cdf(-epsilon / mu + mu / 2.0) - epsilon.exp() * cdf(-epsilon / mu - mu / 2.0)
    }
}

/// The ε with δ(ε) = `target`, by bisection.
pub fn solve(delta: impl Fn(f64) -> f64, target: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while delta(high) > target {
        high *= 2.0;
    }
    for _ in 0..100 {
        let middle = 0.5 * (low + high);
        if delta(middle) > target { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}

/// ε of G_µ.
pub fn gaussian(mu: f64, delta: f64) -> f64 {
    solve(|epsilon| delta_of_gaussian(mu, epsilon), delta)
}

/// A₁ where c² is Binomial(trials, p): Σ Pr[c² = k]·δ of G_{√k/σ}, up to k = 400.
pub fn binomial(trials: u64, p: f64, sigma: f64, delta: f64) -> f64 {
    let n = trials as f64;
    let mut logarithm = n * (-p).ln_1p();
    let mut law = Vec::new();
    for k in 0..=trials.min(400) {
        let done = k as f64;
        law.push((done.sqrt() / sigma, logarithm.exp()));
        logarithm += ((n - done) / (done + 1.0)).ln() + p.ln() - (-p).ln_1p();
    }
    assert!((law.iter().map(|part| part.1).sum::<f64>() - 1.0).abs() < 1e-8);
    solve(|epsilon| law.iter().map(|&(mu, q)| q * delta_of_gaussian(mu, epsilon)).sum(), delta)
}

/// A₁ for batch clipping with shuffling and one epoch, g = 2, ms dividing N: both differing samples are in
/// one round with probability (s−1)/(N−1), in two rounds otherwise.
pub fn pair_in_one_epoch(samples: u64, size: u64, sigma: f64, delta: f64) -> f64 {
    let together = (size - 1) as f64 / (samples - 1) as f64;
    let two = 2.0_f64.sqrt() / sigma;
    let profile = |epsilon: f64| {
        together * delta_of_gaussian(1.0 / sigma, epsilon)
            + (1.0 - together) * delta_of_gaussian(two, epsilon)
    };
    solve(profile, delta)
}

/// A₀ for g = 1: C_p(G_{1/σ}) composed over the rounds. The privacy loss of a round on a grid, its sum over
/// the rounds by the definition of a convolution.
///
/// Where the loss is positive it is that of (1−p)·N(0,1) + p·N(1/σ,1) against N(0,1); the trade-off function
/// is symmetric, so the negative part is the mirror image with the factor e^{−y}; the rest is at 0.
pub fn blind(p: f64, rounds: u32, sigma: f64, delta: f64) -> f64 {
    const STEP: f64 = 0.004;
    let mu = 1.0 / sigma;
    let density = |x: f64| (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let loss = |x: f64| (1.0 - p + p * (mu * x - 0.5 * mu * mu).exp()).ln();
    let dx = 2e-5;
    let reach = (loss(0.5 * mu + 8.0) / STEP).ceil() as usize;
    let mut one = vec![0.0; 2 * reach + 1];
    let mut x = 0.5 * mu + 0.5 * dx;
    while x < 0.5 * mu + 8.0 {
        let mass = (p * density(x - mu) + (1.0 - p) * density(x)) * dx;
        let place = (loss(x) / STEP).round() as usize;
        one[reach + place] += mass;
        one[reach - place] += mass * (-loss(x)).exp();
        x += dx;
    }
    one[reach] += 1.0 - one.iter().sum::<f64>();
    let mut all = vec![1.0];
    for _ in 0..rounds {
        let mut next = vec![0.0; all.len() + one.len() - 1];
        for (i, a) in all.iter().enumerate().filter(|(_, a)| **a > 1e-18) {
            for (j, b) in one.iter().enumerate() {
                next[i + j] += a * b;
            }
        }
        all = next;
    }
    let middle = (all.len() / 2) as f64;
    let profile = |epsilon: f64| -> f64 {
        let gain =
            |(i, mass): (usize, &f64)| mass * (-(epsilon - (i as f64 - middle) * STEP).exp_m1()).max(0.0);
        all.iter().enumerate().map(gain).sum()
    };
    solve(profile, delta)
}
