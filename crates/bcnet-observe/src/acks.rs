//! The ACKs that one side owes, counted as the stock engine counts them.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::QueuedAck;
use crate::sent::Key;
use crate::stock::{ACK_REPEAT, ACK_SENDS, SECOND};
use bcnet_wire::{MessageId, Time};

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
}

impl OwedAck {
    /// Returns whether a stock sender may send it at `at`.
    const fn is_due(&self, at: Time) -> bool {
        let wait = if self.sends == 0 { 0 } else { ACK_REPEAT };
        self.last.as_micros().saturating_add(wait) < at.as_micros()
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
        }
    }

    pub(crate) const fn style(&self) -> AckStyle {
        self.style
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = QueuedAck> {
        self.owed.iter().map(|owed| QueuedAck { id: owed.id, sends: owed.sends })
    }

    pub(crate) fn len(&self) -> usize {
        self.owed.len()
    }

    pub(crate) fn clear(&mut self) {
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
        self.owed.remove(place);
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
        self.owed.push_back(OwedAck { id, sends: 0, last: at });
        self.keys.push(Key::new(id));
        0
    }

    /// The ACK was sent. Returns how long it had been owed if this is the first time, and how often it was sent if this
    /// was the last time.
    pub(crate) fn send(&mut self, id: MessageId, at: Time, limit: usize) -> (Option<u64>, Option<u32>) {
        let found = self.find(id);
        let place = found.unwrap_or_else(|| {
            // What it acknowledges was not seen.
            self.owe(id, at, limit);
            self.owed.len() - 1
        });
        let Some(owed) = self.owed.get_mut(place) else { return (None, None) };
        let first = (found.is_some() && owed.sends == 0).then(|| at.micros_since(owed.last));
        owed.sends += 1;
        owed.last = at;
        self.earliest = self.earliest.min(at);
        let sends = owed.sends;
        self.next = place + 1;
        if sends > 1 {
            self.style = AckStyle::Stock;
        }
        if sends >= ACK_SENDS || self.style == AckStyle::Once {
            self.remove(place);
            self.next = place;
            return (first, Some(sends));
        }
        (first, None)
    }

    /// Forgets ACKs that were long due and were not in a datagram that had room for them: the sender does not have
    /// them any more. Tells of each how often it was sent, and whether that shows that the sender repeats none.
    pub(crate) fn expire(&mut self, at: Time, mut told: impl FnMut(MessageId, u32)) -> bool {
        if at.micros_since(self.earliest) <= ACK_REPEAT + SECOND {
            return false;
        }
        let (style, mut not_repeated) = (self.style, self.not_repeated);
        let mut earliest = at;
        self.retain(|owed| {
            let kept = at.micros_since(owed.last) <= ACK_REPEAT + SECOND;
            if kept {
                earliest = earliest.min(owed.last);
            } else {
                not_repeated += u32::from(owed.sends == 1);
                told(owed.id, owed.sends);
            }
            kept
        });
        (self.not_repeated, self.earliest) = (not_repeated, earliest);
        let once = style == AckStyle::Unknown && not_repeated >= ENOUGH;
        if once {
            self.style = AckStyle::Once;
            self.retain(|owed| owed.sends == 0);
        }
        once
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
