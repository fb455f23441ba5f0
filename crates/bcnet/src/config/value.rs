//! Types of values: each is parsed from TOML and from text (environment, flags), and written as TOML.

use std::fmt::Write as _;
use std::time::Duration;

use bcnet_control::did_you_mean;
use toml::de::DeValue;

/// The value of a key. A parse error is a message with the expected form.
pub(crate) trait ConfigValue: Sized {
    /// Returns the accepted form, for people.
    fn form() -> String;

    /// Parses a value from the environment or a flag.
    fn from_text(text: &str) -> Result<Self, String>;

    /// Parses a value from a file. Most values are strings there.
    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        match value {
            DeValue::String(text) => Self::from_text(text),
            other => Err(expected_message::<Self>(&describe_value(other))),
        }
    }

    /// Returns the value as TOML.
    fn to_toml(&self) -> String;
}

/// Returns a text as a TOML string with quotes.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            '\n' => out.push_str("\\n"),
            control if control.is_control() => {
                let _ = write!(out, "\\u{:04X}", u32::from(control));
            }
            letter => out.push(letter),
        }
    }
    out.push('"');
    out
}

/// Returns the error message for a value that cannot be parsed.
pub(crate) fn expected_message<T: ConfigValue>(found: &str) -> String {
    const SHOWN: usize = 60;
    let shown: String = found.chars().take(SHOWN).collect();
    let more = if shown.len() < found.len() { "…" } else { "" };
    format!("expected {}, not {shown}{more}", T::form())
}

/// Returns a short description of a value with the wrong type.
pub(crate) fn describe_value(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => quoted(text),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(yes) => yes.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(_) => "a list".into(),
        DeValue::Table(_) => "a table".into(),
    }
}

impl ConfigValue for bool {
    fn form() -> String {
        "`true` or `false`".into()
    }

    fn from_text(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| expected_message::<Self>(&quoted(text)))
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        value.as_bool().ok_or_else(|| expected_message::<Self>(&describe_value(value)))
    }

    fn to_toml(&self) -> String {
        self.to_string()
    }
}

/// A whole number from `MIN` to `MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BoundedU16<const MIN: u16, const MAX: u16>(u16);

impl<const MIN: u16, const MAX: u16> BoundedU16<MIN, MAX> {
    /// Returns `number`, limited to the range.
    pub(crate) const fn new(number: u16) -> Self {
        let number = if number < MIN { MIN } else { number };
        Self(if number > MAX { MAX } else { number })
    }

    pub(crate) fn get(self) -> u16 {
        self.0
    }
}

impl<const MIN: u16, const MAX: u16> ConfigValue for BoundedU16<MIN, MAX> {
    fn form() -> String {
        format!("a number from {MIN} to {MAX}")
    }

    fn from_text(text: &str) -> Result<Self, String> {
        let number = text.parse().ok().filter(|number| (MIN..=MAX).contains(number));
        number.map(Self).ok_or_else(|| expected_message::<Self>(text))
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        let Some(digits) = value.as_integer() else {
            return Err(expected_message::<Self>(&describe_value(value)));
        };
        match u16::from_str_radix(digits.as_str(), digits.radix()) {
            Ok(number) => Self::from_text(&number.to_string()),
            Err(_) => Err(expected_message::<Self>(&describe_value(value))),
        }
    }

    fn to_toml(&self) -> String {
        self.0.to_string()
    }
}

/// A value, or `"none"`.
impl<T: ConfigValue> ConfigValue for Option<T> {
    fn form() -> String {
        format!("{}, or `\"none\"`", T::form())
    }

    fn from_text(text: &str) -> Result<Self, String> {
        if text == "none" {
            Ok(None)
        } else {
            T::from_text(text).map(Some).map_err(|error| add_alternative(error, "none"))
        }
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        match value.as_str() {
            Some("none") => Ok(None),
            _ => T::from_toml(value).map(Some).map_err(|error| add_alternative(error, "none")),
        }
    }

    fn to_toml(&self) -> String {
        self.as_ref().map_or_else(|| "\"none\"".into(), T::to_toml)
    }
}

/// Returns the error message with one more accepted word.
fn add_alternative(error: String, word: &str) -> String {
    error.replacen(", not ", &format!(" or \"{word}\", not "), 1)
}

/// A number, or `"auto"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Auto<const MIN: u16, const MAX: u16> {
    Auto,
    Fixed(BoundedU16<MIN, MAX>),
}

/// A UDP port, or `"auto"`.
pub(crate) type Port = Auto<1, 65535>;

