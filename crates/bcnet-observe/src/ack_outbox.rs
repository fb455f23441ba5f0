//! The ACKs that one side owes, counted as the stock engine counts them.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use crate::QueuedAck;
use crate::sent_messages::MessageKey;
use crate::stock::{ACK_INTERVAL, MAX_ACK_SENDS, SECOND, STANDALONE_ACK_SENDS};
use bcnet_wire::{Message, MessageId, Time};

/// How a side sends its ACKs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AckPolicy {
    /// Not seen yet; taken for stock until it shows.
    Unknown,
    /// Nine times for each arrival.
    Stock,
    /// Once for each arrival.
    Once,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct ObservedAck {
    id: MessageId,
    sends: u32,
    /// When it was sent last, or when the message came if it was not sent.
    last: Time,
    /// When it was owed for the first time, and how often it was sent since.
    first_queued: Time,
    total_sends: u32,
}

impl ObservedAck {
    /// Returns whether a stock sender may send it at `at`.
    const fn is_due(&self, at: Time) -> bool {
        let wait = if self.sends == 0 { 0 } else { ACK_INTERVAL };
        self.last.as_micros().saturating_add(wait) < at.as_micros()
    }

    /// Returns whether a stock sender that had it would have sent it a second time by `at`.
    const fn is_second_send_overdue(&self, at: Time) -> bool {
        self.sends == 1 && at.micros_since(self.last) > ACK_INTERVAL + SECOND / 4
    }
}

/// How often the ACKs of one side were sent until they were dropped, and how long they were kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AckLifetimes {
    /// How many were sent so many times; the last place has all that were sent more often, too.
    pub by_send_count: [u64; 20],
    /// How often the one was sent that was sent most.
    pub max_sends: u32,
    /// How long the one was kept that was kept longest.
    pub max_lifetime: Duration,
    /// How long all of them together were kept.
    pub total_lifetime: Duration,
}

impl AckLifetimes {
    pub(crate) const fn new() -> Self {
        Self {
            by_send_count: [0; 20],
            max_sends: 0,
            max_lifetime: Duration::ZERO,
            total_lifetime: Duration::ZERO,
        }
    }

    /// Returns how many ACKs were dropped.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.by_send_count.iter().sum()
    }

    /// Adds those of others.
    pub fn add(&mut self, other: &Self) {
        self.by_send_count.iter_mut().zip(other.by_send_count).for_each(|(sum, count)| *sum += count);
        self.max_sends = self.max_sends.max(other.max_sends);
        self.max_lifetime = self.max_lifetime.max(other.max_lifetime);
        self.total_lifetime = self.total_lifetime.saturating_add(other.total_lifetime);
    }

    fn record(&mut self, owed: &ObservedAck, until: Time) {
        let place = (owed.total_sends as usize).min(self.by_send_count.len() - 1);
        if let Some(count) = self.by_send_count.get_mut(place) {
            *count += 1;
        }
        self.max_sends = self.max_sends.max(owed.total_sends);
        let kept = until.since(owed.first_queued);
        self.max_lifetime = self.max_lifetime.max(kept);
        self.total_lifetime = self.total_lifetime.saturating_add(kept);
    }
}

#[derive(Debug, Clone)]
pub(crate) struct AckOutbox {
    pending: VecDeque<ObservedAck>,
    /// What each is found by: every message and every ACK looks for one, and these alone are searched fast.
    keys: Vec<MessageKey>,
    /// Behind the one that was sent last: ACKs leave in the order in which they are owed.
    search_hint: usize,
    policy: AckPolicy,
    /// None was sent before this.
    earliest_send: Time,
    /// How many ACKs were not repeated though it was time.
    not_repeated: u32,
    /// How many were sent again after all, since one was not, by one that seemed to send each once.
    repeated: u32,
    /// Whether it was told that none is repeated.
    once_reported: bool,
    lifetimes: AckLifetimes,
}

impl AckOutbox {
    pub(crate) const fn new() -> Self {
        Self {
            pending: VecDeque::new(),
            keys: Vec::new(),
            search_hint: 0,
            policy: AckPolicy::Unknown,
            earliest_send: Time::ZERO,
            not_repeated: 0,
            repeated: 0,
            once_reported: false,
            lifetimes: AckLifetimes::new(),
        }
    }

    pub(crate) const fn policy(&self) -> AckPolicy {
        self.policy
    }

    /// Notes that the sender is known to repeat no ACK, unless it has done so.
    pub(crate) fn assume_once(&mut self) {
        if self.policy == AckPolicy::Unknown {
            self.policy = AckPolicy::Once;
        }
    }

