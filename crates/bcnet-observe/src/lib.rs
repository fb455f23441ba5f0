//! Reconstruction of the state of two peers from the datagrams that pass between them.
//!
//! An [`Observer`] watches datagrams at one point of the network. From them it reconstructs the retransmit
//! queues, the ACK outboxes and the round-trip times of both sides, and the cause of each retransmission. It
//! sends nothing.
//!
//! The place of the observer limits its knowledge. Next to a node it sees every datagram that the node sends
//! and receives, so the queues of that node are exact. From the far side it sees only the datagrams that are
//! not lost on the way.
//!
//! The observer assumes that a node behaves like the stock engine until the node's datagrams show otherwise.
//! A capture may miss datagrams: a visible miss is reported as [`CaptureMiss`], never as a fault of the two
//! sides.
//!
//! Memory is bounded by [`ObserverLimits`]. Each datagram is analysed once.
#![no_std]
#![warn(clippy::indexing_slicing, clippy::unwrap_used, clippy::cast_possible_truncation)]

extern crate alloc;

mod ack_outbox;
mod aggregate;
mod analysis;
mod cause;
mod conversation;
mod conversation_state;
mod counters;
mod finding;
mod handled_acks;
mod non_stock;
mod parsed;
mod reassembly;
mod sent_messages;
mod sequence;
mod side;
mod stock;
mod text_buffer;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use core::net::SocketAddrV4;
use core::time::Duration;

pub use ack_outbox::AckLifetimes;
pub use aggregate::AggregateCounters;
pub use bcnet_wire::{PeerQueues, QueuedAck, QueuedMessage};
use bcnet_wire::{Time, WireError, WireErrorReason};
pub use conversation::Conversation;
use conversation_state::ConversationState;
pub use counters::{MessageCounter, SideCounters, opcode};
pub use finding::{CaptureMiss, Finding, FindingKind, MessageInfo, RetransmitCause};
pub use handled_acks::HandledAck;
pub use non_stock::NonStock;
pub use parsed::{Content, MessageBuffer, ParsedDatagram};
pub use reassembly::{ReassembledPayload, Reassembler};

/// Limits on the memory of an observer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObserverLimits {
    /// Conversations. When there are more, the observer drops the one that was silent longest and keeps its
    /// counters.
    pub conversations: usize,
    /// Reliable messages of each side, including acknowledged ones. The same limit applies to its unexplained
    /// retransmissions and to its pending ACKs.
    pub messages: usize,
    /// Findings that the caller has not polled yet.
    pub findings: usize,
}

impl Default for ObserverLimits {
    fn default() -> Self {
        Self { conversations: 4096, messages: 512, findings: 4096 }
    }
}

/// The number of a conversation. Numbers are not reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConversationId(pub u32);

/// One of the two sides of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The side that sent the first observed datagram.
    First,
    /// The other side.
    Second,
}

impl Side {
    /// Returns the other side.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }
}

/// The classification of one datagram, with its parsed content.
#[derive(Debug, Clone, Copy)]
pub enum Observed<'a> {
    /// A datagram of a conversation, sent by this side.
    Datagram(&'a ParsedDatagram<'a>, ConversationId, Side),
    /// GameSpy text.
    GameSpy(&'a [u8]),
    /// Unreadable, but between two addresses that have a conversation.
    Malformed(WireError, ConversationId, Side),
    /// Unreadable, and the addresses have no conversation: probably not traffic of the game.
    Foreign(WireError),
}

