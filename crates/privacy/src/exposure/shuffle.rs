//! Shuffling: the rounds of an epoch are dependent, so the epoch is counted as a whole.

use super::law::Law;
use super::round::{group_hits, halving, placing_error, scaled_binomials};
use crate::error::PrivacyError;
use crate::mechanism::FixedSizes;

/// The multiplications an epoch's law may cost; a few seconds.
const MOST_OPERATIONS: f64 = 1e10;

/// −ln of the probability allowed beyond the truncation of c² within an epoch.
const TAIL_NATS: f64 = 330.0;

/// The law of c² over the first `rounds` rounds of an epoch: the coefficient of x^g in
/// (Σ W[t][k] x^t y^{k²})^rounds · (1+x)^{N − rounds·ms}, divided by C(N, g) (docs/theory.md §2). The last
/// factor holds the samples that are not used in the epoch.
///
/// # Guarantee
/// As for [`super::law_of_phase`].
pub(super) fn epoch_law(
    sizes: FixedSizes,
    rounds: u64,
    differing: u64,
    filtered: bool,
) -> Result<Law, PrivacyError> {
    let FixedSizes { samples, groups, group_size } = sizes;
    let g = differing as usize;
    let odds = differing as f64 / samples as f64;
    let hits = group_hits(groups, group_size, differing, odds);
    let round = Round::new(&hits, g, filtered);
    let unused = scaled_binomials(samples - rounds * groups * group_size, differing, odds);
    let all = scaled_binomials(samples, differing, odds)[g];
    let (degree, missing) = truncation(&round, rounds, &unused, all);
    let powers = if rounds as f64 + 1.0 >= g as f64 {
        by_recurrence(&round, rounds, degree)?
    } else {
        by_squaring(&round, rounds, degree)?
    };
    let mut mass = vec![0.0; degree + 1];
    for (t, row) in powers.iter().enumerate() {
        let weight = unused[g - t] / all;
        for (out, &value) in mass.iter_mut().zip(row) {
            *out += value * weight;
        }
    }
    // A coefficient is built from at most g rounds that hold differing samples, each with the error
    // of its own weight, by nested sums of at most g·min(m, g) positive terms.
    let nested = (g * g) as f64 * groups.min(differing) as f64 + 16.0 * g as f64 + 32.0;
    let relative_error =
        g as f64 * placing_error(groups, group_size, differing) + nested * 0.5 * f64::EPSILON;
    Ok(Law::new(0, mass, missing, relative_error))
}

/// The round as a polynomial in x whose coefficients are sparse polynomials in y:
/// `terms[t]` lists (k², weight); t = 0 is the constant 1.
pub(super) struct Round {
    terms: Vec<Vec<(usize, f64)>>,
}

impl Round {
    pub(super) fn new(hits: &[Vec<f64>], g: usize, filtered: bool) -> Self {
        let halves = halving(hits.len() - 1);
        let terms = (0..=g)
            .map(|t| {
                let mut row = vec![0.0; hits.len()];
                for (k, by_t) in hits.iter().enumerate() {
                    if filtered {
                        for (kept, half) in halves[k].iter().enumerate() {
                            row[kept] += by_t[t] * half;
                        }
                    } else {
                        row[k] += by_t[t];
                    }
                }
                row.into_iter().enumerate().filter(|&(_, w)| w > 0.0).map(|(k, w)| (k * k, w)).collect()
            })
            .collect();
        Self { terms }
    }

    /// Σ over y-powers at y = e^θ, by power of x.
    fn at(&self, theta: f64) -> Vec<f64> {
        self.terms.iter().map(|row| row.iter().map(|&(d, w)| w * (theta * d as f64).exp()).sum()).collect()
    }
}

/// The largest degree in y worth keeping, and the probability beyond it: E[e^{θc²}] of the epoch
/// is the same coefficient at y = e^θ, so Chernoff's bound costs g² operations.
pub(super) fn truncation(round: &Round, rounds: u64, unused: &[f64], all: f64) -> (usize, f64) {
    let g = round.terms.len() - 1;
    let widest = round.terms.iter().flatten().map(|&(d, _)| d).max().unwrap_or(0);
    let most = (widest as f64).sqrt().round() as usize;
    let mut degree = g * most;
    let mut missing = 0.0;
    for i in 0..24 {
        let theta = 8.0 * 0.7_f64.powi(i);
        let p = round.at(theta);
        let Some(powers) = scalar_power(&p, rounds as f64) else { continue };
        let moment: f64 = powers.iter().enumerate().map(|(t, a)| a * unused[g - t]).sum::<f64>() / all;
        let d = ((moment.ln() + TAIL_NATS) / theta).ceil();
        if moment.is_finite() && d < degree as f64 {
            degree = d.max(0.0) as usize;
            missing = 1e-140;
        }
    }
    (degree, missing)
}

