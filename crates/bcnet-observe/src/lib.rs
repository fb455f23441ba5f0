//! Watching conversations of others: what each side has in its queues, and what goes wrong between them.
//!
//! An [`Observer`] sees datagrams as they pass a point of the network and reconstructs what the two sides cannot be
//! asked: their retransmit queues and ACK outboxes, round trips, and why something was sent again. It takes part in
//! nothing. Its knowledge is that of the place where it looks: next to a node it sees exactly what that node sends and
//! gets, and its queues are exact; of the far side it sees only what survives the way.
//!
//! It assumes that a node counts as the stock engine does until it shows that it does not. A capture may miss
//! datagrams: what is seen to be missing is told as [`Missed`], never as a fault of the two sides.
//!
//! Memory is bounded by [`Limits`]; every datagram is looked at once.
#![no_std]
#![warn(clippy::indexing_slicing, clippy::unwrap_used, clippy::cast_possible_truncation)]

extern crate alloc;

mod acks;
mod cause;
mod conversation;
mod finding;
mod handled;
mod non_stock;
mod numbers;
mod parsed;
mod parts;
mod sent;
mod short;
mod side;
mod state;
mod step;
mod stock;
mod totals;
mod traffic;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use core::net::SocketAddrV4;
use core::time::Duration;

pub use acks::AckLives;
pub use bcnet_wire::{QueuedAck, QueuedMessage, Queues};
use bcnet_wire::{Reason, Time, WireError};
pub use conversation::Conversation;
pub use finding::{About, Finding, Missed, RetransmitCause, What};
pub use handled::HandledAck;
pub use non_stock::NonStock;
pub use parsed::{Content, MessageBuffer, Parsed};
pub use parts::{Joined, PartJoiner};
use state::ConversationState;
pub use totals::Totals;
pub use traffic::{Count, Traffic, opcode};

/// How much an observer remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Conversations; the one that was silent longest is forgotten first, but for its counts.
    pub conversations: usize,
    /// Reliable messages of each side, acknowledged ones among them, their repeats that wait to be explained, and ACKs that
    /// each side owes.
    pub messages: usize,
    /// Findings that wait to be taken.
    pub findings: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { conversations: 4096, messages: 512, findings: 4096 }
    }
}

/// A conversation that an observer follows. Numbers are not used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConversationId(pub u32);

/// One of the two sides of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The one that was seen to send first.
    First,
    /// The other.
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

/// What a datagram turned out to be, with what was read of it.
#[derive(Debug, Clone, Copy)]
pub enum Observed<'a> {
    /// A part of a conversation, sent by this side.
    Datagram(&'a Parsed<'a>, ConversationId, Side),
    /// GameSpy text.
    GameSpy(&'a [u8]),
    /// Unreadable, but between addresses that talk to each other.
    Malformed(WireError, ConversationId, Side),
    /// Unreadable, and nobody knows the addresses: probably something else.
    Foreign(WireError),
}

/// Follows any number of conversations.
#[derive(Debug)]
pub struct Observer {
    limits: Limits,
    conversations: BTreeMap<ConversationId, ConversationState>,
    by_addresses: BTreeMap<Pair, ConversationId>,
    /// Those that time alone may tell something of.
    awake: BTreeSet<ConversationId>,
    /// All, by when each was known to have spoken last.
    idle: VecDeque<(Time, ConversationId)>,
    /// Those that were forgotten.
    rest: Totals,
    next: u32,
    /// How many messages each side may have remembered: the more conversations there are, the fewer.
    share: usize,
    findings: Findings,
    /// When `advance` looked at all conversations last.
    looked: Time,
    /// Where `advance` and `finish` go on, if there was no room for the findings of all.
    advanced: Option<ConversationId>,
    finished: Option<ConversationId>,
    /// Whether what is done with each ACK is kept.
    follows_acks: bool,
}

impl Observer {
    /// Returns an observer that has seen nothing.
    #[must_use]
    pub const fn new(limits: Limits) -> Self {
        Self {
            limits,
            conversations: BTreeMap::new(),
            by_addresses: BTreeMap::new(),
            awake: BTreeSet::new(),
            idle: VecDeque::new(),
            rest: Totals::new(),
            next: 0,
            share: limits.messages,
            findings: Findings { waiting: VecDeque::new(), limit: limits.findings, lost: 0 },
            looked: Time::ZERO,
            advanced: None,
            finished: None,
            follows_acks: false,
        }
    }

