//! Packed numbers and vectors: they have fewer bits than a float ([S-73], [S-74]).
//!
//! Each value keeps its bits, so writing gives the same bytes that were read.
//!
//! [S-73]: bcnet_transport::wire::protocol#s-73
//! [S-74]: bcnet_transport::wire::protocol#s-74

use super::describe::Value;
use super::field::{Cut, Names, Reader, Wire};

/// A number in 16 bits: a sign, one of eight decades from 0.001 to 10,000, and 4,095 steps in it.
///
/// Encoding rounds down to a step: 50 is decoded as 49.978.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct CompressedFloat(pub u16);

impl CompressedFloat {
    /// Encodes a number: rounds towards zero to a step. A number that is too large becomes the largest one.
    #[must_use]
    pub fn new(number: f32) -> Self {
        let sign = u16::from(number.is_sign_negative()) << 15;
        let size = f64::from(number.abs());
        let Some(decade) = (0..DECADES).find(|decade| size < decade_top(*decade)) else {
            return Self(sign | 0x7FFF);
        };
        let (low, high) = (decade_bottom(decade), decade_top(decade));
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the step is from 0 to 4095"
        )]
        let step = ((size - low) / (high - low) * STEPS) as u16;
        Self(sign | decade << 12 | step.min(0x0FFF))
    }

    /// Returns the decoded number.
    #[must_use]
    pub fn value(self) -> f32 {
        let (low, high) = (decade_bottom(self.decade()), decade_top(self.decade()));
        let size = low + (high - low) * f64::from(self.0 & 0x0FFF) / STEPS;
        #[allow(clippy::cast_possible_truncation, reason = "a float has more digits than sixteen bits")]
        let size = size as f32;
        if self.0 >> 15 == 0 { size } else { -size }
    }

    /// Returns the number of significant decimals, at least one.
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

fn decade_top(decade: u16) -> f64 {
    // The game's float is not exactly 0.001, which shows in the last step.
    f64::from(0.001_f32) * 10_f64.powi(decade.into())
}

fn decade_bottom(decade: u16) -> f64 {
    decade.checked_sub(1).map_or(0.0, decade_top)
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
/// Encoding truncates towards zero, so the decoded vector is slightly shorter than 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct UnitVector(pub [i8; 3]);

impl UnitVector {
    /// Encodes a vector of length 1. Zeros mean no direction.
    #[must_use]
    pub fn new(vector: [f32; 3]) -> Self {
        #[allow(clippy::cast_possible_truncation, reason = "the cast saturates")]
        Self(vector.map(|part| (part * 127.0) as i8))
    }

    /// Returns the decoded vector.
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
            reader.note_repeated(names.name, 3, Value::Packed { number, decimals: UNIT_DECIMALS });
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
    /// The direction.
    pub direction: UnitVector,
    /// The length.
    pub length: CompressedFloat,
}

impl PackedVector {
    /// Encodes a vector.
    #[must_use]
    pub fn new(vector: [f32; 3]) -> Self {
        let length = vector.iter().map(|part| part * part).sum::<f32>().sqrt();
        let unit = if length > 0.0 { vector.map(|part| part / length) } else { [0.0; 3] };
        Self { direction: UnitVector::new(unit), length: CompressedFloat::new(length) }
    }

    /// Returns the decoded vector.
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
            reader.note_repeated(names.name, 5, Value::Packed { number, decimals: length.decimals() });
        }
        reader.note(names.raw, 5, Value::Raw(length.0));
        Ok(vector)
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.direction.write(out);
        self.length.write(out);
    }
}

/// A place on a ship: a direction, and a distance as a fraction of the ship's radius.
///
/// The meaning of 255, the whole radius, is assumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ScaledVector {
    /// The direction.
    pub direction: UnitVector,
    /// The distance; 255 is the ship's radius.
    pub share: u8,
}

impl<'a> Wire<'a> for ScaledVector {
    const KIND: &'static str = "scaled vector";

