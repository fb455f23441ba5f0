//! An endpoint: all peers of one socket, their admission, their messages and their end.
//!
//! This module implements [T-50] to [T-59]; [`admission`](crate::admission) implements [T-75] and [T-76]. Delivery
//! is in [`peer`](crate::peer) and the modules below it.
//!
//! [T-50]: bcnet_wire::protocol#t-50
//! [T-59]: bcnet_wire::protocol#t-59
//! [T-75]: bcnet_wire::protocol#t-75
//! [T-76]: bcnet_wire::protocol#t-76

mod admission;
mod control;
mod departure;
mod fast_path;
mod receive;
mod send;
mod table;

use alloc::vec::Vec;
use core::net::SocketAddrV4;
use core::ops::Range;
use core::time::Duration;

use crate::admission::{AddressVerifier, ReplyContent};
use crate::cipher;
use crate::config::{Config, IdPolicy, ProofPolicy};
use crate::engine::Engine;
use crate::event::{Event, EventQueue, LeaveReason};
use crate::fragment::BlockPool;
use crate::peer::{Peer, PeerName, PeerState};
use crate::queue::RingQueue;
use crate::snapshot::Snapshot;
use crate::stats::{PeerCounters, RejectCounters};
use crate::time::{Deadlines, Time};
use crate::wire::{Body, BootReason, Channel, PeerId, Role, Seq, Text};
pub use admission::{AdmitError, BootError};
use control::{MAX_NAME, PendingDisconnect};
pub use send::{Capacity, DeliveryMode, InFlightLimit, SendError};
use table::{EndpointPeers, PeerHandle};

/// One end of any number of connections over one UDP socket, without the socket.
///
/// [`Engine`] describes its use.
#[derive(Debug)]
pub struct Endpoint {
    config: Config<u64>,
    role: Role,
    /// The own id; a client has none until the host assigns one.
    id: PeerId,
    /// The caller has called `leave`: no client is admitted any more.
    is_shutting_down: bool,
    /// The host removes addresses from relayed messages (S-03).
    masks_addresses: bool,
    /// A host's own name, if it has announced one.
    name: Option<PeerName>,
    peers: EndpointPeers,
    /// Peers with pending work: a message may be ready to send, or a deadline has changed.
    dirty_peers: RingQueue<PeerHandle>,
    deadlines: Deadlines,
    events: EventQueue,
    pool: BlockPool,
    /// The end of a connection, until the rest of its datagram is handled.
    pending_disconnect: Option<PendingDisconnect>,
    admission: AddressVerifier,
    rejected: RejectCounters,
}

/// A datagram to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit {
    /// The destination.
    pub to: SocketAddrV4,
    /// The length of the datagram in the buffer.
    pub len: usize,
}

/// A client's connect request.
#[derive(Debug, Clone, Copy)]
pub struct Connect<'a> {
    /// The address of the host.
    pub host: SocketAddrV4,
    /// A random number, which differs for each attempt.
    pub nonce: u32,
    /// The password, or an empty string.
    ///
    /// It is truncated to the size of one message (198 characters) and at a NUL.
    pub password: &'a str,
}

impl Endpoint {
    /// Creates a host, to which clients connect.
    #[must_use]
    pub fn host(config: Config) -> Self {
        Self::new(config, Role::Host, PeerId::HOST)
    }

    /// Sets the secret that makes ids and cookies unpredictable ([T-50], [T-76]).
    ///
    /// `secret` must be a number that an attacker cannot guess. Without it, ids and cookies are
    /// predictable.
    ///
    /// [T-50]: bcnet_wire::protocol#t-50
    /// [T-76]: bcnet_wire::protocol#t-76
    #[must_use]
    pub fn with_secret(self, secret: u64) -> Self {
        Self { admission: AddressVerifier::new(secret), ..self }
    }

    /// Creates a client that sends a connect request to a host.
    #[must_use]
    pub fn connect(config: Config, Connect { host, nonce, password }: Connect<'_>, now: Time) -> Self {
        let mut endpoint = Self::new(config, Role::Client, PeerId::UNASSIGNED);
        let mut peer = Peer::new(host, PeerId::HOST, PeerState::Connecting, &endpoint.config, now);
        peer.nonce = Some(nonce);
        let units = password.encode_utf16().take_while(|unit| *unit != 0);
        let password: Vec<u8> = units.flat_map(u16::to_le_bytes).take(MAX_PASSWORD).collect();
        let (address, password) = (endpoint.config.address, Text::new(&password).unwrap_or_default());
        peer.queue_control(Body::ConnectRequest { address, nonce, password }, now);
        endpoint.add(peer);
        endpoint
    }

