//! T-65: parts that a peer answers with plain ACKs, which do not tell what arrived.
//!
//! All parts are sent again, round by round, until a round is answered in full. Then most likely all have arrived, but
//! an ACK that was doubled on the way, or that the peer repeats, may stand for one that was never sent. So each part is
//! then sent once more, alone, after a time in which nothing was said about the message: what comes next answers it.
//! Only an ACK that is later than that pause could still deceive.

use super::stream::{SegmentState, SplitMessage, StreamEntryMut};
use super::{AckEffect, Outbox, RetransmitPolicy, Transmission};
use crate::time::Time;
use crate::wire::{Channel, Seq};

impl Outbox {
    /// A plain ACK for a message that was split.
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
        let Some((flown, bytes)) = arrived else { return AckEffect::Counted };
        self.in_flight -= flown;
        self.queued -= 1;
        self.queued_bytes -= bytes;
        AckEffect::Delivered { bytes, rtt: None, max_rtt: None }
    }

    /// A part was not answered in time, or has waited a while for its turn. Returns how many bytes were lost.
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
            // A round ends when nothing of it can still be answered.
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

    /// Nothing of a message is under way: all parts that are left are sent again, or the first of them, when it is quiet.
    #[cold]
    pub(super) fn retransmit_deferred(&mut self, channel: Channel, seq: Seq, now: Time) {
        let Some(StreamEntryMut::Split(split)) = self.stream(channel).find_mut(seq) else { return };
        if !split.phase.begin_round() {
            let mut parts = (0..=u8::MAX).zip(&mut split.segments);
            let Some((part, segment)) = parts.find(|(_, segment)| segment.state == SegmentState::Deferred)
            else {
                return;
            };
            // Patient from the start, so that no later ACK hurries it.
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
    /// A part leaves in `datagram`.
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

    /// Returns whether all parts that are left wait to be sent again.
    pub(super) const fn all_deferred(&self) -> bool {
        self.deferred > 0 && self.deferred == self.unacked
    }

    /// Returns how long it must be quiet before the next part is sent alone.
    const fn quiet_period(&self) -> u64 {
        match self.ack_habit {
            AckHabit::Once => QUIET_PERIOD,
            AckHabit::Unknown | AckHabit::Repeats => LONG_QUIET_PERIOD,
        }
    }

    /// A plain ACK came. If it is certain which part it answers: the bytes of it that were under way, and its length.
    fn apply_plain_ack(&mut self, now: Time) -> Option<(usize, usize)> {
        let silent = now.micros_since(self.last_activity);
        (self.gets_plain_acks, self.last_activity) = (true, now);
        let asked = match &mut self.phase {
            RetransmitPhase::Rounds { sends, acks: answers, .. } => {
                *answers = answers.saturating_add(1);
                let all = *sends >= u16::from(self.unacked) && *answers >= *sends;
                // As many sends as parts may have been repeats of a few.
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

    /// What was about to be sent waits for its turn: parts are sent one by one.
    fn defer_lost(&mut self) {
        for segment in self.segments.iter_mut().filter(|segment| segment.state == SegmentState::Lost) {
            segment.state = SegmentState::Deferred;
            self.deferred += 1;
        }
    }
}

/// How the parts of a message are sent again to a peer that answers them with plain ACKs.
#[derive(Debug, Clone, Copy)]
pub(super) enum RetransmitPhase {
    /// All together: how many rounds there were before, and the sends and plain ACKs of this one.
    Rounds { previous: u8, sends: u16, acks: u16 },
    /// One after the other: which of them is under way, if one is.
    OneByOne { in_flight: Option<u8> },
}

impl Default for RetransmitPhase {
    fn default() -> Self {
        Self::Rounds { previous: 0, sends: 0, acks: 0 }
    }
}

impl RetransmitPhase {
    /// Returns whether this part is under way alone.
    fn is_in_flight_alone(&self, fragment: u8) -> bool {
        matches!(self, Self::OneByOne { in_flight } if *in_flight == Some(fragment))
    }

    /// Begins another round. Returns `false` if there were enough, and parts are sent one by one from now on.
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

/// How often the peer answers one part.
#[derive(Debug, Clone, Copy, Default)]
pub(super) enum AckHabit {
    #[default]
    Unknown,
    /// Once, so that only the network can double an ACK.
    Once,
    /// Again and again, as stock does, which waits 0.67 s in between.
    Repeats,
}

/// In microseconds: longer than the network holds anything back.
const QUIET_PERIOD: u64 = 500_000;
/// Longer than several repeats that are lost in a row.
const LONG_QUIET_PERIOD: u64 = 3_000_000;
/// What comes so long after anything else was not doubled by the network.
const MAX_DUPLICATION_DELAY: u64 = 300_000;
/// All parts together are sent again so often. With many parts and much loss no round is ever answered in full.
const MAX_ROUNDS: u8 = 3;
