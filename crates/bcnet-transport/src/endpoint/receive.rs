//! What arrives: datagrams find their peer, messages their inbox, ACKs their outbox.

use core::net::SocketAddrV4;

use super::table::Handle;
use super::{Endpoint, list, short};
use crate::event::Event;
use crate::inbox::{Accepted, Hold, Refusal};
use crate::peer::{AckSummary, CONTROL_ROOM, State};
use crate::stats::Cause;
use crate::time::Time;
use crate::wire::{
    Channel, Control, Data, Datagram, Delivery, Kind, Message, MessageId, Messages, Part, PeerId, Role, Seq,
};

impl Endpoint {
    /// Handles a datagram, whatever it is.
    #[inline(never)]
    pub(super) fn handle_any(&mut self, from: SocketAddrV4, bytes: &[u8], now: Time) {
        let Ok(datagram) = Datagram::parse(bytes, Some(self.other_role())) else {
            return self.reject(from, Cause::Malformed);
        };
        let Some(handle) = self.resolve(from, &datagram, now) else { return };
        let mut acks = AckSummary::default();
        let mut messages = datagram.messages();
        if let Some(peer) = self.peers.get_mut(handle) {
            peer.heard(datagram.as_bytes().len(), &self.config, now);
            short::take_frequent(peer, &mut messages, &mut acks, &mut self.events, &self.config, now);
        }
        if !messages.rest().is_empty() {
            self.handle_rest(handle, &mut messages, &mut acks, now);
            // T-57: only now, for what stands behind a goodbye was said before it: control messages go first (T-66).
            if let Some(farewell) = self.farewell.take() {
                self.part(farewell, now);
            }
        }
        if let Some(peer) = self.peers.get_mut(handle) {
            peer.learn(&acks, &self.config, now);
            list(peer, handle, &mut self.ready);
        }
    }

    /// Handles what is left of a datagram, whatever it is.
    #[inline(never)]
    fn handle_rest(&mut self, handle: Handle, messages: &mut Messages<'_>, acks: &mut AckSummary, now: Time) {
        loop {
            let before = messages.rest();
            let Some(message) = messages.next() else { break };
            match message {
                Message::Ack(ack) => {
                    if let Some(peer) = self.peers.get_mut(handle) {
                        peer.settle(ack.id, acks, now);
                    }
                    // Mostly another ACK of a part follows.
                    continue;
                }
                Message::Data(data) => self.handle_data(handle, &data, now),
                other => {
                    let raw = before.get(..before.len() - messages.rest().len()).unwrap_or_default();
                    self.handle_rare(handle, &other, raw, now);
                }
            }
            if messages.rest().is_empty() {
                return;
            }
            if let Some(peer) = self.peers.get_mut(handle) {
                short::take_frequent(peer, messages, acks, &mut self.events, &self.config, now);
            }
        }
    }

    pub(super) fn handle_query(&mut self, from: SocketAddrV4, text: &[u8]) {
        if self.events.waiting() < self.config.event_bytes {
            self.events.push(Event::Query { from }, text);
        } else {
            self.reject(from, Cause::Full);
        }
    }

    /// T-58: may this be somebody's? Only the first byte of the datagram is looked at.
    #[inline]
    pub(super) fn check_sender(&self, from: SocketAddrV4, bytes: &[u8]) -> Result<(), Cause> {
        let sender = PeerId(*bytes.first().ok_or(Cause::Malformed)?);
        if self.role == Role::Client || sender == PeerId::UNASSIGNED || sender == PeerId::GAMESPY {
            return Ok(());
        }
        match self.find_sender(sender, from) {
            Err(Cause::UnknownSender) if self.admission.may_claim(from, sender) => Ok(()),
            found => found.map(drop),
        }
    }

    /// T-58: the peer with an id, if it is at this address.
    #[inline]
    fn find_sender(&self, sender: PeerId, from: SocketAddrV4) -> Result<Handle, Cause> {
        let handle = self.peers.find(sender).ok_or(Cause::UnknownSender)?;
        let known = self.peers.get(handle).is_some_and(|peer| peer.address == from);
        if known { Ok(handle) } else { Err(Cause::WrongAddress) }
    }

    /// T-51, T-58: whose datagram is this?
    fn resolve(&mut self, from: SocketAddrV4, datagram: &Datagram<'_>, now: Time) -> Option<Handle> {
        let handle = match self.find_sender(datagram.sender(), from) {
            Ok(handle) => handle,
            Err(Cause::UnknownSender) => return self.handle_stranger(from, datagram, now),
            Err(cause) => {
                self.reject(from, cause);
                return None;
            }
        };
        if self.peers.get(handle).is_some_and(|peer| peer.state != State::Live) {
            self.settle_contest(handle);
        }
        Some(handle)
    }

