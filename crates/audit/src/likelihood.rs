//! What an adversary makes of a run: the log-likelihood ratio of D against D'.
//!
//! Given that k groups of a round were hit, the noised sum on the line u, in units of C and relative to a
//! round without canaries, is N(up·k, (2σ)²) for D and N(−down·k, (2σ)²) for D'. A₁ knows every k; A₀ knows
//! their law. By Neyman and Pearson the best test compares the ratio with a threshold; any other statistic
//! would be valid too and only weaker, so nothing here can make the audit claim too much.

use dpsgd_privacy::exposure::RoundLaw;
use dpsgd_privacy::mechanism::{EpochDraw, FixedSizes, Independent, Mechanism, Phase};

use crate::pair::Pair;

/// One round as the audit saw it.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// The noised sum on u, in units of C, without what the other groups add.
    pub y: f64,
    /// The groups with a canary.
    pub hit: u32,
}

/// The likelihoods of one mechanism and pair.
#[derive(Clone, Debug)]
pub struct Likelihood {
    up: f64,
    down: f64,
    variance: f64,
    blind: Blind,
}

/// What A₀ knows about the sampling.
#[derive(Clone, Debug)]
enum Blind {
    /// Rounds are independent: q_k.
    Rounds(Vec<f64>),
    /// In each epoch the canaries have places in a permutation, which is cut into rounds of groups.
    Permutation(Permutation),
    /// In each epoch of `rounds` rounds every canary draws one of them, or one of as many `silent` ones,
    /// independently of the others; `ln` of the factorials of 0 to g.
    Allocation { rounds: usize, silent: usize, ln_factorials: Vec<f64> },
}

/// The places of g canaries in a permutation that is cut into rounds of m groups of s.
#[derive(Clone, Debug)]
struct Permutation {
    rounds: usize,
    /// m·s, the places of a round.
    batch: u64,
    /// N − B·m·s, the places that no round uses.
    left_over: u64,
    /// `ways[j][h]`: ln of the number of ways to put j canaries into the places of a round such that h groups
    /// have one and are kept. (With a filter it is the expected number.)
    ways: Vec<Vec<f64>>,
}

impl Likelihood {
    /// For the mechanism that is run.
    pub fn new(mechanism: &Mechanism, pair: &Pair) -> Self {
        let phase = &mechanism.phases()[0];
        Self {
            up: pair.up,
            down: pair.down,
            variance: 4.0 * phase.sigma() * phase.sigma(),
            blind: Blind::of(mechanism, phase),
        }
    }

    /// ln of the density of N(shift, 4σ²) over that of N(0, 4σ²) at y.
    fn shifted(&self, shift: f64, y: f64) -> f64 {
        shift * (2.0 * y - shift) / (2.0 * self.variance)
    }

    /// The best statistic of A₁.
    pub fn known(&self, run: &[Seen]) -> f64 {
        let ratio = |seen: &Seen| {
            let k = f64::from(seen.hit);
            self.shifted(self.up * k, seen.y) - self.shifted(-self.down * k, seen.y)
        };
        run.iter().map(ratio).sum()
    }

    /// The best statistic of A₀.
    pub fn blind(&self, run: &[Seen]) -> f64 {
        match &self.blind {
            Blind::Rounds(law) => {
                let round = |seen: &Seen| {
                    let mixed = |shift: f64| {
                        let terms =
                            law.iter().enumerate().map(|(k, q)| (*q, self.shifted(shift * k as f64, seen.y)));
                        ln_mean(terms)
                    };
                    mixed(self.up) - mixed(-self.down)
                };
                run.iter().map(round).sum()
            }
            Blind::Permutation(places) => {
                let epoch = |epoch: &[Seen]| {
                    let mixed = |unit: f64| self.permuted(epoch, places, unit);
                    mixed(self.up) - mixed(-self.down)
                };
                run.chunks(places.rounds).map(epoch).sum()
            }
            Blind::Allocation { rounds, silent, ln_factorials } => {
                let epoch = |epoch: &[Seen]| {
                    let silent = silent + rounds - epoch.len();
                    let mixed = |unit: f64| self.allocated(epoch, silent, ln_factorials, unit);
                    mixed(self.up) - mixed(-self.down)
                };
                run.chunks(*rounds).map(epoch).sum()
            }
        }
    }

