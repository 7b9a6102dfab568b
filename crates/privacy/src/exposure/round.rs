//! One round: the law of k, the number of groups that hold a differing sample.
//!
//! The binomials come from recurrences with positive terms, written by hand because library
//! binomials go through ln Γ, whose rounding error grows with N, while every probability here must
//! keep a stated relative error in the far tail.

use super::law::{Law, Recurrence};
use crate::error::PrivacyError;
use crate::mechanism::{FixedSizes, Mechanism, Phase, RoundDraw};

/// The law of L_b = k in one of several independent rounds, with its error.
#[derive(Clone, Debug)]
pub struct RoundLaw {
    mass: Vec<f64>,
    hit: f64,
    relative_error: f64,
}

impl RoundLaw {
    /// The law of k for any one round of a phase; where rounds are dependent, the marginal law of each.
    pub fn of_phase(mechanism: &Mechanism, phase: &Phase) -> Self {
        let law = Self::unfiltered(mechanism, phase);
        if phase.filtered() { law.filtered() } else { law }
    }

    /// The same without the appendix's probabilistic filter.
    pub fn unfiltered(mechanism: &Mechanism, phase: &Phase) -> Self {
        let g = mechanism.differing();
        match phase.sampling().round() {
            RoundDraw::Subset(FixedSizes { samples, groups, group_size }) => {
                Self::fixed_size(samples, groups, group_size, g)
            }
            RoundDraw::EachSample { rate } => Self::poisson(rate, g),
            RoundDraw::Cells { rate, groups } => Self::cells(rate, groups, g),
        }
    }

    /// `q_k = Σ_t W[t][k]·C(N−ms, g−t)/C(N, g)` for a uniform subset of m·s samples cut into m
    /// groups (docs/theory.md §2).
    ///
    /// # Guarantee
    /// Every q_k, q_0 and η = 1 − q_0 has a relative error of at most
    /// [`relative_error`](Self::relative_error): all terms are positive.
    pub fn fixed_size(samples: u64, groups: u64, group_size: u64, differing: u64) -> Self {
        let odds = differing as f64 / samples as f64;
        let hits = group_hits(groups, group_size, differing, odds);
        let rest = scaled_binomials(samples.saturating_sub(groups * group_size), differing, odds);
        let all = scaled_binomials(samples, differing, odds)[differing as usize];
        let g = differing as usize;
        let mut mass: Vec<f64> = hits
            .iter()
            .map(|by_t| by_t.iter().enumerate().map(|(t, w)| w * rest[g - t]).sum::<f64>() / all)
            .collect();
        while mass.len() > 1 && mass.last() == Some(&0.0) {
            mass.pop();
        }
        Self::new(mass, placing_error(groups, group_size, differing))
    }

    /// Binomial(g, p): each differing sample is kept independently.
    pub fn poisson(rate: f64, differing: u64) -> Self {
        if rate == 1.0 {
            let mut mass = vec![0.0; differing as usize + 1];
            mass[differing as usize] = 1.0;
            return Self::new(mass, 0.0);
        }
        let none = (differing as f64 * (-rate).ln_1p()).exp();
        let mass = scaled_binomials(differing, differing, rate / (1.0 - rate))
            .into_iter()
            .map(|w| w * none)
            .collect();
        Self::new(mass, (8 * differing + 64) as f64 * f64::EPSILON)
    }

    /// Each differing sample is in the round with probability `rate`, in one of m cells: with k cells hit,
    /// the next sample hits another one with probability rate·(m − k)/m.
    ///
    /// # Guarantee
    /// All terms are positive: g nested sums of two products, each with four roundings.
    pub fn cells(rate: f64, groups: u64, differing: u64) -> Self {
        let m = groups as f64;
        let most = differing.min(groups) as usize;
        let mut mass = vec![0.0; most + 1];
        mass[0] = 1.0;
        for _ in 0..differing {
            for k in (0..=most).rev() {
                let stay = (1.0 - rate) + rate * (k as f64 / m);
                let come = if k > 0 { mass[k - 1] * (rate * ((m - k as f64 + 1.0) / m)) } else { 0.0 };
                mass[k] = mass[k] * stay + come;
            }
        }
        Self::new(mass, (8 * differing + 16) as f64 * f64::EPSILON)
    }