/// Follows all conversations that pass, up to the limits of [`ObserverLimits`].
#[derive(Debug)]
pub struct Observer {
    limits: ObserverLimits,
    conversations: BTreeMap<ConversationId, ConversationState>,
    by_addresses: BTreeMap<AddressPairKey, ConversationId>,
    /// Conversations that may still produce findings when time passes.
    active: BTreeSet<ConversationId>,
    /// All conversations, each with the last known time of its last datagram; the front is evicted first.
    eviction_queue: VecDeque<(Time, ConversationId)>,
    /// Counters of the evicted conversations.
    evicted: AggregateCounters,
    next_id: u32,
    /// Messages remembered for each side. The more conversations there are, the smaller this number.
    messages_per_side: usize,
    findings: FindingQueue,
    /// The time at which `advance` last visited all conversations.
    last_advance: Time,
    /// The conversation at which `advance` or `finish` continues after the finding queue was too full.
    advance_cursor: Option<ConversationId>,
    finish_cursor: Option<ConversationId>,
    /// `true` if the observer records every ACK that a node has handled.
    tracks_handled_acks: bool,
}

impl Observer {
    /// Returns an observer without conversations.
    #[must_use]
    pub const fn new(limits: ObserverLimits) -> Self {
        Self {
            limits,
            conversations: BTreeMap::new(),
            by_addresses: BTreeMap::new(),
            active: BTreeSet::new(),
            eviction_queue: VecDeque::new(),
            evicted: AggregateCounters::new(),
            next_id: 0,
            messages_per_side: limits.messages,
            findings: FindingQueue { queue: VecDeque::new(), limit: limits.findings, dropped: 0 },
            last_advance: Time::ZERO,
            advance_cursor: None,
            finish_cursor: None,
            tracks_handled_acks: false,
        }
    }

