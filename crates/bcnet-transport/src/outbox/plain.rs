//! T-65: parts that a peer answers with plain ACKs, which do not tell what arrived.
//!
//! All parts are sent again, round by round, until a round is answered in full. Then most likely all have arrived, but
//! an ACK that was doubled on the way, or that the peer repeats, may stand for one that was never sent. So each part is
//! then sent once more, alone, after a time in which nothing was said about the message: what comes next answers it.
//! Only an ACK that is later than that pause could still deceive.

use super::stream::{Found, Group, State};
use super::{Outbox, Pace, Sent, Settled};
use crate::time::Time;
use crate::wire::{Channel, Seq};

impl Outbox {
    /// A plain ACK for a message that was split.
    #[cold]
    pub(super) fn note_plain(&mut self, channel: Channel, seq: Seq, now: Time) -> Settled {
        let Some(Found::Split(group)) = self.stream(channel).find(seq) else { return Settled::Useless };
        if group.left == 0 {
            return Settled::Useless;
        }
        let busy = !group.all_wait();
        let arrived = group.note_plain(now);
        if busy && group.all_wait() {
            self.go_on(channel, seq, now);
        }
        let Some((flown, bytes)) = arrived else { return Settled::Noted };
        self.in_flight -= flown;
        self.queued -= 1;
        self.queued_bytes -= bytes;
        Settled::Arrived { bytes, trip: None, most: None }
    }

    /// A part was not answered in time, or has waited a while for its turn. Returns how many bytes were lost.
    #[cold]
    pub(super) fn give_up_plain(&mut self, sent: Sent, pace: Pace, now: Time) -> usize {
        let Sent { seq, part, channel, .. } = sent;
        let Some(Found::Split(group)) = self.stream(channel).find(seq) else { return 0 };
        let quiet = now.micros_since(group.last) >= pace.timeout.saturating_mul(2).max(group.pause());
        let alone = group.asked == Some(part);
        let Some(unit) = group.units.get_mut(usize::from(part)) else { return 0 };
        let (waits, len) = (unit.state == State::Waiting, unit.len());
        let patient = match (waits, alone) {
            (true, _) => !quiet,
            (false, true) => unit.skips < pace.patience(unit.sends),
            // A round ends when nothing of it can still be answered.
            (false, false) => unit.skips == 0,
        };
        if patient {
            unit.skips = unit.skips.saturating_add(1);
            unit.last_sent = now;
            self.sent.push(Sent { at: now, ..sent });
            return 0;
        }
        unit.skips = 0;
        if waits || alone {
            unit.state = State::Lost;
            group.waiting -= u8::from(waits);
            self.insert_lost(channel, seq, part);
        } else {
            unit.state = State::Waiting;
            group.waiting += 1;
            if group.all_wait() {
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
        let Some(Found::Split(group)) = self.stream(channel).find(seq) else { return };
        if group.one_by_one || group.rounds >= MAX_ROUNDS {
            group.one_by_one = true;
            let mut parts = (0..=u8::MAX).zip(&mut group.units);
            let Some((part, unit)) = parts.find(|(_, unit)| unit.state == State::Waiting) else { return };
            // Patient from the start, so that no later ACK hurries it.
            (unit.last_sent, unit.skips) = (now, 1);
            let datagram = unit.datagram;
            return self.sent.push(Sent { at: now, datagram, seq, part, count: 1, channel });
        }
        (group.rounds, group.waiting, group.sends, group.answers) = (group.rounds + 1, 0, 0, 0);
        let parts = u8::try_from(group.units.len()).unwrap_or(u8::MAX);
        for part in 0..parts {
            if let Some(Found::Split(group)) = self.stream(channel).find(seq)
                && let Some(unit) = group.units.get_mut(usize::from(part))
                && unit.state == State::Waiting
            {
                unit.state = State::Lost;
                self.insert_lost(channel, seq, part);
            }
        }
    }
}

impl Group {
    /// A part leaves in `datagram`.
    pub(super) fn send(&mut self, part: u8, datagram: u32, now: Time) {
        self.sends = self.sends.saturating_add(1);
        self.last = now;
        self.asked = self.one_by_one.then_some(part);
        if let Some(unit) = self.units.get_mut(usize::from(part)) {
            unit.send(datagram, now);
        }
    }

    /// Whether all parts that are left wait to be sent again.
    pub(super) const fn all_wait(&self) -> bool {
        self.waiting > 0 && self.waiting == self.left
    }

    /// How long it must be quiet before the next part is sent alone.
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
        if !self.one_by_one {
            self.answers = self.answers.saturating_add(1);
            // As many sends as parts may have been repeats of a few.
            let sent = || self.units.iter().all(|unit| unit.state != State::Fresh);
            self.one_by_one = self.sends >= u16::from(self.left) && self.answers >= self.sends && sent();
            if self.one_by_one {
                self.hold_back();
            }
            return None;
        }
        let asked = self.asked.take().and_then(|part| self.units.get_mut(usize::from(part)));
        let arrived = asked.and_then(|unit| Some((unit.arrive()?, unit.len())));
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
        for unit in self.units.iter_mut().filter(|unit| unit.state == State::Lost) {
            unit.state = State::Waiting;
            self.waiting += 1;
        }
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
