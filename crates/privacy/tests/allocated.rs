//! Random allocation as a sampler: guarantees of whole runs through the public interface.

mod common;

use common::exact::Exact;
use common::{allocate, cells, filtered, only_phase, poisson, run, subsample, substituting};
use dpsgd_privacy::account::{Account, Question};
use dpsgd_privacy::adversary::{Adversary, curve};
use dpsgd_privacy::allocation::grid::Grid;
use dpsgd_privacy::allocation::{Direction, Phase, known};
use dpsgd_privacy::calibrate::{self, Target};
use dpsgd_privacy::conversions::{Renyi, zero_concentrated};
use dpsgd_privacy::exposure::{Law, law_of_phase};
use dpsgd_privacy::mechanism::{Length, NoiseScale, RunConfig};
use dpsgd_privacy::{Budget, Curve, Interval, PrivacyError, gaussian};
use num_bigint::BigUint;
use num_traits::Zero;

/// A run of E epochs of B rounds with noise multiplier z, one sample added or removed.
fn epochs(rounds: u64, epochs: u64, z: f64) -> RunConfig {
    run(allocate(rounds), rounds * epochs, NoiseScale::Multiplier(z), 1)
}

fn against(config: &RunConfig, adversary: Adversary) -> Box<dyn Curve> {
    curve(&config.check().expect("a valid run"), adversary).expect("a covered combination")
}

fn differing(mut config: RunConfig, g: u64) -> RunConfig {
    config.differing = g;
    config
}

/// ε at δ = 1e-5 and B = 234, worse direction, from ball arithmetic.
#[test]
fn accounts_have_the_values_of_the_reference() {
    for (z, e, reference) in [
        (1.0, 1, 0.347457440),
        (1.0, 10, 1.047476544),
        (1.0, 100, 3.687628877),
        (0.6, 1, 2.624063854),
        (0.6, 10, 4.684107925),
        (0.6, 100, 13.774537731),
        (0.4, 1, 7.751819896),
        (0.4, 10, 18.827025128),
    ] {
        let epsilon = against(&epochs(234, e, z), Adversary::A0).epsilon(1e-5).unwrap();
        assert!((epsilon.upper - reference).abs() < 1e-9 * (1.0 + reference), "z {z} E {e}: {epsilon:?}");
        assert!(epsilon.width() < 1e-8 * epsilon.upper);
        let told = against(&epochs(234, e, z), Adversary::A1).epsilon(1e-5).unwrap();
        assert!(
            told.contains(gaussian::epsilon((e as f64).sqrt() / z, 1e-5)) || told.width() < 1e-9 * told.upper
        );
        assert!(epsilon.upper < told.lower);
    }
}

/// The whole account of the run that the command line shows.
#[test]
fn an_account_leaves_out_only_what_is_not_computed() {
    let mechanism = epochs(234, 100, 1.0).check().unwrap();
    let account = Account::of(&mechanism, Question::epsilon_at(1e-5).unwrap(), &[0.5]).unwrap();
    assert!(account.refused.is_empty() && account.printed.is_empty() && account.shuffle_floor.is_none());
    let blind = account.against(Adversary::A0).unwrap();
    assert!(blind.answer.upper <= 3.68763 && blind.answer.lower > 3.68762, "{:?}", blind.answer);
    // The divergence of order 32 is above 1000 and says nothing at any δ: it is left out.
    let orders: Vec<f64> = blind.renyi.iter().map(|(order, _)| *order).collect();
    assert!(orders == [2.0, 8.0] && blind.truncated.is_none(), "{orders:?}");
    let (mu, _) = blind.mu.clone().unwrap();
    // The central limit: µ² = (e^{1/z²} − 1)·E/B.
    let limit = (1_f64.exp_m1() * 100.0 / 234.0).sqrt();
    assert!(mu.upper >= mu.lower && (mu.upper / limit - 1.0).abs() < 0.05, "{mu:?} {limit}");
    let told = account.against(Adversary::A1).unwrap();
    assert!(told.renyi.len() == 2 && told.mu.as_ref().unwrap().0.contains(10.0));
    for ((alpha, blind), (_, told)) in blind.tradeoff.iter().zip(&told.tradeoff) {
        assert!(blind.lower > told.upper && blind.width() < 1e-6, "{alpha} {blind:?} {told:?}");
    }
    assert!(
        (account.exposure.0 - 100.0).abs() < 1e-9 && (account.zero_concentrated.unwrap() - 50.0).abs() < 1e-9
    );
}

