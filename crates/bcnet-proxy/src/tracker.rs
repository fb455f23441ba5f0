//! Tracks the reliable messages of one direction.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use bcnet_transport::Time;
use bcnet_transport::wire::{Channel, MessageId, Seq};

/// State of one reliable message, or of one fragment.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MessageRecord {
    /// True if it was forwarded since its last ACK: the next ACK must be forwarded.
    pub(crate) expects_ack: bool,
    /// True if an ACK was seen.
    pub(crate) ack_seen: bool,
    /// True if its sender need not repeat it: an ACK was seen, or the proxy retransmits it.
    pub(crate) sender_done: bool,
    /// ACKs that the proxy sent in the place of the receiver.
    pub(crate) proxy_acks: u8,
    /// Forwarded copies of the last ACK.
    pub(crate) ack_copies: u8,
}

/// The kind of arrival of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MessageArrival {
    /// The first copy, and no later message came before it. Every first copy of a control message counts as this.
    InOrder,
    /// The first copy, after a later message: an earlier copy was lost.
    OutOfOrder,
    /// Another copy, before an ACK of it was seen.
    Duplicate,
    /// Another copy, although its sender need not repeat it.
    AckedDuplicate,
}

/// A payload in fragments.
#[derive(Debug, Clone, Copy)]
struct SplitPayload {
    /// Number of split payloads before it.
    index: u64,
    /// Forwarded fragments without an ACK.
    open_fragments: u16,
    /// Time of the last ACK without fragment index.
    whole_ack_at: Option<Time>,
}

/// The newest [`MAX_TRACKED_MESSAGES`] reliable messages of one direction.
///
/// Acknowledged messages are kept too, because they may arrive again. A sequence number repeats after 65,536
/// messages; by then its old record is gone.
#[derive(Debug, Default)]
pub(crate) struct MessageTracker {
    records: HashMap<u32, MessageRecord, BuildHasherDefault<KeyHasher>>,
    order: VecDeque<u32>,
    /// The newest [`MAX_SPLIT_MESSAGES`] payloads in fragments.
    splits: BTreeMap<u16, SplitPayload>,
    split_count: u64,
    /// The newest game message.
    newest: Option<Seq>,
}

impl MessageTracker {
    pub(crate) fn get(&mut self, id: MessageId) -> Option<&mut MessageRecord> {
        self.records.get_mut(&key(id))
    }

    /// Records a forwarded message. Returns how it arrived.
    pub(crate) fn on_forward(&mut self, id: MessageId) -> MessageArrival {
        let key = key(id);
        let known = self.records.len();
        let record = self.records.entry(key).or_default();
        record.expects_ack = true;
        let settled = record.sender_done;
        if self.records.len() == known {
            return if settled { MessageArrival::AckedDuplicate } else { MessageArrival::Duplicate };
        }
        self.order.push_back(key);
        if self.order.len() > MAX_TRACKED_MESSAGES {
            let oldest = self.order.pop_front();
            oldest.map(|oldest| self.records.remove(&oldest));
        }
        if id.fragment.is_some() {
            self.open_fragment(id.seq);
        }
        if id.channel == Channel::Control {
            return MessageArrival::InOrder;
        }
        // Sequence numbers wrap: the upper half is behind.
        let newest = self.newest.get_or_insert(id.seq);
        if id.seq.0.wrapping_sub(newest.0) > u16::MAX / 2 {
            return MessageArrival::OutOfOrder;
        }
        *newest = id.seq;
        MessageArrival::InOrder
    }

    fn open_fragment(&mut self, seq: Seq) {
        if self.splits.len() >= MAX_SPLIT_MESSAGES && !self.splits.contains_key(&seq.0) {
            let oldest = self.splits.iter().min_by_key(|(_, split)| split.index).map(|(seq, _)| *seq);
            oldest.map(|oldest| self.splits.remove(&oldest));
        }
        let number = self.split_count;
        let split = self.splits.entry(seq.0).or_insert(SplitPayload {
            index: number,
            open_fragments: 0,
            whole_ack_at: None,
        });
        split.open_fragments = split.open_fragments.saturating_add(1);
        self.split_count += u64::from(split.index == number);
    }

    /// Records that the sender of a message need not repeat it.
    pub(crate) fn mark_sender_done(&mut self, id: MessageId) {
        let Some(record) = self.records.get_mut(&key(id)).filter(|record| !record.sender_done) else {
            return;
        };
        record.sender_done = true;
        if id.fragment.is_some()
            && let Some(split) = self.splits.get_mut(&id.seq.0)
        {
            split.open_fragments = split.open_fragments.saturating_sub(1);
        }
    }

    /// Records an ACK without fragment index. Returns the number of unacknowledged fragments, if its payload was
    /// split.
    pub(crate) fn on_whole_ack(&mut self, seq: Seq, now: Time) -> Option<u16> {
        let split = self.splits.get_mut(&seq.0)?;
        split.whole_ack_at = Some(now);
        Some(split.open_fragments)
    }

    /// Returns whether an ACK of this fragment was seen.
    pub(crate) fn is_ack_seen(&self, id: MessageId) -> bool {
        self.records.get(&key(id)).is_some_and(|record| record.ack_seen)
    }

    /// Returns whether an ACK without fragment index came for this payload after a time.
    pub(crate) fn is_acked_since(&self, seq: Seq, time: Time) -> bool {
        self.splits.get(&seq.0).and_then(|split| split.whole_ack_at).is_some_and(|ack| ack > time)
    }
}

/// Returns a unique key of an id: the fragment in the low bits, where 0 is none.
fn key(MessageId { channel, seq, fragment: part }: MessageId) -> u32 {
    let channel = u32::from(channel == Channel::Control);
    let part = part.map_or(0, |part| u32::from(part) + 1);
    channel << 25 | u32::from(seq.0) << 9 | part
}

/// Spreads keys that differ in few bits. A hostile choice of keys slows only its own conversation, by at most
/// [`MAX_TRACKED_MESSAGES`] steps.
#[derive(Debug, Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32(u32::from(*byte)));
    }

    fn write_u32(&mut self, key: u32) {
        self.0 = (self.0 ^ u64::from(key)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn finish(&self) -> u64 {
        // The table uses both ends of the hash; a product has its best bits in the middle and above.
        self.0 ^ self.0 >> 32
    }
}

/// Tracked messages of one direction.
///
/// Far more than are ever in flight, far fewer than there are sequence numbers.
const MAX_TRACKED_MESSAGES: usize = 4096;
/// Split payloads that are watched for ACKs without fragment index.
const MAX_SPLIT_MESSAGES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    /// The tracker watches the newest split payloads: at the limit it forgets the oldest.
    #[test]
    fn tracker_forgets_the_oldest_split_payload() {
        let mut tracker = MessageTracker::default();
        let watched_payloads = u16::try_from(MAX_SPLIT_MESSAGES).expect("a small number");
        let payloads = 3 * watched_payloads;
        for seq in 0..payloads {
            for fragment in 0..2 {
                let id = MessageId { channel: Channel::Game, seq: Seq(seq), fragment: Some(fragment) };
                tracker.on_forward(id);
            }
        }
        let watched = |seq: &u16| tracker.splits.contains_key(seq);
        let oldest = payloads - watched_payloads;
        assert!((0..payloads).filter(watched).eq(oldest..payloads));
        assert_eq!(tracker.on_whole_ack(Seq(oldest - 1), Time::ZERO), None);
        assert_eq!(tracker.on_whole_ack(Seq(payloads - 1), Time::ZERO), Some(2));
    }
}
