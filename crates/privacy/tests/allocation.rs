//! Random allocation against values computed elsewhere, a second engine, closed forms and slow quadrature.
//!
//! `golden/allocation.json` holds 27 settings from two runs in ball arithmetic on different contours.

use dpsgd_privacy::allocation::grid::Grid;
use dpsgd_privacy::allocation::{AllocationPair, Direction, Phase, known, substitution};
use dpsgd_privacy::{Curve, Interval, gaussian, normal};
use serde_json::Value;

/// The relative width that is promised.
const WIDTH: f64 = 1e-8;

fn phase(rounds: u64, epochs: u64, noise_multiplier: f64) -> Phase {
    Phase { rounds, epochs, noise_multiplier }
}

fn pair(rounds: u64, epochs: u64, noise_multiplier: f64) -> AllocationPair {
    AllocationPair::new(&[phase(rounds, epochs, noise_multiplier)]).expect("a valid phase")
}

fn digits(value: &Value) -> f64 {
    value.as_str().expect("digits").parse().expect("a number")
}

/// The accuracy of a reference: its last digit, and at best a few roundings of its conversion to a double.
fn stated(value: &Value) -> f64 {
    let text = value.as_str().expect("digits").replace('.', "");
    let significant = text.trim_start_matches('0').len() as i32;
    10_f64.powi(1 - significant).max(4e-15)
}

/// The interval holds the reference, which was rounded to `accuracy`, and is narrow.
fn check(got: Interval, reference: f64, accuracy: f64, what: &str) {
    let slack = accuracy * reference;
    assert!(
        got.lower <= reference + slack && reference - slack <= got.upper,
        "{what}: {got:?} {reference:e}"
    );
    assert!(got.width() <= WIDTH * reference, "{what}: {got:?} is wide");
}

fn golden() -> Vec<Value> {
    let file: Value = serde_json::from_str(include_str!("golden/allocation.json")).expect("valid JSON");
    let settings = file["settings"].as_array().expect("a list").clone();
    assert_eq!(settings.len(), 27);
    settings
}

/// Checks every `every`th setting from `first` on, so that the work is spread over threads.
fn check_golden(first: usize, every: usize) {
    for setting in golden().iter().skip(first).step_by(every) {
        let (b, e) = (setting["B"].as_u64().expect("B"), setting["E"].as_u64().expect("E"));
        let z = setting["z"].as_f64().expect("z");
        let delta = digits(&setting["delta"]);
        let pair = pair(b, e, z);
        let name = format!("B {b} E {e} z {z} δ {delta}");
        let accuracy = stated(&setting["epsilon_pq"]);
        let forward = pair.epsilon_of(Direction::Forward, delta).expect("a line");
        let reverse = pair.epsilon_of(Direction::Reverse, delta).expect("a line");
        check(forward, digits(&setting["epsilon_pq"]), accuracy, &format!("{name} forward"));
        check(reverse, digits(&setting["epsilon_qp"]), accuracy, &format!("{name} reverse"));
        check(pair.epsilon(delta).expect("a line"), digits(&setting["epsilon"]), accuracy, &name);
        for row in setting["delta_of_eps"].as_array().expect("rows") {
            let epsilon = digits(&row["eps"]);
            let what = format!("{name} at {epsilon}");
            let at = |d| pair.delta_of(d, epsilon).expect("a line");
            // ε and z are decimal fractions, rounded to doubles here: at z = 0.4, ε = 9.4135 that alone moves
            // δ by 1.24e-14 of itself (condition numbers −134 in ln z and −5.7 in ε).
            check(at(Direction::Forward), digits(&row["delta_pq"]), accuracy.max(2e-14), &what);
            check(at(Direction::Reverse), digits(&row["delta_qp"]), accuracy.max(2e-14), &what);
        }
        for row in setting["tradeoff_T_Q_P"].as_array().expect("rows") {
            let alpha = digits(&row["alpha"]);
            let beta = pair.tradeoff(Direction::Forward, alpha).expect("a line");
            check(beta, digits(&row["beta_QvsP"]), accuracy, &format!("{name} at α = {alpha}"));
        }
    }
}

#[test]
fn intervals_hold_the_references_1() {
    check_golden(0, 3);
}

#[test]
fn intervals_hold_the_references_2() {
    check_golden(1, 3);
}

