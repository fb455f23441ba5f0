//! The ACKs that one side owes, counted as the stock engine counts them.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use crate::QueuedAck;
use crate::sent::Key;
use crate::stock::{ACK_REPEAT, ACK_SENDS, FREE_SENDS, SECOND};
use bcnet_wire::{Message, MessageId, Time};

/// How a side sends its ACKs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AckStyle {
    /// Not seen yet; taken for stock until it shows.
    Unknown,
    /// Nine times for each arrival.
    Stock,
    /// Once for each arrival.
    Once,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct OwedAck {
    id: MessageId,
    sends: u32,
    /// When it was sent last, or when the message came if it was not sent.
    last: Time,
    /// When it was owed for the first time, and how often it was sent since.
    since: Time,
    all_sends: u32,
}

impl OwedAck {
    /// Returns whether a stock sender may send it at `at`.
    const fn is_due(&self, at: Time) -> bool {
        let wait = if self.sends == 0 { 0 } else { ACK_REPEAT };
        self.last.as_micros().saturating_add(wait) < at.as_micros()
    }

    /// Returns whether a stock sender that had it would have sent it a second time by `at`.
    const fn is_missed(&self, at: Time) -> bool {
        self.sends == 1 && at.micros_since(self.last) > ACK_REPEAT + SECOND / 4
    }
}

/// How often the ACKs of one side were sent until they were dropped, and how long they were kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AckLives {
    /// How many were sent so many times; the last place has all that were sent more often, too.
    pub sends: [u64; 20],
    /// How often the one was sent that was sent most.
    pub most: u32,
    /// How long the one was kept that was kept longest.
    pub longest: Duration,
    /// How long all of them together were kept.
    pub together: Duration,
}

impl AckLives {
    pub(crate) const fn new() -> Self {
        Self { sends: [0; 20], most: 0, longest: Duration::ZERO, together: Duration::ZERO }
    }

    /// Returns how many ACKs were dropped.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.sends.iter().sum()
    }

    /// Adds those of others.
    pub fn add(&mut self, other: &Self) {
        self.sends.iter_mut().zip(other.sends).for_each(|(sum, count)| *sum += count);
        self.most = self.most.max(other.most);
        self.longest = self.longest.max(other.longest);
        self.together = self.together.saturating_add(other.together);
    }

    fn note(&mut self, owed: &OwedAck, until: Time) {
        let place = (owed.all_sends as usize).min(self.sends.len() - 1);
        if let Some(count) = self.sends.get_mut(place) {
            *count += 1;
        }
        self.most = self.most.max(owed.all_sends);
        let kept = until.since(owed.since);
        self.longest = self.longest.max(kept);
        self.together = self.together.saturating_add(kept);
    }
}

#[derive(Debug, Clone)]
pub(crate) struct AckOutbox {
    owed: VecDeque<OwedAck>,
    /// What each is found by: every message and every ACK looks for one, and these alone are searched fast.
    keys: Vec<Key>,
    /// Behind the one that was sent last: ACKs leave in the order in which they are owed.
    next: usize,
    style: AckStyle,
    /// None was sent before this.
    earliest: Time,
    /// How many ACKs were not repeated though it was time.
    not_repeated: u32,
    /// How many were sent again after all, since one was not, by one that seemed to send each once.
    repeated: u32,
    /// Whether it was told that none is repeated.
    told: bool,
    lives: AckLives,
}

impl AckOutbox {
    pub(crate) const fn new() -> Self {
        Self {
            owed: VecDeque::new(),
            keys: Vec::new(),
            next: 0,
            style: AckStyle::Unknown,
            earliest: Time::ZERO,
            not_repeated: 0,
            repeated: 0,
            told: false,
            lives: AckLives::new(),
        }
    }

    pub(crate) const fn style(&self) -> AckStyle {
        self.style
    }

    /// Notes that the sender is known to repeat no ACK, unless it has done so.
    pub(crate) fn assume_once(&mut self) {
        if self.style == AckStyle::Unknown {
            self.style = AckStyle::Once;
        }
    }

