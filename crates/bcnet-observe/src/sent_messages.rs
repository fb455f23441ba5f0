//! The reliable messages that one side has sent: those that wait for an ACK, and the latest that do not any more.

use alloc::collections::VecDeque;
use core::time::Duration;

use crate::QueuedMessage;
use crate::finding::MessageInfo;
use crate::stock::{GIVE_UP_AFTER, RetransmitSchedule, SECOND};
use bcnet_wire::{Channel, Kind, MessageId, Seq, Time};

/// A message id as a number: parts of one message stand together.
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

/// A reliable message, from what was seen of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SentMessage {
    pub(crate) info: MessageInfo,
    pub(crate) first_sent: Time,
    pub(crate) last_sent: Time,
    pub(crate) sends: u32,
    pub(crate) schedule: RetransmitSchedule,
    /// When an ACK for it was first seen.
    pub(crate) acked_at: Option<Time>,
    /// How often one was seen.
    pub(crate) ack_count: u32,
    /// Whether an ACK of the other form was seen.
    pub(crate) wrong_form: bool,
    /// Whether its sender still has it in its retransmit queue.
    pub(crate) queued: bool,
    /// Tells a new message under an old number from a repeat.
    pub(crate) fingerprint: u64,
    /// Of a first part: how many parts were sent at least once, and of how many.
    pub(crate) fragments: (u8, u8),
}

impl SentMessage {
    const fn retransmissions(&self) -> u32 {
        self.sends.saturating_sub(1)
    }

    /// Nothing is overdue or given up sooner, whatever is in its way.
    const fn earliest_overdue(&self) -> Time {
        self.last_sent.plus(4 * SECOND)
    }

    /// Returns when a stock sender has sent it again at the latest, twice over, if `behind` others were in its way.
    fn overdue_at(&self, behind: usize, tick: u64) -> Time {
        let repeats = self.retransmissions();
        let twice = self.schedule.interval(repeats) + self.schedule.interval(repeats + 1);
        self.last_sent.plus(twice + 2 * SECOND + tick.saturating_mul(behind as u64))
    }
}

/// A retransmission whose cause is not known yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UnexplainedRetransmission {
    pub(crate) key: MessageKey,
    pub(crate) at: Time,
    pub(crate) mark: u64,
    pub(crate) send_count: u32,
    /// When the copy before was sent.
    pub(crate) previous_send: Time,
    /// How many ACKs came since.
    pub(crate) acks_seen: u8,
    /// When the last of them came.
    pub(crate) last_ack: Time,
    /// Whether they show that a copy before had arrived.
    pub(crate) arrived_before: Option<bool>,
}

/// Messages by their keys, in order. Nearly all come at the end and go at the beginning, and every ACK looks for one: the
/// keys alone are small enough to stay at hand.
#[derive(Debug, Clone)]
struct SentMessageTable {
    keys: VecDeque<MessageKey>,
    sent: VecDeque<SentMessage>,
    /// Behind the one that was looked for last: ACKs come in the order of what they acknowledge.
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

    /// Adds what is not there.
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
    /// What waits for an ACK, in the order of first sending.
    queue: VecDeque<MessageKey>,
    /// What does not, in the order of settling: the first is forgotten first.
    dequeued: VecDeque<MessageKey>,
    /// Retransmissions that wait to be explained, in the order of sending.
    pub(crate) unexplained: VecDeque<UnexplainedRetransmission>,
    /// Before this nothing in the queue is overdue.
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

    /// Returns how many parts of a message wait for an ACK.
    pub(crate) fn queued_fragments_of(&self, seq: Seq) -> u32 {
        let of = |sent: &&SentMessage| sent.info.id.fragment.is_some() && sent.info.id.seq == seq;
        u32::try_from(self.queued().filter(of).count()).unwrap_or(u32::MAX)
    }

    fn queued(&self) -> impl Iterator<Item = &SentMessage> {
        self.queue.iter().filter_map(|key| self.messages.get(*key))
    }

    /// Returns what waits for an ACK, in the order of first sending.
    pub(crate) fn queued_ids(&self) -> impl Iterator<Item = MessageId> {
        self.queued().map(|sent| sent.info.id)
    }

    /// Returns the parts of a message that its first part has announced and that were not sent yet.
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

    /// Notes a message that was not seen before.
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

    /// Forgets what was acknowledged so long ago that no ACK of it is sent any more.
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

    /// Forgets all that does not wait for an ACK, and gives back the memory.
    pub(crate) fn forget_dequeued(&mut self) {
        for key in core::mem::take(&mut self.dequeued) {
            self.forget(key);
        }
        self.messages.keys.shrink_to_fit();
        self.messages.sent.shrink_to_fit();
    }

    /// Forgets a message as if it had never been.
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

    /// The sender has read an ACK of it.
    pub(crate) fn dequeue(&mut self, key: MessageKey) {
        let Some(sent) = self.messages.get_mut(key).filter(|sent| sent.queued) else { return };
        sent.queued = false;
        if let Some(place) = self.queue.iter().position(|other| *other == key) {
            self.queue.remove(place);
        }
        self.dequeued.push_back(key);
    }

    /// The sender has it in its queue after all. It has kept its place.
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

    /// An ACK names the whole of what was split, or a part of what was not. Returns whether there is such a message.
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

    /// An ACK passed that a stock receiver does not look at.
    pub(crate) fn note_ignored_ack(&mut self, key: MessageKey) {
        if let Some(sent) = self.messages.get_mut(key) {
            sent.ack_count = sent.ack_count.saturating_add(1);
        }
    }

    /// Returns what is known of a message whose own copy tells no opcode: its first part does.
    pub(crate) fn opcode(&self, id: MessageId) -> Option<u8> {
        let first = MessageId { fragment: id.fragment.map(|_| 0), ..id };
        self.get(MessageKey::new(first)).and_then(|sent| sent.info.opcode)
    }

    /// Takes out what the sender must have given up or had acknowledged at `at`: `missed` hears of ACKs that were not
    /// seen.
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

/// Twice as long as a stock receiver that has nothing to say repeats an ACK beside its keepalives.
const REMEMBER_FOR: u64 = 60 * SECOND;

/// Returns what nothing is known of but its number.
pub(crate) const fn unknown_message_info(id: MessageId) -> MessageInfo {
    MessageInfo {
        id,
        kind: if matches!(id.channel, Channel::Game) { Some(Kind::DATA) } else { None },
        opcode: None,
    }
}
