//! T-65: parts that a peer answers with plain ACKs, which do not tell what arrived.
//!
//! All parts are sent again, round by round, until a round is answered in full. Then most likely all have arrived, but
//! an ACK that was doubled on the way, or that the peer repeats, may stand for one that was never sent. So each part is
//! then sent once more, alone, after a time in which nothing was said about the message: what comes next answers it.
//! Only an ACK that is later than that pause could still deceive.

use super::stream::{Found, SplitMessage, State};
use super::{Outbox, ResendPolicy, Sent, Settled};
use crate::time::Time;
use crate::wire::{Channel, Seq};

impl Outbox {
    /// A plain ACK for a message that was split.
    #[cold]
    pub(super) fn note_plain(&mut self, channel: Channel, seq: Seq, now: Time) -> Settled {
        let Some(Found::Split(split)) = self.stream(channel).find(seq) else { return Settled::Useless };
        if split.left == 0 {
            return Settled::Useless;
        }
        let busy = !split.all_wait();
        let arrived = split.note_plain(now);
        if busy && split.all_wait() {
            self.go_on(channel, seq, now);
        }
        let Some((flown, bytes)) = arrived else { return Settled::Noted };
        self.in_flight -= flown;
        self.queued -= 1;
        self.queued_bytes -= bytes;
        Settled::Arrived { bytes, trip: None, max_trip: None }
    }

