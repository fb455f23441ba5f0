//! Messages of players. They have the recorded sizes, and each relayed message has a unique number.

use bcnet_lab::Rng;
use bcnet_session::game::{
    self, BeamFire, Chat, CompressedFloat, Created, EventDetail, EventNumber, Exploding, GameEvent, Message,
    ObjectCreateTeam, ObjectId, Opcode, PackedVector, Position, Rule, ScaledVector, Ship, Species,
    StateFlags, StateUpdate, Text8, Text16, TorpedoFire, TorpedoFlags, TorpedoTarget, TorpedoType,
    UnitVector,
};

/// Encodes a message.
pub(super) fn encode(message: &Message<'_>) -> Vec<u8> {
    let mut payload = Vec::new();
    message.write(&mut payload);
    payload
}

/// Returns an event about an object of a player.
pub(super) fn event<'a>(
    message: fn(GameEvent<'a>) -> Message<'a>,
    event: EventNumber,
    related: ObjectId,
    detail: EventDetail<'a>,
) -> Vec<u8> {
    encode(&message(GameEvent { event, source: ObjectId::NONE, related, detail }))
}

/// Returns a torpedo, with or without a target.
pub(super) fn torpedo(weapon: ObjectId, target: Option<ObjectId>, rng: &mut Rng) -> Vec<u8> {
    let torpedo = TorpedoType(rng.between(1, 15) as u8);
    let flags = TorpedoFlags::default().with(TorpedoFlags::NO_TARGET, target.is_none());
    let target = target.map(|target| TorpedoTarget {
        target,
        offset: ScaledVector { direction: direction(rng), share: rng.next_u64() as u8 },
    });
    encode(&Message::TorpedoFire(TorpedoFire { weapon, torpedo, flags, direction: direction(rng), target }))
}

/// Returns a beam, with or without a target.
pub(super) fn beam(weapon: ObjectId, target: Option<ObjectId>, rng: &mut Rng) -> Vec<u8> {
    let flags = if target.is_some() { 3 } else { 0 };
    encode(&Message::BeamFire(BeamFire { weapon, unknown_byte: 2, direction: direction(rng), flags, target }))
}

fn direction(rng: &mut Rng) -> UnitVector {
    UnitVector([0; 3].map(|_: i8| rng.next_u64() as i8))
}

/// Returns a Sovereign: 113 bytes for a name of five letters.
pub(super) fn ship(slot: u8, peer: u8, object: ObjectId, name: &str, number: u32) -> Vec<u8> {
    let name = name.as_bytes();
    let ship = Ship {
        species: Species::SOVEREIGN,
        position: [number as f32, 0.0, 0.0],
        rotation: [1.0, 0.0, 0.0, 0.0],
        unknown: [0; 7],
        name: Text8(name.get(..60).unwrap_or(name)),
        set: Text8(b"Multi1"),
        subsystems: &[100; 53],
    };
    encode(&Message::ObjectCreateTeam(ObjectCreateTeam {
        slot,
        peer,
        object: Created::Ship { object, ship },
    }))
}

/// Returns the host's message when a ship destroys itself.
pub(super) fn exploding(ship: ObjectId) -> Vec<u8> {
    let detail = EventDetail::Exploding(Exploding { killer: 0, lifetime: 9.5 });
    event(Message::PythonEvent, EventNumber::OBJECT_EXPLODING, ship, detail)
}

pub(super) fn chat(peer: u8, text: &str) -> Vec<u8> {
    encode(&Message::Chat(Chat { sender: peer.into(), text: Text16(text.as_bytes()) }))
}

/// Returns a state update. Its position follows from ship and number, so a receiver can check it.
pub(super) fn state(ship: ObjectId, number: u32) -> Vec<u8> {
    encode(&Message::StateUpdate(build_state(ship, number, &mut [[0; 2]; MAX_SUBSYSTEMS])))
}

/// Returns the copy of a state that others receive, without the fields that a host removes.
pub(super) fn relayed_state(ship: ObjectId, number: u32) -> Vec<u8> {
    let power = &mut [[0; 2]; MAX_SUBSYSTEMS];
    let mut state = build_state(ship, number, power);
    state.position = state.position.map(|position| Position { hash: None, ..position });
    encode(&Message::StateUpdate(state))
}

