//! The paper's closed forms as printed, each beside the exact value and with a verdict.
//!
//! No guarantee is ever taken from here: several of the forms promise more than is true (the
//! subsampling tails, the occupancy law of shuffled batches), and others are far from tight. The
//! exact values come from [`crate::adversary`].
//!
//! | row | sampler | needs | forms |
//! |---|---|---|---|
//! | Table 1 row 1, Lemma batchsub | subsample | m = 1 | guarantee, limit, shorthand |
//! | Table 1 row 2, Lemmas indsub, genclipI | subsample | g = 1 | guarantee, limit, shorthand |
//! | Table 1 row 3, Lemma indshuf | shuffle | g = 1 | guarantee, limit |
//! | Table 1 row 4, Lemma genlowshufQ | shuffle | | guarantee, shorthand |
//! | Table 1 row 5, Lemma batchshuf | shuffle | m = 1 | guarantee |
//! | Table 1 row 6, Lemma batchshuf | shuffle | m = 1, g ≤ s | guarantee, limit, shorthand |
//! | Table 2 rows 1 and 2 | subsample | s = 1 | guarantee |
//! | Table 2 row 3, Lemma genlow | subsample | s = 1 | guarantee, shorthand |
//! | G_{c·h(σ)}, Appendix "Strong Adversarial Model" | subsample | s = 1 | two approximations |
//! | Appendix "Probabilistic Filtered Batches" | both | filtered | approximation |

mod claim;
mod group;
mod power;
mod rows;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use claim::{h, h_expansion};

use crate::adversary::{self, Adversary};
use crate::curve::Curve;
use crate::error::{PrivacyError, require};
use crate::interval::Interval;
use crate::mechanism::{Mechanism, Neighbours, PaperForms};
use crate::mixture::Mixture;
use rows::{Claim, Run};

/// What a printed form claims to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// The run is h-DP for this h: ε is enough.
    Guarantee,
    /// "h cannot be improved beyond": the run needs at least this ε.
    Limit,
    /// Printed with ≈: it neglects a small quantity or takes a limit.
    Approximation,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Side::Guarantee => "guarantee",
            Side::Limit => "limit",
            Side::Approximation => "approximation",
        })
    }
}

/// One closed form of the paper, evaluated for one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Printed {
    /// Where it is printed.
    pub source: String,
    /// The formula, in the paper's symbols.
    pub formula: String,
    /// The adversary it applies to.
    pub adversary: Adversary,
    /// Whether it is a guarantee, a limit or an approximation.
    pub side: Side,
    /// The ε it claims at the requested δ; infinite where it promises nothing.
    #[serde(with = "crate::number")]
    pub epsilon: f64,
    /// The certified ε for the same adversary and δ.
    pub exact: Interval,
    /// How it compares with the exact value.
    pub verdict: Verdict,
    /// The free parameters chosen, where it fails, and what it overlooks.
    pub note: Option<String>,
}

/// Whether a printed form is true for a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", rename_all_fields = "kebab-case")]
#[non_exhaustive]
pub enum Verdict {
    /// True at the requested δ and at every δ tried from 1e-1 to 1e-12.
    Holds {
        /// The factor between the claimed and the exact ε at the requested δ; infinite for a
        /// guarantee of ε = ∞ or a limit of ε ≥ 0. Below 1 (by more than rounding) only for A₀ and
        /// g > 1, where two guarantees hold side by side.
        #[serde(with = "crate::number")]
        looser_by: f64,
    },
    /// False: the exact ε is larger than the guarantee, or smaller than the limit.
    ClaimsTooMuch {
        /// The factor at the requested δ or, if the form is true there, at the δ where it fails
        /// most; at least 1 (up to rounding).
        #[serde(with = "crate::number")]
        by: f64,
    },
    /// Neither a guarantee nor a limit; how far off it is.
    Approximation {
        /// Claimed over exact ε, minus 1: negative is too optimistic.
        #[serde(with = "crate::number")]
        relative_error: f64,
    },
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Verdict::Holds { looser_by } if looser_by == f64::INFINITY => {
                f.write_str("holds, but says nothing here")
            }
            Verdict::Holds { looser_by } if looser_by < 1.005 => f.write_str("holds"),
            Verdict::Holds { looser_by } => write!(f, "holds; too loose by a factor {looser_by:.2}"),
            Verdict::ClaimsTooMuch { by } if by >= 1.01 && by.is_finite() => {
                write!(f, "claims more than is true, by a factor {by:.2}")
            }
            Verdict::ClaimsTooMuch { .. } => f.write_str("claims more than is true"),
            Verdict::Approximation { relative_error: r } => {
                let direction = if r < 0.0 { "optimistic" } else { "pessimistic" };
                match r.abs() {
                    off if off < 5e-4 => f.write_str("approximation only, right here to three digits"),
                    off if off < 0.1 => {
                        write!(f, "approximation only, {:.1} % too {direction} here", 100.0 * off)
                    }
                    off if off <= 1.0 => {
                        write!(f, "approximation only, {:.0} % too {direction} here", 100.0 * off)
                    }
                    off if off.is_finite() => {
                        write!(f, "approximation only, a factor {:.1} too {direction} here", 1.0 + off)
                    }
                    _ => write!(f, "approximation only, too {direction} here"),
                }
            }
        }
    }
}

