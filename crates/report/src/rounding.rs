//! Bounds for people, rounded in the direction that keeps them true.

use crate::text::number;

/// A value with `digits` significant digits, rounded up.
///
/// # Guarantee
/// The printed number is at least the value; one that is not positive prints as 0.
///
/// ```
/// assert_eq!(dpsgd_report::rounding::up(0.745_012_1, 6), "0.745013");
/// ```
pub fn up(value: f64, digits: i32) -> String {
    directed(value, digits, true)
}

/// A value with `digits` significant digits, rounded down.
///
/// # Guarantee
/// The printed number is at most the value, for a value that is not negative.
pub fn down(value: f64, digits: i32) -> String {
    directed(value, digits, false)
}

fn directed(value: f64, digits: i32, upwards: bool) -> String {
    if !value.is_finite() {
        return if value > 0.0 { "∞".to_string() } else { number(value) };
    }
    if value <= 0.0 {
        return "0".to_string();
    }
    let text = format!("{value:.*e}", (digits - 1) as usize);
    let near: f64 = text.parse().unwrap_or(value);
    let wrong = if upwards { near < value } else { near > value };
    let exponent: i32 = text.split('e').nth(1).and_then(|exponent| exponent.parse().ok()).unwrap_or(0);
    // One unit of the last digit towards the safe side.
    let near = if wrong {
        let unit = 10_f64.powi(exponent - digits + 1);
        if upwards { near + unit } else { near - unit }
    } else {
        near
    };
    if (-4..9).contains(&exponent) {
        // The step may have carried into a new digit: 99.99 and one unit are 100.0.
        let exponent = if near >= 10_f64.powi(exponent + 1) { exponent + 1 } else { exponent };
        format!("{near:.*}", (digits - 1 - exponent).max(0) as usize)
    } else {
        format!("{near:.*e}", (digits - 1) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_bounds_are_on_the_safe_side() {
        for value in
            [35.013_249_91, 0.745_012_3, 1.0, 2.0, 1e-5, 3.3e-17, 123_456_789.5, 99.999_99, 9.999_999e11]
        {
            let (above, below): (f64, f64) = (up(value, 6).parse().unwrap(), down(value, 6).parse().unwrap());
            assert!(below <= value && value <= above, "{below} {value} {above}");
            assert!(above - below <= 2e-5 * value, "{below} {value} {above}");
        }
        assert_eq!((up(0.0, 6), up(f64::INFINITY, 6)), ("0".to_string(), "∞".to_string()));
        assert_eq!(up(0.745_012_1, 6), "0.745013");
    }
}
