//! Numbers of the laboratory.

use crate::number::thousands;

/// Returns a number with three digits, thousands apart.
pub(super) fn number(value: f64) -> String {
    if value.fract() != 0.0 && value.abs() < 100.0 {
        let digits = if value.abs() < 10.0 { 2 } else { 1 };
        return format!("{value:.digits$}");
    }
    let sign = if value < 0.0 { "-" } else { "" };
    format!("{sign}{}", thousands(value.abs().round_ties_even() as u64))
}

/// Returns a length of time in seconds, minutes or hours.
pub(super) fn time(seconds: f64) -> String {
    match seconds {
        ..120.0 => format!("{seconds:.0} seconds"),
        ..7200.0 => format!("{:.0} minutes", seconds / 60.0),
        _ => format!("{:.0} hours", seconds / 3600.0),
    }
}