    fn read(reader: &mut Reader<'a>, names: &'static Names) -> Result<Self, Cut> {
        let direction = UnitVector::read_bits(reader, names)?;
        let [share] = reader.array(names)?;
        for part in direction.vector() {
            let number = part * f32::from(share) / 255.0;
            reader.note_repeated(names.name, 4, Value::Packed { number, decimals: UNIT_DECIMALS });
        }
        reader.note_repeated(names.raw, 4, Value::Raw(share.into()));
        Ok(Self { direction, share })
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.direction.write(out);
        out.push(self.share);
    }
}

const DECADES: u16 = 8;
const STEPS: f64 = 4095.0;
/// The number of significant decimals of a 127th.
const UNIT_DECIMALS: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    /// S-73: codes that the game was seen to send for numbers, and codes from texts about the game.
    #[test]
    fn compressed_floats_match_the_game() {
        for (number, code, decoded) in [
            (50.0, 0x571B, 49.978),
            (6000.0, 0x78E2, 5997.802),
            (15.0, 0x50E3, 14.989),
            (25.0, 0x52AA, 24.989),
            (273.0, 0x6313, 272.967),
            (2063.0, 0x71E3, 2061.54),
            (1500.0, 0x70E3, 1498.9),
            (2000.0, 0x71C6, 1997.8),
            (5000.0, 0x771B, 4997.8),
            (9999.0, 0x7FFE, 9997.8),
            (0.5, 0x371B, 0.4998),
            (1.0, 0x3FFE, 0.9998),
            (5.0, 0x471B, 4.9978),
            (10.0, 0x4FFE, 9.9978),
            (100.0, 0x5FFE, 99.978),
            (1000.0, 0x6FFE, 999.78),
            (0.0, 0x0000, 0.0),
            (-50.0, 0xD71B, -49.978),
            (1e9, 0x7FFF, 10_000.0),
            (-1e9, 0xFFFF, -10_000.0),
        ] {
            let packed = CompressedFloat::new(number);
            assert_eq!(packed.0, code, "{number}: {:04X}", packed.0);
            let error = (packed.value() - decoded).abs();
            assert!(error <= decoded.abs() * 1e-4, "{number}: {}, not {decoded}", packed.value());
        }
        assert!((CompressedFloat(0x6195).value() - 189.011).abs() < 0.001);
        assert_eq!(CompressedFloat(0x8000).value(), -0.0);
    }

    /// Encoding a decoded number gives the same code, or one just below.
    ///
    /// The last code of a decade has the value of the first of the next, and a float may be slightly less.
    #[test]
    fn compressed_float_codes_are_monotonic() {
        for code in 0..=u16::MAX {
            let number = CompressedFloat(code).value();
            let again = CompressedFloat::new(number).0;
            assert!(number.is_finite() && again.abs_diff(code) <= 2, "{code:04X} {again:04X}");
            let is_larger = code & 0x0FFF == 0 || number.abs() > CompressedFloat(code - 1).value().abs();
            assert!(is_larger, "{code:04X}");
        }
        assert_eq!(CompressedFloat::new(f32::NAN).0 & 0x7FFF, 0x7FFF);
    }

    /// S-74: the rotation of the first ship in a capture, and the direction in its first state update.
    #[test]
    fn unit_vectors_truncate_towards_zero() {
        assert_eq!(UnitVector::new([0.0929, 0.8218, -0.5519]).0, [11, 104, -70]);
        assert_eq!(UnitVector::new([1.0, -1.0, 0.0]).vector(), [1.0, -1.0, 0.0]);
        let place = PackedVector { direction: UnitVector([29, 122, 12]), length: CompressedFloat(0x6195) };
        assert!(place.vector().iter().zip([43.2, 181.6, 17.9]).all(|(a, b)| (a - b).abs() < 0.06));
        assert_eq!(PackedVector::new([0.0; 3]), PackedVector::default());
        let again = PackedVector::new([300.0, -400.0, 0.0]);
        assert_eq!((again.direction.0, again.length), ([76, -101, 0], CompressedFloat::new(500.0)));
    }
}
