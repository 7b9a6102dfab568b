//! Roots of falling functions that are known as intervals; both ends are proved by evaluation.

use crate::interval::Interval;

pub(super) type Rate<'a> = &'a dyn Fn(f64) -> Interval;

fn ln_ratio(value: Interval, target: f64) -> f64 {
    (value.middle().max(f64::MIN_POSITIVE) / target).ln()
}

/// A root of ln(value/target) between `low` and `high`, where the signs differ (Illinois' variant of false
/// position).
fn root(value: Rate<'_>, mut low: f64, mut high: f64, target: f64) -> f64 {
    let (mut at_low, mut at_high) = (ln_ratio(value(low), target), ln_ratio(value(high), target));
    let mut side = 0;
    for _ in 0..100 {
        let next = (low * at_high - high * at_low) / (at_high - at_low);
        let next = if next > low && next < high { next } else { 0.5 * (low + high) };
        let here = ln_ratio(value(next), target);
        if here.abs() < 1e-14 || high - low < 1e-15 * high.abs().max(low.abs()) {
            return next;
        }
        if here > 0.0 {
            (low, at_low) = (next, here);
            if side == 1 {
                at_high *= 0.5;
            }
            side = 1;
        } else {
            (high, at_high) = (next, here);
            if side == -1 {
                at_low *= 0.5;
            }
            side = -1;
        }
    }
    0.5 * (low + high)
}

/// The first of start, start ± step, start ± 2·step, … that satisfies `holds`.
fn proved(start: f64, step: f64, holds: impl Fn(f64) -> bool) -> Option<f64> {
    let mut step = step;
    let mut at = start;
    for _ in 0..40 {
        if holds(at) {
            return Some(at);
        }
        at = start + step;
        step *= 2.0;
    }
    None
}

/// The smallest ε ≥ 0 with δ(ε) ≤ target; `None` unless δ(`high`) is proved to be at most the target.
pub(super) fn falling(delta: Rate<'_>, high: f64, target: f64) -> Option<Interval> {
    if delta(high).upper > target {
        return None;
    }
    if delta(0.0).upper <= target {
        return Some(Interval::exact(0.0));
    }
    let at = if ln_ratio(delta(0.0), target) <= 0.0 { 0.0 } else { root(delta, 0.0, high, target) };
    let step = 2e-16 * at.max(1e-12);
    let lower = proved(at, -step, |e| e <= 0.0 || delta(e).lower >= target).unwrap_or(0.0);
    let upper = proved(at, step, |e| e <= high && delta(e).upper <= target).unwrap_or(high);
    Some(Interval { lower: lower.max(0.0), upper })
}

/// The miss rate where the false-alarm rate, falling in x, is α; `None` unless ±`reach` are proved to
/// surround it.
pub(super) fn exchange(rate: Rate<'_>, miss: Rate<'_>, reach: f64, alpha: f64) -> Option<Interval> {
    if rate(reach).upper > alpha || rate(-reach).lower < alpha {
        return None;
    }
    let at = root(rate, -reach, reach, alpha);
    let step = 4e-16 * at.abs().max(1e-9 * reach);
    let before = proved(at, -step, |x| rate(x).lower >= alpha).unwrap_or(-reach);
    let after = proved(at, step, |x| rate(x).upper <= alpha).unwrap_or(reach);
    Some(Interval { lower: miss(before).lower, upper: miss(after).upper })
}
