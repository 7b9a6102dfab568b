//! Against A₀ every answer is the best that is proved, and the theorem behind the Poisson pair.

mod common;

use common::{allocate, filtered, poisson, run, shuffle, subsample, substituting};
use dpsgd_privacy::account::{Account, Question};
use dpsgd_privacy::adversary::{Adversary, Route, against_a0, curve};
use dpsgd_privacy::calibrate::{Target, epochs, groups, sigma};
use dpsgd_privacy::curve::Curve;
use dpsgd_privacy::mechanism::{Length, NoiseScale, RunConfig};
use dpsgd_privacy::normal::quantile;
use dpsgd_privacy::{gaussian, group};
use rand::{RngExt, SeedableRng};

const DELTA: f64 = 1e-5;

fn epsilon(config: &RunConfig, adversary: Adversary) -> f64 {
    curve(&config.check().unwrap(), adversary).unwrap().epsilon(DELTA).unwrap().upper
}

/// Runs in which each of the routes wins somewhere.
fn runs() -> Vec<RunConfig> {
    let sigma = NoiseScale::Sigma;
    let mut mixed = substituting(run(poisson(0.02), 200, sigma(1.5), 1));
    mixed.phases.push(run(allocate(50), 500, sigma(1.5), 1).phases[0]);
    let mut with_shuffle = run(subsample(1000, 10, 1), 300, sigma(2.0), 2);
    with_shuffle.phases.push(run(shuffle(1000, 10, 1), 200, sigma(2.0), 2).phases[0]);
    let mut released = run(subsample(1000, 10, 2), 200, sigma(2.0), 3);
    released.releases = vec![0.05];
    vec![
        run(subsample(1000, 20, 1), 500, sigma(1.0), 1),
        run(subsample(1000, 20, 1), 500, sigma(2.0), 16),
        filtered(run(subsample(200, 5, 4), 400, sigma(2.0), 2)),
        filtered(run(subsample(50, 40, 1), 400, sigma(4.0), 1)),
        run(poisson(0.02), 300, sigma(1.0), 3),
        substituting(run(poisson(0.02), 300, sigma(1.0), 2)),
        run(allocate(50), 500, sigma(1.0), 3),
        mixed,
        with_shuffle,
        released,
    ]
}

/// No part that is proved by itself gives a stronger answer.
#[test]
fn the_best_is_never_worse_than_its_parts() {
    let mut routes = Vec::new();
    for config in runs() {
        let mechanism = config.check().unwrap();
        let (best, told) = (against_a0(&mechanism).unwrap(), curve(&mechanism, Adversary::A1).unwrap());
        let g = config.differing;
        let single = RunConfig { differing: 1, ..config.clone() };
        let single = curve(&single.check().unwrap(), Adversary::A0).unwrap();
        let answer = best.answer_epsilon(DELTA).unwrap();
        routes.push(answer.route);
        let (found, bound) = (answer.value.upper, told.epsilon(DELTA).unwrap().upper);
        assert!(found <= bound * (1.0 + 1e-6), "{config:?}: {found} A1 {bound}");
        let steps = group::epsilon(&*single, g, DELTA).unwrap().upper;
        assert!(g == 1 || found <= steps * (1.0 + 1e-6), "{config:?}: {found} steps {steps}");
        for at in [0.1, 1.0, 3.0] {
            let (found, bound) = (best.delta(at).unwrap().upper, told.delta(at).unwrap().upper);
            assert!(found <= bound * (1.0 + 1e-6), "{config:?} {at}: {found} A1 {bound}");
        }
        for alpha in [0.001, 0.05, 0.5] {
            let found = best.beta(alpha).unwrap().lower;
            let (known, iterated) =
                (told.beta(alpha).unwrap().lower, group::tradeoff(&*single, g, alpha).unwrap().lower);
            assert!(found >= known - 1e-6, "{config:?} {alpha}: {found} A1 {known}");
            // Lines in place of the curve lose up to a thousandth of a standard deviation.
            let room = quantile(found) - quantile(iterated);
            assert!(room >= -1e-3, "{config:?} {alpha}: {found} group {iterated}");
        }
        let (mu, smallest) = best.answer_mu().unwrap();
        if let Ok(known) = told.mu(smallest) {
            assert!(mu.value.upper <= known.upper * (1.0 + 1e-6), "{config:?}: {mu:?} {known:?}");
        }
    }
    for route in [Route::Direct, Route::Told, Route::Group] {
        assert!(routes.contains(&route), "{route:?} never wins: {routes:?}");
    }
}

/// Where many samples differ the trade-off form
/// beats the direct treatment and the (ε, δ) steps.
#[test]
fn many_samples_are_answered_by_group_privacy() {
    let config = run(subsample(6000, 20, 1), 3000, NoiseScale::Sigma(2.0), 48);
    let answer = against_a0(&config.check().unwrap()).unwrap().answer_epsilon(DELTA).unwrap();
    let single = RunConfig { differing: 1, ..config };
    let single = curve(&single.check().unwrap(), Adversary::A0).unwrap();
    let steps = group::epsilon(&*single, 48, DELTA).unwrap().upper;
    assert!(answer.route == Route::Group && answer.value.upper < 0.8 * steps, "{answer:?} {steps}");
    assert!(answer.value.width() < 1e-5 * answer.value.upper, "{answer:?}");
}

