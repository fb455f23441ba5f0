//! Fills datagrams from an outbox.

use super::stream::{Found, Next, Room, Run, State, Unit};
use super::{Loose, Outbox, Sent};
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
    /// Whether there is something to send besides ACKs, as far as the budget allows.
    #[inline]
    pub(crate) fn readiness(&mut self, budget: usize) -> Readiness {
        let len = |unit: Option<&Unit>| unit.map_or(0, Unit::len);
        let next = if let Some(&(channel, seq, part)) = self.lost.front() {
            len(self.unit(channel, seq, part))
        } else if let Some(next) = self.control.next_fresh() {
            next.len
        } else if let Some(&seq) = self.urgent.front() {
            len(self.game.unit(seq, 0))
        } else if let Some(next) = self.game.next_fresh() {
            next.len
        } else if self.loose.is_empty() {
            return Readiness::Nothing;
        } else {
            return Readiness::Now;
        };
        let now = next <= self.allowance(next, budget) || !self.loose.is_empty();
        if now { Readiness::Now } else { Readiness::Later }
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
        // T-60: a lost datagram of ACKs makes the peer send all of it again, so they do not all travel in one.
        let most = if ready == Readiness::Now { u32::MAX } else { MOST_ACKS_ALONE };
        while let Some(run) = self.acks.front_mut() {
            let some = u8::try_from(most - filled.acks).unwrap_or(u8::MAX).min(run.count);
            let written = writer.push_acks(run.first, some);
            filled.acks += u32::from(written);
            if written < run.count {
                *run = run.after(written);
                break;
            }
            self.acks.skip(1);
        }
        self.owed -= filled.acks as usize;
        let datagram = self.datagrams.wrapping_add(1);
        if ready != Readiness::Nothing {
            let mut filling = Filling { writer, datagram, budget, now };
            self.fill_lost(&mut filling, &mut filled);
            if self.lost.is_empty() {
                self.fill_fresh(&mut filling, &mut filled);
            }
        }
        self.datagrams = datagram;
        filled
    }

    fn fill_lost(&mut self, filling: &mut Filling<'_, '_>, filled: &mut Filled) {
        while let Some(&(channel, seq, part)) = self.lost.front() {
            if self.unit(channel, seq, part).is_some_and(|unit| unit.state == State::Lost) {
                if !self.send(channel, seq, part, filling) {
                    break;
                }
                filled.again += 1;
                filled.game |= channel == Channel::Game;
            }
            self.lost.pop_front();
        }
    }

    fn fill_fresh(&mut self, filling: &mut Filling<'_, '_>, filled: &mut Filled) {
        while let Some(Next { seq, part, .. }) = self.control.next_fresh() {
            if !self.send(Channel::Control, seq, part, filling) {
                return;
            }
            filled.fresh += 1;
        }
        while let Some(&seq) = self.urgent.front() {
            let Some(part) = self.game.first_fresh_part(seq) else {
                self.urgent.skip(1);
                continue;
            };
            if !self.send(Channel::Game, seq, part, filling) {
                return;
            }
            (filled.fresh, filled.game) = (filled.fresh + 1, true);
        }
        self.fill_game(filling, filled);
    }

    fn fill_game(&mut self, filling: &mut Filling<'_, '_>, filled: &mut Filled) {
        loop {
            let next = self.game.next_fresh();
            let sent = match (self.loose.front().copied(), next) {
                (None, None) => return,
                (None, Some(next)) if next.len > filling.writer.room() => return,
                (None, Some(next)) => {
                    let run = self.send_run(next, filling);
                    filled.fresh += u32::from(run.count);
                    filled.game |= run.count > 0;
                    if run.count > 0 && !run.full {
                        continue;
                    }
                    // A part is in no run.
                    !run.full && self.send(Channel::Game, next.seq, next.part, filling)
                }
                (Some(loose), Some(next)) if next.seq.distance_from(loose.before) < 0 => {
                    self.send(Channel::Game, next.seq, next.part, filling)
                }
                (Some(loose), _) => self.send_loose(loose, filling),
            };
            if !sent {
                return;
            }
            (filled.fresh, filled.game) = (filled.fresh + 1, true);
        }
    }

    /// Writes game messages that lie in one piece from `next` on, as many as fit.
    #[inline]
    fn send_run(&mut self, next: Next, filling: &mut Filling<'_, '_>) -> Run {
        let Filling { writer, datagram, budget, now } = filling;
        let bytes = writer.room().min(self.allowance(next.len, *budget));
        let room = Room { bytes, messages: writer.room_messages() };
        let run = self.game.send_run(room, *datagram, *now);
        if run.count > 0 && writer.push_run(self.game.run_bytes(&run), run.count) {
            self.in_flight += run.len;
            let (at, datagram, channel) = (*now, *datagram, Channel::Game);
            self.sent.push(Sent { at, datagram, seq: run.first, part: 0, count: run.count, channel });
        }
        run
    }

    fn send_loose(&mut self, loose: Loose, filling: &mut Filling<'_, '_>) -> bool {
        let len = usize::from(loose.len);
        if !filling.writer.push_encoded(self.loose_bytes.get(loose.at, len)) {
            return false;
        }
        self.loose.skip(1);
        match self.loose.front() {
            Some(next) => self.loose_bytes.release_to(next.at),
            None => self.loose_bytes.release_all(),
        }
        self.queued -= 1;
        self.queued_bytes -= len;
        true
    }

    /// How many bytes may be sent, of which the first message or part takes `first`.
    #[inline]
    fn allowance(&self, first: usize, budget: usize) -> usize {
        // Something must always be under way, or nothing would ever bring the news that there is room again.
        if self.in_flight == 0 { budget.max(first) } else { budget.saturating_sub(self.in_flight) }
    }

    /// Writes a unit. `false` if there is no room in the datagram or in the budget.
    #[inline]
    fn send(&mut self, channel: Channel, seq: Seq, part: u8, filling: &mut Filling<'_, '_>) -> bool {
        let Some(len) = self.unit(channel, seq, part).map(Unit::len) else { return true };
        if len > self.allowance(len, filling.budget) {
            return false;
        }
        let stream = self.stream(channel);
        if !stream.unit(seq, part).is_some_and(|unit| filling.writer.push_encoded(stream.bytes(unit))) {
            return false;
        }
        let (at, datagram) = (filling.now, filling.datagram);
        match stream.find(seq) {
            Some(Found::Whole(unit)) => unit.send(datagram, at),
            Some(Found::Split(group)) => {
                group.sends = group.sends.saturating_add(1);
                if let Some(unit) = group.units.get_mut(usize::from(part)) {
                    unit.send(datagram, at);
                }
            }
            None => {}
        }
        self.in_flight += len;
        self.sent.push(Sent { at, datagram, seq, part, count: 1, channel });
        true
    }
}

const MOST_ACKS_ALONE: u32 = 16;
