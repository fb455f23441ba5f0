//! Who is let in, what is said about others, and when a peer is gone.

use std::net::{Ipv4Addr, SocketAddrV4};

use bcnet_transport::wire::{BootReason, Kind, PeerId, Role};
use bcnet_transport::{Event, Leave, Time};

use super::message::{Message, Timer};
use super::params::{Backoff, Mode};
use super::peer::Peer;
use super::{State, Stock};

impl Stock {
    /// Tells the host the own name, UTF-16LE. A host tells itself, and passes it on as it would any other.
    pub fn identify(&mut self, name: &[u8], now: Time) {
        self.now = self.clock.at(now);
        let payload = identity(self.id, self.address, name);
        self.queue_for(PeerId::HOST, Message::new(Kind::IDENTITY, payload)).ok();
    }

    /// Says goodbye to the host and waits, for the linger time at most, until that is acknowledged. A host says it to
    /// itself, and passes it on.
    pub fn leave(&mut self, now: Time) {
        self.now = self.clock.at(now);
        self.start_leaving(Leave::Local);
    }

    /// To a host: tells everyone that a peer is thrown out, and deletes it. `false` if there is no such peer.
    pub fn boot(&mut self, peer: PeerId, reason: BootReason, now: Time) -> bool {
        self.now = self.clock.at(now);
        let live = |place: &usize| self.peers.get(*place).is_some_and(Peer::is_live);
        if self.role == Role::Client || self.peers.find(peer).filter(live).is_none() {
            return false;
        }
        self.queue_for(PeerId::NULL, boot(reason, peer)).ok();
        self.delete(peer, Leave::Booted(reason));
        true
    }

    /// What comes first in a frame: the request to be let in, or keepalives.
    pub(super) fn prepare(&mut self) {
        match self.state {
            State::Connecting => {
                if let Some(payload) = self.request.take() {
                    let mut message = Message::new(Kind::CONNECT, payload);
                    message.timer = Timer::new(Backoff { mode: Mode::Fixed, first: 1.0, step: 1.0 });
                    self.queue_for(PeerId::HOST, message).ok();
                }
            }
            State::Connected if self.leaving.is_some() && !self.params.leaving_keepalives => {}
            State::Connected => self.keep_alive(),
            State::Closed => {}
        }
    }

    fn keep_alive(&mut self) {
        let Some(wait) = self.params.keepalive else { return };
        let keepalive = || Message::new(Kind::KEEPALIVE, Vec::new());
        if self.role == Role::Client {
            if self.now - self.host_queued > wait {
                self.tally.keepalives += 1;
                self.queue_for(PeerId::HOST, keepalive()).ok();
            }
            return;
        }
        let (own, now) = (self.id, self.now);
        let quiet = |peer: &Peer| peer.is_live() && peer.id != own && now - peer.queued > wait;
        for place in self.peers.places(quiet) {
            self.tally.keepalives += 1;
            self.queue(place, keepalive()).ok();
        }
    }

    /// What comes last in a frame: a peer that was silent for too long is gone, and a leaver is done or not.
    pub(super) fn time_out(&mut self) {
        if let Some(wait) = self.params.silence {
            match self.role {
                Role::Client if self.now - self.host_heard > wait => {
                    self.leave_flag.get_or_insert(Leave::Silent);
                }
                Role::Client => {}
                Role::Host => self.time_out_peers(wait),
            }
        }
        // Who starts to leave has one more frame at least, in which the last ACKs go out.
        self.finish_leaving();
        if let Some(reason) = self.leave_flag.take() {
            self.start_leaving(reason);
        }
    }

    fn time_out_peers(&mut self, wait: f32) {
        let (own, now) = (self.id, self.now);
        let silent = |peer: &Peer| peer.is_live() && peer.id != own && now - peer.heard > wait;
        for place in self.peers.places(silent).into_iter().rev() {
            self.restless = true;
            let Some(id) = self.peers.get(place).map(|peer| peer.id) else { continue };
            if id == PeerId::UNASSIGNED {
                self.peers.remove(place);
            } else {
                self.delete(id, Leave::Silent);
                self.queue_for(PeerId::NULL, boot(BootReason::TIMED_OUT, id)).ok();
            }
        }
    }

    fn start_leaving(&mut self, reason: Leave) {
        if self.leaving.is_some() || self.state == State::Closed {
            return;
        }
        self.leaving = Some(self.now);
        self.restless = true;
        let gone: Vec<PeerId> = match self.role {
            Role::Client => vec![PeerId::HOST],
            Role::Host => self.peers(),
        };
        for peer in gone {
            self.tell(Event::Left { peer, reason }, &[]);
        }
        if self.state == State::Connected {
            let mut payload = vec![self.id.0];
            payload.extend(self.address.octets());
            let mut message = Message::new(Kind::DISCONNECT, payload);
            message.timer = Timer::new(Backoff { mode: Mode::Fixed, first: 1.0, step: 0.5 });
            self.queue_for(PeerId::HOST, message).ok();
        }
    }

    /// Drops everything once the goodbye is acknowledged, or after the linger time.
    fn finish_leaving(&mut self) {
        let Some(since) = self.leaving else { return };
        let waits = self.peers.iter().any(|peer| peer.is_live() && peer.has_pending(Kind::DISCONNECT));
        if !waits || self.now - since > self.params.linger {
            self.state = State::Closed;
            self.peers.clear();
            self.incoming = Default::default();
            self.socket.clear();
        }
    }

    /// Flags a peer as gone. It is served until the linger time is over.
    fn delete(&mut self, id: PeerId, reason: Leave) {
        // That ends the session, which is told when it is left.
        let ends = id == self.id || (self.role == Role::Client && id == PeerId::HOST);
        let Some(peer) = self.peers.find(id).and_then(|place| self.peers.get_mut(place)) else { return };
        if peer.is_live() {
            peer.deleted = Some(self.now);
            if !ends {
                self.tell(Event::Left { peer: id, reason }, &[]);
            }
        }
    }