fn build_state(ship: ObjectId, number: u32, power: &mut [[u8; 2]; MAX_SUBSYSTEMS]) -> StateUpdate<'_> {
    let mut rng = Rng::new(u64::from(ship.0) << 32 | u64::from(number));
    let share = rng.below(100);
    let (flags, powered) = STATE_KINDS
        .iter()
        .find(|(below, ..)| share < *below)
        .map_or((StateFlags(0x86), MAX_SUBSYSTEMS), |it| (it.1, it.2));
    rng.fill(power.as_flattened_mut());
    let position =
        Position { place: [0; 3].map(|_: u8| rng.fraction() as f32), hash: Some(rng.next_u64() as u16) };
    let delta =
        PackedVector { direction: direction(&mut rng), length: CompressedFloat(rng.next_u64() as u16) };
    StateUpdate {
        object: ship,
        time: number as f32 / 10.0,
        position: flags.has(StateFlags::POSITION).then_some(position),
        delta: flags.has(StateFlags::DELTA).then_some(delta),
        forward: flags.has(StateFlags::FORWARD).then(|| direction(&mut rng)),
        up: flags.has(StateFlags::UP).then(|| direction(&mut rng)),
        speed: flags.has(StateFlags::SPEED).then(|| CompressedFloat(rng.next_u64() as u16)),
        power: power.get(..powered),
        ..StateUpdate::default()
    }
}

/// Returns the ship and the number of a state.
pub(super) fn state_key(payload: &[u8]) -> Option<(ObjectId, u32)> {
    match Message::parse(payload) {
        Ok(Message::StateUpdate(state)) => Some((state.object, (state.time * 10.0).round() as u32)),
        _ => None,
    }
}

/// Returns the slot of a copy, if a player sent it.
pub(super) fn sender_slot(payload: &[u8]) -> Option<u8> {
    let opcode = Opcode::of(payload)?;
    let is_from_player = match opcode.rule() {
        Rule::Relay(_) if opcode == Opcode::PYTHON_EVENT => is_explosion(payload),
        Rule::Relay(_) | Rule::Create | Rule::StateUpdate | Rule::Absorb => true,
        Rule::HostOnly
        | Rule::SelfDestruct
        | Rule::RequestObject
        | Rule::Chat
        | Rule::TeamChat
        | Rule::Team
        | Rule::Unknown => false,
    };
    game::subject(payload).filter(|_| is_from_player)?.owner()
}

/// Returns whether a payload is an explosion, the only host event that players cause.
fn is_explosion(payload: &[u8]) -> bool {
    let explodes = |event: &GameEvent<'_>| matches!(event.detail, EventDetail::Exploding(_));
    matches!(Message::parse(payload), Ok(Message::PythonEvent(event)) if explodes(&event))
}

/// Returns the sender of a simulated player's chat. The host's chat may have any id.
pub(super) fn chat_sender(payload: &[u8]) -> Option<u8> {
    match Message::parse(payload) {
        Ok(Message::Chat(chat)) if chat.text.0.starts_with(CHAT_PREFIX.as_bytes()) => {
            chat.sender.try_into().ok()
        }
        _ => None,
    }
}

/// The beginning of a simulated player's chat.
pub(super) const CHAT_PREFIX: &str = "swarm ";
/// Most players of a session.
pub(super) const MAX_PLAYERS: u8 = 16;
/// Most subsystems in a state.
const MAX_SUBSYSTEMS: usize = 5;
/// Cumulative shares of the kinds of states, with their flags and numbers of subsystems.
const STATE_KINDS: [(u64, StateFlags, usize); 5] = [
    (58, StateFlags(0x9E), 3),
    (74, StateFlags(0x96), 3),
    (83, StateFlags(0x92), 3),
    (91, StateFlags(0x9D), 3),
    (93, StateFlags(0x8E), 3),
];

#[cfg(test)]
mod tests {
    use super::*;

    const SHIP: ObjectId = ObjectId::new(0, 0);

    #[test]
    fn payloads_have_the_recorded_sizes() {
        assert_eq!(ship(0, 2, SHIP, "Cady2", 0).len(), 113);
        let rng = &mut Rng::new(1);
        let torpedoes = [None, Some(SHIP)].map(|target| torpedo(SHIP, target, rng).len());
        let beams = [None, Some(SHIP)].map(|target| beam(SHIP, target, rng).len());
        assert_eq!((torpedoes, beams), ([10, 18], [10, 14]));
        assert_eq!(exploding(SHIP).len(), 25);
        let sizes: Vec<usize> = (0..1000).map(|number| state(SHIP, number).len()).collect();
        assert!([29, 26, 23, 39, 27, 28].iter().all(|size| sizes.contains(size)), "{sizes:?}");
    }

    #[test]
    fn relayed_state_lacks_only_the_hash() {
        for number in 0..2000 {
            let ship = ObjectId::new(3, 34 * number);
            let state = state(ship, number);
            assert_eq!((state_key(&state), sender_slot(&state)), (Some((ship, number)), Some(3)));
            let copy = relayed_state(ship, number);
            assert_eq!(copy.len(), if state.len() == 39 { 37 } else { state.len() });
        }
    }
}
