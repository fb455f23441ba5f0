//! Dumps of a peer's queues and of handled ACKs, in the format of dumps of the original program.

use std::fmt;
use std::time::Duration;

use bcnet_transport::Time;
use bcnet_transport::wire::{Channel, MessageId, PeerId};

use super::StockEngine;
use super::message::StockMessage;
use super::params::BackoffMode;
use super::peer::PeerEntry;

/// A dump of the queues of one peer.
#[derive(Debug, Clone, PartialEq)]
pub struct PeerQueueDump {
    /// Time of the dump.
    pub at: Time,
    /// The peer that the queues belong to.
    pub peer: PeerId,
    /// Unacknowledged messages, oldest first.
    pub retx: Vec<RetxEntry>,
    /// ACKs in the outbox, oldest first.
    pub acks: Vec<AckEntry>,
    /// Unsent messages in the order of sending. Empty for an engine that only counts them.
    pub first: Vec<UnsentEntry>,
    /// Number of unsent messages.
    pub first_count: usize,
}

/// An unsent message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UnsentEntry {
    /// Sequence number; 0 for an unreliable message.
    pub seq: u16,
    /// Channel of the message.
    pub channel: Channel,
    /// Fragment number, for a fragment.
    pub part: Option<u8>,
    /// Send flags of the message.
    pub handling: SendFlags,
    /// Seconds since the message was queued.
    pub age: f32,
}

/// Send flags that the original keeps with each message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendFlags {
    /// `true` if the message is retransmitted until it is acknowledged.
    pub reliable: bool,
    /// `true` if the message was queued at the head.
    pub urgent: bool,
    /// `true` if several such messages may share a datagram. Otherwise a datagram has at most one.
    pub aggregate: bool,
    /// Backoff mode.
    pub mode: BackoffMode,
}

/// An unacknowledged message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetxEntry {
    /// Sequence number.
    pub seq: u16,
    /// Channel of the message.
    pub channel: Channel,
    /// Fragment number, for a fragment.
    pub part: Option<u8>,
    /// Number of retransmissions; 0 after the first send.
    pub retx: u32,
    /// Seconds from the last send to the next.
    pub interval: f32,
    /// Seconds since the first send.
    pub age: f32,
    /// Send flags, if the engine is the stock engine.
    pub handling: Option<SendFlags>,
}

/// An ACK in the outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AckEntry {
    /// Sequence number that is acknowledged.
    pub seq: u16,
    /// Channel of the acknowledged message.
    pub channel: Channel,
    /// Fragment number, if the ACK is for a fragment.
    pub part: Option<u8>,
    /// Number of sends.
    pub retx: u32,
}

/// An ACK that an engine handled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AckTraceEntry {
    /// Time of the frame.
    pub at: Time,
    /// Sender of the ACK.
    pub peer: PeerId,
    /// Id of the acknowledged message.
    pub id: MessageId,
    /// Unacknowledged messages for that peer when the ACK arrived.
    pub waiting: Vec<MessageId>,
    /// `true` if the ACK removed one of them.
    pub useful: bool,
}

/// Queue lengths for one peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueLengths {
    /// ACKs in the outbox.
    pub acks: usize,
    /// Unacknowledged messages.
    pub retx: usize,
    /// Unsent messages.
    pub first: usize,
}

impl StockEngine {
    /// Returns the queue lengths for a peer, or `None` for an unknown id.
    ///
    /// The lengths are those of [`dump`](Self::dump), without copying the entries.
    #[must_use]
    pub fn queue_lengths(&self, peer: PeerId) -> Option<QueueLengths> {
        let entry = self.peers.get(self.peers.find(peer)?)?;
        Some(QueueLengths { acks: entry.acks.len(), retx: entry.retx.len(), first: entry.unsent.len() })
    }

    /// Returns the queues of a peer, or `None` for an unknown id.
    #[must_use]
    pub fn dump(&self, peer: PeerId) -> Option<PeerQueueDump> {
        let entry = self.peers.get(self.peers.find(peer)?)?;
        let at = self.last_frame.unwrap_or(Time::ZERO);
        self.dump_entry(entry, at)
    }

    /// Returns the queues of a peer with ages at `at`, which must not be before the last frame.
    #[must_use]
    pub fn dump_at(&self, peer: PeerId, at: Time) -> Option<PeerQueueDump> {
        self.dump_entry(self.peers.get(self.peers.find(peer)?)?, at)
    }

    /// Returns the ids of all live peers, and of deleted entries with queued messages.
    #[must_use]
    pub fn peers_with_queues(&self) -> Vec<PeerId> {
        let queued =
            |peer: &&PeerEntry| !(peer.acks.is_empty() && peer.retx.is_empty() && peer.unsent.is_empty());
        let there = |peer: &&PeerEntry| peer.is_live() && peer.id != self.id;
        let known = self.peers.iter().filter(|peer| peer.id != PeerId::UNASSIGNED);
        known.filter(|peer| there(peer) || queued(peer)).map(|peer| peer.id).collect()
    }

