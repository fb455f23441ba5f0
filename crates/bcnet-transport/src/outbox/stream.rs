//! The reliable messages of one channel in encoded form, until they are acknowledged.
//!
//! Every operation on one message takes constant time: its sequence number gives its index in a queue.
//! Messages that were queued one after the other are contiguous in memory, so a datagram copies many in one
//! piece.

use alloc::vec::Vec;

use super::plain_acks::{AckHabit, RetransmitPhase};
use crate::queue::RingQueue;
use crate::ring::ByteRing;
use crate::time::Time;
use crate::wire::Seq;

/// A message or fragment with its send state.
#[derive(Debug, Clone, Copy)]
pub(super) struct OutboxSegment {
    pub(super) first_sent: Time,
    pub(super) last_sent: Time,
    /// The datagram that carried it last.
    pub(super) datagram: u32,
    /// The offset of its bytes.
    offset: u32,
    len: u16,
    pub(super) sends: u8,
    /// The number of timeouts without a retransmission.
    pub(super) skipped_timeouts: u8,
    /// The number of sends when an ACK arrived that was not trusted alone (T-60), or 0.
    pub(super) sends_at_first_ack: u8,
    pub(super) state: SegmentState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SegmentState {
    /// Never sent.
    Unsent,
    /// Sent, and not acknowledged yet.
    InFlight,
    /// Timed out, but waits for the other fragments, or for its turn, before it is retransmitted (T-65).
    Deferred,
    /// Marked for retransmission.
    Lost,
    /// Acknowledged.
    Acked,
}

/// The content of one sequence number.
#[derive(Debug, Clone, Copy)]
enum StreamEntry {
    Whole(OutboxSegment),
    /// The index of its [`SplitMessage`].
    Split(u32),
}

/// The fragments of a split message.
#[derive(Debug, Default)]
pub(super) struct SplitMessage {
    pub(super) segments: Vec<OutboxSegment>,
    /// The number of unacknowledged fragments.
    pub(super) unacked: u8,
    /// The number of deferred fragments.
    pub(super) deferred: u8,
    /// The peer answers fragments with plain ACKs (T-65).
    pub(super) gets_plain_acks: bool,
    pub(super) phase: RetransmitPhase,
    pub(super) ack_habit: AckHabit,
    /// The last time when a fragment was sent or a plain ACK arrived.
    pub(super) last_activity: Time,
    /// The last time when a plain ACK acknowledged a fragment.
    ///
    /// Sending one by one takes time, which must not count as undeliverable (T-64).
    pub(super) last_acked: Time,
}

/// Mutable access to the content of one sequence number.
pub(super) enum StreamEntryMut<'a> {
    Whole(&'a mut OutboxSegment),
    Split(&'a mut SplitMessage),
}

/// A message or fragment that was never sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct UnsentSegment {
    pub(super) seq: Seq,
    pub(super) fragment: u8,
    pub(super) len: usize,
}

/// The remaining space of a datagram.
#[derive(Debug, Clone, Copy)]
pub(super) struct DatagramSpace {
    pub(super) bytes: usize,
    pub(super) messages: u8,
}

/// New messages that are contiguous in memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct MessageRun {
    pub(super) first: Seq,
    pub(super) count: u8,
    /// Another message follows, but does not fit.
    pub(super) is_full: bool,
    offset: u32,
    pub(super) len: usize,
}

/// The reliable messages of one channel, in order.
#[derive(Debug, Default)]
pub(crate) struct ReliableStream {
    entries: RingQueue<StreamEntry>,
    /// The sequence number of the first entry.
    base_seq: Seq,
    bytes: ByteRing,
    /// The first entry that may have unsent data, and its fragment, counted from `base_seq`.
    unsent_cursor: (u16, u8),
    splits: Vec<SplitMessage>,
    /// Indexes of unused split messages, for reuse.
    free_splits: Vec<u32>,
}