#[test]
fn intervals_hold_the_references_3() {
    check_golden(2, 3);
}

#[test]
fn one_round_is_gaussian() {
    for (epochs, z) in [(1, 1.0), (4, 0.7), (100, 3.0)] {
        let pair = pair(1, epochs, z);
        let mu = (epochs as f64).sqrt() / z;
        for epsilon in [0.0, 0.5, 2.0] {
            let expected = gaussian::delta(mu, epsilon);
            let accuracy = 4.0 * gaussian::delta_relative_error(mu, epsilon);
            for direction in Direction::BOTH {
                check(pair.delta_of(direction, epsilon).unwrap(), expected, accuracy, "one round");
            }
        }
        for alpha in [0.5, 0.05, 1e-4] {
            let expected = gaussian::tradeoff(mu, alpha);
            for direction in Direction::BOTH {
                check(pair.tradeoff(direction, alpha).unwrap(), expected, 1e-12, "one round");
            }
        }
    }
}

/// B = 2, E = 1: with x₁ given, L ≤ e^y is a half line in x₂, so Q[Y ≤ y] is one integral of Φ. The
/// trapezoidal rule on a smooth function over the whole line.
fn two_rounds(z: f64, epsilon: f64) -> (f64, f64) {
    let s = 1.0 / z;
    // E(K − W)₊ and E(W − K)₊ of a log-normal with mean 1.
    let put = |k: f64| {
        if k <= 0.0 {
            return 0.0;
        }
        let d = k.ln() / s;
        k * normal::cdf(d + 0.5 * s) - normal::cdf(d - 0.5 * s)
    };
    let call = |k: f64| {
        if k <= 0.0 {
            return 1.0 - k;
        }
        let d = k.ln() / s;
        normal::cdf(-d + 0.5 * s) - k * normal::cdf(-d - 0.5 * s)
    };
    let h = 1e-3;
    let (mut forward, mut reverse) = (0.0, 0.0);
    for i in -12_000_i32..=14_000 {
        let g = f64::from(i) * h;
        let weight = h * normal::density(g);
        let w = (s * g - 0.5 * s * s).exp();
        forward += weight * 0.5 * call(2.0 * epsilon.exp() - w);
        reverse += weight * 0.5 * epsilon.exp() * put(2.0 * (-epsilon).exp() - w);
    }
    (forward, reverse)
}

#[test]
fn two_rounds_agree_with_direct_quadrature() {
    for z in [0.5, 1.0, 2.0] {
        let pair = pair(2, 1, z);
        for epsilon in [0.1, 0.5, 1.5] {
            let (forward, reverse) = two_rounds(z, epsilon);
            let at = |d| pair.delta_of(d, epsilon).unwrap();
            // The integrands have a bend at K = 0, where the rule errs by h² at most.
            for (got, expected) in [(at(Direction::Forward), forward), (at(Direction::Reverse), reverse)] {
                assert!((got.middle() / expected - 1.0).abs() < 1e-6, "{z} {epsilon}: {got:?} {expected:e}");
                assert!(got.width() <= WIDTH * expected);
            }
        }
    }
}

#[test]
fn both_engines_agree() {
    for (b, e, z, h) in
        [(2, 1, 1.0, 0.02), (10, 1, 1.0, 0.02), (16, 2, 1.5, 0.02), (5, 3, 2.0, 0.02), (50, 1, 0.7, 0.02)]
    {
        let pair = pair(b, e, z);
        let grid = Grid::new(phase(b, e, z), h).unwrap();
        for epsilon in [0.0, 0.2, 0.6] {
            for direction in Direction::BOTH {
                let line = pair.delta_of(direction, epsilon).unwrap();
                let ends = grid.delta(direction, epsilon);
                assert!(
                    ends.lower <= line.upper && line.lower <= ends.upper,
                    "{b} {e} {z}: {line:?} {ends:?}"
                );
                assert!(ends.width() < 0.05 * ends.upper + 1e-9, "{b} {e} {z} {epsilon}: {ends:?}");
                assert!(line.width() < WIDTH * line.upper);
            }
        }
    }
}

#[test]
fn the_grid_converges_with_the_square_of_its_step() {
    let width = |h: f64| Grid::new(phase(4, 1, 1.0), h).unwrap().delta(Direction::Forward, 0.5).width();
    let (coarse, fine) = (width(0.08), width(0.04));
    assert!(coarse / fine > 3.0 && coarse / fine < 5.0, "{coarse:e} {fine:e}");
}

