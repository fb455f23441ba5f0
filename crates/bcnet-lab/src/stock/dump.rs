//! The queues of a peer and the ACKs that are dispatched, in the format of the recorded dumps.

use std::fmt;

use bcnet_transport::Time;
use bcnet_transport::wire::{Channel, MessageId, PeerId};

use super::Stock;

/// The queues of one peer.
#[derive(Debug, Clone, PartialEq)]
pub struct Dump {
    /// The time of the last frame.
    pub at: Time,
    /// Whose queues.
    pub peer: PeerId,
    /// What waits for an ACK, oldest first.
    pub retx: Vec<Retx>,
    /// The ACKs in the outbox, oldest first.
    pub acks: Vec<AckEntry>,
    /// How many messages were never sent.
    pub first: usize,
}

/// A message that waits for its ACK.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Retx {
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandledAck {
    /// The time of the frame.
    pub at: Time,
    /// From whom.
    pub peer: PeerId,
    /// What it acknowledges.
    pub id: MessageId,
    /// How many messages waited for an ACK of that peer.
    pub waiting: usize,
    /// Whether it cleared one of them.
    pub useful: bool,
}

/// How much waits for a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lengths {
    /// ACKs in the outbox.
    pub acks: usize,
    /// Messages that wait for their ACK.
    pub retx: usize,
    /// Messages that were never sent.
    pub first: usize,
}

impl Stock {
    /// Returns how much waits for a peer, if there is one with this id: what its [`dump`](Self::dump) shows, without
    /// the copies.
    #[must_use]
    pub fn lengths(&self, peer: PeerId) -> Option<Lengths> {
        let entry = self.peers.get(self.peers.find(peer)?)?;
        Some(Lengths { acks: entry.acks.len(), retx: entry.retx.len(), first: entry.first.len() })
    }

    /// Returns the queues of a peer, if there is one with this id.
    #[must_use]
    pub fn dump(&self, peer: PeerId) -> Option<Dump> {
        let entry = self.peers.get(self.peers.find(peer)?)?;
        let retx = entry.retx.iter().map(|message| Retx {
            seq: message.seq,
            channel: message.kind.channel(),
            part: message.part,
            retx: message.timer.count,
            interval: message.timer.interval,
        });
        let acks = entry.acks.iter().map(|owed| AckEntry {
            seq: owed.id.seq.0,
            channel: owed.id.channel,
            part: owed.id.part,
            retx: owed.timer.count,
        });
        let at = self.last_frame.unwrap_or(Time::ZERO);
        Some(Dump { at, peer, retx: retx.collect(), acks: acks.collect(), first: entry.first.len() })
    }
}

impl Dump {
    /// Returns what the ACK entries took in the original, in bytes.
    #[must_use]
    pub const fn ack_memory(&self) -> usize {
        self.acks.len() * ACK_ENTRY_BYTES
    }
}

impl fmt::Display for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { peer, retx, acks, .. } = self;
        let (stamp, waiting, owed) = (Stamp(self.at), retx.len(), acks.len());
        write!(f, "{stamp} peer={} retxQ={waiting} ackOutQ={owed}", peer.0)?;
        for (i, entry) in retx.iter().enumerate() {
            let number = Number(entry.seq, entry.part);
            write!(f, "\n  retx[{i}] {number} rel=1 retx={} intv={:.2}", entry.retx, entry.interval)?;
        }
        for (i, entry) in acks.iter().enumerate() {
            let (number, below) = (Number(entry.seq, entry.part), below(entry.channel));
            write!(f, "\n  ack[{i}] {number} below32={below} retx={}", entry.retx)?;
        }
        Ok(())
    }
}

impl fmt::Display for HandledAck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MessageId { channel, seq, part } = self.id;
        write!(f, "{} HandleACK: ack seq=0x{:04X}", Stamp(self.at), seq.0)?;
        if let Some(part) = part {
            write!(f, " frag=1 idx={part}")?;
        }
        write!(f, " below32={} | retxQ={}", below(channel), self.waiting)
    }
}

/// A time as the dumps show it.
struct Stamp(Time);

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_micros() / 1000;
        write!(f, "[{}.{:03}]", millis / 1000, millis % 1000)
    }
}

/// A sequence number and the index of a part.
struct Number(u16, Option<u8>);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            None => write!(f, "seq=0x{:04X} frag=0", self.0),
            Some(part) => write!(f, "seq=0x{:04X} frag=1 idx={part}", self.0),
        }
    }
}

const fn below(channel: Channel) -> u8 {
    match channel {
        Channel::Control => 1,
        Channel::Game => 0,
    }
}

/// An ACK object of 68 bytes and its list node of 8.
pub const ACK_ENTRY_BYTES: usize = 68 + 8;