    /// Analyses a datagram that passes. Findings about it carry `mark`: a packet number or a place in a file.
    pub fn observe<'a>(
        &mut self,
        mark: u64,
        at: Time,
        from: SocketAddrV4,
        to: SocketAddrV4,
        content: &'a Content<'a>,
    ) -> Observed<'a> {
        let known = self.by_addresses.get(&address_pair_key(from, to)).copied();
        let datagram = match (content, known) {
            (Content::Datagram(datagram), _) => datagram,
            (Content::GameSpy(text), _) => return Observed::GameSpy(text),
            (Content::Malformed(error), None) => return Observed::Foreign(*error),
            (Content::Malformed(error), Some(id)) => return self.on_malformed(id, mark, at, from, *error),
        };
        let id = known.unwrap_or_else(|| self.start_conversation(at, from, to));
        let limits = ObserverLimits { messages: self.messages_per_side, ..self.limits };
        let Some(state) = self.conversations.get_mut(&id) else {
            return Observed::Datagram(datagram, id, Side::First);
        };
        let side = state.side(from);
        if state.is_dormant() {
            self.active.insert(id);
        }
        let mut reporter = FindingReporter::new(&mut self.findings, state, at, mark);
        state.observe(side, datagram, &limits, &mut reporter);
        self.advance(at);
        Observed::Datagram(datagram, id, side)
    }

    fn on_malformed(
        &mut self,
        id: ConversationId,
        mark: u64,
        at: Time,
        from: SocketAddrV4,
        error: WireError,
    ) -> Observed<'static> {
        let Some(state) = self.conversations.get_mut(&id) else { return Observed::Foreign(error) };
        let side = state.side(from);
        state.side_state_mut(side).counters.malformed += 1;
        let mut reporter = FindingReporter::new(&mut self.findings, state, at, mark);
        reporter.report(
            side,
            match error.reason {
                WireErrorReason::UnknownType(kind) => FindingKind::UnknownType(kind),
                WireErrorReason::Truncated
                | WireErrorReason::BadSize { .. }
                | WireErrorReason::Trailing
                | WireErrorReason::CountZero
                | WireErrorReason::BadText => FindingKind::Malformed(error),
            },
        );
        Observed::Malformed(error, id, side)
    }

    /// Notes a datagram that the capture truncated: its sender was not silent.
    pub fn observe_truncated(&mut self, at: Time, from: SocketAddrV4, to: SocketAddrV4) {
        let id = self.by_addresses.get(&address_pair_key(from, to));
        if let Some(state) = id.and_then(|id| self.conversations.get_mut(id)) {
            self.active.insert(state.id);
            state.note_truncated(state.side(from), at);
        }
    }

    fn start_conversation(&mut self, at: Time, from: SocketAddrV4, to: SocketAddrV4) -> ConversationId {
        if self.conversations.len() >= self.limits.conversations.max(1) {
            self.evict_idle(at);
        }
        let id = ConversationId(self.next_id);
        self.next_id = self.next_id.wrapping_add(1);
        let mut state = ConversationState::new(id, [from, to], at);
        if self.tracks_handled_acks {
            state.sides.iter_mut().for_each(|side| side.handled_acks = Some(VecDeque::new()));
        }
        self.conversations.insert(id, state);
        self.by_addresses.insert(address_pair_key(from, to), id);
        self.active.insert(id);
        self.eviction_queue.push_back((at, id));
        self.messages_per_side =
            (MAX_TRACKED_MESSAGES / self.conversations.len().max(1)).min(self.limits.messages);
        id
    }

    /// Evicts the conversation that was silent longest, and reports its unexplained retransmissions.
    fn evict_idle(&mut self, at: Time) {
        while let Some((since, id)) = self.eviction_queue.pop_front() {
            let Some(state) = self.conversations.get_mut(&id) else { continue };
            if state.last_seen > since {
                self.eviction_queue.push_back((state.last_seen, id));
                continue;
            }
            let mut reporter = FindingReporter::new(&mut self.findings, state, at, NO_MARK);
            state.finish(&mut reporter, &self.limits);
            self.evicted.add(&Conversation(state));
            let [a, b] = state.addresses;
            self.by_addresses.remove(&address_pair_key(a, b));
            self.conversations.remove(&id);
            self.active.remove(&id);
            return;
        }
    }

    /// Returns the counters of conversations that were evicted because there were too many.
    #[must_use]
    pub const fn evicted_counters(&self) -> &AggregateCounters {
        &self.evicted
    }

    /// Returns the counters of all conversations, including the evicted ones.
    #[must_use]
    pub fn counters(&self) -> AggregateCounters {
        let mut totals = self.evicted.clone();
        self.conversations().for_each(|conversation| totals.add(&conversation));
        totals
    }

    /// Returns the next finding.
    pub fn poll_finding(&mut self) -> Option<Finding> {
        self.findings.queue.pop_front()
    }

    /// Returns how many findings were dropped because the queue was full.
    #[must_use]
    pub const fn dropped_findings(&self) -> u64 {
        self.findings.dropped
    }

    /// Reports silence, sequence gaps and unexplained retransmissions that have lasted too long at `now`.
    ///
    /// [`observe`](Self::observe) calls this, too.
    pub fn advance(&mut self, now: Time) {
        if self.advance_cursor.is_none() {
            if now.since(self.last_advance) < Duration::from_secs(1) {
                return;
            }
            self.last_advance = now;
        }
        self.advance_cursor = self.visit_active(self.advance_cursor, now, ConversationState::expire);
    }

    /// Reports all unexplained retransmissions at the end of a capture. Returns whether everything is
    /// reported.
    ///
    /// If it returns `false`, poll the findings and call it again.
    #[must_use]
    pub fn finish(&mut self, now: Time) -> bool {
        let limits = self.limits;
        self.finish_cursor =
            self.visit_active(self.finish_cursor, now, |state, _, reporter| state.finish(reporter, &limits));
        self.finish_cursor.is_none()
    }

    /// Visits the active conversations until the finding queue is half full. Returns where to continue.
    fn visit_active(
        &mut self,
        from: Option<ConversationId>,
        now: Time,
        visit: impl Fn(&mut ConversationState, Time, &mut FindingReporter<'_>),
    ) -> Option<ConversationId> {
        let mut next = from.unwrap_or(ConversationId(0));
        while let Some(id) = self.active.range(next..).next().copied() {
            if self.findings.is_half_full() {
                return Some(id);
            }
            next = ConversationId(id.0.saturating_add(1));
            let Some(state) = self.conversations.get_mut(&id) else { continue };
            let mut reporter = FindingReporter::new(&mut self.findings, state, now, NO_MARK);
            visit(state, now, &mut reporter);
            if state.is_dormant() {
                self.active.remove(&id);
            }
        }
        None
    }

    /// Returns whether no more findings can follow about the datagram with this mark.
    #[must_use]
    pub fn are_findings_final(&self, conversation: ConversationId, mark: u64) -> bool {
        self.conversation(conversation).is_none_or(|conversation| conversation.are_findings_final(mark))
    }

    /// Stops waiting for more information about the datagram with this mark.
    ///
    /// A retransmission in it is reported with the cause that is most likely now. Sequence numbers that it
    /// skipped are reported with a later datagram if they do not arrive.
    pub fn finalize_findings(&mut self, conversation: ConversationId, mark: u64, now: Time) {
        if let Some(state) = self.conversations.get_mut(&conversation) {
            let mut reporter = FindingReporter::new(&mut self.findings, state, now, NO_MARK);
            state.finalize_findings(mark, &mut reporter);
        }
    }

    /// Returns a conversation, if it is known.
    #[must_use]
    pub fn conversation(&self, id: ConversationId) -> Option<Conversation<'_>> {
        self.conversations.get(&id).map(Conversation)
    }

    /// Returns the followed conversations in the order of their start.
    pub fn conversations(&self) -> impl Iterator<Item = Conversation<'_>> {
        self.conversations.values().map(Conversation)
    }

    /// Returns the queues of one side at `now`, if the conversation is known.
    ///
    /// Everything that has reached that side by then counts as read.
    #[must_use]
    pub fn queues(&self, conversation: ConversationId, side: Side, now: Time) -> Option<PeerQueues> {
        self.conversation(conversation).map(|conversation| conversation.queues(side, now, &self.limits))
    }
}

