//! What is done with each opcode that a player in the game sends, and which payloads are sound (S-32 to S-34).

use crate::message::op;
use crate::read::{Reader, u32_at};
use crate::stats::Anomaly;

/// What the server does with an opcode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Everyone else gets a copy.
    Relay(Check),
    /// It ends here.
    Absorb,
    /// Only the host says that, or nobody.
    HostOnly,
    /// Ships and other objects: kept for those who come later, and passed on.
    Create,
    SelfDestruct,
    /// Somebody asks for an object.
    RequestObject,
    Chat,
    TeamChat,
    Team,
    StateUpdate,
    Unknown,
}

/// How it is made sure that a message is about the sender's own things.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Check {
    /// An event block.
    Event,
    /// The id of an object right behind the opcode.
    Object,
}

/// The rule for each opcode.
pub(crate) const fn rule(opcode: u8) -> Rule {
    match opcode {
        op::CREATE | op::CREATE_TEAM => Rule::Create,
        0x06..=0x0C | 0x0E..=0x12 | 0x1B => Rule::Relay(Check::Event),
        0x19 | 0x1A | 0x1F => Rule::Relay(Check::Object),
        op::SELF_DESTRUCT => Rule::SelfDestruct,
        op::STATE_UPDATE => Rule::StateUpdate,
        0x1D | 0x1E => Rule::RequestObject,
        op::CHAT => Rule::Chat,
        0x2D => Rule::TeamChat,
        0x41 => Rule::Team,
        // Target changes and collisions are for the host alone; the rest comes late, from a join that is over.
        0x0D | 0x15 | op::CHECKSUM_REPLY | op::TRANSFER_ACK | op::IN_GAME => Rule::Absorb,
        0x2E..=0x34 | 0x3A..=0x3E | 0x42.. => Rule::Unknown,
        _ => Rule::HostOnly,
    }
}

/// S-02: the slot that an object belongs to.
pub(crate) fn owner(object: u32) -> Option<u8> {
    let slot = object.checked_sub(FIRST_OBJECT)? >> 18;
    u8::try_from(slot).ok().filter(|slot| usize::from(*slot) < crate::config::MAX_SLOTS)
}

/// Whether a message to be passed on is about the sender's own things.
pub(crate) fn check(check: Check, payload: &[u8], slot: u8, mods: bool) -> Result<(), Anomaly> {
    match check {
        Check::Event => check_event(payload, slot, mods),
        Check::Object => check_object(payload, slot),
    }
}

/// S-32: the first id must be the sender's.
pub(crate) fn check_object(payload: &[u8], slot: u8) -> Result<(), Anomaly> {
    let object = u32_at(payload, 1).ok_or(Anomaly::TooShort)?;
    if owner(object) == Some(slot) { Ok(()) } else { Err(Anomaly::NotOwner) }
}

/// S-32: an event happens to one of the sender's things; if it happens to nothing, one of them causes it.
fn check_event(payload: &[u8], slot: u8, mods: bool) -> Result<(), Anomaly> {
    let mut reader = Reader(payload.get(1..).unwrap_or_default());
    let block = (|| Some([reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?]))();
    let [factory, _, source, related] = block.ok_or(Anomaly::TooShort)?;
    if !mods && !FACTORIES.contains(&factory) {
        return Err(Anomaly::BadEvent);
    }
    let whose = if related == 0 { source } else { related };
    if whose == 0 || owner(whose) == Some(slot) { Ok(()) } else { Err(Anomaly::NotOwner) }
}

/// A ship or another object, as the message that creates it tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Created {
    pub(crate) object: u32,
    pub(crate) species: u8,
    pub(crate) is_ship: bool,
}

