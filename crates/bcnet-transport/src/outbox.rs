//! What must be sent to one peer: owed ACKs, messages that were lost, fresh ones; and how they fill a datagram.
//!
//! Owns T-60 (ACKs); [`fill`] owns T-66 (order), [`settle`] T-62 (loss), [`plain`] T-65 (plain ACKs for parts).

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
    /// It leaves after all that was queued before it, which is all before this number.
    before: Seq,
}

/// What was sent in one datagram, for finding what was not acknowledged in time: a part, or messages with numbers from
/// `seq` on.
#[derive(Debug, Clone, Copy)]
struct Transmission {
    sent_at: Time,
    datagram: u32,
    seq: Seq,
    fragment: u8,
    count: u8,
    channel: Channel,
}

/// ACKs that are owed: for a part, or for whole messages with numbers from that of `first` on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PendingAckRun {
    pub(crate) first: MessageId,
    count: u8,
}

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    control: ReliableStream,
    pub(crate) game: ReliableStream,
    /// Fresh entries of the game channel that go ahead of the others.
    pub(crate) urgent: RingQueue<Seq>,
    unreliable: RingQueue<UnreliableMessage>,
    unreliable_bytes: ByteRing,
    transmissions: RingQueue<Transmission>,
    pub(crate) lost: VecDeque<(Channel, Seq, u8)>,
    pub(crate) pending_acks: RingQueue<PendingAckRun>,
    /// How many ACKs that is.
    pub(crate) pending_ack_count: usize,
    /// Datagrams made so far.
    pub(crate) datagram_count: u32,
    /// The newest datagram of which something was acknowledged.
    newest_acked_datagram: u32,
    pub(crate) in_flight: usize,
    /// Messages and parts that were never sent.
    pub(crate) unsent: usize,
    /// Messages and bytes that are not acknowledged, or unreliable and not sent.
    queued: usize,
    queued_bytes: usize,
}

impl Outbox {
    /// T-60: an ACK is owed once per receipt, here for a part, or for `count` messages with numbers from that of
    /// `first` on. Returns `false` if there are too many already; the peer will ask again.
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

    /// Takes a reliable message, or the next part of one that has so many `parts`.
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

    /// The game message with this number, all its parts, goes ahead of what is not urgent.
    pub(crate) fn mark_urgent(&mut self, seq: Seq) {
        self.urgent.push(seq);
    }

    /// Takes an unreliable message. `next` is the number that the next reliable one will have.
    #[inline]
    pub(crate) fn queue_unreliable(&mut self, head: &[u8], body: &[u8], next: Seq) {
        let Some((at, len)) = self.unreliable_bytes.store(head, body) else { return };
        self.unreliable.push(UnreliableMessage { offset: at, len, before: next });
        self.count_queued(usize::from(len));
    }

    /// Drops unreliable messages whose payload is outdated, the newest first.
    #[inline(never)]
    pub(crate) fn drop_superseded(&mut self, is_superseded: &mut dyn FnMut(&[u8]) -> bool) {
        let mut kept = 0;
        for index in (0..self.unreliable.len()).rev() {
            let Some(message) = self.unreliable.get_mut(index) else { break };
            let len = usize::from(message.len);
            let bytes = self.unreliable_bytes.get(message.offset, len);
            if is_superseded(bytes.get(Delivery::Unreliable.header_len()..).unwrap_or_default()) {
                // None that waits is empty.
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

    /// Frees the bytes of what was dropped, of which `kept` are still needed: at once where it was first, and where it was
    /// not when there is more of it than a full line explains.
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

    /// Whole game messages with numbers from `first` on leave in `datagram`.
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

    /// Returns whether something was sent of which it is not known that it arrived.
    #[inline]
    pub(crate) const fn has_transmissions(&self) -> bool {
        !self.transmissions.is_empty()
    }

    /// Returns when the oldest transmission times out.
    #[inline]
    pub(crate) fn next_timeout(&self, timeout: u64) -> Option<Time> {
        self.transmissions.front().map(|sent| sent.sent_at.plus(timeout))
    }

    /// Returns when the oldest reliable message that is not acknowledged was sent first.
    pub(crate) fn oldest_sent_at(&self) -> Option<Time> {
        Time::earliest(
            self.control.oldest_sent_at(),
            self.game.oldest_sent_at().or_else(|| self.oldest_urgent_sent_at()),
        )
    }

    /// Returns when an urgent message was sent first: it may be under way before the first message has left.
    fn oldest_urgent_sent_at(&self) -> Option<Time> {
        let sent = self.transmissions.front().map(|sent| (sent.channel, sent.seq));
        let (channel, seq) = sent.or_else(|| self.lost.front().map(|(channel, seq, _)| (*channel, *seq)))?;
        (channel == Channel::Game).then(|| self.game.first_sent_at(seq))?
    }

    pub(crate) fn pending_acks(&self) -> impl Iterator<Item = MessageId> {
        self.pending_acks.iter().flat_map(|run| (0..run.count).map(|place| run.without_first(place).first))
    }

    /// Returns how many messages and parts were never sent.
    pub(crate) const fn unsent(&self) -> usize {
        self.unsent
    }

    /// Returns whether something waits to be sent, be it for want of room, budget or company.
    #[inline]
    pub(crate) fn has_pending_work(&self) -> bool {
        self.unsent > 0 || self.pending_ack_count > 0 || !self.lost.is_empty()
    }

    /// Returns whether something other than unreliable messages waits, and the budget lets it go.
    pub(crate) fn has_urgent(&self, window: usize) -> bool {
        let waits = self.unsent > self.unreliable.len() || !self.lost.is_empty();
        waits && (self.in_flight == 0 || self.in_flight < window)
    }

    /// Returns what was sent and is not acknowledged: id, sends, time of the first send.
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

    /// Returns how many bytes of reliable messages are not acknowledged, sent or not.
    #[inline]
    pub(crate) fn reliable_bytes(&self) -> usize {
        self.queued_bytes.saturating_sub(self.unreliable_bytes.used())
    }

    pub(crate) const fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Returns whether nothing waits here, so that the memory can go.
    pub(crate) fn is_empty(&self) -> bool {
        self.queued == 0 && self.pending_ack_count == 0
    }

    /// Returns how many game messages there are from the oldest unacknowledged one on, and the bytes they lie in.
    #[inline]
    pub(crate) fn retained(&self) -> (usize, usize) {
        self.game.retained()
    }

    /// Returns how many control messages wait, from the oldest that is not acknowledged on, and the bytes they lie in.
    pub(crate) fn control_backlog(&self) -> (usize, usize) {
        self.control.retained()
    }

    /// Returns the number of the oldest reliable message of a channel that is not acknowledged.
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
    /// Returns whether so many more from `first` on can be added.
    fn can_extend_with(&self, first: MessageId, count: u8) -> bool {
        let whole = first.fragment.is_none() && self.first.fragment.is_none();
        whole && self.without_first(self.count).first == first && self.count.checked_add(count).is_some()
    }

    /// Without the first `count`.
    #[inline]
    const fn without_first(&self, count: u8) -> Self {
        let MessageId { channel, seq, fragment: part } = self.first;
        let seq = Seq(seq.0.wrapping_add(count as u16));
        Self { first: MessageId { channel, seq, fragment: part }, count: self.count.saturating_sub(count) }
    }
}

/// Bytes of dropped messages that are left lying.
const MAX_DROPPED_BYTES: usize = 4096;
/// More ACKs than any honest peer makes necessary between two flushes.
const MAX_PENDING_ACKS: usize = 2048;

#[cfg(test)]
#[path = "outbox_model.rs"]
mod model;
