//! The reliable messages of one channel, from `queue` until they are acknowledged, as they go over the wire.
//!
//! Every operation on one message costs the same however many there are: its sequence number is its place in a queue.
//! Messages that were queued one after the other lie one after the other, so a datagram takes many in one piece.

use alloc::vec::Vec;

use super::plain::{Habit, Phase};
use crate::queue::Queue;
use crate::ring::ByteRing;
use crate::time::Time;
use crate::wire::Seq;

/// A message, or a part of one, that waits for its ACK.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segment {
    pub(super) first_sent: Time,
    pub(super) last_sent: Time,
    /// The datagram that carried it last.
    pub(super) datagram: u32,
    /// Where its bytes lie.
    at: u32,
    len: u16,
    pub(super) sends: u8,
    /// How often a timeout passed without sending again.
    pub(super) skips: u8,
    pub(super) state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Never sent.
    Fresh,
    /// Sent, and an ACK is hoped for.
    Flying,
    /// Timed out, but waits for the other parts, or for its turn, before it is sent again (T-65).
    Waiting,
    /// To be sent again.
    Lost,
    /// Acknowledged.
    Done,
}

/// What one sequence number stands for.
#[derive(Debug, Clone, Copy)]
enum Entry {
    Whole(Segment),
    /// The place of its split.
    Split(u32),
}

/// The parts of a message that was split.
#[derive(Debug, Default)]
pub(super) struct SplitMessage {
    pub(super) segments: Vec<Segment>,
    /// How many are not done.
    pub(super) left: u8,
    /// How many wait for the others.
    pub(super) waiting: u8,
    /// The peer answers parts with plain ACKs (T-65).
    pub(super) plain: bool,
    pub(super) phase: Phase,
    pub(super) habit: Habit,
    /// When a part was last sent, or a plain ACK came.
    pub(super) last: Time,
    /// When a plain ACK last settled a part: one by one takes its time, and is not the same as being stuck (T-64).
    pub(super) settled: Time,
}

/// What a sequence number stands for, to be changed.
pub(super) enum Found<'a> {
    Whole(&'a mut Segment),
    Split(&'a mut SplitMessage),
}

/// Something that was never sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Next {
    pub(super) seq: Seq,
    pub(super) part: u8,
    pub(super) len: usize,
}

/// What still fits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Capacity {
    pub(super) bytes: usize,
    pub(super) messages: u8,
}

/// Fresh messages that lie in one piece.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    pub(super) first: Seq,
    pub(super) count: u8,
    /// Another message follows, for which there is no room.
    pub(super) full: bool,
    at: u32,
    pub(super) len: usize,
}

/// One channel's reliable messages, in order.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    entries: Queue<Entry>,
    /// The number of the first entry.
    base: Seq,
    bytes: ByteRing,
    /// The first entry that may have something fresh, and its part, counted from `base`.
    fresh: (u16, u8),
    splits: Vec<SplitMessage>,
    /// Split messages that are used again.
    spare: Vec<u32>,
}

impl Stream {
    /// Takes a message, or the next part of one that has so many `parts`. Returns how many bytes it has, or `None` if it
    /// is too long to be kept.
    #[inline(always)]
    pub(super) fn queue(&mut self, seq: Seq, parts: Option<u8>, head: &[u8], body: &[u8]) -> Option<usize> {
        let (at, len) = self.bytes.store(head, body)?;
        if self.entries.is_empty() {
            (self.base, self.fresh) = (seq, (0, 0));
        }
        let (never, state) = (Time::ZERO, State::Fresh);
        let segment =
            Segment { first_sent: never, last_sent: never, datagram: 0, at, len, sends: 0, skips: 0, state };
        let Some(parts) = parts else {
            self.entries.push(Entry::Whole(segment));
            return Some(segment.len());
        };
        if self.index(seq) >= self.entries.len() {
            let place = self.new_split(parts)?;
            self.entries.push(Entry::Split(place));
        }
        if let Some(Found::Split(split)) = self.find(seq) {
            split.segments.push(segment);
        }
        Some(segment.len())
    }

    fn new_split(&mut self, parts: u8) -> Option<u32> {
        let place = match self.spare.pop() {
            Some(place) => place,
            None => {
                self.splits.push(SplitMessage::default());
                u32::try_from(self.splits.len() - 1).ok()?
            }
        };
        let split = self.splits.get_mut(place as usize)?;
        *split = SplitMessage {
            segments: core::mem::take(&mut split.segments),
            left: parts,
            ..SplitMessage::default()
        };
        split.segments.clear();
        Some(place)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the number of the first entry.
    pub(super) const fn base(&self) -> Seq {
        self.base
    }

    /// Returns how many numbers are in use from the oldest that is not acknowledged on, and the bytes their messages
    /// lie in.
    #[inline]
    pub(super) fn retained(&self) -> (usize, usize) {
        (self.entries.len(), self.bytes.used())
    }

    /// Returns whether a number still stands for something.
    #[inline]
    pub(super) fn has(&self, seq: Seq) -> bool {
        self.index(seq) < self.entries.len()
    }

    /// Returns how many numbers `seq` is behind the first that is still here.
    #[inline]
    pub(super) const fn behind(&self, seq: Seq) -> u16 {
        self.base.0.wrapping_sub(seq.0)
    }

    /// Returns what a number stands for.
    #[inline]
    pub(super) fn find(&mut self, seq: Seq) -> Option<Found<'_>> {
        let index = self.index(seq);
        match self.entries.get_mut(index)? {
            Entry::Whole(segment) => Some(Found::Whole(segment)),
            Entry::Split(place) => self.splits.get_mut(*place as usize).map(Found::Split),
        }
    }

