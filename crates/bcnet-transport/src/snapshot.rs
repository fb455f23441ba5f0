//! Every queue of a peer at one moment, for logs and tools.

use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use crate::config::Settings;
use crate::inbox::Inbox;
use crate::peer::Peer;
use crate::time::Time;
use crate::wire::{Channel, MessageId, PeerId, Seq};

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
    pub(crate) fn snapshot(&self, config: &Settings, now: Time) -> Snapshot {
        let [control, game] = &self.inbox;
        let outbox = self.outbox_ref();
        let list = |channel, inbox: &Inbox| {
            let (held, held_bytes) = inbox.held();
            let sets =
                inbox.sets().map(|(seq, set)| (seq, set.count(), set.total().map(|total| total.get())));
            Receiving { channel, expected: inbox.expected(), held, held_bytes, sets: sets.collect() }
        };
        let unacknowledged = outbox
            .into_iter()
            .flat_map(|outbox| outbox.unacknowledged())
            .map(|(id, sends, first)| Unacknowledged { id, sends, age: now.since(first) });
        let (trip, timeout, budget) = self.pace(config);
        Snapshot {
            peer: self.id,
            acks: outbox.map(|outbox| outbox.acks().collect()).unwrap_or_default(),
            unacknowledged: unacknowledged.collect(),
            fresh: outbox.map_or(0, |outbox| outbox.fresh()),
            queued_bytes: outbox.map_or(0, |outbox| outbox.queued_bytes()),
            receiving: [list(Channel::Control, control), list(Channel::Game, game)],
            round_trip: trip.smoothed().map(|micros| Duration::from_micros(micros.into())),
            variation: Duration::from_micros(trip.variation().into()),
            timeout: Duration::from_micros(timeout),
            budget,
            in_flight: outbox.map_or(0, |outbox| outbox.in_flight()),
            silent_for: now.since(self.last_heard),
        }
    }
}

/// In the manner of the queue dumps that were taken of the original engine.
impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (retx, acks) = (self.unacknowledged.len(), self.acks.len());
        write!(f, "peer={} retxQ={retx} ackOutQ={acks}", self.peer.0)?;
        for (i, Unacknowledged { id, sends, .. }) in self.unacknowledged.iter().enumerate() {
            let interval = self.timeout.as_secs_f32();
            write!(
                f,
                "\n  retx[{i}] {} rel=1 retx={} intv={interval:.2}",
                Dumped(*id),
                sends.saturating_sub(1)
            )?;
        }
        for (i, id) in self.acks.iter().enumerate() {
            write!(
                f,
                "\n  ack[{i}] {} below32={} retx=0",
                Dumped(*id),
                u8::from(id.channel == Channel::Control)
            )?;
        }
        Ok(())
    }
}

struct Dumped(MessageId);

impl fmt::Display for Dumped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MessageId { seq, part, .. } = self.0;
        match part {
            None => write!(f, "seq=0x{:04X} frag=0", seq.0),
            Some(part) => write!(f, "seq=0x{:04X} frag=1 idx={part}", seq.0),
        }
    }
}
