//! Admission of clients: from a connect request to a peer, and the errors of that.
//!
//! This module implements [T-53] and [T-77]; [`admission`](crate::admission) verifies the addresses.
//!
//! [T-53]: bcnet_wire::protocol#t-53
//! [T-77]: bcnet_wire::protocol#t-77

use alloc::vec::Vec;
use core::fmt;
use core::net::{Ipv4Addr, SocketAddrV4};

use super::table::PeerHandle;
use super::{Endpoint, MAX_PASSWORD, Transmit, control};
use crate::admission::{
    AddressOwner, PendingRequest, ReplyContent, UnverifiedReply, Verification, cookie_message,
};
use crate::cipher;
use crate::event::{Event, LeaveReason};
use crate::peer::{Peer, PeerName, PeerState};
use crate::stats::RejectCause;
use crate::time::Time;
use crate::wire::{
    Ack, Body, Channel, Control, Datagram, Message, MessageId, PeerId, Role, Seq, Text, Writer,
};

impl Endpoint {
    /// Handles a datagram with an id that is not in use.
    ///
    /// Returns its peer if the datagram makes the sender a peer.
    #[inline(never)]
    pub(super) fn handle_unknown_sender(
        &mut self,
        from: SocketAddrV4,
        datagram: &Datagram<'_>,
        now: Time,
    ) -> Option<PeerHandle> {
        let sender = datagram.sender();
        let result = if self.role == Role::Client {
            Err(RejectCause::UnknownSender)
        } else if self.is_shutting_down {
            Err(RejectCause::NotAllowed)
        } else if sender == PeerId::UNASSIGNED {
            self.handle_unassigned(from, datagram, now).map(|()| None)
        } else {
            self.verify_newcomer(from, datagram, now).map(Some)
        };
        result.unwrap_or_else(|cause| {
            self.reject(from, cause);
            None
        })
    }

    /// Handles a datagram of a client without an id: a connect request or a disconnect (T-51).
    fn handle_unassigned(
        &mut self,
        from: SocketAddrV4,
        datagram: &Datagram<'_>,
        now: Time,
    ) -> Result<(), RejectCause> {
        let mut controls = datagram.messages().filter_map(|message| match message {
            Message::Control(Control { seq, reliable: true, body, .. }) => Some((seq, body)),
            Message::Control(_) | Message::Ack(_) | Message::Data(_) | Message::Keepalive => None,
        });
        match controls.next() {
            Some((Seq(0), Body::ConnectRequest { address, nonce, password })) => {
                self.handle_request((from, address), nonce, password, now)
            }
            // A refused client sends a disconnect and waits for the ACK.
            Some((seq, Body::Disconnect { .. })) => {
                self.admission.forget_request(from);
                self.queue_reply(from, ReplyContent::Ack(seq));
                Ok(())
            }
            Some(_) | None => Err(RejectCause::NotAllowed),
        }
    }

    /// Handles a connect request (T-53, T-75).
    fn handle_request(
        &mut self,
        (from, address): (SocketAddrV4, Ipv4Addr),
        nonce: u32,
        password: Text<'_>,
        now: Time,
    ) -> Result<(), RejectCause> {
        if password.as_bytes().len() > MAX_PASSWORD {
            return Err(RejectCause::Malformed);
        }
        if self.peers.at_address(from).any(|(_, peer)| peer.nonce == Some(nonce)) {
            self.queue_reply(from, ReplyContent::Ack(Seq(0)));
            return Ok(());
        }
        // A peer that is leaving counts as alive until it has acknowledged the end.
        let is_present = |peer: &Peer| peer.state.is_connected() || !peer.is_shutdown_acked();
        // T-57: the disconnect of this peer may be real. After a forged one, the peer has to be silent first.
        let may_have_left =
            |peer: &Peer| matches!(peer.state, PeerState::Departing { .. }) && !peer.has_forgeries;
        let is_alive = |peer: &Peer| {
            is_present(peer) && !may_have_left(peer) && now < peer.last_received.plus(RECENTLY_ALIVE)
        };
        if self.peers.at_address(from).any(|(_, peer)| is_alive(peer) || has_too_many_guesses(peer.state)) {
            return Err(RejectCause::Impostor);
        }
        if self.events.queued_bytes() >= self.config.max_event_bytes {
            return Err(RejectCause::Full);
        }
        let limits = (self.config.max_pending_requests, self.config.pending_timeout);
        if self.admission.add_request(from, nonce, limits, now).ok_or(RejectCause::Crowded)? {
            self.events.push(Event::Request { from, address }, password.as_bytes());
        }
        Ok(())
    }

