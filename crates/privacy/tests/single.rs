//! One round against its definition: δ(ε) summed or integrated directly.

use dpsgd_privacy::adversary::{self, Adversary};
use dpsgd_privacy::mechanism::{Length, Mechanism, Neighbours, NoiseScale, PhaseConfig, RunConfig, Sampling};
use dpsgd_privacy::normal;

fn one_round(sampling: Sampling, sigma: f64, neighbours: Neighbours, differing: u64) -> Mechanism {
    let mut config = RunConfig::single(PhaseConfig {
        sampling,
        length: Length::Rounds(1),
        noise: NoiseScale::Sigma(sigma),
        filtered: false,
    });
    (config.neighbours, config.differing) = (neighbours, differing);
    config.check().expect("a run")
}

/// δ of G_µ at ε.
fn gaussian(mu: f64, epsilon: f64) -> f64 {
    normal::cdf(0.5 * mu - epsilon / mu) - epsilon.exp() * normal::cdf(-0.5 * mu - epsilon / mu)
}

fn choose(n: u64, k: u64) -> f64 {
    (0..k).map(|i| (n - i) as f64 / (k - i) as f64).product()
}

/// Σ_k q_k·δ_{G_{k/σ}}(ln(1 + (e^ε − 1)/η)) of theory.md, section 3, with hypergeometric q.
#[test]
fn a_subsample_is_the_sum_of_its_theorem() {
    let (samples, groups) = (50, 5);
    for (sigma, g) in [(0.3, 1), (1.0, 1), (1.0, 2), (3.0, 3), (0.5, 4)] {
        let sampling = Sampling::Subsample { samples, groups, group_size: 1 };
        let run = one_round(sampling, sigma, Neighbours::Substitute, g);
        let curve = adversary::curve(&run, Adversary::A0).expect("a curve");
        let law = |k: u64| choose(g, k) * choose(samples - g, groups - k) / choose(samples, groups);
        let hit = 1.0 - law(0);
        for epsilon in [0.0, 0.01, 0.3, 2.0] {
            let inner = ((f64::exp(epsilon) - 1.0) / hit).ln_1p();
            let expected: f64 = (1..=g).map(|k| law(k) * gaussian(k as f64 / sigma, inner)).sum();
            let found = curve.delta(epsilon).expect("δ");
            assert!(
                found.lower <= expected * (1.0 + 1e-9) + 1e-15,
                "{sigma} {g} {epsilon}: {found:?} {expected}"
            );
            assert!(
                found.upper >= expected * (1.0 - 1e-9) - 1e-15,
                "{sigma} {g} {epsilon}: {found:?} {expected}"
            );
            // Group privacy may say more than the theorem for several samples, never less.
            assert!(
                found.upper <= expected * (1.0 + 1e-6) + 1e-12,
                "{sigma} {g} {epsilon}: {found:?} {expected}"
            );
        }
    }
}

/// ∫ max(0, p − e^ε·q) over the line, by the trapezoidal rule with steps of a thousandth of a deviation.
fn integrated(p: &dyn Fn(f64) -> f64, q: &dyn Fn(f64) -> f64, z: f64, epsilon: f64) -> f64 {
    let step = 1e-3 * z;
    let last = ((12.0 * z + 4.0) / step) as i64;
    (-last..=last).map(|i| (p(i as f64 * step) - epsilon.exp() * q(i as f64 * step)).max(0.0)).sum::<f64>()
        * step
}

#[test]
fn poisson_sampling_is_the_integral_of_its_pair() {
    for (rate, sigma) in [(0.1, 0.5), (0.5, 0.25), (0.02, 1.0), (0.9, 2.0)] {
        // The noise multiplier: a sample that is present or absent moves the sum by C.
        let z = 2.0 * sigma;
        let bell = |x: f64| (-0.5 * (x / z).powi(2)).exp() / (z * (2.0 * std::f64::consts::PI).sqrt());
        let shifted = |by: f64| move |x: f64| (1.0 - rate) * bell(x) + rate * bell(x - by);
        for neighbours in [Neighbours::AddRemove, Neighbours::Substitute] {
            let run = one_round(Sampling::Poisson { rate }, sigma, neighbours, 1);
            let curve = adversary::curve(&run, Adversary::A0).expect("a curve");
            for epsilon in [0.0, 0.05, 0.5, 1.5] {
                let expected =
                    match neighbours {
                        Neighbours::AddRemove => integrated(&shifted(1.0), &bell, z, epsilon)
                            .max(integrated(&bell, &shifted(1.0), z, epsilon)),
                        _ => integrated(&shifted(1.0), &shifted(-1.0), z, epsilon),
                    };
                let found = curve.delta(epsilon).expect("δ");
                // The kink of the integrand costs the rule about the square of its step.
                let room = 2e-6 * expected + 1e-8;
                assert!(
                    found.lower <= expected + room && found.upper >= expected - room,
                    "{rate} {sigma} {neighbours:?} {epsilon}: {found:?} {expected}"
                );
                assert!(found.width() <= 1e-8 * found.upper + 1e-14, "{found:?}");
            }
        }
    }
}
