//! What must hold for every run, whatever its numbers: shape of the curve, monotonicity in the
//! settings, composition. The seed is fixed, so a failure is always the same failure.

mod common;

use common::{filtered, poisson, run, shuffle, subsample, substituting};
use dpsgd_privacy::adversary::{Adversary, curve, mixture};
use dpsgd_privacy::curve::Curve;
use dpsgd_privacy::mechanism::{Draw, Length, NoiseScale, RunConfig, Sampling};
use dpsgd_privacy::{Interval, PrivacyError, gaussian};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        rng_seed: RngSeed::Fixed(0x0dd5_eed5),
        failure_persistence: None,
        max_shrink_iters: 40,
        ..ProptestConfig::default()
    }
}

/// A run of any sampler with at least 100 rounds, at most three differing samples.
fn any_run() -> impl Strategy<Value = RunConfig> {
    let sizes = || (1..=12u64, 1..=12u64, 4..=60u64, 0..=11u64);
    let sampler = prop_oneof![
        sizes().prop_map(|(m, s, b, rest)| subsample(b * m * s + rest.min(m * s - 1), m, s)),
        sizes().prop_map(|(m, s, b, rest)| shuffle(b * m * s + rest.min(m * s - 1), m, s)),
        (0.003..0.3f64).prop_map(poisson),
        (0.003..0.3f64).prop_map(poisson),
    ];
    (sampler, 100..1500u64, 0.6..5.0f64, 1..=3u64, any::<bool>(), prop::collection::vec(0.05..1.0f64, 0..2))
        .prop_map(|(sampling, rounds, sigma, g, flag, releases)| {
            let mut config = run(sampling, rounds, NoiseScale::Sigma(sigma), g);
            match sampling {
                Sampling::Poisson { .. } if flag => config = substituting(config),
                Sampling::Poisson { .. } => {}
                _ if flag => config = filtered(config),
                _ => {}
            }
            config.releases = releases;
            config
        })
}

/// The curves of a run; A₀ is refused for shuffling.
fn curves(config: &RunConfig) -> Vec<(Adversary, Box<dyn Curve>)> {
    let mechanism = config.check().expect("a valid run");
    [Adversary::A0, Adversary::A1]
        .into_iter()
        .filter_map(|adversary| match curve(&mechanism, adversary) {
            Ok(curve) => Some((adversary, curve)),
            Err(PrivacyError::Unsupported { .. }) => {
                let shuffled = |s: Sampling| matches!(s, Sampling::Shuffle { .. });
                assert!(
                    adversary == Adversary::A0 && mechanism.phases().iter().any(|p| shuffled(p.sampling()))
                );
                None
            }
            Err(error) => panic!("{config:?}: {error}"),
        })
        .collect()
}

fn curve_for(config: &RunConfig, adversary: Adversary) -> Box<dyn Curve> {
    curve(&config.check().expect("a valid run"), adversary).expect("a covered combination")
}

fn valid(interval: Interval, low: f64, high: f64) -> bool {
    low <= interval.lower && interval.lower <= interval.upper && interval.upper <= high
}

/// Two intervals for the same value, up to a relative distance.
fn agree(a: Interval, b: Interval, relative: f64) -> bool {
    let slack = relative * a.upper.abs().max(b.upper.abs());
    a.lower <= b.upper + slack && b.lower <= a.upper + slack
}

const EPSILONS: [f64; 7] = [0.0, 0.01, 0.3, 1.0, 2.5, 6.0, 15.0];
const DELTAS: [f64; 5] = [0.1, 1e-3, 1e-5, 1e-9, 1e-14];
const ALPHAS: [f64; 9] = [1e-7, 1e-4, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.999];
/// The error of the few operations in the comparisons themselves.
const ROUNDED: f64 = 8.0 * f64::EPSILON;

/// The curves that come from one theorem. Against A₀ with several samples each question is answered by the best
/// of several, so ε, δ and f need not be conjugate to the last digit: see `best_answers_fit_each_other`.
fn of_one_theorem(config: &RunConfig) -> Vec<(Adversary, Box<dyn Curve>)> {
    let one = |adversary: Adversary| adversary == Adversary::A1 || config.differing == 1;
    curves(config).into_iter().filter(|(adversary, _)| one(*adversary)).collect()
}

