//! State updates: where a ship is, and how it is.

use super::code::StateFlags;
use super::describe::Value;
use super::field::{Cut, Names, Reader, Wire, names, record};
use super::object::ObjectId;
use super::packed::{CompressedFloat, PackedVector, UnitVector};

/// Where a ship is, and how it is. What has not changed is left out.
///
/// One bit byte has all flags of a message, in the order in which they are written: whether a hash follows the position,
/// whether the ship is cloaked, and those of subsystems. It stands where the first of them is. How many subsystems
/// follow, and which of them have flags, only the ship's class tells, so they are left as bytes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StateUpdate<'a> {
    /// The ship.
    pub object: ObjectId,
    /// The game clock, in seconds.
    pub time: f32,
    /// Where it is.
    pub position: Option<Position>,
    /// How far it is from the last position that was sent.
    pub delta: Option<PackedVector>,
    /// Where its bow points.
    pub forward: Option<UnitVector>,
    /// Where its upper side points.
    pub up: Option<UnitVector>,
    /// How fast it is; less than nothing is backwards.
    pub speed: Option<CompressedFloat>,
    /// Whether it is cloaked.
    pub cloaked: Option<bool>,
    /// How well some of its subsystems are.
    pub subsystems: Option<Subsystems<'a>>,
    /// How much power some of its subsystems are to get. What follows subsystems cannot be told from them, so together
    /// with them there is none.
    pub power: Option<&'a [[u8; 2]]>,
    /// In what the bit byte differs from one that has nothing but the flags above: those of subsystems, and what no
    /// stock sender does. Its bits for the flags above are 0, and all are where there is no bit byte.
    pub other_bits: u8,
}

/// A place in the set.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Position {
    /// Where.
    pub place: [f32; 3],
    /// A hash of the ship's properties, from clients only.
    pub hash: Option<u16>,
}

/// How well some subsystems are, as bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Subsystems<'a> {
    /// The place of the first of them in the list of the ship's class.
    pub first: u8,
    /// One block for each, without a number of them.
    pub blocks: &'a [u8],
}

record! {
    /// What every state update begins with.
    pub(crate) [StateHead] {
        /// The ship.
        object: ObjectId,
        /// The game clock, in seconds.
        time: f32,
        /// What follows.
        flags: StateFlags,
    }
}

impl StateUpdate<'_> {
    /// Returns what it has.
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

    /// Returns the bit byte with nothing but the flags of this message.
    fn own_bits(&self) -> u8 {
        let hash = self.position.map(|position| position.hash.is_some());
        let flags = [hash, self.cloaked];
        flags
            .into_iter()
            .flatten()
            .fold((0, 1), |(byte, bit), flag| (byte + ONE_FLAG + if flag { bit } else { 0 }, bit << 1))
            .0
    }

    /// Returns how much power subsystems are to get: their places in the list of the ship's class, and shares of what
    /// is normal.
    pub fn powers(&self) -> impl Iterator<Item = (u8, f32)> {
        self.power.unwrap_or_default().iter().map(|[index, power]| (*index, power_fraction(*power)))
    }
}

/// A full byte is 125 %, as much as a player can give. Inferred, from what 100 % is.
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

/// The bit byte of a message, and where it is.
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

/// The flag is the next one of the bit byte, or begins it.
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

/// Returns what a state update begins with.
pub(crate) fn state_head(payload: &[u8]) -> Result<StateHead, Cut> {
    Wire::read(&mut Reader::new(payload), names!(state))
}

/// S-37: takes the hash, which only a host reads, out of a state update.
pub(crate) fn strip_hash(payload: &mut Vec<u8>) {
    let Some(at) = find_hash_bit(payload) else { return };
    if let Some(bits) = payload.get_mut(at) {
        *bits &= !HAS_HASH;
        payload.drain(at + 1..at + 1 + size_of::<u16>());
    }
}

/// Returns where the bit is that says that a hash follows, if one does.
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

/// In the bit byte behind a position: a hash follows.
const HAS_HASH: u8 = 0x01;
/// A bit byte counts its flags in its upper three bits.
const ONE_FLAG: u8 = 0x20;
