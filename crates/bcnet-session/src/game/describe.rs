//! What a payload says, for tools: every field with its name and place.

use std::fmt;
use std::ops::Range;

use bcnet_transport::wire::is_printable;

use super::Opcode;
use super::field::Reader;
use super::table::read_for_description;

/// A game payload, field by field.
#[derive(Debug, Clone, PartialEq)]
pub struct Description<'a> {
    /// Its first byte; `None` if it is empty.
    pub opcode: Option<Opcode>,
    /// What follows, in the order of the wire.
    pub fields: Vec<PayloadField<'a>>,
    /// The field in which the payload ends too early.
    pub truncated: Option<&'static str>,
}

/// One known field of a payload.
#[derive(Debug, Clone, PartialEq)]
pub struct PayloadField<'a> {
    /// Its name. In all payloads fields of one name have one type.
    pub name: &'static str,
    /// Whether a payload may have several of that name.
    pub repeated: bool,
    /// Where it lies in the payload. Several may say something of the same bytes.
    pub range: Range<usize>,
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
    /// A number that travels in fewer bits than a float has.
    Packed {
        /// The number that they mean.
        number: f32,
        /// How many decimals of it they can tell.
        decimals: u8,
    },
    /// The bits of the packed number before, as they are on the wire.
    Raw(u16),
    /// What the number before stands for, or which of its bits are set.
    Name(&'static str),
    /// Text of one byte per character.
    Text(&'a [u8]),
    /// Bytes whose meaning is not known.
    Bytes(&'a [u8]),
}

/// Reads a payload as far as it is understood.
///
/// It judges nothing: a payload that ends early gives the fields so far, and bytes that no layout explains are the
/// field `rest`. No byte makes it panic, and it gives at most a few fields per byte.
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
    /// Returns the first field of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Value<'a>> {
        self.fields.iter().find(|field| field.name == name).map(|field| field.value)
    }
}

/// Text of one byte per character, as characters.
pub fn latin1_chars(text: &[u8]) -> impl Iterator<Item = char> {
    text.iter().copied().map(char::from)
}

/// On one line, for people: what a number stands for in parentheses behind it, and of packed numbers what they mean.
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

/// How many bytes without meaning fit a line.
const MAX_SHOWN_BYTES: usize = 24;