    /// Returns a message, or a part if it is split.
    #[inline]
    pub(super) fn segment(&self, seq: Seq, part: u8) -> Option<&Segment> {
        match self.entries.get(self.index(seq))? {
            Entry::Whole(segment) => Some(segment),
            Entry::Split(place) => self.splits.get(*place as usize)?.segments.get(usize::from(part)),
        }
    }

    pub(super) fn bytes(&self, segment: &Segment) -> &[u8] {
        self.bytes.get(segment.at, segment.len())
    }

    pub(super) fn run_bytes(&self, run: &Run) -> &[u8] {
        self.bytes.get(run.at, run.len)
    }

    /// Returns whether something may never have been sent.
    #[inline]
    pub(super) fn has_fresh(&self) -> bool {
        usize::from(self.fresh.0) < self.entries.len()
    }

    /// Returns the next part that was never sent, or the message if it is whole.
    #[inline]
    pub(super) fn next_fresh(&mut self) -> Option<Next> {
        loop {
            let (index, part) = self.fresh;
            let segment = match self.entries.get(usize::from(index))? {
                Entry::Whole(segment) => (segment.state == State::Fresh).then_some(segment),
                Entry::Split(place) => {
                    self.splits.get(*place as usize).and_then(|split| split.segments.get(usize::from(part)))
                }
            };
            match segment {
                Some(segment) if segment.state == State::Fresh => {
                    return Some(Next {
                        seq: Seq(self.base.0.wrapping_add(index)),
                        part,
                        len: segment.len(),
                    });
                }
                Some(_) if part < u8::MAX => self.fresh = (index, part + 1),
                _ => self.fresh = (index.wrapping_add(1), 0),
            }
        }
    }

    /// Notes the next message as sent, if it is fresh, whole and not longer than `max`. Returns its number and its bytes.
    #[inline(always)]
    pub(crate) fn send_one(&mut self, max: usize, datagram: u32, now: Time) -> Option<(Seq, &[u8])> {
        let (index, _) = self.fresh;
        let Entry::Whole(segment) = self.entries.get_mut(usize::from(index))? else { return None };
        if segment.state != State::Fresh || segment.len() > max {
            return None;
        }
        segment.send(datagram, now);
        self.fresh.0 = index.wrapping_add(1);
        Some((Seq(self.base.0.wrapping_add(index)), self.bytes.get(segment.at, segment.len())))
    }

    /// Notes as sent what is fresh, whole, in one piece and has `room`. Nothing may be, where something else comes first.
    #[inline]
    pub(super) fn send_run(&mut self, room: Capacity, datagram: u32, now: Time) -> Run {
        let (mut index, _) = self.fresh;
        let first = Seq(self.base.0.wrapping_add(index));
        let mut run = Run { first, count: 0, full: false, at: 0, len: 0 };
        let (mut end, mut left) = (0, 0);
        while let Some(Entry::Whole(segment)) = self.entries.get_mut(usize::from(index)) {
            let len = run.len + segment.len();
            if run.count == 0 {
                (run.at, end, left) = (segment.at, segment.at, self.bytes.left_from(segment.at));
            }
            // What is next by its offset may lie at the other end of the ring.
            if segment.state != State::Fresh || segment.at != end || len > left {
                break;
            }
            if len > room.bytes || run.count == room.messages {
                run.full = true;
                break;
            }
            end = segment.at.wrapping_add(segment.len.into());
            segment.send(datagram, now);
            (run.len, run.count, index) = (len, run.count + 1, index.wrapping_add(1));
        }
        self.fresh.0 = index;
        run
    }

    /// Returns the first part of a message that was never sent.
    pub(super) fn first_fresh_part(&self, seq: Seq) -> Option<u8> {
        match self.entries.get(self.index(seq))? {
            Entry::Whole(segment) => (segment.state == State::Fresh).then_some(0),
            Entry::Split(place) => {
                let segments = &self.splits.get(*place as usize)?.segments;
                u8::try_from(segments.iter().position(|segment| segment.state == State::Fresh)?).ok()
            }
        }
    }