impl<const MIN: u16, const MAX: u16> Auto<MIN, MAX> {
    /// Returns the number, or `None` for `"auto"`.
    pub(crate) fn fixed(self) -> Option<u16> {
        match self {
            Self::Auto => None,
            Self::Fixed(number) => Some(number.get()),
        }
    }
}

impl<const MIN: u16, const MAX: u16> ConfigValue for Auto<MIN, MAX> {
    fn form() -> String {
        format!("{}, or `\"auto\"`", BoundedU16::<MIN, MAX>::form())
    }

    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            text => BoundedU16::from_text(text)
                .map(Self::Fixed)
                .map_err(|_| expected_message::<Self>(&quoted(text))),
        }
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        match value.as_str() {
            Some("auto") => Ok(Self::Auto),
            _ => BoundedU16::from_toml(value)
                .map(Self::Fixed)
                .map_err(|_| expected_message::<Self>(&describe_value(value))),
        }
    }

    fn to_toml(&self) -> String {
        self.fixed().map_or_else(|| "\"auto\"".into(), |number| number.to_string())
    }
}

/// A duration: digits and a unit.
impl ConfigValue for Duration {
    fn form() -> String {
        "a time such as `\"500ms\"`, `\"45s\"`, `\"30m\"`, `\"12h\"` or `\"7d\"`".into()
    }

    fn from_text(text: &str) -> Result<Self, String> {
        let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let unit = TIME_UNITS.iter().find(|(unit, _)| text.strip_prefix(digits) == Some(unit));
        let span = digits.parse::<u32>().ok().zip(unit);
        span.map(|(number, (_, millis))| Self::from_millis(u64::from(number) * millis))
            .ok_or_else(|| expected_message::<Self>(&quoted(text)))
    }

    fn to_toml(&self) -> String {
        let millis = u64::try_from(self.as_millis()).unwrap_or(u64::MAX);
        let exact = TIME_UNITS.iter().find(|(_, unit)| millis % unit == 0 && millis >= *unit);
        let (unit, length) = exact.unwrap_or(&("ms", 1));
        quoted(&format!("{}{unit}", millis / length))
    }
}

const TIME_UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ByteSize(pub(crate) u64);

impl ConfigValue for ByteSize {
    fn form() -> String {
        "a size such as `\"512KiB\"`, `\"64MiB\"` or `\"2GiB\"`".into()
    }

    fn from_text(text: &str) -> Result<Self, String> {
        let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let unit = SIZE_UNITS.iter().find(|(unit, _)| text.strip_prefix(digits) == Some(unit));
        let size = digits.parse::<u32>().ok().filter(|number| *number > 0).zip(unit);
        size.map(|(number, (_, bytes))| Self(u64::from(number) * bytes))
            .ok_or_else(|| expected_message::<Self>(&quoted(text)))
    }

    fn to_toml(&self) -> String {
        let exact = SIZE_UNITS.iter().find(|(_, unit)| self.0.is_multiple_of(*unit));
        let (unit, length) = exact.unwrap_or(&("KiB", 1 << 10));
        quoted(&format!("{}{unit}", self.0 / length))
    }
}

const SIZE_UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// A list; separated by commas or line breaks in text.
impl<T: ConfigValue> ConfigValue for Vec<T> {
    fn form() -> String {
        format!("a list; each element is {}", T::form())
    }

    fn from_text(text: &str) -> Result<Self, String> {
        text.split([',', '\n']).map(str::trim).filter(|item| !item.is_empty()).map(T::from_text).collect()
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        let items = value.as_array().ok_or_else(|| expected_message::<Self>(&describe_value(value)))?;
        items.iter().map(|item| T::from_toml(item.get_ref())).collect()
    }

    fn to_toml(&self) -> String {
        format!("[{}]", self.iter().map(T::to_toml).collect::<Vec<_>>().join(", "))
    }
}

/// Defines an enum whose values are words.
macro_rules! words {
    ($(#[doc = $about:literal])* $name:ident { $($(#[doc = $doc:literal])* $variant:ident = $word:literal,)* }) => {
        $(#[doc = $about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum $name { $($(#[doc = $doc])* $variant,)* }

        impl $name {
            const WORDS: &'static [(&'static str, Self)] = &[$(($word, Self::$variant),)*];

            /// Returns the word of this value.
            pub(crate) fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }

        impl $crate::config::value::ConfigValue for $name {
            fn form() -> String {
                Self::WORDS.iter().map(|(word, _)| format!("`\"{word}\"`")).collect::<Vec<_>>().join(", ")
            }

            fn from_text(text: &str) -> Result<Self, String> {
                let known = Self::WORDS.iter().find(|(word, _)| *word == text);
                known.map(|(_, value)| *value).ok_or_else(|| {
                    $crate::config::value::unknown_word(text, Self::WORDS.iter().map(|(word, _)| *word))
                })
            }

            fn to_toml(&self) -> String {
                $crate::config::value::quoted(self.word())
            }
        }
    };
}
pub(crate) use words;

