//! Wrong values are refused and named; extreme but valid ones get a valid interval from A₁.

use dpsgd_privacy::adversary::{Adversary, curve};
use dpsgd_privacy::conversions::Renyi;
use dpsgd_privacy::curve::{Curve, SMALLEST_DELTA};
use dpsgd_privacy::mechanism::{Length, Neighbours, NoiseScale, PhaseConfig, RunConfig, Sampling};
use dpsgd_privacy::{Interval, gaussian};

const WRONG: [f64; 7] = [0.0, -1.0, -1e300, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 5e-324];

fn subsample(samples: u64, groups: u64, group_size: u64) -> Sampling {
    Sampling::Subsample { samples, groups, group_size }
}

fn shuffle(samples: u64, groups: u64, group_size: u64) -> Sampling {
    Sampling::Shuffle { samples, groups, group_size }
}

fn run(sampling: Sampling, rounds: u64, sigma: f64, differing: u64) -> RunConfig {
    let (length, noise) = (Length::Rounds(rounds), NoiseScale::Sigma(sigma));
    let phase = PhaseConfig { sampling, length, noise, filtered: false };
    RunConfig { differing, ..RunConfig::single(phase) }
}

fn assert_inside(value: Interval, low: f64, high: f64, what: &str) {
    let ordered = low <= value.lower && value.lower <= value.upper && value.upper <= high;
    assert!(ordered, "{what}: {value:?} is not inside [{low}, {high}]");
}

#[test]
fn wrong_descriptions_are_refused_by_name() {
    let good = || run(subsample(1000, 5, 2), 100, 1.0, 1);
    for (config, name) in [
        (run(subsample(0, 5, 2), 100, 1.0, 1), "samples"),
        (run(subsample(1 << 54, 5, 2), 100, 1.0, 1), "samples"),
        (run(subsample(1000, 0, 2), 100, 1.0, 1), "groups"),
        (run(subsample(1000, 5, 0), 100, 1.0, 1), "group-size"),
        (run(subsample(9, 5, 2), 100, 1.0, 1), "groups × group-size"),
        (run(shuffle(1000, u64::MAX, 3), 100, 1.0, 1), "groups × group-size"),
        (run(subsample(1000, 5, 2), 0, 1.0, 1), "rounds"),
        (run(subsample(1000, 5, 2), u64::MAX, 1.0, 1), "rounds"),
        (run(subsample(1000, 5, 2), 100, 1.0, 0), "differing"),
        (run(subsample(1000, 5, 2), 100, 1.0, 513), "differing"),
        (run(subsample(10, 5, 2), 100, 1.0, 11), "differing"),
        (RunConfig { neighbours: Neighbours::AddRemove, ..good() }, "neighbours"),
        (RunConfig { phases: Vec::new(), ..good() }, "phase"),
    ] {
        let error = config.check().unwrap_err();
        assert_eq!(error.name, name, "{config:?}: {error}");
    }
    for x in WRONG.into_iter().chain([1e-300, 1e300]) {
        assert!(run(subsample(1000, 5, 2), 100, x, 1).check().is_err(), "sigma {x}");
        assert!(run(Sampling::Poisson { rate: x }, 100, 1.0, 1).check().is_err(), "rate {x}");
        // A release of 5e-324 is absurd but valid.
        if x != 5e-324 && x != 1e-300 {
            assert!(RunConfig { releases: vec![x], ..good() }.check().is_err(), "release {x}");
        }
    }
    let mut filtered = run(Sampling::Poisson { rate: 0.1 }, 100, 1.0, 1);
    filtered.phases[0].filtered = true;
    assert_eq!(filtered.check().unwrap_err().name, "filter");
    assert_eq!(subsample(10, 0, 5).rounds_per_epoch(), 0);
    assert_eq!(shuffle(10, u64::MAX, 5).rounds_per_epoch(), 0);
}

#[test]
fn questions_outside_their_range_are_refused() {
    for sampling in [subsample(1000, 5, 2), shuffle(1000, 5, 2), Sampling::Poisson { rate: 0.01 }] {
        let mechanism = run(sampling, 500, 1.0, 1).check().unwrap();
        for adversary in [Adversary::A0, Adversary::A1] {
            let Ok(curve) = curve(&mechanism, adversary) else { continue };
            let curve: &dyn Curve = &*curve;
            for x in WRONG {
                assert!(curve.epsilon(x).is_err(), "{adversary:?} epsilon({x})");
                if !(x >= 0.0 && x.is_finite()) {
                    assert!(curve.delta(x).is_err(), "{adversary:?} delta({x})");
                    assert!(curve.point(x).is_err(), "{adversary:?} point({x})");
                    assert!(curve.beta(x).is_err(), "{adversary:?} beta({x})");
                    assert!(curve.mu(x).is_err(), "{adversary:?} mu({x})");
                }
            }
            assert!(curve.epsilon(1.0).is_err() && curve.beta(1.5).is_err() && curve.mu(0.5).is_err());
            assert!(curve.epsilon(SMALLEST_DELTA / 2.0).is_err());
            assert_inside(curve.delta(1e300).unwrap(), 0.0, 1e-9, "delta(1e300)");
        }
    }
}