/// The values of δ at which guarantees and limits are judged, besides the requested one.
const GRID: [f64; 12] = [1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-11, 1e-12];

/// Every closed form of the paper that applies to this run, at `delta`.
///
/// Empty where none does: Poisson sampling, several phases, further releases. Rows whose E-fold
/// product takes too long (about 10⁶ epochs) are left out.
///
/// # Guarantee
/// `exact` is certified as in [`adversary::curve`]. A [`Verdict::ClaimsTooMuch`] is proved: the
/// certified δ at the claimed ε is on the wrong side. [`Verdict::Holds`] means that the form was
/// true at every δ tried, no more. The claimed ε are correct to at least three digits.
///
/// ```
/// use dpsgd_privacy::{mechanism::*, printed::{Side, as_printed}};
/// let run = RunConfig::single(PhaseConfig {
///     sampling: Sampling::Subsample { samples: 60_000, groups: 64, group_size: 1 },
///     length: Length::Rounds(93_750),
///     noise: NoiseScale::Sigma(2.0),
///     filtered: false,
/// });
/// let rows = as_printed(&run.check()?, 1e-5)?;
/// let row = rows.iter().find(|row| row.side == Side::Guarantee).expect("row 2 of Table 1");
/// assert!((row.epsilon - 34.72).abs() < 0.005 && (row.exact.middle() - 35.03).abs() < 0.005);
/// assert_eq!(row.verdict.to_string(), "claims more than is true");
/// # Ok::<(), dpsgd_privacy::PrivacyError>(())
/// ```
pub fn as_printed(mechanism: &Mechanism, delta: f64) -> Result<Vec<Printed>, PrivacyError> {
    require(delta > 0.0 && delta < 1.0, "delta", delta, "above 0 and below 1")?;
    let [phase] = mechanism.phases() else { return Ok(Vec::new()) };
    let forms = phase.sampling().paper_forms();
    let (PaperForms::Subsampled(sizes) | PaperForms::Shuffled(sizes)) = forms else {
        return Ok(Vec::new());
    };
    if !mechanism.releases().is_empty() || mechanism.neighbours() != Neighbours::Substitute {
        return Ok(Vec::new());
    }
    let run = Run { mechanism, phase, sizes, delta, law: rows::law(mechanism)? };
    let known = match &run.law {
        Some(law) => Exact::new(Box::new(Mixture::new(law, phase.sigma(), 0.0)), delta)?,
        None => Exact::new(adversary::curve(mechanism, Adversary::A1)?, delta)?,
    };
    let mut printed = Vec::new();
    let claims = match forms {
        PaperForms::Subsampled(_) | PaperForms::Shuffled(_) if phase.filtered() => rows::filtered(&run)?,
        PaperForms::Subsampled(_) => rows::subsampled(&run),
        PaperForms::Shuffled(_) => rows::shuffled(&run),
        PaperForms::Absent => Vec::new(),
    };
    for claim in claims {
        printed.push(known.judge(claim)?);
    }
    // Table 2 rows 1 and 2 and the limit G_{c·h(σ)} are about individual clipping.
    if sizes.group_size == 1 && !phase.filtered() && forms == PaperForms::Subsampled(sizes) {
        let blind = Exact::new(adversary::curve(mechanism, Adversary::A0)?, delta)?;
        for claim in rows::blind(&run, blind.epsilon)? {
            printed.push(blind.judge(claim)?);
        }
    }
    Ok(printed)
}