    /// Handles a datagram with an unused id (T-76).
    ///
    /// If the sender has an offer of the id and verifies its address, it becomes a peer.
    fn verify_newcomer(
        &mut self,
        from: SocketAddrV4,
        datagram: &Datagram<'_>,
        now: Time,
    ) -> Result<PeerHandle, RejectCause> {
        let old = self.connected_at(from);
        let owner = old.and_then(|old| self.peers.get(old)).map(|peer| AddressOwner {
            unacked_range: peer.unacked_range(Channel::Game),
            is_idle: now >= peer.last_received.plus(self.replaceable_after()),
        });
        // A client that was restarted may have acknowledged the probes of the old one.
        let departures = self.peers.at_address(from).filter_map(|(_, peer)| peer.departure.as_ref());
        let probes: Vec<Seq> = departures.flat_map(|departure| departure.numbers()).collect();
        let verification = self.admission.verify(from, datagram, owner.as_ref(), &probes, &self.config, now);
        self.mark_replies_dirty();
        let nonce = match verification {
            Verification::Verified(nonce) => nonce,
            Verification::Pending => return Err(RejectCause::NotAllowed),
            Verification::WrongCookies(guesses) => {
                self.count_guesses(from, guesses);
                return Err(RejectCause::NotAllowed);
            }
            Verification::NoOffer => return Err(RejectCause::UnknownSender),
        };
        if self.count_connected_elsewhere(from) >= self.config.max_peers {
            return Err(RejectCause::Crowded);
        }
        if let Some(old) = old {
            self.replace_peer(old, now);
        }
        self.remove_former(from, now);
        let mut peer = Peer::new(from, datagram.sender(), PeerState::Established, &self.config, now);
        peer.nonce = nonce;
        // The request and the reply were the first control messages.
        peer.take_seq(Channel::Control);
        peer.inbox(Channel::Control).accept_next(Seq(0));
        self.join(peer, now).ok_or(RejectCause::Crowded)
    }

    /// Admits the client of a pending request at once.
    pub(super) fn admit_now(&mut self, from: SocketAddrV4, now: Time) -> Result<PeerId, AdmitError> {
        if self.connected_at(from).is_some() {
            return self.offer_id(from, now);
        }
        let (request, id) = self.prepare_admission(from, now)?;
        self.remove_former(from, now);
        let mut peer = Peer::new(from, id, PeerState::Established, &self.config, now);
        peer.nonce = Some(request.nonce);
        peer.inbox(Channel::Control).accept_next(Seq(0));
        peer.queue_ack(
            MessageId { channel: Channel::Control, seq: Seq(0), fragment: None },
            1,
            &self.config,
            now,
        );
        peer.queue_control(Body::ConnectReply { assigned: id }, now);
        self.join(peer, now).ok_or(AdmitError::Full(from))?;
        Ok(id)
    }

    /// Offers an id to the client of a pending request; the client must verify its address (T-75).
    pub(super) fn offer_id(&mut self, from: SocketAddrV4, now: Time) -> Result<PeerId, AdmitError> {
        let (request, id) = self.prepare_admission(from, now)?;
        let old = self.connected_at(from);
        let old = old.and_then(|old| self.peers.get(old));
        let window = old.map(|peer| peer.unacked_range(Channel::Game));
        // T-57: so a client that comes back needs no second round trip.
        let both = old.is_some_and(|peer| matches!(peer.state, PeerState::Departing { .. }));
        if self.admission.offer_id(id, request, window, both, now) {
            self.mark_replies_dirty();
            for handle in self.peers.handles() {
                self.contest(handle, from, now);
            }
        }
        Ok(id)
    }