#[test]
fn one_round_an_epoch_is_a_gaussian() {
    for (z, e) in [(2.0, 1), (3.0, 20)] {
        let plain = epochs(1, e, z);
        let mu = (e as f64).sqrt() / z;
        for (config, mu) in [(plain.clone(), mu), (substituting(plain.clone()), 2.0 * mu)] {
            for adversary in [Adversary::A0, Adversary::A1] {
                let curve = against(&config, adversary);
                for delta in [1e-3, 1e-6] {
                    let (got, exact) = (curve.epsilon(delta).unwrap().upper, gaussian::epsilon(mu, delta));
                    assert!((got / exact - 1.0).abs() < 1e-8, "{config:?} {adversary:?} {got} {exact}");
                }
                let (got, exact) = (curve.beta(0.05).unwrap().lower, gaussian::tradeoff(mu, 0.05));
                assert!((got / exact - 1.0).abs() < 1e-6, "{config:?} {adversary:?} {got} {exact}");
            }
        }
    }
}

/// Every allocation of g samples to B rounds, or to the m cells of each of them; with a filter every choice
/// of the groups that are kept as well.
fn enumerate(rounds: u64, cells: Option<u64>, g: u64, filter: bool) -> Exact {
    let mut counts = vec![BigUint::zero(); (g * g + 1) as usize];
    let places = rounds * cells.unwrap_or(1);
    // A coin for each sample: a group of several samples has the coin of the first of them.
    let coins = if filter { 1u64 << g } else { 1 };
    for all in 0..places.pow(g as u32) * coins {
        let (mut code, coins) = (all / coins, all % coins);
        let mut hits = vec![0usize; rounds as usize];
        let mut seen = Vec::new();
        for sample in 0..g {
            let place = code % places;
            code /= places;
            if cells.is_some() && seen.contains(&place) {
                continue;
            }
            seen.push(place);
            hits[(place / cells.unwrap_or(1)) as usize] += usize::from(!filter || (coins >> sample) & 1 == 1);
        }
        counts[hits.iter().map(|k| k * k).sum::<usize>()] += 1u32;
    }
    Exact { counts, whole: BigUint::from(places).pow(g as u32) * BigUint::from(coins) }
}

/// The same in cells, also with more samples than cells, and with every group kept with probability ½.
#[test]
fn the_law_of_an_epoch_in_cells_is_the_enumerated_law() {
    for (rounds, m) in [(1, 1), (1, 3), (2, 1), (2, 2), (3, 2), (2, 4), (4, 1)] {
        for g in 1..=4u64 {
            for filter in [false, true] {
                for (sampling, m) in [(cells(rounds, m), Some(m)), (allocate(rounds), None)] {
                    let epoch = enumerate(rounds, m, g, filter);
                    let config = run(sampling, 2 * rounds, NoiseScale::Sigma(1.0), g);
                    let mechanism = if filter { filtered(config) } else { config }.check().unwrap();
                    let law = law_of_phase(&mechanism, only_phase(&mechanism)).unwrap();
                    let what = format!("B={rounds} m={m:?} g={g} filtered={filter}");
                    epoch.power_by_convolution(2).check(&law, &what);
                }
            }
        }
    }
}

