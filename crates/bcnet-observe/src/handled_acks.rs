//! The ACKs that nodes look at, one by one, for who wants to follow them.

use alloc::vec::Vec;
use core::fmt;

use crate::{ConversationId, Observer, Side};
use bcnet_wire::{Channel, MessageId, Time};

/// An ACK that a node has looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandledAck {
    /// When it was seen on its way to the node.
    pub at: Time,
    /// The mark of its datagram.
    pub mark: u64,
    /// In which conversation.
    pub conversation: ConversationId,
    /// Who has looked at it.
    pub side: Side,
    /// What it acknowledges.
    pub id: MessageId,
    /// What waited for an ACK then, in the order of first sending.
    pub retransmit_queue: Vec<MessageId>,
}

impl HandledAck {
    /// Returns which of those that waited it cleared, if any.
    #[must_use]
    pub fn cleared_position(&self) -> Option<usize> {
        self.retransmit_queue.iter().position(|waiting| *waiting == self.id)
    }
}

/// In the manner of the hook that was set in the original engine.
impl fmt::Display for HandledAck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MessageId { channel, seq, fragment: part } = self.id;
        write!(f, "HandleACK: ack seq=0x{:04X}", seq.0)?;
        if let Some(part) = part {
            write!(f, " frag=1 idx={part}")?;
        }
        write!(f, " below32={} | retxQ={}", below_32(channel), self.retransmit_queue.len())?;
        let cleared = self.cleared_position();
        for (place, MessageId { channel, seq, fragment: part }) in self.retransmit_queue.iter().enumerate() {
            write!(f, "\n  retx[{place}] seq=0x{:04X}", seq.0)?;
            match part {
                None => write!(f, " frag=0")?,
                Some(part) => write!(f, " frag=1 idx={part}")?,
            }
            write!(f, " below32={}", below_32(*channel))?;
            f.write_str(if cleared == Some(place) { " <- cleared" } else { "" })?;
        }
        Ok(())
    }
}

const fn below_32(channel: Channel) -> u8 {
    match channel {
        Channel::Control => 1,
        Channel::Game => 0,
    }
}

impl Observer {
    /// Keeps from now on what nodes do with ACKs, for [`poll_handled_ack`](Self::poll_handled_ack): this costs a copy of
    /// a queue for each.
    pub const fn track_handled_acks(&mut self) {
        self.tracks_handled_acks = true;
    }

    /// Returns the next ACK that a node of this conversation has looked at, if they are followed. A node shows what it
    /// has read when it sends something: that is when they are known, in the order of their arrival at each side.
    pub fn poll_handled_ack(&mut self, conversation: ConversationId) -> Option<HandledAck> {
        let state = self.conversations.get_mut(&conversation)?;
        [Side::First, Side::Second].into_iter().find_map(|side| {
            let read = state.side_state_mut(side).handled_acks.as_mut()?.pop_front()?;
            let crate::side::ReadAck { at, mark, id, retransmit_queue: waiting } = read;
            Some(HandledAck { at, mark, conversation, side, id, retransmit_queue: waiting })
        })
    }
}
