//! What a host looks at in messages that it passes on, without reading all of them: nothing here allocates.

use std::ops::Range;

use super::code::{ObjectClass, Species};
use super::describe::{PayloadField, Value, describe};
use super::event::EventHead;
use super::field::{Cut, OPCODE_LEN, Reader, Wire, names, record};
use super::object::{ObjectId, Ship};
use super::rows::{Check, Opcode, Rule};
use super::table::{BeamFire, Team, TorpedoFire, read_fields};

/// Returns the object that a message is about, if it is about one; the rest of the message is not looked at.
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

/// Returns the object that a message begins with.
pub(crate) fn first_object(payload: &[u8]) -> Result<ObjectId, Cut> {
    Wire::read(&mut Reader::new(payload), names!(object))
}

/// Returns the head of a message that is an event.
pub(crate) fn event_head(payload: &[u8]) -> Result<EventHead, Cut> {
    Wire::read(&mut Reader::new(payload), names!(event))
}

/// Returns what a torpedo or a pulse is fired at, if it is fired at something and the message is whole.
pub(crate) fn shot_target(payload: &[u8]) -> Option<ObjectId> {
    match Opcode::of(payload)? {
        Opcode::TORPEDO_FIRE => read_fields::<TorpedoFire>(payload).ok()?.target.map(|it| it.target),
        Opcode::BEAM_FIRE => read_fields::<BeamFire>(payload).ok()?.target,
        _ => None,
    }
}

/// Returns who joins which team, whatever follows.
pub(crate) fn team_choice(payload: &[u8]) -> Result<Team, Cut> {
    Wire::read(&mut Reader::new(payload), names!(team))
}

/// A message that creates an object.
#[derive(Debug)]
pub(crate) struct Creation<'a> {
    /// The slot that it claims to be of.
    pub(crate) slot: u8,
    pub(crate) class: ObjectClass,
    pub(crate) object: ObjectId,
    pub(crate) species: Species,
    /// The rest, read as that of a ship: what creates a torpedo must look like one too.
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

/// Returns the slots whose objects a message names, as bits. `None` if that cannot be told.
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

/// Returns where in a payload its texts lie, without their lengths. What creates something is read as that of a ship.
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

/// Returns where name and set of a ship lie: the last but its subsystems.
fn ship_text_ranges(payload: &[u8], ship: &Ship<'_>) -> [Range<usize>; 2] {
    let set = payload.len() - ship.subsystems.len() - ship.set.0.len();
    let name_end = set - size_of::<u8>();
    [name_end - ship.name.0.len()..name_end, set..set + ship.set.0.len()]
}

record! {
    /// What chat has before its text.
    pub(super) [ChatHead] {
        /// The peer id of who says it.
        sender: i32,
        /// How long the text is.
        text_len: u16,
    }
}

/// Returns the length of a chat text as it is claimed, and as it is.
pub(crate) fn chat_lengths(payload: &[u8]) -> Result<(usize, usize), Cut> {
    let reader = &mut Reader::new(payload);
    let head = ChatHead::read(reader, names!(chat))?;
    Ok((head.text_len.into(), reader.remaining().len()))
}

/// Writes who chats into a message, and returns its text.
pub(crate) fn set_chat_sender(sender: u8, payload: &mut [u8]) -> &mut [u8] {
    let Some(head) = payload.get_mut(OPCODE_LEN..) else { return &mut [] };
    let Some((place, text)) = head.split_first_chunk_mut() else { return &mut [] };
    *place = i32::from(sender).to_le_bytes();
    text.get_mut(size_of::<u16>()..).unwrap_or_default()
}
