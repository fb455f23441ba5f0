//! What was seen of the reliable messages of one direction.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::num::NonZeroU8;

use bcnet_transport::wire::{Channel, MessageId, Part, Seq};

/// What is known of one reliable message, or of one part of it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tracked {
    /// Whether it was passed on since its last ACK was: the next ACK says something new.
    pub(crate) news: bool,
    /// Whether an ACK of it was seen.
    pub(crate) settled: bool,
    /// How often its sender was answered in place of the receiver.
    pub(crate) answers: u8,
}

/// The parts of one payload whose receiver answers them without telling which.
#[derive(Debug, Clone, Copy, Default)]
struct Plain {
    /// How many parts were passed on, repeats included.
    sends: u32,
    /// How many ACKs without a part came back.
    acks: u32,
    /// How many of them came together, and in which datagram.
    together: u32,
    datagram: u64,
    /// How many parts there are, once the first one told.
    total: Option<u8>,
}

impl Plain {
    /// Returns whether every part has arrived. One that sends each ACK once has sent as many of them as parts were
    /// passed on. One that repeats its ACKs has one for each part that arrived, and no datagram has the same one twice.
    fn is_answered(&self, repeats_acks: bool) -> bool {
        let Some(total) = self.total.map(u32::from) else { return false };
        if repeats_acks { self.together >= total } else { self.sends >= total && self.acks >= self.sends }
    }
}

/// The reliable messages of one direction, the newest [`MAX_TRACKED`] of them.
///
/// Those that are settled are kept as well: it is they that come again. A number is used again after 65,536 messages, by
/// when its old record is long gone.
#[derive(Debug, Default)]
pub(crate) struct MessageTracker {
    records: HashMap<u32, Tracked, BuildHasherDefault<Mixed>>,
    order: VecDeque<u32>,
    plain: BTreeMap<u16, Plain>,
    /// The number of the datagram that brings ACKs now.
    datagram: u64,
}

impl MessageTracker {
    pub(crate) fn get(&mut self, id: MessageId) -> Option<&mut Tracked> {
        self.records.get_mut(&key(id))
    }

    /// A message was passed on.
    pub(crate) fn pass(&mut self, id: MessageId, part: Option<Part>) {
        let key = key(id);
        let known = self.records.len();
        self.records.entry(key).or_default().news = true;
        if self.records.len() > known {
            self.order.push_back(key);
            if self.order.len() > MAX_TRACKED {
                let oldest = self.order.pop_front();
                oldest.map(|oldest| self.records.remove(&oldest));
            }
        }
        if let Some(part) = part {
            self.pass_part(id.seq, part);
        }
    }

    fn pass_part(&mut self, seq: Seq, part: Part) {
        if self.plain.len() >= MAX_SPLIT && !self.plain.contains_key(&seq.0) {
            self.plain.pop_first();
        }
        let plain = self.plain.entry(seq.0).or_default();
        plain.sends = plain.sends.saturating_add(1);
        plain.total = plain.total.or_else(|| part.total().map(NonZeroU8::get));
    }

    /// The ACKs that come from now on are those of another datagram.
    pub(crate) const fn begin_datagram(&mut self) {
        self.datagram += 1;
    }

    /// An ACK without a part came for a payload that went out in parts. All of them are settled when it is sure that they
    /// arrived.
    pub(crate) fn plain_ack(&mut self, seq: Seq, repeats_acks: bool) {
        let Some(plain) = self.plain.get_mut(&seq.0) else { return };
        plain.acks = plain.acks.saturating_add(1);
        plain.together = if plain.datagram == self.datagram { plain.together + 1 } else { 1 };
        plain.datagram = self.datagram;
        let (answered, total) = (plain.is_answered(repeats_acks), plain.total.unwrap_or(0));
        let parts = (0..total).map(|part| MessageId { channel: Channel::Game, seq, part: Some(part) });
        if !answered || !parts.clone().all(|id| self.records.contains_key(&key(id))) {
            return;
        }
        for id in parts {
            if let Some(record) = self.records.get_mut(&key(id)) {
                (record.settled, record.news) = (true, false);
            }
        }
        self.plain.remove(&seq.0);
    }
}

/// Returns one number for each id: the part in the low bits, where 0 is none.
fn key(MessageId { channel, seq, part }: MessageId) -> u32 {
    let channel = u32::from(channel == Channel::Control);
    let part = part.map_or(0, |part| u32::from(part) + 1);
    channel << 25 | u32::from(seq.0) << 9 | part
}

/// Spreads keys, which differ in few bits. Who chooses them on purpose slows down only its own conversation, and that by
/// no more than [`MAX_TRACKED`] steps.
#[derive(Debug, Default)]
struct Mixed(u64);

impl Hasher for Mixed {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32(u32::from(*byte)));
    }

    fn write_u32(&mut self, key: u32) {
        self.0 = (self.0 ^ u64::from(key)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn finish(&self) -> u64 {
        // The table looks at both ends, and a product has its best bits in the middle and above.
        self.0 ^ self.0 >> 32
    }
}

/// How many messages of one direction are remembered: far more than any sender has under direction, and far fewer than there
/// are numbers.
const MAX_TRACKED: usize = 4096;
/// How many split payloads are watched for ACKs without a part.
const MAX_SPLIT: usize = 64;
