//! A record of each ACK that a node has handled, for callers that follow them one by one.

use alloc::vec::Vec;
use core::fmt;

use crate::{ConversationId, Observer, Side};
use bcnet_wire::{Channel, MessageId, Time};

/// An ACK that a node has handled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandledAck {
    /// The time at which the ACK was seen on its way to the node.
    pub at: Time,
    /// The mark of its datagram: the number that the caller passed to [`Observer::observe`].
    pub mark: u64,
    /// The conversation.
    pub conversation: ConversationId,
    /// The side that handled the ACK.
    pub side: Side,
    /// The message that it acknowledges.
    pub id: MessageId,
    /// The messages that waited for an ACK then, in the order of first send.
    pub retransmit_queue: Vec<MessageId>,
}

impl HandledAck {
    /// Returns the position in the retransmit queue of the message that this ACK cleared, if any.
    #[must_use]
    pub fn cleared_position(&self) -> Option<usize> {
        self.retransmit_queue.iter().position(|waiting| *waiting == self.id)
    }
}

/// Formats the ACK like the recorded log of the original engine's ACK handler (`HandleACK`).
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
    /// Starts to record the ACKs that nodes handle, for [`poll_handled_ack`](Self::poll_handled_ack).
    ///
    /// This costs a copy of the retransmit queue for each ACK.
    pub const fn track_handled_acks(&mut self) {
        self.tracks_handled_acks = true;
    }

    /// Returns the next ACK that a node of this conversation has handled, if ACKs are tracked.
    ///
    /// A node's reads are known only when it sends something. ACKs come in the order of their arrival at each
    /// side.
    pub fn poll_handled_ack(&mut self, conversation: ConversationId) -> Option<HandledAck> {
        let state = self.conversations.get_mut(&conversation)?;
        [Side::First, Side::Second].into_iter().find_map(|side| {
            let read = state.side_state_mut(side).handled_acks.as_mut()?.pop_front()?;
            let crate::side::ReadAck { at, mark, id, retransmit_queue: waiting } = read;
            Some(HandledAck { at, mark, conversation, side, id, retransmit_queue: waiting })
        })
    }
}
