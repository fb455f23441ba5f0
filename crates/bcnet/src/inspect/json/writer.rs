//! Writes JSON as text: objects, lists, members and values, each appended to a buffer.
//!
//! Each value is followed by a comma. The end of an object or a list replaces the last comma, so no state is needed
//! before a member. All lines of an output share one buffer, because captures have millions of lines. Space is reserved
//! once for a name and once for a value, and is filled in lengths known to the compiler.

use std::fmt::{self, Display};
use std::io::{self, Write};

use bcnet_transport::wire::is_printable;

use super::address_cache::AddressCache;
use super::float_cache::FloatCache;

/// Lines of JSON that wait to be written.
#[derive(Default)]
pub(in crate::inspect) struct Json {
    /// The buffer: filled up to `len`, free after it.
    text: Vec<u8>,
    len: usize,
    pub(super) float_cache: FloatCache,
    pub(super) address_cache: AddressCache,
}

impl Json {
    /// Adds an object on its own line.
    pub(in crate::inspect) fn line(&mut self, fill: impl FnOnce(&mut Self)) {
        self.object(fill);
        self.close(b'\n');
    }

    /// Writes all lines once there are [`WRITE_THRESHOLD`] bytes.
    pub(in crate::inspect) fn write_if_full(&mut self, out: &mut impl Write) -> io::Result<()> {
        if self.len < WRITE_THRESHOLD { Ok(()) } else { self.write(out) }
    }

    /// Writes all lines.
    pub(in crate::inspect) fn write(&mut self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(self.text.get(..self.len).unwrap_or_default())?;
        self.len = 0;
        Ok(())
    }

    pub(super) fn object(&mut self, fill: impl FnOnce(&mut Self)) {
        self.put(b"{");
        fill(self);
        self.close(b'}');
        self.put(b",");
    }

