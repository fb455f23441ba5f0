//! Caches the text of numbers with a fraction.

use super::writer::{Json, JsonValue};

/// Written by the same rules as `f64`, from the cache if possible.
impl JsonValue for f32 {
    fn add(self, json: &mut Json) {
        let CachedFloat { bits, text, len } = *json.float_cache.slot(self.to_bits());
        if bits == self.to_bits() && len > 0 {
            *json.reserve() = text;
            return json.commit(usize::from(len));
        }
        let start = json.len();
        let _ = serde_json::to_writer(&mut *json, &self);
        json.put(b",");
        let written = json.written_since(start);
        let mut text = [0; CachedFloat::TEXT_LEN];
        if let Some(room) = text.get_mut(..written.len()) {
            room.copy_from_slice(written);
            let len = written.len() as u8;
            *json.float_cache.slot(self.to_bits()) = CachedFloat { bits: self.to_bits(), text, len };
        }
    }
}

/// The text of a number, with its comma. A length of zero marks an empty slot.
#[derive(Clone, Copy)]
struct CachedFloat {
    bits: u32,
    text: [u8; Self::TEXT_LEN],
    len: u8,
}

impl CachedFloat {
    /// More than the length of the longest number.
    const TEXT_LEN: usize = 24;
}

/// The most recent numbers.
///
/// The compressed vectors of the game take few different values, and formatting a number is slow.
pub(super) struct FloatCache(Box<[CachedFloat; Self::SLOTS]>);

impl FloatCache {
    const SLOTS: usize = 1 << 10;

    fn slot(&mut self, bits: u32) -> &mut CachedFloat {
        let mixed = bits.wrapping_mul(0x9E37_79B1) >> (u32::BITS - Self::SLOTS.ilog2());
        &mut self.0[mixed as usize % Self::SLOTS]
    }
}

impl Default for FloatCache {
    fn default() -> Self {
        Self(Box::new([CachedFloat { bits: 0, text: [0; CachedFloat::TEXT_LEN], len: 0 }; Self::SLOTS]))
    }
}
