//! What players say, in bytes: from the recorded sizes and layouts, and with a number in each that is passed on, so
//! that no two are the same.

use bcnet_lab::Rng;

/// An event: what happens to one of a player's things.
pub(super) fn event(opcode: u8, factory: u32, event: u32, related: u32, extra: &[u8]) -> Vec<u8> {
    let mut payload = vec![opcode];
    for word in [factory, 0x0080_0000 + event, 0, related] {
        payload.extend(word.to_le_bytes());
    }
    payload.extend(extra);
    payload
}

/// A torpedo (0x19) or a beam (0x1A), with a target or without.
pub(super) fn shot(opcode: u8, weapon: u32, target: Option<u32>, rng: &mut Rng) -> Vec<u8> {
    let mut payload = vec![opcode];
    payload.extend(weapon.to_le_bytes());
    let mut direction = [0; 5];
    rng.fill(&mut direction);
    payload.extend(direction);
    if let Some(target) = target {
        payload.extend(target.to_le_bytes());
        payload.extend(if opcode == 0x19 { &direction[..] } else { &[] });
    }
    payload
}

/// A Sovereign: 113 bytes for a name of five letters.
pub(super) fn ship(slot: u8, peer: u8, object: u32, name: &str, number: u32) -> Vec<u8> {
    let mut payload = vec![0x03, slot, peer];
    payload.extend(0x8008_u32.to_le_bytes());
    payload.extend(object.to_le_bytes());
    payload.push(5);
    for number in [number as f32, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0] {
        payload.extend(number.to_le_bytes());
    }
    payload.extend([0; 3]);
    for text in [name, "Multi1"] {
        let text: Vec<u8> = text.bytes().take(60).collect();
        payload.push(text.len() as u8);
        payload.extend(text);
    }
    payload.extend([0x64; 53]);
    payload
}

/// What the host says when a ship destroys itself: the answer to 0x13.
pub(super) fn exploding(ship: u32) -> Vec<u8> {
    event(0x06, 0x8129, 0x4E, ship, &[0, 0, 0, 0, 0, 0, 0x18, 0x41])
}

pub(super) fn chat(peer: u8, text: &str) -> Vec<u8> {
    let mut payload = vec![0x2C, peer, 0, 0, 0];
    payload.extend((text.len() as u16).to_le_bytes());
    payload.extend(text.bytes());
    payload
}

/// Where a ship is. It follows from the ship and the number, so that a reader can tell what it should be.
pub(super) fn state(ship: u32, number: u32) -> Vec<u8> {
    let mut rng = Rng::new(u64::from(ship) << 32 | u64::from(number));
    let share = rng.below(100);
    let (flags, size) =
        STATES.iter().find(|(below, ..)| share < *below).map_or((0x86, 28), |it| (it.1, it.2));
    let mut payload = vec![0x1C];
    payload.extend(ship.to_le_bytes());
    payload.extend((number as f32 / 10.0).to_le_bytes());
    payload.push(flags);
    let head = payload.len();
    payload.resize(size, 0);
    rng.fill(payload.get_mut(head..).unwrap_or_default());
    if let Some(bits) = payload.get_mut(BITS).filter(|_| flags & 1 != 0) {
        *bits = HAS_HASH;
    }
    payload
}

/// The copy of a state that others get: what a host leaves out is left out.
pub(super) fn passed_state(mut state: Vec<u8>) -> Vec<u8> {
    if state.get(9).is_some_and(|flags| flags & 1 != 0) {
        state.get_mut(BITS).into_iter().for_each(|bits| *bits &= !HAS_HASH);
        state.drain(BITS + 1..BITS + 3);
    }
    state
}

/// The ship and the number of a state.
pub(super) fn state_key(payload: &[u8]) -> Option<(u32, u32)> {
    let time = f32::from_le_bytes(*payload.get(5..9)?.first_chunk()?);
    Some((u32_at(payload, 1)?, (time * 10.0).round() as u32))
}

/// The slot that a copy is about, if it is one of those that players have said.
pub(super) fn slot_of(payload: &[u8]) -> Option<u8> {
    match payload.first()? {
        0x03 => payload.get(1).copied(),
        0x19 | 0x1A | 0x1C => owner(u32_at(payload, 1)?),
        0x06 if u32_at(payload, 1) != Some(0x8129) => None,
        0x06..=0x13 | 0x15 | 0x1B => owner(u32_at(payload, 13)?),
        _ => None,
    }
}

/// Who says this, if it is chat of a simulated player. The host's own chat may be under any id.
pub(super) fn chatter(payload: &[u8]) -> Option<u8> {
    let said = payload.strip_prefix(&[0x2C])?;
    said.get(6..)?.starts_with(CHAT_MARK.as_bytes()).then(|| said.first().copied()).flatten()
}

pub(super) fn u32_at(payload: &[u8], at: usize) -> Option<u32> {
    payload.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

/// The first object of a slot.
pub(super) fn first_object(slot: u8) -> u32 {
    FIRST_OBJECT + u32::from(slot) * OBJECTS
}

fn owner(object: u32) -> Option<u8> {
    u8::try_from(object.checked_sub(FIRST_OBJECT)? / OBJECTS).ok().filter(|slot| *slot < SLOTS)
}

/// How chat of a simulated player begins.
pub(super) const CHAT_MARK: &str = "swarm ";
/// How many objects a player can have.
pub(super) const OBJECTS: u32 = 0x40000;
/// How many players a session can have.
pub(super) const SLOTS: u8 = 16;
const FIRST_OBJECT: u32 = 0x3FFF_FFFF;
const BITS: usize = 22;
const HAS_HASH: u8 = 1;
/// Shares, added up, of the kinds of states: their flags and sizes.
const STATES: [(u64, u8, usize); 5] =
    [(58, 0x9E, 29), (74, 0x96, 26), (83, 0x92, 23), (91, 0x9D, 39), (93, 0x8E, 27)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_have_the_recorded_sizes() {
        assert_eq!(ship(0, 2, 0x3FFF_FFFF, "Cady2", 0).len(), 113);
        let rng = &mut Rng::new(1);
        let shots = [(0x19, None), (0x19, Some(7)), (0x1A, None), (0x1A, Some(7))]
            .map(|(opcode, target)| shot(opcode, 1, target, rng).len());
        assert_eq!(shots, [10, 19, 10, 14]);
        assert_eq!(exploding(0x3FFF_FFFF).len(), 25);
    }

    #[test]
    fn a_state_can_be_told_from_its_copy() {
        for number in 0..2000 {
            let ship = first_object(3) + 34 * number;
            let state = state(ship, number);
            assert_eq!((state_key(&state), slot_of(&state)), (Some((ship, number)), Some(3)));
            let copy = passed_state(state.clone());
            assert_eq!(copy.len(), if state[9] == 0x9D { 37 } else { state.len() });
        }
    }
}