    pub(super) fn array<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut each: impl FnMut(&mut Self, T),
    ) {
        self.put(b"[");
        for item in items {
            each(self, item);
        }
        self.close(b']');
        self.put(b",");
    }

    /// Ends an object or a list: replaces the comma after its last member, if it has any.
    fn close(&mut self, with: u8) {
        match self.text.get_mut(self.len.wrapping_sub(1)) {
            Some(last) if *last == b',' => *last = with,
            _ => self.put(&[with]),
        }
    }

    /// Returns the next free bytes; [`commit`](Self::commit) tells how many of them were filled.
    #[inline(always)]
    pub(super) fn reserve<const N: usize>(&mut self) -> &mut [u8; N] {
        if self.text.len() - self.len < N {
            self.grow(N);
        }
        let room = self.text.get_mut(self.len..).and_then(|room| room.first_chunk_mut());
        room.expect("the space was reserved above")
    }

    #[inline(always)]
    pub(super) fn commit(&mut self, bytes: usize) {
        self.len += bytes;
    }

    /// Returns the number of bytes in the buffer.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Returns the bytes that were added after the first `len` bytes.
    pub(super) fn written_since(&self, len: usize) -> &[u8] {
        self.text.get(len..self.len).unwrap_or_default()
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, bytes: usize) {
        self.text.resize((self.len + bytes).max(2 * WRITE_THRESHOLD), 0);
    }

    /// Adds bytes without change.
    #[inline(always)]
    pub(super) fn put(&mut self, bytes: &[u8]) {
        if self.text.len() - self.len < bytes.len() {
            self.grow(bytes.len());
        }
        let end = self.len + bytes.len();
        if let Some(room) = self.text.get_mut(self.len..end) {
            room.copy_from_slice(bytes);
        }
        self.len = end;
    }

    /// Adds a name that needs no escapes.
    ///
    /// The function is inlined, so the length of nearly every name is known at compile time.
    #[inline(always)]
    pub(super) fn name(&mut self, name: &str) {
        let len = name.len();
        if self.text.len() - self.len < len + 3 {
            self.grow(len + 3);
        }
        if let Some([first, room @ .., behind, colon]) = self.text.get_mut(self.len..self.len + len + 3) {
            (*first, *behind, *colon) = (b'"', b'"', b':');
            room.copy_from_slice(name.as_bytes());
        }
        self.len += len + 3;
    }

    #[inline(always)]
    pub(super) fn value(&mut self, value: impl JsonValue) {
        value.add(self);
    }

    #[inline(always)]
    pub(in crate::inspect) fn member(&mut self, name: &str, value: impl JsonValue) {
        self.name(name);
        self.value(value);
    }

    /// Adds the `Display` text of a value.
    pub(in crate::inspect) fn display_member(&mut self, name: &str, value: impl Display) {
        self.name(name);
        self.put(b"\"");
        let start = self.len;
        // Writing to memory cannot fail.
        let _ = fmt::Write::write_fmt(&mut DisplayAdapter(self), format_args!("{value}"));
        let shown = self.text.get(start..self.len).unwrap_or_default();
        if needs_escapes(shown) {
            let shown = String::from_utf8_lossy(shown).into_owned();
            self.len = start - 1;
            shown.as_str().add(self);
        } else {
            self.put(b"\",");
        }
    }

    pub(super) fn hex(&mut self, bytes: &[u8]) {
        self.put(b"\"");
        for piece in bytes.chunks(HEX_CHUNK) {
            let digits = self.reserve::<{ 2 * HEX_CHUNK }>().as_chunks_mut().0;
            for (digits, byte) in digits.iter_mut().zip(piece) {
                *digits = HEX_DIGITS[usize::from(*byte)];
            }
            self.commit(2 * piece.len());
        }
        self.put(b"\",");
    }

    /// Adds microseconds as exact seconds.
    pub(in crate::inspect) fn seconds(&mut self, name: &str, micros: u64) {
        self.member(name, micros / 1_000_000);
        self.replace_comma(b'.');
        let part = (micros % 1_000_000) as usize;
        let ([a, b], [c, d], [e, f]) =
            (DIGIT_PAIRS[part / 10_000], DIGIT_PAIRS[part / 100 % 100], DIGIT_PAIRS[part % 100]);
        self.put(&[a, b, c, d, e, f, b',']);
    }

    /// Replaces the comma after the last value, so that the value continues.
    #[inline(always)]
    fn replace_comma(&mut self, with: u8) {
        if let Some(last) = self.text.get_mut(self.len.wrapping_sub(1)) {
            *last = with;
        }
    }
}

/// A value that has a form in JSON.
pub(in crate::inspect) trait JsonValue {
    /// Adds the value and a comma.
    fn add(self, json: &mut Json);
}

macro_rules! unsigned {
    ($($number:ty)*) => {
        $(impl JsonValue for $number {
            #[inline(always)]
            fn add(self, json: &mut Json) {
                decimal(self as u64, json);
            }
        })*
    };
}

unsigned!(u8 u16 u32 u64 usize);

impl JsonValue for i64 {
    fn add(self, json: &mut Json) {
        if self < 0 {
            json.put(b"-");
        }
        decimal(self.unsigned_abs(), json);
    }
}

/// Written with the fewest digits that identify the number. NaN and infinities become null.
impl JsonValue for f64 {
    fn add(self, json: &mut Json) {
        // Writing to memory cannot fail.
        let _ = serde_json::to_writer(&mut *json, &self);
        json.put(b",");
    }
}

impl JsonValue for bool {
    #[inline(always)]
    fn add(self, json: &mut Json) {
        if self { json.put(b"true,") } else { json.put(b"false,") }
    }
}

impl JsonValue for &str {
    #[inline]
    fn add(self, json: &mut Json) {
        if needs_escapes(self.as_bytes()) {
            return escape(self, json);
        }
        json.put(b"\"");
        json.put(self.as_bytes());
        json.put(b"\",");
    }
}