impl ReliableStream {
    /// Queues a message, or the next fragment of one with so many `fragments`.
    ///
    /// Returns its length, or `None` if it is too long to be stored.
    #[inline(always)]
    pub(super) fn queue(
        &mut self,
        seq: Seq,
        fragments: Option<u8>,
        head: &[u8],
        body: &[u8],
    ) -> Option<usize> {
        let (at, len) = self.bytes.store(head, body)?;
        if self.entries.is_empty() {
            (self.base_seq, self.unsent_cursor) = (seq, (0, 0));
        }
        let (never, state) = (Time::ZERO, SegmentState::Unsent);
        let segment = OutboxSegment {
            first_sent: never,
            last_sent: never,
            datagram: 0,
            offset: at,
            len,
            sends: 0,
            skipped_timeouts: 0,
            sends_at_first_ack: 0,
            state,
        };
        let Some(parts) = fragments else {
            self.entries.push(StreamEntry::Whole(segment));
            return Some(segment.len());
        };
        if self.index(seq) >= self.entries.len() {
            let place = self.new_split(parts)?;
            self.entries.push(StreamEntry::Split(place));
        }
        if let Some(StreamEntryMut::Split(split)) = self.find_mut(seq) {
            split.segments.push(segment);
        }
        Some(segment.len())
    }

    fn new_split(&mut self, fragments: u8) -> Option<u32> {
        let place = match self.free_splits.pop() {
            Some(place) => place,
            None => {
                self.splits.push(SplitMessage::default());
                u32::try_from(self.splits.len() - 1).ok()?
            }
        };
        let split = self.splits.get_mut(place as usize)?;
        *split = SplitMessage {
            segments: core::mem::take(&mut split.segments),
            unacked: fragments,
            ..SplitMessage::default()
        };
        split.segments.clear();
        Some(place)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the sequence number of the first entry.
    pub(super) const fn base_seq(&self) -> Seq {
        self.base_seq
    }

    /// Returns the number of entries from the oldest unacknowledged one on, and the bytes they use.
    #[inline]
    pub(super) fn retained(&self) -> (usize, usize) {
        (self.entries.len(), self.bytes.used())
    }

    /// Returns whether a sequence number has an entry.
    #[inline]
    pub(super) fn contains(&self, seq: Seq) -> bool {
        self.index(seq) < self.entries.len()
    }

    /// Returns how far `seq` is behind the first entry.
    #[inline]
    pub(super) const fn seqs_behind(&self, seq: Seq) -> u16 {
        self.base_seq.0.wrapping_sub(seq.0)
    }

    /// Returns the entry of a sequence number.
    #[inline]
    pub(super) fn find_mut(&mut self, seq: Seq) -> Option<StreamEntryMut<'_>> {
        let index = self.index(seq);
        match self.entries.get_mut(index)? {
            StreamEntry::Whole(segment) => Some(StreamEntryMut::Whole(segment)),
            StreamEntry::Split(place) => self.splits.get_mut(*place as usize).map(StreamEntryMut::Split),
        }
    }

    /// Returns a message, or a fragment if it is split.
    #[inline]
    pub(super) fn segment(&self, seq: Seq, fragment: u8) -> Option<&OutboxSegment> {
        match self.entries.get(self.index(seq))? {
            StreamEntry::Whole(segment) => Some(segment),
            StreamEntry::Split(place) => {
                self.splits.get(*place as usize)?.segments.get(usize::from(fragment))
            }
        }
    }

    pub(super) fn bytes(&self, segment: &OutboxSegment) -> &[u8] {
        self.bytes.get(segment.offset, segment.len())
    }

    pub(super) fn run_bytes(&self, run: &MessageRun) -> &[u8] {
        self.bytes.get(run.offset, run.len)
    }

    /// Returns whether a message may be unsent.
    #[inline]
    pub(super) fn has_unsent(&self) -> bool {
        usize::from(self.unsent_cursor.0) < self.entries.len()
    }

    /// Returns the next unsent message or fragment.
    #[inline]
    pub(super) fn next_unsent(&mut self) -> Option<UnsentSegment> {
        loop {
            let (index, part) = self.unsent_cursor;
            let segment = match self.entries.get(usize::from(index))? {
                StreamEntry::Whole(segment) => (segment.state == SegmentState::Unsent).then_some(segment),
                StreamEntry::Split(place) => {
                    self.splits.get(*place as usize).and_then(|split| split.segments.get(usize::from(part)))
                }
            };
            match segment {
                Some(segment) if segment.state == SegmentState::Unsent => {
                    return Some(UnsentSegment {
                        seq: Seq(self.base_seq.0.wrapping_add(index)),
                        fragment: part,
                        len: segment.len(),
                    });
                }
                Some(_) if part < u8::MAX => self.unsent_cursor = (index, part + 1),
                _ => self.unsent_cursor = (index.wrapping_add(1), 0),
            }
        }
    }

