//! What must be sent to one peer: owed ACKs, messages that were lost, fresh ones; and how they fill a datagram.
//!
//! Owns T-60 (ACKs); [`fill`] owns T-66 (order), [`settle`] T-62 (loss), [`plain`] T-65 (plain ACKs for parts).

mod fill;
mod plain;
mod settle;
mod stream;

use alloc::collections::VecDeque;

use crate::queue::Queue;
use crate::ring::ByteRing;
use crate::time::Time;
use crate::wire::{Channel, Delivery, MessageId, Seq};
pub(crate) use fill::{Filled, Readiness};
pub(crate) use settle::{ResendPolicy, Settled};
use stream::{Segment, State, Stream};

/// An unreliable message.
#[derive(Debug, Clone, Copy)]
struct Unreliable {
    at: u32,
    len: u16,
    /// It leaves after all that was queued before it, which is all before this number.
    before: Seq,
}

/// What was sent in one datagram, for finding what was not acknowledged in time: a part, or messages with numbers from
/// `seq` on.
#[derive(Debug, Clone, Copy)]
struct Sent {
    at: Time,
    datagram: u32,
    seq: Seq,
    part: u8,
    count: u8,
    channel: Channel,
}

/// ACKs that are owed: for a part, or for whole messages with numbers from that of `first` on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owed {
    pub(crate) first: MessageId,
    count: u8,
}

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    control: Stream,
    pub(crate) game: Stream,
    /// Fresh entries of the game channel that go ahead of the others.
    pub(crate) urgent: Queue<Seq>,
    unreliable: Queue<Unreliable>,
    unreliable_bytes: ByteRing,
    sent: Queue<Sent>,
    pub(crate) lost: VecDeque<(Channel, Seq, u8)>,
    pub(crate) acks: Queue<Owed>,
    /// How many ACKs that is.
    pub(crate) owed: usize,
    /// Datagrams made so far.
    pub(crate) datagrams: u32,
    /// The newest datagram of which something was acknowledged.
    newest: u32,
    pub(crate) in_flight: usize,
    /// Messages and parts that were never sent.
    pub(crate) fresh: usize,
    /// Messages and bytes that are not acknowledged, or unreliable and not sent.
    queued: usize,
    queued_bytes: usize,
}

impl Outbox {
    /// T-60: an ACK is owed once per receipt, here for a part, or for `count` messages with numbers from that of
    /// `first` on. Returns `false` if there are too many already; the peer will ask again.
    #[inline(always)]
    pub(crate) fn owe(&mut self, first: MessageId, count: u8) -> bool {
        let count = u8::try_from(MAX_ACKS - self.owed).unwrap_or(u8::MAX).min(count);
        if count == 0 {
            return false;
        }
        self.owed += usize::from(count);
        match self.acks.back_mut() {
            Some(run) if run.goes_on_with(first, count) => run.count += count,
            _ => self.acks.push(Owed { first, count }),
        }
        true
    }

    /// Takes a reliable message, or the next part of one that has so many `parts`.
    #[inline(always)]
    pub(crate) fn queue(&mut self, channel: Channel, seq: Seq, parts: Option<u8>, head: &[u8], body: &[u8]) {
        if let Some(len) = self.stream(channel).queue(seq, parts, head, body) {
            self.note_queued(len);
        }
    }

    #[inline]
    const fn note_queued(&mut self, len: usize) {
        self.queued += 1;
        self.fresh += 1;
        self.queued_bytes += len;
    }

    /// The game message with this number, all its parts, goes ahead of what is not urgent.
    pub(crate) fn hurry(&mut self, seq: Seq) {
        self.urgent.push(seq);
    }

    /// Takes an unreliable message. `next` is the number that the next reliable one will have.
    #[inline]
    pub(crate) fn queue_unreliable(&mut self, head: &[u8], body: &[u8], next: Seq) {
        let Some((at, len)) = self.unreliable_bytes.store(head, body) else { return };
        self.unreliable.push(Unreliable { at, len, before: next });
        self.note_queued(usize::from(len));
    }

    /// Drops unreliable messages whose payload is outdated, the newest first.
    #[inline(never)]
    pub(crate) fn drop_outdated(&mut self, is_outdated: &mut dyn FnMut(&[u8]) -> bool) {
        let mut kept = 0;
        for index in (0..self.unreliable.len()).rev() {
            let Some(message) = self.unreliable.get_mut(index) else { break };
            let len = usize::from(message.len);
            let bytes = self.unreliable_bytes.get(message.at, len);
            if is_outdated(bytes.get(Delivery::Unreliable.header_len()..).unwrap_or_default()) {
                // None that waits is empty.
                message.len = 0;
                self.queued -= 1;
                self.fresh -= 1;
                self.queued_bytes -= len;
            } else {
                kept += len;
            }
        }
        for _ in 0..self.unreliable.len() {
            let Some(&message) = self.unreliable.front() else { break };
            self.unreliable.skip(1);
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
            Some(first) => self.unreliable_bytes.release_to(first.at),
            None => self.unreliable_bytes.release_all(),
        }
        if self.unreliable_bytes.used() <= 2 * kept + DROPPED_ROOM {
            return;
        }
        let old = core::mem::take(&mut self.unreliable_bytes);
        for index in 0..self.unreliable.len() {
            if let Some(message) = self.unreliable.get_mut(index)
                && let Some((at, _)) =
                    self.unreliable_bytes.store(old.get(message.at, message.len.into()), &[])
            {
                message.at = at;
            }
        }
    }

