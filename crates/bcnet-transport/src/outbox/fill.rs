//! Fills datagrams from an outbox.

use super::stream::{Capacity, Found, Next, Segment, State};
use super::{Outbox, Sent, Unreliable};
use crate::time::Time;
use crate::wire::{Channel, Seq, Writer};

/// Whether there is something to send besides ACKs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readiness {
    Nothing,
    /// Something, but the budget is used up.
    Later,
    Now,
}

/// What a datagram took from the outbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Filled {
    pub(crate) acks: u32,
    pub(crate) again: u32,
    pub(crate) fresh: u32,
    /// Control messages among the fresh ones, by kind.
    pub(crate) control: [u8; 6],
    /// Whether game data is among it.
    pub(crate) game: bool,
}

/// A datagram that is being filled.
struct Filling<'w, 'b> {
    writer: &'w mut Writer<'b>,
    datagram: u32,
    budget: usize,
    now: Time,
}

impl Outbox {
    /// Returns whether there is something to send besides ACKs, as far as the budget allows.
    #[inline]
    pub(crate) fn readiness(&mut self, budget: usize) -> Readiness {
        if self.fresh == 0 && self.lost.is_empty() {
            return Readiness::Nothing;
        }
        if self.in_flight == 0 {
            return Readiness::Now;
        }
        self.readiness_under_way(budget)
    }

    /// As [`readiness`](Self::readiness), if something waits and something else is under way.
    #[inline(never)]
    fn readiness_under_way(&mut self, budget: usize) -> Readiness {
        let Some(next) = self.next_len() else { return Readiness::Now };
        let now = next <= self.allowance(next, budget) || !self.unreliable.is_empty();
        if now { Readiness::Now } else { Readiness::Later }
    }

    /// Returns the length of the reliable message or part that is sent next, if there is one.
    #[inline]
    fn next_len(&mut self) -> Option<usize> {
        let len = |segment: Option<&Segment>| segment.map_or(0, Segment::len);
        if let Some(&(channel, seq, part)) = self.lost.front() {
            Some(len(self.segment(channel, seq, part)))
        } else if let Some(next) = self.control.next_fresh() {
            Some(next.len)
        } else if let Some(&seq) = self.urgent.front() {
            Some(len(self.game.segment(seq, 0)))
        } else {
            self.game.next_fresh().map(|next| next.len)
        }
    }

    /// Returns whether unreliable messages wait behind a reliable one for which there is no budget.
    #[inline]
    pub(crate) fn holds_up_unreliable(&mut self, budget: usize) -> bool {
        !self.unreliable.is_empty()
            && (self.fresh > self.unreliable.len() || !self.lost.is_empty())
            && self.next_len().is_some_and(|next| next > self.allowance(next, budget))
    }

    /// T-60, T-66: ACKs first, then what was lost, then what is fresh: control, urgent, the rest, each in order.
    ///
    /// `ready` is what [`readiness`](Self::readiness) says for the same budget.
    #[inline]
    pub(crate) fn fill(
        &mut self,
        writer: &mut Writer<'_>,
        ready: Readiness,
        budget: usize,
        now: Time,
    ) -> Filled {
        let mut filled = Filled::default();
        if self.owed > 0 {
            // T-60: a lost datagram of ACKs makes the peer send all of it again, so they do not all travel in one.
            let max = if ready == Readiness::Now { u32::MAX } else { MAX_ACKS_ALONE };
            filled.acks = self.fill_acks(writer, max);
        }
        let datagram = self.datagrams.wrapping_add(1);
        if ready != Readiness::Nothing {
            let mut filling = Filling { writer: &mut *writer, datagram, budget, now };
            // Mostly nothing goes ahead of game messages, and all of them leave in one piece.
            if self.lost.is_empty() && !self.control.has_fresh() && self.urgent.is_empty() {
                self.fill_game(&mut filling, &mut filled);
            } else {
                self.fill_mixed(&mut filling, &mut filled);
            }
            self.fresh -= filled.fresh as usize;
        }
        // T-62: loss is told by counting datagrams, so only those count that leave.
        if !writer.is_empty() {
            self.datagrams = datagram;
        }
        filled
    }

    /// Writes owed ACKs, `max` of them. Returns how many.
    #[inline]
    fn fill_acks(&mut self, writer: &mut Writer<'_>, max: u32) -> u32 {
        let mut acks = 0;
        while let Some(run) = self.acks.front_mut() {
            let some = u8::try_from(max - acks).unwrap_or(u8::MAX).min(run.count);
            let written = writer.push_acks(run.first, some);
            acks += u32::from(written);
            if written < run.count {
                *run = run.after(written);
                break;
            }
            self.acks.skip(1);
        }
        self.owed -= acks as usize;
        acks
    }

    /// Writes what is not ACKs, whatever it is.
    #[inline(never)]
    fn fill_mixed(&mut self, filling: &mut Filling<'_, '_>, filled: &mut Filled) {
        if self.fill_lost(filling, filled)
            && self.fill_control(filling, filled)
            && self.fill_urgent(filling, filled)
        {
            self.fill_game(filling, filled);
        }
    }

