//! Snapshots of all queues of a peer, for logs and tools.

use alloc::vec::Vec;
use core::time::Duration;

use crate::config::Config;
use crate::inbox::Inbox;
use crate::peer::Peer;
use crate::time::Time;
use crate::wire::{Channel, MessageId, PeerId, PeerQueues, QueuedAck, QueuedMessage, Seq};

/// The queues and estimates of one peer at one instant.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// The peer.
    pub peer: PeerId,
    /// The pending ACKs.
    pub pending_acks: Vec<MessageId>,
    /// The messages and fragments that were sent and are not acknowledged.
    pub unacknowledged: Vec<Unacknowledged>,
    /// The number of messages and fragments that were never sent.
    pub unsent: usize,
    /// The number of bytes that wait to be sent or acknowledged.
    pub queued_bytes: usize,
    /// The receiving ends of the control channel and of the game channel.
    pub inboxes: [InboxSnapshot; 2],
    /// The smoothed round-trip time, if it was measured.
    pub rtt: Option<Duration>,
    /// The variation of the round-trip time.
    pub rtt_variation: Duration,
    /// The retransmission timeout.
    pub rto: Duration,
    /// The congestion window: the maximum number of unacknowledged bytes in flight.
    pub congestion_window: usize,
    /// The number of unacknowledged bytes in flight.
    pub in_flight: usize,
    /// The time since the last datagram from the peer.
    pub idle_for: Duration,
}

/// A message or fragment that was sent and is not acknowledged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Unacknowledged {
    /// The message or fragment.
    pub id: MessageId,
    /// The number of times it was sent.
    pub sends: u8,
    /// The time since it was first sent.
    pub age: Duration,
    /// The time from its last transmission to the next one, unless an ACK reveals a loss earlier.
    pub interval: Duration,
}

/// The receiving end of one channel.
#[derive(Debug, Clone, PartialEq)]
pub struct InboxSnapshot {
    /// The channel.
    pub channel: Channel,
    /// The next expected sequence number.
    pub expected: Seq,
    /// The number of messages in the out-of-order buffer.
    pub out_of_order: usize,
    /// The memory that the out-of-order buffer uses, in bytes.
    pub out_of_order_bytes: usize,
    /// Incomplete split messages: sequence number, fragments received, total number of fragments if known.
    pub reassemblies: Vec<(Seq, u8, Option<u8>)>,
}

impl Peer {
    pub(crate) fn snapshot(&self, config: &Config<u64>, now: Time) -> Snapshot {
        let [control, game] = &self.inboxes;
        let outbox = self.outbox_ref();
        let list = |channel, inbox: &Inbox| {
            let (held, held_bytes) = inbox.buffered();
            let sets = inbox
                .reassemblies()
                .map(|(seq, set)| (seq, set.count(), set.total().map(|total| total.get())));
            InboxSnapshot {
                channel,
                expected: inbox.expected(),
                out_of_order: held,
                out_of_order_bytes: held_bytes,
                reassemblies: sets.collect(),
            }
        };
        let unacknowledged =
            outbox.into_iter().flat_map(|outbox| outbox.unacknowledged()).map(|(id, sends, first)| {
                let interval = Duration::from_micros(self.retransmit_interval(sends, config));
                Unacknowledged { id, sends, age: now.since(first), interval }
            });
        Snapshot {
            peer: self.id,
            pending_acks: outbox.map(|outbox| outbox.pending_acks().collect()).unwrap_or_default(),
            unacknowledged: unacknowledged.collect(),
            unsent: outbox.map_or(0, |outbox| outbox.unsent()),
            queued_bytes: outbox.map_or(0, |outbox| outbox.queued_bytes()),
            inboxes: [list(Channel::Control, control), list(Channel::Game, game)],
            rtt: self.smoothed_rtt(),
            rtt_variation: Duration::from_micros(self.rtt.variation().into()),
            rto: Duration::from_micros(self.rto(config)),
            congestion_window: self.congestion.window(),
            in_flight: outbox.map_or(0, |outbox| outbox.in_flight()),
            idle_for: now.since(self.last_received),
        }
    }
}

/// Extracts the queues that dumps of the original game show.
impl From<&Snapshot> for PeerQueues {
    fn from(snapshot: &Snapshot) -> Self {
        let retransmit = snapshot.unacknowledged.iter().map(|message| QueuedMessage {
            id: message.id,
            retransmissions: u32::from(message.sends.saturating_sub(1)),
            interval: message.interval,
        });
        let acks = snapshot.pending_acks.iter().map(|id| QueuedAck { id: *id, sends: 0 });
        Self { peer: snapshot.peer, retransmit: retransmit.collect(), acks: acks.collect() }
    }
}