/// The adversary who knows the draws: every allowed size, length and noise has an answer.
#[test]
fn extremes_of_the_allowed_range_are_answered_for_a1() {
    let most = 1 << 53;
    for config in [
        run(subsample(1000, 5, 2), 1000, 0.05, 16),
        run(subsample(1000, 5, 2), 1000, 1e5, 1),
        run(subsample(1, 1, 1), 1, 2.0, 1),
        run(subsample(512, 512, 1), 2, 2.0, 512),
        run(subsample(most, 1, 1), 1_000_000_000_000, 2.0, 1),
        run(subsample(most, 1 << 40, 1 << 10), 1000, 2.0, 64),
        run(shuffle(most, 1, 1), 1000, 2.0, 64),
        run(shuffle(1000, 10, 10), 3, 1e5, 12),
        run(shuffle(60_000, 64, 1), 93_700, 0.05, 8),
        run(Sampling::Poisson { rate: 1e-9 }, 1_000_000_000_000, 1.0, 4),
        run(Sampling::Poisson { rate: 1.0 }, 1, 0.05, 512),
        RunConfig { releases: vec![5e-324, 1e3], ..run(subsample(1000, 5, 2), 100, 1.0, 1) },
    ] {
        let curve = curve(&config.check().unwrap(), Adversary::A1).unwrap();
        for delta in [1e-5, 1e-30] {
            assert_inside(curve.epsilon(delta).unwrap(), 0.0, f64::MAX, &format!("{config:?} ε({delta})"));
        }
        for epsilon in [0.0, 1.0, 1e4] {
            assert_inside(curve.delta(epsilon).unwrap(), 0.0, 1.0, &format!("{config:?} δ({epsilon})"));
        }
        assert_inside(curve.beta(0.01).unwrap(), 0.0, 0.99, &format!("{config:?} f(0.01)"));
    }
}

/// The same for A₀, at the edges where accounting still has to work in practice.
#[test]
fn edges_of_practice_are_answered_for_a0() {
    let poisson = |rate| Sampling::Poisson { rate };
    for config in [
        run(subsample(60_000, 1, 1), 6_000_000, 2.0, 1),
        run(subsample(60_000, 64, 1), 1, 2.0, 1),
        run(subsample(60_000, 64, 1), 937, 0.3, 1),
        run(subsample(1000, 1000, 1), 50, 2.0, 3),
        run(poisson(1e-4), 100_000, 0.4, 1),
        run(poisson(0.5), 3, 1.0, 1),
        run(poisson(1.0), 1000, 5.0, 2),
    ] {
        let curve = curve(&config.check().unwrap(), Adversary::A0).unwrap();
        let epsilon = curve.epsilon(1e-5).unwrap();
        assert_inside(epsilon, 0.0, f64::MAX, &format!("{config:?}"));
        // Few rounds are answered by the grid, the others to 1e-6 and better (see golden.rs).
        assert!(epsilon.width() <= 1e-3 * epsilon.upper, "{config:?}: {epsilon:?}");
        assert_inside(curve.beta(0.01).unwrap(), 0.0, 0.99, &format!("{config:?} f(0.01)"));
    }
}

#[test]
fn closed_forms_end_for_every_number() {
    let numbers = WRONG.into_iter().chain([1e-310, 1e-17, 0.5, 1.0, 40.0, 1e300]);
    for mu in numbers.clone() {
        for x in numbers.clone() {
            // Each call must return, and for arguments in range never NaN.
            let (delta, epsilon, through) =
                (gaussian::delta(mu, x), gaussian::epsilon(mu, x), gaussian::mu_of(x, mu));
            if mu > 0.0 && mu.is_finite() && x >= 0.0 && x.is_finite() {
                assert!((0.0..=1.0).contains(&delta), "δ of G_{mu} at {x}: {delta}");
                assert!(epsilon >= 0.0, "ε of G_{mu} at {x}: {epsilon}");
                assert!(!through.is_nan() || mu >= 1.0, "µ of ({x}, {mu}): {through}");
            }
        }
    }
}