    /// A request to a host, a reply to a client: only the role tells.
    pub(super) fn on_connect(&mut self, place: usize, message: &Message) {
        if self.role == Role::Client {
            self.state = State::Connected;
            self.id = PeerId(message.byte(0));
            self.tell(Event::Joined { peer: self.id }, &[]);
            return;
        }
        if self.params.ask {
            return self.ask(place, message);
        }
        match self.refusal(message) {
            Some(reason) => self.turn_away(place, reason),
            None => drop(self.let_in(place)),
        }
    }

    /// Leaves it to the session who is let in.
    fn ask(&mut self, place: usize, message: &Message) {
        let Some(peer) = self.peers.get_mut(place) else { return };
        peer.asks = true;
        let port = self.ports.get(&peer.address).copied().unwrap_or(super::DEFAULT_PORT);
        let from = SocketAddrV4::new(peer.address, port);
        let password = if message.payload.len() >= MIN_REQUEST { message.text(8) } else { &[] };
        self.tell(Event::Request { from, address: message.address(0) }, password);
    }

    pub(super) fn turn_away(&mut self, place: usize, reason: BootReason) {
        let Some(peer) = self.peers.get_mut(place) else { return };
        peer.asks = false;
        let target = peer.id;
        self.queue(place, boot(reason, target)).ok();
    }

    pub(super) fn let_in(&mut self, place: usize) -> PeerId {
        let id = self.assign();
        let place = self.peers.rename(place, id);
        self.queue(place, Message::new(Kind::CONNECT, vec![id.0])).ok();
        for other in self.peers.places(Peer::is_live) {
            let Some(peer) = self.peers.get(other).filter(|_| other != place) else { continue };
            let address = if self.masks { Ipv4Addr::UNSPECIFIED } else { peer.own_view };
            let payload = identity(peer.id, address, &peer.name);
            self.queue(place, Message::new(Kind::IDENTITY, payload)).ok();
        }
        self.tell(Event::Joined { peer: id }, &[]);
        id
    }

    /// Returns why a request is turned down, if it is.
    fn refusal(&self, message: &Message) -> Option<BootReason> {
        if self.params.banned.contains(&message.address(0)) {
            return Some(BootReason::BANNED);
        }
        let password = self.params.password.as_deref()?;
        let right = message.payload.len() >= MIN_REQUEST && message.text(8) == password;
        (!right).then_some(BootReason::WRONG_PASSWORD)
    }

    /// Returns the next free id, upward from the last one; none at all if all are taken.
    fn assign(&mut self) -> PeerId {
        for _ in IDS {
            let id = PeerId(self.next_id);
            self.next_id = if self.next_id == *IDS.end() { *IDS.start() } else { self.next_id + 1 };
            if id.is_assignable() && self.peers.find(id).is_none() {
                return id;
            }
        }
        PeerId::UNASSIGNED
    }

    /// A peer's name. A host passes it on to everyone but itself, the one who told it included.
    pub(super) fn on_identity(&mut self, message: &Message) {
        let (subject, address) = (PeerId(message.byte(0)), message.address(1));
        let place = self.peers.find(subject).unwrap_or_else(|| self.create(subject, address));
        let name = message.text(5);
        if let Some(peer) = self.peers.get_mut(place) {
            peer.name = name.to_vec();
        }
        self.tell(Event::Identity { peer: subject, address, cleaned: false }, name);
        self.relay(message);
    }

    pub(super) fn on_boot(&mut self, message: &Message) {
        let reason = Leave::Booted(BootReason(message.byte(0).cast_signed()));
        let target = PeerId(message.byte(1));
        if target == PeerId::UNASSIGNED {
            self.state = State::Connected;
        } else {
            self.delete(target, reason);
        }
        if target == PeerId::UNASSIGNED || target == self.id {
            self.leave_flag.get_or_insert(reason);
        }
    }

    pub(super) fn on_disconnect(&mut self, message: &Message) {
        let id = PeerId(message.byte(0));
        if id != self.id {
            self.delete(id, Leave::Disconnected);
        }
        if id == self.id || id == PeerId::HOST {
            self.leave_flag.get_or_insert(Leave::Disconnected);
        }
        self.relay(message);
    }

    /// A host passes a message on to every live peer but its own entry.
    fn relay(&mut self, message: &Message) {
        if self.role == Role::Client {
            return;
        }
        let mut payload = message.payload.clone();
        if let Some(address) = payload.get_mut(1..5).filter(|_| self.masks) {
            address.fill(0);
        }
        for place in self.peers.places(|peer| peer.is_live() && peer.id != PeerId::HOST) {
            let mut copy = Message::new(message.kind, payload.clone());
            if copy.kind == Kind::DISCONNECT {
                copy.timer = Timer::new(Backoff { mode: self.params.relayed_goodbye, ..Backoff::default() });
            }
            self.queue(place, copy).ok();
        }
    }
}

fn identity(peer: PeerId, address: Ipv4Addr, name: &[u8]) -> Vec<u8> {
    let mut payload = vec![peer.0];
    payload.extend(address.octets());
    payload.extend(name);
    payload.extend([0, 0]);
    payload
}

fn boot(reason: BootReason, target: PeerId) -> Message {
    Message::new(Kind::BOOT, vec![reason.0.cast_unsigned(), target.0])
}

/// The ids that a host assigns, one of them reserved.
const IDS: std::ops::RangeInclusive<u8> = 2..=126;
/// A request with less than this is taken for one without a password.
const MIN_REQUEST: usize = 5;
