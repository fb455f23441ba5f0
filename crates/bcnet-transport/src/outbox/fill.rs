//! Fills datagrams from an outbox.

use super::stream::{DatagramSpace, OutboxSegment, SegmentState, StreamEntryMut, UnsentSegment};
use super::{Outbox, Transmission, UnreliableMessage};
use crate::time::Time;
use crate::wire::{Channel, Seq, Writer};

/// Tells whether there is anything to send besides ACKs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readiness {
    Nothing,
    /// Messages wait, but the congestion window is full.
    Blocked,
    Now,
}

/// The messages that a datagram took from the outbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct FilledDatagram {
    pub(crate) acks: u32,
    pub(crate) retransmits: u32,
    pub(crate) first_sends: u32,
    /// New control messages, by kind.
    pub(crate) control: [u8; 6],
    /// The datagram has game data.
    pub(crate) has_game_data: bool,
}

/// A datagram that is being filled.
struct DatagramInProgress<'w, 'b> {
    writer: &'w mut Writer<'b>,
    datagram: u32,
    window: usize,
    now: Time,
}

impl Outbox {
    /// Returns whether there is anything to send besides ACKs, within the congestion window.
    #[inline]
    pub(crate) fn readiness(&mut self, window: usize) -> Readiness {
        if self.unsent == 0 && self.lost.is_empty() {
            return Readiness::Nothing;
        }
        if self.in_flight == 0 {
            return Readiness::Now;
        }
        self.readiness_in_flight(window)
    }

    /// Does the work of [`readiness`](Self::readiness) if messages wait and others are in flight.
    #[inline(never)]
    fn readiness_in_flight(&mut self, window: usize) -> Readiness {
        let Some(next) = self.next_len() else { return Readiness::Now };
        let now = next <= self.window_space(next, window) || !self.unreliable.is_empty();
        if now { Readiness::Now } else { Readiness::Blocked }
    }

    /// Returns the length of the next reliable message or fragment to send, if there is one.
    #[inline]
    fn next_len(&mut self) -> Option<usize> {
        let len = |segment: Option<&OutboxSegment>| segment.map_or(0, OutboxSegment::len);
        if let Some(&(channel, seq, part)) = self.lost.front() {
            Some(len(self.segment(channel, seq, part)))
        } else if let Some(next) = self.control.next_unsent() {
            Some(next.len)
        } else if let Some(&seq) = self.urgent.front() {
            Some(len(self.game.segment(seq, 0)))
        } else {
            self.game.next_unsent().map(|next| next.len)
        }
    }

    /// Returns whether unreliable messages wait behind a reliable one that does not fit the window.
    #[inline]
    pub(crate) fn blocks_unreliable(&mut self, window: usize) -> bool {
        !self.unreliable.is_empty()
            && (self.unsent > self.unreliable.len() || !self.lost.is_empty())
            && self.next_len().is_some_and(|next| next > self.window_space(next, window))
    }

    /// Fills a datagram (T-60, T-66).
    ///
    /// The order is: ACKs, lost messages, new control messages, new urgent messages, other new messages.
    ///
    /// `ready` must be the result of [`readiness`](Self::readiness) for the same window.
    #[inline]
    pub(crate) fn fill(
        &mut self,
        writer: &mut Writer<'_>,
        ready: Readiness,
        window: usize,
        now: Time,
    ) -> FilledDatagram {
        let mut filled = FilledDatagram::default();
        if self.pending_ack_count > 0 {
            // T-60: if an ACK-only datagram is lost, the peer retransmits every message that it acknowledged.
            // So an ACK-only datagram carries few ACKs.
            let max = if ready == Readiness::Now { u32::MAX } else { MAX_ACKS_PER_ACK_DATAGRAM };
            filled.acks = self.fill_acks(writer, max);
        }
        let datagram = self.datagram_count.wrapping_add(1);
        if ready != Readiness::Nothing {
            let mut filling = DatagramInProgress { writer: &mut *writer, datagram, window, now };
            // Usually only game messages wait, and all of them leave as one run.
            if self.lost.is_empty() && !self.control.has_unsent() && self.urgent.is_empty() {
                self.fill_game(&mut filling, &mut filled);
            } else {
                self.fill_mixed(&mut filling, &mut filled);
            }
            self.unsent -= filled.first_sends as usize;
        }
        // T-62: losses are detected by counting datagrams, so only sent datagrams count.
        if !writer.is_empty() {
            self.datagram_count = datagram;
        }
        filled
    }

