//! What arrived from one peer on one channel: each message once and in order.
//!
//! Owns T-69 and T-70. In-order messages pass through without being stored; only what is ahead of a gap, or a part, is held.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use crate::fragment::{Chain, MAX_PARTS, Misfit, Pool, Set};
use crate::time::Time;
use crate::wire::{Part, Seq};

/// The receiving end of a channel.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    expected: Seq,
    /// What is held: its first entry is for `expected`.
    held: Option<Box<Ahead>>,
}

#[derive(Debug, Default)]
struct Ahead {
    entries: VecDeque<Held>,
    cost: usize,
    /// Since when the expected message is waited for.
    since: Option<Time>,
}

/// What is held for one sequence number.
#[derive(Debug, Default)]
pub(crate) enum Held {
    #[default]
    Nothing,
    Whole(Chain),
    Parts(Box<Set>),
}

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accepted {
    /// It is next: deliver it, then see what else is [`ready`](Inbox::next_ready).
    Now,
    /// It is kept; something may be ready.
    Kept,
    /// It was here before; acknowledge it once more.
    Duplicate,
    /// It is not kept.
    Refused(Refusal),
}

/// Why a message cannot be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Too far ahead of what is expected: acknowledge it, nobody keeps it (T-69). The others must not be.
    Window,
    /// Too much is held for this peer already.
    Full,
    /// A part that contradicts the others (T-68).
    Contradiction,
}

impl Inbox {
    pub(crate) const fn expected(&self) -> Seq {
        self.expected
    }

    /// T-69: what [`accept`](Self::accept) does if the message is next and nothing is held. Returns `false`, and
    /// nothing changed, if it is not so.
    #[inline]
    pub(crate) fn accept_next(&mut self, seq: Seq) -> bool {
        let next = seq == self.expected && !self.is_waiting();
        if next {
            self.expected = seq.next();
        }
        next
    }

    /// T-69: a message or part with this number arrived.
    pub(crate) fn accept(
        &mut self,
        seq: Seq,
        part: Option<Part>,
        bytes: &[u8],
        hold: Hold,
        pool: &mut Pool,
    ) -> Accepted {
        let Ok(ahead) = usize::try_from(seq.distance_from(self.expected)) else { return Accepted::Duplicate };
        if ahead == 0 && part.is_none() {
            if let Some(first) = self.held.as_mut().and_then(|held| held.entries.front_mut()) {
                let old = core::mem::take(first);
                self.drop_held(old, pool);
            }
            self.advance();
            return Accepted::Now;
        }
        if ahead >= WINDOW {
            return Accepted::Refused(Refusal::Window);
        }
        let held = self.held.get_or_insert_default();
        if let Some(refusal) = held.check(ahead, part) {
            return refusal;
        }
        let fresh_set = part.is_some() && !matches!(held.entries.get(ahead), Some(Held::Parts(_)));
        let slots = (ahead + 1).saturating_sub(held.entries.len()) * size_of::<Held>();
        let cost = Pool::cost(bytes.len()) + slots + if fresh_set { size_of::<Set>() } else { 0 };
        let limit = if ahead == 0 { hold.next } else { hold.later };
        if held.cost + cost > limit {
            return Accepted::Refused(Refusal::Full);
        }
        held.cost += cost;
        if held.entries.len() <= ahead {
            held.entries.resize_with(ahead + 1, Held::default);
        }
        let chain = pool.store(bytes);
        if let Some(entry) = held.entries.get_mut(ahead) {
            match part {
                None => *entry = Held::Whole(chain),
                Some(part) => {
                    if fresh_set {
                        *entry = Held::Parts(pool.set());
                    }
                    if let Held::Parts(set) = entry {
                        set.insert(part, chain);
                    }
                }
            }
        }
        Accepted::Kept
    }

    /// Returns what is next in order, if it is complete.
    pub(crate) fn next_ready(&mut self) -> Option<Held> {
        let held = self.held.as_mut()?;
        let entry = held.entries.front_mut()?;
        match entry {
            Held::Whole(_) => {}
            Held::Parts(set) if set.is_complete() => {}
            Held::Parts(_) | Held::Nothing => return None,
        }
        let entry = core::mem::take(entry);
        held.cost -= entry.cost();
        self.advance();
        Some(entry)
    }

    /// Returns how many messages are held, whole or in parts, and how many bytes of memory that takes.
    pub(crate) fn held(&self) -> (usize, usize) {
        let count =
            |held: &Ahead| held.entries.iter().filter(|entry| !matches!(entry, Held::Nothing)).count();
        self.held.as_ref().map_or((0, 0), |held| (count(held), held.cost))
    }

