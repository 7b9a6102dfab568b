//! From values to places along an axis: ranges and ticks.

use super::text::raised;
use super::{Axis, Scale};

/// The number of steps between ticks that a linear axis aims at.
const STEPS: f64 = 6.0;

/// The largest magnitude that can be placed, and the inverse of the smallest on a logarithmic
/// axis: differences and ratios of two such values still neither overflow nor vanish.
const EXTREME: f64 = 1e300;

/// The shortest range relative to its values; below it the ticks would drown in rounding errors.
const FINEST: f64 = 1e-9;

/// Forgives rounding errors where a tick coincides with an end of the range, in steps.
const SLACK: f64 = 1e-6;

/// A labelled place on an axis.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tick {
    /// Where, as a fraction of the length of the axis.
    pub(super) at: f64,
    pub(super) label: String,
}

/// An axis whose range and ticks are settled.
pub(super) struct Ruler {
    scale: Scale,
    low: f64,
    high: f64,
    pub(super) ticks: Vec<Tick>,
    /// Places between the ticks that get a line but no label.
    pub(super) minor: Vec<f64>,
}

impl Ruler {
    /// Settles the range, from the data where the axis does not give it, and the ticks.
    pub(super) fn new(axis: &Axis, data: impl Iterator<Item = f64>) -> Self {
        let scale = axis.scale;
        let (low, high) = match given(axis) {
            Some((low, high)) => widen(scale, low, high),
            None => automatic(scale, data),
        };
        let mut ruler = Self { scale, low, high, ticks: Vec::new(), minor: Vec::new() };
        let (major, minor) = match scale {
            Scale::Linear => (linear_ticks(low, high), Vec::new()),
            Scale::Log10 => log_ticks(low, high),
        };
        ruler.ticks = major
            .into_iter()
            .filter_map(|(value, label)| {
                let at = ruler.at(value)?;
                Some(Tick { at, label })
            })
            .collect();
        ruler.minor = minor.into_iter().filter_map(|v| ruler.at(v)).collect();
        ruler
    }

    /// The place of a value as a fraction of the length; `None` if the scale has none for it.
    pub(super) fn at(&self, value: f64) -> Option<f64> {
        if !placeable(self.scale, value) {
            return None;
        }
        let place = |v: f64| match self.scale {
            Scale::Linear => v,
            Scale::Log10 => v.log10(),
        };
        let (low, high) = (place(self.low), place(self.high));
        Some((place(value) - low) / (high - low))
    }
}

/// Whether a scale has a place for a value.
fn placeable(scale: Scale, value: f64) -> bool {
    match scale {
        Scale::Linear => value.abs() <= EXTREME,
        Scale::Log10 => (1.0 / EXTREME..=EXTREME).contains(&value),
    }
}

/// The range that the axis asks for, in order, if its scale can show it.
fn given(axis: &Axis) -> Option<(f64, f64)> {
    let (a, b) = axis.range?;
    let fits = placeable(axis.scale, a) && placeable(axis.scale, b);
    fits.then_some((a.min(b), a.max(b)))
}

/// The range of the data, rounded outwards to ticks.
fn automatic(scale: Scale, data: impl Iterator<Item = f64>) -> (f64, f64) {
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    for value in data.filter(|&v| placeable(scale, v)) {
        low = low.min(value);
        high = high.max(value);
    }
    if low > high {
        // Nothing to show; any valid range will do.
        return match scale {
            Scale::Linear => (0.0, 1.0),
            Scale::Log10 => (1.0, 10.0),
        };
    }
    let (low, high) = widen(scale, low, high);
    match scale {
        Scale::Linear => {
            let step = nice_step((high - low) / STEPS);
            let low = (low / step + SLACK).floor() * step;
            let high = (high / step - SLACK).ceil() * step;
            (low, high)
        }
        Scale::Log10 => (log_floor(low), nice_step(high)),
    }
}

/// Gives a range that is empty or too short for ticks some length.
fn widen(scale: Scale, low: f64, high: f64) -> (f64, f64) {
    let size = low.abs().max(high.abs());
    if high - low > FINEST * size && high - low > 1.0 / EXTREME {
        return (low, high);
    }
    match scale {
        Scale::Linear if size <= 1.0 / EXTREME => (-0.5, 0.5),
        Scale::Linear => (low - 0.05 * size, high + 0.05 * size),
        Scale::Log10 => (low / 2.0, high * 2.0),
    }
}

