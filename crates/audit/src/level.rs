//! How the false-alarm rate of the whole audit is divided.
//!
//! # Guarantee
//! A right implementation is contradicted, by any part of the audit together, with probability at most
//! [`WHOLE`]: half of it is divided evenly among the confidence limits of all attacks (thresholds × two error
//! rates × adversaries), half among the named checks, and every check divides its share among all that it
//! compares (Bonferroni). Every limit is an exact binomial one or a proved tail bound; none is a normal
//! approximation.

/// The false-alarm rate of the whole audit.
pub const WHOLE: f64 = 1e-6;
/// The most thresholds of an attack.
pub const THRESHOLDS: usize = 15;
/// The most attacks: one for A₁, one for A₀.
pub const ATTACKS: usize = 2;
/// The named checks that could fail by chance.
pub const CHECKS: usize = 4;

/// The level of one end of one confidence interval of an attack.
pub fn of_limit() -> f64 {
    0.5 * WHOLE / (2 * THRESHOLDS * ATTACKS) as f64
}

/// The level of a named check.
pub fn of_check() -> f64 {
    0.5 * WHOLE / CHECKS as f64
}
