//! The law of c² against enumeration, exact generating functions and the samplers themselves.

mod common;

use std::collections::BTreeMap;

use common::exact::{self, Exact};
use common::{allocate, cells, filtered, only_phase, poisson, run, shuffle, subsample};
use dpsgd_privacy::exposure::{Law, RoundLaw, law_of_phase};
use dpsgd_privacy::mechanism::{NoiseScale, RunConfig, Sampling};
use num_bigint::BigUint;
use num_traits::Zero;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha20Rng;

const NOISE: NoiseScale = NoiseScale::Sigma(1.0);

fn law_of(run: &RunConfig) -> Law {
    let mechanism = run.check().expect("a valid run");
    law_of_phase(&mechanism, only_phase(&mechanism)).expect("a law that can be listed")
}

fn round_law_of(run: &RunConfig) -> RoundLaw {
    let mechanism = run.check().expect("a valid run");
    RoundLaw::of_phase(&mechanism, only_phase(&mechanism))
}

/// L_b of the first `rounds` rounds when the differing samples stand at `positions`.
fn hits(positions: u32, groups: u64, group_size: u64, rounds: u64) -> Vec<u32> {
    let mut seen = vec![0u32; rounds as usize];
    for position in (0..32).filter(|i| positions >> i & 1 == 1) {
        let round = position / (groups * group_size);
        if round < rounds {
            seen[round as usize] |= 1 << (position % (groups * group_size) / group_size);
        }
    }
    seen
}

/// c² of the first `rounds` rounds of an epoch over all placements of the differing samples, each
/// with all ways to keep or drop its hit groups. For one round, `squared = false` gives k itself.
fn enumerate(
    (samples, groups, group_size): (u64, u64, u64),
    rounds: u64,
    differing: u64,
    filter: bool,
    squared: bool,
) -> Exact {
    let g = differing as usize;
    // 2^g outcomes for each placement: the coins of groups that do not exist are counted double.
    let coins = if filter { 1u32 << g } else { 1 };
    let mut counts = vec![BigUint::zero(); g * g + 1];
    let mut whole = BigUint::zero();
    for positions in (0u32..1 << samples).filter(|p| u64::from(p.count_ones()) == differing) {
        let rounds = hits(positions, groups, group_size, rounds);
        for coin in 0..coins {
            let mut coin_of = (0..).map(|i| !filter || coin >> i & 1 == 1);
            let mut value = 0;
            for groups in &rounds {
                let kept = (0..groups.count_ones()).filter(|_| coin_of.next() == Some(true)).count();
                value += if squared { kept * kept } else { kept };
            }
            counts[value] += 1u32;
            whole += 1u32;
        }
    }
    Exact { counts, whole }
}

/// Every (N, m, s) with ms ≤ N ≤ 9.
fn small_sizes() -> impl Iterator<Item = (u64, u64, u64)> {
    (1..=9u64).flat_map(|n| (1..=n).flat_map(move |m| (1..=n / m).map(move |s| (n, m, s))))
}

#[test]
fn one_round_is_the_enumerated_round() {
    for (n, m, s) in small_sizes() {
        for g in 1..=n.min(4) {
            for filter in [false, true] {
                let setting = format!("N={n} m={m} s={s} g={g} filtered={filter}");
                let exact = enumerate((n, m, s), 1, g, filter, false);
                let base = run(subsample(n, m, s), 1, NOISE, g);
                let law = round_law_of(&if filter { filtered(base) } else { base });
                exact.check_round(&law, &setting);
            }
        }
    }
}

#[test]
fn subsampling_is_the_enumerated_rounds() {
    for (n, m, s) in small_sizes() {
        for g in 1..=n.min(4) {
            for filter in [false, true] {
                let round = enumerate((n, m, s), 1, g, filter, true);
                for t in [1, 2, 3, 7] {
                    let base = run(subsample(n, m, s), t, NOISE, g);
                    let law = law_of(&if filter { filtered(base) } else { base });
                    let setting = format!("subsample N={n} m={m} s={s} g={g} T={t} filtered={filter}");
                    round.power_by_convolution(t).check(&law, &setting);
                }
            }
        }
    }
}

