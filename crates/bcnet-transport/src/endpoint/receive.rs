//! The general path for received datagrams: finds the peer, fills inboxes, applies ACKs.

use core::net::SocketAddrV4;

use super::table::PeerHandle;
use super::{Endpoint, fast_path, mark_dirty};
use crate::event::Event;
use crate::inbox::{Accepted, BufferLimits, InboxRefusal};
use crate::peer::{AckSummary, MAX_CONTROL_MESSAGE, PeerState};
use crate::stats::RejectCause;
use crate::time::Time;
use crate::wire::{
    Channel, Control, Data, Datagram, Delivery, Fragment, Kind, Message, MessageId, Messages, PeerId, Role,
    Seq,
};

impl Endpoint {
    /// Handles any datagram.
    #[inline(never)]
    pub(super) fn handle_general(&mut self, from: SocketAddrV4, bytes: &[u8], now: Time) {
        let Ok(datagram) = Datagram::parse(bytes, Some(self.remote_role())) else {
            return self.reject(from, RejectCause::Malformed);
        };
        let Some(handle) = self.resolve_peer(from, &datagram, now) else { return };
        let mut acks = AckSummary::default();
        let mut messages = datagram.messages();
        if let Some(peer) = self.peers.get_mut(handle) {
            peer.note_received(datagram.as_bytes().len(), &self.config, now);
            if peer.state != PeerState::Established {
                acks = peer.begin_acks(&datagram, now);
            }
            fast_path::handle_frequent(peer, &mut messages, &mut acks, &mut self.events, &self.config, now);
        }
        if !messages.rest().is_empty() {
            self.handle_rest(handle, &mut messages, &mut acks, now);
            // T-57: only now, because messages behind a disconnect were sent before it: control messages go
            // first (T-66).
            if let Some(disconnect) = self.pending_disconnect.take() {
                self.finish_disconnect(disconnect, now);
            }
        }
        if let Some(peer) = self.peers.get_mut(handle) {
            let forged = peer.apply_acks(&acks, Some(&datagram), &self.config, now);
            mark_dirty(peer, handle, &mut self.dirty_peers);
            if forged > 0 {
                self.rejected.add_many(RejectCause::ForgedAck, forged.into());
            }
        }
    }

    /// Handles the rest of a datagram, with any kind of message.
    #[inline(never)]
    fn handle_rest(
        &mut self,
        handle: PeerHandle,
        messages: &mut Messages<'_>,
        acks: &mut AckSummary,
        now: Time,
    ) {
        loop {
            let before = messages.rest();
            let Some(message) = messages.next() else { break };
            match message {
                Message::Ack(ack) => {
                    if let Some(peer) = self.peers.get_mut(handle) {
                        peer.on_ack_with_trust(ack.id, acks, now);
                    }
                    // Usually another ACK of a fragment follows.
                    continue;
                }
                Message::Data(data) => self.handle_data(handle, &data, now),
                other => {
                    let raw = before.get(..before.len() - messages.rest().len()).unwrap_or_default();
                    self.handle_other(handle, &other, raw, now);
                }
            }
            if messages.rest().is_empty() {
                return;
            }
            if let Some(peer) = self.peers.get_mut(handle) {
                fast_path::handle_frequent(peer, messages, acks, &mut self.events, &self.config, now);
            }
        }
    }

    pub(super) fn handle_query(&mut self, from: SocketAddrV4, text: &[u8]) {
        if self.events.queued_bytes() < self.config.max_event_bytes {
            self.events.push(Event::Query { from }, text);
        } else {
            self.reject(from, RejectCause::Full);
        }
    }

    /// Checks by the first byte whether a datagram may have an effect (T-58).
    #[inline]
    pub(super) fn check_sender(&self, from: SocketAddrV4, bytes: &[u8]) -> Result<(), RejectCause> {
        let sender = PeerId(*bytes.first().ok_or(RejectCause::Malformed)?);
        if self.role == Role::Client || sender == PeerId::UNASSIGNED || sender == PeerId::GAMESPY {
            return Ok(());
        }
        match self.find_sender(sender, from) {
            Err(RejectCause::UnknownSender) if self.admission.may_verify(from, sender) => Ok(()),
            found => found.map(drop),
        }
    }

