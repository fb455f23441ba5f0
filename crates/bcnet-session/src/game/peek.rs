//! Reads the fields of relayed messages that a host needs, without parsing whole messages.
//!
//! Only [`named_slots`] and [`text_ranges`] allocate.

use std::ops::Range;

use super::code::{ObjectClass, Species};
use super::describe::{PayloadField, Value, describe};
use super::event::EventHead;
use super::field::{Cut, OPCODE_LEN, Reader, Wire, names, record};
use super::object::{ObjectId, Ship};
use super::rows::{Check, Opcode, Rule};
use super::table::{BeamFire, Team, TorpedoFire, read_fields};

/// Returns the object that a message is about, if any. Reads only the beginning of the message.
#[must_use]
pub fn subject(payload: &[u8]) -> Option<ObjectId> {
    let opcode = Opcode::of(payload)?;
    match opcode.rule() {
        Rule::Relay(Check::Event) => event_head(payload).ok().map(|head| head.subject()),
        Rule::Absorb if matches!(opcode, Opcode::PYTHON_EVENT_2 | Opcode::COLLISION_EFFECT) => {
            event_head(payload).ok().map(|head| head.subject())
        }
        Rule::Relay(Check::Object) | Rule::StateUpdate | Rule::RequestObject => first_object(payload).ok(),
        Rule::Create => Creation::read(payload).ok().map(|created| created.object),
        Rule::Absorb
        | Rule::HostOnly
        | Rule::SelfDestruct
        | Rule::Chat
        | Rule::TeamChat
        | Rule::Team
        | Rule::Unknown => None,
    }
}

/// Returns the object id at the beginning of a message.
pub(crate) fn first_object(payload: &[u8]) -> Result<ObjectId, Cut> {
    Wire::read(&mut Reader::new(payload), names!(object))
}

/// Returns the head of a message that contains an event.
pub(crate) fn event_head(payload: &[u8]) -> Result<EventHead, Cut> {
    Wire::read(&mut Reader::new(payload), names!(event))
}

/// Returns the target of a torpedo or pulse, if it has one and the message is complete.
pub(crate) fn shot_target(payload: &[u8]) -> Option<ObjectId> {
    match Opcode::of(payload)? {
        Opcode::TORPEDO_FIRE => read_fields::<TorpedoFire>(payload).ok()?.target.map(|it| it.target),
        Opcode::BEAM_FIRE => read_fields::<BeamFire>(payload).ok()?.target,
        _ => None,
    }
}

/// Returns the player and the team of a message in which a player chooses a team. Ignores later bytes.
pub(crate) fn team_choice(payload: &[u8]) -> Result<Team, Cut> {
    Wire::read(&mut Reader::new(payload), names!(team))
}

/// A message that creates an object.
#[derive(Debug)]
pub(crate) struct Creation<'a> {
    /// The slot that the sender claims.
    pub(crate) slot: u8,
    pub(crate) class: ObjectClass,
    pub(crate) object: ObjectId,
    pub(crate) species: Species,
    /// The rest, read as a ship. A message that creates a torpedo must have this layout too.
    pub(crate) ship: Result<Ship<'a>, Cut>,
}

impl<'a> Creation<'a> {
    pub(crate) fn read(payload: &'a [u8]) -> Result<Self, Cut> {
        let reader = &mut Reader::new(payload);
        let slot = u8::read(reader, names!(slot))?;
        if Opcode::of(payload) == Some(Opcode::OBJECT_CREATE_TEAM) {
            u8::read(reader, names!(peer))?;
        }
        let class = ObjectClass::read(reader, names!(class))?;
        let object = ObjectId::read(reader, names!(object))?;
        let cut = Cut { field: "species", at: reader.at() };
        let species = reader.remaining().first().copied().map(Species).ok_or(cut)?;
        Ok(Self { slot, class, object, species, ship: Ship::read(reader, names!(ship)) })
    }
}

/// Returns the slots whose objects a message names, as bits. Returns `None` if they are not known.
pub(crate) fn named_slots(payload: &[u8]) -> Option<u32> {
    let rule = Opcode::of(payload)?.rule();
    if matches!(rule, Rule::Chat | Rule::TeamChat) {
        return Some(0);
    }
    let description = describe(payload);
    let is_known =
        rule != Rule::Unknown && description.truncated.is_none() && description.get("rest").is_none();
    let owner = |field: &PayloadField<'_>| match field.value {
        Value::Id(id) => ObjectId(id).owner(),
        Value::Number(_)
        | Value::Flag(_)
        | Value::Float(_)
        | Value::Packed { .. }
        | Value::Raw(_)
        | Value::Name(_)
        | Value::Text(_)
        | Value::Bytes(_) => None,
    };
    is_known.then(|| description.fields.iter().filter_map(owner).fold(0, |bits, slot| bits | 1 << slot))
}

/// Returns the places of the texts in a payload, without their lengths.
///
/// Reads every message that creates an object as if it created a ship.
pub(crate) fn text_ranges(payload: &[u8]) -> Vec<Range<usize>> {
    if Opcode::of(payload).is_some_and(|opcode| opcode.rule() == Rule::Create) {
        let ship = Creation::read(payload).and_then(|created| created.ship);
        return ship.map(|ship| ship_text_ranges(payload, &ship).into()).unwrap_or_default();
    }
    let range = |field: &PayloadField<'_>| match field.value {
        Value::Text(text) => Some(field.range.end - text.len()..field.range.end),
        Value::Number(_)
        | Value::Id(_)
        | Value::Flag(_)
        | Value::Float(_)
        | Value::Packed { .. }
        | Value::Raw(_)
        | Value::Name(_)
        | Value::Bytes(_) => None,
    };
    describe(payload).fields.iter().filter_map(range).collect()
}

/// Returns the places of the name and the set of a ship. Only the subsystems follow them.
fn ship_text_ranges(payload: &[u8], ship: &Ship<'_>) -> [Range<usize>; 2] {
    let set = payload.len() - ship.subsystems.len() - ship.set.0.len();
    let name_end = set - size_of::<u8>();
    [name_end - ship.name.0.len()..name_end, set..set + ship.set.0.len()]
}

record! {
    /// The fields of a chat message before its text.
    pub(super) [ChatHead] {
        /// The peer id of the sender.
        sender: i32,
        /// The length of the text.
        text_len: u16,
    }
}

/// Returns the length field of a chat message, and the actual length of its text.
pub(crate) fn chat_lengths(payload: &[u8]) -> Result<(usize, usize), Cut> {
    let reader = &mut Reader::new(payload);
    let head = ChatHead::read(reader, names!(chat))?;
    Ok((head.text_len.into(), reader.remaining().len()))
}

/// Sets the sender of a chat message, and returns its text.
pub(crate) fn set_chat_sender(sender: u8, payload: &mut [u8]) -> &mut [u8] {
    let Some(head) = payload.get_mut(OPCODE_LEN..) else { return &mut [] };
    let Some((place, text)) = head.split_first_chunk_mut() else { return &mut [] };
    *place = i32::from(sender).to_le_bytes();
    text.get_mut(size_of::<u16>()..).unwrap_or_default()
}

/// Returns the text of a chat message.
pub(crate) fn chat_text(payload: &[u8]) -> &[u8] {
    payload.get(OPCODE_LEN + size_of::<i32>() + size_of::<u16>()..).unwrap_or_default()
}
