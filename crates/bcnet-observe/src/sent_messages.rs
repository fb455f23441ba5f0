//! The reliable messages that one side has sent: its retransmit queue, and recently acknowledged ones.

use alloc::collections::VecDeque;
use core::time::Duration;

use crate::QueuedMessage;
use crate::finding::MessageInfo;
use crate::stock::{GIVE_UP_AFTER, RetransmitSchedule, SECOND};
use bcnet_wire::{Channel, Kind, MessageId, Seq, Time};

/// A message id as a number. The fragments of one message are adjacent in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MessageKey(u32);

impl MessageKey {
    pub(crate) fn new(id: MessageId) -> Self {
        let part = id.fragment.map_or(0, |part| u32::from(part) + 1);
        Self(Self::for_message(id.channel, id.seq).0 | part)
    }

    fn for_message(channel: Channel, seq: Seq) -> Self {
        Self(u32::from(channel == Channel::Game) << 25 | u32::from(seq.0) << 9)
    }
}

/// A reliable message, as far as it was seen.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SentMessage {
    pub(crate) info: MessageInfo,
    pub(crate) first_sent: Time,
    pub(crate) last_sent: Time,
    pub(crate) sends: u32,
    pub(crate) schedule: RetransmitSchedule,
    /// The time of the first ACK.
    pub(crate) acked_at: Option<Time>,
    /// The number of ACKs.
    pub(crate) ack_count: u32,
    /// `true` if an ACK of the other form was seen: for the message instead of a fragment, or the reverse.
    pub(crate) wrong_form: bool,
    /// `true` if its sender still has it in its retransmit queue.
    pub(crate) queued: bool,
    /// Distinguishes a new message under an old number from a retransmission.
    pub(crate) fingerprint: u64,
    /// For a first fragment: the number of fragments that were sent at least once, and their total number.
    pub(crate) fragments: (u8, u8),
}

impl SentMessage {
    const fn retransmissions(&self) -> u32 {
        self.sends.saturating_sub(1)
    }

    /// Returns a time before which the message cannot be overdue, however many messages are in front of it.
    const fn earliest_overdue(&self) -> Time {
        self.last_sent.plus(4 * SECOND)
    }

    /// Returns the time by which a stock sender without an ACK has retransmitted the message twice.
    ///
    /// `behind` is the number of messages in the queue, which may all leave before this one.
    fn overdue_at(&self, behind: usize, tick: u64) -> Time {
        let repeats = self.retransmissions();
        let twice = self.schedule.interval(repeats) + self.schedule.interval(repeats + 1);
        self.last_sent.plus(twice + 2 * SECOND + tick.saturating_mul(behind as u64))
    }
}

/// A retransmission without a known cause.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UnexplainedRetransmission {
    pub(crate) key: MessageKey,
    pub(crate) at: Time,
    pub(crate) mark: u64,
    pub(crate) send_count: u32,
    /// The time of the previous send.
    pub(crate) previous_send: Time,
    /// The number of ACKs since the retransmission.
    pub(crate) acks_seen: u8,
    /// The time of the last of these ACKs.
    pub(crate) last_ack: Time,
    /// Whether an earlier copy had arrived, as these ACKs show it; `None` while they do not show it.
    pub(crate) arrived_before: Option<bool>,
}

/// Messages sorted by their keys.
///
/// Nearly all are inserted at the end and removed at the front, and each ACK needs a lookup. The keys have a
/// deque for themselves, which is small enough for the processor's cache.
#[derive(Debug, Clone)]
struct SentMessageTable {
    keys: VecDeque<MessageKey>,
    sent: VecDeque<SentMessage>,
    /// The position behind the last lookup: ACKs come in the order of the messages that they acknowledge.
    search_hint: usize,
}

impl SentMessageTable {
    fn get(&self, key: MessageKey) -> Option<&SentMessage> {
        self.keys.binary_search(&key).ok().and_then(|place| self.sent.get(place))
    }

    fn get_mut(&mut self, key: MessageKey) -> Option<&mut SentMessage> {
        let is_next = self.keys.get(self.search_hint) == Some(&key);
        let place = if is_next { self.search_hint } else { self.keys.binary_search(&key).ok()? };
        self.search_hint = place + 1;
        self.sent.get_mut(place)
    }

    fn range_mut(&mut self, from: MessageKey, to: MessageKey) -> impl Iterator<Item = &mut SentMessage> {
        let place = |key| self.keys.partition_point(|other| *other < key);
        self.sent.range_mut(place(from)..place(to))
    }

