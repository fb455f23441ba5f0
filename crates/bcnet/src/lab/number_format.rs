//! Number formats of the laboratory.

use crate::number_format::group_digits;

/// Formats a number with digits in groups, such as `1,234`.
///
/// A fraction below 10 gets two decimal places, and below 100 one. All other numbers become integers.
pub(super) fn format_number(value: f64) -> String {
    if value.fract() != 0.0 && value.abs() < 100.0 {
        let digits = if value.abs() < 10.0 { 2 } else { 1 };
        return format!("{value:.digits$}");
    }
    let sign = if value < 0.0 { "-" } else { "" };
    format!("{sign}{}", group_digits(value.abs().round_ties_even() as u64))
}

/// Formats a duration in seconds, minutes or hours.
pub(super) fn format_duration(seconds: f64) -> String {
    match seconds {
        ..120.0 => format!("{seconds:.0} seconds"),
        ..7200.0 => format!("{:.0} minutes", seconds / 60.0),
        _ => format!("{:.0} hours", seconds / 3600.0),
    }
}