    /// Removes the request of an address, and chooses an id for it.
    fn prepare_admission(
        &mut self,
        from: SocketAddrV4,
        now: Time,
    ) -> Result<(PendingRequest, PeerId), AdmitError> {
        let request = self.find_request(from, now)?;
        if self.count_connected_elsewhere(from) >= self.config.max_peers {
            return Err(AdmitError::Full(from));
        }
        let id = self.choose_id(from, now).ok_or(AdmitError::Full(from))?;
        self.admission.forget_request(from);
        Ok((request, id))
    }

    /// Returns the number of peers connected from other addresses.
    ///
    /// A new client replaces the peer at its own address.
    fn count_connected_elsewhere(&self, from: SocketAddrV4) -> usize {
        self.peers.iter().filter(|peer| peer.state.is_connected() && peer.address != from).count()
    }

    /// Removes the peers that have left an address: their last messages must not reach the new client.
    fn remove_former(&mut self, from: SocketAddrV4, now: Time) {
        let is_former = |peer: &Peer| peer.address == from && !peer.state.is_connected();
        for handle in self.peers.handles() {
            if self.peers.get(handle).is_some_and(is_former) {
                self.remove(handle, now);
            }
        }
    }

    /// Chooses an id (T-50). If all are in use, removes the peer that has been leaving longest and takes
    /// its id.
    fn choose_id(&mut self, from: SocketAddrV4, now: Time) -> Option<PeerId> {
        let ids = self.config.id_policy;
        let peers = &self.peers;
        let id = self.admission.choose_id(from, ids, |id| peers.find(id).is_none(), now);
        if id.is_some() {
            return id;
        }
        let leaving = |handle: PeerHandle| match self.peers.get(handle)?.state {
            PeerState::Lingering { until, .. } => Some((until, handle)),
            PeerState::Connecting
            | PeerState::Established
            | PeerState::Guarded
            | PeerState::Departing { .. }
            | PeerState::Contested { .. }
            | PeerState::Draining { .. } => None,
        };
        let (_, oldest) = self.peers.handles().filter_map(leaving).min_by_key(|(until, _)| *until)?;
        self.remove(oldest, now).map(|peer| peer.id)
    }

    pub(super) fn find_request(&self, from: SocketAddrV4, now: Time) -> Result<PendingRequest, AdmitError> {
        self.admission.request(from, self.config.pending_timeout, now).ok_or(AdmitError::NoRequest(from))
    }

    /// Adds a new peer, and sends it the names of the others (T-52).
    fn join(&mut self, mut peer: Peer, now: Time) -> Option<PeerHandle> {
        let named = |peer: &Peer| peer.state.is_connected().then(|| Some((peer.id, peer.name.clone()?)))?;
        let own = self.name.clone().map(|name| (self.id, name));
        let known: Vec<(PeerId, PeerName)> =
            own.into_iter().chain(self.peers.iter().filter_map(named)).collect();
        for (peer_id, PeerName { address, utf16le }) in &known {
            let name = Text::new(utf16le).unwrap_or_default();
            let body = Body::Identity { peer: *peer_id, address: *address, name };
            peer.queue_control(control::mask_address(body, self.masks_addresses), now);
        }
        let id = peer.id;
        self.admission.withdraw_offers_to(peer.address);
        let handle = self.add(peer)?;
        self.admission.note_joined(id, now);
        self.events.push(Event::Joined { peer: id }, &[]);
        Some(handle)
    }

    /// Removes a peer whose address another client has now (T-53).
    fn replace_peer(&mut self, handle: PeerHandle, now: Time) {
        let Some(peer) = self.remove(handle, now) else { return };
        let has_left = matches!(peer.state, PeerState::Departing { .. });
        let reason = if has_left { LeaveReason::Disconnected } else { LeaveReason::Replaced };
        self.events.push(Event::Left { peer: peer.id, reason }, &[]);
        let gone = Body::Disconnect { peer: peer.id, address: *peer.address.ip() };
        self.broadcast_gone(peer.id, peer.name.is_some(), gone, now);
    }