#[test]
fn shuffling_is_the_enumerated_epochs() {
    for (n, m, s) in small_sizes() {
        let per_epoch = n / (m * s);
        for g in 1..=n.min(4) {
            for filter in [false, true] {
                let epoch = enumerate((n, m, s), per_epoch, g, filter, true);
                // Whole epochs and, where an epoch has more than one round, incomplete ones.
                let rests = [0, 1, per_epoch / 2, per_epoch - 1];
                for t in [0, 1, 3].into_iter().flat_map(|e| rests.map(|rest| e * per_epoch + rest)) {
                    if t == 0 {
                        continue;
                    }
                    let last = enumerate((n, m, s), t % per_epoch, g, filter, true);
                    let exact = epoch.power_by_convolution(t / per_epoch).convolve(&last);
                    let base = run(shuffle(n, m, s), t, NOISE, g);
                    let law = law_of(&if filter { filtered(base) } else { base });
                    let setting = format!("shuffle N={n} m={m} s={s} g={g} T={t} filtered={filter}");
                    exact.check(&law, &setting);
                }
            }
        }
    }
}

#[test]
fn poisson_is_the_exact_binomial() {
    // Rates that are exact in binary, so that the oracle has the same rate.
    for (numerator, bits) in [(1u64, 1u64), (3, 3), (1, 10), (1023, 10), (1, 30)] {
        let rate = numerator as f64 / (1u64 << bits) as f64;
        for g in [1, 2, 3, 5, 16, 64] {
            let round = binomial_law(g, numerator, 1 << bits);
            let law = round_law_of(&run(poisson(rate), 1, NOISE, g));
            round.check_round(&law, &format!("poisson rate={rate} g={g}"));
            // The oracle's integers grow with g·T, its number of values with g²·T.
            for t in [1, 2, if g > 16 { 3 } else { 40 }] {
                let setting = format!("poisson rate={rate} g={g} T={t}");
                let law = law_of(&run(poisson(rate), t, NOISE, g));
                let last = law.iter().last().map_or(0, |(n, _)| n as usize);
                round.squares().power(t, last).check(&law, &setting);
            }
        }
    }
}

/// The oracle for large cases is itself checked: by enumeration and by plain convolution.
#[test]
fn generating_functions_agree_with_the_enumeration() {
    for (n, m, s) in small_sizes().filter(|&(n, ..)| n >= 7) {
        for g in 1..=4 {
            for filter in [false, true] {
                let round = exact::round(n, m, s, g, filter);
                let enumerated = enumerate((n, m, s), 1, g, filter, false);
                for (k, count) in round.counts.iter().enumerate() {
                    assert_eq!(count * &enumerated.whole, &enumerated.counts[k] * &round.whole);
                }
                let squares = round.squares();
                assert_eq!(squares.power(5, usize::MAX), squares.power_by_convolution(5));
                for rounds in 1..=n / (m * s) {
                    let epoch = exact::epoch(n, m, s, rounds, g, filter);
                    let enumerated = enumerate((n, m, s), rounds, g, filter, true);
                    for (c, count) in epoch.counts.iter().enumerate() {
                        assert_eq!(count * &enumerated.whole, &enumerated.counts[c] * &epoch.whole);
                    }
                }
            }
        }
    }
}

#[test]
fn subsampling_agrees_with_exact_generating_functions() {
    for (n, m, s, g, t) in [
        (1000, 7, 9, 12, 50),
        (1000, 10, 10, 12, 3),
        (1000, 100, 10, 6, 9),       // ms = N: q_0 = 0
        (64, 8, 8, 40, 4),           // ms = N, few groups, many differing samples
        (500, 1, 50, 8, 400),        // batch clipping
        (500, 50, 1, 8, 100),        // individual clipping
        (60_000, 64, 1, 4, 2000),    // the recurrence with a short right end
        (60_000, 16, 64, 8, 300),    // c² mostly small, long right tail
        (1_000_000, 4, 25, 3, 5000), // rare hits
        (30, 1, 1, 1, 30_000),       // the left tail underflows: q_0^T = e^−1017
        (5, 1, 4, 1, 3000),          // q_0^T underflows and c² is near T
    ] {
        let setting = format!("subsample N={n} m={m} s={s} g={g} T={t}");
        let base = run(subsample(n, m, s), t, NOISE, g);
        for filter in [false, true] {
            let setting = format!("{setting} filtered={filter}");
            let law = law_of(&if filter { filtered(base.clone()) } else { base.clone() });
            let round = exact::round(n, m, s, g, filter);
            round.check_round(
                &round_law_of(&if filter { filtered(base.clone()) } else { base.clone() }),
                &setting,
            );
            let last = law.iter().last().map_or(0, |(n, _)| n as usize);
            let lowest_terms = lowest_terms(&round);
            lowest_terms.squares().power(t, last).check(&law, &setting);
        }
    }
}