/// A sample that shares its group moves the sum by 2C: z = σ, whatever the number of cells.
#[test]
fn cells_are_the_pair_with_half_the_noise() {
    for (z, e) in [(1.0, 1), (0.6, 10), (1.5, 100)] {
        // σ of the cells is the z of individual clipping.
        let alone = epochs(234, e, z);
        for m in [1, 16, 1000] {
            let shared = run(cells(234, m), 234 * e, NoiseScale::Sigma(z), 1);
            for adversary in [Adversary::A0, Adversary::A1] {
                let at = |config: &RunConfig| against(config, adversary).epsilon(1e-5).unwrap();
                let (a, b) = (at(&alone), at(&shared));
                assert_eq!((a.lower, a.upper), (b.lower, b.upper), "{z} {e} {m} {adversary:?}");
            }
        }
        // Substituted: told G_{√E/σ}, the sample's cell moves by 2C at most.
        let shared = substituting(run(cells(234, 16), 234 * e, NoiseScale::Sigma(z), 1));
        let told = against(&shared, Adversary::A1).epsilon(1e-5).unwrap();
        assert!((told.upper / gaussian::epsilon((e as f64).sqrt() / z, 1e-5) - 1.0).abs() < 1e-8);
        let blind = against(&shared, Adversary::A0).epsilon(1e-5).unwrap();
        let one = against(&alone, Adversary::A0).epsilon(1e-5).unwrap();
        assert!(blind.lower <= blind.upper && blind.upper <= told.upper && blind.upper > one.upper);
    }
    // More cells than samples collide hardly ever: c² is that of individual clipping.
    let (few, many) = (
        run(cells(9, 2), 9, NoiseScale::Sigma(2.0), 4),
        run(cells(9, 1_000_000), 9, NoiseScale::Sigma(2.0), 4),
    );
    let alone = run(allocate(9), 9, NoiseScale::Multiplier(2.0), 4);
    let at = |config: &RunConfig| against(config, Adversary::A1).epsilon(1e-5).unwrap();
    assert!(at(&few).upper < at(&many).lower);
    assert!((at(&many).upper / at(&alone).upper - 1.0).abs() < 1e-5);
}

/// A filter never hurts, and A₀ never sees more than A₁.
#[test]
fn a_filter_only_helps() {
    for config in [
        epochs(40, 5, 1.2),
        substituting(epochs(40, 5, 1.2)),
        run(cells(40, 8), 200, NoiseScale::Sigma(1.2), 1),
    ] {
        let halved = filtered(config.clone());
        for adversary in [Adversary::A0, Adversary::A1] {
            for delta in [1e-2, 1e-5, 1e-9] {
                let at = |config: &RunConfig| against(config, adversary).epsilon(delta).unwrap();
                let (whole, half, told) =
                    (at(&config), at(&halved), against(&halved, Adversary::A1).epsilon(delta).unwrap());
                assert!(half.upper <= whole.upper * (1.0 + 1e-12), "{config:?} {delta}: {half:?} {whole:?}");
                assert!(half.upper <= told.upper && half.lower <= half.upper, "{config:?} {delta}");
            }
        }
        // One sample: c² is Binomial(E, ½).
        let mechanism = halved.check().unwrap();
        let law = law_of_phase(&mechanism, only_phase(&mechanism)).unwrap();
        for (k, count) in [1.0, 5.0, 10.0, 10.0, 5.0, 1.0].into_iter().enumerate() {
            assert!((law.probability(k as u64) - count / 32.0).abs() < 1e-12, "{law:?}");
        }
    }
}

/// Moments of one epoch of B = 2 by summation over a square, for both directions.
#[test]
fn divergences_are_those_of_the_pair() {
    let (z, h, reach) = (1.2_f64, 0.05, 14.0);
    let n = (2.0 * reach / h) as i64;
    let mechanism = epochs(2, 3, z).check().unwrap();
    let renyi = Renyi::of(&mechanism, Adversary::A0).unwrap();
    for order in [2.0_f64, 3.0, 6.0, 2.5, 1.5] {
        let (mut forward, mut reverse) = (0.0, 0.0);
        for i in 0..=n {
            for j in 0..=n {
                let (x, y) = (-reach + i as f64 * h, -reach + j as f64 * h);
                let q = (-(x * x + y * y) / (2.0 * z * z)).exp() / (2.0 * std::f64::consts::PI * z * z);
                let l = |x: f64| (x / (z * z) - 0.5 / (z * z)).exp();
                let ratio = 0.5 * (l(x) + l(y));
                forward += q * ratio.powf(order) * h * h;
                reverse += q * ratio.powf(1.0 - order) * h * h;
            }
        }
        let exact = 3.0 * forward.max(reverse).ln() / (order - 1.0);
        let got = renyi.divergence(order).unwrap();
        assert!(
            got.lower <= exact * (1.0 + 1e-6) && exact <= got.upper * (1.0 + 1e-6),
            "{order}: {got:?} {exact}"
        );
        let slack = if order.fract() == 0.0 { 1e-6 } else { 0.5 };
        assert!(got.upper <= exact * (1.0 + slack), "{order}: {got:?} {exact}");
    }
}

