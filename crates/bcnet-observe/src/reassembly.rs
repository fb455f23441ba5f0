//! Reassembly of payloads that travel in fragments ([T-20], [T-68]).
//!
//! [T-20]: bcnet_wire::protocol#t-20
//! [T-68]: bcnet_wire::protocol#t-68

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::{ConversationId, Side};
use bcnet_wire::{Body, Control, Data, Delivery, Fragment, Message, Seq};

/// Reassembles fragments as they pass. At its memory limits it drops the oldest incomplete payloads.
#[derive(Debug, Default)]
pub struct Reassembler {
    incomplete: BTreeMap<PayloadKey, FragmentSet>,
    /// The keys of the incomplete payloads, oldest first.
    order: VecDeque<PayloadKey>,
    /// The keys of recently completed payloads: retransmitted fragments of these are ignored.
    completed: VecDeque<PayloadKey>,
    bytes: usize,
}

/// A payload that was reassembled from fragments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReassembledPayload {
    /// The sequence number that the fragments share.
    pub seq: Seq,
    /// The number of fragments.
    pub fragments: u8,
    /// The bytes of the payload.
    pub payload: Vec<u8>,
}

type PayloadKey = (ConversationId, Side, u16);

#[derive(Debug, Default)]
struct FragmentSet {
    total: Option<u8>,
    fragments: BTreeMap<u8, Vec<u8>>,
}

impl FragmentSet {
    fn bytes(&self) -> usize {
        self.fragments.values().map(Vec::len).sum()
    }

    /// Returns whether a fragment contradicts the fragments that are already here (T-68).
    fn contradicts(&self, total: Option<u8>, index: u8) -> bool {
        let highest = self.fragments.last_key_value().map_or(index, |(highest, _)| index.max(*highest));
        self.total.is_some_and(|known| total != Some(known)) || total.is_some_and(|total| highest >= total)
    }

    fn is_complete(&self) -> bool {
        self.total.is_some_and(|total| (0..total).all(|index| self.fragments.contains_key(&index)))
    }
}

impl Reassembler {
    /// Adds a message that passes. Returns the payload that it completes, if it is the last missing fragment.
    #[inline]
    pub fn add(
        &mut self,
        conversation: ConversationId,
        side: Side,
        message: &Message<'_>,
    ) -> Option<ReassembledPayload> {
        match message {
            Message::Data(Data { delivery: Delivery::Fragment(seq, part), payload, .. }) => {
                self.add_fragment((conversation, side, seq.0), *part, payload)
            }
            Message::Control(Control { body: Body::ConnectRequest { .. }, .. }) => {
                self.forget_conversation(conversation);
                None
            }
            Message::Data(_) | Message::Control(_) | Message::Ack(_) | Message::Keepalive => None,
        }
    }

    fn add_fragment(
        &mut self,
        key: PayloadKey,
        part: Fragment,
        payload: &[u8],
    ) -> Option<ReassembledPayload> {
        if self.completed.contains(&key) {
            return None;
        }
        if !self.incomplete.contains_key(&key) {
            self.order.push_back(key);
        }
        let parts = self.incomplete.entry(key).or_default();
        let total = part.total().map(core::num::NonZeroU8::get).or(parts.total);
        if parts.contradicts(total, part.index()) {
            return None;
        }
        parts.total = total;
        if let Some(old) = parts.fragments.insert(part.index(), payload.to_vec()) {
            self.bytes -= old.len();
        }
        self.bytes += payload.len();
        if !parts.is_complete() {
            self.evict_oldest();
            return None;
        }
        let FragmentSet { total, fragments: parts } = self.take(key)?;
        if self.completed.len() >= MAX_COMPLETED {
            self.completed.pop_front();
        }
        self.completed.push_back(key);
        let payload = parts.into_values().flatten().collect();
        Some(ReassembledPayload { seq: Seq(key.2), fragments: total?, payload })
    }

    /// Forgets a conversation: a new connection starts its sequence numbers again.
    fn forget_conversation(&mut self, conversation: ConversationId) {
        self.completed.retain(|(other, ..)| *other != conversation);
        let gone: Vec<PayloadKey> =
            self.order.iter().copied().filter(|(other, ..)| *other == conversation).collect();
        for key in gone {
            self.take(key);
        }
    }

    fn take(&mut self, key: PayloadKey) -> Option<FragmentSet> {
        let parts = self.incomplete.remove(&key)?;
        self.bytes -= parts.bytes();
        self.order.retain(|other| *other != key);
        Some(parts)
    }

    fn evict_oldest(&mut self) {
        while self.bytes > MAX_BYTES || self.incomplete.len() > MAX_INCOMPLETE {
            let Some(oldest) = self.order.pop_front() else { return };
            self.take(oldest);
        }
    }
}