/// A static text that needs no escapes.
pub(in crate::inspect) struct UnescapedStr(pub(in crate::inspect) &'static str);

impl JsonValue for UnescapedStr {
    #[inline(always)]
    fn add(self, json: &mut Json) {
        json.put(b"\"");
        json.put(self.0.as_bytes());
        json.put(b"\",");
    }
}

/// Written as null.
impl JsonValue for () {
    #[inline(always)]
    fn add(self, json: &mut Json) {
        json.put(b"null,");
    }
}

impl<T: JsonValue> JsonValue for Option<T> {
    #[inline(always)]
    fn add(self, json: &mut Json) {
        match self {
            Some(value) => value.add(json),
            None => ().add(json),
        }
    }
}

/// Adds the output of serde without change.
impl Write for Json {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.put(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns whether a text needs escapes.
///
/// The loop checks all bytes without an early exit, so the compiler can vectorise it. Non-ASCII text always counts as
/// needing escapes.
fn needs_escapes(text: &[u8]) -> bool {
    let needs = |byte: u8| !(0x20..0x7F).contains(&byte) | (byte == b'"') | (byte == b'\\');
    text.iter().fold(false, |found, byte| found | needs(*byte))
}

/// Adds a text with escapes. Characters that a terminal does not show are escaped too: the reader may be a terminal.
#[inline(never)]
fn escape(text: &str, json: &mut Json) {
    let quoted = serde_json::to_string(text).unwrap_or_default();
    for letter in quoted.chars() {
        let mut room = [0; 4];
        if is_printable(letter) {
            json.put(letter.encode_utf8(&mut room).as_bytes());
        } else {
            for unit in letter.encode_utf16(&mut [0; 2]) {
                json.put(format!("\\u{unit:04x}").as_bytes());
            }
        }
    }
    json.put(b",");
}

/// The two hex digits of each byte.
static HEX_DIGITS: [[u8; 2]; 256] = {
    let digits = b"0123456789abcdef";
    let mut pairs = [[0; 2]; 256];
    let mut byte = 0;
    while byte < pairs.len() {
        pairs[byte] = [digits[byte / 16], digits[byte % 16]];
        byte += 1;
    }
    pairs
};

/// Adds a number and a comma. Copies have a constant length, so they need no function call.
#[inline(always)]
fn decimal(number: u64, json: &mut Json) {
    let Some((digits, count)) = usize::try_from(number).ok().and_then(|number| SMALL_NUMBERS.get(number))
    else {
        return many_digits(number, json);
    };
    *json.reserve() = *digits;
    json.commit(usize::from(*count) + 1);
}

#[inline(never)]
fn many_digits(number: u64, json: &mut Json) {
    let last = (number % 10_000) as usize;
    let ([a, b], [c, d]) = (DIGIT_PAIRS[last / 100], DIGIT_PAIRS[last % 100]);
    if number < 10_000 {
        return json.put(&[a, b, c, d, b',']);
    }
    decimal(number / 10_000, json);
    json.len -= 1;
    json.put(&[a, b, c, d, b',']);
}

/// The digits of the numbers below 1000, padded with commas, and the number of digits.
static SMALL_NUMBERS: [([u8; 4], u8); 1000] = {
    let mut numbers = [([b','; 4], 0); 1000];
    let mut number = 0;
    while number < numbers.len() {
        let [hundreds, tens, ones] = [number / 100, number / 10 % 10, number % 10];
        let [a, b, c] = [b'0' + hundreds as u8, b'0' + tens as u8, b'0' + ones as u8];
        numbers[number] = match number {
            0..10 => ([c, b',', b',', b','], 1),
            10..100 => ([b, c, b',', b','], 2),
            _ => ([a, b, c, b','], 3),
        };
        number += 1;
    }
    numbers
};

/// The two digits of the numbers below 100.
static DIGIT_PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut number = 0;
    while number < pairs.len() {
        pairs[number] = [b'0' + number as u8 / 10, b'0' + number as u8 % 10];
        number += 1;
    }
    pairs
};

/// Adds the output of `Display` without change.
struct DisplayAdapter<'a>(&'a mut Json);

impl fmt::Write for DisplayAdapter<'_> {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        self.0.put(piece.as_bytes());
        Ok(())
    }
}

