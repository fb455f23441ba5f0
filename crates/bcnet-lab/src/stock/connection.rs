//! Admission, names, departures and timeouts of the stock engine.
//!
//! A host admits or refuses clients, assigns ids, and relays names and disconnects.

use std::net::{Ipv4Addr, SocketAddrV4};

use bcnet_transport::wire::{BootReason, Kind, PeerId, Role};
use bcnet_transport::{Event, LeaveReason, Time};

use super::message::{RetransmitTimer, StockMessage};
use super::params::{Backoff, BackoffMode};
use super::peer::PeerEntry;
use super::{StockEngine, StockState};

impl StockEngine {
    /// Sends the engine's name, UTF-16LE, to the host. A host sends it to itself and relays it like any other
    /// name.
    pub fn identify(&mut self, name: &[u8], now: Time) {
        self.now = self.clock.reading_at(now);
        let payload = identity_payload(self.id, self.own_address, name);
        self.queue_for_peer(PeerId::HOST, StockMessage::new(Kind::IDENTITY, payload)).ok();
    }

    /// Sends a disconnect to the host and waits for its ACK, at most for the linger time.
    ///
    /// A host sends the disconnect to itself and relays it.
    pub fn leave(&mut self, now: Time) {
        self.now = self.clock.reading_at(now);
        self.start_leaving(LeaveReason::Local);
    }

    /// Sends every peer a boot message about `peer`, and deletes `peer`. Host only.
    ///
    /// Returns `false` for an unknown peer.
    pub fn boot(&mut self, peer: PeerId, reason: BootReason, now: Time) -> bool {
        self.now = self.clock.reading_at(now);
        let live = |place: &usize| self.peers.get(*place).is_some_and(PeerEntry::is_live);
        if self.role == Role::Client || self.peers.find(peer).filter(live).is_none() {
            return false;
        }
        self.queue_for_peer(PeerId::NULL, boot_message(reason, peer)).ok();
        self.mark_deleted(peer, LeaveReason::Booted(reason));
        true
    }

    /// Queues the connect request or keepalives. This is the first step of a frame.
    pub(super) fn queue_connect_or_keepalives(&mut self) {
        match self.state {
            StockState::Connecting => {
                if let Some(payload) = self.connect_request.take() {
                    let mut message = StockMessage::new(Kind::CONNECT, payload);
                    message.timer =
                        RetransmitTimer::new(Backoff { mode: BackoffMode::Fixed, first: 1.0, step: 1.0 });
                    self.queue_for_peer(PeerId::HOST, message).ok();
                }
            }
            StockState::Connected if self.leaving_since.is_some() && !self.params.leaving_keepalives => {}
            StockState::Connected => self.queue_keepalives(),
            StockState::Closed => {}
        }
    }

    fn queue_keepalives(&mut self) {
        let Some(wait) = self.params.keepalive else { return };
        let keepalive = || StockMessage::new(Kind::KEEPALIVE, Vec::new());
        if self.role == Role::Client {
            if self.now - self.host_last_queued > wait {
                self.counters.keepalives += 1;
                self.queue_for_peer(PeerId::HOST, keepalive()).ok();
            }
            return;
        }
        let (own, now) = (self.id, self.now);
        let quiet = |peer: &PeerEntry| peer.is_live() && peer.id != own && now - peer.last_queued > wait;
        for place in self.peers.positions(quiet) {
            self.counters.keepalives += 1;
            self.queue_for_entry(place, keepalive()).ok();
        }
    }

    /// Deletes silent peers and continues a departure. This is the last step of a frame.
    pub(super) fn check_timeouts(&mut self) {
        if let Some(wait) = self.params.silence {
            match self.role {
                Role::Client if self.now - self.host_last_received > wait => {
                    self.leave_reason.get_or_insert(LeaveReason::Silent);
                }
                Role::Client => {}
                Role::Host => self.remove_timed_out_peers(wait),
            }
        }
        // A node that starts to leave has at least one more frame, in which it sends the last ACKs.
        self.finish_leaving();
        if let Some(reason) = self.leave_reason.take() {
            self.start_leaving(reason);
        }
    }