    /// Whole game messages with numbers from `first` on leave in `datagram`.
    #[inline]
    pub(crate) fn note_sent(&mut self, first: Seq, count: u8, datagram: u32, now: Time) {
        self.sent.push(Sent { at: now, datagram, seq: first, part: 0, count, channel: Channel::Game });
    }

    #[inline]
    pub(crate) const fn owes(&self) -> bool {
        self.owed > 0
    }

    /// Returns whether something was sent of which it is not known that it arrived.
    #[inline]
    pub(crate) const fn has_sent(&self) -> bool {
        !self.sent.is_empty()
    }

    /// Returns when the oldest transmission times out.
    #[inline]
    pub(crate) fn next_timeout(&self, timeout: u64) -> Option<Time> {
        self.sent.front().map(|sent| sent.at.plus(timeout))
    }

    /// Returns when the oldest reliable message that is not acknowledged was sent first.
    pub(crate) fn oldest(&self) -> Option<Time> {
        Time::earliest(self.control.oldest(), self.game.oldest().or_else(|| self.oldest_urgent()))
    }

    /// Returns when an urgent message was sent first: it may be under way before the first message has left.
    fn oldest_urgent(&self) -> Option<Time> {
        let sent = self.sent.front().map(|sent| (sent.channel, sent.seq));
        let (channel, seq) = sent.or_else(|| self.lost.front().map(|(channel, seq, _)| (*channel, *seq)))?;
        (channel == Channel::Game).then(|| self.game.since(seq))?
    }

    pub(crate) fn acks(&self) -> impl Iterator<Item = MessageId> {
        self.acks.iter().flat_map(|run| (0..run.count).map(|place| run.after(place).first))
    }

    /// Returns how many messages and parts were never sent.
    pub(crate) const fn fresh(&self) -> usize {
        self.fresh
    }

    /// Returns whether something waits to be sent, be it for want of room, budget or company.
    #[inline]
    pub(crate) fn has_more(&self) -> bool {
        self.fresh > 0 || self.owed > 0 || !self.lost.is_empty()
    }

    /// Returns whether something other than unreliable messages waits, and the budget lets it go.
    pub(crate) fn has_urgent(&self, budget: usize) -> bool {
        let waits = self.fresh > self.unreliable.len() || !self.lost.is_empty();
        waits && (self.in_flight == 0 || self.in_flight < budget)
    }

    /// Returns what was sent and is not acknowledged: id, sends, time of the first send.
    pub(crate) fn unacknowledged(&self) -> impl Iterator<Item = (MessageId, u8, Time)> {
        let channels = [(Channel::Control, &self.control), (Channel::Game, &self.game)];
        channels.into_iter().flat_map(|(channel, stream)| {
            let sent =
                stream.segments().filter(|(_, segment)| !matches!(segment.state, State::Fresh | State::Done));
            sent.map(move |((seq, part), segment)| {
                (MessageId { channel, seq, part }, segment.sends, segment.first_sent)
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
        self.queued == 0 && self.owed == 0
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
        (!stream.is_empty()).then(|| stream.base())
    }

    fn segment(&self, channel: Channel, seq: Seq, part: u8) -> Option<&Segment> {
        match channel {
            Channel::Control => self.control.segment(seq, part),
            Channel::Game => self.game.segment(seq, part),
        }
    }

    #[inline]
    const fn stream(&mut self, channel: Channel) -> &mut Stream {
        match channel {
            Channel::Control => &mut self.control,
            Channel::Game => &mut self.game,
        }
    }
}

impl Owed {
    /// Returns whether so many more from `first` on can be added.
    fn goes_on_with(&self, first: MessageId, count: u8) -> bool {
        let whole = first.part.is_none() && self.first.part.is_none();
        whole && self.after(self.count).first == first && self.count.checked_add(count).is_some()
    }

    /// Without the first `count`.
    #[inline]
    const fn after(&self, count: u8) -> Self {
        let MessageId { channel, seq, part } = self.first;
        let seq = Seq(seq.0.wrapping_add(count as u16));
        Self { first: MessageId { channel, seq, part }, count: self.count.saturating_sub(count) }
    }
}

/// Bytes of dropped messages that are left lying.
const DROPPED_ROOM: usize = 4096;
/// More ACKs than any honest peer makes necessary between two flushes.
const MAX_ACKS: usize = 2048;

#[cfg(test)]
#[path = "outbox_model.rs"]
mod model;