    /// A datagram passes. Findings about it carry `mark`: a packet number, a place in a file.
    pub fn observe<'a>(
        &mut self,
        mark: u64,
        at: Time,
        from: SocketAddrV4,
        to: SocketAddrV4,
        content: &'a Content<'a>,
    ) -> Observed<'a> {
        let known = self.by_addresses.get(&unordered(from, to)).copied();
        let datagram = match (content, known) {
            (Content::Datagram(datagram), _) => datagram,
            (Content::GameSpy(text), _) => return Observed::GameSpy(text),
            (Content::Malformed(error), None) => return Observed::Foreign(*error),
            (Content::Malformed(error), Some(id)) => return self.malformed(id, mark, at, from, *error),
        };
        let id = known.unwrap_or_else(|| self.begin(at, from, to));
        let limits = Limits { messages: self.share, ..self.limits };
        let Some(state) = self.conversations.get_mut(&id) else {
            return Observed::Datagram(datagram, id, Side::First);
        };
        let side = state.side(from);
        if state.is_asleep() {
            self.awake.insert(id);
        }
        let mut tell = Teller::new(&mut self.findings, state, at, mark);
        state.observe(side, datagram, &limits, &mut tell);
        self.advance(at);
        Observed::Datagram(datagram, id, side)
    }

    fn malformed(
        &mut self,
        id: ConversationId,
        mark: u64,
        at: Time,
        from: SocketAddrV4,
        error: WireError,
    ) -> Observed<'static> {
        let Some(state) = self.conversations.get_mut(&id) else { return Observed::Foreign(error) };
        let side = state.side(from);
        state.side_state_mut(side).traffic.malformed += 1;
        let mut tell = Teller::new(&mut self.findings, state, at, mark);
        tell.tell(
            side,
            match error.reason {
                Reason::UnknownType(kind) => What::UnknownType(kind),
                Reason::Truncated
                | Reason::BadSize { .. }
                | Reason::Trailing
                | Reason::CountZero
                | Reason::BadText => What::Malformed(error),
            },
        );
        Observed::Malformed(error, id, side)
    }

    /// The capture has a datagram that it did not keep whole: who sent it was not silent.
    pub fn miss(&mut self, at: Time, from: SocketAddrV4, to: SocketAddrV4) {
        let id = self.by_addresses.get(&unordered(from, to));
        if let Some(state) = id.and_then(|id| self.conversations.get_mut(id)) {
            self.awake.insert(state.id);
            state.miss(state.side(from), at);
        }
    }

    fn begin(&mut self, at: Time, from: SocketAddrV4, to: SocketAddrV4) -> ConversationId {
        if self.conversations.len() >= self.limits.conversations.max(1) {
            self.forget_idle(at);
        }
        let id = ConversationId(self.next);
        self.next = self.next.wrapping_add(1);
        let mut state = ConversationState::new(id, [from, to], at);
        if self.follows_acks {
            state.sides.iter_mut().for_each(|side| side.handled = Some(VecDeque::new()));
        }
        self.conversations.insert(id, state);
        self.by_addresses.insert(unordered(from, to), id);
        self.awake.insert(id);
        self.idle.push_back((at, id));
        self.share = (MAX_MESSAGES / self.conversations.len().max(1)).min(self.limits.messages);
        id
    }

    /// Forgets the conversation that was silent longest. What is open there is told as it stands.
    fn forget_idle(&mut self, at: Time) {
        while let Some((since, id)) = self.idle.pop_front() {
            let Some(state) = self.conversations.get_mut(&id) else { continue };
            if state.last > since {
                self.idle.push_back((state.last, id));
                continue;
            }
            let mut tell = Teller::new(&mut self.findings, state, at, NO_MARK);
            state.finish(&mut tell, &self.limits);
            self.rest.add(&Conversation(state));
            let [a, b] = state.addresses;
            self.by_addresses.remove(&unordered(a, b));
            self.conversations.remove(&id);
            self.awake.remove(&id);
            return;
        }
    }

    /// Returns what is known of conversations that were forgotten because there were too many: their counts.
    #[must_use]
    pub const fn rest(&self) -> &Totals {
        &self.rest
    }

    /// Returns what all conversations have sent, those that were forgotten among them.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut totals = self.rest.clone();
        self.conversations().for_each(|talk| totals.add(&talk));
        totals
    }

    /// Returns the next thing that was found.
    pub fn poll_finding(&mut self) -> Option<Finding> {
        self.findings.waiting.pop_front()
    }

    /// Returns how many findings were lost because more came at once than fit, or nobody took them in time.
    #[must_use]
    pub const fn lost_findings(&self) -> u64 {
        self.findings.lost
    }

    /// Time passes without a datagram: silence and gaps may have become too long. Datagrams do the same.
    pub fn advance(&mut self, now: Time) {
        if self.advanced.is_none() {
            if now.since(self.looked) < Duration::from_secs(1) {
                return;
            }
            self.looked = now;
        }
        self.advanced = self.each(self.advanced, now, ConversationState::expire);
    }

    /// Nothing more will come: what waits to be explained is told as it stands. Returns whether all is told; if not, take
    /// the findings and call it again.
    #[must_use]
    pub fn finish(&mut self, now: Time) -> bool {
        let limits = self.limits;
        self.finished = self.each(self.finished, now, |state, _, tell| state.finish(tell, &limits));
        self.finished.is_none()
    }

    /// Does something with every conversation, as far as there is room for its findings. Returns where to go on.
    fn each(
        &mut self,
        from: Option<ConversationId>,
        now: Time,
        visit: impl Fn(&mut ConversationState, Time, &mut Teller<'_>),
    ) -> Option<ConversationId> {
        let mut next = from.unwrap_or(ConversationId(0));
        while let Some(id) = self.awake.range(next..).next().copied() {
            if self.findings.is_filling() {
                return Some(id);
            }
            next = ConversationId(id.0.saturating_add(1));
            let Some(state) = self.conversations.get_mut(&id) else { continue };
            let mut tell = Teller::new(&mut self.findings, state, now, NO_MARK);
            visit(state, now, &mut tell);
            if state.is_asleep() {
                self.awake.remove(&id);
            }
        }
        None
    }

    /// Returns whether all is told that may be found about the datagram that was given this mark.
    #[must_use]
    pub fn is_decided(&self, conversation: ConversationId, mark: u64) -> bool {
        self.conversation(conversation).is_none_or(|talk| talk.is_decided(mark))
    }

    /// Nobody waits any longer for what may be found about this datagram: why it repeats something is told as it looks now,
    /// and numbers that it left out are told, if they do not come, at a later datagram.
    pub fn decide(&mut self, conversation: ConversationId, mark: u64, now: Time) {
        if let Some(state) = self.conversations.get_mut(&conversation) {
            let mut tell = Teller::new(&mut self.findings, state, now, NO_MARK);
            state.decide(mark, &mut tell);
        }
    }

    /// Returns what is known of a conversation.
    #[must_use]
    pub fn conversation(&self, id: ConversationId) -> Option<Conversation<'_>> {
        self.conversations.get(&id).map(Conversation)
    }

    /// Returns all conversations that are followed, in the order of their beginning.
    pub fn conversations(&self) -> impl Iterator<Item = Conversation<'_>> {
        self.conversations.values().map(Conversation)
    }

    /// Returns the queues of one side as they are at `now`, if the conversation is known. What has reached it by then
    /// is taken for read.
    #[must_use]
    pub fn queues(&self, conversation: ConversationId, side: Side, now: Time) -> Option<Queues> {
        self.conversation(conversation).map(|conversation| conversation.queues(side, now, &self.limits))
    }
}