/// The same law with smaller integers.
fn lowest_terms(law: &Exact) -> Exact {
    let gcd = law.counts.iter().fold(law.whole.clone(), |mut a, b| {
        let mut b = b.clone();
        while !b.is_zero() {
            (a, b) = (b.clone(), a % b);
        }
        a
    });
    Exact { counts: law.counts.iter().map(|c| c / &gcd).collect(), whole: &law.whole / &gcd }
}

#[test]
fn shuffling_agrees_with_exact_generating_functions() {
    for (n, m, s, g, t) in [
        (1000, 7, 9, 12, 50),     // 15 rounds per epoch, leftovers, an incomplete epoch
        (1000, 10, 10, 12, 24),   // g > B
        (1000, 50, 10, 9, 5),     // B = 2, no leftovers
        (1000, 1, 500, 10, 3),    // batch clipping with two rounds
        (1000, 500, 1, 10, 3),    // individual clipping with two rounds
        (1000, 100, 10, 6, 4),    // one round per epoch that takes everything: q_0 = 0
        (1000, 91, 10, 6, 4),     // one round per epoch with leftovers
        (600, 3, 4, 8, 75),       // B = 50 ≥ g
        (60_000, 16, 64, 4, 116), // two epochs
    ] {
        let per_epoch = n / (m * s);
        for filter in [false, true] {
            let base = run(shuffle(n, m, s), t, NOISE, g);
            let law = law_of(&if filter { filtered(base) } else { base });
            let epoch = exact::epoch(n, m, s, per_epoch, g, filter);
            let last = exact::epoch(n, m, s, t % per_epoch, g, filter);
            let exact = epoch.power_by_convolution(t / per_epoch).convolve(&last);
            exact.check(&law, &format!("shuffle N={n} m={m} s={s} g={g} T={t} filtered={filter}"));
        }
    }
}

/// The guarantee of [`law_of_phase`] far out, where dropped ends and underflow begin to show.
#[test]
fn far_tails_lose_no_more_than_is_charged() {
    for (n, m, s, g, t) in [(1000, 7, 9, 12, 50), (30, 1, 1, 1, 30_000), (60_000, 64, 1, 4, 2000)] {
        let law = law_of(&run(subsample(n, m, s), t, NOISE, g));
        let last = law.iter().last().map_or(0, |(n, _)| n as usize);
        let exact = lowest_terms(&exact::round(n, m, s, g, false)).squares().power(t, last);
        exact.check(&law, &format!("subsample N={n} m={m} s={s} g={g} T={t}"));
    }
    let law = law_of(&run(shuffle(1_000_003, 10, 10), 40 * 10_000, NOISE, 1));
    binomial_law(40, 1_000_000, 1_000_003).check(&law, "shuffle N=1000003 m=s=10 g=1 E=40");
}

/// One draw of c²: the sampler as Algorithm 1 writes it, with samples 0..g differing.
fn simulate(rng: &mut ChaCha20Rng, sampling: Sampling, rounds: u64, g: u64, filter: bool) -> u64 {
    let count = |batch: &[u32], group_size: u64, rng: &mut ChaCha20Rng| -> u64 {
        let hit = batch.chunks(group_size as usize).filter(|group| group.iter().any(|&i| u64::from(i) < g));
        hit.filter(|_| !filter || rng.random_bool(0.5)).count() as u64
    };
    let mut total = 0;
    match sampling {
        Sampling::Poisson { rate } => {
            for _ in 0..rounds {
                let k = (0..g).filter(|_| rng.random_bool(rate)).count() as u64;
                total += k * k;
            }
        }
        Sampling::Allocate { rounds: per_epoch } => {
            for _ in 0..rounds / per_epoch {
                let mut hits = vec![0; per_epoch as usize];
                for _ in 0..g {
                    let round = rng.random_range(0..per_epoch) as usize;
                    hits[round] += u64::from(!filter || rng.random_bool(0.5));
                }
                total += hits.iter().map(|k| k * k).sum::<u64>();
            }
        }
        Sampling::AllocateCells { rounds: per_epoch, groups, .. } => {
            for _ in 0..rounds / per_epoch {
                let mut hit = vec![false; (per_epoch * groups) as usize];
                for _ in 0..g {
                    hit[rng.random_range(0..per_epoch * groups) as usize] = true;
                }
                for round in hit.chunks(groups as usize) {
                    let hits = round.iter().filter(|hit| **hit);
                    let k = hits.filter(|_| !filter || rng.random_bool(0.5)).count() as u64;
                    total += k * k;
                }
            }
        }
        Sampling::Subsample { samples, groups, group_size } => {
            let mut order: Vec<u32> = (0..samples as u32).collect();
            let batch = (groups * group_size) as usize;
            for _ in 0..rounds {
                for i in 0..batch {
                    let j = rng.random_range(i..order.len());
                    order.swap(i, j);
                }
                let k = count(&order[..batch], group_size, rng);
                total += k * k;
            }
        }
        Sampling::Shuffle { samples, groups, group_size } => {
            let mut order: Vec<u32> = (0..samples as u32).collect();
            let batch = (groups * group_size) as usize;
            let per_epoch = samples as usize / batch;
            for b in 0..rounds as usize {
                if b % per_epoch == 0 {
                    for i in 0..order.len() - 1 {
                        let j = rng.random_range(i..order.len());
                        order.swap(i, j);
                    }
                }
                let from = b % per_epoch * batch;
                let k = count(&order[from..from + batch], group_size, rng);
                total += k * k;
            }
        }
    }
    total
}

