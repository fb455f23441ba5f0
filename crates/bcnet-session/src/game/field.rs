//! Fields: reads, writes and lists each kind of value in a payload ([S-71]).
//!
//! [S-71]: bcnet_transport::wire::protocol#s-71

use std::ops::Range;

use super::describe::{PayloadField, Value};

/// A value in a payload, which can be read and written.
pub(crate) trait Wire<'a>: Sized {
    /// The name of this kind of value in PROTOCOL.md and in the dissector.
    const KIND: &'static str;
    /// True if a payload may end before this field.
    const OPTIONAL: bool = false;
    /// The values that this value consists of.
    const PARTS: &'static [Part] = &[Part { name: "", kind: Self::KIND, optional: false }];

    /// Reads the value from the payload and records it under `names`.
    fn read(reader: &mut Reader<'a>, names: &'static Names) -> Result<Self, Cut>;

    /// Appends the value to a payload.
    fn write(&self, out: &mut Vec<u8>);
}

/// A field of a message, as tables show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The name of the field; empty if the fields inside it have names.
    pub name: &'static str,
    /// The kind of the value.
    pub kind: &'static str,
    /// True if a payload may end before this field.
    pub optional: bool,
}

/// The names of a field in descriptions.
#[derive(Debug)]
pub(crate) struct Names {
    /// The name of the value.
    pub(crate) name: &'static str,
    /// The name of the number on the wire, if the decoded value differs from it.
    pub(crate) raw: &'static str,
    /// The name of the field that names the value.
    pub(crate) meaning: &'static str,
}

/// Returns the [`Names`] of a field.
macro_rules! names {
    ($name:ident) => {
        &$crate::game::field::Names {
            name: stringify!($name),
            raw: concat!(stringify!($name), "_raw"),
            meaning: concat!(stringify!($name), "_name"),
        }
    };
}
pub(crate) use names;

/// An error: the payload ends inside a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) field: &'static str,
    /// The offset of the field.
    pub(crate) at: usize,
}

/// A cursor over a payload. It never reads beyond the end.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    payload: &'a [u8],
    at: usize,
    /// The fields that were read so far, if they are recorded.
    fields: Option<Vec<PayloadField<'a>>>,
}

impl<'a> Reader<'a> {
    /// Returns a reader that begins behind the opcode.
    pub(crate) const fn new(payload: &'a [u8]) -> Self {
        Self { payload, at: OPCODE_LEN, fields: None }
    }

    /// Returns a reader that begins behind the opcode and records the fields.
    pub(super) fn recording(payload: &'a [u8]) -> Self {
        Self { fields: Some(Vec::with_capacity(TYPICAL_FIELDS)), ..Self::new(payload) }
    }

    pub(super) fn into_fields(self) -> Vec<PayloadField<'a>> {
        self.fields.unwrap_or_default()
    }

    /// Returns whether the reader records the fields.
    pub(super) const fn is_recording(&self) -> bool {
        self.fields.is_some()
    }

    /// Returns the offset of the next field.
    pub(crate) const fn at(&self) -> usize {
        self.at
    }

    /// Returns the bytes that were not read yet.
    pub(crate) fn remaining(&self) -> &'a [u8] {
        self.payload.get(self.at..).unwrap_or_default()
    }

    /// Reads `len` bytes.
    pub(super) fn take(&mut self, len: usize, names: &Names) -> Result<&'a [u8], Cut> {
        let taken = self.remaining().get(..len).ok_or(Cut { field: names.name, at: self.at })?;
        self.at += len;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self, names: &Names) -> Result<[u8; N], Cut> {
        let taken = self.remaining().first_chunk().ok_or(Cut { field: names.name, at: self.at })?;
        self.at += N;
        Ok(*taken)
    }

    /// Records the value of the last `len` bytes.
    #[inline]
    pub(super) fn note(&mut self, name: &'static str, len: usize, value: Value<'a>) {
        self.note_at(name, self.at - len..self.at, value);
    }

    /// Records the value of the last `len` bytes, as a field that a payload can have several times.
    #[inline]
    pub(super) fn note_repeated(&mut self, name: &'static str, len: usize, value: Value<'a>) {
        self.note(name, len, value);
        self.mark_repeated();
    }

    /// Records the value of the bytes at `at`.
    #[inline]
    pub(super) fn note_at(&mut self, name: &'static str, at: Range<usize>, value: Value<'a>) {
        if let Some(notes) = &mut self.fields {
            notes.push(PayloadField { name, repeated: false, range: at, value });
        }
    }

    /// Marks the last recorded field as one that a payload can have several times.
    pub(super) fn mark_repeated(&mut self) {
        if let Some(field) = self.fields.as_mut().and_then(|notes| notes.last_mut()) {
            field.repeated = true;
        }
    }
}

macro_rules! numbers {
    ($($type:ident $value:ident;)*) => {
        $(impl<'a> Wire<'a> for $type {
            const KIND: &'static str = stringify!($type);

            #[inline]
            fn read(reader: &mut Reader<'a>, names: &'static Names) -> Result<Self, Cut> {
                let number = Self::from_le_bytes(reader.array(names)?);
                reader.note(names.name, size_of::<Self>(), Value::$value(number.into()));
                Ok(number)
            }

            fn write(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
        })*
    };
}

numbers! {
    u8 Number;
    u16 Number;
    i32 Number;
    u32 Id;
    f32 Float;
}

/// Floats that share one name.
impl<'a, const N: usize> Wire<'a> for [f32; N] {
    const KIND: &'static str = match N {
        3 => "3 × f32",
        4 => "4 × f32",
        _ => panic!("no field has this number of floats"),
    };

    fn read(reader: &mut Reader<'a>, names: &'static Names) -> Result<Self, Cut> {
        let mut floats = [0.0; N];
        for float in &mut floats {
            *float = f32::read(reader, names)?;
            reader.mark_repeated();
        }
        Ok(floats)
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|float| float.write(out));
    }
}

