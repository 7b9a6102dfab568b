//! Certified numbers: a value is known to lie between two ends.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A closed interval that contains the value it stands for.
///
/// Both ends are `f64`, `lower ≤ upper`, and every error of the computation (truncation,
/// discretisation, aliasing, rounding) is included. For ε and δ the upper end is the guarantee; for
/// the miss rate β of an attack it is the lower end.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interval {
    /// At most the value.
    #[serde(with = "crate::number")]
    pub lower: f64,
    /// At least the value; may be infinite.
    #[serde(with = "crate::number")]
    pub upper: f64,
}

impl Interval {
    /// The interval between two ends given in either order.
    pub fn new(a: f64, b: f64) -> Self {
        Self { lower: a.min(b), upper: a.max(b) }
    }

    /// A value known exactly.
    pub const fn exact(value: f64) -> Self {
        Self { lower: value, upper: value }
    }

    /// A value known up to an absolute error.
    pub fn around(value: f64, error: f64) -> Self {
        Self { lower: value - error, upper: value + error }
    }

    /// The middle of the two ends.
    pub fn middle(&self) -> f64 {
        0.5 * (self.lower + self.upper)
    }

    /// The distance between the two ends.
    pub fn width(&self) -> f64 {
        self.upper - self.lower
    }

    /// Whether `value` lies between the ends.
    pub fn contains(&self, value: f64) -> bool {
        self.lower <= value && value <= self.upper
    }

    /// Both ends moved into `[low, high]`, for values that are known to lie there.
    pub fn clamp(self, low: f64, high: f64) -> Self {
        Self { lower: self.lower.clamp(low, high), upper: self.upper.clamp(low, high) }
    }

    /// The interval of the larger of two values.
    pub fn max(self, other: Self) -> Self {
        Self { lower: self.lower.max(other.lower), upper: self.upper.max(other.upper) }
    }

    /// The interval of the smaller of two values.
    pub fn min(self, other: Self) -> Self {
        Self { lower: self.lower.min(other.lower), upper: self.upper.min(other.upper) }
    }

    /// The overlap of two intervals for the same value.
    pub fn intersect(self, other: Self) -> Self {
        Self { lower: self.lower.max(other.lower), upper: self.upper.min(other.upper) }
    }
}

impl fmt::Debug for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{:e}, {:e}]", self.lower, self.upper)
    }
}