    fn remove_timed_out_peers(&mut self, wait: f32) {
        let (own, now) = (self.id, self.now);
        let silent = |peer: &PeerEntry| peer.is_live() && peer.id != own && now - peer.last_received > wait;
        for place in self.peers.positions(silent).into_iter().rev() {
            self.must_run_next_frame = true;
            let Some(id) = self.peers.get(place).map(|peer| peer.id) else { continue };
            if id == PeerId::UNASSIGNED {
                self.peers.remove(place);
            } else {
                self.mark_deleted(id, LeaveReason::Silent);
                self.queue_for_peer(PeerId::NULL, boot_message(BootReason::TIMED_OUT, id)).ok();
            }
        }
    }

    fn start_leaving(&mut self, reason: LeaveReason) {
        if self.leaving_since.is_some() || self.state == StockState::Closed {
            return;
        }
        self.leaving_since = Some(self.now);
        self.must_run_next_frame = true;
        let gone: Vec<PeerId> = match self.role {
            Role::Client => vec![PeerId::HOST],
            Role::Host => self.peers(),
        };
        for peer in gone {
            self.push_event(Event::Left { peer, reason }, &[]);
        }
        if self.state == StockState::Connected {
            let mut payload = vec![self.id.0];
            payload.extend(self.own_address.octets());
            let mut message = StockMessage::new(Kind::DISCONNECT, payload);
            message.timer = RetransmitTimer::new(Backoff { mode: BackoffMode::Fixed, first: 1.0, step: 0.5 });
            self.queue_for_peer(PeerId::HOST, message).ok();
        }
    }

    /// Closes the engine once the disconnect is acknowledged, or after the linger time.
    fn finish_leaving(&mut self) {
        let Some(since) = self.leaving_since else { return };
        let waits = self.peers.iter().any(|peer| peer.is_live() && peer.has_pending(Kind::DISCONNECT));
        if !waits || self.now - since > self.params.linger {
            self.state = StockState::Closed;
            self.peers.clear();
            self.incoming = Default::default();
            self.socket_buffer.clear();
        }
    }

    /// Marks a peer as deleted. The engine still serves the peer for the linger time.
    fn mark_deleted(&mut self, id: PeerId, reason: LeaveReason) {
        // The engine leaves if this is its own entry, or the host's entry at a client. `start_leaving` reports that.
        let ends = id == self.id || (self.role == Role::Client && id == PeerId::HOST);
        let Some(peer) = self.peers.find(id).and_then(|place| self.peers.get_mut(place)) else { return };
        if peer.is_live() {
            peer.deleted_at = Some(self.now);
            if !ends {
                self.push_event(Event::Left { peer: id, reason }, &[]);
            }
        }
    }

    /// Handles a connect message: a request at a host, a reply at a client. Only the role tells them apart.
    pub(super) fn on_connect(&mut self, place: usize, message: &StockMessage) {
        if self.role == Role::Client {
            self.state = StockState::Connected;
            self.id = PeerId(message.byte_at(0));
            self.push_event(Event::Joined { peer: self.id }, &[]);
            return;
        }
        if self.params.session_decides_admission {
            return self.report_connect_request(place, message);
        }
        match self.refusal_reason(message) {
            Some(reason) => self.refuse_peer(place, reason),
            None => drop(self.admit_peer(place)),
        }
    }

    /// Reports the request to the session, which calls `admit` or `refuse`.
    fn report_connect_request(&mut self, place: usize, message: &StockMessage) {
        let Some(peer) = self.peers.get_mut(place) else { return };
        peer.awaits_admission = true;
        let port = self.ports.get(&peer.address).copied().unwrap_or(super::DEFAULT_PORT);
        let from = SocketAddrV4::new(peer.address, port);
        let password =
            if message.payload.len() >= MIN_REQUEST_WITH_PASSWORD { message.text_at(8) } else { &[] };
        self.push_event(Event::Request { from, address: message.address_at(0) }, password);
    }

    pub(super) fn refuse_peer(&mut self, place: usize, reason: BootReason) {
        let Some(peer) = self.peers.get_mut(place) else { return };
        peer.awaits_admission = false;
        let target = peer.id;
        self.queue_for_entry(place, boot_message(reason, target)).ok();
    }

    pub(super) fn admit_peer(&mut self, place: usize) -> PeerId {
        let id = self.assign_id();
        let place = self.peers.set_id(place, id);
        self.queue_for_entry(place, StockMessage::new(Kind::CONNECT, vec![id.0])).ok();
        for other in self.peers.positions(PeerEntry::is_live) {
            let Some(peer) = self.peers.get(other).filter(|_| other != place) else { continue };
            let address = if self.masks_addresses { Ipv4Addr::UNSPECIFIED } else { peer.claimed_address };
            let payload = identity_payload(peer.id, address, &peer.name);
            self.queue_for_entry(place, StockMessage::new(Kind::IDENTITY, payload)).ok();
        }
        self.push_event(Event::Joined { peer: id }, &[]);
        id
    }

