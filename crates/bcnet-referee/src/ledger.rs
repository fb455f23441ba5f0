//! The ledger: who did how much damage to whom, with what, through which face, and when.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::laws::shield::Face;
use crate::{ObjectId, Slot};

/// The most entries that a ledger keeps. The oldest one is dropped.
pub const CAPACITY: usize = 8192;

/// One hit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Entry {
    /// The tick of the world.
    pub tick: u64,
    /// The player who hit, if it was one.
    pub attacker: Option<Slot>,
    /// The victim's ship.
    pub victim: ObjectId,
    /// The cause of the damage.
    pub cause: Cause,
    /// The weapon that hit, or the other ship of a collision; 0 for none.
    pub object: ObjectId,
    /// The face that the hit met.
    pub face: Option<Face>,
    /// The points that the face absorbed.
    pub shields: f64,
    /// The points that passed.
    pub passed: f64,
    /// The parts that took damage, as bits: bit 0 is the hull.
    pub parts: u64,
}

/// The cause of damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// A beam.
    Beam,
    /// A projectile, by its row in the table.
    Projectile(u8),
    /// A collision.
    Collision,
    /// Damage to an area.
    Area,
}

/// The hits of a session, the oldest first.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    entries: VecDeque<Entry>,
    dropped: u64,
}

impl Ledger {
    /// Returns the entries, the oldest first.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = &Entry> + ExactSizeIterator {
        self.entries.iter()
    }

    /// Returns the number of entries that were dropped, because the ledger was full.
    #[must_use]
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Returns all entries as bytes: two ledgers are equal if their bytes are.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.dropped.to_le_bytes().to_vec();
        for entry in &self.entries {
            let (cause, row) = match entry.cause {
                Cause::Beam => (0, 0),
                Cause::Projectile(row) => (1, row),
                Cause::Collision => (2, 0),
                Cause::Area => (3, 0),
            };
            let attacker = entry.attacker.map_or(u8::MAX, |slot| slot.0);
            let face = entry.face.map_or(u8::MAX, |face| face as u8);
            bytes.extend(entry.tick.to_le_bytes());
            bytes.extend([attacker, cause, row, face]);
            bytes.extend(entry.victim.0.to_le_bytes());
            bytes.extend(entry.object.0.to_le_bytes());
            bytes.extend(entry.shields.to_bits().to_le_bytes());
            bytes.extend(entry.passed.to_bits().to_le_bytes());
            bytes.extend(entry.parts.to_le_bytes());
        }
        bytes
    }

    pub(crate) fn push(&mut self, entry: Entry) {
        if self.entries.len() == CAPACITY {
            self.entries.pop_front();
            self.dropped += 1;
        }
        self.entries.push_back(entry);
    }
}