/// Findings that the caller has not polled yet.
#[derive(Debug)]
struct FindingQueue {
    queue: VecDeque<Finding>,
    limit: usize,
    dropped: u64,
}

impl FindingQueue {
    /// Returns whether the findings of one more conversation may not fit.
    fn is_half_full(&self) -> bool {
        self.queue.len() > self.limit / 2
    }
}

/// Reports findings about one datagram.
struct FindingReporter<'a> {
    findings: &'a mut FindingQueue,
    conversation: ConversationId,
    addresses: [SocketAddrV4; 2],
    at: Time,
    mark: u64,
}

impl<'a> FindingReporter<'a> {
    const fn new(findings: &'a mut FindingQueue, state: &ConversationState, at: Time, mark: u64) -> Self {
        Self { findings, conversation: state.id, addresses: state.addresses, at, mark }
    }

    fn report(&mut self, side: Side, kind: FindingKind) {
        self.report_at(self.at, self.mark, side, kind);
    }

    /// Reports a finding about an earlier datagram.
    fn report_at(&mut self, at: Time, mark: u64, side: Side, kind: FindingKind) {
        if self.findings.queue.len() >= self.findings.limit {
            self.findings.dropped += 1;
            return;
        }
        let (conversation, [first, second]) = (self.conversation, self.addresses);
        let (by, to) = match side {
            Side::First => (first, second),
            Side::Second => (second, first),
        };
        self.findings.queue.push_back(Finding { at, mark, conversation, side, by, to, kind });
    }
}

/// Two addresses in either order, as one number: a fast key, because each datagram needs a lookup.
type AddressPairKey = u128;

fn address_pair_key(a: SocketAddrV4, b: SocketAddrV4) -> AddressPairKey {
    let [a, b] =
        [a, b].map(|address| u128::from(u32::from(*address.ip())) << 16 | u128::from(address.port()));
    a.min(b) << 48 | a.max(b)
}

/// Limit of the remembered reliable messages: the sum over all conversations, of one side each.
const MAX_TRACKED_MESSAGES: usize = 1 << 20;
/// The mark of findings that follow from the passing of time and not from a datagram.
pub const NO_MARK: u64 = u64::MAX;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
