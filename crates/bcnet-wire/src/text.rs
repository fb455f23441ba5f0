//! UTF-16LE text inside a datagram ([T-39]).
//!
//! [T-39]: crate::protocol#t-39

use alloc::vec::Vec;
use core::char::{REPLACEMENT_CHARACTER, decode_utf16};
use core::fmt::{self, Write as _};

/// Borrowed UTF-16LE text without its terminator.
///
/// Units that are not valid UTF-16 are kept and displayed as `U+FFFD`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Text<'a> {
    units: &'a [[u8; 2]],
}

impl<'a> Text<'a> {
    /// Wraps UTF-16LE bytes without a terminator.
    ///
    /// Returns `None` if their number is odd or if they contain a NUL unit.
    #[must_use]
    pub fn new(utf16le: &'a [u8]) -> Option<Self> {
        let (units, []) = utf16le.as_chunks() else { return None };
        (!units.contains(&NUL)).then_some(Self { units })
    }

    /// Splits a terminated text off the front of `bytes`; returns it and the bytes behind the terminator.
    pub(crate) fn split_terminated(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (units, []) = bytes.as_chunks() else { return None };
        let len = units.iter().position(|unit| *unit == NUL)?;
        let (units, rest) = units.split_at_checked(len)?;
        Some((Self { units }, rest.as_flattened().get(NUL.len()..)?))
    }

    /// Returns UTF-16LE bytes for [`Text::new`], or `None` if `text` contains a NUL.
    ///
    /// A NUL would end the text early.
    #[must_use]
    pub fn encode(text: &str) -> Option<Vec<u8>> {
        (!text.contains('\0')).then(|| text.encode_utf16().flat_map(u16::to_le_bytes).collect())
    }

    /// Returns the bytes, without the terminator.
    #[must_use]
    pub fn as_bytes(self) -> &'a [u8] {
        self.units.as_flattened()
    }

    /// Returns the characters.
    pub fn chars(self) -> impl Iterator<Item = char> + 'a {
        decode_utf16(self.units.iter().map(|unit| u16::from_le_bytes(*unit)))
            .map(|decoded| decoded.unwrap_or(REPLACEMENT_CHARACTER))
    }

    /// Returns the clean form of a name ([T-71]), at most `max` bytes of UTF-16LE for [`Text::new`].
    ///
    /// The result is valid UTF-16 with only [printable](is_printable) characters. Each white space character
    /// becomes a plain space, and both ends are trimmed. Cleaning a clean text changes nothing.
    ///
    /// [T-71]: crate::protocol#t-71
    #[must_use]
    pub fn cleaned(self, max: usize) -> Vec<u8> {
        let valid = decode_utf16(self.units.iter().map(|unit| u16::from_le_bytes(*unit))).flatten();
        let blank = |c: char| if c.is_whitespace() { ' ' } else { c };
        let mut clean = Vec::new();
        for c in valid.map(blank).filter(|c| is_printable(*c)) {
            let mut units = [0; 2];
            let units = c.encode_utf16(&mut units);
            if clean.len() + units.len() * NUL.len() > max {
                break;
            }
            if c != ' ' || !clean.is_empty() {
                clean.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
            }
        }
        while clean.ends_with(&SPACE) {
            clean.truncate(clean.len() - SPACE.len());
        }
        clean
    }

    /// Displays the text in quotes, safe for a terminal.
    ///
    /// Quotes, backslashes and characters that are not [printable](is_printable) are escaped.
    pub fn quoted(self) -> impl fmt::Display + 'a {
        Quoted(self)
    }

    /// Returns the length in a datagram in bytes, including the terminator.
    pub(crate) const fn wire_len(self) -> usize {
        (self.units.len() + 1) * NUL.len()
    }
}

/// Writes the characters without escapes; use [`quoted`](Text::quoted) for a terminal.
impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.chars().try_for_each(|c| f.write_char(c))
    }
}

/// See [`Text::quoted`].
struct Quoted<'a>(Text<'a>);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                _ if !is_printable(c) => write!(f, "{}", c.escape_default())?,
                _ => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}

/// Returns whether a character is visible or a space.
///
/// Other characters control terminals, change the direction of writing, have no width, or are invisible.
#[must_use]
pub fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return !c.is_ascii_control();
    }
    !matches!(c,
        '\u{80}'..='\u{9F}'
        | '\u{AD}' | '\u{34F}' | '\u{61C}' | '\u{115F}' | '\u{1160}' | '\u{17B4}' | '\u{17B5}'
        | '\u{180B}'..='\u{180F}'
        | '\u{200B}'..='\u{200F}'
        | '\u{2028}'..='\u{202E}'
        | '\u{2060}'..='\u{206F}'
        | '\u{2800}' | '\u{3164}'
        | '\u{FDD0}'..='\u{FDEF}'
        | '\u{FE00}'..='\u{FE0F}'
        | '\u{FEFF}' | '\u{FFA0}'
        | '\u{FFF0}'..='\u{FFFB}' | '\u{FFFE}' | '\u{FFFF}'
        | '\u{1BCA0}'..='\u{1BCA3}'
        | '\u{1D173}'..='\u{1D17A}'
        | '\u{E0000}'..='\u{E0FFF}')
}

/// The unit that terminates a text.
const NUL: [u8; 2] = [0, 0];
/// A space as a unit.
const SPACE: [u8; 2] = [b' ', 0];
