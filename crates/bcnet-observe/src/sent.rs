//! The reliable messages that one side has sent: those that wait for an ACK, and the latest that do not any more.

use alloc::collections::VecDeque;
use core::time::Duration;

use crate::QueuedMessage;
use crate::finding::About;
use crate::stock::{GIVE_UP, Rhythm, SECOND};
use bcnet_wire::{Channel, Kind, MessageId, Seq, Time};

/// A message id as a number: parts of one message stand together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key(u32);

impl Key {
    pub(crate) fn new(id: MessageId) -> Self {
        let part = id.part.map_or(0, |part| u32::from(part) + 1);
        Self(Self::message(id.channel, id.seq).0 | part)
    }

    fn message(channel: Channel, seq: Seq) -> Self {
        Self(u32::from(channel == Channel::Game) << 25 | u32::from(seq.0) << 9)
    }
}

/// A reliable message, from what was seen of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SentMessage {
    pub(crate) about: About,
    pub(crate) first: Time,
    pub(crate) last: Time,
    pub(crate) sends: u32,
    pub(crate) rhythm: Rhythm,
    /// When an ACK for it was first seen.
    pub(crate) acked: Option<Time>,
    /// How often one was seen.
    pub(crate) acks: u32,
    /// Whether an ACK of the other form was seen.
    pub(crate) wrong_form: bool,
    /// Whether its sender still has it in its retransmit queue.
    pub(crate) queued: bool,
    /// Tells a new message under an old number from a repeat.
    pub(crate) fingerprint: u64,
    /// Of a first part: how many parts were sent at least once, and of how many.
    pub(crate) parts: (u8, u8),
}

impl SentMessage {
    const fn repeats(&self) -> u32 {
        self.sends.saturating_sub(1)
    }

    /// Nothing is overdue or given up sooner, whatever is in its way.
    const fn calm_until(&self) -> Time {
        self.last.plus(4 * SECOND)
    }

    /// Returns when a stock sender has sent it again at the latest, twice over, if `behind` others were in its way.
    fn overdue(&self, behind: usize, tick: u64) -> Time {
        let repeats = self.repeats();
        let twice = self.rhythm.interval(repeats) + self.rhythm.interval(repeats + 1);
        self.last.plus(twice + 2 * SECOND + tick.saturating_mul(behind as u64))
    }
}

/// A retransmission whose cause is not known yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unexplained {
    pub(crate) key: Key,
    pub(crate) at: Time,
    pub(crate) mark: u64,
    pub(crate) times: u32,
    /// When the copy before was sent.
    pub(crate) previous: Time,
    /// How many ACKs came since.
    pub(crate) looks: u8,
    /// When the last of them came.
    pub(crate) last_ack: Time,
    /// Whether they show that a copy before had arrived.
    pub(crate) arrived: Option<bool>,
}

/// Messages by their keys, in order. Nearly all come at the end and go at the beginning, and every ACK looks for one: the
/// keys alone are small enough to stay at hand.
#[derive(Debug, Clone)]
struct Messages {
    keys: VecDeque<Key>,
    sent: VecDeque<SentMessage>,
    /// Behind the one that was looked for last: ACKs come in the order of what they acknowledge.
    next: usize,
}

impl Messages {
    fn get(&self, key: Key) -> Option<&SentMessage> {
        self.keys.binary_search(&key).ok().and_then(|place| self.sent.get(place))
    }

    fn get_mut(&mut self, key: Key) -> Option<&mut SentMessage> {
        let is_next = self.keys.get(self.next) == Some(&key);
        let place = if is_next { self.next } else { self.keys.binary_search(&key).ok()? };
        self.next = place + 1;
        self.sent.get_mut(place)
    }

    fn range_mut(&mut self, from: Key, to: Key) -> impl Iterator<Item = &mut SentMessage> {
        let place = |key| self.keys.partition_point(|other| *other < key);
        self.sent.range_mut(place(from)..place(to))
    }

    /// Adds what is not there.
    fn insert(&mut self, key: Key, sent: SentMessage) {
        let place = self.keys.partition_point(|other| *other < key);
        self.keys.insert(place, key);
        self.sent.insert(place, sent);
    }

