//! State updates: the position and the condition of a ship ([S-76], [S-37]).
//!
//! [S-37]: bcnet_transport::wire::protocol#s-37
//! [S-76]: bcnet_transport::wire::protocol#s-76

use super::code::StateFlags;
use super::describe::Value;
use super::field::{Cut, Names, Reader, Wire, names, record};
use super::object::ObjectId;
use super::packed::{CompressedFloat, PackedVector, UnitVector};

/// The position and the condition of a ship. Unchanged fields are absent.
///
/// One bit byte has all flags of a message, in the order in which they are written. The flags are: a hash follows the
/// position, the ship is cloaked, and those of subsystems. The byte is at the place of the first flag.
///
/// Only the ship's class determines the number of subsystems that follow, and which of them have flags. So they stay
/// bytes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StateUpdate<'a> {
    /// The ship.
    pub object: ObjectId,
    /// The game clock, in seconds.
    pub time: f32,
    /// The position.
    pub position: Option<Position>,
    /// The distance from the last position that was sent.
    pub delta: Option<PackedVector>,
    /// The direction of the bow.
    pub forward: Option<UnitVector>,
    /// The direction of the upper side.
    pub up: Option<UnitVector>,
    /// The speed; negative backwards.
    pub speed: Option<CompressedFloat>,
    /// The state of the cloak.
    pub cloaked: Option<bool>,
    /// The condition of some subsystems.
    pub subsystems: Option<Subsystems<'a>>,
    /// The power that some subsystems are to get.
    ///
    /// The end of the subsystems cannot be determined, so this is `None` if [`subsystems`](Self::subsystems) are
    /// present.
    pub power: Option<&'a [[u8; 2]]>,
    /// The difference of the bit byte from one with only the flags above.
    ///
    /// These are the flags of subsystems, and bits that no stock sender sets. The bits of the flags above are 0.
    /// Without a bit byte, all bits are 0.
    pub other_bits: u8,
}

/// A position in the set.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Position {
    /// The coordinates.
    pub place: [f32; 3],
    /// A hash of the ship's properties. Only clients send it.
    pub hash: Option<u16>,
}

/// The condition of some subsystems, as bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Subsystems<'a> {
    /// The place of the first of these subsystems in the list of the ship's class.
    pub first: u8,
    /// One block for each subsystem. Their number is not sent.
    pub blocks: &'a [u8],
}

record! {
    /// The fields at the beginning of every state update.
    pub(crate) [StateHead] {
        /// The ship.
        object: ObjectId,
        /// The game clock, in seconds.
        time: f32,
        /// The fields that follow.
        flags: StateFlags,
    }
}

impl StateUpdate<'_> {
    /// Returns the fields that the update has.
    #[must_use]
    pub fn flags(&self) -> StateFlags {
        StateFlags(0)
            .with(StateFlags::POSITION, self.position.is_some())
            .with(StateFlags::DELTA, self.delta.is_some())
            .with(StateFlags::FORWARD, self.forward.is_some())
            .with(StateFlags::UP, self.up.is_some())
            .with(StateFlags::SPEED, self.speed.is_some())
            .with(StateFlags::SUBSYSTEMS, self.subsystems.is_some())
            .with(StateFlags::CLOAK, self.cloaked.is_some())
            .with(StateFlags::POWER, self.power.is_some())
    }

    /// Returns the bit byte with only the flags for the hash and the cloak.
    fn own_bits(&self) -> u8 {
        let hash = self.position.map(|position| position.hash.is_some());
        let flags = [hash, self.cloaked];
        flags
            .into_iter()
            .flatten()
            .fold((0, 1), |(byte, bit), flag| (byte + ONE_FLAG + if flag { bit } else { 0 }, bit << 1))
            .0
    }

    /// Returns the power that subsystems are to get: their places in the ship's list, and fractions.
    ///
    /// A place is that in the list of the ship's class. The normal power is 1.
    pub fn powers(&self) -> impl Iterator<Item = (u8, f32)> {
        self.power.unwrap_or_default().iter().map(|[index, power]| (*index, power_fraction(*power)))
    }
}

/// Converts a power byte to a fraction.
///
/// 255 is 125 %, the most that a player can set: inferred from the byte of 100 %.
fn power_fraction(byte: u8) -> f32 {
    f32::from(byte) * 1.25 / 255.0
}

