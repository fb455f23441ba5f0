//! Takes one field after the other off a payload and writes it down.

use super::{Field, Value};

/// What is left of a payload, and the fields so far.
///
/// Each method gives `None` if the payload ends inside its field, and notes that.
pub(super) struct Reader<'a> {
    left: &'a [u8],
    at: usize,
    pub(super) fields: Vec<Field<'a>>,
    pub(super) truncated: Option<&'static str>,
}

impl<'a> Reader<'a> {
    /// `left` begins at byte `at` of the payload.
    pub(super) fn new(left: &'a [u8], at: usize) -> Self {
        Self { left, at, fields: Vec::with_capacity(USUAL_FIELDS), truncated: None }
    }

    pub(super) fn left(&self) -> usize {
        self.left.len()
    }

    pub(super) fn u8(&mut self, name: &'static str) -> Option<u8> {
        let [byte] = self.take(name)?;
        self.add(name, 1, Value::Number(byte.into()));
        Some(byte)
    }

    pub(super) fn u16(&mut self, name: &'static str) -> Option<u16> {
        let number = u16::from_le_bytes(self.take(name)?);
        self.add(name, 2, Value::Number(number.into()));
        Some(number)
    }

    pub(super) fn i32(&mut self, name: &'static str) -> Option<i32> {
        let number = i32::from_le_bytes(self.take(name)?);
        self.add(name, 4, Value::Number(number.into()));
        Some(number)
    }

    pub(super) fn id(&mut self, name: &'static str) -> Option<u32> {
        let id = u32::from_le_bytes(self.take(name)?);
        self.add(name, 4, Value::Id(id));
        Some(id)
    }

    pub(super) fn f32(&mut self, name: &'static str) -> Option<()> {
        let number = f32::from_le_bytes(self.take(name)?);
        self.add(name, 4, Value::Float(number));
        Some(())
    }

    /// A byte of bits, and those of them that mean something, as bit and name.
    pub(super) fn flags(&mut self, name: &'static str, bits: &[(u8, &'static str)]) -> Option<u8> {
        let byte = self.u8(name)?;
        for (bit, flag) in bits {
            self.add(flag, 1, Value::Flag(byte & bit != 0));
        }
        Some(byte)
    }

    /// `count` ids of one name.
    pub(super) fn ids(&mut self, name: &'static str, count: usize) -> Option<()> {
        (0..count).try_for_each(|_| {
            self.id(name)?;
            self.listed();
            Some(())
        })
    }

    pub(super) fn floats(&mut self, name: &'static str, count: usize) -> Option<()> {
        (0..count).try_for_each(|_| {
            self.f32(name)?;
            self.listed();
            Some(())
        })
    }

    /// A unit vector in three signed bytes.
    pub(super) fn direction(&mut self, name: &'static str) -> Option<()> {
        (0..3).try_for_each(|_| {
            let [byte] = self.take(name)?;
            self.add(name, 1, Value::Float(f32::from(byte.cast_signed()) / 127.0));
            self.listed();
            Some(())
        })
    }

    /// Text behind its length in one byte.
    pub(super) fn short_text(&mut self, name: &'static str) -> Option<()> {
        let [len] = self.take(name)?;
        self.text_of(name, len.into(), 1)
    }

    /// Text behind its length in two bytes.
    pub(super) fn text(&mut self, name: &'static str) -> Option<()> {
        let len = u16::from_le_bytes(self.take(name)?);
        self.text_of(name, len.into(), 2)
    }

    /// Text behind its length in four bytes.
    pub(super) fn long_text(&mut self, name: &'static str) -> Option<()> {
        let len = u32::from_le_bytes(self.take(name)?);
        self.text_of(name, usize::try_from(len).unwrap_or(usize::MAX), 4)
    }

    pub(super) fn bytes(&mut self, name: &'static str, len: usize) -> Option<()> {
        let bytes = self.take_slice(name, len)?;
        self.add(name, len, Value::Bytes(bytes));
        Some(())
    }

    /// All bytes that are left, if there are any.
    pub(super) fn rest(&mut self, name: &'static str) {
        if !self.left.is_empty() {
            self.bytes(name, self.left.len());
        }
    }

    /// A payload may have several fields of the name of the last one.
    pub(super) fn listed(&mut self) {
        if let Some(field) = self.fields.last_mut() {
            field.listed = true;
        }
    }

    fn text_of(&mut self, name: &'static str, len: usize, prefix: usize) -> Option<()> {
        let text = self.take_slice(name, len)?;
        self.add(name, prefix + len, Value::Text(text));
        Some(())
    }

    /// Notes a field that ends where the reader stands.
    fn add(&mut self, name: &'static str, len: usize, value: Value<'a>) {
        self.fields.push(Field { name, listed: false, at: self.at - len..self.at, value });
    }

    fn take<const N: usize>(&mut self, name: &'static str) -> Option<[u8; N]> {
        self.take_slice(name, N)?.try_into().ok()
    }

    fn take_slice(&mut self, name: &'static str, len: usize) -> Option<&'a [u8]> {
        let Some((taken, left)) = self.left.split_at_checked(len) else {
            self.truncated = Some(name);
            return None;
        };
        self.left = left;
        self.at += len;
        Some(taken)
    }
}

/// Most payloads have no more, so that most lists of fields need not grow.
const USUAL_FIELDS: usize = 12;