    /// Marks the next message as sent, if it is new, whole and not longer than `max`.
    ///
    /// Returns its sequence number and its bytes.
    #[inline(always)]
    pub(crate) fn mark_next_sent(&mut self, max: usize, datagram: u32, now: Time) -> Option<(Seq, &[u8])> {
        let (index, _) = self.unsent_cursor;
        let StreamEntry::Whole(segment) = self.entries.get_mut(usize::from(index))? else { return None };
        if segment.state != SegmentState::Unsent || segment.len() > max {
            return None;
        }
        segment.mark_sent(datagram, now);
        self.unsent_cursor.0 = index.wrapping_add(1);
        Some((Seq(self.base_seq.0.wrapping_add(index)), self.bytes.get(segment.offset, segment.len())))
    }

    /// Marks new, whole, contiguous messages that fit `space` as sent. Returns an empty run if there are
    /// none.
    #[inline]
    pub(super) fn mark_run_sent(&mut self, space: DatagramSpace, datagram: u32, now: Time) -> MessageRun {
        let (mut index, _) = self.unsent_cursor;
        let first = Seq(self.base_seq.0.wrapping_add(index));
        let mut run = MessageRun { first, count: 0, is_full: false, offset: 0, len: 0 };
        let (mut end, mut left) = (0, 0);
        while let Some(StreamEntry::Whole(segment)) = self.entries.get_mut(usize::from(index)) {
            let len = run.len + segment.len();
            if run.count == 0 {
                (run.offset, end, left) =
                    (segment.offset, segment.offset, self.bytes.contiguous_from(segment.offset));
            }
            // The next offset may be at the other end of the ring.
            if segment.state != SegmentState::Unsent || segment.offset != end || len > left {
                break;
            }
            if len > space.bytes || run.count == space.messages {
                run.is_full = true;
                break;
            }
            end = segment.offset.wrapping_add(segment.len.into());
            segment.mark_sent(datagram, now);
            (run.len, run.count, index) = (len, run.count + 1, index.wrapping_add(1));
        }
        self.unsent_cursor.0 = index;
        run
    }

    /// Returns the first unsent fragment of a message.
    pub(super) fn first_unsent_fragment(&self, seq: Seq) -> Option<u8> {
        match self.entries.get(self.index(seq))? {
            StreamEntry::Whole(segment) => (segment.state == SegmentState::Unsent).then_some(0),
            StreamEntry::Split(place) => {
                let segments = &self.splits.get(*place as usize)?.segments;
                u8::try_from(segments.iter().position(|segment| segment.state == SegmentState::Unsent)?).ok()
            }
        }
    }

    /// Drops acknowledged messages from the front.
    pub(super) fn release_acked(&mut self) {
        let mut done = 0;
        let keep = loop {
            match self.entries.get(done) {
                Some(StreamEntry::Whole(segment)) if segment.state != SegmentState::Acked => {
                    break Some(segment.offset);
                }
                Some(StreamEntry::Whole(_)) => {}
                Some(&StreamEntry::Split(place)) => {
                    let split = self.splits.get(place as usize);
                    match split.filter(|split| split.unacked > 0) {
                        Some(split) => break split.segments.first().map(|segment| segment.offset),
                        None => self.free_splits.push(place),
                    }
                }
                None => break None,
            }
            done += 1;
        };
        if done == 0 {
            return;
        }
        self.entries.drop_front(done);
        let done = u16::try_from(done).unwrap_or(u16::MAX);
        self.base_seq = Seq(self.base_seq.0.wrapping_add(done));
        let (index, part) = self.unsent_cursor;
        self.unsent_cursor = index.checked_sub(done).map_or((0, 0), |index| (index, part));
        match keep {
            Some(at) => self.bytes.release_to(at),
            None => {
                self.unsent_cursor = (0, 0);
                self.bytes.release_all();
            }
        }
    }

    /// Returns the time of the first send of the oldest message, or of a later ACK of one of its fragments.
    #[inline]
    pub(super) fn oldest_sent_at(&self) -> Option<Time> {
        self.first_sent_at(self.base_seq)
    }

