//! Numbers with a fraction: their digits are found once, and remembered.

use super::text::{Json, Value};

/// As a larger one, and remembered.
impl Value for f32 {
    fn add(self, json: &mut Json) {
        let Float { bits, text, len } = *json.floats.slot(self.to_bits());
        if bits == self.to_bits() && len > 0 {
            *json.room() = text;
            return json.used(usize::from(len));
        }
        let start = json.len();
        let _ = serde_json::to_writer(&mut *json, &self);
        json.put(b",");
        let written = json.since(start);
        let mut text = [0; Float::ROOM];
        if let Some(room) = text.get_mut(..written.len()) {
            room.copy_from_slice(written);
            let len = written.len() as u8;
            *json.floats.slot(self.to_bits()) = Float { bits: self.to_bits(), text, len };
        }
    }
}

/// A number as it is written, with its comma. A length of zero is none.
#[derive(Clone, Copy)]
struct Float {
    bits: u32,
    text: [u8; Self::ROOM],
    len: u8,
}

impl Float {
    /// More than the longest takes.
    const ROOM: usize = 24;
}

/// The latest numbers. Packed vectors have few values, and to find the digits of one costs more than all else about it.
pub(super) struct Floats(Box<[Float; Self::COUNT]>);

impl Floats {
    const COUNT: usize = 1 << 10;

    fn slot(&mut self, bits: u32) -> &mut Float {
        let mixed = bits.wrapping_mul(0x9E37_79B1) >> (u32::BITS - Self::COUNT.ilog2());
        &mut self.0[mixed as usize % Self::COUNT]
    }
}

impl Default for Floats {
    fn default() -> Self {
        Self(Box::new([Float { bits: 0, text: [0; Float::ROOM], len: 0 }; Self::COUNT]))
    }
}
