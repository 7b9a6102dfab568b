//! Random allocation: each differing sample of an epoch is in one of B rounds, or in one of B·m cells,
//! independently of the others.

use super::law::Law;
use super::shuffle::{Round, by_recurrence, by_squaring, truncation};
use crate::error::PrivacyError;

/// The law of c² over an epoch of B = `rounds` rounds for g = `differing` samples (docs/theory.md, "Random
/// allocation").
///
/// Where every sample is a group of its own, c² = Σ_b k_b² with k_b samples in round b: g!/B^g times the
/// coefficient of x^g in (Σ_k x^k·y^{k²}/k!)^B. With m = `cells` a round, k_b is the number of cells hit:
/// g!/(Bm)^g times the coefficient of x^g in (Σ_k C(m, k)·(e^x − 1)^k·y^{k²})^B. A filter keeps every group
/// with probability ½: y^{k²} becomes Σ_j C(k, j)·2^{−k}·y^{j²}.
///
/// # Guarantee
/// As for [`super::law_of_phase`]. g = 1 without a filter is exact: every epoch uses the sample once.
pub(super) fn epoch_law(
    rounds: u64,
    cells: Option<u64>,
    differing: u64,
    filtered: bool,
) -> Result<Law, PrivacyError> {
    if differing == 1 && !filtered {
        return Ok(Law::one_point(1));
    }
    let g = differing as usize;
    // x is scaled by g/B (by g/Bm for cells): the coefficients sum to g^g/g! ≤ e^g, which fits for g ≤ 512.
    let odds = differing as f64 / rounds as f64;
    let hits = match cells {
        None => single(odds, g),
        Some(cells) => in_cells(odds, cells, g),
    };
    let all = (1..=differing).fold(1.0, |product, k| product * (differing as f64 / k as f64));
    let round = Round::new(&hits, g, filtered);
    // No sample of an epoch is left over.
    let mut unused = vec![0.0; g + 1];
    unused[0] = 1.0;
    let (degree, missing) = truncation(&round, rounds, &unused, all);
    // Terms of one sum, and sums nested in one another.
    let (powers, terms, depth) = if rounds as f64 + 1.0 >= g as f64 {
        (by_recurrence(&round, rounds, degree)?, (g * g) as f64, g as f64)
    } else {
        let products = 2.0 * (rounds as f64).log2().ceil() + 1.0;
        (by_squaring(&round, rounds, degree)?, (g + 1) as f64 * (degree + 1) as f64, products)
    };
    let mass = powers[g].iter().map(|value| value / all).collect();
    // The weights of a product and g^g/g! have at most six roundings for each of the g samples (a Stirling
    // number two, the falling factorial two, the filter two); each of the nested sums of positive terms adds
    // one rounding a term and a few for its factors.
    let relative_error = (12.0 * g as f64 + depth * (terms + 8.0) + 16.0) * f64::EPSILON;
    Ok(Law::new(0, mass, missing, relative_error))
}

/// `hits[k][t]`: the weight of x^t with k groups hit, where every sample is a group: x^t/t!, k = t.
fn single(odds: f64, g: usize) -> Vec<Vec<f64>> {
    let mut weight = 1.0;
    (0..=g)
        .map(|k| {
            let mut row = vec![0.0; g + 1];
            row[k] = weight;
            weight *= odds / (k + 1) as f64;
            row
        })
        .collect()
}

/// The same in m cells: C(m, k)·(e^x − 1)^k = Σ_t m(m−1)…(m−k+1)·S(t, k)·x^t/t!, S Stirling's numbers of the
/// second kind.
///
/// By S(t, k) = k·S(t−1, k) + S(t−1, k−1) the weights obey a recurrence of positive terms in which nothing
/// overflows: with x = (odds/m)·x', w_t(k) = (odds/t)·((k/m)·w_{t−1}(k) + ((m−k+1)/m)·w_{t−1}(k−1)).
fn in_cells(odds: f64, cells: u64, g: usize) -> Vec<Vec<f64>> {
    let m = cells as f64;
    let most = g.min(usize::try_from(cells).unwrap_or(usize::MAX));
    let mut hits = vec![vec![0.0; g + 1]; most + 1];
    hits[0][0] = 1.0;
    for t in 1..=g {
        for k in 1..=most.min(t) {
            let stay = hits[k][t - 1] * (k as f64 / m);
            let come = hits[k - 1][t - 1] * ((m - k as f64 + 1.0) / m);
            hits[k][t] = (odds / t as f64) * (stay + come);
        }
    }
    hits
}
