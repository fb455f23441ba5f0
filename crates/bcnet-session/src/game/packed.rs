//! Numbers and vectors in fewer bits than a float has. Each keeps its bits, so that it is written as it was read.

use super::describe::Value;
use super::field::{Cut, Names, Reader, Wire};

/// A number in sixteen bits: a sign, one of eight decades from 0.001 to 10,000, and 4,095 steps in it.
///
/// What is encoded is cut to the step below, so that 50 comes back as 49.978.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct CompressedFloat(pub u16);

impl CompressedFloat {
    /// The code of the step below `number`, nearer to zero. What is too large becomes the largest.
    #[must_use]
    pub fn new(number: f32) -> Self {
        let sign = u16::from(number.is_sign_negative()) << 15;
        let size = f64::from(number.abs());
        let Some(decade) = (0..DECADES).find(|decade| size < top(*decade)) else {
            return Self(sign | 0x7FFF);
        };
        let (low, high) = (bottom(decade), top(decade));
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is from 0 to 4095")]
        let step = ((size - low) / (high - low) * STEPS) as u16;
        Self(sign | decade << 12 | step.min(0x0FFF))
    }

    /// The number that it means.
    #[must_use]
    pub fn value(self) -> f32 {
        let (low, high) = (bottom(self.decade()), top(self.decade()));
        let size = low + (high - low) * f64::from(self.0 & 0x0FFF) / STEPS;
        #[allow(clippy::cast_possible_truncation, reason = "a float has more digits than sixteen bits")]
        let size = size as f32;
        if self.0 >> 15 == 0 { size } else { -size }
    }

    /// How many decimals its steps can tell, one at least.
    const fn decimals(self) -> u8 {
        match self.decade() {
            0 if self.0 & 0x0FFF == 0 => 1,
            0 => 6,
            1 => 5,
            2 => 4,
            3 => 3,
            4 => 2,
            _ => 1,
        }
    }

    const fn decade(self) -> u16 {
        self.0 >> 12 & 7
    }
}

fn top(decade: u16) -> f64 {
    // The game's float is not quite 0.001, which shows in the last step.
    f64::from(0.001_f32) * 10_f64.powi(decade.into())
}

fn bottom(decade: u16) -> f64 {
    decade.checked_sub(1).map_or(0.0, top)
}

impl<'a> Wire<'a> for CompressedFloat {
    const KIND: &'static str = "cf16";

    fn read(reader: &mut Reader<'a>, names: &'static Names) -> Result<Self, Cut> {
        let packed = Self(u16::from_le_bytes(reader.array(names)?));
        reader.note(names.name, 2, Value::Packed { number: packed.value(), decimals: packed.decimals() });
        reader.note(names.raw, 2, Value::Raw(packed.0));
        Ok(packed)
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0.to_le_bytes());
    }
}

impl CompressedFloat {
    fn read_bits(reader: &mut Reader<'_>, names: &Names) -> Result<Self, Cut> {
        reader.array(names).map(u16::from_le_bytes).map(Self)
    }
}

/// A direction in three signed bytes.
///
/// What is encoded is cut towards zero, so that what comes back is a little shorter than 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct UnitVector(pub [i8; 3]);

impl UnitVector {
    /// The code of a vector of length 1. Zeros stand for no direction.
    #[must_use]
    pub fn new(vector: [f32; 3]) -> Self {
        #[allow(clippy::cast_possible_truncation, reason = "a cast of a float is clamped")]
        Self(vector.map(|part| (part * 127.0) as i8))
    }

    /// The vector that it means.
    #[must_use]
    pub fn vector(self) -> [f32; 3] {
        self.0.map(|part| f32::from(part) / 127.0)
    }

    fn read_bits(reader: &mut Reader<'_>, names: &Names) -> Result<Self, Cut> {
        reader.array(names).map(|bytes: [u8; 3]| Self(bytes.map(u8::cast_signed)))
    }
}

impl<'a> Wire<'a> for UnitVector {
    const KIND: &'static str = "unit vector";

    fn read(reader: &mut Reader<'a>, names: &'static Names) -> Result<Self, Cut> {
        let vector = Self::read_bits(reader, names)?;
        for number in vector.vector() {
            reader.note_listed(names.name, 3, Value::Packed { number, decimals: UNIT_DECIMALS });
        }
        Ok(vector)
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.0.map(i8::cast_unsigned));
    }
}

/// A vector as a direction and a length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct PackedVector {
    /// Where it points.
    pub direction: UnitVector,
    /// How long it is.
    pub length: CompressedFloat,
}

impl PackedVector {
    /// The code of a vector.
    #[must_use]
    pub fn new(vector: [f32; 3]) -> Self {
        let length = vector.iter().map(|part| part * part).sum::<f32>().sqrt();
        let unit = if length > 0.0 { vector.map(|part| part / length) } else { [0.0; 3] };
        Self { direction: UnitVector::new(unit), length: CompressedFloat::new(length) }
    }

    /// The vector that it means.
    #[must_use]
    pub fn vector(self) -> [f32; 3] {
        self.direction.vector().map(|part| part * self.length.value())
    }
}

impl<'a> Wire<'a> for PackedVector {
    const KIND: &'static str = "vector";

    fn read(reader: &mut Reader<'a>, names: &'static Names) -> Result<Self, Cut> {
        let direction = UnitVector::read_bits(reader, names)?;
        let length = CompressedFloat::read_bits(reader, names)?;
        let vector = Self { direction, length };
        for number in vector.vector() {
            reader.note_listed(names.name, 5, Value::Packed { number, decimals: length.decimals() });
        }
        reader.note(names.raw, 5, Value::Raw(length.0));
        Ok(vector)
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.direction.write(out);
        self.length.write(out);
    }
}

/// A place on a ship: a direction, and how far it is, as a share of the ship's radius. That a full byte is the whole
/// radius is assumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ScaledVector {
    /// Where it points.
    pub direction: UnitVector,
    /// How far it is: 255 is the ship's radius.
    pub share: u8,
}

impl<'a> Wire<'a> for ScaledVector {
    const KIND: &'static str = "scaled vector";

    fn read(reader: &mut Reader<'a>, names: &'static Names) -> Result<Self, Cut> {
        let direction = UnitVector::read_bits(reader, names)?;
        let [share] = reader.array(names)?;
        for part in direction.vector() {
            let number = part * f32::from(share) / 255.0;
            reader.note_listed(names.name, 4, Value::Packed { number, decimals: UNIT_DECIMALS });
        }
        reader.note_listed(names.raw, 4, Value::Raw(share.into()));
        Ok(Self { direction, share })
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.direction.write(out);
        out.push(self.share);
    }
}

const DECADES: u16 = 8;
const STEPS: f64 = 4095.0;
/// What a 127th can tell.
const UNIT_DECIMALS: u8 = 3;
