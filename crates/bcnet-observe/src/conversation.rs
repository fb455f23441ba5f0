//! Read access to the reconstructed state of a conversation.

use alloc::vec::Vec;
use core::fmt;
use core::net::SocketAddrV4;
use core::time::Duration;

use crate::ack_outbox::AckPolicy;
use crate::conversation_state::ConversationState;
use crate::{AckLifetimes, ConversationId, ObserverLimits, PeerQueues, Side, SideCounters};
use bcnet_wire::{MessageId, PeerId, Role, Time};

/// A conversation, as far as it was observed.
#[derive(Debug, Clone, Copy)]
pub struct Conversation<'a>(pub(crate) &'a ConversationState);

impl Conversation<'_> {
    /// Returns the number of the conversation.
    #[must_use]
    pub const fn id(&self) -> ConversationId {
        self.0.id
    }

    /// Returns the time of the first observed datagram.
    #[must_use]
    pub const fn started(&self) -> Time {
        self.0.started
    }

    /// Returns the time of the last observed datagram.
    #[must_use]
    pub const fn last_seen(&self) -> Time {
        self.0.last_seen
    }

    /// Returns the address of a side.
    #[must_use]
    pub const fn address(&self, side: Side) -> SocketAddrV4 {
        let [first, second] = self.0.addresses;
        match side {
            Side::First => first,
            Side::Second => second,
        }
    }

    /// Returns the id of a side, if it has sent something or was given an id.
    #[must_use]
    pub const fn peer(&self, side: Side) -> Option<PeerId> {
        self.0.side_state(side).id
    }

    /// Returns whether a side is the host or the client, if the ids of the sides show it.
    #[must_use]
    pub fn role(&self, side: Side) -> Option<Role> {
        match (self.peer(side), self.peer(side.other())) {
            (Some(PeerId::HOST), _) => Some(Role::Host),
            (_, Some(PeerId::HOST)) => Some(Role::Client),
            (Some(PeerId::UNASSIGNED), None) => Some(Role::Client),
            (None, Some(PeerId::UNASSIGNED)) => Some(Role::Host),
            _ => None,
        }
    }

    /// Returns the client and the host, in this order. If the roles are not known, the side that sent first
    /// comes first.
    #[must_use]
    pub fn client_and_host(&self) -> [Side; 2] {
        match self.role(Side::First) {
            Some(Role::Host) => [Side::Second, Side::First],
            Some(Role::Client) | None => [Side::First, Side::Second],
        }
    }

    /// Returns the counters of the messages that a side has sent.
    #[must_use]
    pub const fn counters(&self, side: Side) -> &SideCounters {
        &self.0.side_state(side).counters
    }

    /// Returns the smoothed time from a message of this side to its ACK, as measured at the observer.
    #[must_use]
    pub fn rtt(&self, side: Side) -> Option<Duration> {
        self.0.side_state(side).rtt.smoothed()
    }

    /// Returns how many messages of this side wait for an ACK.
    #[must_use]
    pub fn unacknowledged(&self, side: Side) -> usize {
        self.0.side_state(side).sent.len()
    }

    /// Returns how many retransmissions of this side have no known cause so far.
    #[must_use]
    pub fn unexplained_retransmissions(&self, side: Side) -> usize {
        self.0.side_state(side).sent.unexplained.len()
    }

    /// Returns whether all findings about a datagram are reported.
    ///
    /// `mark` is the number that the caller gave to the datagram.
    #[must_use]
    pub fn are_findings_final(&self, mark: u64) -> bool {
        self.0.sides.iter().all(|side| side.are_findings_final(mark))
    }

    /// Returns how many ACKs are in the outbox of this side.
    #[must_use]
    pub fn pending_acks(&self, side: Side) -> usize {
        self.0.side_state(side).ack_outbox.len(self.0.last_seen)
    }

    /// Returns whether this side repeats its ACKs as the stock engine does, or `None` if unknown.
    ///
    /// The observer treats an unknown side as stock.
    #[must_use]
    pub const fn repeats_acks(&self, side: Side) -> Option<bool> {
        match self.0.side_state(side).ack_outbox.policy() {
            AckPolicy::Unknown => None,
            AckPolicy::Stock => Some(true),
            AckPolicy::Once => Some(false),
        }
    }

    /// Returns the send counts and lifetimes of the ACKs that this side has removed from its outbox.
    #[must_use]
    pub const fn dropped_ack_lifetimes(&self, side: Side) -> &AckLifetimes {
        self.0.side_state(side).ack_outbox.lifetimes()
    }

    /// Returns the send counts and lifetimes of the ACKs that are in the outbox of this side.
    #[must_use]
    pub fn pending_ack_lifetimes(&self, side: Side) -> AckLifetimes {
        self.0.side_state(side).ack_outbox.pending_lifetimes(self.0.last_seen)
    }

    /// Returns the fragments that this side has queued but not sent, as far as the capture proves it.
    ///
    /// The first fragment of a message announces the number of fragments. The rest are still in the queue if
    /// the side has sent no later message. Other unsent messages are not visible on the wire.
    #[must_use]
    pub fn unsent_fragments(&self, side: Side, now: Time) -> Vec<MessageId> {
        let state = self.0.side_state(side);
        let [_, game] = &state.sequences;
        let over = self.0.has_dropped_queues(side, state, now);
        let latest = game.latest().filter(|_| !over);
        latest.map(|seq| state.sent.unsent_fragments(seq).collect()).unwrap_or_default()
    }

    pub(crate) fn queues(&self, side: Side, now: Time, limits: &ObserverLimits) -> PeerQueues {
        let mut state = self.0.side_state(side).clone();
        state.read_after_send(limits, |_, _| {});
        let peer = self.peer(side.other()).unwrap_or(PeerId::UNASSIGNED);
        if self.0.has_dropped_queues(side, &state, now) {
            return PeerQueues { peer, retransmit: Vec::new(), acks: Vec::new() };
        }
        PeerQueues {
            peer,
            retransmit: state.sent.entries(now).collect(),
            acks: state.ack_outbox.entries(now).collect(),
        }
    }
}

impl fmt::Display for Conversation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} \u{2013} {}", self.address(Side::First), self.address(Side::Second))
    }
}
