//! Group privacy for g samples from the g = 1 curve, as in the literature. It is shown beside the
//! exact treatment of [`crate::adversary`] so that the smaller value can be seen.

use crate::curve::{Curve, epsilon_of};
use crate::error::{PrivacyError, require};
use crate::interval::Interval;

/// 1 − (1−f)^{∘g} at α (Dong, Roth, Su 2022, Thm 2.14).
///
/// # Guarantee
/// If a run is f-DP for one differing sample, the miss rate of any attack on g differing samples
/// with false-alarm rate α is at least `lower`.
pub fn tradeoff(single: &dyn Curve, g: u64, alpha: f64) -> Result<Interval, PrivacyError> {
    require((0.0..=1.0).contains(&alpha), "alpha", alpha, "between 0 and 1")?;
    // 1 − f is increasing, so each end can be mapped on its own.
    let (mut low, mut high) = (alpha, alpha);
    for _ in 0..g {
        low = (1.0 - single.beta(low)?.upper).clamp(0.0, 1.0);
        high = (1.0 - single.beta(high)?.lower).clamp(0.0, 1.0);
    }
    Ok(Interval { lower: 1.0 - high, upper: 1.0 - low })
}

/// ε(δ) for g differing samples by g equal steps: (ε, δ)-DP for one sample gives
/// (gε, δ·(e^{gε} − 1)/(e^ε − 1))-DP for g.
///
/// # Guarantee
/// The run is (`upper`, δ)-DP for groups of g. The lower end is that of the formula, not of the run.
pub fn epsilon(single: &dyn Curve, g: u64, delta: f64) -> Result<Interval, PrivacyError> {
    require(delta > 0.0 && delta < 1.0, "delta", delta, "above 0 and below 1")?;
    let steps = g as f64;
    let grown = |e: f64| {
        let one = single.delta(e / steps)?;
        // (e^{gx} − 1)/(e^x − 1) at x = ε/g; g at x = 0.
        let factor = if e > 0.0 { e.exp_m1() / (e / steps).exp_m1() } else { steps };
        Ok(Interval { lower: (one.lower * factor).min(1.0), upper: (one.upper * factor).min(1.0) })
    };
    epsilon_of(&grown, delta)
}