/// Every observed frequency against its probability. By Chernoff's bound
/// Pr[frequency beyond x on its side of p] ≤ e^{−n·KL(x‖p)}; over both sides of `values` values the
/// whole test raises a false alarm with probability at most 1e-6, without any asymptotics.
fn assert_frequencies(law: &Law, observed: &BTreeMap<u64, u64>, draws: u64, setting: &str) {
    const FALSE_ALARM: f64 = 1e-6;
    let values: Vec<u64> = law.iter().map(|(n, _)| n).chain(observed.keys().copied()).collect();
    let limit = (2.0 * values.len() as f64 / FALSE_ALARM).ln();
    let part = |x: f64, p: f64| if x == 0.0 { 0.0 } else { x * (x / p).ln() };
    for n in values {
        let x = observed.get(&n).copied().unwrap_or(0) as f64 / draws as f64;
        let p = law.probability(n).min(1.0);
        let kl = part(x, p) + part(1.0 - x, 1.0 - p);
        assert!(draws as f64 * kl <= limit, "{setting}: c² = {n} seen with {x}, law says {p}");
    }
}

#[test]
fn samplers_follow_the_law() {
    const DRAWS: u64 = 100_000;
    for (index, (sampling, rounds, g, filter)) in [
        (subsample(30, 3, 2), 5, 4, false),
        (subsample(30, 3, 2), 5, 4, true),
        (subsample(20, 1, 7), 4, 3, false),
        (shuffle(30, 3, 2), 5, 4, false),
        (shuffle(30, 3, 2), 5, 4, true),
        (shuffle(31, 2, 3), 8, 5, false), // leftovers and an incomplete epoch
        (shuffle(24, 1, 12), 3, 5, true),
        (shuffle(24, 12, 1), 3, 5, false),
        (poisson(0.3), 4, 3, false),
        (poisson(0.01), 20, 6, false),
        (allocate(5), 10, 3, false),
        (allocate(3), 6, 5, false), // more samples than rounds
        (allocate(40), 80, 4, false),
        (allocate(5), 10, 3, true),
        (cells(4, 3), 8, 4, false),
        (cells(4, 3), 8, 4, true),
        (cells(2, 2), 6, 6, false), // more samples than cells
    ]
    .into_iter()
    .enumerate()
    {
        let base = run(sampling, rounds, NOISE, g);
        let law = law_of(&if filter { filtered(base) } else { base });
        let mut rng = ChaCha20Rng::seed_from_u64(0x5eed_0000 + index as u64);
        let mut observed = BTreeMap::new();
        for _ in 0..DRAWS {
            *observed.entry(simulate(&mut rng, sampling, rounds, g, filter)).or_insert(0) += 1;
        }
        let setting = format!("{sampling:?} T={rounds} g={g} filtered={filter}");
        assert_frequencies(&law, &observed, DRAWS, &setting);
    }
}

/// The simulation can tell laws apart: a law that uses the leftover samples fails it.
#[test]
#[should_panic(expected = "law says")]
fn the_statistical_test_notices_a_wrong_law() {
    const DRAWS: u64 = 100_000;
    let mut rng = ChaCha20Rng::seed_from_u64(0x5eed);
    let mut observed = BTreeMap::new();
    for _ in 0..DRAWS {
        *observed.entry(simulate(&mut rng, shuffle(31, 2, 3), 5, 2, false)).or_insert(0) += 1;
    }
    let wrong = law_of(&run(shuffle(30, 2, 3), 5, NOISE, 2));
    assert_frequencies(&wrong, &observed, DRAWS, "a law without left-overs");
}

