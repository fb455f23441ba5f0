//! Retransmission of fragments to a peer that answers with plain ACKs ([T-65]).
//!
//! A plain ACK does not name the fragment.
//!
//! First, all fragments are retransmitted in rounds until a round is answered completely. Then most likely
//! all have arrived. But the network may have duplicated an ACK, or the peer may have repeated one, so an
//! ACK may be missing. So each fragment is then sent once more, alone, after a quiet period for this
//! message. The next ACK answers that fragment. Only an ACK that is delayed by more than the quiet period
//! could still mislead.
//!
//! [T-65]: bcnet_wire::protocol#t-65

use super::stream::{SegmentState, SplitMessage, StreamEntryMut};
use super::{AckEffect, Outbox, RetransmitPolicy, Transmission};
use crate::time::Time;
use crate::wire::{Channel, Seq};

impl Outbox {
    /// Handles a plain ACK for a split message.
    #[cold]
    pub(super) fn on_plain_ack(&mut self, channel: Channel, seq: Seq, now: Time) -> AckEffect {
        let Some(StreamEntryMut::Split(split)) = self.stream(channel).find_mut(seq) else {
            return AckEffect::Useless;
        };
        if split.unacked == 0 {
            return AckEffect::Useless;
        }
        let busy = !split.all_deferred();
        let arrived = split.apply_plain_ack(now);
        if busy && split.all_deferred() {
            self.retransmit_deferred(channel, seq, now);
        }
        let Some((freed, bytes)) = arrived else { return AckEffect::Counted };
        self.in_flight -= freed;
        self.queued -= 1;
        self.queued_bytes -= bytes;
        AckEffect::Delivered { bytes, rtt: None, max_rtt: None }
    }

    /// Handles a fragment that was not answered in time, or that has waited for its turn.
    ///
    /// Returns the number of lost bytes.
    #[cold]
    pub(super) fn on_fragment_timeout(
        &mut self,
        sent: Transmission,
        policy: RetransmitPolicy,
        now: Time,
    ) -> usize {
        let Transmission { seq, fragment: part, channel, .. } = sent;
        let Some(StreamEntryMut::Split(split)) = self.stream(channel).find_mut(seq) else { return 0 };
        let quiet =
            now.micros_since(split.last_activity) >= policy.rto.saturating_mul(2).max(split.quiet_period());
        let alone = split.phase.is_in_flight_alone(part);
        let Some(segment) = split.segments.get_mut(usize::from(part)) else { return 0 };
        let (waits, len) = (segment.state == SegmentState::Deferred, segment.len());
        let patient = match (waits, alone) {
            (true, _) => !quiet,
            (false, true) => segment.skipped_timeouts < policy.extra_timeouts(segment.sends),
            // A round ends when none of its fragments can still be answered.
            (false, false) => segment.skipped_timeouts == 0,
        };
        if patient {
            segment.skipped_timeouts = segment.skipped_timeouts.saturating_add(1);
            segment.last_sent = now;
            self.transmissions.push(Transmission { sent_at: now, ..sent });
            return 0;
        }
        segment.skipped_timeouts = 0;
        if waits || alone {
            segment.state = SegmentState::Lost;
            split.deferred -= u8::from(waits);
            self.insert_lost(channel, seq, part);
        } else {
            segment.state = SegmentState::Deferred;
            split.deferred += 1;
            if split.all_deferred() {
                self.retransmit_deferred(channel, seq, now);
            }
        }
        if waits {
            return 0;
        }
        self.in_flight -= len;
        len
    }

    /// Retransmits the deferred fragments when none is in flight.
    ///
    /// In a round it retransmits all of them, otherwise the first after a quiet period.
    #[cold]
    pub(super) fn retransmit_deferred(&mut self, channel: Channel, seq: Seq, now: Time) {
        let Some(StreamEntryMut::Split(split)) = self.stream(channel).find_mut(seq) else { return };
        if !split.phase.begin_round() {
            let mut parts = (0..=u8::MAX).zip(&mut split.segments);
            let Some((part, segment)) = parts.find(|(_, segment)| segment.state == SegmentState::Deferred)
            else {
                return;
            };
            // One skipped timeout from the start, so that no later ACK triggers an early retransmission.
            (segment.last_sent, segment.skipped_timeouts) = (now, 1);
            let datagram = segment.datagram;
            return self.transmissions.push(Transmission {
                sent_at: now,
                datagram,
                seq,
                fragment: part,
                count: 1,
                channel,
            });
        }
        split.deferred = 0;
        let parts = u8::try_from(split.segments.len()).unwrap_or(u8::MAX);
        for part in 0..parts {
            if let Some(StreamEntryMut::Split(split)) = self.stream(channel).find_mut(seq)
                && let Some(segment) = split.segments.get_mut(usize::from(part))
                && segment.state == SegmentState::Deferred
            {
                segment.state = SegmentState::Lost;
                self.insert_lost(channel, seq, part);
            }
        }
    }
}

