//! The laws of sampler and noise, with fixed seeds. Every assertion below would fail by chance, for
//! a seed not looked at before, with probability at most 1e-6; the thresholds are normal quantiles
//! divided among the cells of a table (Bonferroni), with a little room for the binomial's own tails:
//! |z| < 5.2 for one number, 6.2 for up to 100 cells, 6.7 for up to 2000.

mod toy;

use std::collections::HashSet;

use dpsgd_privacy::mechanism::Sampling;
use dpsgd_privacy::normal;
use dpsgd_train::sampler::Sampler;
use dpsgd_train::{Plan, PlanConfig, Purpose, Randomness, noise};
use toy::{mechanism, shuffle, subsample};

const ONE: f64 = 5.2;
const HUNDRED: f64 = 6.2;
const THOUSANDS: f64 = 6.7;

fn plan(sampling: Sampling, rounds: u64, filtered: bool) -> Plan {
    let config = PlanConfig::new(mechanism(sampling, rounds, 1.0, filtered), 1.0, 1.0);
    config.with_divisor(1.0).check().unwrap()
}

/// Calls `see` with the batch of every round.
fn each_round(plan: &Plan, samples: u32, seed: u64, mut see: impl FnMut(u64, &[u32])) {
    let randomness = Randomness::from_seed(seed, 0);
    let mut sampler = Sampler::new(samples);
    for round in 0..plan.rounds() {
        let position = plan.position(round);
        see(round, sampler.batch(plan, &position, &randomness).samples);
    }
}

/// Every count is Binomial(trials, p).
fn binomial(what: &str, counts: &[u64], trials: u64, p: f64, threshold: f64) {
    let (mean, deviation) = (trials as f64 * p, (trials as f64 * p * (1.0 - p)).sqrt());
    for (cell, &count) in counts.iter().enumerate() {
        let z = (count as f64 - mean) / deviation;
        assert!(z.abs() < threshold, "{what}, cell {cell}: {count} of {trials}, expected {mean}, z = {z}");
    }
}

#[test]
fn subsampling_is_a_uniform_ordered_draw() {
    let (n, m, s, rounds) = (40usize, 4usize, 3usize, 200_000);
    let size = m * s;
    let plan = plan(subsample(n as u64, m as u64, s as u64), rounds, false);
    let mut slots = vec![0; size * n];
    let mut together = vec![0; n * n];
    let mut same_group = vec![0; n * n];
    let mut overlap = 0u64;
    let mut last: Vec<u32> = Vec::new();
    each_round(&plan, n as u32, 11, |_, batch| {
        assert_eq!(batch.len(), size);
        for (slot, &a) in batch.iter().enumerate() {
            slots[slot * n + a as usize] += 1;
            for (other, &b) in batch.iter().enumerate().skip(slot + 1) {
                assert_ne!(a, b);
                let pair = a.min(b) as usize * n + a.max(b) as usize;
                together[pair] += 1;
                same_group[pair] += u64::from(slot / s == other / s);
            }
        }
        overlap += last.iter().filter(|&a| batch.contains(a)).count() as u64;
        last = batch.to_vec();
    });
    binomial("slot", &slots, rounds, 1.0 / n as f64, THOUSANDS);
    let pairs: Vec<usize> = (0..n * n).filter(|pair| pair / n < pair % n).collect();
    let counts = |table: &[u64]| pairs.iter().map(|&pair| table[pair]).collect::<Vec<_>>();
    let all = (n * (n - 1)) as f64;
    binomial("pair", &counts(&together), rounds, (size * (size - 1)) as f64 / all, THOUSANDS);
    binomial("pair in a group", &counts(&same_group), rounds, (m * s * (s - 1)) as f64 / all, THOUSANDS);
    // Consecutive rounds are independent: their overlap is hypergeometric.
    let (share, rest) = (size as f64 / n as f64, (n - size) as f64 / (n - 1) as f64);
    let (mean, variance) = (size as f64 * share, size as f64 * share * (1.0 - share) * rest);
    let z = (overlap as f64 - (rounds - 1) as f64 * mean) / ((rounds - 1) as f64 * variance).sqrt();
    assert!(z.abs() < ONE, "overlap: z = {z}");
}