    /// Returns the reason to refuse a request, or `None` to admit it.
    fn refusal_reason(&self, message: &StockMessage) -> Option<BootReason> {
        if self.params.banned.contains(&message.address_at(0)) {
            return Some(BootReason::BANNED);
        }
        let password = self.params.password.as_deref()?;
        let right = message.payload.len() >= MIN_REQUEST_WITH_PASSWORD && message.text_at(8) == password;
        (!right).then_some(BootReason::WRONG_PASSWORD)
    }

    /// Returns the next free id after the last one assigned, or `UNASSIGNED` if all are in use.
    fn assign_id(&mut self) -> PeerId {
        for _ in ASSIGNABLE_IDS {
            let id = PeerId(self.next_id);
            self.next_id = if self.next_id == *ASSIGNABLE_IDS.end() {
                *ASSIGNABLE_IDS.start()
            } else {
                self.next_id + 1
            };
            if id.is_assignable() && self.peers.find(id).is_none() {
                return id;
            }
        }
        PeerId::UNASSIGNED
    }

    /// Handles the name of a peer. A host relays it to all peers except itself; the sender gets it, too.
    pub(super) fn on_identity(&mut self, message: &StockMessage) {
        let (subject, address) = (PeerId(message.byte_at(0)), message.address_at(1));
        let place = self.peers.find(subject).unwrap_or_else(|| self.create_peer(subject, address));
        let name = message.text_at(5);
        if let Some(peer) = self.peers.get_mut(place) {
            peer.name = name.to_vec();
        }
        self.push_event(Event::Identity { peer: subject, address, cleaned: false }, name);
        self.relay(message);
    }

    pub(super) fn on_boot(&mut self, message: &StockMessage) {
        let reason = LeaveReason::Booted(BootReason(message.byte_at(0).cast_signed()));
        let target = PeerId(message.byte_at(1));
        if target == PeerId::UNASSIGNED {
            self.state = StockState::Connected;
        } else {
            self.mark_deleted(target, reason);
        }
        if target == PeerId::UNASSIGNED || target == self.id {
            self.leave_reason.get_or_insert(reason);
        }
    }

    pub(super) fn on_disconnect(&mut self, message: &StockMessage) {
        let id = PeerId(message.byte_at(0));
        if id != self.id {
            self.mark_deleted(id, LeaveReason::Disconnected);
        }
        if id == self.id || id == PeerId::HOST {
            self.leave_reason.get_or_insert(LeaveReason::Disconnected);
        }
        self.relay(message);
    }

    /// Relays a message to every live peer except the host's own entry. Host only.
    fn relay(&mut self, message: &StockMessage) {
        if self.role == Role::Client {
            return;
        }
        let mut payload = message.payload.clone();
        if let Some(address) = payload.get_mut(1..5).filter(|_| self.masks_addresses) {
            address.fill(0);
        }
        for place in self.peers.positions(|peer| peer.is_live() && peer.id != PeerId::HOST) {
            let mut copy = StockMessage::new(message.kind, payload.clone());
            if copy.kind == Kind::DISCONNECT {
                copy.timer =
                    RetransmitTimer::new(Backoff { mode: self.params.relayed_goodbye, ..Backoff::default() });
            }
            self.queue_for_entry(place, copy).ok();
        }
    }
}

fn identity_payload(peer: PeerId, address: Ipv4Addr, name: &[u8]) -> Vec<u8> {
    let mut payload = vec![peer.0];
    payload.extend(address.octets());
    payload.extend(name);
    payload.extend([0, 0]);
    payload
}

fn boot_message(reason: BootReason, target: PeerId) -> StockMessage {
    StockMessage::new(Kind::BOOT, vec![reason.0.cast_unsigned(), target.0])
}

/// Range of the ids that a host assigns, except the reserved id 0x5C.
const ASSIGNABLE_IDS: std::ops::RangeInclusive<u8> = 2..=126;
/// Shortest payload of a request with a password. A shorter request counts as one without a password.
const MIN_REQUEST_WITH_PASSWORD: usize = 5;