#[test]
fn the_law_of_an_epoch_is_the_enumerated_law() {
    for rounds in 1..=6u64 {
        for g in 1..=5u64 {
            let epoch = enumerate(rounds, None, g, false);
            for e in [1, 2, 5] {
                // The last epoch is cut short: it counts as a whole one.
                for t in [e * rounds, e * rounds - (rounds - 1) / 2] {
                    let mechanism = differing(run(allocate(rounds), t, NoiseScale::Sigma(1.0), g), g);
                    let mechanism = mechanism.check().unwrap();
                    let law = law_of_phase(&mechanism, only_phase(&mechanism)).unwrap();
                    epoch.power_by_convolution(e).check(&law, &format!("B={rounds} g={g} T={t}"));
                }
            }
        }
    }
}

/// Two generating functions, written twice: for few samples in many rounds and many samples in few.
#[test]
fn the_law_of_an_epoch_agrees_with_the_engine() {
    for (rounds, g) in [(234, 2), (234, 16), (7, 16), (1, 9), (100_000_000, 3)] {
        let mechanism = run(allocate(rounds), rounds, NoiseScale::Sigma(1.0), g).check().unwrap();
        let law = law_of_phase(&mechanism, only_phase(&mechanism)).unwrap();
        let check = |law: &Law, clipping: known::Clipping| {
            for (square, probability) in known::law(g as u32, rounds, clipping).unwrap() {
                let got = law.probability(square);
                let slack = law.missing() + (1e-11 + law.relative_error()) * probability;
                assert!(
                    (got - probability).abs() <= slack,
                    "B={rounds} g={g} {clipping:?} c²={square}: {got} {probability}"
                );
            }
        };
        check(&law, known::Clipping::Individual);
        for m in [1, 5, 64] {
            if rounds * m > 100_000_000 {
                continue;
            }
            let mechanism = run(cells(rounds, m), rounds, NoiseScale::Sigma(1.0), g).check().unwrap();
            let law = law_of_phase(&mechanism, only_phase(&mechanism)).unwrap();
            check(&law, known::Clipping::Groups { cells: m });
        }
    }
    // Many samples: the probabilities sum to 1, and the mean is g + g(g−1)/B.
    for (rounds, g) in [(3, 30), (400, 200), (100_000, 200)] {
        let mechanism = run(allocate(rounds), rounds, NoiseScale::Sigma(1.0), g).check().unwrap();
        let law = law_of_phase(&mechanism, only_phase(&mechanism)).unwrap();
        let total: f64 = law.iter().map(|(_, q)| q).sum();
        let mean = g as f64 + (g * (g - 1)) as f64 / rounds as f64;
        assert!((total - 1.0).abs() < 1e-9 && (law.mean() / mean - 1.0).abs() < 1e-9, "{rounds} {total}");
    }
}

/// The runs of the property tests: relations, numbers of differing samples, phases, releases.
fn runs() -> Vec<RunConfig> {
    let plain = epochs(40, 5, 1.2);
    let mut phases = plain.clone();
    phases.phases.push(epochs(25, 3, 0.9).phases[0]);
    phases.releases = vec![0.3];
    vec![
        plain.clone(),
        phases.clone(),
        substituting(plain.clone()),
        substituting(phases.clone()),
        differing(plain.clone(), 3),
        differing(phases, 2),
        differing(substituting(plain.clone()), 2),
        epochs(1000, 2, 0.3),
        run(cells(40, 8), 200, NoiseScale::Sigma(0.9), 1),
        substituting(run(cells(40, 8), 200, NoiseScale::Sigma(1.2), 1)),
        differing(run(cells(40, 8), 200, NoiseScale::Sigma(1.2), 1), 3),
        filtered(plain),
    ]
}