    /// ln of the density of a shuffled epoch over that of silence, up to a constant.
    ///
    /// All choices of g places out of N are equally likely. Let r_b(h) be the ratio for h hit groups in round b,
    /// and W(j, h) the ways to put j canaries into a round so that h groups have one. The mixture is the
    /// coefficient of x^g in (1 + x)^(N − Bms)·Π_b Σ_j x^j Σ_h W(j, h)·r_b(h), divided by a constant. The
    /// places of rounds that a broken-off last epoch lacks are silent, as those that are left over.
    fn permuted(&self, epoch: &[Seen], places: &Permutation, unit: f64) -> f64 {
        let silent = places.left_over + (places.rounds - epoch.len()) as u64 * places.batch;
        let mut coefficients: Vec<f64> =
            (0..places.ways.len()).map(|k| ln_choose(silent, k as u64)).collect();
        for seen in epoch {
            let of = |ways: &Vec<f64>| {
                let terms = ways.iter().enumerate();
                ln_mean(terms.map(|(h, ways)| (1.0, ways + self.shifted(unit * h as f64, seen.y))))
            };
            let round: Vec<f64> = places.ways.iter().map(of).collect();
            multiply(&mut coefficients, &round);
        }
        coefficients.last().copied().unwrap_or(0.0)
    }

    /// ln of the density of an allocated epoch over that of silence, up to a constant.
    ///
    /// Let r_b(k) be that ratio for k canaries in round b. The mixture over all allocations is g!/B^g times
    /// the sum of Π_b r_b(k_b)/k_b! over all (k_1, …, k_B) that add up to g, which is the coefficient of x^g
    /// in Π_b Σ_k x^k·r_b(k)/k!. In `silent` further rounds (those that a broken-off last epoch lacks, and
    /// those that stand for a filter) r_b = 1.
    fn allocated(&self, epoch: &[Seen], silent: usize, ln_factorials: &[f64], unit: f64) -> f64 {
        let silent = (silent as f64).ln();
        let of_silent = |(k, ln): (usize, &f64)| if k == 0 { 0.0 } else { k as f64 * silent - ln };
        let mut coefficients: Vec<f64> = ln_factorials.iter().enumerate().map(of_silent).collect();
        for seen in epoch {
            let round: Vec<f64> = ln_factorials
                .iter()
                .enumerate()
                .map(|(k, ln)| self.shifted(unit * k as f64, seen.y) - ln)
                .collect();
            multiply(&mut coefficients, &round);
        }
        coefficients.last().copied().unwrap_or(0.0)
    }
}

impl Blind {
    fn of(mechanism: &Mechanism, phase: &Phase) -> Self {
        match phase.sampling().independent() {
            // In cells, several canaries that share one count as one: where that happens, this is not quite
            // the best statistic.
            Independent::Epochs(EpochDraw::Allocation { rounds, .. }) => Blind::Allocation {
                rounds: rounds as usize,
                // A filter drops a canary as often as it keeps it: as many silent rounds again.
                silent: if phase.filtered() { rounds as usize } else { 0 },
                ln_factorials: (0..=mechanism.differing()).scan(0.0, ln_factorial).collect(),
            },
            Independent::Epochs(EpochDraw::Permutation(sizes)) => {
                let rounds = phase.sampling().rounds_per_epoch() as usize;
                Blind::Permutation(Permutation::new(sizes, rounds, mechanism.differing(), phase.filtered()))
            }
            Independent::Rounds => Blind::Rounds(RoundLaw::of_phase(mechanism, phase).mass().to_vec()),
        }
    }
}

impl Permutation {
    fn new(sizes: FixedSizes, rounds: usize, differing: u64, filtered: bool) -> Self {
        let count = differing as usize + 1;
        // ln of the coefficients of (1 + x)^s − 1: the ways to hit one group with j canaries.
        let one: Vec<f64> = (0..count)
            .map(|j| if j == 0 { f64::NEG_INFINITY } else { ln_choose(sizes.group_size, j as u64) })
            .collect();
        let mut ways = vec![vec![f64::NEG_INFINITY; count]; count];
        // Those of its h-th power: the ways to hit each of h groups.
        let mut power = vec![f64::NEG_INFINITY; count];
        power[0] = 0.0;
        for h in 0..count {
            for (j, ways) in ways.iter_mut().enumerate() {
                ways[h] = ln_choose(sizes.groups, h as u64) + power[j];
            }
            multiply(&mut power, &one);
        }
        if filtered {
            for ways in &mut ways {
                let kept = |k: usize| {
                    let of = |h: usize| ways[h] + ln_choose(h as u64, k as u64) - h as f64 * 2f64.ln();
                    ln_mean((k..count).map(|h| (1.0, of(h))))
                };
                *ways = (0..count).map(kept).collect();
            }
        }
        let batch = sizes.batch();
        Self { rounds, batch, left_over: sizes.samples - rounds as u64 * batch, ways }
    }
}