    fn new(config: Config, role: Role, id: PeerId) -> Self {
        Self {
            config: config.resolve(),
            role,
            id,
            is_shutting_down: false,
            masks_addresses: false,
            name: None,
            peers: EndpointPeers::new(),
            dirty_peers: RingQueue::default(),
            deadlines: Deadlines::new(),
            events: EventQueue::default(),
            pool: BlockPool::default(),
            pending_disconnect: None,
            admission: AddressVerifier::new(0),
            rejected: RejectCounters::default(),
        }
    }

    /// Returns the peers that messages can be sent to, in no particular order.
    pub fn peers(&self) -> impl Iterator<Item = PeerId> {
        self.peers.iter().filter(|peer| peer.state.is_connected()).map(|peer| peer.id)
    }

    #[inline(never)]
    fn handle_wakeup(&mut self, handle: PeerHandle, now: Time) {
        let Some(due) = self.peers.get(handle).map(|peer| peer.next_timeout(&self.config)) else {
            return self.deadlines.set(handle.key(), None);
        };
        if due <= now {
            self.deadlines.set(handle.key(), None);
            self.serve_timers(handle, now);
            self.mark_changed(handle);
        } else {
            // The wakeup was too early.
            let alarm = self.peers.get_mut(handle).map(|peer| peer.postpone_wakeup(due, now));
            self.deadlines.set(handle.key(), alarm);
        }
    }

    /// Fills a datagram for the first peer of the dirty list. Removes the peer if it has no more to send.
    #[inline(never)]
    fn transmit_to(&mut self, handle: PeerHandle, buffer: &mut [u8], now: Time) -> Option<Transmit> {
        let Some(peer) = self.peers.get_mut(handle) else {
            self.dirty_peers.drop_front(1);
            return self.transmit_reply(buffer);
        };
        let single = peer.fill_single_message(buffer, self.id, &self.config, now);
        let len = if single.is_some() { single } else { peer.fill(buffer, self.id, &self.config, now) };
        let to = peer.address;
        if !peer.is_dirty {
            self.dirty_peers.drop_front(1);
            if let Some(alarm) = peer.set_wakeup(&self.config) {
                self.deadlines.set(handle.key(), Some(alarm));
            }
            if matches!(peer.state, PeerState::Draining { .. } | PeerState::Lingering { .. }) {
                self.advance_shutdown(handle, now);
            }
        }
        let len = len?;
        if self.config.cipher {
            cipher::encrypt(buffer.get_mut(..len)?);
        }
        Some(Transmit { to, len })
    }

    fn add(&mut self, peer: Peer) -> Option<PeerHandle> {
        let handle = self.peers.add(peer)?;
        self.mark_changed(handle);
        Some(handle)
    }

    fn remove(&mut self, handle: PeerHandle, now: Time) -> Option<Peer> {
        let mut peer = self.peers.remove(handle)?;
        self.admission.note_used(peer.id, now);
        peer.inboxes.iter_mut().for_each(|inbox| inbox.clear(&mut self.pool));
        self.deadlines.set(handle.key(), None);
        self.dirty_peers.remove(handle);
        Some(peer)
    }

    /// Puts a peer on the dirty list and recomputes its deadline.
    fn mark_changed(&mut self, handle: PeerHandle) {
        if let Some(peer) = self.peers.get_mut(handle) {
            peer.wakeup = None;
            mark_dirty(peer, handle, &mut self.dirty_peers);
        }
    }

    fn peer(&self, id: PeerId) -> Option<&Peer> {
        self.peers.find(id).and_then(|handle| self.peers.get(handle))
    }
}

impl Engine for Endpoint {
    fn handle_datagram(&mut self, from: SocketAddrV4, bytes: &mut [u8], now: Time) {
        if bytes.first() == Some(&PeerId::GAMESPY.0) {
            return self.handle_query(from, bytes);
        }
        if self.config.cipher {
            cipher::decrypt(bytes);
        }
        if !self.handle_single_message(from, bytes, now) {
            self.handle_general(from, bytes, now);
        }
    }

    fn prefilter(&mut self, from: SocketAddrV4, bytes: &[u8]) -> bool {
        let Err(cause) = self.check_sender(from, bytes) else { return true };
        self.rejected.add(cause);
        false
    }