#[test]
fn hiding_the_allocation_never_hurts() {
    for config in runs() {
        let (blind, told) = (against(&config, Adversary::A0), against(&config, Adversary::A1));
        for delta in [1e-2, 1e-5, 1e-9] {
            let (a, b) = (blind.epsilon(delta).unwrap(), told.epsilon(delta).unwrap());
            assert!(a.lower <= a.upper && a.upper <= b.upper, "{config:?} δ {delta}: {a:?} {b:?}");
        }
        for epsilon in [0.0, 0.4, 2.0, 9.0] {
            let (a, b) = (blind.delta(epsilon).unwrap(), told.delta(epsilon).unwrap());
            assert!(a.lower <= a.upper && a.upper <= b.upper, "{config:?} ε {epsilon}: {a:?} {b:?}");
        }
        for alpha in [1e-4, 0.05, 0.5, 0.9] {
            let (a, b) = (blind.beta(alpha).unwrap(), told.beta(alpha).unwrap());
            assert!(a.lower <= a.upper && a.lower >= b.lower, "{config:?} α {alpha}: {a:?} {b:?}");
        }
        let (a, b) = (blind.mu(1e-5).unwrap(), told.mu(1e-5).unwrap());
        assert!(a.upper <= b.upper, "{config:?}: {a:?} {b:?}");
    }
}

/// ε and δ say the same, and β lies above the supporting line of every δ.
#[test]
fn the_answers_about_a_run_agree() {
    for config in runs() {
        let curve = against(&config, Adversary::A0);
        let epsilon = curve.epsilon(1e-5).unwrap().upper;
        let delta = curve.delta(epsilon).unwrap().upper;
        assert!(delta <= 1e-5 * 1.001 && delta > 0.9e-5, "{config:?}: δ({epsilon}) = {delta}");
        for alpha in [1e-3, 0.05, 0.5] {
            let beta = curve.beta(alpha).unwrap();
            for epsilon in [0.0_f64, 0.5, 1.5, 4.0] {
                let delta = curve.delta(epsilon).unwrap();
                let line = 1.0 - delta.upper - epsilon.exp() * alpha;
                assert!(beta.upper >= line - 1e-9, "{config:?} α {alpha}: {beta:?} {line}");
                // The curve that is reported is nearly the one that δ describes.
                assert!(beta.lower >= line - 5e-3, "{config:?} α {alpha} ε {epsilon}: {beta:?} {line}");
            }
        }
    }
}

#[test]
fn less_noise_and_more_epochs_leak_more() {
    for base in [epochs(60, 4, 1.0), substituting(epochs(60, 4, 1.0)), differing(epochs(60, 4, 1.0), 2)] {
        let epsilon = |config: &RunConfig| against(config, Adversary::A0).epsilon(1e-6).unwrap().upper;
        let mut noise = base.clone();
        let mut last = f64::INFINITY;
        for z in [0.7, 1.0, 1.5, 3.0] {
            noise.phases[0].noise = NoiseScale::Multiplier(z);
            let now = epsilon(&noise);
            assert!(now < last, "{base:?} z {z}: {now} {last}");
            last = now;
        }
        let mut length = base.clone();
        let mut last = 0.0;
        for e in [1, 3, 9] {
            length.phases[0].length = Length::Epochs(e);
            let now = epsilon(&length);
            assert!(now > last, "{base:?} E {e}: {now} {last}");
            last = now;
        }
        // An epoch that was begun is charged whole.
        let mut begun = base.clone();
        begun.phases[0].length = Length::Rounds(3 * 60 + 1);
        assert_eq!(epsilon(&begun), epsilon(&base));
    }
}

