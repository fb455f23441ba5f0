//! The receiving end of one channel of one peer: delivers each message once and in order.
//!
//! This module implements [T-69] and [T-70]. Messages in order pass through without being stored. Only
//! fragments and messages behind a gap are buffered.
//!
//! [T-69]: bcnet_wire::protocol#t-69
//! [T-70]: bcnet_wire::protocol#t-70

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use crate::fragment::{BlockPool, ByteChain, FragmentError, MAX_FRAGMENTS, Reassembly};
use crate::time::Time;
use crate::wire::{Fragment, Seq};

/// The receiving end of a channel.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    expected: Seq,
    /// The out-of-order buffer; its first entry is for `expected`.
    out_of_order: Option<Box<OutOfOrderBuffer>>,
}

#[derive(Debug, Default)]
struct OutOfOrderBuffer {
    entries: VecDeque<BufferedMessage>,
    cost: usize,
    /// The time since when later messages wait for the expected one.
    stalled_since: Option<Time>,
}

/// The buffered content of one sequence number.
#[derive(Debug, Default)]
pub(crate) enum BufferedMessage {
    #[default]
    Missing,
    Whole(ByteChain),
    Fragments(Box<Reassembly>),
}

/// The result of [`Inbox::accept`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accepted {
    /// The message is next: deliver it, then poll [`next_ready`](Inbox::next_ready).
    InOrder,
    /// The message is buffered; poll [`next_ready`](Inbox::next_ready).
    Buffered,
    /// The message has arrived before; acknowledge it again.
    Duplicate,
    /// The message is dropped.
    Refused(InboxRefusal),
}

/// The reason why a message is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InboxRefusal {
    /// Too far ahead of the expected number. Acknowledge it anyway (T-69); the other refusals must not be.
    Window,
    /// The out-of-order buffer is full.
    Full,
    /// A fragment contradicts the others (T-68).
    Contradiction,
}

impl Inbox {
    pub(crate) const fn expected(&self) -> Seq {
        self.expected
    }

    /// Accepts a message if it is next and nothing is buffered (T-69).
    ///
    /// Otherwise it returns `false` and changes nothing. It is a fast form of [`accept`](Self::accept).
    #[inline]
    pub(crate) fn accept_next(&mut self, seq: Seq) -> bool {
        let next = seq == self.expected && !self.has_buffered();
        if next {
            self.expected = seq.next();
        }
        next
    }

    /// Accepts a message or fragment with this number (T-69).
    pub(crate) fn accept(
        &mut self,
        seq: Seq,
        fragment: Option<Fragment>,
        bytes: &[u8],
        limits: BufferLimits,
        pool: &mut BlockPool,
    ) -> Accepted {
        let Ok(ahead) = usize::try_from(seq.distance_from(self.expected)) else { return Accepted::Duplicate };
        if ahead == 0 && fragment.is_none() {
            if let Some(first) = self.out_of_order.as_mut().and_then(|held| held.entries.front_mut()) {
                let old = core::mem::take(first);
                self.drop_buffered(old, pool);
            }
            self.advance();
            return Accepted::InOrder;
        }
        if ahead >= RECEIVE_WINDOW {
            return Accepted::Refused(InboxRefusal::Window);
        }
        let held = self.out_of_order.get_or_insert_default();
        if let Some(refusal) = held.check(ahead, fragment) {
            return refusal;
        }
        let fresh_set =
            fragment.is_some() && !matches!(held.entries.get(ahead), Some(BufferedMessage::Fragments(_)));
        let slots = (ahead + 1).saturating_sub(held.entries.len()) * size_of::<BufferedMessage>();
        let cost = BlockPool::cost(bytes.len()) + slots + if fresh_set { size_of::<Reassembly>() } else { 0 };
        let limit = if ahead == 0 { limits.next_in_order } else { limits.out_of_order };
        if held.cost + cost > limit {
            return Accepted::Refused(InboxRefusal::Full);
        }
        held.cost += cost;
        if held.entries.len() <= ahead {
            held.entries.resize_with(ahead + 1, BufferedMessage::default);
        }
        let chain = pool.store(bytes);
        if let Some(entry) = held.entries.get_mut(ahead) {
            match fragment {
                None => *entry = BufferedMessage::Whole(chain),
                Some(part) => {
                    if fresh_set {
                        *entry = BufferedMessage::Fragments(pool.new_set());
                    }
                    if let BufferedMessage::Fragments(set) = entry {
                        set.insert(part, chain);
                    }
                }
            }
        }
        Accepted::Buffered
    }

    /// Removes and returns the next message in order, if it is complete.
    pub(crate) fn next_ready(&mut self) -> Option<BufferedMessage> {
        let held = self.out_of_order.as_mut()?;
        let entry = held.entries.front_mut()?;
        match entry {
            BufferedMessage::Whole(_) => {}
            BufferedMessage::Fragments(set) if set.is_complete() => {}
            BufferedMessage::Fragments(_) | BufferedMessage::Missing => return None,
        }
        let entry = core::mem::take(entry);
        held.cost -= entry.cost();
        self.advance();
        Some(entry)
    }

    /// Returns the number of buffered messages, whole or incomplete, and the bytes of memory they use.
    pub(crate) fn buffered(&self) -> (usize, usize) {
        let count = |held: &OutOfOrderBuffer| {
            held.entries.iter().filter(|entry| !matches!(entry, BufferedMessage::Missing)).count()
        };
        self.out_of_order.as_ref().map_or((0, 0), |held| (count(held), held.cost))
    }

