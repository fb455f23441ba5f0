//! Lists the fields of a payload for tools: each field with its name, value and place.

use std::fmt;
use std::ops::Range;

use bcnet_transport::wire::is_printable;

use super::Opcode;
use super::field::Reader;
use super::table::read_for_description;

/// A game payload, field by field.
#[derive(Debug, Clone, PartialEq)]
pub struct Description<'a> {
    /// The first byte of the payload; `None` if the payload is empty.
    pub opcode: Option<Opcode>,
    /// The fields behind the opcode, in the order of the wire.
    pub fields: Vec<PayloadField<'a>>,
    /// The field in which a truncated payload ends.
    pub truncated: Option<&'static str>,
}

/// One known field of a payload.
#[derive(Debug, Clone, PartialEq)]
pub struct PayloadField<'a> {
    /// The name of the field. Fields with the same name have the same type in all payloads.
    pub name: &'static str,
    /// True if a payload can have several fields of this name.
    pub repeated: bool,
    /// The place of the field in the payload. Several fields can describe the same bytes.
    pub range: Range<usize>,
    /// The value.
    pub value: Value<'a>,
}

/// The value of a field.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// A number.
    Number(i64),
    /// A number that is not a quantity: an object, a class, an event, a hash.
    Id(u32),
    /// A bit.
    Flag(bool),
    /// A floating point number.
    Float(f32),
    /// A number in fewer bits than a float has.
    Packed {
        /// The decoded number.
        number: f32,
        /// The number of significant decimals.
        decimals: u8,
    },
    /// The bits of the packed number before this field, as on the wire.
    Raw(u16),
    /// The name of the number before this field, or of one of its set bits.
    Name(&'static str),
    /// Text with one byte per character (Latin-1).
    Text(&'a [u8]),
    /// Bytes whose meaning is not known.
    Bytes(&'a [u8]),
}

/// Lists the fields of a payload, as far as the layout is known.
///
/// Checks nothing: a truncated payload gives the fields before its end. Bytes behind the known layout become the field
/// `rest`. It never panics, and returns at most a few fields per byte.
#[must_use]
pub fn describe(payload: &[u8]) -> Description<'_> {
    let Some(opcode) = payload.first().copied().map(Opcode) else {
        return Description { opcode: None, fields: Vec::new(), truncated: None };
    };
    let mut reader = Reader::recording(payload);
    let truncated = read_for_description(opcode, &mut reader).err().map(|cut| cut.field);
    Description { opcode: Some(opcode), fields: reader.into_fields(), truncated }
}

impl<'a> Description<'a> {
    /// Returns the value of the first field with this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Value<'a>> {
        self.fields.iter().find(|field| field.name == name).map(|field| field.value)
    }
}

/// Converts text with one byte per character (Latin-1) to characters.
pub fn latin1_chars(text: &[u8]) -> impl Iterator<Item = char> {
    text.iter().copied().map(char::from)
}

/// Formats a payload on one line for people.
///
/// The name of a number follows it in parentheses. Packed numbers are shown decoded.
impl fmt::Display for Description<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(opcode) = self.opcode else { return f.write_str("empty") };
        write!(f, "{opcode}")?;
        let mut names = self.fields.iter().peekable();
        let mut open = false;
        while let Some(field) = names.next() {
            match field.value {
                Value::Raw(_) => {}
                Value::Name(name) => {
                    write!(f, "{}{name}", if open { ", " } else { " (" })?;
                    open = names.peek().is_some_and(|next| matches!(next.value, Value::Name(_)));
                    f.write_str(if open { "" } else { ")" })?;
                }
                value => write!(f, " {}={value}", field.name)?,
            }
        }
        match self.truncated {
            Some(name) => write!(f, " truncated in {name}"),
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
            Self::Packed { number, decimals } => write!(f, "{number:.*}", usize::from(*decimals)),
            Self::Raw(bits) => write!(f, "0x{bits:04X}"),
            Self::Name(name) => f.write_str(name),
            Self::Text(text) => write_quoted(f, text),
            Self::Bytes(bytes) => {
                let shown = bytes.get(..MAX_SHOWN_BYTES).unwrap_or(bytes);
                shown.iter().try_for_each(|byte| write!(f, "{byte:02X}"))?;
                f.write_str(if shown.len() < bytes.len() { "…" } else { "" })
            }
        }
    }
}

fn write_quoted(f: &mut fmt::Formatter<'_>, text: &[u8]) -> fmt::Result {
    f.write_str("\"")?;
    for c in latin1_chars(text) {
        match c {
            '"' | '\\' => write!(f, "\\{c}")?,
            _ if !is_printable(c) => write!(f, "{}", c.escape_default())?,
            _ => write!(f, "{c}")?,
        }
    }
    f.write_str("\"")
}

/// The most bytes of unknown meaning that are shown.
const MAX_SHOWN_BYTES: usize = 24;