#[test]
fn permutations_put_every_sample_everywhere() {
    let (n, rounds_per_epoch, size) = (20usize, 3, 6);
    let epochs = 100_000u64;
    let plan = plan(shuffle(n as u64, 2, 3), epochs * rounds_per_epoch, false);
    let mut slots = vec![0; n * n];
    let mut neighbours = vec![0; n * n];
    let mut again = vec![0; n];
    let mut order: Vec<u32> = Vec::new();
    let mut before: Vec<u32> = Vec::new();
    each_round(&plan, n as u32, 12, |round, batch| {
        order.extend(batch);
        if round % rounds_per_epoch + 1 == rounds_per_epoch {
            assert_eq!(order.len(), 3 * size);
            for (slot, &a) in order.iter().enumerate() {
                slots[slot * n + a as usize] += 1;
                again[slot] += u64::from(before.get(slot) == Some(&a));
            }
            for pair in order.windows(2) {
                neighbours[pair[0] as usize * n + pair[1] as usize] += 1;
            }
            before = std::mem::take(&mut order);
        }
    });
    binomial("position", &slots[..18 * n], epochs, 1.0 / n as f64, THOUSANDS);
    binomial("same position in the next epoch", &again[..18], epochs - 1, 1.0 / n as f64, HUNDRED);
    let pairs: Vec<u64> =
        (0..n * n).filter(|pair| pair / n != pair % n).map(|pair| neighbours[pair]).collect();
    // The 17 places of a pair exclude one another.
    binomial("neighbours", &pairs, epochs, 17.0 / (n * (n - 1)) as f64, THOUSANDS);
}

#[test]
fn poisson_keeps_every_sample_independently() {
    let (n, rate, rounds) = (300usize, 0.03, 200_000);
    let plan = plan(Sampling::Poisson { rate }, rounds, false);
    let mut kept = vec![0; n];
    let mut neighbours = vec![0; n - 1];
    let mut repeated = vec![0; n];
    let mut sizes = vec![0u64; n + 1];
    let mut last = vec![false; n];
    each_round(&plan, n as u32, 13, |_, batch| {
        sizes[batch.len()] += 1;
        let mut now = vec![false; n];
        batch.iter().for_each(|&a| assert!(!std::mem::replace(&mut now[a as usize], true)));
        for a in 0..n {
            kept[a] += u64::from(now[a]);
            repeated[a] += u64::from(now[a] && last[a]);
            if a > 0 {
                neighbours[a - 1] += u64::from(now[a] && now[a - 1]);
            }
        }
        last = now;
    });
    binomial("kept", &kept, rounds, rate, THOUSANDS);
    binomial("neighbours", &neighbours, rounds, rate * rate, THOUSANDS);
    binomial("repeated", &repeated, rounds - 1, rate * rate, THOUSANDS);
    // The law of the size: every count of at least 100 expected rounds, and the rest together.
    let mut probability = (1.0 - rate).powi(n as i32);
    let mut rest = (0, 1.0);
    let mut cells = 0;
    for (size, &count) in sizes.iter().enumerate() {
        if probability * rounds as f64 >= 100.0 {
            binomial(&format!("size {size}"), &[count], rounds, probability, HUNDRED);
            rest = (rest.0 + count, rest.1 - probability);
            cells += 1;
        }
        probability *= (n - size) as f64 / (size + 1) as f64 * rate / (1.0 - rate);
    }
    assert!((15..40).contains(&cells));
    binomial("other sizes", &[rounds - rest.0], rounds, rest.1, HUNDRED);
}

#[test]
fn poisson_skips_longer_than_its_table() {
    let (n, rate, rounds) = (20_000usize, 1e-4, 100_000);
    let plan = plan(Sampling::Poisson { rate }, rounds, false);
    let mut kept = vec![0; 100];
    let mut empty = 0;
    each_round(&plan, n as u32, 14, |_, batch| {
        batch.iter().for_each(|&a| kept[a as usize * 100 / n] += 1);
        empty += u64::from(batch.is_empty());
    });
    binomial("hundredth of the data", &kept, rounds * n as u64 / 100, rate, HUNDRED);
    binomial("empty", &[empty], rounds, (1.0 - rate).powi(n as i32), ONE);
}

#[test]
fn poisson_with_rate_one_keeps_all() {
    each_round(&plan(Sampling::Poisson { rate: 1.0 }, 3, false), 1000, 15, |_, batch| {
        let mut batch = batch.to_vec();
        batch.sort_unstable();
        assert_eq!(batch, (0..1000).collect::<Vec<_>>());
    });
}