    fn remove(&mut self, key: Key) {
        if let Ok(place) = self.keys.binary_search(&key) {
            self.keys.remove(place);
            self.sent.remove(place);
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct SentMessages {
    messages: Messages,
    /// What waits for an ACK, in the order of first sending.
    queue: VecDeque<Key>,
    /// What does not, in the order of settling: the first is forgotten first.
    settled: VecDeque<Key>,
    /// Retransmissions that wait to be explained, in the order of sending.
    pub(crate) unexplained: VecDeque<Unexplained>,
    /// Before this nothing in the queue is overdue.
    calm_until: Time,
}

impl SentMessages {
    pub(crate) const fn new() -> Self {
        Self {
            messages: Messages { keys: VecDeque::new(), sent: VecDeque::new(), next: 0 },
            queue: VecDeque::new(),
            settled: VecDeque::new(),
            unexplained: VecDeque::new(),
            calm_until: Time::ZERO,
        }
    }

    pub(crate) fn get(&self, key: Key) -> Option<&SentMessage> {
        self.messages.get(key)
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut SentMessage> {
        self.messages.get_mut(key)
    }

    /// Returns how many messages wait for an ACK.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns how many parts of a message wait for an ACK.
    pub(crate) fn parts_of(&self, seq: Seq) -> u32 {
        let of = |sent: &&SentMessage| sent.about.id.part.is_some() && sent.about.id.seq == seq;
        u32::try_from(self.queued().filter(of).count()).unwrap_or(u32::MAX)
    }

    fn queued(&self) -> impl Iterator<Item = &SentMessage> {
        self.queue.iter().filter_map(|key| self.messages.get(*key))
    }

    /// Returns what waits for an ACK, in the order of first sending.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = MessageId> {
        self.queued().map(|sent| sent.about.id)
    }

    /// Returns the parts of a message that its first part has announced and that were not sent yet.
    pub(crate) fn unsent_parts(&self, seq: Seq) -> impl Iterator<Item = MessageId> {
        let first = MessageId { channel: Channel::Game, seq, part: Some(0) };
        let (sent, total) = self.get(Key::new(first)).map_or((0, 0), |sent| sent.parts);
        (sent..total).map(move |part| MessageId { part: Some(part), ..first })
    }

    pub(crate) fn entries(&self, now: Time) -> impl Iterator<Item = QueuedMessage> {
        self.queued().filter(move |sent| now.micros_since(sent.first) <= GIVE_UP).map(|sent| QueuedMessage {
            id: sent.about.id,
            repeats: sent.repeats(),
            interval: Duration::from_micros(sent.rhythm.interval(sent.repeats())),
        })
    }

    /// Notes a message that was not seen before.
    pub(crate) fn insert(&mut self, sent: SentMessage, limit: usize) {
        let key = Key::new(sent.about.id);
        self.remove(key);
        self.forget_old(sent.first);
        while self.messages.keys.len() >= limit.max(1)
            && let Some(oldest) = self.settled.pop_front().or_else(|| self.queue.pop_front())
        {
            self.forget(oldest);
        }
        if let Some(part) = sent.about.id.part.filter(|part| *part > 0)
            && let Some(first) = self.messages.get_mut(Key::new(MessageId { part: Some(0), ..sent.about.id }))
        {
            first.parts.0 = first.parts.0.max(part.saturating_add(1));
        }
        self.messages.insert(key, sent);
        self.calm_until = self.calm_until.min(sent.calm_until());
        if sent.queued {
            self.queue.push_back(key);
        } else {
            self.settled.push_back(key);
        }
    }

    /// Forgets what was acknowledged so long ago that no ACK of it is sent any more.
    fn forget_old(&mut self, now: Time) {
        let is_old = |sent: &SentMessage| {
            now.micros_since(sent.last.max(sent.acked.unwrap_or(sent.last))) > REMEMBERED
        };
        while let Some(oldest) = self.settled.front().copied()
            && self.messages.get(oldest).is_none_or(is_old)
        {
            self.settled.pop_front();
            self.forget(oldest);
        }
    }

    /// Forgets all that does not wait for an ACK, and gives back the memory.
    pub(crate) fn forget_settled(&mut self) {
        for key in core::mem::take(&mut self.settled) {
            self.forget(key);
        }
        self.messages.keys.shrink_to_fit();
        self.messages.sent.shrink_to_fit();
    }

    /// Forgets a message as if it had never been.
    fn remove(&mut self, key: Key) {
        if self.messages.get(key).is_some() {
            self.queue.retain(|other| *other != key);
            self.settled.retain(|other| *other != key);
            self.forget(key);
        }
    }

    fn forget(&mut self, key: Key) {
        self.messages.remove(key);
        self.unexplained.retain(|other| other.key != key);
    }

    /// The sender has read an ACK of it.
    pub(crate) fn settle(&mut self, key: Key) {
        let Some(sent) = self.messages.get_mut(key).filter(|sent| sent.queued) else { return };
        sent.queued = false;
        if let Some(place) = self.queue.iter().position(|other| *other == key) {
            self.queue.remove(place);
        }
        self.settled.push_back(key);
    }

    /// The sender has it in its queue after all. It has kept its place.
    pub(crate) fn unsettle(&mut self, key: Key) {
        let Some(sent) = self.messages.get_mut(key).filter(|sent| !sent.queued) else { return };
        sent.queued = true;
        let first = sent.first;
        self.calm_until = self.calm_until.min(sent.calm_until());
        self.settled.retain(|other| *other != key);
        let later = |other: &Key| self.messages.get(*other).is_some_and(|other| other.first > first);
        let place = self.queue.iter().position(later).unwrap_or(self.queue.len());
        self.queue.insert(place, key);
    }

    /// An ACK names the whole of what was split, or a part of what was not. Returns whether there is such a message.
    pub(crate) fn note_wrong_form(&mut self, id: MessageId) -> bool {
        let from = Key::message(id.channel, id.seq);
        let mut found = false;
        for sent in self.messages.range_mut(from, Key(from.0 + 512)) {
            if sent.about.id.part.is_some() != id.part.is_some() {
                sent.wrong_form = true;
                found = true;
            }
        }
        found
    }

    /// An ACK passed that a stock receiver does not look at.
    pub(crate) fn note_unheard(&mut self, key: Key) {
        if let Some(sent) = self.messages.get_mut(key) {
            sent.acks = sent.acks.saturating_add(1);
        }
    }

    /// Returns what is known of a message whose own copy tells no opcode: its first part does.
    pub(crate) fn opcode(&self, id: MessageId) -> Option<u8> {
        let first = MessageId { part: id.part.map(|_| 0), ..id };
        self.get(Key::new(first)).and_then(|sent| sent.about.opcode)
    }

    /// Takes out what the sender must have given up or had acknowledged at `at`: `missed` hears of ACKs that were not
    /// seen.
    pub(crate) fn expire(&mut self, at: Time, tick: u64, mut missed: impl FnMut(MessageId)) {
        if at <= self.calm_until {
            return;
        }
        let length = self.queue.len();
        let Some(key) = self.queue.iter().copied().find(|key| {
            self.messages
                .get(*key)
                .is_some_and(|sent| at.micros_since(sent.first) > GIVE_UP || at > sent.overdue(length, tick))
        }) else {
            let calm = self.queued().map(SentMessage::calm_until).min();
            self.calm_until = calm.unwrap_or(at).max(at);
            return;
        };
        self.settle(key);
        if let Some(sent) = self.messages.get_mut(key) {
            let given_up = at.micros_since(sent.first) > GIVE_UP;
            if !given_up && sent.acks == 0 && !sent.wrong_form {
                missed(sent.about.id);
            }
            sent.acked = sent.acked.or(Some(at));
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::new();
    }
}

/// Twice as long as a stock receiver that has nothing to say repeats an ACK beside its keepalives.
const REMEMBERED: u64 = 60 * SECOND;

/// Returns what nothing is known of but its number.
pub(crate) const fn unknown(id: MessageId) -> About {
    About {
        id,
        kind: if matches!(id.channel, Channel::Game) { Some(Kind::DATA) } else { None },
        opcode: None,
    }
}
