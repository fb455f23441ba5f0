//! The queues for one peer at one moment, in the form in which they were dumped from the original game.

use std::fmt;

use bcnet_transport::wire::{Channel, MessageId, PeerId};

/// What waits for one peer.
#[derive(Debug, Clone, PartialEq)]
pub struct Dump {
    /// Whose.
    pub peer: PeerId,
    /// What was sent and is not acknowledged.
    pub retx: Vec<Waiting>,
    /// ACKs that are owed, or are kept although they were sent.
    pub acks: Vec<Owed>,
}

/// A reliable message that was sent and is not acknowledged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Waiting {
    /// Which.
    pub id: MessageId,
    /// How often it was sent again.
    pub retx: u32,
    /// Seconds from its last transmission to the next.
    pub interval: f32,
}

/// An ACK in the outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owed {
    /// For which message.
    pub id: MessageId,
    /// How often it was sent.
    pub retx: u32,
}

impl fmt::Display for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "peer={} retxQ={} ackOutQ={}", self.peer.0, self.retx.len(), self.acks.len())?;
        for (i, Waiting { id, retx, interval }) in self.retx.iter().enumerate() {
            write!(f, "\n  retx[{i}] {} rel=1 retx={retx} intv={interval:.2}", Entry(*id))?;
        }
        for (i, Owed { id, retx }) in self.acks.iter().enumerate() {
            let below = u8::from(id.channel == Channel::Control);
            write!(f, "\n  ack[{i}] {} below32={below} retx={retx}", Entry(*id))?;
        }
        Ok(())
    }
}

struct Entry(MessageId);

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MessageId { seq, part, .. } = self.0;
        match part {
            None => write!(f, "seq=0x{:04X} frag=0", seq.0),
            Some(part) => write!(f, "seq=0x{:04X} frag=1 idx={part}", seq.0),
        }
    }
}
