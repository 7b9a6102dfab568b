//! The day, for whoever signs what a run states.

use std::time::{SystemTime, UNIX_EPOCH};

/// Today in UTC, as in 2026-11-18. A day and no more: hours would say how long other things took.
pub(crate) fn today() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    day(seconds / 86_400)
}

/// The day this many days after 1970-01-01: years begin in March, so that the leap day is the last of one
/// (Hinnant, "chrono-compatible low-level date algorithms", `civil_from_days`).
fn day(days: u64) -> String {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let date = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + 400 * era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{date:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `date -u -d @SECONDS +%F` says.
    #[test]
    fn days_are_those_of_the_calendar() {
        let known = [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_709_164_800, "2024-02-29"),
            (1_767_139_200, "2025-12-31"),
            (1_767_225_600, "2026-01-01"),
            (4_107_542_400, "2100-03-01"),
        ];
        for (seconds, said) in known {
            assert_eq!(day(seconds / 86_400), said);
        }
    }
}