    /// Returns the longest lifetime of an ACK entry, including entries still in an outbox.
    #[must_use]
    pub fn longest_ack(&self, now: Time) -> Duration {
        let now = self.clock.reading_at(now);
        let since = self.peers.iter().flat_map(|peer| &peer.acks).map(|ack| ack.queued_at);
        let oldest =
            since.min_by(f32::total_cmp).and_then(|since| Duration::try_from_secs_f32(now - since).ok());
        oldest.unwrap_or_default().max(self.counters.longest_ack)
    }

    /// Resets the longest lifetime of removed ACK entries.
    pub(crate) const fn reset_longest_ack(&mut self) {
        self.counters.longest_ack = Duration::ZERO;
    }

    fn dump_entry(&self, entry: &PeerEntry, at: Time) -> Option<PeerQueueDump> {
        let now = self.clock.reading_at(at);
        let retx = entry.retx.iter().map(|message| RetxEntry {
            seq: message.seq,
            channel: message.kind.channel(),
            part: message.fragment,
            retx: message.timer.count,
            interval: message.timer.interval,
            age: now - message.timer.first_send,
            handling: Some(SendFlags::from_message(message)),
        });
        let acks = entry.acks.iter().map(|ack| AckEntry {
            seq: ack.id.seq.0,
            channel: ack.id.channel,
            part: ack.id.fragment,
            retx: ack.timer.count,
        });
        let first = entry.unsent.iter().map(|message| UnsentEntry {
            seq: message.seq,
            channel: message.kind.channel(),
            part: message.fragment,
            handling: SendFlags::from_message(message),
            age: now - message.queued_at,
        });
        Some(PeerQueueDump {
            at,
            peer: entry.id,
            retx: retx.collect(),
            acks: acks.collect(),
            first: first.collect(),
            first_count: entry.unsent.len(),
        })
    }
}

impl SendFlags {
    fn from_message(message: &StockMessage) -> Self {
        let StockMessage { reliable, urgent, aggregate, timer, .. } = message;
        Self { reliable: *reliable, urgent: *urgent, aggregate: *aggregate, mode: timer.backoff.mode }
    }
}

impl PeerQueueDump {
    /// Returns the memory that the ACK entries took in the original, in bytes.
    #[must_use]
    pub const fn ack_memory(&self) -> usize {
        self.acks.len() * ACK_ENTRY_BYTES
    }
}

impl fmt::Display for PeerQueueDump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { peer, retx, acks, .. } = self;
        let (stamp, waiting, pending) = (DumpTime(self.at), retx.len(), acks.len());
        write!(f, "{stamp} peer={} retxQ={waiting} ackOutQ={pending}", peer.0)?;
        // The dumps of the original have no `firstQ`, so it is left out if it is zero.
        if self.first_count > 0 {
            write!(f, " firstQ={}", self.first_count)?;
        }
        for (i, entry) in retx.iter().enumerate() {
            let number = DumpSequence(entry.seq, entry.part);
            write!(f, "\n  retx[{i}] {number} rel=1 retx={} intv={:.2}", entry.retx, entry.interval)?;
        }
        for (i, entry) in acks.iter().enumerate() {
            let (number, below) = (DumpSequence(entry.seq, entry.part), below_32(entry.channel));
            write!(f, "\n  ack[{i}] {number} below32={below} retx={}", entry.retx)?;
        }
        for (i, entry) in self.first.iter().enumerate() {
            let (number, below, handling) =
                (DumpSequence(entry.seq, entry.part), below_32(entry.channel), entry.handling);
            write!(f, "\n  first[{i}] {number} below32={below} {handling} age={:.2}", entry.age)?;
        }
        Ok(())
    }
}

impl fmt::Display for SendFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reliable, urgent, aggregate, mode } = *self;
        let [reliable, urgent, aggregate] = [reliable, urgent, aggregate].map(u8::from);
        write!(f, "rel={reliable} pri={urgent} agg={aggregate} mode={}", mode.code())
    }
}

impl fmt::Display for AckTraceEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MessageId { channel, seq, fragment: part } = self.id;
        write!(f, "{} HandleACK: ack seq=0x{:04X}", DumpTime(self.at), seq.0)?;
        if let Some(part) = part {
            write!(f, " frag=1 idx={part}")?;
        }
        write!(f, " below32={} | retxQ={}", below_32(channel), self.waiting.len())?;
        for (i, MessageId { channel, seq, fragment: part }) in self.waiting.iter().enumerate() {
            write!(f, "\n  retx[{i}] {} below32={}", DumpSequence(seq.0, *part), below_32(*channel))?;
        }
        Ok(())
    }
}

/// A time in the format of the dumps.
struct DumpTime(Time);

impl fmt::Display for DumpTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_micros() / 1000;
        write!(f, "[{}.{:03}]", millis / 1000, millis % 1000)
    }
}

/// A sequence number, with the fragment number for a fragment.
struct DumpSequence(u16, Option<u8>);

impl fmt::Display for DumpSequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            None => write!(f, "seq=0x{:04X} frag=0", self.0),
            Some(part) => write!(f, "seq=0x{:04X} frag=1 idx={part}", self.0),
        }
    }
}

const fn below_32(channel: Channel) -> u8 {
    match channel {
        Channel::Control => 1,
        Channel::Game => 0,
    }
}

/// Memory of an ACK in the original: an object of 68 bytes and a list node of 8.
pub const ACK_ENTRY_BYTES: usize = 68 + 8;