/// Limits of the bytes of all incomplete payloads, and of their number.
const MAX_BYTES: usize = 4 << 20;
const MAX_INCOMPLETE: usize = 1024;
/// Limit of the completed payloads that are remembered. If a stock sender repeats the fragments of a payload
/// after this many others were completed, the payload is reported twice.
const MAX_COMPLETED: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MessageBuffer;

    /// Returns the payloads that the messages of a datagram complete.
    fn add(reassembler: &mut Reassembler, bytes: &[u8]) -> Vec<ReassembledPayload> {
        let mut buffer = MessageBuffer::default();
        let parsed = buffer.parse(bytes, None).expect("well formed");
        let conversation = ConversationId(0);
        parsed
            .messages()
            .iter()
            .filter_map(|message| reassembler.add(conversation, Side::First, message))
            .collect()
    }

    /// T-20, T-68
    #[test]
    fn fragments_are_reassembled_once_in_any_order() {
        let first: &[u8] = &[2, 1, 0x32, 9, 0xA0, 5, 0, 0, 3, 7, 8];
        let second: &[u8] = &[2, 1, 0x32, 8, 0xA0, 5, 0, 1, 9, 10];
        let third: &[u8] = &[2, 1, 0x32, 7, 0xA0, 5, 0, 2, 11];
        let mut reassembler = Reassembler::default();
        assert_eq!(add(&mut reassembler, third), []);
        assert_eq!(add(&mut reassembler, first), []);
        assert_eq!(add(&mut reassembler, third), [], "a repeated fragment completes nothing");
        let whole = ReassembledPayload { seq: Seq(5), fragments: 3, payload: [7, 8, 9, 10, 11].into() };
        assert_eq!(add(&mut reassembler, second), [whole]);
        assert_eq!(add(&mut reassembler, second), [], "a repeat of a completed payload completes nothing");
        assert_eq!((reassembler.incomplete.len(), reassembler.order.len(), reassembler.bytes), (0, 0, 0));
    }

    /// A new connection starts its sequence numbers again, so its payloads are no repeats of the old ones.
    #[test]
    fn new_connection_forgets_completed_and_incomplete_payloads() {
        let fragments =
            |seq| [[2, 1, 0x32, 9, 0xA0, seq, 0, 0, 2, 7, 8], [2, 1, 0x32, 9, 0xA0, seq, 0, 1, 9, 10, 11]];
        let request: &[u8] = &[0xFF, 1, 3, 15, 0xC0, 0, 0, 10, 0, 0, 2, 0x5F, 10, 0, 0, 0, 0];
        let mut reassembler = Reassembler::default();
        for _ in 0..2 {
            let [first, second] = fragments(5);
            assert_eq!(add(&mut reassembler, &first).len() + add(&mut reassembler, &second).len(), 1);
            assert_eq!(add(&mut reassembler, &fragments(6)[0]), []);
            assert_eq!(add(&mut reassembler, request), []);
            assert_eq!((reassembler.incomplete.len(), reassembler.bytes), (0, 0));
        }
    }

    /// T-68
    #[test]
    fn contradictory_fragment_is_ignored() {
        let first: &[u8] = &[2, 1, 0x32, 8, 0xA0, 5, 0, 0, 2, 7];
        let other_total: &[u8] = &[2, 1, 0x32, 8, 0xA0, 5, 0, 0, 3, 8];
        let too_high: &[u8] = &[2, 1, 0x32, 7, 0xA0, 5, 0, 2, 9];
        let second: &[u8] = &[2, 1, 0x32, 7, 0xA0, 5, 0, 1, 10];
        let mut reassembler = Reassembler::default();
        for part in [first, other_total, too_high] {
            assert_eq!(add(&mut reassembler, part), []);
        }
        assert_eq!(reassembler.bytes, 1);
        assert_eq!(
            add(&mut reassembler, second),
            [ReassembledPayload { seq: Seq(5), fragments: 2, payload: [7, 10].into() }]
        );
    }

    #[test]
    fn reassembler_memory_is_bounded() {
        let mut reassembler = Reassembler::default();
        for number in 0..20_000_u16 {
            let [low, high] = number.to_le_bytes();
            add(&mut reassembler, &[2, 1, 0x32, 8, 0xA0, low, high, 1, 9, 10]);
        }
        assert_eq!(
            (reassembler.incomplete.len(), reassembler.order.len(), reassembler.bytes),
            (MAX_INCOMPLETE, MAX_INCOMPLETE, 2 * MAX_INCOMPLETE)
        );
    }

    /// The newest completed payloads are remembered, in limited memory.
    #[test]
    fn newest_completed_payloads_are_remembered() {
        let mut reassembler = Reassembler::default();
        let complete = |reassembler: &mut Reassembler, number: u16| {
            let [low, high] = number.to_le_bytes();
            let first = add(reassembler, &[2, 1, 0x32, 9, 0xA0, low, high, 0, 2, 7, 8]);
            let second = add(reassembler, &[2, 1, 0x32, 8, 0xA0, low, high, 1, 9, 10]);
            first.len() + second.len()
        };
        assert!((0..1000).all(|number| complete(&mut reassembler, number) == 1));
        assert_eq!(reassembler.completed.len(), 256);
        let repeated: Vec<u16> =
            (744..1000).filter(|number| complete(&mut reassembler, *number) > 0).collect();
        assert_eq!(repeated, [], "repeats of the newest 256 payloads complete nothing");
        assert_eq!(complete(&mut reassembler, 0), 1, "the oldest is forgotten");
    }

    /// Payloads with many fragments stay within the limit of bytes; the oldest is dropped first.
    #[test]
    fn bytes_of_incomplete_payloads_are_bounded() {
        let mut reassembler = Reassembler::default();
        let add_fragment = |reassembler: &mut Reassembler, number: u16, index| {
            let [low, high] = number.to_le_bytes();
            let header = [2, 1, 0x32, 0x06, 0xA1, low, high, index];
            assert_eq!(add(reassembler, &[&header[..], &[7; 256]].concat()), []);
        };
        for number in 0..1024 {
            (1..17).for_each(|index| add_fragment(&mut reassembler, number, index));
        }
        assert_eq!((reassembler.order.len(), reassembler.bytes), (1024, MAX_BYTES));
        add_fragment(&mut reassembler, 1023, 17);
        assert_eq!((reassembler.order.len(), reassembler.bytes), (1023, MAX_BYTES - 15 * 256));
        assert_eq!(reassembler.order.front().map(|(.., seq)| *seq), Some(1));
    }
}