    /// A part was not answered in time, or has waited a while for its turn. Returns how many bytes were lost.
    #[cold]
    pub(super) fn give_up_plain(&mut self, sent: Sent, policy: ResendPolicy, now: Time) -> usize {
        let Sent { seq, part, channel, .. } = sent;
        let Some(Found::Split(split)) = self.stream(channel).find(seq) else { return 0 };
        let quiet = now.micros_since(split.last) >= policy.timeout.saturating_mul(2).max(split.pause());
        let alone = split.phase.asks(part);
        let Some(segment) = split.segments.get_mut(usize::from(part)) else { return 0 };
        let (waits, len) = (segment.state == State::Waiting, segment.len());
        let patient = match (waits, alone) {
            (true, _) => !quiet,
            (false, true) => segment.skips < policy.patience(segment.sends),
            // A round ends when nothing of it can still be answered.
            (false, false) => segment.skips == 0,
        };
        if patient {
            segment.skips = segment.skips.saturating_add(1);
            segment.last_sent = now;
            self.sent.push(Sent { at: now, ..sent });
            return 0;
        }
        segment.skips = 0;
        if waits || alone {
            segment.state = State::Lost;
            split.waiting -= u8::from(waits);
            self.insert_lost(channel, seq, part);
        } else {
            segment.state = State::Waiting;
            split.waiting += 1;
            if split.all_wait() {
                self.go_on(channel, seq, now);
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
    pub(super) fn go_on(&mut self, channel: Channel, seq: Seq, now: Time) {
        let Some(Found::Split(split)) = self.stream(channel).find(seq) else { return };
        if !split.phase.begin_round() {
            let mut parts = (0..=u8::MAX).zip(&mut split.segments);
            let Some((part, segment)) = parts.find(|(_, segment)| segment.state == State::Waiting) else {
                return;
            };
            // Patient from the start, so that no later ACK hurries it.
            (segment.last_sent, segment.skips) = (now, 1);
            let datagram = segment.datagram;
            return self.sent.push(Sent { at: now, datagram, seq, part, count: 1, channel });
        }
        split.waiting = 0;
        let parts = u8::try_from(split.segments.len()).unwrap_or(u8::MAX);
        for part in 0..parts {
            if let Some(Found::Split(split)) = self.stream(channel).find(seq)
                && let Some(segment) = split.segments.get_mut(usize::from(part))
                && segment.state == State::Waiting
            {
                segment.state = State::Lost;
                self.insert_lost(channel, seq, part);
            }
        }
    }
}

impl SplitMessage {
    /// A part leaves in `datagram`.
    pub(super) fn send(&mut self, part: u8, datagram: u32, now: Time) {
        self.last = now;
        match &mut self.phase {
            Phase::Rounds { sends, .. } => *sends = sends.saturating_add(1),
            Phase::OneByOne { asked } => *asked = Some(part),
        }
        if let Some(segment) = self.segments.get_mut(usize::from(part)) {
            segment.send(datagram, now);
        }
    }

    /// Returns whether all parts that are left wait to be sent again.
    pub(super) const fn all_wait(&self) -> bool {
        self.waiting > 0 && self.waiting == self.left
    }

    /// Returns how long it must be quiet before the next part is sent alone.
    const fn pause(&self) -> u64 {
        match self.habit {
            Habit::Once => PAUSE,
            Habit::Unknown | Habit::Repeats => LONG_PAUSE,
        }
    }

    /// A plain ACK came. If it is certain which part it answers: the bytes of it that were under way, and its length.
    fn note_plain(&mut self, now: Time) -> Option<(usize, usize)> {
        let silent = now.micros_since(self.last);
        (self.plain, self.last) = (true, now);
        let asked = match &mut self.phase {
            Phase::Rounds { sends, answers, .. } => {
                *answers = answers.saturating_add(1);
                let all = *sends >= u16::from(self.left) && *answers >= *sends;
                // As many sends as parts may have been repeats of a few.
                if all && self.segments.iter().all(|segment| segment.state != State::Fresh) {
                    self.phase = Phase::OneByOne { asked: None };
                    self.hold_back();
                }
                return None;
            }
            Phase::OneByOne { asked } => asked.take(),
        };
        let asked = asked.and_then(|part| self.segments.get_mut(usize::from(part)));
        let arrived = asked.and_then(|segment| Some((segment.arrive()?, segment.len())));
        if arrived.is_some() {
            self.left -= 1;
            self.settled = now;
        }
        self.habit = match self.habit {
            Habit::Unknown if arrived.is_some() => Habit::Once,
            _ if arrived.is_none() && silent >= LATE => Habit::Repeats,
            known => known,
        };
        if arrived.is_none() {
            self.hold_back();
        }
        arrived
    }

    /// What was about to be sent waits for its turn: parts are sent one by one.
    fn hold_back(&mut self) {
        for segment in self.segments.iter_mut().filter(|segment| segment.state == State::Lost) {
            segment.state = State::Waiting;
            self.waiting += 1;
        }
    }
}

/// How the parts of a message are sent again to a peer that answers them with plain ACKs.
#[derive(Debug, Clone, Copy)]
pub(super) enum Phase {
    /// All together: how many rounds there were before, and the sends and plain ACKs of this one.
    Rounds { before: u8, sends: u16, answers: u16 },
    /// One after the other: which of them is under way, if one is.
    OneByOne { asked: Option<u8> },
}

impl Default for Phase {
    fn default() -> Self {
        Self::Rounds { before: 0, sends: 0, answers: 0 }
    }
}

impl Phase {
    /// Returns whether this part is under way alone.
    fn asks(&self, part: u8) -> bool {
        matches!(self, Self::OneByOne { asked } if *asked == Some(part))
    }

    /// Begins another round. Returns `false` if there were enough, and parts are sent one by one from now on.
    fn begin_round(&mut self) -> bool {
        match *self {
            Self::Rounds { before, .. } if before < MAX_ROUNDS => {
                *self = Self::Rounds { before: before + 1, sends: 0, answers: 0 };
                return true;
            }
            Self::Rounds { .. } => *self = Self::OneByOne { asked: None },
            Self::OneByOne { .. } => {}
        }
        false
    }
}

/// How often the peer answers one part.
#[derive(Debug, Clone, Copy, Default)]
pub(super) enum Habit {
    #[default]
    Unknown,
    /// Once, so that only the network can double an ACK.
    Once,
    /// Again and again, as stock does, which waits 0.67 s in between.
    Repeats,
}

/// In microseconds: longer than the network holds anything back.
const PAUSE: u64 = 500_000;
/// Longer than several repeats that are lost in a row.
const LONG_PAUSE: u64 = 3_000_000;
/// What comes so long after anything else was not doubled by the network.
const LATE: u64 = 300_000;
/// All parts together are sent again so often. With many parts and much loss no round is ever answered in full.
const MAX_ROUNDS: u8 = 3;