    /// Returns those that the sender has at `at`. One that sends each once has dropped it then; one that is not known
    /// is taken for stock as long as it may still repeat them.
    pub(crate) fn entries(&self, at: Time) -> impl Iterator<Item = QueuedAck> {
        self.kept(at).map(|owed| QueuedAck { id: owed.id, sends: owed.sends })
    }

    fn kept(&self, at: Time) -> impl Iterator<Item = &OwedAck> {
        // One that was not repeated though it was time is sign enough for who only looks: what comes next may tell otherwise.
        let is_stock = match self.style {
            AckStyle::Stock => true,
            AckStyle::Once => false,
            AckStyle::Unknown => !self.owed.iter().any(|owed| owed.is_missed(at)),
        };
        self.owed.iter().filter(move |owed| is_stock || owed.sends == 0)
    }

    /// Returns how many the sender has at `at`.
    pub(crate) fn len(&self, at: Time) -> usize {
        if self.style == AckStyle::Stock { self.owed.len() } else { self.kept(at).count() }
    }

    /// Returns how often those were sent that are gone, and how long they were kept.
    pub(crate) const fn lives(&self) -> &AckLives {
        &self.lives
    }

    /// Returns the same of those that are still there at `at`.
    pub(crate) fn still_kept(&self, at: Time) -> AckLives {
        let mut lives = AckLives::default();
        self.kept(at).for_each(|owed| lives.note(owed, at));
        lives
    }

    pub(crate) fn clear(&mut self) {
        let Self { owed, lives, .. } = self;
        owed.iter().for_each(|owed| lives.note(owed, owed.last));
        self.owed.clear();
        self.keys.clear();
    }

    fn find(&self, id: MessageId) -> Option<usize> {
        let key = Key::new(id);
        if self.keys.get(self.next) == Some(&key) {
            return Some(self.next);
        }
        // Who repeats what it has just sent does not go far back.
        let near = self.next.saturating_sub(NEAR);
        let close = self.keys.get(near..self.next).unwrap_or_default();
        let place = close.iter().position(|other| *other == key).map(|place| near + place);
        place.or_else(|| position(&self.keys, key))
    }

    fn remove(&mut self, place: usize) {
        if let Some(owed) = self.owed.remove(place) {
            self.lives.note(&owed, owed.last);
        }
        self.keys.remove(place);
    }

    /// Keeps only some.
    fn retain(&mut self, kept: impl FnMut(&OwedAck) -> bool) {
        self.owed.retain(kept);
        self.keys.clear();
        self.keys.extend(self.owed.iter().map(|owed| Key::new(owed.id)));
    }

    /// Returns whether the ACK is in the outbox, and may leave at `at` as it stands there.
    pub(crate) fn is_due(&self, id: MessageId, at: Time) -> Option<bool> {
        self.find(id).and_then(|place| self.owed.get(place)).map(|owed| owed.is_due(at))
    }