    /// Writes at most `max` pending ACKs. Returns how many.
    #[inline]
    fn fill_acks(&mut self, writer: &mut Writer<'_>, max: u32) -> u32 {
        let mut acks = 0;
        while let Some(run) = self.pending_acks.front_mut() {
            let some = u8::try_from(max - acks).unwrap_or(u8::MAX).min(run.count);
            let written = writer.push_acks(run.first, some);
            acks += u32::from(written);
            if written < run.count {
                *run = run.without_first(written);
                break;
            }
            self.pending_acks.drop_front(1);
        }
        self.pending_ack_count -= acks as usize;
        acks
    }

    /// Writes messages of all kinds except ACKs.
    #[inline(never)]
    fn fill_mixed(&mut self, filling: &mut DatagramInProgress<'_, '_>, filled: &mut FilledDatagram) {
        if self.fill_lost(filling, filled)
            && self.fill_control(filling, filled)
            && self.fill_urgent(filling, filled)
        {
            self.fill_game(filling, filled);
        }
    }

    /// Writes lost messages. Returns `false` if some did not fit.
    fn fill_lost(&mut self, filling: &mut DatagramInProgress<'_, '_>, filled: &mut FilledDatagram) -> bool {
        while let Some(&(channel, seq, part)) = self.lost.front() {
            if self.segment(channel, seq, part).is_some_and(|segment| segment.state == SegmentState::Lost) {
                if !self.write_segment(channel, seq, part, filling) {
                    return false;
                }
                filled.retransmits += 1;
                filled.has_game_data |= channel == Channel::Game;
            }
            self.lost.pop_front();
        }
        true
    }

    /// Writes new control messages. Returns `false` if some did not fit.
    fn fill_control(
        &mut self,
        filling: &mut DatagramInProgress<'_, '_>,
        filled: &mut FilledDatagram,
    ) -> bool {
        while let Some(UnsentSegment { seq, fragment: part, .. }) = self.control.next_unsent() {
            if !self.write_segment(Channel::Control, seq, part, filling) {
                return false;
            }
            filled.first_sends += 1;
            let kind =
                self.control.segment(seq, part).and_then(|segment| self.control.bytes(segment).first());
            if let Some(count) = kind.and_then(|kind| filled.control.get_mut(usize::from(*kind))) {
                *count = count.saturating_add(1);
            }
        }
        true
    }

    /// Writes new urgent messages. Returns `false` if some did not fit.
    fn fill_urgent(&mut self, filling: &mut DatagramInProgress<'_, '_>, filled: &mut FilledDatagram) -> bool {
        while let Some(&seq) = self.urgent.front() {
            let Some(part) = self.game.first_unsent_fragment(seq) else {
                self.urgent.drop_front(1);
                continue;
            };
            if !self.write_segment(Channel::Game, seq, part, filling) {
                return false;
            }
            (filled.first_sends, filled.has_game_data) = (filled.first_sends + 1, true);
        }
        true
    }

    #[inline]
    fn fill_game(&mut self, filling: &mut DatagramInProgress<'_, '_>, filled: &mut FilledDatagram) {
        while filled.first_sends as usize != self.unsent {
            let (run, full) = if self.unreliable.is_empty() { self.write_run(filling) } else { (0, false) };
            let sent = if run > 0 { run } else { self.write_next(filling) };
            filled.first_sends += u32::from(sent);
            filled.has_game_data |= sent > 0;
            if sent == 0 || full {
                return;
            }
        }
    }