/// The end of a linear axis from zero that shows this value and is a tick.
pub(super) fn end_from_zero(value: f64) -> f64 {
    automatic(Scale::Linear, [0.0, value].into_iter()).1
}

/// The power of ten at or below a magnitude.
fn exponent(value: f64) -> i32 {
    // The logarithm of what we place is far within the range of the integer.
    (value.abs().log10() + FINEST).floor() as i32
}

fn power(exponent: i32) -> f64 {
    10f64.powi(exponent)
}

/// The smallest of 1, 2, 5 times a power of ten that is at least `step`.
fn nice_step(step: f64) -> f64 {
    let unit = power(exponent(step));
    let factor =
        [1.0, 2.0, 5.0].into_iter().find(|factor| factor * unit >= step * (1.0 - FINEST)).unwrap_or(10.0);
    factor * unit
}

/// The nearest of 1, 2, 5 times a power of ten that is at most the value.
fn log_floor(value: f64) -> f64 {
    let unit = power(exponent(value));
    let factor = [5.0, 2.0].into_iter().find(|factor| factor * unit <= value * (1.0 + FINEST)).unwrap_or(1.0);
    factor * unit
}

/// The multiples of a nice step within a range, with labels.
fn linear_ticks(low: f64, high: f64) -> Vec<(f64, String)> {
    let step = nice_step((high - low) / STEPS);
    let scientific = needs_powers(low.abs().max(high.abs()));
    let first = (low / step - SLACK).ceil();
    let last = (high / step + SLACK).floor();
    // The step is a fixed share of the range, so there are a handful of ticks.
    let count = (last - first).max(0.0) as usize + 1;
    (0..count)
        .map(|i| {
            // Adding 0.0 turns a negative zero into zero.
            let value = (first + i as f64) * step + 0.0;
            (value, number(value, exponent(step), scientific))
        })
        .collect()
}

/// The ticks of a logarithmic range with labels, and the places between them.
fn log_ticks(low: f64, high: f64) -> (Vec<(f64, String)>, Vec<f64>) {
    let (first, last) = (exponent(low), exponent(high));
    let within = |v: &f64| *v >= low * (1.0 - FINEST) && *v <= high * (1.0 + FINEST);
    let grid = |factors: &'static [f64]| {
        (first..=last).flat_map(move |e| factors.iter().map(move |f| f * power(e))).filter(within)
    };
    let powers = needs_powers(low) || needs_powers(high);
    let decades: Vec<f64> = grid(&[1.0]).collect();
    if decades.len() >= 4 {
        let stride = decades.len().div_ceil(9) as i32;
        let ticks = decades
            .into_iter()
            .filter(|&v| exponent(v) % stride == 0)
            .map(|v| (v, decade(exponent(v), powers)));
        let minor: &[f64] = match stride {
            1 if last - first <= 5 => &[2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0],
            _ => &[],
        };
        return (ticks.collect(), grid(minor).collect());
    }
    let ticks: Vec<_> = grid(&[1.0, 2.0, 5.0]).map(|v| (v, number(v, exponent(v), powers))).collect();
    if ticks.len() >= 3 {
        (ticks, Vec::new())
    } else {
        // A range this short looks nearly linear, and even steps divide it best.
        (linear_ticks(low, high), Vec::new())
    }
}

/// Whether a magnitude is so large or so small that plain decimals would be hard to read.
fn needs_powers(size: f64) -> bool {
    !(1e-3..1e6).contains(&size)
}

/// A power of ten as text.
fn decade(exponent: i32, powers: bool) -> String {
    if powers { format!("10{}", raised(exponent)) } else { number(power(exponent), exponent, false) }
}

/// A number with its last digit at the place of `10^last`.
fn number(value: f64, last: i32, scientific: bool) -> String {
    // Beyond these places a double has no digits left.
    let decimals = |places: i32| places.clamp(0, 16) as usize;
    let text = if !scientific {
        format!("{value:.*}", decimals(-last))
    } else if value == 0.0 {
        "0".into()
    } else {
        let e = exponent(value);
        let digits = decimals(e - last);
        format!("{:.digits$}×10{}", value / power(e), raised(e))
    };
    // The hyphen is too short for a minus.
    text.replace('-', "−")
}
