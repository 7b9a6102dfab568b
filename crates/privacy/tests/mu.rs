//! µ holds up to the very end of the range it is stated for.

mod common;

use common::{allocate, poisson, run, subsample, substituting};
use dpsgd_privacy::adversary::{Adversary, curve};
use dpsgd_privacy::gaussian;
use dpsgd_privacy::mechanism::NoiseScale;

/// A sampled run has heavier tails than a Gaussian: the smaller the error rate, the larger the µ it needs. So the
/// end of the range decides, and f(α) ≥ G_µ(α) is asked there and just inside.
#[test]
fn mu_holds_at_the_end_of_its_range() {
    let z = NoiseScale::Multiplier;
    for (config, ends) in [
        (
            substituting(run(poisson(0.0029317030866454477), 210, z(1.1369605587266527), 2)),
            vec![4.03e-9, 1e-6],
        ),
        (run(poisson(0.016360282106235247), 128, z(1.2205224308543492), 1), vec![2.793147884571046e-6, 1e-4]),
        (run(subsample(1000, 10, 1), 79, NoiseScale::Sigma(0.9397345896970818), 1), vec![7.31e-4, 2.55e-7]),
        (run(allocate(100), 100, z(1.2076521088146426), 1), vec![6.828214049621641e-9, 7.2e-7]),
    ] {
        let curve = curve(&config.check().unwrap(), Adversary::A0).unwrap();
        for smallest in ends {
            let mu = curve.mu(smallest).unwrap();
            for alpha in [smallest, 1.001 * smallest, 1.05 * smallest, 2.0 * smallest] {
                let beta = curve.beta(alpha).unwrap();
                let claimed = gaussian::tradeoff(mu.upper, alpha);
                // 1 − β rather than β: it is tiny, and µ is in its digits.
                let (missed, allowed) = (1.0 - beta.upper, 1.0 - claimed);
                assert!(
                    missed <= allowed * (1.0 + 1e-7),
                    "{config:?} {alpha}: {mu:?}, {missed:e} {allowed:e}"
                );
            }
        }
    }
}

/// A few rounds have a narrow µ: where all samples are added the loss ends at −T·ln(1 − p), and past that end the
/// other direction decides alone. The test is f(α) ≥ G_µ(α), with a smaller µ contradicted somewhere.
#[test]
fn few_rounds_have_a_narrow_mu() {
    let z = NoiseScale::Multiplier;
    for (rate, rounds, noise) in [(0.5, 2, 1.0), (0.5, 3, 1.0), (0.5, 8, 1.0), (0.3, 5, 0.5), (0.01, 20, 0.7)]
    {
        let curve = curve(&run(poisson(rate), rounds, z(noise), 1).check().unwrap(), Adversary::A0).unwrap();
        let mu = curve.mu(1e-6).unwrap();
        assert!(mu.width() <= 1e-4 * mu.upper, "{rate} {rounds}: {mu:?}");
        let mut attained = false;
        for i in 0..60 {
            let alpha = 1e-6 * (0.5e6_f64).powf(f64::from(i) / 60.0);
            let beta = curve.beta(alpha).unwrap();
            let missed = 1.0 - beta.upper;
            let allowed = |mu| 1.0 - gaussian::tradeoff(mu, alpha);
            assert!(missed <= allowed(mu.upper) * (1.0 + 1e-7), "{rate} {rounds} {alpha}: {mu:?} {beta:?}");
            attained |= 1.0 - beta.lower >= allowed(0.99 * mu.lower);
        }
        assert!(attained, "{rate} {rounds}: {mu:?}");
    }
}