    /// Writes contiguous game messages, as many as fit.
    ///
    /// Returns how many, and whether the next message did not fit.
    #[inline]
    fn write_run(&mut self, filling: &mut DatagramInProgress<'_, '_>) -> (u8, bool) {
        let DatagramInProgress { writer, datagram, window: budget, now } = filling;
        let bytes = writer.free_bytes().min(budget.saturating_sub(self.in_flight));
        let room = DatagramSpace { bytes, messages: writer.free_messages() };
        let run = self.game.mark_run_sent(room, *datagram, *now);
        if run.count > 0 && writer.push_run(self.game.run_bytes(&run), run.count) {
            self.in_flight += run.len;
            self.record_transmission(run.first, run.count, *datagram, *now);
        }
        (run.count, run.is_full)
    }

    /// Writes the next game message or fragment, if it fits. Returns how many it wrote.
    #[inline(never)]
    fn write_next(&mut self, filling: &mut DatagramInProgress<'_, '_>) -> u8 {
        u8::from(match (self.unreliable.front().copied(), self.game.next_unsent()) {
            (None, None) => false,
            (None, Some(next)) if next.len > filling.writer.free_bytes() => false,
            (Some(unreliable), Some(next)) if next.seq.distance_from(unreliable.before) >= 0 => {
                self.write_unreliable(unreliable, filling)
            }
            (_, Some(next)) => self.write_segment(Channel::Game, next.seq, next.fragment, filling),
            (Some(unreliable), None) => self.write_unreliable(unreliable, filling),
        })
    }

    fn write_unreliable(
        &mut self,
        unreliable: UnreliableMessage,
        filling: &mut DatagramInProgress<'_, '_>,
    ) -> bool {
        let len = usize::from(unreliable.len);
        if !filling.writer.push_encoded(self.unreliable_bytes.get(unreliable.offset, len)) {
            return false;
        }
        self.unreliable.drop_front(1);
        match self.unreliable.front() {
            Some(next) => self.unreliable_bytes.release_to(next.offset),
            None => self.unreliable_bytes.release_all(),
        }
        self.queued -= 1;
        self.queued_bytes -= len;
        true
    }

    /// Returns how many bytes may be sent now; `first` is the length of the next message or fragment.
    #[inline]
    fn window_space(&self, first: usize, window: usize) -> usize {
        // At least one message must be in flight: otherwise no ACK would ever open the window.
        if self.in_flight == 0 { window.max(first) } else { window.saturating_sub(self.in_flight) }
    }

    /// Writes a message or fragment. Returns `false` if the datagram or the window has no space.
    #[inline]
    fn write_segment(
        &mut self,
        channel: Channel,
        seq: Seq,
        fragment: u8,
        filling: &mut DatagramInProgress<'_, '_>,
    ) -> bool {
        let Some(len) = self.segment(channel, seq, fragment).map(OutboxSegment::len) else { return true };
        if len > self.window_space(len, filling.window) {
            return false;
        }
        let stream = self.stream(channel);
        if !stream
            .segment(seq, fragment)
            .is_some_and(|segment| filling.writer.push_encoded(stream.bytes(segment)))
        {
            return false;
        }
        let (at, datagram) = (filling.now, filling.datagram);
        match stream.find_mut(seq) {
            Some(StreamEntryMut::Whole(segment)) => segment.mark_sent(datagram, at),
            Some(StreamEntryMut::Split(split)) => split.mark_fragment_sent(fragment, datagram, at),
            None => {}
        }
        self.in_flight += len;
        self.transmissions.push(Transmission { sent_at: at, datagram, seq, fragment, count: 1, channel });
        true
    }
}

const MAX_ACKS_PER_ACK_DATAGRAM: u32 = 16;
