//! What may stand behind a key: each kind of value reads itself from TOML and from plain text (environment, flags), and
//! writes itself back.

use std::fmt::Write as _;
use std::time::Duration;

use bcnet_control::did_you_mean;
use toml::de::DeValue;

/// A value of one key. What cannot be read is an error text that says what was expected.
pub(crate) trait Value: Sized {
    /// Returns what may be written, for people.
    fn form() -> String;

    /// Reads what the environment or a flag says.
    fn from_text(text: &str) -> Result<Self, String>;

    /// Reads what a file says. Most values are text there.
    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        match value {
            DeValue::String(text) => Self::from_text(text),
            other => Err(expected::<Self>(&plain(other))),
        }
    }

    /// Returns the value as TOML.
    fn to_toml(&self) -> String;
}

/// Text in TOML's quotes.
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

/// Returns what to say of a value that cannot be read.
pub(crate) fn expected<T: Value>(found: &str) -> String {
    const SHOWN: usize = 60;
    let shown: String = found.chars().take(SHOWN).collect();
    let more = if shown.len() < found.len() { "…" } else { "" };
    format!("expected {}, not {shown}{more}", T::form())
}

/// Returns a value of the wrong type, as short as a message wants it.
pub(crate) fn plain(value: &DeValue<'_>) -> String {
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

impl Value for bool {
    fn form() -> String {
        "`true` or `false`".into()
    }

    fn from_text(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| expected::<Self>(&quoted(text)))
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        value.as_bool().ok_or_else(|| expected::<Self>(&plain(value)))
    }

    fn to_toml(&self) -> String {
        self.to_string()
    }
}

/// A whole number from `MIN` to `MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Within<const MIN: u16, const MAX: u16>(u16);

impl<const MIN: u16, const MAX: u16> Within<MIN, MAX> {
    /// `number`, brought into the range.
    pub(crate) const fn new(number: u16) -> Self {
        let number = if number < MIN { MIN } else { number };
        Self(if number > MAX { MAX } else { number })
    }

    pub(crate) fn get(self) -> u16 {
        self.0
    }
}

impl<const MIN: u16, const MAX: u16> Value for Within<MIN, MAX> {
    fn form() -> String {
        format!("a number from {MIN} to {MAX}")
    }

    fn from_text(text: &str) -> Result<Self, String> {
        let number = text.parse().ok().filter(|number| (MIN..=MAX).contains(number));
        number.map(Self).ok_or_else(|| expected::<Self>(text))
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        let Some(digits) = value.as_integer() else { return Err(expected::<Self>(&plain(value))) };
        match u16::from_str_radix(digits.as_str(), digits.radix()) {
            Ok(number) => Self::from_text(&number.to_string()),
            Err(_) => Err(expected::<Self>(&plain(value))),
        }
    }

    fn to_toml(&self) -> String {
        self.0.to_string()
    }
}

/// Something, or `"none"`.
impl<T: Value> Value for Option<T> {
    fn form() -> String {
        format!("{}, or `\"none\"`", T::form())
    }

    fn from_text(text: &str) -> Result<Self, String> {
        if text == "none" {
            Ok(None)
        } else {
            T::from_text(text).map(Some).map_err(|error| or(error, "none"))
        }
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        match value.as_str() {
            Some("none") => Ok(None),
            _ => T::from_toml(value).map(Some).map_err(|error| or(error, "none")),
        }
    }

    fn to_toml(&self) -> String {
        self.as_ref().map_or_else(|| "\"none\"".into(), T::to_toml)
    }
}

/// Returns the same complaint, with one more word that would have been right.
fn or(error: String, word: &str) -> String {
    error.replacen(", not ", &format!(" or \"{word}\", not "), 1)
}

/// A number, or `"auto"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Auto<const LEAST: u16, const MOST: u16> {
    Auto,
    Fixed(Within<LEAST, MOST>),
}

/// A UDP port, or `"auto"`.
pub(crate) type Port = Auto<1, 65535>;

impl<const LEAST: u16, const MOST: u16> Auto<LEAST, MOST> {
    /// Returns the number that was asked for, if one was.
    pub(crate) fn fixed(self) -> Option<u16> {
        match self {
            Self::Auto => None,
            Self::Fixed(number) => Some(number.get()),
        }
    }
}

impl<const LEAST: u16, const MOST: u16> Value for Auto<LEAST, MOST> {
    fn form() -> String {
        format!("{}, or `\"auto\"`", Within::<LEAST, MOST>::form())
    }

    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            text => Within::from_text(text).map(Self::Fixed).map_err(|_| expected::<Self>(&quoted(text))),
        }
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        match value.as_str() {
            Some("auto") => Ok(Self::Auto),
            _ => Within::from_toml(value).map(Self::Fixed).map_err(|_| expected::<Self>(&plain(value))),
        }
    }

    fn to_toml(&self) -> String {
        self.fixed().map_or_else(|| "\"auto\"".into(), |number| number.to_string())
    }
}

/// A span of time: digits and a unit.
impl Value for Duration {
    fn form() -> String {
        "a time such as `\"500ms\"`, `\"45s\"`, `\"30m\"`, `\"12h\"` or `\"7d\"`".into()
    }

