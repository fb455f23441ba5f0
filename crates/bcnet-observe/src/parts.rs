//! Payloads that travel in parts, put together again (T-20, T-68).

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::{ConversationId, Side};
use bcnet_wire::{Body, Control, Data, Delivery, Message, Part, Seq};

/// Puts parts together as they pass. It keeps as many as fit its bounds, the latest of them.
#[derive(Debug, Default)]
pub struct PartJoiner {
    open: BTreeMap<Key, Parts>,
    /// What is open, in the order of its beginning.
    order: VecDeque<Key>,
    /// What was put together lately: its repeats are no payloads of their own.
    done: VecDeque<Key>,
    bytes: usize,
}

/// A payload that was put together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    /// The number that its parts share.
    pub seq: Seq,
    /// How many there were.
    pub parts: u8,
    /// What they hold together.
    pub payload: Vec<u8>,
}

type Key = (ConversationId, Side, u16);

#[derive(Debug, Default)]
struct Parts {
    total: Option<u8>,
    parts: BTreeMap<u8, Vec<u8>>,
}

impl Parts {
    fn bytes(&self) -> usize {
        self.parts.values().map(Vec::len).sum()
    }

    /// Returns whether a part does not fit in with those that are there (T-68).
    fn contradicts(&self, total: Option<u8>, index: u8) -> bool {
        let highest = self.parts.last_key_value().map_or(index, |(highest, _)| index.max(*highest));
        self.total.is_some_and(|known| total != Some(known)) || total.is_some_and(|total| highest >= total)
    }

    fn is_whole(&self) -> bool {
        self.total.is_some_and(|total| (0..total).all(|index| self.parts.contains_key(&index)))
    }
}

impl PartJoiner {
    /// A message passes. Returns what it completes, if it is the last part that was missing.
    #[inline]
    pub fn add(&mut self, talk: ConversationId, side: Side, message: &Message<'_>) -> Option<Joined> {
        match message {
            Message::Data(Data { delivery: Delivery::Fragment(seq, part), payload, .. }) => {
                self.add_part((talk, side, seq.0), *part, payload)
            }
            Message::Control(Control { body: Body::ConnectRequest { .. }, .. }) => {
                self.forget(talk);
                None
            }
            Message::Data(_) | Message::Control(_) | Message::Ack(_) | Message::Keepalive => None,
        }
    }

    fn add_part(&mut self, key: Key, part: Part, payload: &[u8]) -> Option<Joined> {
        if self.done.contains(&key) {
            return None;
        }
        if !self.open.contains_key(&key) {
            self.order.push_back(key);
        }
        let parts = self.open.entry(key).or_default();
        let total = part.total().map(core::num::NonZeroU8::get).or(parts.total);
        if parts.contradicts(total, part.index()) {
            return None;
        }
        parts.total = total;
        if let Some(old) = parts.parts.insert(part.index(), payload.to_vec()) {
            self.bytes -= old.len();
        }
        self.bytes += payload.len();
        if !parts.is_whole() {
            self.make_room();
            return None;
        }
        let Parts { total, parts } = self.take(key)?;
        if self.done.len() >= MAX_DONE {
            self.done.pop_front();
        }
        self.done.push_back(key);
        let payload = parts.into_values().flatten().collect();
        Some(Joined { seq: Seq(key.2), parts: total?, payload })
    }

    /// A connection begins anew: its numbers do.
    fn forget(&mut self, talk: ConversationId) {
        self.done.retain(|(other, ..)| *other != talk);
        let gone: Vec<Key> = self.order.iter().copied().filter(|(other, ..)| *other == talk).collect();
        for key in gone {
            self.take(key);
        }
    }

    fn take(&mut self, key: Key) -> Option<Parts> {
        let parts = self.open.remove(&key)?;
        self.bytes -= parts.bytes();
        self.order.retain(|other| *other != key);
        Some(parts)
    }

    fn make_room(&mut self) {
        while self.bytes > MAX_BYTES || self.open.len() > MAX_OPEN {
            let Some(oldest) = self.order.front().copied() else { return };
            self.take(oldest);
        }
    }
}

/// Parts that wait for the others, together, and the payloads that they belong to.
const MAX_BYTES: usize = 4 << 20;
const MAX_OPEN: usize = 1024;
/// A stock sender repeats parts for as long as this many others, and longer; then they may be told again.
const MAX_DONE: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MessageBuffer;

    /// Returns what the messages of a datagram complete.
    fn add(joiner: &mut PartJoiner, bytes: &[u8]) -> Vec<Joined> {
        let mut buffer = MessageBuffer::default();
        let parsed = buffer.parse(bytes, None).expect("well formed");
        let talk = ConversationId(0);
        parsed.messages().iter().filter_map(|message| joiner.add(talk, Side::First, message)).collect()
    }

    /// T-20, T-68
    #[test]
    fn parts_are_joined_once_in_whatever_order_they_come() {
        let first: &[u8] = &[2, 1, 0x32, 9, 0xA0, 5, 0, 0, 3, 7, 8];
        let second: &[u8] = &[2, 1, 0x32, 8, 0xA0, 5, 0, 1, 9, 10];
        let third: &[u8] = &[2, 1, 0x32, 7, 0xA0, 5, 0, 2, 11];
        let mut joiner = PartJoiner::default();
        assert_eq!(add(&mut joiner, third), []);
        assert_eq!(add(&mut joiner, first), []);
        assert_eq!(add(&mut joiner, third), [], "a repeat completes nothing");
        let whole = Joined { seq: Seq(5), parts: 3, payload: [7, 8, 9, 10, 11].into() };
        assert_eq!(add(&mut joiner, second), [whole]);
        assert_eq!(add(&mut joiner, second), [], "nor does a repeat of what was joined");
        assert_eq!((joiner.open.len(), joiner.order.len(), joiner.bytes), (0, 0, 0));
    }

    /// T-68
    #[test]
    fn a_part_that_contradicts_the_others_changes_nothing() {
        let first: &[u8] = &[2, 1, 0x32, 8, 0xA0, 5, 0, 0, 2, 7];
        let other_total: &[u8] = &[2, 1, 0x32, 8, 0xA0, 5, 0, 0, 3, 8];
        let too_high: &[u8] = &[2, 1, 0x32, 7, 0xA0, 5, 0, 2, 9];
        let second: &[u8] = &[2, 1, 0x32, 7, 0xA0, 5, 0, 1, 10];
        let mut joiner = PartJoiner::default();
        for part in [first, other_total, too_high] {
            assert_eq!(add(&mut joiner, part), []);
        }
        assert_eq!(joiner.bytes, 1);
        assert_eq!(add(&mut joiner, second), [Joined { seq: Seq(5), parts: 2, payload: [7, 10].into() }]);
    }

    #[test]
    fn memory_is_bounded_whatever_parts_come() {
        let mut joiner = PartJoiner::default();
        for number in 0..20_000_u16 {
            let [low, high] = number.to_le_bytes();
            add(&mut joiner, &[2, 1, 0x32, 8, 0xA0, low, high, 1, 9, 10]);
        }
        assert_eq!((joiner.open.len(), joiner.order.len(), joiner.bytes), (MAX_OPEN, MAX_OPEN, 2 * MAX_OPEN));
    }
}
