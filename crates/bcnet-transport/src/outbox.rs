//! Everything that waits to be sent to one peer: pending ACKs, lost messages, new messages.
//!
//! This module implements [T-60] (ACKs). [`fill`] implements [T-66] (order), [`acks_and_loss`] [T-62] (loss), and
//! [`plain_acks`] [T-65] (plain ACKs for fragments).
//!
//! [T-60]: bcnet_wire::protocol#t-60
//! [T-62]: bcnet_wire::protocol#t-62
//! [T-65]: bcnet_wire::protocol#t-65
//! [T-66]: bcnet_wire::protocol#t-66

mod acks_and_loss;
mod fill;
mod plain_acks;
mod stream;

use alloc::collections::VecDeque;

use crate::queue::RingQueue;
use crate::ring::ByteRing;
use crate::time::Time;
use crate::wire::{Channel, Delivery, MessageId, Seq};
pub(crate) use acks_and_loss::{AckEffect, RetransmitPolicy};
pub(crate) use fill::{FilledDatagram, Readiness};
use stream::{OutboxSegment, ReliableStream, SegmentState};

/// An unreliable message.
#[derive(Debug, Clone, Copy)]
struct UnreliableMessage {
    offset: u32,
    len: u16,
    /// The sequence number of the next reliable message: earlier ones leave before this message.
    before: Seq,
}

/// A record of sent messages in one datagram, to detect losses.
///
/// It is one fragment, or `count` whole messages with numbers from `seq` on.
#[derive(Debug, Clone, Copy)]
struct Transmission {
    sent_at: Time,
    datagram: u32,
    seq: Seq,
    fragment: u8,
    count: u8,
    channel: Channel,
}

/// Pending ACKs: one for a fragment, or `count` for whole messages with numbers from `first` on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PendingAckRun {
    pub(crate) first: MessageId,
    count: u8,
}

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    control: ReliableStream,
    pub(crate) game: ReliableStream,
    /// Unsent urgent messages of the game channel, which go ahead of the others.
    pub(crate) urgent: RingQueue<Seq>,
    unreliable: RingQueue<UnreliableMessage>,
    unreliable_bytes: ByteRing,
    transmissions: RingQueue<Transmission>,
    pub(crate) lost: VecDeque<(Channel, Seq, u8)>,
    pub(crate) pending_acks: RingQueue<PendingAckRun>,
    /// The number of ACKs in `pending_acks`.
    pub(crate) pending_ack_count: usize,
    /// The number of datagrams filled so far.
    pub(crate) datagram_count: u32,
    /// The newest datagram with an acknowledged message.
    newest_acked_datagram: u32,
    pub(crate) in_flight: usize,
    /// Messages and fragments that were never sent.
    pub(crate) unsent: usize,
    /// Messages and bytes that are not acknowledged, or unreliable and not sent.
    queued: usize,
    queued_bytes: usize,
}

impl Outbox {
    /// Queues ACKs, one for each receipt (T-60).
    ///
    /// They are for one fragment, or for `count` messages with numbers from `first` on. Returns `false` if
    /// too many ACKs are pending; the peer will retransmit.
    #[inline(always)]
    pub(crate) fn queue_ack(&mut self, first: MessageId, count: u8) -> bool {
        let count = u8::try_from(MAX_PENDING_ACKS - self.pending_ack_count).unwrap_or(u8::MAX).min(count);
        if count == 0 {
            return false;
        }
        self.pending_ack_count += usize::from(count);
        match self.pending_acks.back_mut() {
            Some(run) if run.can_extend_with(first, count) => run.count += count,
            _ => self.pending_acks.push(PendingAckRun { first, count }),
        }
        true
    }

    /// Queues a reliable message, or the next fragment of one with so many `fragments`.
    #[inline(always)]
    pub(crate) fn queue(
        &mut self,
        channel: Channel,
        seq: Seq,
        fragments: Option<u8>,
        head: &[u8],
        body: &[u8],
    ) {
        if let Some(len) = self.stream(channel).queue(seq, fragments, head, body) {
            self.count_queued(len);
        }
    }

    #[inline]
    const fn count_queued(&mut self, len: usize) {
        self.queued += 1;
        self.unsent += 1;
        self.queued_bytes += len;
    }