proptest! {
    #![proptest_config(config(24))]

    #[test]
    fn profile_falls_and_inverts(config in any_run()) {
        for (adversary, curve) in of_one_theorem(&config) {
            let mut last = 1.0;
            for epsilon in EPSILONS {
                let delta = curve.delta(epsilon)?;
                prop_assert!(valid(delta, 0.0, 1.0), "{adversary:?} δ({epsilon}) = {delta:?}");
                prop_assert!(
                    delta.lower <= last,
                    "{adversary:?} δ({epsilon}) = {delta:?} rises from {last:e}"
                );
                prop_assert!(
                    delta.width() <= 1e-3 * delta.upper.max(1e-15),
                    "{adversary:?} δ({epsilon}) = {delta:?}"
                );
                last = delta.upper;
            }
            let mut last = 0.0;
            for delta in DELTAS {
                let epsilon = curve.epsilon(delta)?;
                prop_assert!(valid(epsilon, 0.0, f64::MAX), "{adversary:?} ε({delta:e}) = {epsilon:?}");
                prop_assert!(
                    epsilon.upper >= last,
                    "{adversary:?} ε({delta:e}) = {epsilon:?} falls from {last:e}"
                );
                // Short runs at a low rate go to the grid, which is certified to about 1e-5; the settings
                // of the golden file are held to 1e-6 and 1e-8 there.
                prop_assert!(
                    epsilon.width() <= 2e-5 * epsilon.upper.max(1e-9),
                    "{adversary:?} ε({delta:e}) = {epsilon:?}"
                );
                last = epsilon.lower;
                let (at_upper, at_lower) = (curve.delta(epsilon.upper)?, curve.delta(epsilon.lower)?);
                prop_assert!(at_upper.lower <= delta, "{adversary:?} δ({:e}) = {at_upper:?}", epsilon.upper);
                prop_assert!(
                    at_lower.upper >= delta * (1.0 - ROUNDED) || epsilon.lower == 0.0,
                    "{adversary:?} δ({:e}) = {at_lower:?}", epsilon.lower
                );
            }
        }
    }

    #[test]
    fn best_answers_fit_each_other(config in any_run()) {
        for (adversary, curve) in curves(&config) {
            for delta in DELTAS {
                let epsilon = curve.epsilon(delta)?;
                prop_assert!(valid(epsilon, 0.0, f64::MAX), "{adversary:?} ε({delta:e}) = {epsilon:?}");
                // The steps of group privacy are chosen for ε and for δ separately, by an interpolation.
                let back = curve.delta(epsilon.upper)?;
                prop_assert!(
                    back.lower <= delta * (1.0 + 1e-3),
                    "{adversary:?} δ({:e}) = {back:?}, not {delta:e}", epsilon.upper
                );
            }
            let mut last = 1.0;
            for &alpha in &ALPHAS {
                let beta = curve.beta(alpha)?;
                prop_assert!(valid(beta, 0.0, 1.0 - alpha + ROUNDED), "{adversary:?} f({alpha}) = {beta:?}");
                prop_assert!(beta.lower <= last, "{adversary:?} f({alpha}) = {beta:?} rises from {last:e}");
                last = beta.upper;
            }
        }
    }

    #[test]
    fn tradeoff_function_is_one(config in any_run()) {
        for (adversary, curve) in of_one_theorem(&config) {
            prop_assert_eq!(curve.beta(0.0)?, Interval::exact(1.0));
            prop_assert_eq!(curve.beta(1.0)?, Interval::exact(0.0));
            let betas = ALPHAS.iter().map(|&a| curve.beta(a)).collect::<Result<Vec<_>, _>>()?;
            let mut last = 1.0;
            for (&alpha, &beta) in ALPHAS.iter().zip(&betas) {
                prop_assert!(valid(beta, 0.0, 1.0 - alpha + ROUNDED), "{adversary:?} f({alpha}) = {beta:?}");
                prop_assert!(beta.lower <= last, "{adversary:?} f({alpha}) = {beta:?} rises from {last:e}");
                prop_assert!(beta.width() <= 1e-6, "{adversary:?} f({alpha}) = {beta:?} is wide");
                last = beta.upper;
                // f is its own inverse: f(β) = α, and f falls.
                let (above, below) = (curve.beta(beta.lower)?, curve.beta(beta.upper.min(1.0))?);
                prop_assert!(
                    below.lower <= alpha * (1.0 + ROUNDED) && alpha * (1.0 - ROUNDED) <= above.upper,
                    "{adversary:?} f({alpha}) = {beta:?}, f of that [{below:?}, {above:?}]"
                );
            }
            for i in 0..ALPHAS.len() {
                for j in i + 1..ALPHAS.len() {
                    let middle = curve.beta(0.5 * (ALPHAS[i] + ALPHAS[j]))?;
                    let chord = 0.5 * (betas[i].upper + betas[j].upper) + ROUNDED;
                    prop_assert!(
                        middle.lower <= chord,
                        "{adversary:?} not convex at {} {}", ALPHAS[i], ALPHAS[j]
                    );
                }
            }
        }
    }

    #[test]
    fn profile_and_curve_are_conjugate(config in any_run()) {
        for (adversary, curve) in of_one_theorem(&config) {
            let betas = ALPHAS.iter().map(|&a| curve.beta(a)).collect::<Result<Vec<_>, _>>()?;
            for epsilon in EPSILONS {
                let delta = curve.delta(epsilon)?;
                for (&alpha, beta) in ALPHAS.iter().zip(&betas) {
                    let line = 1.0 - delta.upper - epsilon.exp() * alpha;
                    prop_assert!(
                        line <= beta.upper + ROUNDED,
                        "{adversary:?} ε={epsilon} α={alpha}: {line} {beta:?}"
                    );
                    let mirrored = (-epsilon).exp() * (1.0 - delta.upper - alpha);
                    prop_assert!(
                        mirrored <= beta.upper + ROUNDED,
                        "{adversary:?} ε={epsilon} α={alpha}: {mirrored} {beta:?}"
                    );
                }
                let point = curve.point(epsilon)?;
                prop_assert!(valid(point.alpha, 0.0, 1.0) && valid(point.beta, 0.0, 1.0), "{point:?}");
                let touching = Interval::new(
                    1.0 - point.beta.upper - epsilon.exp() * point.alpha.upper - ROUNDED,
                    1.0 - point.beta.lower - epsilon.exp() * point.alpha.lower + ROUNDED,
                );
                prop_assert!(
                    agree(touching, delta, 0.0),
                    "{adversary:?} ε={epsilon}: {touching:?} {delta:?}"
                );
                prop_assert!(
                    agree(point.delta, delta, 0.0),
                    "{adversary:?} ε={epsilon}: {:?} {delta:?}", point.delta
                );
                // The curve passes through the point.
                let (left, right) = (curve.beta(point.alpha.lower)?, curve.beta(point.alpha.upper)?);
                prop_assert!(
                    right.lower <= point.beta.upper + ROUNDED && point.beta.lower <= left.upper + ROUNDED,
                    "{adversary:?} ε={epsilon}: {point:?} f at its ends {left:?} {right:?}"
                );
            }
        }
    }

    #[test]
    fn every_setting_pulls_the_right_way(config in any_run()) {
        let changed = |change: &dyn Fn(&mut RunConfig)| {
            let mut other = config.clone();
            change(&mut other);
            other
        };
        let longer = changed(&|run| for phase in &mut run.phases {
            if let Length::Rounds(rounds) = &mut phase.length { *rounds *= 2 }
        });
        let noisier = changed(&|run| for phase in &mut run.phases {
            phase.noise = NoiseScale::Sigma(1.25 * phase.noise.sigma());
        });
        let larger_group = changed(&|run| run.differing += 1);
        let released = changed(&|run| run.releases.push(0.3));
        for (adversary, here) in curves(&config) {
            for delta in [1e-3, 1e-5, 1e-10] {
                let epsilon = here.epsilon(delta)?;
                let worse = [("longer", &longer), ("larger g", &larger_group), ("released", &released)];
                for (name, other) in worse {
                    let more = curve_for(other, adversary).epsilon(delta)?;
                    prop_assert!(
                        epsilon.upper < more.lower,
                        "{adversary:?} δ={delta:e} {name}: {epsilon:?} {more:?}"
                    );
                }
                let less = curve_for(&noisier, adversary).epsilon(delta)?;
                prop_assert!(
                    less.upper < epsilon.lower,
                    "{adversary:?} δ={delta:e} noisier: {epsilon:?} {less:?}"
                );
            }
        }
    }

    #[test]
    fn knowing_the_draws_only_helps(config in any_run()) {
        let [(Adversary::A0, blind), (Adversary::A1, knowing)] = &curves(&config)[..] else { return Ok(()) };
        for delta in DELTAS {
            let (a0, a1) = (blind.epsilon(delta)?, knowing.epsilon(delta)?);
            prop_assert!(a0.lower <= a1.upper, "δ={delta:e}: A0 {a0:?}, A1 {a1:?}");
        }
        for epsilon in EPSILONS {
            let (a0, a1) = (blind.delta(epsilon)?, knowing.delta(epsilon)?);
            prop_assert!(a0.lower <= a1.upper, "ε={epsilon}: A0 {a0:?}, A1 {a1:?}");
        }
        for alpha in ALPHAS {
            let (a0, a1) = (blind.beta(alpha)?, knowing.beta(alpha)?);
            prop_assert!(a0.upper >= a1.lower, "α={alpha}: A0 {a0:?}, A1 {a1:?}");
        }
    }

    #[test]
    fn phases_add_up_and_commute(config in any_run(), other in any_run(), share in 0.1..0.9f64) {
        // Two parts of one phase; a shuffled phase is cut between epochs.
        let phase = config.phases[0];
        let Length::Rounds(rounds) = phase.length else { unreachable!() };
        let unit = match phase.sampling.draw() {
            Draw::EveryEpoch => phase.sampling.rounds_per_epoch(),
            Draw::EveryRound => 1,
        };
        let first = ((rounds as f64 * share) as u64 / unit * unit).max(unit);
        let mut whole = config.clone();
        whole.phases[0].length = Length::Rounds(first + unit * 7);
        let mut parts = config.clone();
        parts.phases = vec![phase, phase];
        parts.phases[0].length = Length::Rounds(first);
        parts.phases[1].length = Length::Rounds(unit * 7);
        for ((adversary, whole), (_, parts)) in curves(&whole).into_iter().zip(curves(&parts)) {
            for delta in [1e-3, 1e-6, 1e-12] {
                let (a, b) = (whole.epsilon(delta)?, parts.epsilon(delta)?);
                prop_assert!(agree(a, b, 0.0), "{adversary:?} δ={delta:e}: whole {a:?}, parts {b:?}");
            }
            for alpha in [1e-4, 0.1, 0.8] {
                let (a, b) = (whole.beta(alpha)?, parts.beta(alpha)?);
                prop_assert!(agree(a, b, 0.0), "{adversary:?} α={alpha}: whole {a:?}, parts {b:?}");
            }
        }
        // Any two phases in either order.
        let mut forth = config.clone();
        forth.neighbours = dpsgd_privacy::mechanism::Neighbours::Substitute;
        forth.phases.extend(other.phases.iter().copied());
        let mut back = forth.clone();
        back.phases.reverse();
        back.releases.reverse();
        for ((adversary, forth), (_, back)) in curves(&forth).into_iter().zip(curves(&back)) {
            for delta in [1e-3, 1e-9] {
                let (a, b) = (forth.epsilon(delta)?, back.epsilon(delta)?);
                prop_assert!(agree(a, b, 0.0), "{adversary:?} δ={delta:e}: {a:?}, reversed {b:?}");
                prop_assert!(a.width() <= 1e-6 * a.upper.max(1e-9), "{adversary:?} δ={delta:e}: {a:?}");
            }
        }
    }

    #[test]
    fn unsampled_rounds_are_one_gaussian(
        rounds in 1..5000u64, z in 0.5..100.0f64, g in 1..6u64,
        extra in prop::collection::vec(0.1..3.0f64, 0..4),
    ) {
        for (scale, substitute) in [(1.0, false), (2.0, true)] {
            let mut config = run(poisson(1.0), rounds, NoiseScale::Multiplier(z), g);
            if substitute {
                config = substituting(config);
            }
            config.releases = extra.clone();
            let sampled = scale * g as f64 / z;
            // A release has its µ for one sample.
            let released = (g * g) as f64 * extra.iter().map(|m| m * m).sum::<f64>();
            let mu = (sampled * sampled * rounds as f64 + released).sqrt();
            for (adversary, curve) in curves(&config) {
                for delta in [1e-2, 1e-6, 1e-13] {
                    let expected = gaussian::epsilon(mu, delta);
                    let got = curve.epsilon(delta)?;
                    prop_assert!(
                        agree(got, Interval::exact(expected), 1e-11)
                            && got.width() <= 1e-8 * expected.max(1e-3),
                        "{adversary:?} µ={mu} δ={delta:e}: {got:?}, {expected}"
                    );
                }
                for alpha in [1e-5, 0.05, 0.4, 0.9] {
                    let expected = gaussian::tradeoff(mu, alpha);
                    let got = curve.beta(alpha)?;
                    // Relative where 1 − β and β are no smaller than what is asked for.
                    prop_assert!(
                        agree(got, Interval::exact(expected), 1e-9) && got.width() <= 1e-8,
                        "{adversary:?} µ={mu} α={alpha}: {got:?}, {expected}"
                    );
                }
            }
        }
    }

    #[test]
    fn releases_add_in_squares(config in any_run(), a in 0.05..1.5f64, b in 0.05..1.5f64) {
        let mut two = config.clone();
        two.releases.extend([a, b]);
        let mut one = config.clone();
        one.releases.push((a * a + b * b).sqrt());
        for ((adversary, one), (_, two)) in curves(&one).into_iter().zip(curves(&two)) {
            for delta in [1e-3, 1e-8] {
                let (x, y) = (one.epsilon(delta)?, two.epsilon(delta)?);
                prop_assert!(agree(x, y, 1e-13), "{adversary:?} δ={delta:e}: one {x:?}, two {y:?}");
            }
        }
    }

    #[test]
    fn summation_and_moments_agree_for_a1(config in any_run()) {
        // Noise that differs in the twelfth digit leaves no common law of c², only moments.
        let sigma = config.phases[0].noise.sigma();
        let mut same = config.clone();
        same.phases = vec![config.phases[0]; 2];
        let mut apart = same.clone();
        apart.phases[1].noise = NoiseScale::Sigma(sigma * (1.0 + 1e-12));
        let same = same.check().expect("a valid run");
        let apart = apart.check().expect("a valid run");
        prop_assert!(mixture(&same)?.is_some() && mixture(&apart)?.is_none());
        let (direct, moments) = (curve(&same, Adversary::A1)?, curve(&apart, Adversary::A1)?);
        for delta in [1e-2, 1e-5, 1e-10, 1e-15] {
            let (a, b) = (direct.epsilon(delta)?, moments.epsilon(delta)?);
            prop_assert!(agree(a, b, 1e-11), "δ={delta:e}: direct {a:?}, moments {b:?}");
        }
        for epsilon in EPSILONS {
            let (a, b) = (direct.delta(epsilon)?, moments.delta(epsilon)?);
            // ln δ moves by at most about ε²/µ² times the relative change of the noise.
            prop_assert!(agree(a, b, 1e-9), "ε={epsilon}: direct {a:?}, moments {b:?}");
        }
        for alpha in ALPHAS {
            let (a, b) = (direct.beta(alpha)?, moments.beta(alpha)?);
            prop_assert!(agree(a, b, 1e-9), "α={alpha}: direct {a:?}, moments {b:?}");
        }
    }
}
