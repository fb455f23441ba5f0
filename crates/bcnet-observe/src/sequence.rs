//! The sequence numbers of one channel, and the numbers that were skipped.

use alloc::vec::Vec;

use crate::NO_MARK;
use crate::stock::SECOND;
use bcnet_wire::{Seq, Time};

#[derive(Debug, Clone)]
pub(crate) struct SequenceTracker {
    first: Option<Seq>,
    next: Seq,
    /// Skipped numbers, each with the time and the mark (number) of the datagram that skipped it.
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

    /// Returns whether the number is older than the first observed number of this channel.
    pub(crate) fn is_before_first(&self, seq: Seq) -> bool {
        self.first.is_none_or(|first| seq.distance_from(first) < 0)
    }

    /// Returns whether a number is close to the next one, or to the first one of a new connection.
    ///
    /// The number of a cookie (T-76) is far from both: it must be outside the receive window.
    pub(crate) const fn is_near(&self, seq: Seq) -> bool {
        let expected = if self.first.is_some() { self.next } else { Seq(0) };
        seq.distance_from(expected).unsigned_abs() < COOKIE_DISTANCE
    }

    /// Notes the first send of a message, or the ACK of a message that was not seen.
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

    /// Returns whether no finding about the datagram with this mark is pending.
    pub(crate) fn is_final(&self, mark: u64) -> bool {
        self.missing.iter().all(|(_, _, other)| *other != mark)
    }

    /// Detaches the missing numbers from the datagram with this mark: they are reported with a later one.
    pub(crate) fn clear_mark(&mut self, mark: u64) {
        for (_, _, other) in self.missing.iter_mut().filter(|(_, _, other)| *other == mark) {
            *other = NO_MARK;
        }
    }

    /// Reports and forgets the numbers that were skipped so long ago that they will not come any more.
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

/// A cookie is at least this far from the numbers of messages.
const COOKIE_DISTANCE: u16 = 0x2000;
/// Largest number of missing numbers to remember. Further ones are never reported.
const MAX_MISSING_NUMBERS: usize = 64;
/// Age at which a missing number counts as lost.
///
/// In this time a stock sender retransmits a lost message nine times.
const GIVE_UP_ON_GAP_AFTER: u64 = 28 * SECOND;

#[cfg(test)]
mod tests {
    use super::*;

    fn tracker_with_gap(next: u16) -> SequenceTracker {
        let mut tracker = SequenceTracker::new();
        tracker.on_message(Seq(0), Time::ZERO, 6);
        tracker.on_message(Seq(next), Time::ZERO, 7);
        tracker
    }

    /// A forged number far ahead costs no memory: only the first missing numbers are remembered.
    #[test]
    fn jump_of_the_numbers_takes_little_memory() {
        let mut tracker = tracker_with_gap(5000);
        assert_eq!((tracker.missing.len(), tracker.latest()), (MAX_MISSING_NUMBERS, Some(Seq(5000))));
        let mut reported = Vec::new();
        tracker.expire(Time::ZERO.plus(28_000_000), |seq, _, _| reported.push(seq.0));
        assert_eq!(reported, [], "the missing numbers may still arrive");
        tracker.expire(Time::ZERO.plus(28_000_001), |seq, _, _| reported.push(seq.0));
        assert!(reported.iter().copied().eq(1..=64) && tracker.is_complete());
    }

    /// A datagram whose findings are final gets no finding about a gap: a later datagram gets it.
    #[test]
    fn cleared_mark_keeps_the_missing_numbers() {
        let mut tracker = tracker_with_gap(2);
        assert!(!tracker.is_final(7) && tracker.is_final(6));
        tracker.clear_mark(6);
        assert!(!tracker.is_final(7), "another mark changes nothing");
        tracker.clear_mark(7);
        assert!(tracker.is_final(7) && !tracker.is_complete());
        let mut reported = Vec::new();
        tracker.expire(Time::ZERO.plus(60 * SECOND), |seq, _, mark| reported.push((seq, mark)));
        assert_eq!(reported, [(Seq(1), NO_MARK)]);
    }

    #[test]
    fn late_number_is_no_longer_missing() {
        let mut tracker = tracker_with_gap(5);
        tracker.on_message(Seq(2), Time::ZERO, 8);
        assert!(tracker.missing.iter().map(|(seq, ..)| seq.0).eq([1, 3, 4]));
        assert_eq!(tracker.latest(), Some(Seq(5)));
        assert_eq!([0xFFFF, 0, 1].map(|seq| tracker.is_before_first(Seq(seq))), [true, false, false]);
        assert!(SequenceTracker::new().is_before_first(Seq(0)));
    }

    /// T-76: a cookie is far from the next number, and from the first number of a new connection.
    #[test]
    fn numbers_near_the_next_one_are_no_cookies() {
        let near = |tracker: &SequenceTracker, around: u16| {
            [0_u16, 0x1FFF, 0x2000].map(|distance| {
                let both = [around.wrapping_add(distance), around.wrapping_sub(distance)];
                both.map(|seq| tracker.is_near(Seq(seq)))
            })
        };
        let expected = [[true; 2], [true; 2], [false; 2]];
        assert_eq!(near(&SequenceTracker::new(), 0), expected);
        assert_eq!(near(&tracker_with_gap(2), 3), expected);
    }
}