/// The exact curve of one adversary, with its ε at the requested δ.
struct Exact {
    curve: Box<dyn Curve>,
    epsilon: Interval,
}

/// Claimed values of ε are rounded, and a claim may be the exact value itself.
const TOLERANCE: f64 = 1e-6;

impl Exact {
    fn new(curve: Box<dyn Curve>, delta: f64) -> Result<Self, PrivacyError> {
        let epsilon = curve.epsilon(delta)?;
        Ok(Self { curve, epsilon })
    }

    fn judge(&self, claim: Claim) -> Result<Printed, PrivacyError> {
        let mut notes: Vec<String> = claim.note.into_iter().collect();
        let verdict = if claim.side == Side::Approximation {
            Verdict::Approximation { relative_error: ratio(claim.epsilon, self.epsilon.middle()) - 1.0 }
        } else {
            let mut wrong = Vec::new();
            for &(delta, epsilon) in &claim.tried {
                if let Some(excess) = self.excess(claim.side, delta, epsilon)? {
                    wrong.push((delta, epsilon, excess));
                }
            }
            if let Some(&first) = wrong.first() {
                notes.push(where_wrong(&claim.tried, &wrong, claim.side));
                // Report the requested δ if the claim fails there, otherwise the δ where it fails most.
                let (delta, epsilon, _) = if first.0 == claim.tried[0].0 {
                    first
                } else {
                    wrong.iter().copied().fold(first, |a, b| if b.2 > a.2 { b } else { a })
                };
                let exact =
                    if delta == claim.tried[0].0 { self.epsilon } else { self.curve.epsilon(delta)? };
                Verdict::ClaimsTooMuch {
                    by: match claim.side {
                        Side::Limit => ratio(epsilon, exact.upper),
                        _ => ratio(exact.lower, epsilon),
                    },
                }
            } else {
                Verdict::Holds {
                    looser_by: match claim.side {
                        Side::Limit => ratio(self.epsilon.lower, claim.epsilon),
                        _ => ratio(claim.epsilon, self.epsilon.upper),
                    },
                }
            }
        };
        Ok(Printed {
            source: claim.source.to_string(),
            formula: claim.formula,
            adversary: claim.adversary,
            side: claim.side,
            epsilon: claim.epsilon,
            exact: self.epsilon,
            verdict,
            note: (!notes.is_empty()).then(|| notes.join("; ")),
        })
    }

    /// |ln| of the factor by which the exact δ at the claimed ε is on the wrong side.
    fn excess(&self, side: Side, delta: f64, epsilon: f64) -> Result<Option<f64>, PrivacyError> {
        // ε = ∞ promises nothing, and ε ≥ 0 limits nothing.
        if epsilon == f64::INFINITY || epsilon == 0.0 && side == Side::Limit {
            return Ok(None);
        }
        let exact = self.curve.delta(epsilon)?;
        let excess = match side {
            Side::Limit => delta.ln() - exact.upper.ln(),
            _ => exact.lower.ln() - delta.ln(),
        };
        Ok((excess > TOLERANCE).then_some(excess))
    }
}

/// a/b where 0/0 and ∞/∞ are 1: both say the same.
fn ratio(a: f64, b: f64) -> f64 {
    if a == b { 1.0 } else { a / b }
}

fn where_wrong(tried: &[(f64, f64)], wrong: &[(f64, f64, f64)], side: Side) -> String {
    let said = match side {
        Side::Limit => "the exact ε is below the limit",
        _ => "too optimistic",
    };
    if wrong.len() == tried.len() {
        return format!("{said} at every δ tried, from {:e} to {:e}", GRID[0], GRID[GRID.len() - 1]);
    }
    let least = wrong.iter().map(|w| w.0).fold(f64::INFINITY, f64::min);
    let most = wrong.iter().map(|w| w.0).fold(0.0, f64::max);
    if least == most {
        format!("{said} at δ = {least:e}")
    } else {
        format!("{said} at {} of {} δ tried, between {most:e} and {least:e}", wrong.len(), tried.len())
    }
}

#[cfg(test)]
mod tests;
