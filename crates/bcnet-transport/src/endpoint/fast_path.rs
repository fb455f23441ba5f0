//! The fast path for frequent datagrams.
//!
//! Most datagrams have a single ACK or a single payload, or only whole messages in order. This module
//! handles them with fewer checks than the general path.
//!
//! The fast path does exactly what the general path would do, to the byte and to the counter, or it
//! declines and changes nothing.
//! The setting [`Config::fast_path`](crate::Config::fast_path) switches it off; the laboratory compares both.

use core::net::SocketAddrV4;

use super::{Endpoint, mark_dirty};
use crate::config::Config;
use crate::event::{Event, EventQueue};
use crate::outbox::{AckEffect, Outbox};
use crate::peer::{AckSummary, Peer, PeerState};
use crate::stats::RejectCause;
use crate::time::Time;
use crate::wire::encoded::{WholeData, parse_plain_ack, parse_whole_data, plain_ack};
use crate::wire::{Channel, Kind, MessageId, Messages, PeerId};

impl Endpoint {
    /// Handles a datagram of a connected peer with one plain ACK or one payload that is next in order.
    ///
    /// Returns `false` for any other datagram.
    #[inline]
    pub(super) fn handle_single_message(&mut self, from: SocketAddrV4, bytes: &[u8], now: Time) -> bool {
        let Self { peers, events, config, dirty_peers: ready, rejected, .. } = self;
        let [sender, 1, message @ ..] = bytes else { return false };
        let Some(handle) = peers.find(PeerId(*sender)) else { return false };
        let Some(peer) = peers.get_mut(handle) else { return false };
        if peer.address != from || peer.state != PeerState::Established || !config.fast_path {
            return false;
        }
        if let Some(((channel, seq), [])) = parse_plain_ack(message) {
            peer.note_received(bytes.len(), config, now);
            let mut acks = AckSummary::default();
            peer.on_ack(MessageId { channel, seq, fragment: None }, &mut acks, now);
            let forged = peer.apply_acks(&acks, None, config, now);
            if forged > 0 {
                rejected.add_many(RejectCause::ForgedAck, forged.into());
            }
        } else if let Some((WholeData { seq, payload }, [])) = parse_whole_data(message) {
            if events.queued_bytes() >= config.max_event_bytes || !peer.inbox(Channel::Game).accept_next(seq)
            {
                return false;
            }
            peer.note_received(bytes.len(), config, now);
            events.push(Event::Received { peer: peer.id, reliable: true }, payload);
            peer.counters.messages_in.add(Kind::DATA, 1);
            peer.queue_ack(MessageId { channel: Channel::Game, seq, fragment: None }, 1, config, now);
        } else {
            return false;
        }
        mark_dirty(peer, handle, ready);
        true
    }
}

/// Handles the next messages of a datagram while they are frequent ones.
///
/// These are plain ACKs, then payloads that are next in order. The general path handles the rest.
#[inline]
pub(super) fn handle_frequent(
    peer: &mut Peer,
    messages: &mut Messages<'_>,
    acks: &mut AckSummary,
    events: &mut EventQueue,
    config: &Config<u64>,
    now: Time,
) {
    if !config.fast_path {
        return;
    }
    if parse_plain_ack(messages.rest()).is_some() {
        apply_next_acks(peer, messages, acks, now);
    }
    let takes = events.queued_bytes() < config.max_event_bytes && peer.state == PeerState::Established;
    if takes && parse_whole_data(messages.rest()).is_some() {
        let first = peer.inbox(Channel::Game).expected();
        let taken = deliver_next_in_order(peer, messages, events);
        if taken > 0 {
            peer.counters.messages_in.add(Kind::DATA, taken.into());
            peer.queue_ack(
                MessageId { channel: Channel::Game, seq: first, fragment: None },
                taken,
                config,
                now,
            );
        }
    }
}