impl SplitMessage {
    /// Records that a fragment leaves in `datagram`.
    pub(super) fn mark_fragment_sent(&mut self, fragment: u8, datagram: u32, now: Time) {
        self.last_activity = now;
        match &mut self.phase {
            RetransmitPhase::Rounds { sends, .. } => *sends = sends.saturating_add(1),
            RetransmitPhase::OneByOne { in_flight: asked } => *asked = Some(fragment),
        }
        if let Some(segment) = self.segments.get_mut(usize::from(fragment)) {
            segment.mark_sent(datagram, now);
        }
    }

    /// Returns whether all unacknowledged fragments are deferred.
    pub(super) const fn all_deferred(&self) -> bool {
        self.deferred > 0 && self.deferred == self.unacked
    }

    /// Returns the quiet period before the next fragment is sent alone.
    const fn quiet_period(&self) -> u64 {
        match self.ack_habit {
            AckHabit::Once => QUIET_PERIOD,
            AckHabit::Unknown | AckHabit::Repeats => LONG_QUIET_PERIOD,
        }
    }

    /// Applies a plain ACK.
    ///
    /// If it certainly answers one fragment, returns that fragment's bytes in flight and its length.
    fn apply_plain_ack(&mut self, now: Time) -> Option<(usize, usize)> {
        let silent = now.micros_since(self.last_activity);
        (self.gets_plain_acks, self.last_activity) = (true, now);
        let asked = match &mut self.phase {
            RetransmitPhase::Rounds { sends, acks: answers, .. } => {
                *answers = answers.saturating_add(1);
                let all = *sends >= u16::from(self.unacked) && *answers >= *sends;
                // The sends of this round may have been retransmissions of a few fragments.
                if all && self.segments.iter().all(|segment| segment.state != SegmentState::Unsent) {
                    self.phase = RetransmitPhase::OneByOne { in_flight: None };
                    self.defer_lost();
                }
                return None;
            }
            RetransmitPhase::OneByOne { in_flight: asked } => asked.take(),
        };
        let asked = asked.and_then(|part| self.segments.get_mut(usize::from(part)));
        let arrived = asked.and_then(|segment| Some((segment.mark_acked()?, segment.len())));
        if arrived.is_some() {
            self.unacked -= 1;
            self.last_acked = now;
        }
        self.ack_habit = match self.ack_habit {
            AckHabit::Unknown if arrived.is_some() => AckHabit::Once,
            _ if arrived.is_none() && silent >= MAX_DUPLICATION_DELAY => AckHabit::Repeats,
            known => known,
        };
        if arrived.is_none() {
            self.defer_lost();
        }
        arrived
    }

    /// Defers fragments that are marked for retransmission, because fragments are now sent one by one.
    fn defer_lost(&mut self) {
        for segment in self.segments.iter_mut().filter(|segment| segment.state == SegmentState::Lost) {
            segment.state = SegmentState::Deferred;
            self.deferred += 1;
        }
    }
}

/// The phase of retransmission to a peer that answers fragments with plain ACKs.
#[derive(Debug, Clone, Copy)]
pub(super) enum RetransmitPhase {
    /// All fragments together: the number of previous rounds, and the sends and plain ACKs of this one.
    Rounds { previous: u8, sends: u16, acks: u16 },
    /// One after the other: the fragment that is in flight, if there is one.
    OneByOne { in_flight: Option<u8> },
}

impl Default for RetransmitPhase {
    fn default() -> Self {
        Self::Rounds { previous: 0, sends: 0, acks: 0 }
    }
}

impl RetransmitPhase {
    /// Returns whether this fragment is in flight alone.
    fn is_in_flight_alone(&self, fragment: u8) -> bool {
        matches!(self, Self::OneByOne { in_flight } if *in_flight == Some(fragment))
    }

    /// Begins another round. Returns `false` if there were enough and fragments are now sent one by one.
    fn begin_round(&mut self) -> bool {
        match *self {
            Self::Rounds { previous: before, .. } if before < MAX_ROUNDS => {
                *self = Self::Rounds { previous: before + 1, sends: 0, acks: 0 };
                return true;
            }
            Self::Rounds { .. } => *self = Self::OneByOne { in_flight: None },
            Self::OneByOne { .. } => {}
        }
        false
    }
}

/// The number of ACKs that a peer sends for one fragment.
#[derive(Debug, Clone, Copy, Default)]
pub(super) enum AckHabit {
    #[default]
    Unknown,
    /// One ACK, so that only the network can duplicate it.
    Once,
    /// Several ACKs; stock repeats them at intervals of 0.67 s.
    Repeats,
}

/// In microseconds: longer than the network delays a datagram.
const QUIET_PERIOD: u64 = 500_000;
/// Longer than several lost repetitions in a row.
const LONG_QUIET_PERIOD: u64 = 3_000_000;
/// An ACK this long after any other activity is not a duplicate by the network.
const MAX_DUPLICATION_DELAY: u64 = 300_000;
/// The maximum number of rounds. With many fragments and much loss, no round is ever answered completely.
const MAX_ROUNDS: u8 = 3;