/// What waits to be told.
#[derive(Debug)]
struct Findings {
    waiting: VecDeque<Finding>,
    limit: usize,
    lost: u64,
}

impl Findings {
    /// Returns whether what one more conversation has to tell may not fit.
    fn is_filling(&self) -> bool {
        self.waiting.len() > self.limit / 2
    }
}

/// Tells findings about one datagram.
struct Teller<'a> {
    findings: &'a mut Findings,
    conversation: ConversationId,
    addresses: [SocketAddrV4; 2],
    at: Time,
    mark: u64,
}

impl<'a> Teller<'a> {
    const fn new(findings: &'a mut Findings, state: &ConversationState, at: Time, mark: u64) -> Self {
        Self { findings, conversation: state.id, addresses: state.addresses, at, mark }
    }

    fn tell(&mut self, side: Side, what: What) {
        self.tell_of(self.at, self.mark, side, what);
    }

    /// Tells something about an earlier datagram.
    fn tell_of(&mut self, at: Time, mark: u64, side: Side, what: What) {
        if self.findings.waiting.len() >= self.findings.limit {
            self.findings.lost += 1;
            return;
        }
        let (conversation, [first, second]) = (self.conversation, self.addresses);
        let (by, to) = match side {
            Side::First => (first, second),
            Side::Second => (second, first),
        };
        self.findings.waiting.push_back(Finding { at, mark, conversation, side, by, to, what });
    }
}

/// Two addresses in either order, as a number: every datagram is looked up by it.
type Pair = u128;

fn unordered(a: SocketAddrV4, b: SocketAddrV4) -> Pair {
    let [a, b] =
        [a, b].map(|address| u128::from(u32::from(*address.ip())) << 16 | u128::from(address.port()));
    a.min(b) << 48 | a.max(b)
}

/// Reliable messages that all conversations together have remembered on each side, at most.
const MAX_MESSAGES: usize = 1 << 20;
/// The mark of findings that no datagram shows, only the passing of time.
pub const NO_MARK: u64 = u64::MAX;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
