//! Parses and encodes form data and query strings.

use std::fmt::Write as _;

/// Names and values, in the order of the form.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FormData(Vec<(String, String)>);

impl FormData {
    /// Parses `a=1&b=two+words%21`. Invalid UTF-8 is replaced.
    pub(super) fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty()).take(MAX_FIELDS).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (percent_decode(name), percent_decode(value))
        });
        Self(pairs.collect())
    }

    /// Returns a value, or an empty text if the name is missing.
    pub(super) fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(other, _)| other == name).map_or("", |(_, value)| value)
    }

    /// Returns a trimmed value that is not empty.
    pub(super) fn non_empty(&self, name: &str) -> Option<String> {
        Some(self.get(name).trim()).filter(|text| !text.is_empty()).map(ToOwned::to_owned)
    }

    /// Encodes the pairs whose name `is_included`, each with a trailing `&`.
    pub(super) fn encode_where(&self, is_included: impl Fn(&str) -> bool) -> String {
        let kept = self.0.iter().filter(|(name, _)| is_included(name));
        kept.map(|(name, value)| format!("{}={}&", percent_encode(name), percent_encode(value))).collect()
    }

    /// Returns a value as a number.
    pub(super) fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.get(name).parse().ok()
    }
}

fn percent_decode(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let [first, after @ ..] = rest {
        rest = after;
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = digits.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        match (first, escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok())) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            (b'+', _) => bytes.push(b' '),
            (other, _) => bytes.push(*other),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Percent-encodes a text for a URL.
pub(super) fn percent_encode(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02x}");
        }
    }
    out
}

/// Largest number of fields that are parsed.
const MAX_FIELDS: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn form_decodes_values_and_keeps_invalid_escapes() {
        let form = FormData::parse("a=1&b=two+words%21&c&=x&%zz=%&d=%C3%BC%ff&a=2");
        assert_eq!((form.get("a"), form.get("b"), form.get("c")), ("1", "two words!", ""));
        assert_eq!((form.get(""), form.get("%zz"), form.get("d")), ("x", "%", "ü\u{FFFD}"));
        assert_eq!((form.number::<u8>("a"), form.number::<u8>("b")), (Some(1), None));
        assert_eq!((form.non_empty("c"), form.non_empty("b")), (None, Some("two words!".into())));
        let special = "a&b=<ü> %";
        assert_eq!(FormData::parse(&format!("q={}", percent_encode(special))).get("q"), special);
        assert_eq!(FormData::parse(""), FormData::default());
        assert_eq!(FormData::parse("a=1&b=x+y&c").encode_where(|name| name != "a"), "b=x%20y&c=&");
        assert_eq!(FormData::parse(&"a=1&".repeat(1000)).0.len(), MAX_FIELDS);
    }
}