/// Binomial(trials, numerator/denominator).
fn binomial_law(trials: u64, numerator: u64, denominator: u64) -> Exact {
    let counts = (0..=trials)
        .map(|k| {
            exact::binomial(trials, k)
                * BigUint::from(numerator).pow(k as u32)
                * BigUint::from(denominator - numerator).pow((trials - k) as u32)
        })
        .collect();
    Exact { counts, whole: BigUint::from(denominator).pow(trials as u32) }
}

#[test]
fn shuffling_with_one_differing_sample_is_binomial() {
    // ms divides N: exactly once per epoch.
    for (n, m, s) in [(60_000, 6, 100), (64, 1, 8), (64, 64, 1), (7, 7, 1), (1 << 40, 1 << 10, 1 << 10)] {
        for e in [1, 2, 57, 1000] {
            let law = law_of(&run(shuffle(n, m, s), e * (n / (m * s)), NOISE, 1));
            let listed: Vec<_> = law.iter().collect();
            assert!(
                matches!(listed[..], [(at, q)] if at == e && (q - 1.0).abs() <= law.relative_error()),
                "N={n} m={m} s={s} E={e}: {listed:?}"
            );
            assert_eq!(law.missing(), 0.0);
        }
    }
    // Leftover samples: touched in an epoch with probability B·ms/N.
    for (n, m, s) in [(60_000, 64, 1), (60_000, 1, 64), (10, 3, 1), (11, 2, 5), (1_000_003, 10, 10)] {
        for e in [1, 3, 40] {
            let per_epoch = n / (m * s);
            let law = law_of(&run(shuffle(n, m, s), e * per_epoch, NOISE, 1));
            let exact = binomial_law(e, per_epoch * m * s, n);
            exact.check(&law, &format!("N={n} m={m} s={s} E={e}"));
        }
    }
    // Filtered, ms divides N: kept with probability ½ in every epoch.
    for e in [1, 2, 100, 800] {
        let law = law_of(&filtered(run(shuffle(1000, 10, 10), e * 10, NOISE, 1)));
        binomial_law(e, 1, 2).check(&law, &format!("filtered E={e}"));
    }
}

#[test]
fn mean_of_individual_clipping_is_the_closed_form() {
    for (n, m, g, e) in [
        (60_000u64, 60, 8, 20u64),
        (60_000, 60, 1, 100),
        (60_000, 6000, 64, 3),
        (1000, 10, 40, 7),
        (1000, 1000, 12, 5),
        (120, 12, 120, 2),
    ] {
        let law = law_of(&run(subsample(n, m, 1), e * (n / m), NOISE, g));
        let (nf, mf, gf) = (n as f64, m as f64, g as f64);
        let expected = gf * e as f64 * (1.0 + (gf - 1.0) * (mf - 1.0) / (nf - 1.0));
        let allowed = law.relative_error() + 1e-13;
        assert!((law.mean() / expected - 1.0).abs() <= allowed, "N={n} m={m} g={g} E={e}: {}", law.mean());
    }
}

#[test]
fn the_whole_is_one() {
    for (sampling, t, g) in [
        (subsample(60_000, 64, 1), 93_700, 1),
        (subsample(60_000, 16, 64), 5800, 8),
        (subsample(60_000, 16, 64), 58, 64),
        (subsample(1 << 50, 1 << 20, 1 << 10), 1 << 20, 16),
        (subsample(1000, 1000, 1), 30, 20),
        (shuffle(60_000, 1, 64), 93_700, 4),
        (shuffle(60_000, 64, 1), 93_700, 8),
        (shuffle(60_000, 16, 64), 5800, 32),
        (shuffle(1 << 50, 1 << 20, 1 << 10), 1 << 21, 16),
        (shuffle(60_000, 16, 64), 58, 64),
        (poisson(1e-3), 100_000, 1),
        (poisson(1e-3), 10_000, 20),
        (poisson(1.0), 17, 3),
    ] {
        let law = law_of(&run(sampling, t, NOISE, g));
        let sum: f64 = law.iter().map(|(_, q)| q).sum();
        // The additions themselves round too.
        let allowed = law.missing() + law.relative_error() + law.span() as f64 * f64::EPSILON;
        assert!((sum - 1.0).abs() <= allowed, "{sampling:?} T={t} g={g}: {sum}, allowed {allowed:e}");
    }
}