    /// Returns the silence after which an offered id alone may replace a peer, in microseconds (T-53).
    const fn replaceable_after(&self) -> u64 {
        self.config.keepalive.saturating_mul(5) / 2
    }

    /// Pauses sending to a peer at `address`, because a new client may have replaced it (T-77).
    ///
    /// The pause ends when the peer sends a datagram. It also ends when the peer was silent for long and no
    /// client has verified itself in time. The last messages to a leaving peer pause only for the time of
    /// the verification.
    fn contest(&mut self, handle: PeerHandle, address: SocketAddrV4, now: Time) {
        let max_pause = self.replaceable_after();
        let Some(peer) = self.peers.get_mut(handle).filter(|peer| peer.address == address) else { return };
        let proved = now.plus(PROOF_TIMEOUT);
        let (state, until) = match peer.state {
            PeerState::Established | PeerState::Guarded | PeerState::Contested { .. } => {
                let until = peer.last_received.plus(max_pause).plus(PROOF_TIMEOUT).max(proved);
                (PeerState::Contested { until, guesses: guess_count(peer.state) }, until)
            }
            PeerState::Lingering { until, .. } if !peer.is_shutdown_acked() => {
                (PeerState::Lingering { until, muted_until: Some(proved) }, until.min(proved))
            }
            // The probes continue, and are due at once.
            PeerState::Departing { .. } => (PeerState::Departing { muted_until: Some(proved) }, now),
            PeerState::Connecting | PeerState::Draining { .. } | PeerState::Lingering { .. } => return,
        };
        peer.state = state;
        // Marked as dirty without being on the list: so nothing puts it there.
        peer.is_dirty = true;
        self.dirty_peers.remove(handle);
        self.deadlines.set(handle.key(), Some(until));
    }

    /// Ends the pause of a contested peer (T-77).
    pub(super) fn end_contest(&mut self, handle: PeerHandle) {
        let Some(peer) = self.peers.get_mut(handle) else { return };
        peer.state = match peer.state {
            PeerState::Contested { .. } => {
                self.admission.withdraw_offers_to(peer.address);
                peer.live_state()
            }
            PeerState::Departing { muted_until: Some(_) } => {
                self.admission.withdraw_offers_to(peer.address);
                PeerState::Departing { muted_until: None }
            }
            PeerState::Lingering { until, muted_until: Some(_) } => {
                PeerState::Lingering { until, muted_until: None }
            }
            PeerState::Connecting
            | PeerState::Established
            | PeerState::Guarded
            | PeerState::Departing { .. }
            | PeerState::Draining { .. }
            | PeerState::Lingering { .. } => return,
        };
        peer.is_dirty = false;
        self.mark_changed(handle);
    }

    /// Counts ACKs of numbers that were never sent, from the address of a contested peer (T-77).
    ///
    /// After too many of them, no client can verify itself there until a datagram of the peer arrives or
    /// the pause ends.
    fn count_guesses(&mut self, from: SocketAddrV4, more: u8) {
        let Some(handle) = self.connected_at(from) else { return };
        let Some(peer) = self.peers.get_mut(handle) else { return };
        let is_over = match &mut peer.state {
            PeerState::Contested { guesses, .. } => {
                *guesses = guesses.saturating_add(more);
                has_too_many_guesses(peer.state)
            }
            // T-57: a client that comes back after a real disconnect guesses no numbers.
            PeerState::Departing { .. } => {
                peer.has_forgeries = true;
                true
            }
            PeerState::Connecting
            | PeerState::Established
            | PeerState::Guarded
            | PeerState::Draining { .. }
            | PeerState::Lingering { .. } => false,
        };
        if is_over {
            self.admission.withdraw_offers_to(from);
        }
    }

    /// Returns the peer that is connected at an address.
    fn connected_at(&self, address: SocketAddrV4) -> Option<PeerHandle> {
        self.peers.at_address(address).find(|(_, peer)| peer.state.is_connected()).map(|(handle, _)| handle)
    }

    /// Queues a reply to an unverified address.
    pub(super) fn queue_reply(&mut self, to: SocketAddrV4, content: ReplyContent) {
        self.admission.queue_reply(to, content);
        self.mark_replies_dirty();
    }