#[test]
fn more_epochs_and_less_noise_leak_more() {
    let delta = 1e-6;
    let mut last = 0.0;
    for epochs in [1, 2, 5, 20] {
        let epsilon = pair(50, epochs, 1.0).epsilon(delta).unwrap();
        assert!(epsilon.lower > last, "{epochs}");
        last = epsilon.upper;
    }
    let mut last = f64::INFINITY;
    for z in [0.6, 0.8, 1.0, 1.5, 3.0] {
        let epsilon = pair(50, 3, z).epsilon(delta).unwrap();
        assert!(epsilon.upper < last, "{z}");
        last = epsilon.lower;
    }
}

#[test]
fn epsilon_and_delta_are_inverse() {
    let pair = pair(100, 5, 0.9);
    for delta in [1e-3, 1e-6, 1e-12] {
        for direction in Direction::BOTH {
            let epsilon = pair.epsilon_of(direction, delta).unwrap();
            assert!(pair.delta_of(direction, epsilon.upper).unwrap().lower <= delta);
            assert!(pair.delta_of(direction, epsilon.lower).unwrap().upper >= delta);
        }
    }
}

/// Two phases and a release: the same phase split in two, and B = 1 beside a release.
#[test]
fn products_compose() {
    let whole = pair(60, 10, 1.2);
    let split = AllocationPair::new(&[phase(60, 4, 1.2), phase(60, 6, 1.2)]).unwrap();
    let (a, b) = (whole.epsilon(1e-6).unwrap(), split.epsilon(1e-6).unwrap());
    assert!(a.lower <= b.upper && b.lower <= a.upper && b.width() < WIDTH * b.upper, "{a:?} {b:?}");
    let single = AllocationPair::new(&[phase(60, 10, 1.2), phase(1, 4, 4.0)]).unwrap();
    let released = AllocationPair::with_releases(&[phase(60, 10, 1.2)], &[0.5]).unwrap();
    let (a, b) = (single.epsilon(1e-6).unwrap(), released.epsilon(1e-6).unwrap());
    assert!(a.lower <= b.upper && b.lower <= a.upper, "{a:?} {b:?}");
    assert!(a.lower > whole.epsilon(1e-6).unwrap().upper);
    let mixed = AllocationPair::new(&[phase(60, 3, 1.2), phase(200, 5, 0.8)]).unwrap();
    assert!(mixed.epsilon(1e-6).unwrap().width() < 1e-8);
}

#[test]
fn the_curve_answers_everything() {
    let pair = pair(100, 10, 1.0);
    let point = pair.point(0.3).unwrap();
    let delta = 1.0 - point.beta.middle() - 0.3_f64.exp() * point.alpha.middle();
    assert!((delta / point.delta.middle() - 1.0).abs() < 1e-8);
    let beta = pair.beta(0.01).unwrap();
    // The worse direction is below T(Q, P) and T(P, Q).
    for direction in Direction::BOTH {
        assert!(beta.lower <= pair.tradeoff(direction, 0.01).unwrap().upper);
    }
    assert!(beta.width() < 1e-6 * beta.upper);
    let (mu, _) = pair.mu_on_default_range().unwrap();
    assert!(mu.upper < 1.02 * mu.lower && mu.lower > 0.4, "{mu:?}");
}

/// T(P, Q) is the inverse of T(Q, P).
#[test]
fn the_directions_are_inverse_to_each_other() {
    let pair = pair(20, 2, 0.8);
    for alpha in [0.3, 0.01, 1e-5] {
        let beta = pair.tradeoff(Direction::Forward, alpha).unwrap();
        let back = pair.tradeoff(Direction::Reverse, beta.middle()).unwrap();
        assert!((back.middle() / alpha - 1.0).abs() < 1e-6, "{alpha}: {back:?}");
    }
}

#[test]
fn substitution_is_bounded_by_two_steps_and_from_below_by_one() {
    let pair = pair(100, 10, 1.5);
    for epsilon in [0.5, 1.0] {
        let two = substitution::delta_by_two_steps(&pair, epsilon).unwrap();
        let one = pair.delta(epsilon).unwrap();
        // A substitution can pretend to be a removal, and in the Gaussian limit doubles µ.
        assert!(two > one.upper);
        let mu = (10.0_f64 * (1.0 / 2.25_f64).exp_m1() / 100.0).sqrt();
        assert!(two < 40.0 * gaussian::delta(2.0 * mu, epsilon), "{two:e}");
    }
}

