//! The sequence numbers of one stream: which were left out.

use alloc::vec::Vec;

use crate::NO_MARK;
use crate::stock::SECOND;
use bcnet_wire::{Seq, Time};

#[derive(Debug, Clone)]
pub(crate) struct SequenceTracker {
    first: Option<Seq>,
    next: Seq,
    /// Numbers that were passed over, with the time and the mark of the datagram that did.
    missing: Vec<(Seq, Time, u64)>,
}

impl SequenceTracker {
    pub(crate) const fn new() -> Self {
        Self { first: None, next: Seq(0), missing: Vec::new() }
    }

    /// Returns whether no number is missing.
    pub(crate) const fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }

    /// Returns the latest number that was used, if any was.
    pub(crate) fn latest(&self) -> Option<Seq> {
        self.first.map(|_| Seq(self.next.0.wrapping_sub(1)))
    }

    /// Returns whether the number was used before anything of this stream was seen.
    pub(crate) fn is_before_first(&self, seq: Seq) -> bool {
        self.first.is_none_or(|first| seq.distance_from(first) < 0)
    }

    /// A message was sent for the first time, or one that was not seen was acknowledged.
    pub(crate) fn on_message(&mut self, seq: Seq, at: Time, mark: u64) {
        if self.first.is_none() {
            (self.first, self.next) = (Some(seq), seq.next());
            return;
        }
        let ahead = seq.distance_from(self.next);
        if ahead < 0 {
            self.missing.retain(|(missing, ..)| *missing != seq);
            return;
        }
        while self.next != seq && self.missing.len() < MAX_MISSING_NUMBERS {
            self.missing.push((self.next, at, mark));
            self.next = self.next.next();
        }
        self.next = seq.next();
    }

    /// Returns whether nothing is to be told of the datagram with this mark.
    pub(crate) fn is_final(&self, mark: u64) -> bool {
        self.missing.iter().all(|(_, _, other)| *other != mark)
    }

    /// What is missing since this datagram is to be told of another.
    pub(crate) fn clear_mark(&mut self, mark: u64) {
        for (_, _, other) in self.missing.iter_mut().filter(|(_, _, other)| *other == mark) {
            *other = NO_MARK;
        }
    }

    /// Numbers that were passed over so long ago that they will not come any more.
    pub(crate) fn expire(&mut self, at: Time, mut report: impl FnMut(Seq, Time, u64)) {
        self.missing.retain(|(seq, since, mark)| {
            let kept = at.micros_since(*since) <= GIVE_UP_ON_GAP_AFTER;
            if !kept {
                report(*seq, *since, *mark);
            }
            kept
        });
    }
}

/// More are not told one by one.
const MAX_MISSING_NUMBERS: usize = 64;
/// By then a stock sender has repeated a message that was lost nine times.
const GIVE_UP_ON_GAP_AFTER: u64 = 28 * SECOND;
