//! Which of the payloads that are passed on are sound (S-32).

use crate::game::field::Cut;
use crate::game::{self, Check, Creation, ObjectClass, ObjectId};
use crate::stats::Anomaly;

/// Returns whether a message to be passed on is about the sender's own things.
pub(crate) fn check(check: Check, payload: &[u8], slot: u8, mods: bool) -> Result<(), Anomaly> {
    match check {
        Check::Event => check_event(payload, slot, mods),
        Check::Object => check_object(payload, slot),
    }
}

/// S-32: a state is that of one of the sender's things.
pub(crate) fn check_state(payload: &[u8], slot: u8) -> Result<(), Anomaly> {
    is_own(game::state_head(payload)?.object, slot)
}

/// S-32: the first id must be the sender's.
fn check_object(payload: &[u8], slot: u8) -> Result<(), Anomaly> {
    is_own(game::first_object(payload)?, slot)
}

/// S-32: an event happens to one of the sender's things; if it happens to nothing, one of them causes it.
fn check_event(payload: &[u8], slot: u8, mods: bool) -> Result<(), Anomaly> {
    let head = game::event_head(payload)?;
    if !mods && !head.class.is_from_clients() {
        return Err(Anomaly::BadEvent);
    }
    let whose = head.subject();
    if whose == ObjectId::NONE { Ok(()) } else { is_own(whose, slot) }
}

fn is_own(object: ObjectId, slot: u8) -> Result<(), Anomaly> {
    if object.owner() == Some(slot) { Ok(()) } else { Err(Anomaly::NotOwner) }
}

/// S-32: reads a message that creates an object, and refuses what would crash stock clients.
pub(crate) fn created(payload: &[u8], slot: u8, mods: bool) -> Result<Creation<'_>, Anomaly> {
    if payload.len() > MAX_CREATE {
        return Err(Anomaly::TooLarge);
    }
    let created = Creation::read(payload)?;
    let is_stock = (1..=45).contains(&created.species.0);
    if !matches!(created.class, ObjectClass::SHIP | ObjectClass::TORPEDO) || !mods && !is_stock {
        return Err(Anomaly::BadObject);
    }
    if created.slot != slot {
        return Err(Anomaly::NotOwner);
    }
    is_own(created.object, slot)?;
    match created.ship {
        Ok(_) => Ok(created),
        Err(_) => Err(Anomaly::TooShort),
    }
}

/// A payload ends inside what is looked at.
impl From<Cut> for Anomaly {
    fn from(_: Cut) -> Self {
        Self::TooShort
    }
}

/// The largest message that creates an object. Stock ones have about 120 bytes.
const MAX_CREATE: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::game::{Opcode, Rule};

    /// S-02
    #[test]
    fn objects_belong_to_the_slot_whose_range_they_are_in() {
        let owners = [0, 0x3FFF_FFFE, 0x3FFF_FFFF, 0x4000_0020, 0x4003_FFFE, 0x4003_FFFF, 0x403B_FFFF]
            .map(|id| ObjectId(id).owner());
        assert_eq!(owners, [None, None, Some(0), Some(0), Some(0), Some(1), Some(15)]);
        assert_eq!([0x403F_FFFF, u32::MAX].map(|id| ObjectId(id).owner()), [None, None]);
    }

    /// S-34
    #[test]
    fn every_opcode_has_the_rule_that_the_table_says() {
        let rule = |opcode| Opcode(opcode).rule();
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
