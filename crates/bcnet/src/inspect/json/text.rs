//! JSON as text: objects, lists, members and values, each added to the end.
//!
//! A comma follows whatever is added; where an object or a list ends, its end takes the place of the last one. So nothing
//! has to be asked in front of a member. All lines of an output share one buffer: captures have millions of them.

use std::fmt::{self, Display};
use std::io::{self, Write};
use std::net::SocketAddrV4;

/// Lines of JSON that wait to be written.
#[derive(Default)]
pub(in crate::inspect) struct Json {
    text: Vec<u8>,
}

impl Json {
    /// Adds an object on a line of its own.
    pub(in crate::inspect) fn line(&mut self, fill: impl FnOnce(&mut Self)) {
        self.object(fill);
        self.end(b'\n');
    }

    /// Writes all lines if they are many enough for it to be worth while.
    pub(in crate::inspect) fn write_many(&mut self, out: &mut impl Write) -> io::Result<()> {
        if self.text.len() < MANY { Ok(()) } else { self.write(out) }
    }

    /// Writes all lines.
    pub(in crate::inspect) fn write(&mut self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(&self.text)?;
        self.text.clear();
        Ok(())
    }

    pub(super) fn object(&mut self, fill: impl FnOnce(&mut Self)) {
        self.text.push(b'{');
        fill(self);
        self.end(b'}');
        self.text.push(b',');
    }

    pub(super) fn array<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut each: impl FnMut(&mut Self, T),
    ) {
        self.text.push(b'[');
        for item in items {
            each(self, item);
        }
        self.end(b']');
        self.text.push(b',');
    }

    /// Ends what was begun: in place of the comma behind its last member, if it has any.
    fn end(&mut self, with: u8) {
        match self.text.last_mut() {
            Some(last) if *last == b',' => *last = with,
            _ => self.text.push(with),
        }
    }

    /// A name that needs no escapes. Inlined, so that the length of nearly every name is known when it is copied.
    #[inline(always)]
    pub(super) fn name(&mut self, name: &str) {
        self.text.push(b'"');
        self.text.extend_from_slice(name.as_bytes());
        self.text.extend_from_slice(b"\":");
    }

    #[inline(always)]
    pub(super) fn value(&mut self, value: impl Value) {
        value.add(&mut self.text);
        self.text.push(b',');
    }

    #[inline(always)]
    pub(in crate::inspect) fn member(&mut self, name: &str, value: impl Value) {
        self.name(name);
        self.value(value);
    }

    /// Text that a value is shown as.
    pub(in crate::inspect) fn shown(&mut self, name: &str, value: impl Display) {
        self.name(name);
        let start = self.text.len();
        self.text.push(b'"');
        // Writing to memory does not fail.
        let _ = fmt::Write::write_fmt(&mut Shown(&mut self.text), format_args!("{value}"));
        let shown = self.text.get(start + 1..).unwrap_or_default();
        if needs_escapes(shown) {
            let shown = String::from_utf8_lossy(shown).into_owned();
            self.text.truncate(start);
            shown.as_str().add(&mut self.text);
        } else {
            self.text.push(b'"');
        }
        self.text.push(b',');
    }

    pub(super) fn hex(&mut self, bytes: &[u8]) {
        self.text.push(b'"');
        let start = self.text.len();
        self.text.resize(start + 2 * bytes.len(), 0);
        let digits = self.text.get_mut(start..).unwrap_or_default().as_chunks_mut::<2>().0;
        for (digits, byte) in digits.iter_mut().zip(bytes) {
            *digits = [hex_digit(byte >> 4), hex_digit(byte & 15)];
        }
        self.text.extend_from_slice(b"\",");
    }

    /// As it is shown, in less time: most lines have two.
    pub(in crate::inspect) fn address(&mut self, name: &str, address: SocketAddrV4) {
        self.name(name);
        self.text.push(b'"');
        let [a, b, c, d] = address.ip().octets();
        for (number, behind) in
            [(a.into(), b'.'), (b.into(), b'.'), (c.into(), b'.'), (d.into(), b':'), (address.port(), b'"')]
        {
            number.add(&mut self.text);
            self.text.push(behind);
        }
        self.text.push(b',');
    }

    /// Seconds, exactly.
    pub(in crate::inspect) fn seconds(&mut self, name: &str, micros: u64) {
        self.name(name);
        (micros / 1_000_000).add(&mut self.text);
        let part = (micros % 1_000_000) as usize;
        let ([a, b], [c, d], [e, f]) = (PAIRS[part / 10_000], PAIRS[part / 100 % 100], PAIRS[part % 100]);
        self.text.extend_from_slice(&[b'.', a, b, c, d, e, f, b',']);
    }
}

/// What has a form in JSON.
pub(in crate::inspect) trait Value {
    /// Adds that form to a text.
    fn add(self, text: &mut Vec<u8>);
}

macro_rules! unsigned {
    ($($number:ty)*) => {
        $(impl Value for $number {
            #[inline]
            fn add(self, text: &mut Vec<u8>) {
                decimal(self as u64, text);
            }
        })*
    };
}

unsigned!(u8 u16 u32 u64 usize);

impl Value for i64 {
    fn add(self, text: &mut Vec<u8>) {
        if self < 0 {
            text.push(b'-');
        }
        decimal(self.unsigned_abs(), text);
    }
}