/// (Σ p_t x^t)^rounds truncated at degree g, p_0 = 1; `None` on overflow. Used for bounds only, so
/// the possible subtraction for g > rounds + 1 is avoided by squaring.
fn scalar_power(p: &[f64], rounds: f64) -> Option<Vec<f64>> {
    let g = p.len() - 1;
    let multiply = |a: &[f64], b: &[f64]| -> Vec<f64> {
        (0..=g).map(|n| (0..=n).map(|j| a[j] * b[n - j]).sum()).collect()
    };
    let mut result = vec![0.0; g + 1];
    result[0] = 1.0;
    let mut square = p.to_vec();
    let mut times = rounds as u64;
    while times > 0 {
        if times & 1 == 1 {
            result = multiply(&result, &square);
        }
        times >>= 1;
        if times > 0 {
            square = multiply(&square, &square);
        }
    }
    result.iter().all(|v| v.is_finite()).then_some(result)
}

/// n·a_n(y) = Σ_j ((rounds + 1)·j − n)·p_j(y)·a_{n−j}(y), all terms positive for n ≤ rounds + 1.
pub(super) fn by_recurrence(
    round: &Round,
    rounds: u64,
    degree: usize,
) -> Result<Vec<Vec<f64>>, PrivacyError> {
    let g = round.terms.len() - 1;
    let widths = widths(round, degree);
    check_cost(
        (1..=g).map(|n| (1..=n).map(|j| round.terms[j].len() as f64 * widths[n - j] as f64).sum::<f64>()),
    )?;
    let mut powers: Vec<Vec<f64>> = vec![vec![1.0]];
    for n in 1..=g {
        let mut row = vec![0.0; widths[n]];
        for j in 1..=n {
            let factor = ((rounds as f64 + 1.0) * j as f64 - n as f64) / n as f64;
            for &(d, w) in &round.terms[j] {
                add_shifted(&mut row, d, factor * w, &powers[n - j]);
            }
        }
        powers.push(row);
    }
    Ok(powers)
}

/// The same by binary powers, for epochs of fewer rounds than differing samples.
pub(super) fn by_squaring(round: &Round, rounds: u64, degree: usize) -> Result<Vec<Vec<f64>>, PrivacyError> {
    let g = round.terms.len() - 1;
    let widths = widths(round, degree);
    let one_product =
        (0..=g).map(|n| (0..=n).map(|j| widths[j] as f64 * widths[n - j] as f64).sum::<f64>()).sum::<f64>();
    check_cost(std::iter::once(one_product * 2.0 * (rounds as f64).log2().ceil()))?;
    let multiply = |a: &[Vec<f64>], b: &[Vec<f64>]| -> Vec<Vec<f64>> {
        (0..=g)
            .map(|n| {
                let mut row = vec![0.0; widths[n]];
                for j in 0..=n {
                    for (d, &w) in a[j].iter().enumerate() {
                        if w > 0.0 {
                            add_shifted(&mut row, d, w, &b[n - j]);
                        }
                    }
                }
                row
            })
            .collect()
    };
    let mut square: Vec<Vec<f64>> = (0..=g)
        .map(|t| {
            let mut row = vec![0.0; widths[t]];
            for &(d, w) in &round.terms[t] {
                if d < row.len() {
                    row[d] = w;
                }
            }
            row
        })
        .collect();
    let mut result: Vec<Vec<f64>> = (0..=g).map(|t| vec![f64::from(u8::from(t == 0)); 1]).collect();
    let mut times = rounds;
    loop {
        if times & 1 == 1 {
            result = multiply(&result, &square);
        }
        times >>= 1;
        if times == 0 {
            return Ok(result);
        }
        square = multiply(&square, &square);
    }
}

/// c² ≤ n·(most k) when n differing samples are placed, and ≤ degree by truncation; coefficients
/// up to the degree stay exact under truncation because degrees only add.
fn widths(round: &Round, degree: usize) -> Vec<usize> {
    let g = round.terms.len() - 1;
    let widest = round.terms.iter().flatten().map(|&(d, _)| d).max().unwrap_or(0);
    let most = (widest as f64).sqrt().round() as usize;
    (0..=g).map(|n| (n * most.min(n)).min(degree) + 1).collect()
}

fn add_shifted(out: &mut [f64], shift: usize, factor: f64, values: &[f64]) {
    if shift < out.len() {
        for (o, v) in out[shift..].iter_mut().zip(values) {
            *o += factor * v;
        }
    }
}

fn check_cost(parts: impl Iterator<Item = f64>) -> Result<(), PrivacyError> {
    let operations: f64 = parts.sum();
    if operations > MOST_OPERATIONS {
        return Err(PrivacyError::TooCostly {
            what: "the law of c² of an epoch",
            operations,
            limit: MOST_OPERATIONS,
            remedy: "ask for fewer differing samples or smaller batches",
        });
    }
    Ok(())
}