    fn from_text(text: &str) -> Result<Self, String> {
        let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let unit = UNITS.iter().find(|(unit, _)| text.strip_prefix(digits) == Some(unit));
        let span = digits.parse::<u32>().ok().zip(unit);
        span.map(|(number, (_, millis))| Self::from_millis(u64::from(number) * millis))
            .ok_or_else(|| expected::<Self>(&quoted(text)))
    }

    fn to_toml(&self) -> String {
        let millis = u64::try_from(self.as_millis()).unwrap_or(u64::MAX);
        let exact = UNITS.iter().find(|(_, unit)| millis % unit == 0 && millis >= *unit);
        let (unit, length) = exact.unwrap_or(&("ms", 1));
        quoted(&format!("{}{unit}", millis / length))
    }
}

const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

impl Value for Size {
    fn form() -> String {
        "a size such as `\"512KiB\"`, `\"64MiB\"` or `\"2GiB\"`".into()
    }

    fn from_text(text: &str) -> Result<Self, String> {
        let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let unit = SIZES.iter().find(|(unit, _)| text.strip_prefix(digits) == Some(unit));
        let size = digits.parse::<u32>().ok().filter(|number| *number > 0).zip(unit);
        size.map(|(number, (_, bytes))| Self(u64::from(number) * bytes))
            .ok_or_else(|| expected::<Self>(&quoted(text)))
    }

    fn to_toml(&self) -> String {
        let exact = SIZES.iter().find(|(_, unit)| self.0.is_multiple_of(*unit));
        let (unit, length) = exact.unwrap_or(&("KiB", 1 << 10));
        quoted(&format!("{}{unit}", self.0 / length))
    }
}

const SIZES: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// A list, written with commas where there are no brackets.
impl<T: Value> Value for Vec<T> {
    fn form() -> String {
        format!("a list, each of it {}", T::form())
    }

    fn from_text(text: &str) -> Result<Self, String> {
        text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(T::from_text).collect()
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        let items = value.as_array().ok_or_else(|| expected::<Self>(&plain(value)))?;
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

            /// Returns the word for it.
            pub(crate) fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }

        impl $crate::config::value::Value for $name {
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

/// Returns what to say of a word that is not among `words`.
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
    use crate::config::text::{HostPort, Line, Lines};
    use crate::config::{Mission, SayAs};

    /// Reads `text` as the value of a key in a file.
    fn from_file<T: Value>(text: &str) -> Result<T, String> {
        let text = format!("key = {text}");
        let root = DeTable::parse(&text).expect(&text);
        T::from_toml(root.get_ref().get("key").expect("the key").get_ref())
    }

    fn comes_back<T: Value + PartialEq + fmt::Debug>(text: &str) {
        let value = T::from_text(text).expect(text);
        let written = value.to_toml();
        assert_eq!(from_file::<T>(&written).as_ref(), Ok(&value), "{text} is written {written}");
    }

    #[test]
    fn every_kind_of_value_is_read_back_as_it_was_written() {
        comes_back::<bool>("false");
        for text in ["0ms", "1ms", "1500ms", "45s", "90s", "60m", "36h", "4294967295d"] {
            comes_back::<Duration>(text);
            comes_back::<Option<Duration>>(text);
        }
        for text in ["1KiB", "1024KiB", "1025KiB", "4294967295GiB"] {
            comes_back::<Size>(text);
        }
        for text in ["auto", "1", "65535"] {
            comes_back::<Port>(text);
        }
        for text in ["", "a \"quoted\" = [x] # y", "Müller ÿ"] {
            comes_back::<Line<32>>(text);
        }
        comes_back::<Lines<32>>("one\ntwo\n\nfour");
        for text in ["", "Multi1", "Multi1, Albirea,Poseidon"] {
            comes_back::<Vec<System>>(text);
        }
        comes_back::<Vec<HostPort<27900>>>("one.example, 192.0.2.1:1");
        comes_back::<Option<Within<1, 254>>>("none");
        comes_back::<Mission>("Custom.Episode.Mission_9");
        comes_back::<SayAs>("255");
        comes_back::<PathBuf>("a b/\"c\"");
    }

    #[test]
    fn values_out_of_bounds_are_refused() {
        for text in ["", "5", "s", "-1s", "1.5s", "5 s", "5S", "4294967296s"] {
            assert!(Duration::from_text(text).is_err(), "{text}");
        }
        for text in ["0KiB", "5", "5MB", "KiB"] {
            assert!(Size::from_text(text).is_err(), "{text}");
        }
        for text in ["0", "65536", "-1", "\"22101\"", "true", "0x10000", "[1]"] {
            assert!(from_file::<Port>(text).is_err(), "{text}");
        }
        assert_eq!(from_file::<Port>("0x5655").map(Port::fixed), Ok(Some(22101)));
        for text in ["a\\b", "a\nb", "\u{7F}", "\u{2014}", &"x".repeat(33)] {
            assert!(Line::<32>::from_text(text).is_err(), "{text}");
        }
        for text in ["", ":1", "a:", "a:0", "a:65536", "a b", "::1", "[::1]:5"] {
            assert!(HostPort::<1>::from_text(text).is_err(), "{text}");
        }
        for text in ["dm", "A..B", ".", "a.b c", "Mission1"] {
            assert!(Mission::from_text(text).is_err(), "{text}");
        }
    }
}