    /// `false` if some had no room.
    fn fill_lost(&mut self, filling: &mut Filling<'_, '_>, filled: &mut Filled) -> bool {
        while let Some(&(channel, seq, part)) = self.lost.front() {
            if self.segment(channel, seq, part).is_some_and(|segment| segment.state == State::Lost) {
                if !self.send(channel, seq, part, filling) {
                    return false;
                }
                filled.again += 1;
                filled.game |= channel == Channel::Game;
            }
            self.lost.pop_front();
        }
        true
    }

    /// `false` if some had no room.
    fn fill_control(&mut self, filling: &mut Filling<'_, '_>, filled: &mut Filled) -> bool {
        while let Some(Next { seq, part, .. }) = self.control.next_fresh() {
            if !self.send(Channel::Control, seq, part, filling) {
                return false;
            }
            filled.fresh += 1;
            let kind =
                self.control.segment(seq, part).and_then(|segment| self.control.bytes(segment).first());
            if let Some(count) = kind.and_then(|kind| filled.control.get_mut(usize::from(*kind))) {
                *count = count.saturating_add(1);
            }
        }
        true
    }

    /// `false` if some had no room.
    fn fill_urgent(&mut self, filling: &mut Filling<'_, '_>, filled: &mut Filled) -> bool {
        while let Some(&seq) = self.urgent.front() {
            let Some(part) = self.game.first_fresh_part(seq) else {
                self.urgent.skip(1);
                continue;
            };
            if !self.send(Channel::Game, seq, part, filling) {
                return false;
            }
            (filled.fresh, filled.game) = (filled.fresh + 1, true);
        }
        true
    }

    #[inline]
    fn fill_game(&mut self, filling: &mut Filling<'_, '_>, filled: &mut Filled) {
        while filled.fresh as usize != self.fresh {
            let (run, full) = if self.unreliable.is_empty() { self.send_run(filling) } else { (0, false) };
            let sent = if run > 0 { run } else { self.send_next(filling) };
            filled.fresh += u32::from(sent);
            filled.game |= sent > 0;
            if sent == 0 || full {
                return;
            }
        }
    }

    /// Writes game messages that lie in one piece, as many as fit. Returns how many, and whether there is no room for
    /// the next.
    #[inline]
    fn send_run(&mut self, filling: &mut Filling<'_, '_>) -> (u8, bool) {
        let Filling { writer, datagram, budget, now } = filling;
        let bytes = writer.room().min(budget.saturating_sub(self.in_flight));
        let room = Capacity { bytes, messages: writer.room_messages() };
        let run = self.game.send_run(room, *datagram, *now);
        if run.count > 0 && writer.push_run(self.game.run_bytes(&run), run.count) {
            self.in_flight += run.len;
            self.note_sent(run.first, run.count, *datagram, *now);
        }
        (run.count, run.full)
    }

    /// Writes the next game message, or part, if it fits. Returns how many.
    #[inline(never)]
    fn send_next(&mut self, filling: &mut Filling<'_, '_>) -> u8 {
        u8::from(match (self.unreliable.front().copied(), self.game.next_fresh()) {
            (None, None) => false,
            (None, Some(next)) if next.len > filling.writer.room() => false,
            (Some(unreliable), Some(next)) if next.seq.distance_from(unreliable.before) >= 0 => {
                self.send_unreliable(unreliable, filling)
            }
            (_, Some(next)) => self.send(Channel::Game, next.seq, next.part, filling),
            (Some(unreliable), None) => self.send_unreliable(unreliable, filling),
        })
    }

    fn send_unreliable(&mut self, unreliable: Unreliable, filling: &mut Filling<'_, '_>) -> bool {
        let len = usize::from(unreliable.len);
        if !filling.writer.push_encoded(self.unreliable_bytes.get(unreliable.at, len)) {
            return false;
        }
        self.unreliable.skip(1);
        match self.unreliable.front() {
            Some(next) => self.unreliable_bytes.release_to(next.at),
            None => self.unreliable_bytes.release_all(),
        }
        self.queued -= 1;
        self.queued_bytes -= len;
        true
    }

    /// Returns how many bytes may be sent, of which the first message or part takes `first`.
    #[inline]
    fn allowance(&self, first: usize, budget: usize) -> usize {
        // Something must always be under way, or nothing would ever bring the news that there is room again.
        if self.in_flight == 0 { budget.max(first) } else { budget.saturating_sub(self.in_flight) }
    }

    /// Writes a segment. Returns `false` if there is no room in the datagram or in the budget.
    #[inline]
    fn send(&mut self, channel: Channel, seq: Seq, part: u8, filling: &mut Filling<'_, '_>) -> bool {
        let Some(len) = self.segment(channel, seq, part).map(Segment::len) else { return true };
        if len > self.allowance(len, filling.budget) {
            return false;
        }
        let stream = self.stream(channel);
        if !stream
            .segment(seq, part)
            .is_some_and(|segment| filling.writer.push_encoded(stream.bytes(segment)))
        {
            return false;
        }
        let (at, datagram) = (filling.now, filling.datagram);
        match stream.find(seq) {
            Some(Found::Whole(segment)) => segment.send(datagram, at),
            Some(Found::Split(split)) => split.send(part, datagram, at),
            None => {}
        }
        self.in_flight += len;
        self.sent.push(Sent { at, datagram, seq, part, count: 1, channel });
        true
    }
}

const MAX_ACKS_ALONE: u32 = 16;
