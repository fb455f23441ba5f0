//! Fields: how each kind of value is read from a payload, written into one, and shown.

use std::ops::Range;

use super::describe::{PayloadField, Value};

/// What a payload is made of: a value that can be read from it and written into it.
pub(crate) trait Wire<'a>: Sized {
    /// What PROTOCOL.md and the dissector call this kind of value.
    const KIND: &'static str;
    /// Whether a payload may end in front of it.
    const OPTIONAL: bool = false;
    /// The values that it is made of.
    const PARTS: &'static [Part] = &[Part { name: "", kind: Self::KIND, optional: false }];

    /// Takes it off the payload, noting what it says under `names`.
    fn read(reader: &mut Reader<'a>, names: &'static Names) -> Result<Self, Cut>;

    /// Adds it to a payload.
    fn write(&self, out: &mut Vec<u8>);
}

/// A field of a message, as tables show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Its name; empty if the fields in it have names of their own.
    pub name: &'static str,
    /// How its value is written.
    pub kind: &'static str,
    /// Whether a payload may end in front of it.
    pub optional: bool,
}

/// What a field is called when it is shown.
#[derive(Debug)]
pub(crate) struct Names {
    /// Its name.
    pub(crate) name: &'static str,
    /// The name of the number on the wire, where the value is another.
    pub(crate) raw: &'static str,
    /// The name of what a number stands for.
    pub(crate) meaning: &'static str,
}

/// The names of a field.
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

/// The payload ends inside a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) field: &'static str,
    /// Where the field begins.
    pub(crate) at: usize,
}

/// What is left of a payload. Nothing is read beyond its end.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    payload: &'a [u8],
    at: usize,
    /// What was read so far, for those who want to show it.
    fields: Option<Vec<PayloadField<'a>>>,
}

impl<'a> Reader<'a> {
    /// Reads what is behind the opcode.
    pub(crate) const fn new(payload: &'a [u8]) -> Self {
        Self { payload, at: OPCODE_LEN, fields: None }
    }

    /// Reads what is behind the opcode and notes all of it.
    pub(super) fn recording(payload: &'a [u8]) -> Self {
        Self { fields: Some(Vec::with_capacity(TYPICAL_FIELDS)), ..Self::new(payload) }
    }

    pub(super) fn into_fields(self) -> Vec<PayloadField<'a>> {
        self.fields.unwrap_or_default()
    }

    /// Returns whether anybody wants to know what was read.
    pub(super) const fn is_recording(&self) -> bool {
        self.fields.is_some()
    }

    /// Returns where in the payload the next field begins.
    pub(crate) const fn at(&self) -> usize {
        self.at
    }

    /// Returns what is behind the fields that were read.
    pub(crate) fn remaining(&self) -> &'a [u8] {
        self.payload.get(self.at..).unwrap_or_default()
    }

    /// Takes `len` bytes.
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

    /// Notes what the last `len` bytes say.
    #[inline]
    pub(super) fn note(&mut self, name: &'static str, len: usize, value: Value<'a>) {
        self.note_at(name, self.at - len..self.at, value);
    }

    /// The same of something that a payload may have several times.
    #[inline]
    pub(super) fn note_repeated(&mut self, name: &'static str, len: usize, value: Value<'a>) {
        self.note(name, len, value);
        self.mark_repeated();
    }

    /// Notes what the bytes at `at` say.
    #[inline]
    pub(super) fn note_at(&mut self, name: &'static str, at: Range<usize>, value: Value<'a>) {
        if let Some(notes) = &mut self.fields {
            notes.push(PayloadField { name, repeated: false, range: at, value });
        }
    }

    /// What was noted last may be in a payload several times.
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

/// Floats of one name.
impl<'a, const N: usize> Wire<'a> for [f32; N] {
    const KIND: &'static str = match N {
        3 => "3 × f32",
        4 => "4 × f32",
        _ => panic!("no field has so many floats"),
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

/// Bytes whose meaning is not known.
impl<'a, const N: usize> Wire<'a> for [u8; N] {
    const KIND: &'static str = match N {
        1 => "1 byte",
        7 => "7 bytes",
        8 => "8 bytes",
        _ => panic!("no field has so many bytes"),
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

            /// What is longer than its length can tell is cut.
            fn write(&self, out: &mut Vec<u8>) {
                let len = $prefix::try_from(self.0.len()).unwrap_or($prefix::MAX);
                out.extend_from_slice(&len.to_le_bytes());
                out.extend(self.0.iter().take(usize::try_from(len).unwrap_or(usize::MAX)));
            }
        }

        /// As text, control characters as spaces.
        impl std::fmt::Display for $name<'_> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&crate::text::from_latin1(self.0))
            }
        })*
    };
}

texts! {
    /// Text of one byte per character (Latin-1), behind its length in one byte.
    Text8(u8) "text8";
    /// Text of one byte per character (Latin-1), behind its length in two bytes.
    Text16(u16) "text16";
    /// Text of one byte per character (Latin-1), behind its length in four bytes.
    Text32(u32) "text32";
}

/// There if anything is left.
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

/// A value that is made of others, one behind the other.
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

            #[allow(unused_variables, reason = "some have no fields")]
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

            #[allow(unused_variables, reason = "some have no fields")]
            fn write(&self, out: &mut Vec<u8>) {
                $($crate::game::field::Wire::write(&self.$field, out);)*
            }
        }
    };
}
pub(crate) use record;

/// The opcode is the first byte.
pub(super) const OPCODE_LEN: usize = 1;
/// Most payloads have no more, so that most lists of fields need not grow.
const TYPICAL_FIELDS: usize = 16;
