//! What was seen of the reliable messages of one direction.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU8;

use bcnet_transport::wire::{Channel, MessageId, Part, Seq};

/// What is known of one reliable message, or of one part of it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Record {
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
    /// How many parts were passed on, repeats included, since the count began.
    sends: u32,
    /// How many ACKs without a part came back.
    acks: u32,
    /// How many parts there are, once the first one told.
    total: Option<u8>,
}

/// The reliable messages of one direction, the newest [`MOST`] of them.
///
/// Those that are settled are kept as well: it is they that come again. A number is used again after 65,536 messages, by
/// when its old record is long gone.
#[derive(Debug, Default)]
pub(crate) struct Known {
    records: BTreeMap<u32, Record>,
    order: VecDeque<u32>,
    plain: BTreeMap<u16, Plain>,
}

impl Known {
    pub(crate) fn get(&mut self, id: MessageId) -> Option<&mut Record> {
        self.records.get_mut(&key(id))
    }

    /// A message was passed on.
    pub(crate) fn pass(&mut self, id: MessageId, part: Option<Part>) {
        let key = key(id);
        if !self.records.contains_key(&key) {
            self.order.push_back(key);
            if self.order.len() > MOST {
                let oldest = self.order.pop_front();
                oldest.map(|oldest| self.records.remove(&oldest));
            }
        }
        self.records.entry(key).or_default().news = true;
        if let Some(part) = part {
            self.pass_part(id.seq, part);
        }
    }

    fn pass_part(&mut self, seq: Seq, part: Part) {
        if self.plain.len() >= MOST_SPLIT && !self.plain.contains_key(&seq.0) {
            self.plain.pop_first();
        }
        let plain = self.plain.entry(seq.0).or_default();
        plain.sends += 1;
        plain.total = plain.total.or_else(|| part.total().map(NonZeroU8::get));
    }

    /// An ACK without a part came for a payload that went out in parts. All parts are settled as soon as there was a
    /// time when every part had been sent and as many such ACKs had come back as parts were sent.
    pub(crate) fn plain_ack(&mut self, seq: Seq) {
        let Some(plain) = self.plain.get_mut(&seq.0) else { return };
        plain.acks += 1;
        let Plain { sends, acks, total: Some(total) } = *plain else { return };
        if acks < sends || sends < u32::from(total) {
            return;
        }
        let parts = (0..total).map(|part| MessageId { channel: Channel::Game, seq, part: Some(part) });
        if !parts.clone().all(|id| self.records.contains_key(&key(id))) {
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

/// One number for each id: the part in the low bits, where 0 is none.
fn key(MessageId { channel, seq, part }: MessageId) -> u32 {
    let channel = u32::from(channel == Channel::Control);
    let part = part.map_or(0, |part| u32::from(part) + 1);
    channel << 25 | u32::from(seq.0) << 9 | part
}

/// How many messages of one direction are remembered: far more than any sender has under way, and far fewer than there
/// are numbers.
const MOST: usize = 4096;
/// How many split payloads are watched for ACKs without a part.
const MOST_SPLIT: usize = 64;