    /// Returns the peer with an id, if it is at this address (T-58).
    #[inline]
    fn find_sender(&self, sender: PeerId, from: SocketAddrV4) -> Result<PeerHandle, RejectCause> {
        let handle = self.peers.find(sender).ok_or(RejectCause::UnknownSender)?;
        let known = self.peers.get(handle).is_some_and(|peer| peer.address == from);
        if known { Ok(handle) } else { Err(RejectCause::WrongAddress) }
    }

    /// Returns the peer that sent a datagram (T-51, T-58).
    fn resolve_peer(&mut self, from: SocketAddrV4, datagram: &Datagram<'_>, now: Time) -> Option<PeerHandle> {
        let handle = match self.find_sender(datagram.sender(), from) {
            Ok(handle) => handle,
            Err(RejectCause::UnknownSender) => return self.handle_unknown_sender(from, datagram, now),
            Err(cause) => {
                self.reject(from, cause);
                return None;
            }
        };
        if self.peers.get(handle).is_some_and(|peer| peer.state != PeerState::Established) {
            self.end_contest(handle);
            self.note_probe_answer(handle, datagram, now);
        }
        Some(handle)
    }

    fn handle_data(&mut self, handle: PeerHandle, data: &Data<'_>, now: Time) {
        let room = self.events.queued_bytes() < self.config.max_event_bytes;
        let Some(peer) = self.peers.get_mut(handle) else { return };
        peer.counters.messages_in.add(Kind::DATA, 1);
        let (id, live) = (peer.id, peer.state.is_connected());
        // T-51: data that overtakes the connect reply cannot be delivered yet, so it is not acknowledged
        // either.
        if peer.state == PeerState::Connecting {
            return self.reject_from(handle, RejectCause::NotAllowed);
        }
        let (seq, part) = match data.delivery {
            Delivery::Reliable(seq) => (seq, None),
            Delivery::Fragment(seq, part) => (seq, Some(part)),
            Delivery::Unreliable if live && room => {
                let received = Event::Received { peer: id, reliable: false };
                return self.events.push(received, data.payload);
            }
            Delivery::Unreliable => {
                return self
                    .reject_from(handle, if live { RejectCause::Full } else { RejectCause::NotAllowed });
            }
            Delivery::UnreliableFragment(_) => return self.reject_from(handle, RejectCause::Contradiction),
        };
        // Messages that cannot be stored are not acknowledged; duplicates of delivered ones are.
        if !room && seq.distance_from(peer.inbox(Channel::Game).expected()) >= 0 {
            return self.reject_from(handle, RejectCause::Full);
        }
        let Some(accepted) = self.accept(handle, Channel::Game, seq, part, data.payload, now) else { return };
        if accepted == Accepted::InOrder && live {
            self.events.push(Event::Received { peer: id, reliable: true }, data.payload);
        }
        let delivered = self.deliver_ready(handle, live);
        if let Some(peer) = self.peers.get_mut(handle) {
            peer.note_stall(Channel::Game, accepted == Accepted::InOrder || delivered, now);
        }
    }

    /// Passes a reliable message to its inbox and queues the ACK, even outside the window (T-69).
    ///
    /// Returns `None` if the message was refused or is a duplicate.
    fn accept(
        &mut self,
        handle: PeerHandle,
        channel: Channel,
        seq: Seq,
        fragment: Option<Fragment>,
        bytes: &[u8],
        now: Time,
    ) -> Option<Accepted> {
        let peer = self.peers.get_mut(handle)?;
        let hold = BufferLimits::new(self.config.max_out_of_order_bytes, self.config.message_limit);
        let accepted = peer.inbox(channel).accept(seq, fragment, bytes, hold, &mut self.pool);
        if !matches!(accepted, Accepted::Refused(InboxRefusal::Full | InboxRefusal::Contradiction)) {
            peer.queue_ack(
                MessageId { channel, seq, fragment: fragment.map(Fragment::index) },
                1,
                &self.config,
                now,
            );
        }
        let cause = match accepted {
            Accepted::InOrder | Accepted::Buffered => return Some(accepted),
            Accepted::Duplicate => {
                peer.counters.duplicates += 1;
                return None;
            }
            // T-76: the cookie of a host is acknowledged like any message and dropped on purpose.
            Accepted::Refused(InboxRefusal::Window) if self.role == Role::Client && bytes.is_empty() => {
                return None;
            }
            Accepted::Refused(InboxRefusal::Window) => RejectCause::Window,
            Accepted::Refused(InboxRefusal::Full) => RejectCause::Full,
            Accepted::Refused(InboxRefusal::Contradiction) => RejectCause::Contradiction,
        };
        self.reject_from(handle, cause);
        None
    }