    #[inline]
    fn handle_timeout(&mut self, now: Time) {
        while let Some((_, key)) = self.deadlines.first().filter(|(due, _)| *due <= now) {
            let Some(handle) = PeerHandle::from_key(key) else { return };
            self.handle_wakeup(handle, now);
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        if self.dirty_peers.is_empty() {
            self.deadlines.first().map(|(due, _)| due)
        } else {
            Some(Time::ZERO)
        }
    }

    fn next_urgent_timeout(&self) -> Option<Time> {
        // Replies to unverified addresses (T-75) are not delayed.
        let urgent =
            |handle: &PeerHandle| self.peers.get(*handle).map_or(Some(Time::ZERO), Peer::next_urgent_timeout);
        self.dirty_peers.iter().filter_map(urgent).chain(self.deadlines.first().map(|(due, _)| due)).min()
    }

    #[inline]
    fn poll_transmit(&mut self, buffer: &mut [u8], now: Time) -> Option<Transmit> {
        if buffer.len() < self.config.datagram_limit {
            buffer_too_short(buffer.len(), self.config.datagram_limit);
        }
        while let Some(&handle) = self.dirty_peers.front() {
            let transmit = self.transmit_to(handle, buffer, now);
            if transmit.is_some() {
                return transmit;
            }
        }
        None
    }

    fn poll_event(&mut self, payload: &mut Vec<u8>) -> Option<Event> {
        self.events.pop(payload)
    }

    fn id(&self) -> PeerId {
        self.id
    }

    fn send(&mut self, to: PeerId, payload: &[u8], mode: DeliveryMode, now: Time) -> Result<(), SendError> {
        let handle = self.peers.find(to).ok_or(SendError::UnknownPeer(to))?;
        let peer = self.peers.get_mut(handle).ok_or(SendError::UnknownPeer(to))?;
        send::queue(peer, payload, mode, &self.config, now)?;
        mark_dirty(peer, handle, &mut self.dirty_peers);
        Ok(())
    }

    fn send_if_capacity(
        &mut self,
        to: PeerId,
        payload: &[u8],
        limit: InFlightLimit,
        now: Time,
    ) -> Result<Capacity, SendError> {
        let handle = self.peers.find(to).ok_or(SendError::UnknownPeer(to))?;
        let peer = self.peers.get_mut(handle).ok_or(SendError::UnknownPeer(to))?;
        let room = peer.capacity(payload.len(), limit);
        if room != Capacity::Available {
            return send::check_connected(peer).map(|()| room);
        }
        send::queue(peer, payload, DeliveryMode::Reliable, &self.config, now)?;
        mark_dirty(peer, handle, &mut self.dirty_peers);
        Ok(Capacity::Available)
    }

    fn send_latest(
        &mut self,
        to: PeerId,
        payload: &[u8],
        is_superseded: &mut dyn FnMut(&[u8]) -> bool,
        now: Time,
    ) -> Result<(), SendError> {
        let handle = self.peers.find(to).ok_or(SendError::UnknownPeer(to))?;
        let peer = self.peers.get_mut(handle).ok_or(SendError::UnknownPeer(to))?;
        peer.drop_superseded(is_superseded);
        send::queue(peer, payload, DeliveryMode::Unreliable, &self.config, now)?;
        mark_dirty(peer, handle, &mut self.dirty_peers);
        Ok(())
    }

    fn announce_name(&mut self, name: Text<'_>, now: Time) -> Result<(), SendError> {
        match self.role {
            Role::Host if self.is_shutting_down => return Err(SendError::Leaving(self.id)),
            Role::Host => {}
            Role::Client => {
                let host = self.peer(PeerId::HOST).ok_or(SendError::UnknownPeer(PeerId::HOST))?;
                send::check_connected(host)?;
            }
        }
        let (address, name) = (self.config.address, truncate_text(name, MAX_NAME));
        if self.role == Role::Host {
            self.name = Some(PeerName { address, utf16le: name.as_bytes().into() });
        }
        self.broadcast_control(Body::Identity { peer: self.id, address, name }, now);
        Ok(())
    }

    fn admit(&mut self, from: SocketAddrV4, now: Time) -> Result<PeerId, AdmitError> {
        self.admit_now(from, now)
    }

    fn challenge(&mut self, from: SocketAddrV4, now: Time) -> Result<PeerId, AdmitError> {
        self.offer_id(from, now)
    }

    fn refuse(&mut self, from: SocketAddrV4, reason: BootReason, now: Time) -> Result<(), AdmitError> {
        self.find_request(from, now)?;
        self.admission.forget_request(from);
        self.queue_reply(from, ReplyContent::Refusal(reason));
        Ok(())
    }

    fn has_departing_peers(&self) -> bool {
        self.peers.iter().any(|peer| matches!(peer.state, PeerState::Departing { .. }))
    }

    fn ignore(&mut self, from: SocketAddrV4) {
        self.admission.forget_request(from);
    }

    fn boot(&mut self, peer: PeerId, reason: BootReason, now: Time) -> Result<(), BootError> {
        let found = self.peers.find(peer).filter(|_| self.role == Role::Host);
        let is_live =
            |handle: &PeerHandle| self.peers.get(*handle).is_some_and(|peer| peer.state.is_connected());
        let handle = found.filter(is_live).ok_or(BootError(peer))?;
        let named = self.peers.get(handle).is_some_and(|peer| peer.name.is_some());
        self.broadcast_gone(peer, named, Body::Boot { reason, target: peer }, now);
        self.start_lingering(handle, now);
        self.events.push(Event::Left { peer, reason: LeaveReason::Booted(reason) }, &[]);
        Ok(())
    }

    fn leave(&mut self, now: Time) {
        self.is_shutting_down = true;
        self.admission.close();
        for handle in self.peers.handles() {
            self.end_contest(handle);
            let Some(peer) = self.peers.get_mut(handle) else { continue };
            let (id, state) = (peer.id, peer.state);
            match state {
                PeerState::Established
                | PeerState::Guarded
                | PeerState::Departing { .. }
                | PeerState::Contested { .. } => {
                    peer.state = PeerState::Draining { since: now };
                    self.mark_changed(handle);
                    self.advance_shutdown(handle, now);
                }
                PeerState::Connecting => drop(self.remove(handle, now)),
                // No remote needs the ACKs of duplicates any more.
                PeerState::Draining { .. } | PeerState::Lingering { .. } => self.mark_changed(handle),
            }
            if state.is_connected() || state == PeerState::Connecting {
                self.events.push(Event::Left { peer: id, reason: LeaveReason::Local }, &[]);
            }
        }
    }

    fn is_closed(&self) -> bool {
        self.peers.iter().next().is_none()
    }

    fn mask_addresses(&mut self, mask: bool) {
        self.masks_addresses = mask;
    }

    fn set_admission(&mut self, proof_policy: ProofPolicy, id_policy: IdPolicy, selective_admission: bool) {
        let config = &mut self.config;
        (config.proof_policy, config.id_policy, config.selective_admission) =
            (proof_policy, id_policy, selective_admission);
    }

    fn withdraw_offers(&mut self) {
        self.admission.withdraw_all();
    }

    fn address(&self, peer: PeerId) -> Option<SocketAddrV4> {
        self.peer(peer).map(|peer| peer.address)
    }

    fn unacked_range(&self, peer: PeerId, channel: Channel) -> Option<Range<Seq>> {
        self.peer(peer).map(|peer| peer.unacked_range(channel))
    }

    fn rtt(&self, peer: PeerId) -> Option<Duration> {
        self.peer(peer)?.smoothed_rtt()
    }

    fn idle_for(&self, peer: PeerId, now: Time) -> Option<Duration> {
        self.peer(peer).map(|peer| now.since(peer.last_received))
    }

    fn snapshot(&self, peer: PeerId, now: Time) -> Option<Snapshot> {
        self.peer(peer).map(|peer| peer.snapshot(&self.config, now))
    }

    fn counters(&self, peer: PeerId) -> Option<PeerCounters> {
        self.peer(peer).map(|peer| peer.counters)
    }

    fn rejected(&self) -> RejectCounters {
        self.rejected
    }
}

/// Puts a peer on the dirty list, unless it is there.
#[inline]
fn mark_dirty(peer: &mut Peer, handle: PeerHandle, dirty_peers: &mut RingQueue<PeerHandle>) {
    if !peer.is_dirty {
        peer.is_dirty = true;
        dirty_peers.push(handle);
    }
}

#[cold]
#[track_caller]
fn buffer_too_short(len: usize, limit: usize) -> ! {
    panic!("a buffer of {len} bytes is too short for datagrams of {limit}")
}

/// Returns the first `max` bytes of a text.
fn truncate_text(text: Text<'_>, max: usize) -> Text<'_> {
    let bytes = text.as_bytes();
    Text::new(bytes.get(..max).unwrap_or(bytes)).unwrap_or_default()
}

/// The longest password, in bytes of UTF-16LE, that fits a message of stock size (T-23, T-33).
const MAX_PASSWORD: usize = 396;