#[test]
fn phases_drawn_by_rounds_and_by_epochs_have_an_answer_together() {
    let mut mixed = substituting(run(poisson(0.02), 200, NoiseScale::Sigma(1.5), 1));
    let alone = epsilon(&mixed, Adversary::A0);
    mixed.phases.push(run(allocate(50), 500, NoiseScale::Sigma(1.5), 1).phases[0]);
    let (blind, told) = (epsilon(&mixed, Adversary::A0), epsilon(&mixed, Adversary::A1));
    assert!(alone < blind && blind < 0.9 * told, "{alone} {blind} {told}");
}

/// 3000 equal phases are one phase, for A₀ and A₁.
#[test]
fn equal_phases_merge() {
    for (sampling, rounds) in [(subsample(1000, 10, 1), 7), (poisson(0.01), 3), (shuffle(1000, 10, 1), 100)] {
        let whole = run(sampling, 1000 * rounds, NoiseScale::Sigma(4.0), 1);
        let mut parts = whole.clone();
        parts.phases = vec![run(sampling, rounds, NoiseScale::Sigma(4.0), 1).phases[0]; 1000];
        for adversary in [Adversary::A0, Adversary::A1] {
            let Ok(one) = curve(&whole.check().unwrap(), adversary) else { continue };
            let many = curve(&parts.check().unwrap(), adversary).unwrap();
            assert_eq!(one.epsilon(DELTA), many.epsilon(DELTA));
        }
    }
    // Incomplete epochs of a permutation are not pieced together: more samples may be hit twice.
    let part = run(shuffle(40, 10, 1), 3, NoiseScale::Sigma(4.0), 1);
    let mut parts = part.clone();
    parts.phases.push(part.phases[0]);
    let six = run(shuffle(40, 10, 1), 6, NoiseScale::Sigma(4.0), 1);
    assert_ne!(epsilon(&parts, Adversary::A1), epsilon(&six, Adversary::A1));
}

/// µ of a release is that of one sample: for g of them it counts g times.
#[test]
fn a_release_counts_for_every_differing_sample() {
    for (g, mu) in [(1, 0.1), (8, 0.1), (3, 0.4)] {
        let mut config = run(subsample(1000, 10, 1), 1, NoiseScale::Sigma(1e5), g);
        config.releases = vec![mu];
        let (found, exact) = (epsilon(&config, Adversary::A1), gaussian::epsilon(g as f64 * mu, DELTA));
        assert!((found / exact - 1.0).abs() < 1e-3, "{g} {mu}: {found} {exact}");
        assert_eq!(config.check().unwrap().releases(), [mu]);
    }
}

#[test]
fn the_answer_grows_with_all_that_leaks() {
    let base = |g| run(subsample(2000, 20, 1), 400, NoiseScale::Sigma(1.5), g);
    let at = |config: &RunConfig| epsilon(config, Adversary::A0);
    let mut last = 0.0;
    for g in [1, 2, 3, 5, 8, 13, 32] {
        let found = at(&base(g));
        assert!(found > last, "g = {g}: {found} {last}");
        last = found;
        let changed = |change: &dyn Fn(&mut RunConfig)| {
            let mut config = base(g);
            change(&mut config);
            at(&config)
        };
        assert!(changed(&|c| c.phases[0].noise = NoiseScale::Sigma(1.6)) < found);
        assert!(changed(&|c| c.phases[0].length = Length::Rounds(440)) > found);
        assert!(changed(&|c| c.phases[0].sampling = subsample(2000, 22, 1)) > found);
    }
    // Samples that are added and removed together are covered: g = 2 is at most two steps, at least one.
    let of = |g| at(&run(poisson(0.05), 200, NoiseScale::Sigma(0.7), g));
    assert!(of(1) < of(2) && of(2) < of(3));
}

#[test]
fn calibrating_and_accounting_agree() {
    let config = run(subsample(5000, 50, 1), 500, NoiseScale::Sigma(1.0), 1);
    for target in [0.5, 3.0, 12.0] {
        let aim = Target::Epsilon { epsilon: target, delta: DELTA };
        for adversary in [Adversary::A0, Adversary::A1] {
            let found = sigma(&config, adversary, aim).unwrap();
            assert!(
                found.reached.upper <= target && found.reached.upper > target * (1.0 - 1e-6),
                "{found:?}"
            );
            assert_eq!(epsilon(&found.mechanism.config(), adversary), found.reached.upper);
            let mut less = config.clone();
            less.phases[0].noise = NoiseScale::Sigma(found.value * (1.0 - 1e-7));
            assert!(epsilon(&less, adversary) > target);
        }
    }
    let found = epochs(&config, Adversary::A0, Target::Epsilon { epsilon: 5.0, delta: DELTA }).unwrap();
    let mut more = config.clone();
    more.phases[0].length = Length::Epochs(found.value + 1);
    assert!(found.reached.upper <= 5.0 && epsilon(&more, Adversary::A0) > 5.0, "{found:?}");
}

