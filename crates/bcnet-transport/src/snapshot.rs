//! Every queue of a peer at one moment, for logs and tools.

use alloc::vec::Vec;
use core::time::Duration;

use crate::config::Config;
use crate::inbox::Inbox;
use crate::peer::Peer;
use crate::time::Time;
use crate::wire::{Channel, MessageId, PeerId, QueuedAck, QueuedMessage, Queues, Seq};

/// What waits for and from one peer.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// Whose.
    pub peer: PeerId,
    /// ACKs that are owed.
    pub acks: Vec<MessageId>,
    /// What was sent and is not acknowledged.
    pub unacknowledged: Vec<Unacknowledged>,
    /// How many messages were never sent.
    pub fresh: usize,
    /// How many bytes wait to be sent or acknowledged.
    pub queued_bytes: usize,
    /// The two receiving channels.
    pub receiving: [Receiving; 2],
    /// The smoothed round trip, if one was measured.
    pub round_trip: Option<Duration>,
    /// How much the round trip varies.
    pub variation: Duration,
    /// The time after which a message is sent again.
    pub timeout: Duration,
    /// How many unacknowledged bytes may be under way, and how many are.
    pub budget: usize,
    /// See [`budget`](Self::budget).
    pub in_flight: usize,
    /// How long ago something was heard.
    pub silent_for: Duration,
}

/// A message that was sent and is not acknowledged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Unacknowledged {
    /// Which.
    pub id: MessageId,
    /// How often it was sent.
    pub sends: u8,
    /// How long ago it was sent first.
    pub age: Duration,
    /// The time from its last sending to the next, if later ACKs do not tell sooner that it was lost.
    pub interval: Duration,
}

/// The receiving end of one channel.
#[derive(Debug, Clone, PartialEq)]
pub struct Receiving {
    /// Which.
    pub channel: Channel,
    /// The number that is next.
    pub expected: Seq,
    /// Messages that wait for an earlier one, and the memory they take.
    pub held: usize,
    /// See [`held`](Self::held).
    pub held_bytes: usize,
    /// Split payloads that are not complete: number, parts here, parts in all if known.
    pub sets: Vec<(Seq, u8, Option<u8>)>,
}

impl Peer {
    pub(crate) fn snapshot(&self, config: &Config<u64>, now: Time) -> Snapshot {
        let [control, game] = &self.inbox;
        let outbox = self.outbox_ref();
        let list = |channel, inbox: &Inbox| {
            let (held, held_bytes) = inbox.held();
            let sets =
                inbox.sets().map(|(seq, set)| (seq, set.count(), set.total().map(|total| total.get())));
            Receiving { channel, expected: inbox.expected(), held, held_bytes, sets: sets.collect() }
        };
        let unacknowledged =
            outbox.into_iter().flat_map(|outbox| outbox.unacknowledged()).map(|(id, sends, first)| {
                let interval = Duration::from_micros(self.interval(sends, config));
                Unacknowledged { id, sends, age: now.since(first), interval }
            });
        Snapshot {
            peer: self.id,
            acks: outbox.map(|outbox| outbox.acks().collect()).unwrap_or_default(),
            unacknowledged: unacknowledged.collect(),
            fresh: outbox.map_or(0, |outbox| outbox.fresh()),
            queued_bytes: outbox.map_or(0, |outbox| outbox.queued_bytes()),
            receiving: [list(Channel::Control, control), list(Channel::Game, game)],
            round_trip: self.round_trip(),
            variation: Duration::from_micros(self.trip.variation().into()),
            timeout: Duration::from_micros(self.timeout(config)),
            budget: self.budget.bytes(),
            in_flight: outbox.map_or(0, |outbox| outbox.in_flight()),
            silent_for: now.since(self.last_heard),
        }
    }
}

/// The part of a snapshot that dumps of the original show.
impl From<&Snapshot> for Queues {
    fn from(snapshot: &Snapshot) -> Self {
        let retransmit = snapshot.unacknowledged.iter().map(|message| QueuedMessage {
            id: message.id,
            repeats: u32::from(message.sends.saturating_sub(1)),
            interval: message.interval,
        });
        let acks = snapshot.acks.iter().map(|id| QueuedAck { id: *id, sends: 0 });
        Self { peer: snapshot.peer, retransmit: retransmit.collect(), acks: acks.collect() }
    }
}
