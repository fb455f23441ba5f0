//! The pending ACKs of one side, modelled as the stock engine keeps them.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use crate::QueuedAck;
use crate::sent_messages::MessageKey;
use crate::stock::{ACK_INTERVAL, MAX_ACK_SENDS, SECOND, STANDALONE_ACK_SENDS};
use bcnet_wire::{Message, MessageId, Time};

/// The way in which a side sends its ACKs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AckPolicy {
    /// Not known yet. The side is treated as stock.
    Unknown,
    /// Nine sends for each arrival.
    Stock,
    /// One send for each arrival.
    Once,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct ObservedAck {
    id: MessageId,
    sends: u32,
    /// The time of the last send, or of the message's arrival if there was no send yet.
    last: Time,
    /// The time at which the ACK was first queued, and the number of sends since.
    first_queued: Time,
    total_sends: u32,
}

impl ObservedAck {
    /// Returns whether a stock sender may send this ACK at `at`.
    const fn is_due(&self, at: Time) -> bool {
        let wait = if self.sends == 0 { 0 } else { ACK_INTERVAL };
        self.last.as_micros().saturating_add(wait) < at.as_micros()
    }

    /// Returns whether a stock sender would have sent this ACK a second time by `at`.
    const fn is_second_send_overdue(&self, at: Time) -> bool {
        self.sends == 1 && at.micros_since(self.last) > ACK_INTERVAL + SECOND / 4
    }
}

/// Send counts of the ACKs of one side, and the times that they stayed in the outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AckLifetimes {
    /// Number of ACKs by how often each was sent. The last element also counts all ACKs that were sent more
    /// often.
    pub by_send_count: [u64; 20],
    /// The number of sends of the ACK that was sent most often.
    pub max_sends: u32,
    /// The longest time that an ACK stayed in the outbox.
    pub max_lifetime: Duration,
    /// The sum of the times that all ACKs stayed in the outbox.
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

    /// Returns how many ACKs are counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.by_send_count.iter().sum()
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Self) {
        self.by_send_count.iter_mut().zip(other.by_send_count).for_each(|(sum, count)| *sum += count);
        self.max_sends = self.max_sends.max(other.max_sends);
        self.max_lifetime = self.max_lifetime.max(other.max_lifetime);
        self.total_lifetime = self.total_lifetime.saturating_add(other.total_lifetime);
    }

    fn record(&mut self, entry: &ObservedAck, until: Time) {
        let place = (entry.total_sends as usize).min(self.by_send_count.len() - 1);
        if let Some(count) = self.by_send_count.get_mut(place) {
            *count += 1;
        }
        self.max_sends = self.max_sends.max(entry.total_sends);
        let kept = until.since(entry.first_queued);
        self.max_lifetime = self.max_lifetime.max(kept);
        self.total_lifetime = self.total_lifetime.saturating_add(kept);
    }
}

#[derive(Debug, Clone)]
pub(crate) struct AckOutbox {
    pending: VecDeque<ObservedAck>,
    /// The keys of `pending`, in the same order. Each message needs a lookup, and keys are fast to scan.
    keys: Vec<MessageKey>,
    /// The position behind the ACK that was sent last: ACKs leave in the order in which they were queued.
    search_hint: usize,
    policy: AckPolicy,
    /// Lower bound of `last` of all pending ACKs: `expire` has nothing to do while it is recent.
    earliest_send: Time,
    /// Number of ACKs that were not repeated although they were due.
    not_repeated: u32,
    /// Number of repeated ACKs while the policy is `Once`. An ACK that is not repeated resets it.
    repeated: u32,
    /// `true` if the finding that this side sends each ACK once is reported.
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

    /// Notes that this side sends each ACK once, unless it has already repeated one.
    pub(crate) fn assume_once(&mut self) {
        if self.policy == AckPolicy::Unknown {
            self.policy = AckPolicy::Once;
        }
    }

    /// Returns the ACKs that the sender still has at `at`.
    ///
    /// A sender with the policy `Once` has dropped each ACK that it has sent. A sender with an unknown policy
    /// counts as stock for as long as a second send is not overdue.
    pub(crate) fn entries(&self, at: Time) -> impl Iterator<Item = QueuedAck> {
        self.pending_at(at).map(|entry| QueuedAck { id: entry.id, sends: entry.sends })
    }