    /// Returns those that the sender has at `at`. One that sends each once has dropped it then; one that is not known
    /// is taken for stock as long as it may still repeat them.
    pub(crate) fn entries(&self, at: Time) -> impl Iterator<Item = QueuedAck> {
        self.pending_at(at).map(|owed| QueuedAck { id: owed.id, sends: owed.sends })
    }

    fn pending_at(&self, at: Time) -> impl Iterator<Item = &ObservedAck> {
        // One that was not repeated though it was time is sign enough for who only looks: what comes next may tell otherwise.
        let is_stock = match self.policy {
            AckPolicy::Stock => true,
            AckPolicy::Once => false,
            AckPolicy::Unknown => !self.pending.iter().any(|owed| owed.is_second_send_overdue(at)),
        };
        self.pending.iter().filter(move |owed| is_stock || owed.sends == 0)
    }

    /// Returns how many the sender has at `at`.
    pub(crate) fn len(&self, at: Time) -> usize {
        if self.policy == AckPolicy::Stock { self.pending.len() } else { self.pending_at(at).count() }
    }

    /// Returns how often those were sent that are gone, and how long they were kept.
    pub(crate) const fn lifetimes(&self) -> &AckLifetimes {
        &self.lifetimes
    }

    /// Returns the same of those that are still there at `at`.
    pub(crate) fn pending_lifetimes(&self, at: Time) -> AckLifetimes {
        let mut lives = AckLifetimes::default();
        self.pending_at(at).for_each(|owed| lives.record(owed, at));
        lives
    }

    pub(crate) fn clear(&mut self) {
        let Self { pending: owed, lifetimes: lives, .. } = self;
        owed.iter().for_each(|owed| lives.record(owed, owed.last));
        self.pending.clear();
        self.keys.clear();
    }

    fn find(&self, id: MessageId) -> Option<usize> {
        let key = MessageKey::new(id);
        if self.keys.get(self.search_hint) == Some(&key) {
            return Some(self.search_hint);
        }
        // Who repeats what it has just sent does not go far back.
        let near = self.search_hint.saturating_sub(SEARCH_BACK);
        let close = self.keys.get(near..self.search_hint).unwrap_or_default();
        let place = close.iter().position(|other| *other == key).map(|place| near + place);
        place.or_else(|| position(&self.keys, key))
    }

    fn remove(&mut self, place: usize) {
        if let Some(owed) = self.pending.remove(place) {
            self.lifetimes.record(&owed, owed.last);
        }
        self.keys.remove(place);
    }

    /// Keeps only some.
    fn retain(&mut self, kept: impl FnMut(&ObservedAck) -> bool) {
        self.pending.retain(kept);
        self.keys.clear();
        self.keys.extend(self.pending.iter().map(|owed| MessageKey::new(owed.id)));
    }

    /// Returns whether the ACK is in the outbox, and may leave at `at` as it stands there.
    pub(crate) fn is_due(&self, id: MessageId, at: Time) -> Option<bool> {
        self.find(id).and_then(|place| self.pending.get(place)).map(|owed| owed.is_due(at))
    }