    /// Returns the incomplete split messages with their sequence numbers.
    pub(crate) fn reassemblies(&self) -> impl Iterator<Item = (Seq, &Reassembly)> {
        let entries = self.out_of_order.iter().flat_map(|held| held.entries.iter());
        (0_u16..).zip(entries).filter_map(|(ahead, entry)| match entry {
            BufferedMessage::Fragments(set) => Some((Seq(self.expected.0.wrapping_add(ahead)), &**set)),
            BufferedMessage::Whole(_) | BufferedMessage::Missing => None,
        })
    }

    /// Records since when buffered messages wait for an earlier one.
    ///
    /// `progress` tells whether a message was delivered. Returns whether the wait has just begun.
    pub(crate) fn note_stall(&mut self, progress: bool, now: Time) -> bool {
        let Some(held) = &mut self.out_of_order else { return false };
        let old = held.stalled_since;
        held.stalled_since =
            if held.entries.is_empty() { None } else { old.filter(|_| !progress).or(Some(now)) };
        old.is_none() && held.stalled_since.is_some()
    }

    /// Returns the time since when buffered messages wait for an earlier one.
    pub(crate) fn stalled_since(&self) -> Option<Time> {
        self.out_of_order.as_ref().and_then(|held| held.stalled_since)
    }

    /// Returns whether a message is buffered.
    #[inline]
    pub(crate) fn has_buffered(&self) -> bool {
        self.out_of_order.as_ref().is_some_and(|held| !held.entries.is_empty())
    }

    /// Frees all buffered messages.
    pub(crate) fn clear(&mut self, pool: &mut BlockPool) {
        if let Some(held) = self.out_of_order.take() {
            for entry in held.entries {
                entry.free(pool);
            }
        }
    }

    /// Advances to the next expected number.
    fn advance(&mut self) {
        self.expected = self.expected.next();
        if let Some(held) = &mut self.out_of_order {
            if held.entries.pop_front().is_some() {
                held.cost = held.cost.saturating_sub(size_of::<BufferedMessage>());
            }
            while matches!(held.entries.back(), Some(BufferedMessage::Missing)) {
                held.entries.pop_back();
                held.cost = held.cost.saturating_sub(size_of::<BufferedMessage>());
            }
        }
    }

    /// Releases the memory if nothing is buffered.
    pub(crate) fn shrink(&mut self) {
        if self.out_of_order.as_ref().is_some_and(|held| held.entries.is_empty()) {
            self.out_of_order = None;
        }
    }

    fn drop_buffered(&mut self, entry: BufferedMessage, pool: &mut BlockPool) {
        if let Some(held) = &mut self.out_of_order {
            held.cost = held.cost.saturating_sub(entry.cost());
        }
        entry.free(pool);
    }
}

impl OutOfOrderBuffer {
    /// Returns why a message or fragment cannot be buffered at this place, or `None` if it can.
    fn check(&self, ahead: usize, fragment: Option<Fragment>) -> Option<Accepted> {
        match (self.entries.get(ahead), fragment) {
            (None | Some(BufferedMessage::Missing), None) => None,
            (None | Some(BufferedMessage::Missing), Some(part)) => {
                // No payload has so many fragments.
                (part.index() == u8::MAX).then_some(Accepted::Refused(InboxRefusal::Contradiction))
            }
            (Some(BufferedMessage::Whole(_)), None) => Some(Accepted::Duplicate),
            (Some(BufferedMessage::Fragments(set)), Some(part)) => match set.check(part) {
                Ok(()) => None,
                Err(FragmentError::Duplicate) => Some(Accepted::Duplicate),
                Err(FragmentError::Contradiction) => Some(Accepted::Refused(InboxRefusal::Contradiction)),
            },
            (Some(BufferedMessage::Whole(_)), Some(_)) | (Some(BufferedMessage::Fragments(_)), None) => {
                Some(Accepted::Refused(InboxRefusal::Contradiction))
            }
        }
    }
}

impl BufferedMessage {
    fn cost(&self) -> usize {
        match self {
            Self::Missing => 0,
            Self::Whole(chain) => chain.cost(),
            Self::Fragments(set) => set.cost(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Missing => 0,
            Self::Whole(chain) => chain.len(),
            Self::Fragments(set) => set.len(),
        }
    }

    /// Copies the payload to `out`, which must have [`len`](Self::len) bytes, and frees it.
    pub(crate) fn take_into(self, out: &mut [u8], pool: &mut BlockPool) {
        match self {
            Self::Missing => {}
            Self::Whole(chain) => pool.take_into(chain, out),
            Self::Fragments(set) => set.take_into(out, pool),
        }
    }

    pub(crate) fn free(self, pool: &mut BlockPool) {
        match self {
            Self::Missing => {}
            Self::Whole(chain) => pool.free(chain),
            Self::Fragments(set) => pool.free_set(set),
        }
    }
}

/// The size of the receive window (T-69), as in stock.
pub(crate) const RECEIVE_WINDOW: usize = 0x4000;

/// The limits of the out-of-order buffer, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BufferLimits {
    /// For messages behind a gap.
    out_of_order: usize,
    /// For fragments of the next message. They must always fit, or the buffered messages could never leave.
    next_in_order: usize,
}

impl BufferLimits {
    /// Creates the limits from the size of the buffer and the largest message.
    ///
    /// The next message may use as many bytes more as the largest split payload has.
    pub(crate) const fn new(bytes: usize, message_limit: usize) -> Self {
        let largest = MAX_FRAGMENTS * BlockPool::cost(message_limit) + size_of::<Reassembly>();
        Self { out_of_order: bytes, next_in_order: bytes.saturating_add(largest) }
    }
}

#[cfg(test)]
#[path = "inbox_model.rs"]
mod model;
