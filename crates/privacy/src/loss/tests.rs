//! The engines against each other.

use super::*;
use crate::adversary::{blind_loss, known_by_moments};
use crate::mechanism::{Length, Neighbours, NoiseScale, PhaseConfig, RunConfig, Sampling};

fn run(sampling: Sampling, rounds: u64, noise: NoiseScale, differing: u64) -> RunConfig {
    let length = Length::Rounds(rounds);
    let phase = PhaseConfig { sampling, length, noise, filtered: false };
    RunConfig { differing, ..RunConfig::single(phase) }
}

fn overlap(a: Interval, b: Interval) -> bool {
    a.lower <= b.upper && b.lower <= a.upper
}

/// The contour and the grid share only the description of the round; each certifies an
/// interval, and the two must overlap.
#[test]
fn both_engines_agree_within_their_intervals() {
    let subsample = Sampling::Subsample { samples: 500, groups: 5, group_size: 2 };
    let poisson = |rate| Sampling::Poisson { rate };
    let mut substitute = run(poisson(0.05), 80, NoiseScale::Multiplier(1.5), 1);
    substitute.neighbours = Neighbours::Substitute;
    let mut released = run(subsample, 60, NoiseScale::Sigma(1.0), 1);
    released.releases = vec![0.4];
    for (config, reversed) in [
        (run(poisson(0.02), 300, NoiseScale::Multiplier(0.7), 1), false),
        (run(poisson(0.02), 300, NoiseScale::Multiplier(0.7), 1), true),
        (run(poisson(0.02), 300, NoiseScale::Multiplier(2.0), 3), false),
        (substitute, false),
        (run(subsample, 200, NoiseScale::Sigma(0.8), 1), false),
        (run(subsample, 200, NoiseScale::Sigma(2.0), 4), false),
        (released, false),
    ] {
        let loss = blind_loss(&config.check().unwrap(), reversed).unwrap();
        for epsilon in [0.0, 0.3, 1.0, 3.0] {
            let contour = loss.line_of_delta(epsilon).unwrap().delta(epsilon);
            let grid = loss.grid().delta(epsilon);
            assert!(overlap(contour, grid), "{config:?} {epsilon}: {contour:?} {grid:?}");
            assert!(contour.width() < 1e-7 * contour.upper, "{config:?} {epsilon}: {contour:?}");
            assert!(grid.width() < 0.2 * grid.upper, "{config:?} {epsilon}: {grid:?}");
        }
    }
}

#[test]
fn both_engines_agree_for_the_adversary_who_knows_the_sampling() {
    let shuffle = Sampling::Shuffle { samples: 130, groups: 4, group_size: 4 };
    let config = run(shuffle, 8 * 12, NoiseScale::Sigma(3.0), 2);
    let mechanism = config.check().unwrap();
    let moments = known_by_moments(&mechanism).unwrap();
    let direct = crate::adversary::mixture(&mechanism).unwrap().unwrap();
    for epsilon in [0.0, 0.5, 2.0, 6.0] {
        let contour = moments.line_of_delta(epsilon).unwrap().delta(epsilon);
        let (grid, sum) = (moments.grid().delta(epsilon), direct.delta(epsilon).unwrap());
        assert!(overlap(contour, grid), "{epsilon}: {contour:?} {grid:?}");
        assert!(overlap(contour, sum), "{epsilon}: {contour:?} {sum:?}");
        assert!(contour.width() < 1e-9 * contour.upper);
    }
}

/// One round has a closed form: δ(ε) = P[Y > ε] − e^ε·Q[Y > ε].
#[test]
fn one_round_is_exact_and_the_grid_holds_it() {
    let config = run(Sampling::Poisson { rate: 0.1 }, 1, NoiseScale::Multiplier(1.0), 1);
    let loss = blind_loss(&config.check().unwrap(), false).unwrap();
    for epsilon in [0.1_f64, 0.5, 2.0] {
        let x = ((epsilon.exp() - 0.9) / 0.1).ln() + 0.5;
        let q = crate::normal::cdf(-x);
        let p = 0.9 * q + 0.1 * crate::normal::cdf(1.0 - x);
        let delta = loss.delta(epsilon).unwrap();
        assert!(delta.contains(p - epsilon.exp() * q), "{epsilon}: {delta:?}");
        assert!(delta.width() < 1e-10 * delta.upper, "{delta:?}");
        let grid = loss.grid().delta(epsilon);
        assert!(overlap(delta, grid), "{delta:?} {grid:?}");
        let point = loss.point(epsilon).unwrap();
        assert!(point.alpha.contains(q) && point.alpha.width() < 1e-10 * q, "{point:?} {q}");
    }
}