/// S-32: reads a message that creates an object, and refuses what would crash stock clients.
pub(crate) fn created(payload: &[u8], slot: u8, mods: bool) -> Result<Created, Anomaly> {
    if payload.len() > MAX_CREATE {
        return Err(Anomaly::TooLarge);
    }
    let mut reader = Reader(payload);
    let head = (|| {
        let opcode = reader.u8()?;
        let claimed = reader.u8()?;
        if opcode == op::CREATE_TEAM {
            reader.u8()?;
        }
        Some((claimed, reader.u32()?, reader.u32()?, reader.u8()?))
    })();
    let (claimed, class, object, species) = head.ok_or(Anomaly::TooShort)?;
    if class != SHIP && class != TORPEDO || !mods && !(1..=45).contains(&species) {
        return Err(Anomaly::BadObject);
    }
    if claimed != slot || owner(object) != Some(slot) {
        return Err(Anomaly::NotOwner);
    }
    let texts = (|| {
        reader.bytes(POSE)?;
        let name = reader.u8()?;
        reader.bytes(name.into())?;
        let set = reader.u8()?;
        reader.bytes(set.into())
    })();
    texts.ok_or(Anomaly::TooShort)?;
    Ok(Created { object, species, is_ship: class == SHIP })
}

/// S-37: where the hash lies that is taken out of a state update, if it has one.
pub(crate) fn state_hash(payload: &[u8]) -> Option<usize> {
    let flags = *payload.get(9)?;
    let bits = *payload.get(BITS)?;
    let has_hash = flags & 1 != 0 && bits & 1 != 0 && payload.len() >= BITS + 3;
    has_hash.then_some(BITS)
}

/// The first object of slot 0; each slot has 0x40000.
const FIRST_OBJECT: u32 = 0x3FFF_FFFF;
const SHIP: u32 = 0x8008;
const TORPEDO: u32 = 0x8009;
/// Position, orientation, speed and three zeros.
const POSE: usize = 12 + 16 + 4 + 3;
/// The largest message that creates an object. Stock ones have about 120 bytes.
const MAX_CREATE: usize = 1024;
/// Where the bit field of a state update with a position lies.
const BITS: usize = 22;
/// The kinds of events that the stock game has from clients.
const FACTORIES: [u32; 7] = [0x0002, 0x0101, 0x0104, 0x0105, 0x010C, 0x8128, 0x812A];

#[cfg(test)]
mod tests {
    use super::*;

    /// S-02
    #[test]
    fn objects_belong_to_the_slot_whose_range_they_are_in() {
        let owners =
            [0, 0x3FFF_FFFE, 0x3FFF_FFFF, 0x4000_0020, 0x4003_FFFE, 0x4003_FFFF, 0x403B_FFFF].map(owner);
        assert_eq!(owners, [None, None, Some(0), Some(0), Some(0), Some(1), Some(15)]);
        assert_eq!([0x403F_FFFF, u32::MAX].map(owner), [None, None]);
    }

    /// S-34
    #[test]
    fn every_opcode_has_the_rule_that_the_table_says() {
        let kinds = (0..=u8::MAX).map(rule);
        let count = |wanted: fn(Rule) -> bool| kinds.clone().filter(|rule| wanted(*rule)).count();
        assert_eq!(count(|rule| rule == Rule::Unknown), 7 + 5 + 190);
        assert_eq!(count(|rule| matches!(rule, Rule::Relay(_))), 7 + 5 + 1 + 3);
        assert_eq!(count(|rule| rule == Rule::Absorb), 5);
        for opcode in [0x00, 0x01, 0x04, 0x05, 0x14, 0x16, 0x17, 0x18, 0x20, 0x22, 0x23, 0x24, 0x25, 0x26] {
            assert_eq!(rule(opcode), Rule::HostOnly, "{opcode:02X}");
        }
        for opcode in [0x28, 0x29, 0x2B, 0x35, 0x36, 0x37, 0x38, 0x39, 0x3F, 0x40] {
            assert_eq!(rule(opcode), Rule::HostOnly, "{opcode:02X}");
        }
    }
}