/// ln of the binomial coefficient; −∞ where it is 0.
fn ln_choose(n: u64, k: u64) -> f64 {
    if k > n { f64::NEG_INFINITY } else { (0..k).map(|i| ((n - i) as f64 / (i + 1) as f64).ln()).sum() }
}

/// Multiplies two polynomials that are given by the logarithms of their coefficients, as far as the first goes.
fn multiply(coefficients: &mut [f64], by: &[f64]) {
    // From the highest down: a coefficient needs the old ones below it.
    for t in (0..coefficients.len()).rev() {
        let (old, by) = (&coefficients[..=t], &by[..=t]);
        coefficients[t] = ln_mean(old.iter().zip(by.iter().rev()).map(|(a, b)| (1.0, a + b)));
    }
}

/// ln k!, from ln (k − 1)!.
fn ln_factorial(last: &mut f64, k: u64) -> Option<f64> {
    *last += (k.max(1) as f64).ln();
    Some(*last)
}

/// ln Σ q·e^x over pairs (q, x), without overflow.
fn ln_mean(terms: impl Iterator<Item = (f64, f64)> + Clone) -> f64 {
    let most =
        terms.clone().filter(|term| term.0 > 0.0).fold(f64::NEG_INFINITY, |most, term| most.max(term.1));
    if most == f64::NEG_INFINITY {
        return most;
    }
    most + terms.filter(|term| term.0 > 0.0).map(|(q, x)| q * (x - most).exp()).sum::<f64>().ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratios_are_those_of_the_densities() {
        let density = |x: f64, mean: f64, sd: f64| (-0.5 * ((x - mean) / sd).powi(2)).exp();
        let likelihood = |blind| Likelihood { up: 2.0, down: 0.5, variance: 1.44, blind };
        let run: Vec<Seen> =
            [(0.3, 1), (-1.4, 0), (2.0, 2), (0.1, 0)].map(|(y, hit)| Seen { y, hit }).to_vec();
        let known = run.iter().map(|seen| {
            let k = f64::from(seen.hit);
            (density(seen.y, 2.0 * k, 1.2) / density(seen.y, -0.5 * k, 1.2)).ln()
        });
        let rounds = likelihood(Blind::Rounds(vec![0.5, 0.3, 0.2]));
        assert!((rounds.known(&run) - known.sum::<f64>()).abs() < 1e-12);
        let blind = run.iter().map(|seen| {
            let mixed = |unit: f64| {
                [(0.5, 0.0), (0.3, 1.0), (0.2, 2.0)]
                    .iter()
                    .map(|(q, k)| q * density(seen.y, unit * k, 1.2))
                    .sum::<f64>()
            };
            (mixed(2.0) / mixed(-0.5)).ln()
        });
        assert!((rounds.blind(&run) - blind.sum::<f64>()).abs() < 1e-12);
        // Epochs of two rounds: the canary is in the first, in the second or left out.
        let sizes = FixedSizes { samples: 5, groups: 1, group_size: 2 };
        let epochs = likelihood(Blind::Permutation(Permutation::new(sizes, 2, 1, true)));
        let both = |epoch: &[Seen], a: f64, b: f64| density(epoch[0].y, a, 1.2) * density(epoch[1].y, b, 1.2);
        let expected: f64 = run
            .chunks(2)
            .map(|epoch| {
                let mixed = |unit: f64| {
                    0.2 * both(epoch, unit, 0.0) + 0.2 * both(epoch, 0.0, unit) + 0.6 * both(epoch, 0.0, 0.0)
                };
                (mixed(2.0) / mixed(-0.5)).ln()
            })
            .sum();
        assert!((epochs.blind(&run) - expected).abs() < 1e-12);
    }

    /// Every choice of places for the canaries, one after the other, with and without a filter, also where the
    /// run ends within an epoch.
    #[test]
    fn the_mixture_of_all_permutations() {
        let density = |x: f64, mean: f64| (-0.5 * ((x - mean) / 1.2).powi(2)).exp();
        let run: Vec<Seen> = [0.3, -1.4, 2.0, 0.1, 1.1].map(|y| Seen { y, hit: 0 }).to_vec();
        for (samples, groups, group_size, rounds, differing, filtered) in [
            (5, 1, 2, 2usize, 1u64, false),
            (7, 3, 1, 2, 2, false),
            (8, 2, 2, 2, 3, false),
            (9, 2, 2, 2, 2, true),
            (13, 2, 2, 3, 4, false),
            (13, 1, 4, 3, 3, true),
        ] {
            let mixed = |epoch: &[Seen], unit: f64| -> f64 {
                let mut sum = 0.0;
                for places in (0u32..1 << samples).filter(|set| u64::from(set.count_ones()) == differing) {
                    let batch = groups * group_size;
                    let mut product = 1.0;
                    for (b, seen) in epoch.iter().enumerate() {
                        let first = b as u64 * batch;
                        let hit = |group: u64| {
                            let begin = first + group * group_size;
                            (begin..begin + group_size).any(|place| places >> place & 1 == 1)
                        };
                        let hits = (0..groups).filter(|&group| hit(group)).count() as u32;
                        // Each hit group is kept by a coin of its own.
                        let kept = |k: u32| {
                            let coins = (0u32..1 << hits).filter(|set| set.count_ones() == k).count();
                            coins as f64 / f64::from(1u32 << hits)
                        };
                        product *= match filtered {
                            false => density(seen.y, unit * f64::from(hits)),
                            true => (0..=hits).map(|k| kept(k) * density(seen.y, unit * f64::from(k))).sum(),
                        };
                    }
                    sum += product;
                }
                sum
            };
            let expected: f64 =
                run.chunks(rounds).map(|epoch| (mixed(epoch, 2.0) / mixed(epoch, -0.5)).ln()).sum();
            let sizes = FixedSizes { samples, groups, group_size };
            let blind = Blind::Permutation(Permutation::new(sizes, rounds, differing, filtered));
            let given = Likelihood { up: 2.0, down: 0.5, variance: 1.44, blind }.blind(&run);
            let what = (samples, groups, group_size, rounds, differing, filtered);
            assert!((given - expected).abs() < 1e-11, "{what:?}: {given} {expected}");
        }
    }

    /// Every canary in every round, one allocation after the other, also where the run ends within an epoch.
    #[test]
    fn the_mixture_of_all_allocations() {
        let density = |x: f64, mean: f64| (-0.5 * ((x - mean) / 1.2).powi(2)).exp();
        let run: Vec<Seen> = [0.3, -1.4, 2.0, 0.1, 1.1, -0.7, 0.9, 2.2].map(|y| Seen { y, hit: 0 }).to_vec();
        for (differing, rounds) in [(1, 1usize), (1, 3), (1, 5), (2, 3), (3, 2), (3, 5), (2, 8)] {
            let allocations = rounds.pow(differing);
            let mixed = |epoch: &[Seen], unit: f64| -> f64 {
                let of = |mut code: usize| {
                    let mut hits = vec![0.0; rounds];
                    for _ in 0..differing {
                        hits[code % rounds] += 1.0;
                        code /= rounds;
                    }
                    epoch.iter().zip(hits).map(|(seen, k)| density(seen.y, unit * k)).product::<f64>()
                };
                (0..allocations).map(of).sum()
            };
            let expected: f64 =
                run.chunks(rounds).map(|epoch| (mixed(epoch, 2.0) / mixed(epoch, -0.5)).ln()).sum();
            let ln_factorials = (0..=u64::from(differing)).scan(0.0, ln_factorial).collect();
            let blind = Blind::Allocation { rounds, silent: 0, ln_factorials };
            let likelihood = Likelihood { up: 2.0, down: 0.5, variance: 1.44, blind };
            let given = likelihood.blind(&run);
            assert!((given - expected).abs() < 1e-12, "{differing} {rounds}: {given} {expected}");
        }
    }

    #[test]
    fn nothing_overflows() {
        let law = vec![0.9, 0.1];
        let likelihood = Likelihood { up: 2.0, down: 0.0, variance: 0.01, blind: Blind::Rounds(law) };
        let run = [Seen { y: 50.0, hit: 1 }];
        assert!(likelihood.known(&run).is_finite() && likelihood.blind(&run).is_finite());
        let blind = Blind::Allocation { rounds: 2, silent: 0, ln_factorials: vec![0.0, 0.0] };
        let allocated = Likelihood { blind, ..likelihood };
        assert!(allocated.blind(&[run[0], run[0], run[0]]).is_finite());
    }
}