#[test]
fn allocation_puts_every_sample_into_one_round_independently() {
    let (n, per_epoch, epochs) = (60usize, 7usize, 100_000u64);
    let plan = plan(Sampling::Allocate { rounds: per_epoch as u64 }, epochs * per_epoch as u64, false);
    let mut places = vec![0; n * per_epoch];
    let mut together = vec![0; n * n];
    let mut again = vec![0; n];
    let mut neighbours_again = vec![0; n];
    let mut sizes = vec![0u64; per_epoch * (n + 1)];
    // The round of every sample in this epoch and in the one before it.
    let (mut now, mut before) = (vec![usize::MAX; n], vec![usize::MAX; n]);
    each_round(&plan, n as u32, 21, |round, batch| {
        let b = round as usize % per_epoch;
        sizes[b * (n + 1) + batch.len()] += 1;
        for &a in batch {
            assert_eq!(std::mem::replace(&mut now[a as usize], b), usize::MAX, "twice in an epoch");
        }
        if b + 1 < per_epoch {
            return;
        }
        assert!(now.iter().all(|&b| b < per_epoch), "every sample is in a round");
        for a in 0..n {
            places[a * per_epoch + now[a]] += 1;
            again[a] += u64::from(now[a] == before[a]);
            neighbours_again[a] += u64::from(now[a] == before[(a + 1) % n]);
            for b in a + 1..n {
                together[a * n + b] += u64::from(now[a] == now[b]);
            }
        }
        before = std::mem::replace(&mut now, vec![usize::MAX; n]);
    });
    let p = 1.0 / per_epoch as f64;
    binomial("place", &places, epochs, p, THOUSANDS);
    let pairs: Vec<u64> = (0..n * n).filter(|pair| pair / n < pair % n).map(|pair| together[pair]).collect();
    binomial("two samples in one round", &pairs, epochs, p, THOUSANDS);
    binomial("the same round in the next epoch", &again, epochs - 1, p, HUNDRED);
    binomial("a neighbour's round in the next epoch", &neighbours_again, epochs - 1, p, HUNDRED);
    // The size of each round is Binomial(N, 1/B), which balanced rounds would not have.
    for b in 0..per_epoch {
        let mut probability = (1.0 - p).powi(n as i32);
        let mut cells = 0;
        for size in 0..=n {
            if probability * epochs as f64 >= 100.0 {
                let count = sizes[b * (n + 1) + size];
                binomial(&format!("round {b}, size {size}"), &[count], epochs, probability, THOUSANDS);
                cells += 1;
            }
            probability *= (n - size) as f64 / (size + 1) as f64 * p / (1.0 - p);
        }
        assert!((15..30).contains(&cells), "{cells}");
    }
}

/// Every sample is in one of the B·m cells of an epoch, independently of the others; a filter empties half of
/// the cells, whatever they hold.
#[test]
fn allocation_in_cells() {
    let (n, b, m, epochs) = (30usize, 3usize, 4usize, 100_000u64);
    let sampling = Sampling::AllocateCells { rounds: b as u64, groups: m as u64, group_size: 2 };
    for (filtered, kept) in [(false, 1.0), (true, 0.5)] {
        let plan = plan(sampling, epochs * b as u64, filtered);
        let randomness = Randomness::from_seed(22, 0);
        let mut sampler = Sampler::new(n as u32);
        let mut places = vec![0; n * b * m];
        let mut together = vec![0; n * n];
        let mut again = vec![0; n];
        let (mut now, mut before) = (vec![None; n], vec![None; n]);
        for round in 0..plan.rounds() {
            let position = plan.position(round);
            let batch = sampler.batch(&plan, &position, &randomness);
            assert_eq!(batch.groups().count(), m);
            for (h, cell) in batch.groups().enumerate() {
                let place = position.round_of_epoch as usize * m + h;
                for (i, &a) in cell.iter().enumerate() {
                    assert_eq!(now[a as usize].replace(place), None, "twice in an epoch");
                    places[a as usize * b * m + place] += 1;
                    cell[i + 1..].iter().for_each(|&c| together[a as usize * n + c as usize] += 1);
                }
            }
            if position.round_of_epoch as usize + 1 == b {
                assert!(filtered || now.iter().all(Option::is_some));
                for (again, (now, before)) in again.iter_mut().zip(now.iter().zip(&before)) {
                    *again += u64::from(now.is_some() && now == before);
                }
                before = std::mem::replace(&mut now, vec![None; n]);
            }
        }
        let p = 1.0 / (b * m) as f64;
        binomial("cell", &places, epochs, kept * p, THOUSANDS);
        // Two samples of one cell are kept or left out together.
        let pairs: Vec<u64> =
            (0..n * n).filter(|pair| pair / n < pair % n).map(|pair| together[pair]).collect();
        binomial("two samples in one cell", &pairs, epochs, kept * p, THOUSANDS);
        binomial("the same cell in the next epoch", &again, epochs - 1, kept * kept * p, HUNDRED);
    }
}