    /// Returns how many of these ACKs had had their free sends, were due and waited while nothing left, and how long the
    /// one that waited longest; `before` is when the sender had sent something before.
    pub(crate) fn held_back(&self, acks: &[Message<'_>], before: Time, at: Time) -> Option<(u32, u64)> {
        if self.style != AckStyle::Stock || at.micros_since(before) <= MIN_WAIT {
            return None;
        }
        let waits = acks.iter().filter_map(|message| {
            let Message::Ack(ack) = message else { return None };
            let owed = self.owed.get(self.find(ack.id)?)?;
            let due = owed.last.plus(ACK_REPEAT);
            let waited = at.micros_since(due);
            (owed.sends >= FREE_SENDS && before <= due.plus(SLACK) && waited > MIN_WAIT).then_some(waited)
        });
        waits.fold(None, |all, waited| {
            let (count, longest) = all.unwrap_or((0, 0));
            Some((count + 1, waited.max(longest)))
        })
    }

    /// A reliable message was read: its ACK is owed, or owed anew. Returns how often it had been sent for the arrival
    /// before.
    pub(crate) fn owe(&mut self, id: MessageId, at: Time, limit: usize) -> u32 {
        if let Some(owed) = self.find(id).and_then(|place| self.owed.get_mut(place)) {
            let sends = owed.sends;
            (owed.sends, owed.last) = (0, at);
            self.earliest = self.earliest.min(at);
            return sends;
        }
        if self.owed.len() >= limit {
            self.remove(0);
        }
        self.earliest = self.earliest.min(at);
        self.owed.push_back(OwedAck { id, sends: 0, last: at, since: at, all_sends: 0 });
        self.keys.push(Key::new(id));
        0
    }

    /// The ACK was sent, `again` if it answers no arrival that the node may just have read. Returns how long it had been
    /// owed if this is the first time, and how often it was sent if this was the last time.
    pub(crate) fn send(
        &mut self,
        id: MessageId,
        again: bool,
        at: Time,
        limit: usize,
    ) -> (Option<u64>, Option<u32>) {
        let found = self.find(id);
        let place = found.unwrap_or_else(|| {
            // What it acknowledges was not seen.
            self.owe(id, at, limit);
            self.owed.len() - 1
        });
        let Some(owed) = self.owed.get_mut(place) else { return (None, None) };
        let first = (found.is_some() && owed.sends == 0).then(|| at.micros_since(owed.last));
        owed.sends += 1;
        owed.all_sends += 1;
        owed.last = at;
        self.earliest = self.earliest.min(at);
        let sends = owed.sends;
        self.next = place + 1;
        if sends > 1 && again {
            // A capture may have missed the arrival that it answers: once is not enough.
            self.repeated += u32::from(self.style == AckStyle::Once);
            if self.style == AckStyle::Unknown || self.repeated >= SOME {
                self.style = AckStyle::Stock;
            }
        }
        if sends >= ACK_SENDS {
            self.remove(place);
            self.next = place;
            return (first, Some(sends));
        }
        (first, None)
    }

    /// Forgets ACKs that were long due and were not in a datagram that had room for them: the sender does not have
    /// them any more. Tells of each how often it was sent, and whether that shows that the sender repeats none.
    pub(crate) fn expire(&mut self, at: Time, mut told: impl FnMut(MessageId, u32)) -> bool {
        if self.style == AckStyle::Unknown && self.repeats_none(at) {
            self.style = AckStyle::Once;
        }
        if at.micros_since(self.earliest) <= ACK_REPEAT + SECOND {
            return false;
        }
        let before = self.not_repeated;
        let (mut not_repeated, mut lives) = (self.not_repeated, self.lives);
        let mut earliest = at;
        self.retain(|owed| {
            let kept = at.micros_since(owed.last) <= ACK_REPEAT + SECOND;
            if kept {
                earliest = earliest.min(owed.last);
            } else {
                not_repeated += u32::from(owed.sends == 1);
                lives.note(owed, owed.last);
                told(owed.id, owed.sends);
            }
            kept
        });
        (self.not_repeated, self.earliest, self.lives) = (not_repeated, earliest, lives);
        if not_repeated > before {
            self.repeated = 0;
        }
        let once = self.style == AckStyle::Once && not_repeated >= ENOUGH && !self.told;
        self.told |= once;
        once
    }

    /// Returns whether so many ACKs were not repeated though it was time that none is.
    fn repeats_none(&self, at: Time) -> bool {
        let missed = self.owed.iter().filter(|owed| owed.is_missed(at)).count();
        self.not_repeated as usize + missed >= SOME as usize
    }
}

/// Returns where a key stands. A piece is looked at as a whole, which the compiler does with few instructions.
fn position(keys: &[Key], key: Key) -> Option<usize> {
    let has = |piece: &[Key]| piece.iter().fold(false, |found, other| found | (*other == key));
    let piece = keys.chunks(PIECE).position(has)?;
    let start = piece * PIECE;
    keys.get(start..)?.iter().position(|other| *other == key).map(|place| start + place)
}

const PIECE: usize = 32;
const NEAR: usize = 4;
/// So many ACKs that were not repeated are no accident.
const ENOUGH: u32 = 4;
/// So many make it likely. If they were lost on the way together, what comes next shows it.
const SOME: u32 = 3;
/// What waits for less may have waited for a frame.
const MIN_WAIT: u64 = SECOND / 4;
/// By how much an ACK may miss a datagram that leaves when it becomes due.
const SLACK: u64 = SECOND / 1000;
