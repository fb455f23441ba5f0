//! What game payloads say, for tools: the opcode and every field that is known, with its place.
//!
//! [`describe`] reads the body of a data message, or what the parts of one give together. It judges nothing: a payload
//! that ends early gives the fields so far, and bytes that no layout explains are the field `rest`. No byte makes it
//! panic, and it gives at most a few fields per byte.
//!
//! ```
//! use bcnet_session::payload::{Opcode, Value, describe};
//!
//! let chat = describe(&[0x2C, 3, 0, 0, 0, 2, 0, b'h', b'i']);
//! assert_eq!(chat.opcode, Some(Opcode::CHAT));
//! assert_eq!(chat.get("text"), Some(Value::Text(b"hi")));
//! assert_eq!(chat.to_string(), r#"Chat sender=3 text="hi""#);
//! ```

mod layout;
mod opcode;
mod reader;

use std::fmt;
use std::ops::Range;

pub use opcode::Opcode;
use reader::Reader;

/// A game payload, field by field.
#[derive(Debug, Clone, PartialEq)]
pub struct Payload<'a> {
    /// Its first byte; `None` if it is empty.
    pub opcode: Option<Opcode>,
    /// What follows, in the order of the wire.
    pub fields: Vec<Field<'a>>,
    /// The field in which the payload ends too early.
    pub truncated: Option<&'static str>,
}

/// One known field of a payload.
#[derive(Debug, Clone, PartialEq)]
pub struct Field<'a> {
    /// Its name. In all payloads fields of one name have one type.
    pub name: &'static str,
    /// Whether a payload may have several of that name.
    pub listed: bool,
    /// Where it lies in the payload. Flags lie in the byte that they are bits of.
    pub at: Range<usize>,
    /// What it says.
    pub value: Value<'a>,
}

/// What a field says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// A number.
    Number(i64),
    /// A number that is no quantity: an object, a class, an event, a hash.
    Id(u32),
    /// A bit.
    Flag(bool),
    /// A floating point number.
    Float(f32),
    /// Text of one byte per character.
    Text(&'a [u8]),
    /// Bytes whose meaning is not known.
    Bytes(&'a [u8]),
}

/// Reads a payload as far as it is understood.
#[must_use]
pub fn describe(payload: &[u8]) -> Payload<'_> {
    let Some((&opcode, body)) = payload.split_first() else {
        return Payload { opcode: None, fields: Vec::new(), truncated: None };
    };
    let opcode = Opcode(opcode);
    let mut reader = Reader::new(body, 1);
    // A layout ends early exactly when the reader notes why.
    if layout::read(opcode, &mut reader).is_some() {
        reader.rest("rest");
    }
    Payload { opcode: Some(opcode), fields: reader.fields, truncated: reader.truncated }
}

impl<'a> Payload<'a> {
    /// The first field of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Value<'a>> {
        self.fields.iter().find(|field| field.name == name).map(|field| field.value)
    }
}

/// Text of one byte per character, as characters.
pub fn characters(text: &[u8]) -> impl Iterator<Item = char> {
    text.iter().copied().map(char::from)
}

impl fmt::Display for Payload<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(opcode) = self.opcode else { return f.write_str("empty") };
        write!(f, "{opcode}")?;
        for field in &self.fields {
            write!(f, " {}={}", field.name, field.value)?;
        }
        match self.truncated {
            Some(name) => write!(f, " ends in {name}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Id(id) => write!(f, "0x{id:08X}"),
            Self::Flag(flag) => flag.fmt(f),
            Self::Float(number) => number.fmt(f),
            Self::Text(text) => quoted(f, text),
            Self::Bytes(bytes) => {
                let shown = bytes.get(..SHOWN_BYTES).unwrap_or(bytes);
                shown.iter().try_for_each(|byte| write!(f, "{byte:02X}"))?;
                f.write_str(if shown.len() < bytes.len() { "…" } else { "" })
            }
        }
    }
}

fn quoted(f: &mut fmt::Formatter<'_>, text: &[u8]) -> fmt::Result {
    f.write_str("\"")?;
    for c in characters(text) {
        match c {
            '"' | '\\' => write!(f, "\\{c}")?,
            _ if c.is_control() => write!(f, "{}", c.escape_default())?,
            _ => write!(f, "{c}")?,
        }
    }
    f.write_str("\"")
}

/// How many bytes without meaning fit a line.
const SHOWN_BYTES: usize = 24;