macro_rules! float {
    ($($number:ty)*) => {
        /// In as few digits as tell it from every other; what is no number becomes null.
        $(impl Value for $number {
            fn add(self, text: &mut Vec<u8>) {
                // Writing to memory does not fail.
                let _ = serde_json::to_writer(text, &self);
            }
        })*
    };
}

float!(f32 f64);

impl Value for bool {
    #[inline]
    fn add(self, text: &mut Vec<u8>) {
        text.extend_from_slice(if self { b"true" } else { b"false" });
    }
}

impl Value for &str {
    #[inline]
    fn add(self, text: &mut Vec<u8>) {
        if needs_escapes(self.as_bytes()) {
            let _ = serde_json::to_writer(text, self);
            return;
        }
        text.push(b'"');
        text.extend_from_slice(self.as_bytes());
        text.push(b'"');
    }
}

/// Null.
impl Value for () {
    #[inline]
    fn add(self, text: &mut Vec<u8>) {
        text.extend_from_slice(b"null");
    }
}

impl<T: Value> Value for Option<T> {
    #[inline]
    fn add(self, text: &mut Vec<u8>) {
        match self {
            Some(value) => value.add(text),
            None => ().add(text),
        }
    }
}

/// Looks at all bytes, whatever the first is: so several are looked at at once.
fn needs_escapes(text: &[u8]) -> bool {
    text.iter().fold(false, |found, byte| found | (*byte < 0x20) | (*byte == b'"') | (*byte == b'\\'))
}

const fn hex_digit(nibble: u8) -> u8 {
    if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 }
}

/// Four digits at a time: copies of a known length need no call.
fn decimal(number: u64, text: &mut Vec<u8>) {
    match number {
        0..10 => text.push(b'0' + number as u8),
        10..100 => text.extend_from_slice(&PAIRS[number as usize]),
        _ => {
            let last = (number % 10_000) as usize;
            let ([a, b], [c, d]) = (PAIRS[last / 100], PAIRS[last % 100]);
            match number {
                100..1000 => text.extend_from_slice(&[b, c, d]),
                1000..10_000 => text.extend_from_slice(&[a, b, c, d]),
                _ => {
                    decimal(number / 10_000, text);
                    text.extend_from_slice(&[a, b, c, d]);
                }
            }
        }
    }
}

/// The two digits of the numbers below a hundred.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut number = 0;
    while number < pairs.len() {
        pairs[number] = [b'0' + number as u8 / 10, b'0' + number as u8 % 10];
        number += 1;
    }
    pairs
};

/// What is shown goes to a text as it is.
struct Shown<'a>(&'a mut Vec<u8>);

impl fmt::Write for Shown<'_> {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        self.0.extend_from_slice(piece.as_bytes());
        Ok(())
    }
}

/// So many bytes are written at once.
const MANY: usize = 1 << 17;

#[cfg(test)]
mod tests {
    use super::*;

    fn line(fill: impl FnOnce(&mut Json)) -> String {
        let (mut json, mut out) = (Json::default(), Vec::new());
        json.line(fill);
        json.write(&mut out).expect("memory can be written");
        String::from_utf8(out).expect("UTF-8")
    }

    /// What serde makes of the same value is the same text.
    #[test]
    fn values_are_what_serde_makes_of_them() {
        fn same<T: Value + serde::Serialize + Copy>(value: T) {
            let mut text = Vec::new();
            value.add(&mut text);
            assert_eq!(String::from_utf8(text).ok(), serde_json::to_string(&value).ok());
        }
        for number in [0, 9, 10, 99, 100, 101, 65_535, 1_000_000, u64::MAX] {
            same(number);
            same(number as u8);
            same(number.cast_signed());
            same(-(number.cast_signed() / 2));
            same(number as f64 / 8.0);
            same(number as f32 / 8.0);
        }
        for text in ["", "plain", "Žofie 🚀", "a\"b", "a\\b", "\u{1}\n\u{7f}"] {
            same(text);
        }
        same(f64::NAN);
        same(i64::MIN);
        same(true);
        same(false);
        same(());
        same(None::<u8>);
        same(Some(7_u8));
    }

    #[test]
    fn commas_are_between_and_nowhere_else() {
        let text = line(|json| {
            json.member("a", 1_u8);
            json.name("b");
            json.array([1_u8, 2], |json, item| json.value(item));
            json.name("c");
            json.array([0_u8; 0], |json, item| json.value(item));
            json.name("d");
            json.object(|_| {});
            json.seconds("e", 1_000_020);
            json.shown("f", "x\"y,");
            json.hex(&[0, 0xAF]);
        });
        let expected = r#"{"a":1,"b":[1,2],"c":[],"d":{},"e":1.000020,"f":"x\"y,","00af"}"#;
        assert_eq!(text, format!("{expected}\n"));
        assert_eq!(line(|_| {}), "{}\n");
    }

    #[test]
    fn addresses_are_shown_as_they_are() {
        for address in ["0.0.0.0:0", "10.0.200.1:22101", "255.255.255.255:65535"] {
            let socket: SocketAddrV4 = address.parse().expect("an address");
            assert_eq!(line(|json| json.address("x", socket)), format!("{{\"x\":\"{address}\"}}\n"));
        }
    }
}
