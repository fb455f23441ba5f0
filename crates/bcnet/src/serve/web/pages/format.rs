//! Formats values for people.

use serde_json::Value;

use crate::server_info::PlayerInfo;

/// Formats milliseconds.
pub(super) fn millis(time: Option<f64>) -> String {
    match time {
        None => NO_VALUE.into(),
        Some(time) if time < 10.0 => format!("{time:.2}"),
        Some(time) if time < 100.0 => format!("{time:.1}"),
        Some(time) => format!("{time:.0}"),
    }
}

/// Formats a duration as hours, minutes and seconds.
pub(super) fn duration(seconds: u64) -> String {
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

/// Formats a number of bytes.
pub(super) fn bytes(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} B"),
        10_000..10_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

/// Returns the name or number of a player's ship.
pub(super) fn ship(player: &PlayerInfo) -> String {
    match (&player.ship_name, player.ship) {
        (Some(name), _) => name.0.clone(),
        (None, Some(number)) => format!("ship {number}"),
        (None, None) => NO_VALUE.into(),
    }
}

/// Formats a share in percent.
pub(super) fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| NO_VALUE.into(), |share| format!("{:.1}", share * 100.0))
}

/// Returns a text field of an answer, or an empty text.
pub(super) fn text_field<'a>(answer: &'a Value, key: &str) -> &'a str {
    answer.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Shown in place of a missing value.
pub(super) const NO_VALUE: &str = "–";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_by_magnitude() {
        let shown = [None, Some(0.123), Some(12.34), Some(123.4)].map(millis);
        assert_eq!(shown, ["–", "0.12", "12.3", "123"]);
        assert_eq!([59, 61, 3661].map(duration), ["0:59", "1:01", "1:01:01"]);
        assert_eq!([0, 9_999, 10_500, 12_300_000].map(bytes), ["0 B", "9999 B", "10.5 kB", "12.3 MB"]);
        assert_eq!([None, Some(0.0), Some(0.125)].map(percent), ["–", "0.0", "12.5"]);
    }
}