    fn mark_replies_dirty(&mut self) {
        if self.admission.has_replies()
            && !self.dirty_peers.iter().any(|handle| *handle == PeerHandle::UNVERIFIED_REPLIES)
        {
            self.dirty_peers.push(PeerHandle::UNVERIFIED_REPLIES);
        }
    }

    /// Writes the next reply into `buffer`; the others wait for their turn.
    #[cold]
    pub(super) fn transmit_reply(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        let UnverifiedReply { to, content } = self.admission.next_reply()?;
        self.mark_replies_dirty();
        let mut writer = Writer::with_limit(buffer, self.id, self.config.datagram_limit);
        let ack = |seq| Message::Ack(Ack::new(MessageId { channel: Channel::Control, seq, fragment: None }));
        let first = |body| Message::Control(Control::new(Seq(0), body));
        let written = match content {
            ReplyContent::Offer(assigned, number, other) => {
                let reply = first(Body::ConnectReply { assigned });
                writer.push(&ack(Seq(0)))
                    && writer.push(&reply)
                    && writer.push(&cookie_message(number))
                    && other.is_none_or(|other| writer.push(&cookie_message(other)))
            }
            ReplyContent::Probe(seq, [one, other]) => {
                writer.push(&ack(seq))
                    && writer.push(&cookie_message(one))
                    && writer.push(&cookie_message(other))
            }
            ReplyContent::Refusal(reason) => {
                let boot = first(Body::Boot { reason, target: PeerId::UNASSIGNED });
                writer.push(&ack(Seq(0))) && writer.push(&boot)
            }
            ReplyContent::Cookie(number, other) => {
                writer.push(&cookie_message(number))
                    && other.is_none_or(|other| writer.push(&cookie_message(other)))
            }
            ReplyContent::Ack(seq) => writer.push(&ack(seq)),
        };
        let datagram = writer.finish().filter(|_| written)?;
        if self.config.cipher {
            cipher::encrypt(datagram);
        }
        Some(Transmit { to, len: datagram.len() })
    }
}

/// Returns how many wrong numbers arrived from the address of a contested peer.
const fn guess_count(state: PeerState) -> u8 {
    match state {
        PeerState::Contested { guesses, .. } => guesses,
        PeerState::Connecting
        | PeerState::Established
        | PeerState::Guarded
        | PeerState::Departing { .. }
        | PeerState::Draining { .. }
        | PeerState::Lingering { .. } => 0,
    }
}

/// Returns whether too many wrong numbers arrived from the address of a peer.
const fn has_too_many_guesses(state: PeerState) -> bool {
    guess_count(state) >= MAX_GUESSES
}

/// A peer with a datagram within this time, in microseconds, was not restarted since (T-53).
const RECENTLY_ALIVE: u64 = 2_000_000;
/// Within this time a stock client has sent the last of the nine ACKs for its cookie.
const PROOF_TIMEOUT: u64 = 6_000_000;

/// The maximum number of wrong numbers from the address of a contested peer.
const MAX_GUESSES: u8 = 4;

/// The reason why a client was neither admitted nor refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdmitError {
    /// No request from this address is pending.
    ///
    /// Answer each [`Event::Request`] once, within [`pending_timeout`](crate::Config::pending_timeout).
    NoRequest(SocketAddrV4),
    /// All ids are in use, or [`max_peers`](crate::Config::max_peers) clients are connected.
    ///
    /// Refuse the client, or try again when a peer has left.
    Full(SocketAddrV4),
}

impl fmt::Display for AdmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRequest(from) => {
                write!(f, "no pending connect request from {from}: it has expired or was answered before")
            }
            Self::Full(from) => {
                write!(f, "no free id for {from}: refuse the client, or try again when a peer has left")
            }
        }
    }
}

impl core::error::Error for AdmitError {}

/// The peer cannot be booted: it has left or never joined, or this endpoint is not a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BootError(pub PeerId);

impl fmt::Display for BootError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cannot boot {}: it is not connected to this host; boot a peer after its Joined event and before it leaves",
            self.0
        )
    }
}

impl core::error::Error for BootError {}
