//! Unix seconds in a form that people can read: `2026-11-16T12:00:00Z`.

use std::fmt;

use toml::de::DeValue;
use toml::value::Datetime;

use crate::config::{ConfigValue, describe_value, expected_message, quoted};

/// A point in time, in Unix seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Timestamp(pub(crate) u64);

impl fmt::Display for Timestamp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, second) =
            (self.0.min(MAX_SECONDS) / SECONDS_PER_DAY, self.0.min(MAX_SECONDS) % SECONDS_PER_DAY);
        let (year, month, day) = calendar_date(days);
        write!(
            out,
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
            second / 3600,
            second / 60 % 60,
            second % 60
        )
    }
}

impl ConfigValue for Timestamp {
    fn form() -> String {
        "a date and time such as `2026-11-16T12:00:00Z`".into()
    }

    fn from_text(text: &str) -> Result<Self, String> {
        text.parse()
            .ok()
            .and_then(unix_seconds)
            .map(Self)
            .ok_or_else(|| expected_message::<Self>(&quoted(text)))
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        let time = value.as_datetime().and_then(|time| unix_seconds(*time));
        time.map(Self).ok_or_else(|| expected_message::<Self>(&describe_value(value)))
    }

    fn to_toml(&self) -> String {
        self.to_string()
    }
}

/// Returns Unix seconds, or `None` if date, time or offset is missing or the time is before 1970.
fn unix_seconds(time: Datetime) -> Option<u64> {
    let (date, clock) = (time.date?, time.time?);
    let offset = match time.offset? {
        toml::value::Offset::Z => 0,
        toml::value::Offset::Custom { minutes } => i64::from(minutes) * 60,
    };
    let days = days_since_1970(date.year.into(), date.month.into(), date.day.into());
    let second =
        i64::from(clock.hour) * 3600 + i64::from(clock.minute) * 60 + i64::from(clock.second.unwrap_or(0));
    u64::try_from(days * SECONDS_PER_DAY.cast_signed() + second - offset).ok()
}

/// Days from 1970-01-01 to a date of the Gregorian calendar.
///
/// The calculation starts years in March, so the leap day is the last day of a year.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + of_year - DAYS_TO_1970
}

/// Returns the date `days` days after 1970-01-01.
fn calendar_date(days: u64) -> (u64, u64, u64) {
    let days = days + DAYS_TO_1970.cast_unsigned();
    let (era, of_era) = (days / DAYS_PER_ERA, days % DAYS_PER_ERA);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + later, month, day)
}

const SECONDS_PER_DAY: u64 = 86_400;
/// Days in 400 years.
const DAYS_PER_ERA: u64 = 146_097;
/// Days from 0000-03-01 to 1970-01-01.
const DAYS_TO_1970: i64 = 719_468;
/// The end of 9999, the last year that TOML can write.
const MAX_SECONDS: u64 = 253_402_300_799;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_match_the_gregorian_calendar() {
        for (second, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_164_800, "2024-02-29T00:00:00Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (MAX_SECONDS, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(Timestamp(second).to_string(), text);
            assert_eq!(Timestamp::from_text(text), Ok(Timestamp(second)));
        }
        assert_eq!(Timestamp(u64::MAX).to_string(), "9999-12-31T23:59:59Z");
        assert_eq!(Timestamp::from_text("1970-01-01T02:00:00+01:30"), Ok(Timestamp(1800)));
    }

    #[test]
    fn timestamps_round_trip_for_a_thousand_years() {
        for day in 0..365_250 {
            let moment = Timestamp(day * SECONDS_PER_DAY);
            assert_eq!(Timestamp::from_text(&moment.to_string()), Ok(moment));
        }
    }

    #[test]
    fn invalid_timestamps_are_refused() {
        for text in [
            "",
            "2026-11-16",
            "12:00:00",
            "2026-11-16T12:00:00",
            "1969-12-31T23:59:59Z",
            "2026-13-01T00:00:00Z",
        ] {
            assert!(Timestamp::from_text(text).is_err(), "{text}");
        }
    }
}