#[test]
fn groups_by_split_noise_are_bounds() {
    let one = pair(100, 3, 2.0).epsilon(1e-6).unwrap();
    let two = substitution::group(&[phase(100, 3, 2.0)], 2).unwrap().epsilon(1e-6).unwrap();
    assert!(two.lower > one.upper);
    // All told, two samples in the same round move the sum by two.
    assert!(two.upper < gaussian::epsilon(2.0 * 3.0_f64.sqrt() / 2.0, 1e-6));
}

/// Every allocation of g samples to B·m cells, counted.
fn enumerated(g: u32, rounds: u64, cells: u64, clipped_groups: bool) -> Vec<(u64, f64)> {
    let all = (rounds * cells).pow(g);
    let mut law = std::collections::BTreeMap::new();
    for mut code in 0..all {
        let mut counts = vec![0_u64; (rounds * cells) as usize];
        for _ in 0..g {
            counts[(code % (rounds * cells)) as usize] += 1;
            code /= rounds * cells;
        }
        let round = |r: u64| -> u64 {
            let here = &counts[(r * cells) as usize..((r + 1) * cells) as usize];
            let hits = here.iter().map(|&k| if clipped_groups { k.min(1) } else { k }).sum::<u64>();
            hits * hits
        };
        *law.entry((0..rounds).map(round).sum::<u64>()).or_insert(0.0) += 1.0 / all as f64;
    }
    law.into_iter().collect()
}

#[test]
fn the_law_of_what_is_told_agrees_with_enumeration() {
    let same = |got: Vec<(u64, f64)>, expected: Vec<(u64, f64)>| {
        assert_eq!(got.len(), expected.len(), "{got:?} {expected:?}");
        for ((a, p), (b, q)) in got.into_iter().zip(expected) {
            assert!(a == b && (p / q - 1.0).abs() < 1e-12, "{a} {b} {p} {q}");
        }
    };
    for (g, rounds) in [(1, 4), (2, 3), (4, 3), (5, 2), (3, 1)] {
        same(known::law(g, rounds, known::Clipping::Individual).unwrap(), enumerated(g, rounds, 1, false));
        for cells in [1, 2] {
            let law = known::law(g, rounds, known::Clipping::Groups { cells }).unwrap();
            same(law, enumerated(g, rounds, cells, true));
        }
    }
    assert!(known::law(17, 10, known::Clipping::Individual).is_err());
}

#[test]
fn hostile_settings_are_refused_or_answered() {
    for (b, e, z) in [
        (0, 1, 1.0),
        (10, 1, 0.0),
        (10, 1, f64::NAN),
        (10, 1, -1.0),
        (10, 1, f64::INFINITY),
        (u64::MAX, 1, 1.0),
    ] {
        assert!(AllocationPair::new(&[phase(b, e, z)]).is_err(), "{b} {e} {z}");
    }
    assert!(AllocationPair::with_releases(&[], &[f64::NAN]).is_err());
    let nothing = AllocationPair::new(&[]).unwrap();
    assert_eq!(nothing.epsilon(1e-5).unwrap(), Interval::exact(0.0));
    assert_eq!(nothing.delta(0.0).unwrap(), Interval::exact(0.0));
    let pair = pair(10, 1, 1.0);
    assert!(pair.delta(-1.0).is_err() && pair.delta(f64::NAN).is_err());
    assert!(pair.epsilon(0.0).is_err() && pair.epsilon(1.0).is_err());
    // Far beyond what is resolved an upper end is still a bound.
    let far = pair.delta(60.0).unwrap();
    assert!(far.lower == 0.0 && far.upper < 1e-100, "{far:?}");
    // A run that hides nothing, and one whose line would be too long: bounds, quickly.
    let open = AllocationPair::new(&[phase(3, 10_000, 0.2)]).unwrap();
    let epsilon = open.epsilon(1e-5).unwrap();
    assert!(epsilon.lower >= 0.0 && epsilon.upper > 1000.0, "{epsilon:?}");
}