    /// Does the same as [`oldest_sent_at`](Self::oldest_sent_at) for the message with this number.
    #[inline]
    pub(super) fn first_sent_at(&self, seq: Seq) -> Option<Time> {
        let (segment, settled) = match self.entries.get(self.index(seq))? {
            StreamEntry::Whole(segment) => (segment, Time::ZERO),
            StreamEntry::Split(place) => {
                let split = self.splits.get(*place as usize)?;
                (
                    split.segments.iter().find(|segment| segment.state != SegmentState::Acked)?,
                    split.last_acked,
                )
            }
        };
        (segment.sends > 0).then(|| segment.first_sent.max(settled))
    }

    /// Returns all messages and fragments with their ids.
    pub(super) fn segments(&self) -> impl Iterator<Item = ((Seq, Option<u8>), &OutboxSegment)> {
        (0_u16..).zip(self.entries.iter()).flat_map(|(index, entry)| {
            let seq = Seq(self.base_seq.0.wrapping_add(index));
            let (whole, split) = match entry {
                StreamEntry::Whole(segment) => (Some(segment), None),
                StreamEntry::Split(place) => (None, self.splits.get(*place as usize)),
            };
            let parts = split.into_iter().flat_map(|split| &split.segments);
            let parts = (0..=u8::MAX).zip(parts).map(move |(part, segment)| ((seq, Some(part)), segment));
            whole.map(|segment| ((seq, None), segment)).into_iter().chain(parts)
        })
    }

    #[inline]
    fn index(&self, seq: Seq) -> usize {
        usize::from(seq.0.wrapping_sub(self.base_seq.0))
    }
}

impl OutboxSegment {
    #[inline]
    pub(super) fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Returns whether this transmission is the latest event of the segment and is not acknowledged.
    #[inline]
    pub(super) fn is_unacked_since(&self, datagram: u32, at: Time) -> bool {
        let awaited = matches!(self.state, SegmentState::InFlight | SegmentState::Deferred);
        awaited && self.last_sent == at && self.datagram == datagram
    }

    /// Returns whether the next ACK follows a later send than the first ACK (T-60).
    pub(super) const fn is_confirmed(&self) -> bool {
        self.sends_at_first_ack > 0 && (self.sends > self.sends_at_first_ack || self.sends == u8::MAX)
    }

    /// Records that the segment leaves in `datagram`.
    #[inline]
    pub(super) fn mark_sent(&mut self, datagram: u32, now: Time) {
        if self.sends == 0 {
            self.first_sent = now;
        }
        self.sends = self.sends.saturating_add(1);
        (self.last_sent, self.datagram, self.state) = (now, datagram, SegmentState::InFlight);
    }

    /// Marks the segment as acknowledged.
    ///
    /// Returns its bytes in flight, or `None` if it was not sent or was acknowledged before.
    #[inline]
    pub(super) fn mark_acked(&mut self) -> Option<usize> {
        let freed = if self.state == SegmentState::InFlight { self.len() } else { 0 };
        if matches!(self.state, SegmentState::Unsent | SegmentState::Acked) {
            return None;
        }
        self.state = SegmentState::Acked;
        Some(freed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_bytes_are_contiguous_across_the_ring_end() {
        // 16 messages of 16 bytes fill the smallest ring exactly, so the next one is at its other end.
        let mut stream = ReliableStream::default();
        let (mut queued, mut sent) = (0_u8, 0_u8);
        let room = DatagramSpace { bytes: 100, messages: 255 };
        for _ in 0..500 {
            while queued.wrapping_sub(sent) < 9 {
                assert_eq!(stream.queue(Seq(queued.into()), None, &[queued], &[0; 15]), Some(16));
                queued += 1;
                if queued == 255 {
                    return;
                }
            }
            assert!(stream.next_unsent().is_some());
            let run = stream.mark_run_sent(room, 1, Time::ZERO);
            let bytes = stream.run_bytes(&run);
            assert!(run.count > 0 && bytes.len() == run.len && run.len == 16 * usize::from(run.count));
            let firsts: Vec<u8> = bytes.chunks(16).filter_map(<[u8]>::first).copied().collect();
            for first in firsts {
                assert_eq!(first, sent);
                if let Some(StreamEntryMut::Whole(segment)) = stream.find_mut(Seq(sent.into())) {
                    assert!(segment.mark_acked().is_some());
                }
                sent += 1;
            }
            stream.release_acked();
        }
    }
}
