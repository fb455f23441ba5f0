//! Messages of players, byte by byte, from recorded sizes and layouts.
//!
//! This module deliberately does not use the library's table of messages. Otherwise a mistake in that table would be
//! on both sides of the check, and the check would not find it.

use bcnet_lab::Rng;

/// Returns an event about an object of a player.
pub(super) fn event(opcode: u8, factory: u32, event: u32, related: u32, extra: &[u8]) -> Vec<u8> {
    let mut payload = vec![opcode];
    for word in [factory, 0x0080_0000 + event, 0, related] {
        payload.extend(word.to_le_bytes());
    }
    payload.extend(extra);
    payload
}

/// Returns the message that creates a ship of class Sovereign: 113 bytes for a name of five letters.
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

/// Returns the host's answer to a self-destruct request (opcode 0x13): the ship explodes.
pub(super) fn exploding(ship: u32) -> Vec<u8> {
    event(0x06, 0x8129, 0x4E, ship, &[0, 0, 0, 0, 0, 0, 0x18, 0x41])
}

pub(super) fn chat(peer: u8, text: &str) -> Vec<u8> {
    let mut payload = vec![0x2C, peer, 0, 0, 0];
    payload.extend((text.len() as u16).to_le_bytes());
    payload.extend(text.bytes());
    payload
}

/// Returns a state update.
///
/// Its bytes depend only on `ship` and `number`, so that a receiver can compute and compare them.
pub(super) fn state(ship: u32, number: u32) -> Vec<u8> {
    let mut rng = Rng::new(u64::from(ship) << 32 | u64::from(number));
    let share = rng.below(100);
    let (flags, size) =
        STATE_KINDS.iter().find(|(below, ..)| share < *below).map_or((0x86, 28), |it| (it.1, it.2));
    let mut payload = vec![0x1C];
    payload.extend(ship.to_le_bytes());
    payload.extend((number as f32 / 10.0).to_le_bytes());
    payload.push(flags);
    let head = payload.len();
    payload.resize(size, 0);
    rng.fill(payload.get_mut(head..).unwrap_or_default());
    if let Some(bits) = payload.get_mut(HASH_FLAG_OFFSET).filter(|_| flags & 1 != 0) {
        *bits = HAS_HASH;
    }
    payload
}

/// Returns the copy of a state that others receive, without the fields that a host removes.
pub(super) fn relayed_state(mut state: Vec<u8>) -> Vec<u8> {
    if state.get(9).is_some_and(|flags| flags & 1 != 0) {
        state.get_mut(HASH_FLAG_OFFSET).into_iter().for_each(|bits| *bits &= !HAS_HASH);
        state.drain(HASH_FLAG_OFFSET + 1..HASH_FLAG_OFFSET + 3);
    }
    state
}

pub(super) fn u32_at(payload: &[u8], at: usize) -> Option<u32> {
    payload.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

/// Returns the first object id of the player in a slot.
pub(super) fn first_object(slot: u8) -> u32 {
    FIRST_OBJECT + u32::from(slot) * OBJECTS_PER_SLOT
}

/// The number of object ids for each player.
const OBJECTS_PER_SLOT: u32 = 0x40000;
const FIRST_OBJECT: u32 = 0x3FFF_FFFF;
const HASH_FLAG_OFFSET: usize = 22;
const HAS_HASH: u8 = 1;
/// The kinds of state updates: cumulative share in percent, flags, size in bytes.
const STATE_KINDS: [(u64, u8, usize); 5] =
    [(58, 0x9E, 29), (74, 0x96, 26), (83, 0x92, 23), (91, 0x9D, 39), (93, 0x8E, 27)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_have_the_recorded_sizes() {
        assert_eq!(ship(0, 2, 0x3FFF_FFFF, "Cady2", 0).len(), 113);
        assert_eq!(exploding(0x3FFF_FFFF).len(), 25);
    }
}