    fn new(mass: Vec<f64>, relative_error: f64) -> Self {
        // η as a sum of positive terms keeps its relative accuracy when it is tiny.
        let hit = mass[1..].iter().sum::<f64>().min(1.0);
        Self { mass, hit, relative_error }
    }

    /// Each group kept with probability ½: k becomes Binomial(k, ½) (appendix "factor 2").
    fn filtered(&self) -> Self {
        let halves = halving(self.mass.len() - 1);
        let mass = (0..self.mass.len())
            .map(|kept| (kept..self.mass.len()).map(|k| self.mass[k] * halves[k][kept]).sum())
            .collect();
        Self::new(mass, 2.0 * self.relative_error)
    }

    /// The probability of L_b = k for k = 0, 1, ….
    pub fn mass(&self) -> &[f64] {
        &self.mass
    }

    /// η, the probability that L_b > 0.
    pub fn hit(&self) -> f64 {
        self.hit
    }

    /// The bound on the relative error of every probability.
    pub fn relative_error(&self) -> f64 {
        self.relative_error
    }

    /// The law of the sum of k² over `rounds` independent rounds.
    pub fn power_law(&self, rounds: u64) -> Result<Law, PrivacyError> {
        match Recurrence::plan(self, rounds) {
            Some(recurrence) => recurrence.run(),
            None => self.square_law().power(rounds),
        }
    }

    /// The law of k² in one round.
    fn square_law(&self) -> Law {
        let most = self.mass.len() - 1;
        let mut mass = vec![0.0; most * most + 1];
        for (k, &q) in self.mass.iter().enumerate() {
            mass[k * k] = q;
        }
        Law::new(0, mass, 0.0, self.relative_error)
    }
}

/// The relative error of W[t][k]·C(N−ms, g−t)/C(N, g): up to min(m, g) nested sums of min(s, g)
/// positive terms, each term with four roundings, and recurrences of length g.
pub(super) fn placing_error(groups: u64, group_size: u64, differing: u64) -> f64 {
    let (nested, terms) = (differing.min(groups) as f64, differing.min(group_size) as f64);
    (nested * (terms + 7.0) + 9.0 * differing as f64 + 32.0) * 0.5 * f64::EPSILON
}

/// C(n, j)·odds^j for j = 0..=most. With odds = g/N every sum of them over N slots is at most
/// e^g, so nothing overflows for g ≤ 512, and the ratios are those of the binomials themselves.
pub(super) fn scaled_binomials(n: u64, most: u64, odds: f64) -> Vec<f64> {
    let mut out = Vec::with_capacity(most as usize + 1);
    let mut value = 1.0;
    out.push(value);
    for j in 1..=most {
        value = if j > n { 0.0 } else { value * ((n - j + 1) as f64 / j as f64 * odds) };
        out.push(value);
    }
    out
}

/// `hits[k][t]` = W[t][k]·odds^t with W[t][k] = C(m, k)·[x^t]((1+x)^s − 1)^k: the ways to place
/// t differing samples in the m·s slots of a round so that exactly k groups are hit.
pub(super) fn group_hits(groups: u64, group_size: u64, differing: u64, odds: f64) -> Vec<Vec<f64>> {
    let g = differing as usize;
    let mut group = scaled_binomials(group_size, differing, odds);
    group[0] = 0.0;
    let widest = group.iter().rposition(|&w| w > 0.0).unwrap_or(0);
    let mut power = vec![0.0; g + 1];
    power[0] = 1.0;
    let mut hits = vec![power.clone()];
    for k in 1..=differing.min(groups) {
        let choose = (groups - k + 1) as f64 / k as f64;
        let mut next = vec![0.0; g + 1];
        for t in (k as usize)..=g {
            let from = (t - (k as usize - 1)).min(widest);
            next[t] = choose * (1..=from).map(|j| group[j] * power[t - j]).sum::<f64>();
        }
        hits.push(next.clone());
        power = next;
    }
    hits
}

/// `halving(most)[k][j]` = C(k, j)/2^k.
pub(super) fn halving(most: usize) -> Vec<Vec<f64>> {
    let mut rows = vec![vec![1.0]];
    for k in 1..=most {
        let last = &rows[k - 1];
        let row = (0..=k)
            .map(|j| {
                let left = if j > 0 { last[j - 1] } else { 0.0 };
                0.5 * (left + last.get(j).copied().unwrap_or(0.0))
            })
            .collect();
        rows.push(row);
    }
    rows
}