/// Returns the error message for a word that is not among `words`.
pub(crate) fn unknown_word(text: &str, words: impl Iterator<Item = &'static str> + Clone) -> String {
    let all = words.clone().map(quoted).collect::<Vec<_>>().join(", ");
    format!("expected one of {all}, not {}{}", quoted(text), did_you_mean(text, words))
}

#[cfg(test)]
mod tests {
    use std::fmt;
    use std::path::PathBuf;

    use bcnet_session::System;
    use toml::de::DeTable;

    use super::*;
    use crate::config::text::{HostPort, Latin1Line, Latin1Text};
    use crate::config::{MissionSetting, SayAsSetting};

    /// Parses `text` as the value of a key in a file.
    fn from_file<T: ConfigValue>(text: &str) -> Result<T, String> {
        let text = format!("key = {text}");
        let root = DeTable::parse(&text).expect(&text);
        T::from_toml(root.get_ref().get("key").expect("the key").get_ref())
    }

    fn assert_round_trip<T: ConfigValue + PartialEq + fmt::Debug>(text: &str) {
        let value = T::from_text(text).expect(text);
        let written = value.to_toml();
        assert_eq!(from_file::<T>(&written).as_ref(), Ok(&value), "{text} is written {written}");
    }

    #[test]
    fn values_round_trip_through_toml() {
        assert_round_trip::<bool>("false");
        for text in ["0ms", "1ms", "1500ms", "45s", "90s", "60m", "36h", "4294967295d"] {
            assert_round_trip::<Duration>(text);
            assert_round_trip::<Option<Duration>>(text);
        }
        for text in ["1KiB", "1024KiB", "1025KiB", "4294967295GiB"] {
            assert_round_trip::<ByteSize>(text);
        }
        for text in ["auto", "1", "65535"] {
            assert_round_trip::<Port>(text);
        }
        for text in ["", "a \"quoted\" = [x] # y", "Müller ÿ"] {
            assert_round_trip::<Latin1Line<32>>(text);
        }
        assert_round_trip::<Latin1Text<32>>("one\ntwo\n\nfour");
        for text in ["", "Multi1", "Multi1, Albirea,Poseidon", "Multi1\r\nAlbirea,\nPoseidon"] {
            assert_round_trip::<Vec<System>>(text);
        }
        assert_round_trip::<Vec<HostPort<27900>>>("one.example, 192.0.2.1:1");
        assert_round_trip::<Option<BoundedU16<1, 254>>>("none");
        assert_round_trip::<MissionSetting>("Custom.Episode.Mission_9");
        assert_round_trip::<SayAsSetting>("255");
        assert_round_trip::<PathBuf>("a b/\"c\"");
    }

    #[test]
    fn out_of_range_values_are_rejected() {
        for text in ["", "5", "s", "-1s", "1.5s", "5 s", "5S", "4294967296s"] {
            assert!(Duration::from_text(text).is_err(), "{text}");
        }
        for text in ["0KiB", "5", "5MB", "KiB"] {
            assert!(ByteSize::from_text(text).is_err(), "{text}");
        }
        for text in ["0", "65536", "-1", "\"22101\"", "true", "0x10000", "[1]"] {
            assert!(from_file::<Port>(text).is_err(), "{text}");
        }
        assert_eq!(from_file::<Port>("0x5655").map(Port::fixed), Ok(Some(22101)));
        for text in ["a\\b", "a\nb", "\u{7F}", "\u{2014}", &"x".repeat(33)] {
            assert!(Latin1Line::<32>::from_text(text).is_err(), "{text}");
        }
        for text in ["", ":1", "a:", "a:0", "a:65536", "a b", "::1", "[::1]:5"] {
            assert!(HostPort::<1>::from_text(text).is_err(), "{text}");
        }
        for text in ["dm", "A..B", ".", "a.b c", "Mission1"] {
            assert!(MissionSetting::from_text(text).is_err(), "{text}");
        }
    }
}