/// The second engine, through the sampler.
#[test]
fn the_engines_agree() {
    let config = epochs(20, 2, 1.1);
    let curve = against(&config, Adversary::A0);
    let grid = Grid::new(Phase { rounds: 20, epochs: 2, noise_multiplier: 1.1 }, 0.02).unwrap();
    for epsilon in [0.0, 0.3, 1.0] {
        let got = curve.delta(epsilon).unwrap();
        let other = grid.delta(Direction::Forward, epsilon).max(grid.delta(Direction::Reverse, epsilon));
        assert!(got.lower <= other.upper && other.lower <= got.upper, "{epsilon} {got:?} {other:?}");
    }
}

/// Realisable pairs lie below the bounds: one dimension, B = 2, both samples as far apart as they can be.
#[test]
fn substitution_bounds_what_can_happen() {
    let z = 1.3;
    let config = substituting(epochs(2, 1, z));
    let curve = against(&config, Adversary::A0);
    // δ of (½N((1,0)) + ½N((0,1))) against the same with −1, by summation over a square.
    let (h, reach) = (0.04, 9.0);
    let n = (2.0 * reach / h) as i64;
    let density = |x: f64, y: f64, s: f64| {
        let square = |a: f64, b: f64| (-((x - a).powi(2) + (y - b).powi(2)) / (2.0 * z * z)).exp();
        0.5 * (square(s, 0.0) + square(0.0, s)) / (2.0 * std::f64::consts::PI * z * z)
    };
    for epsilon in [0.0_f64, 0.5, 1.0, 2.0] {
        let mut delta = 0.0;
        for i in 0..=n {
            for j in 0..=n {
                let (x, y) = (-reach + i as f64 * h, -reach + j as f64 * h);
                delta += (density(x, y, 1.0) - epsilon.exp() * density(x, y, -1.0)).max(0.0) * h * h;
            }
        }
        let bound = curve.delta(epsilon).unwrap();
        assert!(
            bound.upper >= delta - 1e-6 && bound.upper < 4.0 * delta + 0.02,
            "{epsilon}: {bound:?} {delta}"
        );
        // The lower end is a test of this very pair, the best one at ε = 0; the sum errs by h² at its bends.
        assert!(bound.lower > 0.0 && bound.lower <= delta + 1e-4, "{epsilon}: {bound:?} {delta}");
    }
}

/// g = 2 in B = 2 rounds, both samples the same: a realisable pair below the bound for two samples.
#[test]
fn two_samples_are_bounded() {
    let z = 1.5;
    let curve = against(&differing(epochs(2, 1, z), 2), Adversary::A0);
    let (h, reach) = (0.04, 10.0);
    let n = (2.0 * reach / h) as i64;
    for epsilon in [0.0_f64, 0.5, 1.0, 2.0] {
        let mut delta = 0.0;
        for i in 0..=n {
            for j in 0..=n {
                let (x, y) = (-reach + i as f64 * h, -reach + j as f64 * h);
                let at = |a: f64, b: f64| {
                    let square = (x - a).powi(2) + (y - b).powi(2);
                    (-square / (2.0 * z * z)).exp() / (2.0 * std::f64::consts::PI * z * z)
                };
                let with = 0.25 * (at(2.0, 0.0) + 2.0 * at(1.0, 1.0) + at(0.0, 2.0));
                delta += (with - epsilon.exp() * at(0.0, 0.0)).max(0.0) * h * h;
            }
        }
        let bound = curve.delta(epsilon).unwrap().upper;
        assert!(bound >= delta - 1e-6 && bound < 4.0 * delta + 0.02, "{epsilon}: {bound} {delta}");
    }
}