    /// Moves a game message, with all its fragments, ahead of messages that are not urgent.
    pub(crate) fn mark_urgent(&mut self, seq: Seq) {
        self.urgent.push(seq);
    }

    /// Queues an unreliable message. `next` is the number of the next reliable one.
    #[inline]
    pub(crate) fn queue_unreliable(&mut self, head: &[u8], body: &[u8], next: Seq) {
        let Some((at, len)) = self.unreliable_bytes.store(head, body) else { return };
        self.unreliable.push(UnreliableMessage { offset: at, len, before: next });
        self.count_queued(usize::from(len));
    }

    /// Drops unreliable messages that are superseded; checks the newest first.
    #[inline(never)]
    pub(crate) fn drop_superseded(&mut self, is_superseded: &mut dyn FnMut(&[u8]) -> bool) {
        let mut kept = 0;
        for index in (0..self.unreliable.len()).rev() {
            let Some(message) = self.unreliable.get_mut(index) else { break };
            let len = usize::from(message.len);
            let bytes = self.unreliable_bytes.get(message.offset, len);
            if is_superseded(bytes.get(Delivery::Unreliable.header_len()..).unwrap_or_default()) {
                // Zero marks a dropped message: no queued message is empty.
                message.len = 0;
                self.queued -= 1;
                self.unsent -= 1;
                self.queued_bytes -= len;
            } else {
                kept += len;
            }
        }
        for _ in 0..self.unreliable.len() {
            let Some(&message) = self.unreliable.front() else { break };
            self.unreliable.drop_front(1);
            if message.len > 0 {
                self.unreliable.push(message);
            }
        }
        self.release_dropped(kept);
    }

    /// Frees the bytes of dropped messages; `kept` bytes are still needed.
    ///
    /// Bytes at the front are freed at once. Gaps are compacted only if they are larger than those of a
    /// blocked queue.
    fn release_dropped(&mut self, kept: usize) {
        match self.unreliable.front() {
            Some(first) => self.unreliable_bytes.release_to(first.offset),
            None => self.unreliable_bytes.release_all(),
        }
        if self.unreliable_bytes.used() <= 2 * kept + MAX_DROPPED_BYTES {
            return;
        }
        let old = core::mem::take(&mut self.unreliable_bytes);
        for index in 0..self.unreliable.len() {
            if let Some(message) = self.unreliable.get_mut(index)
                && let Some((at, _)) =
                    self.unreliable_bytes.store(old.get(message.offset, message.len.into()), &[])
            {
                message.offset = at;
            }
        }
    }

    /// Records that whole game messages with numbers from `first` on leave in `datagram`.
    #[inline]
    pub(crate) fn record_transmission(&mut self, first: Seq, count: u8, datagram: u32, now: Time) {
        self.transmissions.push(Transmission {
            sent_at: now,
            datagram,
            seq: first,
            fragment: 0,
            count,
            channel: Channel::Game,
        });
    }

    #[inline]
    pub(crate) const fn has_pending_acks(&self) -> bool {
        self.pending_ack_count > 0
    }

    /// Returns whether a sent message may be unacknowledged.
    #[inline]
    pub(crate) const fn has_transmissions(&self) -> bool {
        !self.transmissions.is_empty()
    }

    /// Returns the time at which the oldest transmission times out.
    #[inline]
    pub(crate) fn next_timeout(&self, timeout: u64) -> Option<Time> {
        self.transmissions.front().map(|sent| sent.sent_at.plus(timeout))
    }

    /// Returns the time of the first send of the oldest unacknowledged reliable message.
    pub(crate) fn oldest_sent_at(&self) -> Option<Time> {
        Time::earliest(
            self.control.oldest_sent_at(),
            self.game.oldest_sent_at().or_else(|| self.oldest_urgent_sent_at()),
        )
    }

    /// Returns the time of the first send of an urgent message, which may leave before the oldest message.
    fn oldest_urgent_sent_at(&self) -> Option<Time> {
        let sent = self.transmissions.front().map(|sent| (sent.channel, sent.seq));
        let (channel, seq) = sent.or_else(|| self.lost.front().map(|(channel, seq, _)| (*channel, *seq)))?;
        (channel == Channel::Game).then(|| self.game.first_sent_at(seq))?
    }

