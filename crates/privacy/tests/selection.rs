//! Private selection against values computed elsewhere.
//!
//! For one Gaussian release of parameter µ, τ(λ) = λµ²/2 and δ(ε) = Φ(−ε/µ + µ/2) − e^ε Φ(−ε/µ − µ/2). The
//! theorems of Papernot and Steinke were minimised over λ (and λ̂) on a grid of 1 % steps with 50 digits
//! (mpmath), at δ = 1e-5; γ was found by bisection from the mean.

use dpsgd_privacy::mechanism::{Length, Mechanism, NoiseScale, PhaseConfig, RunConfig, Sampling};
use dpsgd_privacy::selection::{Selection, Tries};
use dpsgd_privacy::{Adversary, Interval, PrivacyError};

/// µ, η (none for Poisson), E\[K\], ε.
const GOLDEN: [(f64, Option<f64>, f64, f64); 12] = [
    (0.2, Some(0.0), 10.0, 1.41770501393),
    (0.2, Some(1.0), 10.0, 1.718323527),
    (0.2, Some(1.0), 100.0, 2.16903223373),
    (0.2, None, 10.0, 1.49918078998),
    (0.5, Some(0.0), 10.0, 3.63853739507),
    (0.5, Some(1.0), 10.0, 4.31508538933),
    (0.5, Some(1.0), 100.0, 5.43385875847),
    (0.5, None, 10.0, 3.9878671341),
    (1.0, Some(0.0), 10.0, 7.4104297588),
    (1.0, Some(1.0), 10.0, 8.51351551891),
    (1.0, Some(1.0), 100.0, 10.7405678539),
    (1.0, None, 10.0, 8.46143960416),
];

fn release(mu: f64) -> Result<Mechanism, PrivacyError> {
    Ok(RunConfig::single(PhaseConfig {
        sampling: Sampling::Subsample { samples: 1, groups: 1, group_size: 1 },
        length: Length::Rounds(1),
        noise: NoiseScale::Sigma(1.0 / mu),
        filtered: false,
    })
    .check()?)
}

/// Never below the formula, and at most 1 % above it: the grid of orders is coarser here.
#[test]
fn the_theorems_of_papernot_and_steinke() -> Result<(), PrivacyError> {
    for (mu, eta, mean, expected) in GOLDEN {
        let law = match eta {
            Some(eta) => Tries::negative_binomial(eta, mean)?,
            None => Tries::poisson(mean)?,
        };
        let found = Selection::of(&[release(mu)?], Adversary::A1, law)?.epsilon(1e-5)?;
        let allowed = Interval { lower: expected * (1.0 - 1e-4), upper: expected * 1.01 };
        assert!((allowed.lower..=allowed.upper).contains(&found), "µ = {mu}, {law:?}: {found}, {expected}");
    }
    Ok(())
}

/// Small distributions, where everything can be enumerated: a try has three outcomes with increasing scores
/// and the probabilities p or q for neighbours. The best of K has P(best ≤ j) = E[F(j)^K], whose δ(ε) is
/// summed directly and must stay below what the theorem allows.
#[test]
fn no_enumerated_selection_leaks_more_than_the_theorem() {
    let p = [0.70, 0.25, 0.05];
    let q = [0.65, 0.27, 0.08];
    // Exact Rényi divergences of the pair, both directions.
    let renyi = |order: f64| {
        let one = |a: &[f64; 3], b: &[f64; 3]| {
            let sum: f64 = a.iter().zip(b).map(|(a, b)| a.powf(order) * b.powf(1.0 - order)).sum();
            sum.ln() / (order - 1.0)
        };
        one(&p, &q).max(one(&q, &p))
    };
    for (eta, mean) in [(0.0, 5.0), (1.0, 5.0), (1.0, 30.0)] {
        let law = Tries::negative_binomial(eta, mean).unwrap();
        let Tries::NegativeBinomial { gamma, .. } = law else { unreachable!() };
        let best = |a: &[f64; 3]| {
            let weights: Vec<f64> = law.probabilities().take(5000).collect();
            let below = |share: f64| -> f64 {
                weights.iter().enumerate().map(|(k, w)| w * share.powi(k as i32)).sum()
            };
            let reached = [below(a[0]), below(a[0] + a[1]), below(1.0)];
            [reached[0], reached[1] - reached[0], reached[2] - reached[1]]
        };
        let (after_p, after_q) = (best(&p), best(&q));
        for order in [1.5, 2.0, 4.0, 16.0] {
            let sum: f64 =
                after_p.iter().zip(&after_q).map(|(a, b)| a.powf(order) * b.powf(1.0 - order)).sum();
            let other: f64 =
                after_q.iter().zip(&after_p).map(|(a, b)| a.powf(order) * b.powf(1.0 - order)).sum();
            let truth = (sum.ln().max(other.ln())) / (order - 1.0);
            let log = -gamma.ln();
            let hat = [1.01, 1.5, 2.0, 4.0, 8.0, 16.0, 64.0]
                .map(|hat: f64| (1.0 - 1.0 / hat) * renyi(hat) + log / hat)
                .into_iter()
                .fold(log, f64::min);
            let claimed = renyi(order) + (1.0 + eta) * hat + law.mean().ln() / (order - 1.0);
            assert!(truth <= claimed, "η = {eta}, E[K] = {mean}, λ = {order}: {truth} above {claimed}");
        }
    }
}