    /// Returns the sets of parts that are not complete: number, parts here, parts in all if known.
    pub(crate) fn sets(&self) -> impl Iterator<Item = (Seq, &Set)> {
        let entries = self.held.iter().flat_map(|held| held.entries.iter());
        (0_u16..).zip(entries).filter_map(|(ahead, entry)| match entry {
            Held::Parts(set) => Some((Seq(self.expected.0.wrapping_add(ahead)), &**set)),
            Held::Whole(_) | Held::Nothing => None,
        })
    }

    /// Remembers since when what is held waits for an earlier message. `progress` says whether something was delivered.
    /// Returns whether this is the first that waits.
    pub(crate) fn note_stall(&mut self, progress: bool, now: Time) -> bool {
        let Some(held) = &mut self.held else { return false };
        let old = held.since;
        held.since = if held.entries.is_empty() { None } else { old.filter(|_| !progress).or(Some(now)) };
        old.is_none() && held.since.is_some()
    }

    /// Returns since when what is held waits for an earlier message.
    pub(crate) fn stalled(&self) -> Option<Time> {
        self.held.as_ref().and_then(|held| held.since)
    }

    /// Returns whether something is held.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        self.held.as_ref().is_some_and(|held| !held.entries.is_empty())
    }

    /// Frees everything.
    pub(crate) fn clear(&mut self, pool: &mut Pool) {
        if let Some(held) = self.held.take() {
            for entry in held.entries {
                entry.free(pool);
            }
        }
    }

    /// The expected message is here: the next one is expected.
    fn advance(&mut self) {
        self.expected = self.expected.next();
        if let Some(held) = &mut self.held {
            if held.entries.pop_front().is_some() {
                held.cost = held.cost.saturating_sub(size_of::<Held>());
            }
            while matches!(held.entries.back(), Some(Held::Nothing)) {
                held.entries.pop_back();
                held.cost = held.cost.saturating_sub(size_of::<Held>());
            }
        }
    }

    /// Gives memory back if nothing is held.
    pub(crate) fn shrink(&mut self) {
        if self.held.as_ref().is_some_and(|held| held.entries.is_empty()) {
            self.held = None;
        }
    }

    fn drop_held(&mut self, entry: Held, pool: &mut Pool) {
        if let Some(held) = &mut self.held {
            held.cost = held.cost.saturating_sub(entry.cost());
        }
        entry.free(pool);
    }
}

impl Ahead {
    /// Returns what speaks against keeping a message or part in this place.
    fn check(&self, ahead: usize, part: Option<Part>) -> Option<Accepted> {
        match (self.entries.get(ahead), part) {
            (None | Some(Held::Nothing), None) => None,
            (None | Some(Held::Nothing), Some(part)) => {
                // No set has so many parts.
                (part.index() == u8::MAX).then_some(Accepted::Refused(Refusal::Contradiction))
            }
            (Some(Held::Whole(_)), None) => Some(Accepted::Duplicate),
            (Some(Held::Parts(set)), Some(part)) => match set.check(part) {
                Ok(()) => None,
                Err(Misfit::Duplicate) => Some(Accepted::Duplicate),
                Err(Misfit::Contradiction) => Some(Accepted::Refused(Refusal::Contradiction)),
            },
            (Some(Held::Whole(_)), Some(_)) | (Some(Held::Parts(_)), None) => {
                Some(Accepted::Refused(Refusal::Contradiction))
            }
        }
    }
}

impl Held {
    fn cost(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Whole(chain) => chain.cost(),
            Self::Parts(set) => set.cost(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Whole(chain) => chain.len(),
            Self::Parts(set) => set.len(),
        }
    }

    /// Copies the payload to `out`, which is [`len`](Self::len) bytes long, and frees it.
    pub(crate) fn take(self, out: &mut [u8], pool: &mut Pool) {
        match self {
            Self::Nothing => {}
            Self::Whole(chain) => pool.take(chain, out),
            Self::Parts(set) => set.take(out, pool),
        }
    }

    pub(crate) fn free(self, pool: &mut Pool) {
        match self {
            Self::Nothing => {}
            Self::Whole(chain) => pool.free(chain),
            Self::Parts(set) => pool.free_set(set),
        }
    }
}

/// T-69: how far ahead of the expected number a message may be, as in stock.
pub(crate) const WINDOW: usize = 0x4000;

/// How many bytes may be held.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hold {
    /// With messages that wait for others.
    later: usize,
    /// With parts of the next: it must always find room, or what is held behind it could never leave.
    next: usize,
}

impl Hold {
    /// So many bytes, and the largest payload in parts that senders make whose messages are at most this long.
    pub(crate) const fn new(bytes: usize, message_limit: usize) -> Self {
        let largest = MAX_PARTS * Pool::cost(message_limit) + size_of::<Set>();
        Self { later: bytes, next: bytes.saturating_add(largest) }
    }
}

#[cfg(test)]
#[path = "inbox_model.rs"]
mod model;
