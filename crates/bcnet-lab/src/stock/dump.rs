//! The queues of a peer and the ACKs that are dispatched, in the format of the recorded dumps.

use std::fmt;
use std::time::Duration;

use bcnet_transport::Time;
use bcnet_transport::wire::{Channel, MessageId, PeerId};

use super::StockEngine;
use super::message::StockMessage;
use super::params::BackoffMode;
use super::peer::PeerEntry;

/// The queues of one peer.
#[derive(Debug, Clone, PartialEq)]
pub struct PeerQueueDump {
    /// The time of the last frame.
    pub at: Time,
    /// Whose queues.
    pub peer: PeerId,
    /// What waits for an ACK, oldest first.
    pub retx: Vec<RetxEntry>,
    /// The ACKs in the outbox, oldest first.
    pub acks: Vec<AckEntry>,
    /// What was never sent, the next first. An engine that only counts it tells none of it.
    pub first: Vec<UnsentEntry>,
    /// How many messages were never sent.
    pub first_count: usize,
}

/// A message that was never sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UnsentEntry {
    /// Its number; 0 if it is not reliable.
    pub seq: u16,
    /// Its channel.
    pub channel: Channel,
    /// Its index if it is a part.
    pub part: Option<u8>,
    /// How it is sent.
    pub handling: SendFlags,
    /// Seconds since it was queued.
    pub age: f32,
}

/// How a message is sent, as the original keeps it beside the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendFlags {
    /// Whether it is repeated until it is acknowledged.
    pub reliable: bool,
    /// Whether it went to the head of the queue.
    pub urgent: bool,
    /// If not, at most one such message is put into a datagram.
    pub aggregate: bool,
    /// How its waits grow.
    pub mode: BackoffMode,
}

/// A message that waits for its ACK.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetxEntry {
    /// Its number.
    pub seq: u16,
    /// Its channel.
    pub channel: Channel,
    /// Its index if it is a part.
    pub part: Option<u8>,
    /// How often it was sent again; 0 is sent once.
    pub retx: u32,
    /// Seconds from the last send to the next.
    pub interval: f32,
    /// Seconds since its first send.
    pub age: f32,
    /// How it is sent, if the engine is the original.
    pub handling: Option<SendFlags>,
}

/// An ACK in the outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AckEntry {
    /// The number it acknowledges.
    pub seq: u16,
    /// The channel of what it acknowledges.
    pub channel: Channel,
    /// The index if it acknowledges a part.
    pub part: Option<u8>,
    /// How often it was sent.
    pub retx: u32,
}

/// An ACK that was dispatched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AckTraceEntry {
    /// The time of the frame.
    pub at: Time,
    /// From whom.
    pub peer: PeerId,
    /// What it acknowledges.
    pub id: MessageId,
    /// What waited for an ACK of that peer.
    pub waiting: Vec<MessageId>,
    /// Whether it cleared one of them.
    pub useful: bool,
}

/// How much waits for a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueLengths {
    /// ACKs in the outbox.
    pub acks: usize,
    /// Messages that wait for their ACK.
    pub retx: usize,
    /// Messages that were never sent.
    pub first: usize,
}

impl StockEngine {
    /// Returns how much waits for a peer, if there is one with this id: what its [`dump`](Self::dump) shows, without
    /// the copies.
    #[must_use]
    pub fn queue_lengths(&self, peer: PeerId) -> Option<QueueLengths> {
        let entry = self.peers.get(self.peers.find(peer)?)?;
        Some(QueueLengths { acks: entry.acks.len(), retx: entry.retx.len(), first: entry.unsent.len() })
    }

    /// Returns the queues of a peer, if there is one with this id.
    #[must_use]
    pub fn dump(&self, peer: PeerId) -> Option<PeerQueueDump> {
        let entry = self.peers.get(self.peers.find(peer)?)?;
        let at = self.last_frame.unwrap_or(Time::ZERO);
        self.dump_entry(entry, at)
    }

    /// Returns the queues of a peer as they are at `at`, which is not before the last frame.
    #[must_use]
    pub fn dump_at(&self, peer: PeerId, at: Time) -> Option<PeerQueueDump> {
        self.dump_entry(self.peers.get(self.peers.find(peer)?)?, at)
    }

    /// Returns the ids of all entries that have one and for which something is queued, and of all peers that are there.
    #[must_use]
    pub fn peers_with_queues(&self) -> Vec<PeerId> {
        let queued =
            |peer: &&PeerEntry| !(peer.acks.is_empty() && peer.retx.is_empty() && peer.unsent.is_empty());
        let there = |peer: &&PeerEntry| peer.is_live() && peer.id != self.id;
        let known = self.peers.iter().filter(|peer| peer.id != PeerId::UNASSIGNED);
        known.filter(|peer| there(peer) || queued(peer)).map(|peer| peer.id).collect()
    }

    /// Returns how long the ACK entry was there that stayed longest, or is there.
    #[must_use]
    pub fn longest_ack(&self, now: Time) -> Duration {
        let now = self.clock.reading_at(now);
        let since = self.peers.iter().flat_map(|peer| &peer.acks).map(|owed| owed.queued_at);
        let oldest =
            since.min_by(f32::total_cmp).and_then(|since| Duration::try_from_secs_f32(now - since).ok());
        oldest.unwrap_or_default().max(self.counters.longest_ack)
    }

    /// Forgets how long those stayed that are not there any more.
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
        let acks = entry.acks.iter().map(|owed| AckEntry {
            seq: owed.id.seq.0,
            channel: owed.id.channel,
            part: owed.id.fragment,
            retx: owed.timer.count,
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
    /// Returns what the ACK entries took in the original, in bytes.
    #[must_use]
    pub const fn ack_memory(&self) -> usize {
        self.acks.len() * ACK_ENTRY_BYTES
    }
}

impl fmt::Display for PeerQueueDump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { peer, retx, acks, .. } = self;
        let (stamp, waiting, owed) = (DumpTime(self.at), retx.len(), acks.len());
        write!(f, "{stamp} peer={} retxQ={waiting} ackOutQ={owed}", peer.0)?;
        // The recorded dumps do not have it.
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

/// A time as the dumps show it.
struct DumpTime(Time);

impl fmt::Display for DumpTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_micros() / 1000;
        write!(f, "[{}.{:03}]", millis / 1000, millis % 1000)
    }
}

/// A sequence number and the index of a part.
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

/// An ACK object of 68 bytes and its list node of 8.
pub const ACK_ENTRY_BYTES: usize = 68 + 8;