    pub(crate) fn pending_acks(&self) -> impl Iterator<Item = MessageId> {
        self.pending_acks.iter().flat_map(|run| (0..run.count).map(|place| run.without_first(place).first))
    }

    /// Returns the number of messages and fragments that were never sent.
    pub(crate) const fn unsent(&self) -> usize {
        self.unsent
    }

    /// Returns whether anything waits to be sent.
    ///
    /// It may wait because the datagram or the window is full, or because ACKs are delayed.
    #[inline]
    pub(crate) fn has_pending_work(&self) -> bool {
        self.unsent > 0 || self.pending_ack_count > 0 || !self.lost.is_empty()
    }

    /// Returns whether anything but unreliable messages waits and the window has space.
    pub(crate) fn has_urgent(&self, window: usize) -> bool {
        let waits = self.unsent > self.unreliable.len() || !self.lost.is_empty();
        waits && (self.in_flight == 0 || self.in_flight < window)
    }

    /// Returns the sent and unacknowledged messages: id, number of sends, time of the first send.
    pub(crate) fn unacknowledged(&self) -> impl Iterator<Item = (MessageId, u8, Time)> {
        let channels = [(Channel::Control, &self.control), (Channel::Game, &self.game)];
        channels.into_iter().flat_map(|(channel, stream)| {
            let sent = stream
                .segments()
                .filter(|(_, segment)| !matches!(segment.state, SegmentState::Unsent | SegmentState::Acked));
            sent.map(move |((seq, part), segment)| {
                (MessageId { channel, seq, fragment: part }, segment.sends, segment.first_sent)
            })
        })
    }

    pub(crate) const fn queued(&self) -> usize {
        self.queued
    }

    pub(crate) const fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// Returns the bytes of unacknowledged reliable messages, sent or not.
    #[inline]
    pub(crate) fn reliable_bytes(&self) -> usize {
        self.queued_bytes.saturating_sub(self.unreliable_bytes.used())
    }

    pub(crate) const fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Returns whether nothing is queued, so that the memory can be released.
    pub(crate) fn is_empty(&self) -> bool {
        self.queued == 0 && self.pending_ack_count == 0
    }

    /// Returns the number of game messages from the oldest unacknowledged one on, and the bytes they use.
    #[inline]
    pub(crate) fn retained(&self) -> (usize, usize) {
        self.game.retained()
    }

    /// Returns the number of control messages from the oldest unacknowledged one on, and their bytes.
    pub(crate) fn control_backlog(&self) -> (usize, usize) {
        self.control.retained()
    }

    /// Returns the number of the oldest unacknowledged reliable message of a channel.
    pub(crate) fn oldest_seq(&self, channel: Channel) -> Option<Seq> {
        let stream = match channel {
            Channel::Control => &self.control,
            Channel::Game => &self.game,
        };
        (!stream.is_empty()).then(|| stream.base_seq())
    }

    fn segment(&self, channel: Channel, seq: Seq, fragment: u8) -> Option<&OutboxSegment> {
        match channel {
            Channel::Control => self.control.segment(seq, fragment),
            Channel::Game => self.game.segment(seq, fragment),
        }
    }

    #[inline]
    const fn stream(&mut self, channel: Channel) -> &mut ReliableStream {
        match channel {
            Channel::Control => &mut self.control,
            Channel::Game => &mut self.game,
        }
    }
}

impl PendingAckRun {
    /// Returns whether `count` ACKs from `first` on continue this run.
    fn can_extend_with(&self, first: MessageId, count: u8) -> bool {
        let whole = first.fragment.is_none() && self.first.fragment.is_none();
        whole && self.without_first(self.count).first == first && self.count.checked_add(count).is_some()
    }

    /// Returns the run without its first `count` ACKs.
    #[inline]
    const fn without_first(&self, count: u8) -> Self {
        let MessageId { channel, seq, fragment: part } = self.first;
        let seq = Seq(seq.0.wrapping_add(count as u16));
        Self { first: MessageId { channel, seq, fragment: part }, count: self.count.saturating_sub(count) }
    }
}

/// The bytes of dropped messages that may stay in the ring.
const MAX_DROPPED_BYTES: usize = 4096;
/// More ACKs than any honest peer requires between two flushes.
const MAX_PENDING_ACKS: usize = 2048;

#[cfg(test)]
#[path = "outbox_model.rs"]
mod model;