    /// Returns how many of these ACKs had had their free sends, were due and waited while nothing left, and how long the
    /// one that waited longest; `before` is when the sender had sent something before.
    pub(crate) fn delayed_acks(&self, acks: &[Message<'_>], before: Time, at: Time) -> Option<(u32, u64)> {
        if self.policy != AckPolicy::Stock || at.micros_since(before) <= MIN_WAIT {
            return None;
        }
        let waits = acks.iter().filter_map(|message| {
            let Message::Ack(ack) = message else { return None };
            let owed = self.pending.get(self.find(ack.id)?)?;
            let due = owed.last.plus(ACK_INTERVAL);
            let waited = at.micros_since(due);
            (owed.sends >= STANDALONE_ACK_SENDS && before <= due.plus(DUE_TOLERANCE) && waited > MIN_WAIT)
                .then_some(waited)
        });
        waits.fold(None, |all, waited| {
            let (count, longest) = all.unwrap_or((0, 0));
            Some((count + 1, waited.max(longest)))
        })
    }

    /// A reliable message was read: its ACK is owed, or owed anew. Returns how often it had been sent for the arrival
    /// before.
    pub(crate) fn queue_ack(&mut self, id: MessageId, at: Time, limit: usize) -> u32 {
        if let Some(owed) = self.find(id).and_then(|place| self.pending.get_mut(place)) {
            let sends = owed.sends;
            (owed.sends, owed.last) = (0, at);
            self.earliest_send = self.earliest_send.min(at);
            return sends;
        }
        if self.pending.len() >= limit {
            self.remove(0);
        }
        self.earliest_send = self.earliest_send.min(at);
        self.pending.push_back(ObservedAck { id, sends: 0, last: at, first_queued: at, total_sends: 0 });
        self.keys.push(MessageKey::new(id));
        0
    }

    /// The ACK was sent, `again` if it answers no arrival that the node may just have read. Returns how long it had been
    /// owed if this is the first time, and how often it was sent if this was the last time.
    pub(crate) fn on_ack_sent(
        &mut self,
        id: MessageId,
        is_repeat: bool,
        at: Time,
        limit: usize,
    ) -> (Option<u64>, Option<u32>) {
        let found = self.find(id);
        let place = found.unwrap_or_else(|| {
            // What it acknowledges was not seen.
            self.queue_ack(id, at, limit);
            self.pending.len() - 1
        });
        let Some(owed) = self.pending.get_mut(place) else { return (None, None) };
        let first = (found.is_some() && owed.sends == 0).then(|| at.micros_since(owed.last));
        owed.sends += 1;
        owed.total_sends += 1;
        owed.last = at;
        self.earliest_send = self.earliest_send.min(at);
        let sends = owed.sends;
        self.search_hint = place + 1;
        if sends > 1 && is_repeat {
            // A capture may have missed the arrival that it answers: once is not enough.
            self.repeated += u32::from(self.policy == AckPolicy::Once);
            if self.policy == AckPolicy::Unknown || self.repeated >= ONCE_POLICY_THRESHOLD {
                self.policy = AckPolicy::Stock;
            }
        }
        if sends >= MAX_ACK_SENDS {
            self.remove(place);
            self.search_hint = place;
            return (first, Some(sends));
        }
        (first, None)
    }

    /// Forgets ACKs that were long due and were not in a datagram that had room for them: the sender does not have
    /// them any more. Tells of each how often it was sent, and whether that shows that the sender repeats none.
    pub(crate) fn expire(&mut self, at: Time, mut report: impl FnMut(MessageId, u32)) -> bool {
        if self.policy == AckPolicy::Unknown && self.sends_each_once(at) {
            self.policy = AckPolicy::Once;
        }
        if at.micros_since(self.earliest_send) <= ACK_INTERVAL + SECOND {
            return false;
        }
        let before = self.not_repeated;
        let (mut not_repeated, mut lives) = (self.not_repeated, self.lifetimes);
        let mut earliest = at;
        self.retain(|owed| {
            let kept = at.micros_since(owed.last) <= ACK_INTERVAL + SECOND;
            if kept {
                earliest = earliest.min(owed.last);
            } else {
                not_repeated += u32::from(owed.sends == 1);
                lives.record(owed, owed.last);
                report(owed.id, owed.sends);
            }
            kept
        });
        (self.not_repeated, self.earliest_send, self.lifetimes) = (not_repeated, earliest, lives);
        if not_repeated > before {
            self.repeated = 0;
        }
        let once =
            self.policy == AckPolicy::Once && not_repeated >= ONCE_REPORT_THRESHOLD && !self.once_reported;
        self.once_reported |= once;
        once
    }

    /// Returns whether so many ACKs were not repeated though it was time that none is.
    fn sends_each_once(&self, at: Time) -> bool {
        let missed = self.pending.iter().filter(|owed| owed.is_second_send_overdue(at)).count();
        self.not_repeated as usize + missed >= ONCE_POLICY_THRESHOLD as usize
    }
}

/// Returns where a key stands. A piece is looked at as a whole, which the compiler does with few instructions.
fn position(keys: &[MessageKey], key: MessageKey) -> Option<usize> {
    let has = |piece: &[MessageKey]| piece.iter().fold(false, |found, other| found | (*other == key));
    let piece = keys.chunks(CHUNK).position(has)?;
    let start = piece * CHUNK;
    keys.get(start..)?.iter().position(|other| *other == key).map(|place| start + place)
}

const CHUNK: usize = 32;
const SEARCH_BACK: usize = 4;
/// So many ACKs that were not repeated are no accident.
const ONCE_REPORT_THRESHOLD: u32 = 4;
/// So many make it likely. If they were lost on the way together, what comes next shows it.
const ONCE_POLICY_THRESHOLD: u32 = 3;
/// What waits for less may have waited for a frame.
const MIN_WAIT: u64 = SECOND / 4;
/// By how much an ACK may miss a datagram that leaves when it becomes due.
const DUE_TOLERANCE: u64 = SECOND / 1000;