#[test]
fn the_filter_keeps_half_of_the_groups() {
    // 70 groups of two: more than the 64 bits of one word.
    let (n, m, rounds) = (140usize, 70usize, 100_000);
    let (all, half) =
        (subsample(n as u64, m as u64, 2), plan(subsample(n as u64, m as u64, 2), rounds, true));
    let all = plan(all, rounds, false);
    let randomness = Randomness::from_seed(16, 0);
    let (mut whole, mut filtered) = (Sampler::new(n as u32), Sampler::new(n as u32));
    let mut kept = vec![0; m];
    let mut neighbours = vec![0; m - 1];
    let mut sample = vec![0; n];
    let mut repeated = vec![0; m];
    let mut last = vec![false; m];
    for round in 0..rounds {
        let whole = whole.batch(&all, &all.position(round), &randomness).samples;
        let left = filtered.batch(&half, &half.position(round), &randomness).samples;
        // The kept groups are some of the unfiltered ones.
        let left: HashSet<&[u32]> = left.chunks(2).collect();
        let now: Vec<bool> = whole.chunks(2).map(|group| left.contains(group)).collect();
        assert_eq!(left.len(), now.iter().filter(|kept| **kept).count());
        for h in 0..m {
            kept[h] += u64::from(now[h]);
            repeated[h] += u64::from(now[h] && last[h]);
            if h > 0 {
                neighbours[h - 1] += u64::from(now[h] && now[h - 1]);
            }
            if now[h] {
                whole[2 * h..2 * h + 2].iter().for_each(|&a| sample[a as usize] += 1);
            }
        }
        last = now;
    }
    binomial("kept", &kept, rounds, 0.5, HUNDRED);
    binomial("neighbours", &neighbours, rounds, 0.25, HUNDRED);
    binomial("repeated", &repeated, rounds - 1, 0.25, HUNDRED);
    binomial("kept sample", &sample, rounds, 0.5, THOUSANDS);
}

#[test]
fn integers_below_a_bound_are_uniform() {
    // A bound at which multiplication without rejection would favour a third of the values by half.
    let bound = 3 << 30;
    let mut stream = Randomness::from_seed(17, 0).stream(Purpose::Splitting, 0);
    let mut counts = vec![0; 96];
    let mut remainders = vec![0; 3];
    let draws = 3_000_000;
    for _ in 0..draws {
        let value = stream.below(bound);
        counts[(value / (bound / 96)) as usize] += 1;
        remainders[(value % 3) as usize] += 1;
    }
    binomial("ninety-sixth", &counts, draws, 1.0 / 96.0, HUNDRED);
    binomial("remainder", &remainders, draws, 1.0 / 3.0, HUNDRED);
}

const D: usize = 10_001;
const ROUNDS: u64 = 400;

fn normals(seed: u64, round: u64) -> Vec<f32> {
    let mut out = vec![0.0; D];
    noise::fast::draws(&Randomness::from_seed(seed, 0), round, &mut out);
    out
}

#[test]
fn moments_of_the_noise() {
    let mut sums = [0.0; 4];
    for round in 0..ROUNDS {
        for x in normals(18, round) {
            let x = f64::from(x);
            sums[0] += x;
            sums[1] += x * x - 1.0;
            sums[2] += x * x * x;
            sums[3] += x * x * x * x - 3.0;
        }
    }
    let n = (ROUNDS * D as u64) as f64;
    // Var x = 1, Var x² = 2, Var x³ = 15, Var x⁴ = 96.
    for (moment, (sum, variance)) in sums.iter().zip([1.0, 2.0, 15.0, 96.0]).enumerate() {
        let z = sum / (n * variance).sqrt();
        assert!(z.abs() < ONE + 0.3, "moment {}: z = {z}", moment + 1);
    }
}