    fn pending_at(&self, at: Time) -> impl Iterator<Item = &ObservedAck> {
        // One overdue ACK is enough for this snapshot to assume `Once`. It does not set the policy: later
        // traffic may show otherwise.
        let is_stock = match self.policy {
            AckPolicy::Stock => true,
            AckPolicy::Once => false,
            AckPolicy::Unknown => !self.pending.iter().any(|entry| entry.is_second_send_overdue(at)),
        };
        self.pending.iter().filter(move |entry| is_stock || entry.sends == 0)
    }

    /// Returns how many ACKs the sender has at `at`.
    pub(crate) fn len(&self, at: Time) -> usize {
        if self.policy == AckPolicy::Stock { self.pending.len() } else { self.pending_at(at).count() }
    }

    /// Returns the send counts and lifetimes of the ACKs that have left the outbox.
    pub(crate) const fn lifetimes(&self) -> &AckLifetimes {
        &self.lifetimes
    }

    /// Returns the send counts and lifetimes of the ACKs that are pending at `at`.
    pub(crate) fn pending_lifetimes(&self, at: Time) -> AckLifetimes {
        let mut lifetimes = AckLifetimes::default();
        self.pending_at(at).for_each(|entry| lifetimes.record(entry, at));
        lifetimes
    }

    pub(crate) fn clear(&mut self) {
        let Self { pending, lifetimes, .. } = self;
        pending.iter().for_each(|ack| lifetimes.record(ack, ack.last));
        self.pending.clear();
        self.keys.clear();
    }

    fn find(&self, id: MessageId) -> Option<usize> {
        let key = MessageKey::new(id);
        if self.keys.get(self.search_hint) == Some(&key) {
            return Some(self.search_hint);
        }
        // A sender that repeats recent ACKs does not go far back, so this range is searched first.
        let near = self.search_hint.saturating_sub(SEARCH_BACK);
        let close = self.keys.get(near..self.search_hint).unwrap_or_default();
        let place = close.iter().position(|other| *other == key).map(|place| near + place);
        place.or_else(|| position(&self.keys, key))
    }

    fn remove(&mut self, place: usize) {
        if let Some(entry) = self.pending.remove(place) {
            self.lifetimes.record(&entry, entry.last);
        }
        self.keys.remove(place);
    }

    /// Keeps only the ACKs for which `kept` returns `true`.
    fn retain(&mut self, kept: impl FnMut(&ObservedAck) -> bool) {
        self.pending.retain(kept);
        self.keys.clear();
        self.keys.extend(self.pending.iter().map(|entry| MessageKey::new(entry.id)));
    }

    /// Returns whether the ACK may leave at `at`, or `None` if it is not in the outbox.
    pub(crate) fn is_due(&self, id: MessageId, at: Time) -> Option<bool> {
        self.find(id).and_then(|place| self.pending.get(place)).map(|entry| entry.is_due(at))
    }

