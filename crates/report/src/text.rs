//! Numbers, durations and paragraphs as people read them.

use dpsgd_privacy::{Adversary, Interval};

use crate::rounding::up;

/// The width of a statement, in columns.
const COLUMNS: usize = 100;

/// A number as a user would write it, and exactly the same number.
///
/// ```
/// assert_eq!(dpsgd_report::text::number(1e-5), "1e-5");
/// assert_eq!(dpsgd_report::text::number(0.25), "0.25");
/// ```
pub fn number(value: f64) -> String {
    let (plain, scientific) = (format!("{value}"), format!("{value:e}"));
    if plain.len() > scientific.len() { scientific } else { plain }
}

/// Six significant digits, for values that describe and guarantee nothing.
pub(crate) fn six_digits(value: f64) -> String {
    number(format!("{value:.5e}").parse().unwrap_or(value))
}

/// A whole number with narrow spaces between groups of three digits.
pub fn thousands(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// A duration in the two units that matter.
pub fn duration(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        0..60 => format!("{whole} s"),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

/// The power 1 − β of the best attack in percent.
///
/// # Guarantee
/// It is computed from the end of β that is guaranteed and rounded up: no attack is more powerful.
pub fn percent(beta: Interval) -> String {
    format!("{} %", up((100.0 * (1.0 - beta.lower)).min(100.0), 4))
}

/// "A₀" or "A₁".
pub fn subscript(adversary: Adversary) -> &'static str {
    match adversary {
        Adversary::A0 => "A₀",
        Adversary::A1 => "A₁",
    }
}

/// Indented lines of at most 100 columns.
pub fn wrapped(text: &str, indent: usize) -> String {
    let mut lines = String::new();
    let mut line = " ".repeat(indent);
    let mut fresh = true;
    for word in text.split_ascii_whitespace() {
        if !fresh && line.chars().count() + 1 + word.chars().count() > COLUMNS {
            lines.push_str(line.trim_end());
            lines.push('\n');
            line = " ".repeat(indent);
            fresh = true;
        }
        if !fresh {
            line.push(' ');
        }
        line.push_str(word);
        fresh = false;
    }
    if !fresh {
        lines.push_str(&line);
        lines.push('\n');
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit() {
        let text = wrapped(&"word ".repeat(100), 2);
        assert!(text.lines().all(|line| line.chars().count() <= 100 && line.starts_with("  ")));
    }

    #[test]
    fn numbers_for_people() {
        assert_eq!((thousands(7), thousands(1_234_567)), ("7".into(), "1\u{202f}234\u{202f}567".into()));
        assert_eq!((duration(59.4), duration(61.0)), ("59 s".into(), "1 min 1 s".into()));
        assert_eq!(duration(7261.0), "2 h 1 min");
    }
}