    /// Drops what is done from the front.
    pub(super) fn trim(&mut self) {
        let mut done = 0;
        let keep = loop {
            match self.entries.get(done) {
                Some(Entry::Whole(segment)) if segment.state != State::Done => break Some(segment.at),
                Some(Entry::Whole(_)) => {}
                Some(&Entry::Split(place)) => {
                    let split = self.splits.get(place as usize);
                    match split.filter(|split| split.left > 0) {
                        Some(split) => break split.segments.first().map(|segment| segment.at),
                        None => self.spare.push(place),
                    }
                }
                None => break None,
            }
            done += 1;
        };
        if done == 0 {
            return;
        }
        self.entries.skip(done);
        let done = u16::try_from(done).unwrap_or(u16::MAX);
        self.base = Seq(self.base.0.wrapping_add(done));
        let (index, part) = self.fresh;
        self.fresh = index.checked_sub(done).map_or((0, 0), |index| (index, part));
        match keep {
            Some(at) => self.bytes.release_to(at),
            None => {
                self.fresh = (0, 0);
                self.bytes.release_all();
            }
        }
    }

    /// Returns when the first message was sent first, if it was, or when something of it was settled since.
    #[inline]
    pub(super) fn oldest(&self) -> Option<Time> {
        self.since(self.base)
    }

    /// As [`oldest`](Self::oldest), for the message with this number.
    #[inline]
    pub(super) fn since(&self, seq: Seq) -> Option<Time> {
        let (segment, settled) = match self.entries.get(self.index(seq))? {
            Entry::Whole(segment) => (segment, Time::ZERO),
            Entry::Split(place) => {
                let split = self.splits.get(*place as usize)?;
                (split.segments.iter().find(|segment| segment.state != State::Done)?, split.settled)
            }
        };
        (segment.sends > 0).then(|| segment.first_sent.max(settled))
    }

    /// Returns all segments with their number and part.
    pub(super) fn segments(&self) -> impl Iterator<Item = ((Seq, Option<u8>), &Segment)> {
        (0_u16..).zip(self.entries.iter()).flat_map(|(index, entry)| {
            let seq = Seq(self.base.0.wrapping_add(index));
            let (whole, split) = match entry {
                Entry::Whole(segment) => (Some(segment), None),
                Entry::Split(place) => (None, self.splits.get(*place as usize)),
            };
            let parts = split.into_iter().flat_map(|split| &split.segments);
            let parts = (0..=u8::MAX).zip(parts).map(move |(part, segment)| ((seq, Some(part)), segment));
            whole.map(|segment| ((seq, None), segment)).into_iter().chain(parts)
        })
    }

    #[inline]
    fn index(&self, seq: Seq) -> usize {
        usize::from(seq.0.wrapping_sub(self.base.0))
    }
}

impl Segment {
    #[inline]
    pub(super) fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Returns whether the last that became of it is that it was sent so, or has waited since then.
    #[inline]
    pub(super) fn is_awaited_since(&self, datagram: u32, at: Time) -> bool {
        let awaited = matches!(self.state, State::Flying | State::Waiting);
        awaited && self.last_sent == at && self.datagram == datagram
    }

    /// It leaves in `datagram`.
    #[inline]
    pub(super) fn send(&mut self, datagram: u32, now: Time) {
        if self.sends == 0 {
            self.first_sent = now;
        }
        self.sends = self.sends.saturating_add(1);
        (self.last_sent, self.datagram, self.state) = (now, datagram, State::Flying);
    }

    /// It has arrived. Returns how many of its bytes were under way, or `None` if it was not waited for.
    #[inline]
    pub(super) fn arrive(&mut self) -> Option<usize> {
        let flown = if self.state == State::Flying { self.len() } else { 0 };
        if matches!(self.state, State::Fresh | State::Done) {
            return None;
        }
        self.state = State::Done;
        Some(flown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_holds_the_bytes_of_its_messages_wherever_the_ring_ends() {
        // 16 messages of 16 bytes fill the smallest ring exactly, so that the next lies at its other end.
        let mut stream = Stream::default();
        let (mut queued, mut sent) = (0_u8, 0_u8);
        let room = Capacity { bytes: 100, messages: 255 };
        for _ in 0..500 {
            while queued.wrapping_sub(sent) < 9 {
                assert_eq!(stream.queue(Seq(queued.into()), None, &[queued], &[0; 15]), Some(16));
                queued += 1;
                if queued == 255 {
                    return;
                }
            }
            assert!(stream.next_fresh().is_some());
            let run = stream.send_run(room, 1, Time::ZERO);
            let bytes = stream.run_bytes(&run);
            assert!(run.count > 0 && bytes.len() == run.len && run.len == 16 * usize::from(run.count));
            let firsts: Vec<u8> = bytes.chunks(16).filter_map(<[u8]>::first).copied().collect();
            for first in firsts {
                assert_eq!(first, sent);
                if let Some(Found::Whole(segment)) = stream.find(Seq(sent.into())) {
                    assert!(segment.arrive().is_some());
                }
                sent += 1;
            }
            stream.trim();
        }
    }
}