    /// Inserts a message whose key is not in the table.
    fn insert(&mut self, key: MessageKey, sent: SentMessage) {
        let place = self.keys.partition_point(|other| *other < key);
        self.keys.insert(place, key);
        self.sent.insert(place, sent);
    }

    fn remove(&mut self, key: MessageKey) {
        if let Ok(place) = self.keys.binary_search(&key) {
            self.keys.remove(place);
            self.sent.remove(place);
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct SentMessages {
    messages: SentMessageTable,
    /// The messages that wait for an ACK, in the order of first send.
    queue: VecDeque<MessageKey>,
    /// The acknowledged messages, in the order in which they left the queue; the front is forgotten first.
    dequeued: VecDeque<MessageKey>,
    /// Retransmissions without a known cause, in the order of sending.
    pub(crate) unexplained: VecDeque<UnexplainedRetransmission>,
    /// No message in the queue is overdue before this time.
    earliest_overdue: Time,
}

impl SentMessages {
    pub(crate) const fn new() -> Self {
        Self {
            messages: SentMessageTable { keys: VecDeque::new(), sent: VecDeque::new(), search_hint: 0 },
            queue: VecDeque::new(),
            dequeued: VecDeque::new(),
            unexplained: VecDeque::new(),
            earliest_overdue: Time::ZERO,
        }
    }

    pub(crate) fn get(&self, key: MessageKey) -> Option<&SentMessage> {
        self.messages.get(key)
    }

    pub(crate) fn get_mut(&mut self, key: MessageKey) -> Option<&mut SentMessage> {
        self.messages.get_mut(key)
    }

    /// Returns how many messages wait for an ACK.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns how many fragments of a message wait for an ACK.
    pub(crate) fn queued_fragments_of(&self, seq: Seq) -> u32 {
        let of = |sent: &&SentMessage| sent.info.id.fragment.is_some() && sent.info.id.seq == seq;
        u32::try_from(self.queued().filter(of).count()).unwrap_or(u32::MAX)
    }

    fn queued(&self) -> impl Iterator<Item = &SentMessage> {
        self.queue.iter().filter_map(|key| self.messages.get(*key))
    }

    /// Returns the messages that wait for an ACK, in the order of first send.
    pub(crate) fn queued_ids(&self) -> impl Iterator<Item = MessageId> {
        self.queued().map(|sent| sent.info.id)
    }

    /// Returns the fragments that the first fragment has announced and that were not sent yet.
    pub(crate) fn unsent_fragments(&self, seq: Seq) -> impl Iterator<Item = MessageId> {
        let first = MessageId { channel: Channel::Game, seq, fragment: Some(0) };
        let (sent, total) = self.get(MessageKey::new(first)).map_or((0, 0), |sent| sent.fragments);
        (sent..total).map(move |part| MessageId { fragment: Some(part), ..first })
    }

    pub(crate) fn entries(&self, now: Time) -> impl Iterator<Item = QueuedMessage> {
        self.queued().filter(move |sent| now.micros_since(sent.first_sent) <= GIVE_UP_AFTER).map(|sent| {
            QueuedMessage {
                id: sent.info.id,
                retransmissions: sent.retransmissions(),
                interval: Duration::from_micros(sent.schedule.interval(sent.retransmissions())),
            }
        })
    }

    /// Adds a message that was not seen before.
    pub(crate) fn insert(&mut self, sent: SentMessage, limit: usize) {
        let key = MessageKey::new(sent.info.id);
        self.remove(key);
        self.forget_old(sent.first_sent);
        while self.messages.keys.len() >= limit.max(1)
            && let Some(oldest) = self.dequeued.pop_front().or_else(|| self.queue.pop_front())
        {
            self.forget(oldest);
        }
        if let Some(part) = sent.info.id.fragment.filter(|part| *part > 0)
            && let Some(first) =
                self.messages.get_mut(MessageKey::new(MessageId { fragment: Some(0), ..sent.info.id }))
        {
            first.fragments.0 = first.fragments.0.max(part.saturating_add(1));
        }
        self.messages.insert(key, sent);
        self.earliest_overdue = self.earliest_overdue.min(sent.earliest_overdue());
        if sent.queued {
            self.queue.push_back(key);
        } else {
            self.dequeued.push_back(key);
        }
    }

    /// Forgets messages that were acknowledged so long ago that no ACK of them can follow.
    fn forget_old(&mut self, now: Time) {
        let is_old = |sent: &SentMessage| {
            now.micros_since(sent.last_sent.max(sent.acked_at.unwrap_or(sent.last_sent))) > REMEMBER_FOR
        };
        while let Some(oldest) = self.dequeued.front().copied()
            && self.messages.get(oldest).is_none_or(is_old)
        {
            self.dequeued.pop_front();
            self.forget(oldest);
        }
    }

    /// Forgets all messages that are not in the queue, and frees their memory.
    pub(crate) fn forget_dequeued(&mut self) {
        for key in core::mem::take(&mut self.dequeued) {
            self.forget(key);
        }
        self.messages.keys.shrink_to_fit();
        self.messages.sent.shrink_to_fit();
    }

    /// Removes a message from the table and from both queues.
    fn remove(&mut self, key: MessageKey) {
        if self.messages.get(key).is_some() {
            self.queue.retain(|other| *other != key);
            self.dequeued.retain(|other| *other != key);
            self.forget(key);
        }
    }

    fn forget(&mut self, key: MessageKey) {
        self.messages.remove(key);
        self.unexplained.retain(|other| other.key != key);
    }

    /// Notes that the sender has read an ACK of the message.
    pub(crate) fn dequeue(&mut self, key: MessageKey) {
        let Some(sent) = self.messages.get_mut(key).filter(|sent| sent.queued) else { return };
        sent.queued = false;
        if let Some(place) = self.queue.iter().position(|other| *other == key) {
            self.queue.remove(place);
        }
        self.dequeued.push_back(key);
    }

    /// Puts a message back into the queue, at its old position: its sender has not read an ACK after all.
    pub(crate) fn requeue(&mut self, key: MessageKey) {
        let Some(sent) = self.messages.get_mut(key).filter(|sent| !sent.queued) else { return };
        sent.queued = true;
        let first = sent.first_sent;
        self.earliest_overdue = self.earliest_overdue.min(sent.earliest_overdue());
        self.dequeued.retain(|other| *other != key);
        let later =
            |other: &MessageKey| self.messages.get(*other).is_some_and(|other| other.first_sent > first);
        let place = self.queue.iter().position(later).unwrap_or(self.queue.len());
        self.queue.insert(place, key);
    }

    /// Notes an ACK that names a whole message for its fragments, or the reverse. Returns whether such a
    /// message exists.
    pub(crate) fn note_wrong_form(&mut self, id: MessageId) -> bool {
        let from = MessageKey::for_message(id.channel, id.seq);
        let mut found = false;
        for sent in self.messages.range_mut(from, MessageKey(from.0 + 512)) {
            if sent.info.id.fragment.is_some() != id.fragment.is_some() {
                sent.wrong_form = true;
                found = true;
            }
        }
        found
    }

    /// Counts an ACK that a stock receiver ignores.
    pub(crate) fn note_ignored_ack(&mut self, key: MessageKey) {
        if let Some(sent) = self.messages.get_mut(key) {
            sent.ack_count = sent.ack_count.saturating_add(1);
        }
    }

    /// Returns the opcode of a message from its first fragment: a later fragment does not carry it.
    pub(crate) fn opcode(&self, id: MessageId) -> Option<u8> {
        let first = MessageId { fragment: id.fragment.map(|_| 0), ..id };
        self.get(MessageKey::new(first)).and_then(|sent| sent.info.opcode)
    }

    /// Removes the first message that the sender cannot have in its queue any more at `at`.
    ///
    /// The sender must have given the message up, or must have read its ACK. Calls `missed` if the sender must have read an ACK that was not seen.
    pub(crate) fn expire(&mut self, at: Time, tick: u64, mut missed: impl FnMut(MessageId)) {
        if at <= self.earliest_overdue {
            return;
        }
        let length = self.queue.len();
        let Some(key) = self.queue.iter().copied().find(|key| {
            self.messages.get(*key).is_some_and(|sent| {
                at.micros_since(sent.first_sent) > GIVE_UP_AFTER || at > sent.overdue_at(length, tick)
            })
        }) else {
            let calm = self.queued().map(SentMessage::earliest_overdue).min();
            self.earliest_overdue = calm.unwrap_or(at).max(at);
            return;
        };
        self.dequeue(key);
        if let Some(sent) = self.messages.get_mut(key) {
            let given_up = at.micros_since(sent.first_sent) > GIVE_UP_AFTER;
            if !given_up && sent.ack_count == 0 && !sent.wrong_form {
                missed(sent.info.id);
            }
            sent.acked_at = sent.acked_at.or(Some(at));
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::new();
    }
}

/// Twice the time for which an idle stock receiver repeats an ACK with its keepalives.
const REMEMBER_FOR: u64 = 60 * SECOND;

/// Returns the info of a message of which only the number is known.
pub(crate) const fn unknown_message_info(id: MessageId) -> MessageInfo {
    MessageInfo {
        id,
        kind: if matches!(id.channel, Channel::Game) { Some(Kind::DATA) } else { None },
        opcode: None,
    }
}