/// ε is not monotone in m: all m are tried one by one.
#[test]
fn the_most_groups_are_found_where_rounding_helps() {
    for (samples, rounds, sigma, target) in [(60, 150, 6.0, 8.0), (60, 150, 6.0, 10.0), (97, 40, 3.0, 9.0)] {
        let with = |m| {
            let mut config = run(subsample(samples, m, 1), 1, NoiseScale::Sigma(sigma), 1);
            config.phases[0].length = Length::Epochs(rounds);
            config
        };
        let largest = (1..=samples).filter(|&m| epsilon(&with(m), Adversary::A1) <= target).max();
        let found = groups(&with(1), Adversary::A1, Target::Epsilon { epsilon: target, delta: DELTA });
        assert_eq!(found.ok().map(|found| found.value), largest, "{samples} {sigma} {target}");
    }
}

#[test]
fn the_account_names_what_it_rests_on() {
    let blind = |config: RunConfig| {
        let account =
            Account::of(&config.check().unwrap(), Question::epsilon_at(DELTA).unwrap(), &[0.01]).unwrap();
        let blind = account.against(Adversary::A0).unwrap();
        (blind.basis.clone(), blind.exact, account.zero_concentrated)
    };
    let (basis, exact, rho) = blind(run(subsample(1000, 20, 1), 500, NoiseScale::Sigma(1.0), 1));
    assert!(basis.contains("an upper bound, not known to be attained") && !exact && rho.is_none(), "{basis}");
    let (basis, exact, _) = blind(run(poisson(0.02), 300, NoiseScale::Sigma(1.0), 1));
    assert!(basis.contains("Poisson pair") && !basis.contains("upper bound") && exact, "{basis}");
    let (basis, exact, _) = blind(run(subsample(1000, 20, 1), 500, NoiseScale::Sigma(2.0), 16));
    assert!(basis.starts_with("group privacy in trade-off form, 1 − (1−f)^{∘16}") && !exact, "{basis}");
}

/// P and Q as mixtures of N(v, I) in the plane, with weights.
type Mixture = Vec<([f64; 2], f64)>;

/// ∫ max(p − γq, 0) over the plane by the midpoint rule.
fn hockey_stick(p: &Mixture, q: &Mixture, gamma: f64) -> f64 {
    const CELLS: i32 = 240;
    const HALF: f64 = 9.0;
    let step = 2.0 * HALF / f64::from(CELLS);
    let at = |mixture: &Mixture, x: f64, y: f64| -> f64 {
        let density = |v: &[f64; 2]| (-0.5 * ((x - v[0]).powi(2) + (y - v[1]).powi(2))).exp();
        mixture.iter().map(|(v, weight)| weight * density(v)).sum()
    };
    let mut sum = 0.0;
    for i in 0..CELLS {
        for j in 0..CELLS {
            let (x, y) = (-HALF + (f64::from(i) + 0.5) * step, -HALF + (f64::from(j) + 0.5) * step);
            sum += (at(p, x, y) - gamma * at(q, x, y)).max(0.0);
        }
    }
    sum * step * step / std::f64::consts::TAU
}

/// The mixture over all subsets of some vectors, each kept with probability `rate`.
fn kept(vectors: &[[f64; 2]], rate: f64) -> Mixture {
    vectors.iter().fold(vec![([0.0; 2], 1.0)], |mixture, v| {
        mixture
            .into_iter()
            .flat_map(|(sum, weight)| {
                [(sum, weight * (1.0 - rate)), ([sum[0] + v[0], sum[1] + v[1]], weight * rate)]
            })
            .collect()
    })
}

/// docs/theory.md §3: whatever vectors removed and added samples have, one line in opposite directions is
/// worst. A slow check of the theorem in the plane, up to the error of the quadrature.
#[test]
fn opposite_directions_on_one_line_are_the_worst() {
    let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(17);
    for (removed, added) in [(1, 1), (1, 0), (0, 1), (2, 0), (2, 1), (2, 2), (1, 3)] {
        for _ in 0..4 {
            let (rate, length) = (random.random_range(0.05..0.6), random.random_range(0.3..1.5));
            let gamma = random.random_range(0.3..4.0);
            let mut vector = || {
                let (angle, r): (f64, f64) = (
                    random.random_range(0.0..std::f64::consts::TAU),
                    random.random_range(0.0..=1.0_f64).sqrt(),
                );
                [length * r * angle.cos(), length * r * angle.sin()]
            };
            let v: Vec<[f64; 2]> = (0..removed).map(|_| vector()).collect();
            let w: Vec<[f64; 2]> = (0..added).map(|_| vector()).collect();
            let any = hockey_stick(&kept(&v, rate), &kept(&w, rate), gamma);
            let line = |count: usize, sign: f64| kept(&vec![[sign * length, 0.0]; count], rate);
            let worst = hockey_stick(&line(removed, 1.0), &line(added, -1.0), gamma);
            assert!(any <= worst + 1e-5, "{removed} {added} {rate} {length} {gamma}: {any} {worst}");
        }
    }
}
