//! The noise: its law, and that no two pieces of it have anything to do with each other.

use dpsgd_privacy::normal;

use super::Check;
use crate::binomial::two_sided;
use crate::level;
use crate::tally::{EDGES, Tally, edge};

/// The coordinates that no gradient touches are N(0, (2Cσ)²).
///
/// The count of every quarter of a deviation is binomial, tested exactly; n times the mean square is χ²_n,
/// with the tails of Laurent and Massart (2000, Lemma 1): Pr[χ²_n ≥ n + 2√(nt) + 2t] and Pr[χ²_n ≤ n −
/// 2√(nt)] are at most e^{−t}.
pub fn noise(tally: &Tally) -> Check {
    let mut check = Check::new("noise", "coordinates without gradient are N(0, (2Cσ)²)", level::of_check());
    let share = check.level / (EDGES + 2) as f64;
    let n = tally.values as f64;
    let t = (2.0 / share).ln();
    let deviation = (tally.squares / n).sqrt();
    let (low, high) =
        ((1.0 - 2.0 * (t / n).sqrt()).max(0.0).sqrt(), (1.0 + 2.0 * (t / n).sqrt() + 2.0 * t / n).sqrt());
    if !(low..=high).contains(&deviation) {
        check.fail(format!(
            "the deviation is {deviation:.4} times 2Cσ; {low:.4} to {high:.4} could be chance"
        ));
    }
    let mut worst = 1.0_f64;
    for (bin, &count) in tally.bins.iter().enumerate() {
        let below = |index: usize| if index == EDGES { 1.0 } else { normal::cdf(edge(index)) };
        let p = below(bin) - if bin == 0 { 0.0 } else { below(bin - 1) };
        let chance = two_sided(count, tally.values, p);
        worst = worst.min(chance);
        if chance < share {
            let place = edge(bin.min(EDGES - 1));
            check.fail(format!(
                "near {place} deviations lie {count} of {} values: p = {chance:.1e}",
                tally.values
            ));
        }
    }
    check.note(format!(
        "deviation {deviation:.5} times 2Cσ ({low:.4} to {high:.4} allowed), {} values in {} bins, smallest \
         p {worst:.1e}",
        tally.values,
        EDGES + 1
    ));
    check
}

/// The noise of different rounds and coordinates is independent.
///
/// For independent normals E[e^{λxy}] = (1 − λ²)^{−1/2}, so a sum S of n such products is sub-gamma:
/// Pr[S ≥ √(2nt) + t] ≤ e^{−t} (Boucheron, Lugosi, Massart 2013, §2.4), and the same for −S.
pub fn independence(tally: &Tally) -> Check {
    let what = "the noise of other rounds and coordinates says nothing about it; none is used twice";
    let mut check = Check::new("independence", what, level::of_check());
    if tally.repeated > 0 {
        check.fail(format!("{} rounds have the noise of another round of their run", tally.repeated));
    }
    let t = (2.0 * tally.products.len() as f64 / check.level).ln();
    let names =
        ["a round and the next (even, odd)", "a round and the next (odd, even)", "neighbouring coordinates"];
    let mut largest = 0.0_f64;
    for (products, name) in tally.products.iter().zip(names) {
        let n = products.pairs as f64;
        let limit = (2.0 * n * t).sqrt() + t;
        if products.sum.abs() > limit {
            let (correlation, limit) = (products.sum / n, limit / n);
            check.fail(format!("{name}: correlation {correlation:.4}; up to {limit:.4} could be chance"));
        }
        if n > 0.0 {
            largest = largest.max(products.sum.abs() / n);
        }
    }
    check.note(format!(
        "no noise was used twice in {} rounds; largest correlation {largest:.1e}",
        tally.rounds
    ));
    check
}