impl<'a> Wire<'a> for StateUpdate<'a> {
    const KIND: &'static str = "state update";

    fn read(reader: &mut Reader<'a>, names: &'static Names) -> Result<Self, Cut> {
        let StateHead { object, time, flags } = Wire::read(reader, names)?;
        let mut update = Self { object, time, ..Self::default() };
        let mut bits = None;
        if flags.has(StateFlags::POSITION) {
            update.position = Some(read_position(reader, &mut bits)?);
        }
        if flags.has(StateFlags::DELTA) {
            update.delta = Some(Wire::read(reader, names!(delta))?);
        }
        if flags.has(StateFlags::FORWARD) {
            update.forward = Some(Wire::read(reader, names!(forward))?);
        }
        if flags.has(StateFlags::UP) {
            update.up = Some(Wire::read(reader, names!(up))?);
        }
        if flags.has(StateFlags::SPEED) {
            update.speed = Some(Wire::read(reader, names!(speed))?);
        }
        if flags.has(StateFlags::CLOAK) {
            update.cloaked = Some(read_cloak(reader, &mut bits)?);
        }
        if flags.has(StateFlags::SUBSYSTEMS) {
            let first = Wire::read(reader, names!(first_subsystem))?;
            update.subsystems = Some(Subsystems { first, blocks: Wire::read(reader, names!(subsystems))? });
        }
        if flags.has(StateFlags::POWER) {
            update.power = Some(read_power(reader)?);
        }
        update.other_bits = bits.map_or(0, |(byte, _)| byte ^ update.own_bits());
        Ok(update)
    }

    fn write(&self, out: &mut Vec<u8>) {
        StateHead { object: self.object, time: self.time, flags: self.flags() }.write(out);
        let bits = self.own_bits() ^ self.other_bits;
        if let Some(Position { place, hash }) = self.position {
            place.write(out);
            out.push(bits);
            hash.write(out);
        }
        self.delta.write(out);
        self.forward.write(out);
        self.up.write(out);
        self.speed.write(out);
        if self.cloaked.is_some() && self.position.is_none() {
            out.push(bits);
        }
        if let Some(Subsystems { first, blocks }) = self.subsystems {
            out.push(first);
            out.extend_from_slice(blocks);
        }
        out.extend_from_slice(self.power.unwrap_or_default().as_flattened());
    }
}

/// The bit byte of a message, and its offset.
type BitByte = Option<(u8, usize)>;

fn read_position(reader: &mut Reader<'_>, bits: &mut BitByte) -> Result<Position, Cut> {
    let place = Wire::read(reader, names!(position))?;
    let at = reader.at();
    let byte = u8::read(reader, names!(bits))?;
    *bits = Some((byte, at));
    let has_hash = byte & HAS_HASH != 0;
    reader.note("has_hash", 1, Value::Flag(has_hash));
    let hash = if has_hash { Some(Wire::read(reader, names!(hash))?) } else { None };
    Ok(Position { place, hash })
}

/// Reads the cloak flag: the next flag of the bit byte, or the first flag of a new one.
fn read_cloak(reader: &mut Reader<'_>, bits: &mut BitByte) -> Result<bool, Cut> {
    let (cloaked, at) = match *bits {
        Some((byte, at)) => (byte & HAS_HASH << 1 != 0, at),
        None => {
            let at = reader.at();
            let byte = u8::read(reader, names!(bits))?;
            *bits = Some((byte, at));
            (byte & 1 != 0, at)
        }
    };
    reader.note_at("cloaked", at..at + 1, Value::Flag(cloaked));
    Ok(cloaked)
}

fn read_power<'a>(reader: &mut Reader<'a>) -> Result<&'a [[u8; 2]], Cut> {
    let (pairs, _) = reader.remaining().as_chunks();
    while !reader.remaining().is_empty() {
        u8::read(reader, names!(powered))?;
        reader.mark_repeated();
        let [power] = reader.array(names!(power))?;
        reader.note_repeated("power", 1, Value::Packed { number: power_fraction(power), decimals: 2 });
    }
    Ok(pairs)
}

/// Returns the head of a state update.
pub(crate) fn state_head(payload: &[u8]) -> Result<StateHead, Cut> {
    Wire::read(&mut Reader::new(payload), names!(state))
}

/// Removes the hash from a state update (S-37). Only a host reads it.
pub(crate) fn strip_hash(payload: &mut Vec<u8>) {
    let Some(at) = find_hash_bit(payload) else { return };
    if let Some(bits) = payload.get_mut(at) {
        *bits &= !HAS_HASH;
        payload.drain(at + 1..at + 1 + size_of::<u16>());
    }
}

/// Returns the offset of the flag that announces a hash, if a hash follows.
fn find_hash_bit(payload: &[u8]) -> Option<usize> {
    let reader = &mut Reader::new(payload);
    let head = StateHead::read(reader, names!(head)).ok()?;
    if !head.flags.has(StateFlags::POSITION) {
        return None;
    }
    <[f32; 3]>::read(reader, names!(position)).ok()?;
    let at = reader.at();
    let bits = u8::read(reader, names!(bits)).ok()?;
    u16::read(reader, names!(hash)).ok()?;
    (bits & HAS_HASH != 0).then_some(at)
}

/// The flag in the bit byte behind a position: a hash follows.
const HAS_HASH: u8 = 0x01;
/// The count of one flag: a bit byte has the number of its flags in its upper three bits.
const ONE_FLAG: u8 = 0x20;