/// Two answers about one run do not contradict each other: where δ(ε) is certainly below some δ, ε(δ) is not
/// certified to be above that ε. In the far tail of the grid used for few rounds, the mass of a cell is a
/// difference of two numbers and smaller than their rounding.
#[test]
fn few_rounds_far_in_the_tail_do_not_contradict_themselves() {
    for (rate, multiplier, rounds) in [(0.1, 8.0, 3), (0.01, 4.0, 2), (0.3, 10.0, 5)] {
        let mut config = run(Sampling::Poisson { rate }, rounds, 1.0, 1);
        config.phases[0].noise = NoiseScale::Multiplier(multiplier);
        for neighbours in [Neighbours::Substitute, Neighbours::AddRemove] {
            let mechanism = RunConfig { neighbours, ..config.clone() }.check().unwrap();
            let curve = curve(&mechanism, Adversary::A0).unwrap();
            for epsilon in [0.2, 0.5, 0.8] {
                let what = format!("{rate} {multiplier} {rounds} {neighbours:?} {epsilon}");
                let delta = curve.delta(epsilon).unwrap();
                assert_inside(delta, 0.0, 1.0, &what);
                for above in [1.0, 1e3, 1e9] {
                    let wanted = delta.upper * above;
                    if (SMALLEST_DELTA..0.5).contains(&wanted) {
                        let back = curve.epsilon(wanted).unwrap();
                        assert!(back.lower <= epsilon * (1.0 + 1e-9), "{what}: δ {delta:?}, ε {back:?}");
                    }
                }
            }
        }
    }
}

/// Once, the far end of a grid underflowed into NaN, and the smaller end of an interval became the larger one.
/// δ(ε) falls from TV(P, Q) ≤ T·q·(2Φ(s/2) − 1) for T rounds that hit a sample with probability q and move by s
/// deviations; rounds so rare and quiet keep ε below what a round that hits for certain would have.
#[test]
fn rare_and_quiet_rounds_have_ordered_ends() {
    let mut config = run(Sampling::Poisson { rate: 6.465679468854444e-7 }, 3, 12.624016031760826, 8);
    config.neighbours = Neighbours::Substitute;
    let best = curve(&config.check().unwrap(), Adversary::A0).unwrap();
    for delta in [1e-7, 1e-9, 8.025e-11, 1e-14, 1e-20] {
        // Once a round is hit, G_µ with µ = 16/25.2 bounds it; three rounds with √3 times as much.
        let most = gaussian::epsilon(3_f64.sqrt() * 16.0 / 25.248, delta);
        assert_inside(best.epsilon(delta).unwrap(), 0.0, most, &format!("ε({delta})"));
    }
    // All of it is smaller than the probability that any round is hit at all.
    let hit = 3.0 * 8.0 * 2.0 * 6.47e-7;
    for epsilon in [0.0, 1e-6, 6e-3, 36.0, 40.0] {
        assert_inside(best.delta(epsilon).unwrap(), 0.0, hit, &format!("δ({epsilon})"));
    }
}

/// Whatever is asked, there is an answer, no worse than that of A₁ and in bounded memory: no question is
/// refused because it would take too long.
#[test]
fn costly_questions_get_a_wider_answer() {
    let poisson = |rate, rounds, sigma, g| RunConfig {
        neighbours: Neighbours::AddRemove,
        ..run(Sampling::Poisson { rate }, rounds, sigma, g)
    };
    let then = |mut first: RunConfig, second: RunConfig| {
        first.phases.extend(second.phases);
        first
    };
    let mixed = then(
        run(subsample(3_707_973, 4, 1), 73_406, 5.0, 8),
        run(subsample(59_327_578, 64, 1), 73_406, 0.0571, 8),
    );
    let noisy = then(poisson(0.0088, 4, 4.6, 64), poisson(0.0088, 4, 0.143, 64));
    for config in [mixed, noisy, poisson(0.0003825, 2, 0.0905, 8), poisson(2.9e-7, 49_758, 0.263, 2)] {
        let mechanism = config.check().unwrap();
        let told = curve(&mechanism, Adversary::A1).unwrap().epsilon(1e-15).unwrap();
        let best = curve(&mechanism, Adversary::A0).unwrap().epsilon(1e-15).unwrap();
        assert_inside(best, 0.0, told.upper * (1.0 + 1e-9), &format!("{config:?}"));
    }
}

/// All 64 samples in one round have a probability of about 1e-400, which no double holds, and a loss of about 8000:
/// moments of order 2 consist of nothing else.
#[test]
fn divergences_count_what_is_too_rare_for_a_number() {
    let config = run(subsample(100_000_000, 100, 1), 1000, 0.5, 64);
    let told = Renyi::of(&config.check().unwrap(), Adversary::A1).unwrap().divergence(2.0).unwrap();
    // In each round ln(q·e^{µ²}), with µ = 128 and q above (0.36·1e-6)^64.
    let least = 1000.0 * (128.0_f64.powi(2) + 64.0 * (0.36e-6_f64).ln());
    assert!(told.lower <= least && least <= told.upper && told.upper < 1.1 * least, "{told:?} {least:e}");
    let blind = Renyi::of(&config.check().unwrap(), Adversary::A0).unwrap().divergence(2.0).unwrap();
    assert!(blind.upper >= least - 1000.0 * 64.0 * 1e6_f64.ln(), "{blind:?}");
    // With fewer samples nothing is lost, and the interval is narrow.
    let fewer = run(subsample(100_000_000, 100, 1), 1000, 0.5, 8);
    let told = Renyi::of(&fewer.check().unwrap(), Adversary::A1).unwrap().divergence(2.0).unwrap();
    assert!(told.width() < 1e-9 * told.upper, "{told:?}");
}