/// Bytes of unknown meaning.
impl<'a, const N: usize> Wire<'a> for [u8; N] {
    const KIND: &'static str = match N {
        1 => "1 byte",
        7 => "7 bytes",
        8 => "8 bytes",
        _ => panic!("no field has this number of bytes"),
    };

    fn read(reader: &mut Reader<'a>, names: &'static Names) -> Result<Self, Cut> {
        let before = reader.remaining();
        let bytes = reader.array(names)?;
        reader.note(names.name, N, Value::Bytes(before.get(..N).unwrap_or_default()));
        Ok(bytes)
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
}

/// All bytes that are left.
impl<'a> Wire<'a> for &'a [u8] {
    const KIND: &'static str = "rest";

    fn read(reader: &mut Reader<'a>, names: &'static Names) -> Result<Self, Cut> {
        let rest = reader.take(reader.remaining().len(), names)?;
        if !rest.is_empty() {
            reader.note(names.name, rest.len(), Value::Bytes(rest));
        }
        Ok(rest)
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
}

macro_rules! texts {
    ($($(#[$doc:meta])* $name:ident($prefix:ident) $kind:literal;)*) => {
        $($(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $name<'a>(pub &'a [u8]);

        impl<'a> Wire<'a> for $name<'a> {
            const KIND: &'static str = $kind;

            fn read(reader: &mut Reader<'a>, names: &'static Names) -> Result<Self, Cut> {
                let start = reader.at;
                let len = $prefix::from_le_bytes(reader.array(names)?);
                let len = usize::try_from(len).unwrap_or(usize::MAX);
                let text = reader.take(len, names).map_err(|cut| Cut { at: start, ..cut })?;
                reader.note(names.name, reader.at - start, Value::Text(text));
                Ok(Self(text))
            }

            /// Truncates text that is too long for its length field.
            fn write(&self, out: &mut Vec<u8>) {
                let len = $prefix::try_from(self.0.len()).unwrap_or($prefix::MAX);
                out.extend_from_slice(&len.to_le_bytes());
                out.extend(self.0.iter().take(usize::try_from(len).unwrap_or(usize::MAX)));
            }
        }

        /// Formats the text; control characters become spaces.
        impl std::fmt::Display for $name<'_> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&crate::text::from_latin1(self.0))
            }
        })*
    };
}

texts! {
    /// Text with one byte per character (Latin-1), after its length in one byte.
    Text8(u8) "text8";
    /// Text with one byte per character (Latin-1), after its length in two bytes.
    Text16(u16) "text16";
    /// Text with one byte per character (Latin-1), after its length in four bytes.
    Text32(u32) "text32";
}

/// A field that is present if any bytes are left.
impl<'a, T: Wire<'a>> Wire<'a> for Option<T> {
    const KIND: &'static str = T::KIND;
    const OPTIONAL: bool = true;

    fn read(reader: &mut Reader<'a>, names: &'static Names) -> Result<Self, Cut> {
        if reader.remaining().is_empty() { Ok(None) } else { T::read(reader, names).map(Some) }
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|value| value.write(out));
    }
}

/// Defines a value that consists of other values, one after the other.
macro_rules! record {
    ($(#[$doc:meta])* $vis:vis [$name:ident<$life:lifetime>] $fields:tt) => {
        $crate::game::field::record! { @define [$(#[$doc])* $vis] $name [<$life>] [$life] $fields }
    };
    ($(#[$doc:meta])* $vis:vis [$name:ident] $fields:tt) => {
        $crate::game::field::record! { @define [$(#[$doc])* $vis] $name [] ['w] $fields }
    };
    (@define [$(#[$doc:meta])* $vis:vis] $name:ident [$($of:tt)*] [$life:lifetime]
        { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq)]
        $vis struct $name $($of)* {
            $($(#[$field_doc])* $vis $field: $type,)*
        }

        impl<$life> $crate::game::field::Wire<$life> for $name $($of)* {
            const KIND: &'static str = stringify!($name);
            const PARTS: &'static [$crate::game::field::Part] = &[$($crate::game::field::Part {
                name: stringify!($field),
                kind: <$type as $crate::game::field::Wire<$life>>::KIND,
                optional: <$type as $crate::game::field::Wire<$life>>::OPTIONAL,
            },)*];

            #[allow(unused_variables, reason = "some records have no fields")]
            fn read(
                reader: &mut $crate::game::field::Reader<$life>,
                _: &'static $crate::game::field::Names,
            ) -> Result<Self, $crate::game::field::Cut> {
                Ok(Self {
                    $($field: $crate::game::field::Wire::read(
                        reader,
                        $crate::game::field::names!($field),
                    )?,)*
                })
            }

            #[allow(unused_variables, reason = "some records have no fields")]
            fn write(&self, out: &mut Vec<u8>) {
                $($crate::game::field::Wire::write(&self.$field, out);)*
            }
        }
    };
}
pub(crate) use record;

/// The length of the opcode, which is the first byte.
pub(super) const OPCODE_LEN: usize = 1;
/// The initial capacity of a list of fields. Most payloads have fewer fields, so most lists need not grow.
const TYPICAL_FIELDS: usize = 16;
