//! Number formats for people.

/// Formats a number with a comma between thousands: `1,234,567`.
pub(crate) fn group_digits(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a count with its noun: `1 player`, `2 players`.
pub(crate) fn pluralize(count: impl TryInto<u64>, name: &str) -> String {
    let count = count.try_into().unwrap_or(u64::MAX);
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {name}{plural}", group_digits(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_pluralized_and_digits_grouped() {
        assert_eq!(
            [0, 1, 2, 1000].map(|count| pluralize(count, "player")),
            ["0 players", "1 player", "2 players", "1,000 players"]
        );
        assert_eq!([999, 1_000, 1_234_567].map(group_digits), ["999", "1,000", "1,234,567"]);
    }
}