/// Lines are written once they have this many bytes. The output's own buffer has the same size, so such writes bypass
/// it.
const WRITE_THRESHOLD: usize = super::super::file::OUTPUT_BUFFER_SIZE;
/// The number of bytes that are converted to hex at once.
const HEX_CHUNK: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn line(fill: impl FnOnce(&mut Json)) -> String {
        let (mut json, mut out) = (Json::default(), Vec::new());
        json.line(fill);
        json.write(&mut out).expect("writing to memory cannot fail");
        String::from_utf8(out).expect("UTF-8")
    }

    /// The text equals the output of serde_json.
    #[test]
    fn values_match_serde_json() {
        fn same<T: JsonValue + serde::Serialize + Copy>(value: T) {
            let expected = serde_json::to_string(&value).expect("a value");
            assert_eq!(line(|json| json.value(value)), format!("{{{expected}}}\n"));
            let twice = line(|json| [value; 2].into_iter().for_each(|value| json.value(value)));
            assert_eq!(twice, format!("{{{expected},{expected}}}\n"));
        }
        for number in [0, 9, 10, 99, 100, 101, 65_535, 1_000_000, u64::MAX] {
            same(number);
            same(number as u8);
            same(number.cast_signed());
            same(-(number.cast_signed() / 2));
            same(number as f64 / 8.0);
            same(number as f32 / 8.0);
            same(f32::from_bits(number as u32));
        }
        for text in ["", "plain", "Žofie 🚀", "a\"b", "a\\b", "\u{1}\n"] {
            same(text);
        }
        // Characters that a terminal does not show are escaped and parse to the same text.
        let unseen = "\u{7f}\u{202e}";
        assert_eq!(line(|json| json.value(unseen)), "{\"\\u007f\\u202e\"}\n");
        same(f64::NAN);
        same(f32::NAN);
        same(-0.0_f32);
        same(f32::MIN_POSITIVE);
        same(-f32::MAX);
        same(i64::MIN);
        same(true);
        same(false);
        same(());
        same(None::<u8>);
        same(Some(7_u8));
    }

    #[test]
    fn commas_only_separate_items() {
        let text = line(|json| {
            json.member("a", 1_u8);
            json.name("b");
            json.array([1_u8, 2], |json, item| json.value(item));
            json.name("c");
            json.array([0_u8; 0], |json, item| json.value(item));
            json.name("d");
            json.object(|_| {});
            json.seconds("e", 1_000_020);
            json.display_member("f", "x\"y,");
            json.hex(&[0, 0xAF]);
        });
        let expected = r#"{"a":1,"b":[1,2],"c":[],"d":{},"e":1.000020,"f":"x\"y,","00af"}"#;
        assert_eq!(text, format!("{expected}\n"));
        assert_eq!(line(|_| {}), "{}\n");
    }

    #[test]
    fn addresses_are_formatted_correctly() {
        // Each address is written twice; the second text comes from the cache. The last three share a slot there.
        let addresses = [
            "0.0.0.0:0",
            "255.255.255.255:65535",
            "10.0.200.1:22101",
            "10.0.200.2:22100",
            "10.0.200.1:22101",
        ];
        let mut json = Json::default();
        for address in addresses.into_iter().flat_map(|address| [address; 2]) {
            let socket: std::net::SocketAddrV4 = address.parse().expect("an address");
            json.line(|json| json.member("x", socket));
            let mut out = Vec::new();
            json.write(&mut out).expect("written");
            assert_eq!(String::from_utf8(out).expect("UTF-8"), format!("{{\"x\":\"{address}\"}}\n"));
        }
    }
}