/// Applies the plain ACKs that come next.
#[inline(never)]
fn apply_next_acks(peer: &mut Peer, messages: &mut Messages<'_>, acks: &mut AckSummary, now: Time) {
    let (mut all, mut rest) = (*acks, messages.rest());
    while !all.is_trusted()
        && let Some(((channel, seq), after)) = parse_plain_ack(rest)
    {
        peer.on_ack_with_trust(MessageId { channel, seq, fragment: None }, &mut all, now);
        rest = after;
    }
    let next = peer.next_seqs();
    let (trip, mut outbox) = (peer.rtt, peer.outbox.as_deref_mut());
    while let Some(((channel, seq), after)) = parse_plain_ack(rest) {
        let id = MessageId { channel, seq, fragment: None };
        let effect = match &mut outbox {
            Some(outbox) => outbox.on_ack(id, &trip, now),
            None => AckEffect::Useless,
        };
        all.add(effect, id, next);
        rest = after;
    }
    messages.skip_to(rest);
    *acks = all;
}

/// Delivers the payloads that come next and are next in order. Returns how many.
#[inline(never)]
fn deliver_next_in_order(peer: &mut Peer, messages: &mut Messages<'_>, events: &mut EventQueue) -> u8 {
    let received = Event::Received { peer: peer.id, reliable: true };
    let inbox = peer.inbox(Channel::Game);
    let (mut count, mut rest) = (0, messages.rest());
    while let Some((WholeData { seq, payload }, after)) = parse_whole_data(rest) {
        if !inbox.accept_next(seq) {
            break;
        }
        events.push(received, payload);
        (rest, count) = (after, count + 1);
    }
    messages.skip_to(rest);
    count
}

impl Peer {
    /// Fills a datagram like [`fill`](Self::fill), if only one ACK or one new reliable message waits.
    ///
    /// Returns `None` in any other case.
    #[inline(always)]
    pub(crate) fn fill_single_message(
        &mut self,
        buffer: &mut [u8],
        from: PeerId,
        config: &Config<u64>,
        now: Time,
    ) -> Option<usize> {
        let outbox = self.outbox.as_deref_mut().filter(|_| !self.keepalive_due && config.fast_path)?;
        let (head, room) = buffer.get_mut(..config.datagram_limit)?.split_first_chunk_mut()?;
        let len = if outbox.has_pending_acks() {
            self.ack_due.filter(|due| *due <= now)?;
            let len = outbox.fill_single_ack(room)?;
            self.ack_due = None;
            self.counters.acks_out += 1;
            len
        } else {
            let len = outbox.fill_single_data(room, self.congestion.window(), now)?;
            self.last_data_sent = now;
            self.counters.messages_out.add(Kind::DATA, 1);
            len
        };
        *head = [from.0, 1];
        self.is_dirty = false;
        self.count_datagram(head.len() + len)
    }
}

impl Outbox {
    /// Writes a plain ACK, if nothing else waits to be sent. Returns its length.
    #[inline(always)]
    pub(crate) fn fill_single_ack(&mut self, room: &mut [u8]) -> Option<usize> {
        if self.pending_ack_count != 1 || self.unsent > 0 || !self.lost.is_empty() {
            return None;
        }
        let MessageId { channel, seq, fragment: part } = self.pending_acks.front()?.first;
        let ack = room.first_chunk_mut().filter(|_| part.is_none())?;
        *ack = plain_ack(channel, seq);
        self.pending_acks.drop_front(1);
        self.pending_ack_count = 0;
        self.datagram_count = self.datagram_count.wrapping_add(1);
        Some(ack.len())
    }

    /// Writes a new reliable game message, if nothing else waits to be sent. Returns its length.
    #[inline(always)]
    pub(crate) fn fill_single_data(&mut self, room: &mut [u8], window: usize, now: Time) -> Option<usize> {
        // Only the general path removes messages from the urgent queue.
        if self.unsent != 1 || self.pending_ack_count > 0 || !self.lost.is_empty() || !self.urgent.is_empty()
        {
            return None;
        }
        let max = room.len().min(window.saturating_sub(self.in_flight));
        let datagram = self.datagram_count.wrapping_add(1);
        let (seq, message) = self.game.mark_next_sent(max, datagram, now)?;
        let len = message.len();
        room.get_mut(..len)?.copy_from_slice(message);
        (self.unsent, self.datagram_count) = (0, datagram);
        self.in_flight += len;
        self.record_transmission(seq, 1, datagram, now);
        Some(len)
    }
}