    /// Returns how many of these ACKs waited until the sender sent another message, and the longest wait.
    ///
    /// An ACK counts if it has used its standalone sends and became due after `before`, the time of the
    /// sender's previous datagram. The result is `None` unless the sender is known to be stock.
    pub(crate) fn delayed_acks(&self, acks: &[Message<'_>], before: Time, at: Time) -> Option<(u32, u64)> {
        if self.policy != AckPolicy::Stock || at.micros_since(before) <= MIN_WAIT {
            return None;
        }
        let waits = acks.iter().filter_map(|message| {
            let Message::Ack(ack) = message else { return None };
            let entry = self.pending.get(self.find(ack.id)?)?;
            let due = entry.last.plus(ACK_INTERVAL);
            let waited = at.micros_since(due);
            (entry.sends >= STANDALONE_ACK_SENDS && before <= due.plus(DUE_TOLERANCE) && waited > MIN_WAIT)
                .then_some(waited)
        });
        waits.fold(None, |all, waited| {
            let (count, longest) = all.unwrap_or((0, 0));
            Some((count + 1, waited.max(longest)))
        })
    }

    /// Queues the ACK of a reliable message that was read, or queues it again.
    ///
    /// Returns how often the ACK was sent for the previous arrival.
    pub(crate) fn queue_ack(&mut self, id: MessageId, at: Time, limit: usize) -> u32 {
        if let Some(entry) = self.find(id).and_then(|place| self.pending.get_mut(place)) {
            let sends = entry.sends;
            (entry.sends, entry.last) = (0, at);
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

    /// Notes that the ACK was sent.
    ///
    /// `is_repeat` is `true` if the node has read all copies of the message that have arrived. Then this send
    /// cannot be the answer to a new copy.
    ///
    /// Returns the delay since the ACK was queued if this is the first send, and the number of sends if this
    /// is the last.
    pub(crate) fn on_ack_sent(
        &mut self,
        id: MessageId,
        is_repeat: bool,
        at: Time,
        limit: usize,
    ) -> (Option<u64>, Option<u32>) {
        let found = self.find(id);
        let place = found.unwrap_or_else(|| {
            // The observer has not seen the message that this ACK acknowledges.
            self.queue_ack(id, at, limit);
            self.pending.len() - 1
        });
        let Some(entry) = self.pending.get_mut(place) else { return (None, None) };
        let first = (found.is_some() && entry.sends == 0).then(|| at.micros_since(entry.last));
        entry.sends += 1;
        entry.total_sends += 1;
        entry.last = at;
        self.earliest_send = self.earliest_send.min(at);
        let sends = entry.sends;
        self.search_hint = place + 1;
        if sends > 1 && is_repeat {
            // The capture may have missed the arrival that this ACK answers. So one repeat does not end `Once`.
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

    /// Drops ACKs that were long due and were missing in a datagram with room: the sender has dropped them.
    ///
    /// Reports each with its number of sends. Returns whether this shows for the first time that the sender
    /// repeats none.
    pub(crate) fn expire(&mut self, at: Time, mut report: impl FnMut(MessageId, u32)) -> bool {
        if self.policy == AckPolicy::Unknown && self.sends_each_once(at) {
            self.policy = AckPolicy::Once;
        }
        if at.micros_since(self.earliest_send) <= ACK_INTERVAL + SECOND {
            return false;
        }
        let before = self.not_repeated;
        let (mut not_repeated, mut lifetimes) = (self.not_repeated, self.lifetimes);
        let mut earliest = at;
        self.retain(|entry| {
            let kept = at.micros_since(entry.last) <= ACK_INTERVAL + SECOND;
            if kept {
                earliest = earliest.min(entry.last);
            } else {
                not_repeated += u32::from(entry.sends == 1);
                lifetimes.record(entry, entry.last);
                report(entry.id, entry.sends);
            }
            kept
        });
        (self.not_repeated, self.earliest_send, self.lifetimes) = (not_repeated, earliest, lifetimes);
        if not_repeated > before {
            self.repeated = 0;
        }
        let once =
            self.policy == AckPolicy::Once && not_repeated >= ONCE_REPORT_THRESHOLD && !self.once_reported;
        self.once_reported |= once;
        once
    }

    /// Returns whether enough ACKs were not repeated to conclude that this side sends each ACK once.
    fn sends_each_once(&self, at: Time) -> bool {
        let missed = self.pending.iter().filter(|entry| entry.is_second_send_overdue(at)).count();
        self.not_repeated as usize + missed >= ONCE_POLICY_THRESHOLD as usize
    }
}

/// Returns the position of a key. Comparing a whole chunk at once compiles to a few vector instructions.
fn position(keys: &[MessageKey], key: MessageKey) -> Option<usize> {
    let has = |piece: &[MessageKey]| piece.iter().fold(false, |found, other| found | (*other == key));
    let piece = keys.chunks(CHUNK).position(has)?;
    let start = piece * CHUNK;
    keys.get(start..)?.iter().position(|other| *other == key).map(|place| start + place)
}

const CHUNK: usize = 32;
const SEARCH_BACK: usize = 4;
/// This many ACKs without a repeat are no accident: report the finding.
const ONCE_REPORT_THRESHOLD: u32 = 4;
/// This many ACKs without a repeat set the policy `Once`, and this many repeats set it back to `Stock`.
///
/// If the capture missed the repeats, later repeats correct the policy.
const ONCE_POLICY_THRESHOLD: u32 = 3;
/// A shorter wait may be the wait for the next tick.
const MIN_WAIT: u64 = SECOND / 4;
/// An ACK may miss a datagram that leaves this close to the ACK's due time.
const DUE_TOLERANCE: u64 = SECOND / 1000;
