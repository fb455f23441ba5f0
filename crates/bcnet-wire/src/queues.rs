//! The retransmit queue and the ACK queue for one peer, as a queue dump of the stock engine shows them.

use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use crate::{Channel, MessageId, PeerId};

/// The retransmit queue and the ACK queue for one peer.
///
/// An engine reports its own queues. An observer reconstructs them from the datagrams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerQueues {
    /// The receiver of the messages and ACKs.
    pub peer: PeerId,
    /// Messages that were sent and have no ACK yet, in the order of first sending.
    pub retransmit: Vec<QueuedMessage>,
    /// ACKs that are not sent yet or will be repeated, oldest first.
    pub acks: Vec<QueuedAck>,
}

/// A message in the retransmit queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuedMessage {
    /// The message.
    pub id: MessageId,
    /// The number of retransmissions.
    pub retransmissions: u32,
    /// The time between its last and its next sending.
    pub interval: Duration,
}

/// An ACK in the ACK queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuedAck {
    /// The acknowledged message.
    pub id: MessageId,
    /// The number of times that the ACK was sent.
    pub sends: u32,
}

/// Formats the queues like the queue dumps of the stock engine.
impl fmt::Display for PeerQueues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (retx, acks) = (self.retransmit.len(), self.acks.len());
        write!(f, "peer={} retxQ={retx} ackOutQ={acks}", self.peer.0)?;
        for (i, QueuedMessage { id, retransmissions: repeats, interval }) in
            self.retransmit.iter().enumerate()
        {
            let interval = interval.as_secs_f32();
            write!(f, "\n  retx[{i}] {} rel=1 retx={repeats} intv={interval:.2}", DumpedId(*id))?;
        }
        for (i, QueuedAck { id, sends }) in self.acks.iter().enumerate() {
            let below = u8::from(id.channel == Channel::Control);
            write!(f, "\n  ack[{i}] {} below32={below} retx={sends}", DumpedId(*id))?;
        }
        Ok(())
    }
}

struct DumpedId(MessageId);

impl fmt::Display for DumpedId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MessageId { seq, fragment: part, .. } = self.0;
        match part {
            None => write!(f, "seq=0x{:04X} frag=0", seq.0),
            Some(part) => write!(f, "seq=0x{:04X} frag=1 idx={part}", seq.0),
        }
    }
}