    fn handle_data(&mut self, handle: Handle, data: &Data<'_>, now: Time) {
        let room = self.events.waiting() < self.config.event_bytes;
        let Some(peer) = self.peers.get_mut(handle) else { return };
        peer.counters.messages_in.add(Kind::DATA, 1);
        let (id, live) = (peer.id, peer.state.is_connected());
        // T-51: data that overtakes the connect reply cannot be delivered yet, so it is not acknowledged either.
        if peer.state == State::Connecting {
            return self.reject_from(handle, Cause::NotAllowed);
        }
        let (seq, part) = match data.delivery {
            Delivery::Reliable(seq) => (seq, None),
            Delivery::Fragment(seq, part) => (seq, Some(part)),
            Delivery::Unreliable if live && room => {
                let received = Event::Received { peer: id, reliable: false };
                return self.events.push(received, data.payload);
            }
            Delivery::Unreliable => {
                return self.reject_from(handle, if live { Cause::Full } else { Cause::NotAllowed });
            }
            Delivery::UnreliablePart(_) => return self.reject_from(handle, Cause::Contradiction),
        };
        // Nothing is acknowledged that could not be kept; what was delivered before is.
        if !room && seq.distance_from(peer.inbox(Channel::Game).expected()) >= 0 {
            return self.reject_from(handle, Cause::Full);
        }
        let Some(accepted) = self.accept(handle, Channel::Game, seq, part, data.payload, now) else { return };
        if accepted == Accepted::Now && live {
            self.events.push(Event::Received { peer: id, reliable: true }, data.payload);
        }
        let delivered = self.deliver_ready(handle, live);
        if let Some(peer) = self.peers.get_mut(handle) {
            peer.note_stall(Channel::Game, accepted == Accepted::Now || delivered, now);
        }
    }

    /// Hands a reliable message to its inbox and owes the ACK, whatever the window says (T-69). Returns `None` if it
    /// was refused or is a duplicate.
    fn accept(
        &mut self,
        handle: Handle,
        channel: Channel,
        seq: Seq,
        part: Option<Part>,
        bytes: &[u8],
        now: Time,
    ) -> Option<Accepted> {
        let peer = self.peers.get_mut(handle)?;
        let hold = Hold::new(self.config.hold_bytes, self.config.message_limit);
        let accepted = peer.inbox(channel).accept(seq, part, bytes, hold, &mut self.pool);
        if !matches!(accepted, Accepted::Refused(Refusal::Full | Refusal::Contradiction)) {
            peer.owe(MessageId { channel, seq, part: part.map(Part::index) }, 1, &self.config, now);
        }
        let cause = match accepted {
            Accepted::Now | Accepted::Kept => return Some(accepted),
            Accepted::Duplicate => {
                peer.counters.duplicates += 1;
                return None;
            }
            // T-76: a host's cookie is acknowledged like any message, and was meant to be dropped.
            Accepted::Refused(Refusal::Window) if self.role == Role::Client && bytes.is_empty() => {
                return None;
            }
            Accepted::Refused(Refusal::Window) => Cause::Window,
            Accepted::Refused(Refusal::Full) => Cause::Full,
            Accepted::Refused(Refusal::Contradiction) => Cause::Contradiction,
        };
        self.reject_from(handle, cause);
        None
    }

    /// Delivers the game messages that waited for what has just arrived. Returns `false` if there are none.
    #[inline]
    fn deliver_ready(&mut self, handle: Handle, live: bool) -> bool {
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
                Some(room) => held.take(room, &mut self.pool),
                None => held.free(&mut self.pool),
            }
            delivered = true;
        }
        delivered
    }

    /// Everything but ACKs and data.
    fn handle_rare(&mut self, handle: Handle, message: &Message<'_>, raw: &[u8], now: Time) {
        if let Some(peer) = self.peers.get_mut(handle) {
            peer.counters.messages_in.add(message.kind(), 1);
        }
        match message {
            Message::Control(control) => self.handle_control(handle, control, raw, now),
            Message::Ack(_) | Message::Data(_) | Message::Keepalive => {}
        }
    }

    fn handle_control(&mut self, handle: Handle, control: &Control<'_>, raw: &[u8], now: Time) {
        if raw.len() > CONTROL_ROOM {
            return self.reject_from(handle, Cause::Malformed);
        }
        let Some(peer) = self.peers.get_mut(handle) else { return };
        let old = control.reliable && control.seq.distance_from(peer.inbox(Channel::Control).expected()) < 0;
        if !old && self.events.waiting() >= self.config.event_bytes {
            return self.reject_from(handle, Cause::Full);
        }
        if !control.reliable {
            return self.dispatch(handle, &control.body, now);
        }
        let Some(accepted) = self.accept(handle, Channel::Control, control.seq, None, raw, now) else {
            return;
        };
        let mut delivered = accepted == Accepted::Now;
        if delivered {
            self.dispatch(handle, &control.body, now);
        }
        while let Some(held) =
            self.peers.get_mut(handle).and_then(|peer| peer.inbox(Channel::Control).next_ready())
        {
            delivered = true;
            let mut buffer = [0; CONTROL_ROOM];
            let Some(room) = buffer.get_mut(..held.len()) else {
                held.free(&mut self.pool);
                continue;
            };
            held.take(room, &mut self.pool);
            if let Ok(Message::Control(control)) = Message::parse(room, Some(self.other_role())) {
                self.dispatch(handle, &control.body, now);
            }
        }
        if let Some(peer) = self.peers.get_mut(handle) {
            peer.note_stall(Channel::Control, delivered, now);
        }
    }

    const fn other_role(&self) -> Role {
        match self.role {
            Role::Host => Role::Client,
            Role::Client => Role::Host,
        }
    }

    pub(super) fn reject_from(&mut self, handle: Handle, cause: Cause) {
        if let Some(peer) = self.peers.get_mut(handle) {
            peer.counters.rejected.add(cause);
            let from = peer.address;
            self.tell_rejected(from, cause);
        }
    }

    pub(super) fn reject(&mut self, from: SocketAddrV4, cause: Cause) {
        self.rejected.add(cause);
        self.tell_rejected(from, cause);
    }

    fn tell_rejected(&mut self, from: SocketAddrV4, cause: Cause) {
        if self.events.waiting() < REJECTED_ROOM {
            self.events.push(Event::Rejected { from, cause }, &[]);
        }
    }
}

/// Rejections are told only while no more than this waits to be polled.
const REJECTED_ROOM: usize = 4096;
