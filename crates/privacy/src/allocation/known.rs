//! What an adversary who is told the allocation sees: the law of c² in one epoch for g samples.

use crate::error::{PrivacyError, require};

/// Samples at most; the polynomials have about g³ coefficients.
const MOST_SAMPLES: u32 = 16;

/// What is clipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clipping {
    /// Each sample: a round with k of the g samples moves by at most k.
    Individual,
    /// Each of the cells of a round: one with k hit cells moves by at most k (in units of 2C).
    Groups {
        /// m, cells in a round.
        cells: u64,
    },
}

/// Coefficients of x^i·y^j.
type Polynomial = Vec<Vec<f64>>;

fn product(a: &Polynomial, b: &Polynomial) -> Polynomial {
    let g = a.len() - 1;
    let mut result = vec![vec![0.0; g * g + 1]; g + 1];
    for (i, row) in a.iter().enumerate() {
        for (k, other) in b.iter().enumerate().take(g + 1 - i) {
            for (j, &p) in row.iter().enumerate().filter(|&(_, &p)| p != 0.0) {
                for (l, &q) in other.iter().enumerate().filter(|&(_, &q)| q != 0.0) {
                    result[i + k][j + l] += p * q;
                }
            }
        }
    }
    result
}

/// The law of c² = Σ_b k_b² in one epoch, as (c², probability), for g samples allocated independently and
/// uniformly.
///
/// # Guarantee
/// Given the allocation, the pair is a Gaussian shift of squared length at most c² (in units of the noise),
/// so an epoch is the mixture of G_{c/z} over this law, and epochs multiply; the allocation of all possible
/// indices is drawn, so that it does not tell who is present. Individual clipping: g!/B^g·[x^g] (Σ_k
/// x^k·y^{k²}/k!)^B. Groups: g!/(Bm)^g·[x^g] (Σ_k C(m,k)·(e^x − 1)^k·y^{k²})^B. All terms are positive; the
/// relative error is below 1e-12.
pub fn law(g: u32, rounds: u64, clipping: Clipping) -> Result<Vec<(u64, f64)>, PrivacyError> {
    require((1..=MOST_SAMPLES).contains(&g), "samples", f64::from(g), "between 1 and 16")?;
    require(rounds >= 1, "rounds", rounds as f64, "at least 1")?;
    let size = g as usize;
    let mut one = vec![vec![0.0; size * size + 1]; size + 1];
    // x is divided by the number of cells, so that nothing overflows.
    match clipping {
        Clipping::Individual => {
            let mut term = 1.0;
            for (k, row) in one.iter_mut().enumerate() {
                row[k * k] = term;
                term /= rounds as f64 * (k + 1) as f64;
            }
        }
        Clipping::Groups { cells } => {
            require(cells >= 1, "cells", cells as f64, "at least 1")?;
            // (e^x − 1)^k·C(m, k) = Σ_j m(m−1)…(m−k+1)·S(j, k)·x^j/j!, S Stirling's numbers of the second
            // kind.
            let mut stirling = vec![0.0; size + 1];
            stirling[0] = 1.0;
            let mut scale = 1.0;
            for (j, row) in one.iter_mut().enumerate() {
                let mut falling = 1.0;
                for (k, &s) in stirling.iter().enumerate().take(j + 1) {
                    row[k * k] = falling * s * scale;
                    falling *= (cells as f64 - k as f64).max(0.0);
                }
                for k in (0..=size).rev() {
                    stirling[k] = k as f64 * stirling[k] + if k > 0 { stirling[k - 1] } else { 0.0 };
                }
                scale /= rounds as f64 * cells as f64 * (j + 1) as f64;
            }
        }
    }
    let mut result: Option<Polynomial> = None;
    let mut rest = rounds;
    while rest > 0 {
        if rest & 1 == 1 {
            result = Some(result.map_or_else(|| one.clone(), |r| product(&r, &one)));
        }
        rest >>= 1;
        if rest > 0 {
            one = product(&one, &one);
        }
    }
    let factorial: f64 = (1..=g).map(f64::from).product();
    let row = result.and_then(|mut r| r.pop()).unwrap_or_default();
    Ok(row
        .into_iter()
        .enumerate()
        .filter(|&(_, p)| p > 0.0)
        .map(|(c, p)| (c as u64, p * factorial))
        .collect())
}