#[test]
fn the_noise_is_normal_everywhere() {
    let mut all: Vec<f32> = (0..100).flat_map(|round| normals(19, round)).collect();
    all.sort_by(f32::total_cmp);
    let n = all.len() as f64;
    let mut gap = 0.0f64;
    for (rank, &x) in all.iter().enumerate() {
        let cdf = normal::cdf(f64::from(x));
        gap = gap.max((rank as f64 + 1.0) / n - cdf).max(cdf - rank as f64 / n);
    }
    // Kolmogorov and Smirnov: P(√n·gap > 2.7) < 2·exp(−2·2.7²) = 9e-7.
    assert!(n.sqrt() * gap < 2.7, "{}", n.sqrt() * gap);
}

#[test]
fn tails_of_the_noise() {
    let rounds = 3000;
    let limits = [2.0, 3.0, 4.0, 4.5, 5.0];
    let mut counts = [[0u64; 2]; 5];
    for round in 0..rounds {
        for x in normals(20, round) {
            for (limit, count) in limits.iter().zip(&mut counts) {
                count[0] += u64::from(x > *limit);
                count[1] += u64::from(x < -*limit);
            }
        }
    }
    let trials = rounds * D as u64;
    for (&limit, count) in limits.iter().zip(&counts) {
        let p = normal::cdf(-f64::from(limit));
        if f64::from(limit) < 4.6 {
            binomial(&format!("tail {limit}"), count, trials, p, HUNDRED);
        } else {
            // Poisson with mean 8.6: more than 29 with probability 4e-8, none with 2e-4, so only
            // both tails empty would be a sign, and that has probability 3e-8.
            assert!(count.iter().all(|&count| count <= 29) && count[0] + count[1] > 0, "{count:?}");
        }
    }
}

#[test]
fn coordinates_blocks_rounds_and_seeds_are_independent() {
    let check = |what: &str, pairs: &mut dyn Iterator<Item = (f32, f32)>| {
        let (mut n, mut plain, mut squares, mut mixed) = (0.0, 0.0, 0.0, 0.0);
        for (x, y) in pairs {
            let (x, y) = (f64::from(x), f64::from(y));
            n += 1.0;
            plain += x * y;
            squares += (x * x - 1.0) * (y * y - 1.0) / 2.0;
            mixed += x * (y * y - 1.0) / 2f64.sqrt();
        }
        let root = f64::sqrt(n);
        for (kind, sum) in [("xy", plain), ("x²y²", squares), ("xy²", mixed)] {
            // Heavier tails than a normal sum's, hence the wider limit.
            assert!((sum / root).abs() < HUNDRED, "{what} {kind}: z = {}", sum / root);
        }
    };
    let rounds: Vec<Vec<f32>> = (0..ROUNDS).map(|round| normals(21, round)).collect();
    for lag in [1, 2, 3, noise::BLOCK - 1, noise::BLOCK, 2 * noise::BLOCK] {
        let mut pairs = rounds.iter().flat_map(|x| x.iter().zip(&x[lag..]).map(|(&x, &y)| (x, y)));
        check(&format!("coordinates {lag} apart"), &mut pairs);
    }
    let pairs = |a: &[Vec<f32>], b: &[Vec<f32>]| -> Vec<(f32, f32)> {
        a.iter()
            .zip(b)
            .flat_map(|(x, y)| x.iter().copied().zip(y.iter().copied()).collect::<Vec<_>>())
            .collect()
    };
    check("consecutive rounds", &mut pairs(&rounds, &rounds[1..]).into_iter());
    let other: Vec<Vec<f32>> = (0..ROUNDS).map(|round| normals(22, round)).collect();
    check("other seed", &mut pairs(&rounds, &other).into_iter());
    let resumed: Vec<Vec<f32>> = (0..ROUNDS)
        .map(|round| {
            let mut out = vec![0.0; D];
            noise::fast::draws(&Randomness::from_seed(21, 1), round, &mut out);
            out
        })
        .collect();
    check("continued run", &mut pairs(&rounds, &resumed).into_iter());
}