    /// Delivers buffered game messages that are in order now. Returns `false` if there are none.
    #[inline]
    fn deliver_ready(&mut self, handle: PeerHandle, live: bool) -> bool {
        let Some(peer) = self.peers.get_mut(handle) else { return false };
        let id = peer.id;
        let mut delivered = false;
        while let Some(held) = peer.inbox(Channel::Game).next_ready() {
            let room = if live {
                self.events.reserve(Event::Received { peer: id, reliable: true }, held.len())
            } else {
                None
            };
            match room {
                Some(room) => held.take_into(room, &mut self.pool),
                None => held.free(&mut self.pool),
            }
            delivered = true;
        }
        delivered
    }

    /// Handles a message that is neither an ACK nor data.
    fn handle_other(&mut self, handle: PeerHandle, message: &Message<'_>, raw: &[u8], now: Time) {
        if let Some(peer) = self.peers.get_mut(handle) {
            peer.counters.messages_in.add(message.kind(), 1);
        }
        match message {
            Message::Control(control) => self.handle_control(handle, control, raw, now),
            Message::Ack(_) | Message::Data(_) | Message::Keepalive => {}
        }
    }

    fn handle_control(&mut self, handle: PeerHandle, control: &Control<'_>, raw: &[u8], now: Time) {
        if raw.len() > MAX_CONTROL_MESSAGE {
            return self.reject_from(handle, RejectCause::Malformed);
        }
        if self.handle_unverified_disconnect(handle, control, now) {
            return;
        }
        let Some(peer) = self.peers.get_mut(handle) else { return };
        let old = control.reliable && control.seq.distance_from(peer.inbox(Channel::Control).expected()) < 0;
        if !old && self.events.queued_bytes() >= self.config.max_event_bytes {
            return self.reject_from(handle, RejectCause::Full);
        }
        if !control.reliable {
            return self.dispatch(handle, &control.body, now);
        }
        let Some(accepted) = self.accept(handle, Channel::Control, control.seq, None, raw, now) else {
            return;
        };
        let mut delivered = accepted == Accepted::InOrder;
        if delivered {
            self.dispatch(handle, &control.body, now);
        }
        while let Some(held) =
            self.peers.get_mut(handle).and_then(|peer| peer.inbox(Channel::Control).next_ready())
        {
            delivered = true;
            let mut buffer = [0; MAX_CONTROL_MESSAGE];
            let Some(room) = buffer.get_mut(..held.len()) else {
                held.free(&mut self.pool);
                continue;
            };
            held.take_into(room, &mut self.pool);
            if let Ok(Message::Control(control)) = Message::parse(room, Some(self.remote_role())) {
                self.dispatch(handle, &control.body, now);
            }
        }
        if let Some(peer) = self.peers.get_mut(handle) {
            peer.note_stall(Channel::Control, delivered, now);
        }
    }

    const fn remote_role(&self) -> Role {
        match self.role {
            Role::Host => Role::Client,
            Role::Client => Role::Host,
        }
    }

    pub(super) fn reject_from(&mut self, handle: PeerHandle, cause: RejectCause) {
        if let Some(peer) = self.peers.get_mut(handle) {
            peer.counters.rejected.add(cause);
            let from = peer.address;
            self.push_rejected_event(from, cause);
        }
    }

    pub(super) fn reject(&mut self, from: SocketAddrV4, cause: RejectCause) {
        self.rejected.add(cause);
        self.push_rejected_event(from, cause);
    }

    fn push_rejected_event(&mut self, from: SocketAddrV4, cause: RejectCause) {
        if self.events.queued_bytes() < REJECTED_EVENT_LIMIT {
            self.events.push(Event::Rejected { from, cause }, &[]);
        }
    }
}

/// `Rejected` events are queued only while fewer bytes than this wait to be polled.
const REJECTED_EVENT_LIMIT: usize = 4096;