#[test]
fn calibration_and_account_agree() {
    let target = Target::Epsilon { epsilon: 2.0, delta: 1e-5 };
    let config = epochs(100, 10, 1.0);
    for adversary in [Adversary::A0, Adversary::A1] {
        let found = calibrate::sigma(&config, adversary, target).unwrap();
        assert!(found.reached.upper <= 2.0 && found.reached.upper > 1.999_999, "{:?}", found.reached);
        let again = curve(&found.mechanism, adversary).unwrap().epsilon(1e-5).unwrap();
        assert_eq!((again.lower, again.upper), (found.reached.lower, found.reached.upper));
    }
    let found = calibrate::epochs(&config, Adversary::A0, target).unwrap();
    let mut longer = config.clone();
    longer.phases[0].length = Length::Epochs(found.value + 1);
    assert!(against(&longer, Adversary::A0).epsilon(1e-5).unwrap().upper > 2.0);
    assert!(matches!(
        calibrate::groups(&config, Adversary::A0, target),
        Err(PrivacyError::Unsupported { .. })
    ));
}

#[test]
fn a_budget_counts_whole_epochs() {
    let mechanism = epochs(50, 6, 1.0).check().unwrap();
    assert_eq!(Adversary::usual(&mechanism), Adversary::A0);
    let budget = Budget { adversary: Adversary::A0, delta: 1e-5 };
    let spent = |rounds| budget.spent(&mechanism, rounds).unwrap();
    assert!(spent(100) < spent(101));
    assert_eq!(spent(101), spent(150));
    assert_eq!(budget.affordable(&mechanism, spent(150)).unwrap(), 150);
    // A begun epoch is skipped by a run that resumes.
    assert_eq!((mechanism.resume_at(101), mechanism.resume_at(100)), (150, 100));
}

/// Beside rounds drawn afresh, an allocated phase is counted as A₁ sees it: less than A₁ for the whole run,
/// more than the rounds alone.
#[test]
fn mixed_samplers_lie_between_the_rounds_alone_and_a1() {
    for other in [poisson(0.01), subsample(1000, 10, 1)] {
        let rounds = substituting(run(other, 300, NoiseScale::Sigma(1.0), 1));
        let mut mixed = substituting(epochs(100, 3, 2.0));
        mixed.phases.push(rounds.phases[0]);
        let mechanism = mixed.check().unwrap();
        assert_eq!(Adversary::usual(&mechanism), Adversary::A0);
        let account = Account::of(&mechanism, Question::epsilon_at(1e-5).unwrap(), &[]).unwrap();
        let [told, blind] = &account.guarantees[..] else { panic!("two guarantees expected") };
        assert!(blind.answer.upper < told.answer.upper, "{blind:?} {told:?}");
        let alone = against(&rounds, Adversary::A0).epsilon(1e-5).unwrap();
        assert!(alone.lower < blind.answer.lower && blind.basis.contains("as A1 sees them"), "{blind:?}");
    }
}

#[test]
fn what_is_not_computed_is_refused() {
    let mechanism = epochs(100, 3, 2.0).check().unwrap();
    let blind = Renyi::of(&mechanism, Adversary::A0).unwrap();
    let error = blind.truncated_concentrated(64.0).unwrap_err();
    assert!(error.to_string().contains("random allocation"), "{error}");
    let told = Renyi::of(&mechanism, Adversary::A1).unwrap();
    for order in [1.2, 2.0, 8.0, 64.0, 300.0] {
        let (blind, told) = (blind.divergence(order).unwrap(), told.divergence(order).unwrap());
        assert!(blind.lower <= blind.upper && blind.upper <= told.upper, "{order}: {blind:?} {told:?}");
    }
    assert!((zero_concentrated(&mechanism) - 3.0 / 8.0).abs() < 1e-12);
    // Little noise and many samples are outside the engine's range: A₁ answers.
    for bare in [differing(epochs(50, 2, 0.2), 40), differing(substituting(epochs(50, 2, 1.0)), 5)] {
        let (blind, told) = (against(&bare, Adversary::A0), against(&bare, Adversary::A1));
        let same = |x: Interval, y: Interval| x.upper <= y.upper;
        assert!(same(blind.delta(1.0).unwrap(), told.delta(1.0).unwrap()));
        assert!(same(blind.epsilon(1e-3).unwrap(), told.epsilon(1e-3).unwrap()));
    }
}
