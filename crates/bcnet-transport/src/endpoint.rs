//! One socket's worth of peers: who is let in, under which id, what each says and when each is gone.
//!
//! Owns T-50 to T-59; [`admission`](crate::admission) owns T-75 and T-76. Delivery is in [`peer`](crate::peer) and below.

mod admission;
mod control;
mod receive;
mod send;
mod short;
mod table;

use alloc::vec::Vec;
use core::net::SocketAddrV4;
use core::ops::Range;
use core::time::Duration;

use crate::admission::{Admission, Word};
use crate::cipher;
use crate::config::{Config, Ids, Prove};
use crate::engine::Engine;
use crate::event::{Event, Events, Leave};
use crate::fragment::Pool;
use crate::peer::{Name, Peer, State};
use crate::queue::Queue;
use crate::snapshot::Snapshot;
use crate::stats::{Counters, Rejected};
use crate::time::{Deadlines, Time};
use crate::wire::{Body, BootReason, Channel, PeerId, Role, Seq, Text};
pub use admission::{AdmitError, BootError};
use control::{Farewell, MAX_NAME};
pub use send::{Allowance, Quality, Room, SendError};
use table::{Handle, Table};

/// One end of any number of conversations over one UDP socket, without the socket. [`Engine`] says how it is driven.
#[derive(Debug)]
pub struct Endpoint {
    config: Config<u64>,
    role: Role,
    /// The own id; a client has none until the host gives it one.
    id: PeerId,
    /// The caller said goodbye: nobody is let in any more.
    left: bool,
    /// S-03: addresses are not passed on.
    masks: bool,
    /// A host's own name, if it has told one.
    name: Option<Name>,
    peers: Table,
    /// Peers to look at before anything else: something may have to be sent, or a deadline has moved.
    ready: Queue<Handle>,
    deadlines: Deadlines,
    events: Events,
    pool: Pool,
    /// What ends a conversation, until the rest of its datagram is read.
    farewell: Option<Farewell>,
    admission: Admission,
    rejected: Rejected,
}

/// A datagram to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit {
    /// To whom.
    pub to: SocketAddrV4,
    /// How many bytes of the buffer.
    pub len: usize,
}

/// A client's request to be let in.
#[derive(Debug, Clone, Copy)]
pub struct Connect<'a> {
    /// Where the host is.
    pub host: SocketAddrV4,
    /// A random number, which differs from attempt to attempt.
    pub nonce: u32,
    /// The password, or nothing. What does not fit one message (198 characters) is cut, and so is what follows a NUL.
    pub password: &'a str,
}

impl Endpoint {
    /// A host, to which clients connect.
    #[must_use]
    pub fn host(config: Config) -> Self {
        Self::new(config, Role::Host, PeerId::HOST)
    }

    /// A host that draws ids and cookies (T-50, T-76) by a number that nobody can guess. Without one they can be foreseen.
    #[must_use]
    pub fn with_secret(self, secret: u64) -> Self {
        Self { admission: Admission::new(secret), ..self }
    }

    /// A client that asks a host to be let in.
    #[must_use]
    pub fn connect(config: Config, Connect { host, nonce, password }: Connect<'_>, now: Time) -> Self {
        let mut endpoint = Self::new(config, Role::Client, PeerId::UNASSIGNED);
        let mut peer = Peer::new(host, PeerId::HOST, State::Connecting, &endpoint.config, now);
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
            left: false,
            masks: false,
            name: None,
            peers: Table::new(),
            ready: Queue::default(),
            deadlines: Deadlines::new(),
            events: Events::default(),
            pool: Pool::default(),
            farewell: None,
            admission: Admission::new(0),
            rejected: Rejected::default(),
        }
    }

    /// Returns the peers that messages can be sent to, in no particular order.
    pub fn peers(&self) -> impl Iterator<Item = PeerId> {
        self.peers.iter().filter(|peer| peer.state.is_connected()).map(|peer| peer.id)
    }

    #[inline(never)]
    fn handle_alarm(&mut self, handle: Handle, now: Time) {
        let Some(due) = self.peers.get(handle).map(|peer| peer.next_timeout(&self.config)) else {
            return self.deadlines.set(handle.key(), None);
        };
        if due <= now {
            self.deadlines.set(handle.key(), None);
            self.serve(handle, now);
            self.touch(handle);
        } else {
            // The alarm came too early.
            let alarm = self.peers.get_mut(handle).map(|peer| peer.put_off(due, now));
            self.deadlines.set(handle.key(), alarm);
        }
    }

    /// A datagram to the first peer of the list, which leaves the list if that is all.
    #[inline(never)]
    fn transmit_to(&mut self, handle: Handle, buffer: &mut [u8], now: Time) -> Option<Transmit> {
        let Some(peer) = self.peers.get_mut(handle) else {
            self.ready.skip(1);
            return self.transmit_answer(buffer);
        };
        let lone = peer.fill_lone(buffer, self.id, &self.config, now);
        let len = if lone.is_some() { lone } else { peer.fill(buffer, self.id, &self.config, now) };
        let to = peer.address;
        if !peer.listed {
            self.ready.skip(1);
            if let Some(alarm) = peer.set_alarm(&self.config) {
                self.deadlines.set(handle.key(), Some(alarm));
            }
            if matches!(peer.state, State::Draining { .. } | State::Leaving { .. }) {
                self.finish_leaving(handle, now);
            }
        }
        let len = len?;
        if self.config.cipher {
            cipher::encrypt(buffer.get_mut(..len)?);
        }
        Some(Transmit { to, len })
    }

    fn add(&mut self, peer: Peer) -> Option<Handle> {
        let handle = self.peers.add(peer)?;
        self.touch(handle);
        Some(handle)
    }

    fn remove(&mut self, handle: Handle, now: Time) -> Option<Peer> {
        let mut peer = self.peers.remove(handle)?;
        self.admission.note_used(peer.id, now);
        peer.inbox.iter_mut().for_each(|inbox| inbox.clear(&mut self.pool));
        self.deadlines.set(handle.key(), None);
        self.ready.remove(handle);
        Some(peer)
    }

    /// Puts a peer on the list of those to look at, whatever has changed.
    fn touch(&mut self, handle: Handle) {
        if let Some(peer) = self.peers.get_mut(handle) {
            peer.alarm = None;
            list(peer, handle, &mut self.ready);
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
        if !self.handle_lone(from, bytes, now) {
            self.handle_any(from, bytes, now);
        }
    }

    fn screen(&mut self, from: SocketAddrV4, bytes: &[u8]) -> bool {
        let Err(cause) = self.check_sender(from, bytes) else { return true };
        self.rejected.add(cause);
        false
    }

    #[inline]
    fn handle_timeout(&mut self, now: Time) {
        while let Some((_, key)) = self.deadlines.first().filter(|(due, _)| *due <= now) {
            let Some(handle) = Handle::of_key(key) else { return };
            self.handle_alarm(handle, now);
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        if self.ready.is_empty() { self.deadlines.first().map(|(due, _)| due) } else { Some(Time::ZERO) }
    }

    fn next_urgent(&self) -> Option<Time> {
        // Answers to those who are no peers (T-75) do not wait.
        let urgent = |handle: &Handle| self.peers.get(*handle).map_or(Some(Time::ZERO), Peer::next_urgent);
        self.ready.iter().filter_map(urgent).chain(self.deadlines.first().map(|(due, _)| due)).min()
    }

    #[inline]
    fn poll_transmit(&mut self, buffer: &mut [u8], now: Time) -> Option<Transmit> {
        if buffer.len() < self.config.datagram_limit {
            too_short(buffer.len(), self.config.datagram_limit);
        }
        while let Some(&handle) = self.ready.front() {
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

    fn send(&mut self, to: PeerId, payload: &[u8], quality: Quality, now: Time) -> Result<(), SendError> {
        let handle = self.peers.find(to).ok_or(SendError::UnknownPeer(to))?;
        let peer = self.peers.get_mut(handle).ok_or(SendError::UnknownPeer(to))?;
        send::queue(peer, payload, quality, &self.config, now)?;
        list(peer, handle, &mut self.ready);
        Ok(())
    }

    fn send_if_room(
        &mut self,
        to: PeerId,
        payload: &[u8],
        max: Allowance,
        now: Time,
    ) -> Result<Room, SendError> {
        let handle = self.peers.find(to).ok_or(SendError::UnknownPeer(to))?;
        let peer = self.peers.get_mut(handle).ok_or(SendError::UnknownPeer(to))?;
        let room = peer.room(payload.len(), max);
        if room != Room::Some {
            return send::check_live(peer).map(|()| room);
        }
        send::queue(peer, payload, Quality::Reliable, &self.config, now)?;
        list(peer, handle, &mut self.ready);
        Ok(Room::Some)
    }

    fn send_latest(
        &mut self,
        to: PeerId,
        payload: &[u8],
        is_outdated: &mut dyn FnMut(&[u8]) -> bool,
        now: Time,
    ) -> Result<(), SendError> {
        let handle = self.peers.find(to).ok_or(SendError::UnknownPeer(to))?;
        let peer = self.peers.get_mut(handle).ok_or(SendError::UnknownPeer(to))?;
        peer.drop_outdated(is_outdated);
        send::queue(peer, payload, Quality::Unreliable, &self.config, now)?;
        list(peer, handle, &mut self.ready);
        Ok(())
    }

    fn identify(&mut self, name: Text<'_>, now: Time) -> Result<(), SendError> {
        match self.role {
            Role::Host if self.left => return Err(SendError::Leaving(self.id)),
            Role::Host => {}
            Role::Client => {
                let host = self.peer(PeerId::HOST).ok_or(SendError::UnknownPeer(PeerId::HOST))?;
                send::check_live(host)?;
            }
        }
        let (address, name) = (self.config.address, cut(name, MAX_NAME));
        if self.role == Role::Host {
            self.name = Some(Name { address, utf16le: name.as_bytes().into() });
        }
        self.tell(Body::Identity { peer: self.id, address, name }, now);
        Ok(())
    }

    fn admit(&mut self, from: SocketAddrV4, now: Time) -> Result<PeerId, AdmitError> {
        self.let_in(from, now)
    }

    fn challenge(&mut self, from: SocketAddrV4, now: Time) -> Result<PeerId, AdmitError> {
        self.offer(from, now)
    }

    fn refuse(&mut self, from: SocketAddrV4, reason: BootReason, now: Time) -> Result<(), AdmitError> {
        self.find_request(from, now)?;
        self.admission.forget_request(from);
        self.answer(from, Word::Refusal(reason));
        Ok(())
    }

    fn ignore(&mut self, from: SocketAddrV4) {
        self.admission.forget_request(from);
    }

    fn boot(&mut self, peer: PeerId, reason: BootReason, now: Time) -> Result<(), BootError> {
        let found = self.peers.find(peer).filter(|_| self.role == Role::Host);
        let is_live = |handle: &Handle| self.peers.get(*handle).is_some_and(|peer| peer.state.is_connected());
        let handle = found.filter(is_live).ok_or(BootError(peer))?;
        let named = self.peers.get(handle).is_some_and(|peer| peer.name.is_some());
        self.tell_gone(peer, named, Body::Boot { reason, target: peer }, now);
        self.start_leaving(handle, now);
        self.events.push(Event::Left { peer, reason: Leave::Booted(reason) }, &[]);
        Ok(())
    }

    fn leave(&mut self, now: Time) {
        self.left = true;
        self.admission.close();
        for handle in self.peers.handles() {
            self.settle_contest(handle);
            let Some(peer) = self.peers.get_mut(handle) else { continue };
            let (id, state) = (peer.id, peer.state);
            match state {
                State::Live | State::Contested { .. } => {
                    peer.state = State::Draining { since: now };
                    self.touch(handle);
                    self.finish_leaving(handle, now);
                }
                State::Connecting => drop(self.remove(handle, now)),
                // Nobody has to wait for repeats any more.
                State::Draining { .. } | State::Leaving { .. } => self.touch(handle),
            }
            if state.is_connected() || state == State::Connecting {
                self.events.push(Event::Left { peer: id, reason: Leave::Local }, &[]);
            }
        }
    }

    fn is_closed(&self) -> bool {
        self.peers.iter().next().is_none()
    }

    fn mask_addresses(&mut self, mask: bool) {
        self.masks = mask;
    }

    fn set_admission(&mut self, prove: Prove, ids: Ids, selective: bool) {
        let config = &mut self.config;
        (config.prove, config.ids, config.selective) = (prove, ids, selective);
    }

    fn withdraw_offers(&mut self) {
        self.admission.withdraw_all();
    }

    fn address(&self, peer: PeerId) -> Option<SocketAddrV4> {
        self.peer(peer).map(|peer| peer.address)
    }

    fn awaited(&self, peer: PeerId, channel: Channel) -> Option<Range<Seq>> {
        self.peer(peer).map(|peer| peer.awaited(channel))
    }

    fn round_trip(&self, peer: PeerId) -> Option<Duration> {
        self.peer(peer)?.round_trip()
    }

    fn silent_for(&self, peer: PeerId, now: Time) -> Option<Duration> {
        self.peer(peer).map(|peer| now.since(peer.last_heard))
    }

    fn snapshot(&self, peer: PeerId, now: Time) -> Option<Snapshot> {
        self.peer(peer).map(|peer| peer.snapshot(&self.config, now))
    }

    fn counters(&self, peer: PeerId) -> Option<Counters> {
        self.peer(peer).map(|peer| peer.counters)
    }

    fn rejected(&self) -> Rejected {
        self.rejected
    }
}

/// Puts a peer on the list of those to look at, if it is not there.
#[inline]
fn list(peer: &mut Peer, handle: Handle, ready: &mut Queue<Handle>) {
    if !peer.listed {
        peer.listed = true;
        ready.push(handle);
    }
}

#[cold]
#[track_caller]
fn too_short(len: usize, limit: usize) -> ! {
    panic!("a buffer of {len} bytes is too short for datagrams of {limit}")
}

/// Returns the first `max` bytes of a text.
fn cut(text: Text<'_>, max: usize) -> Text<'_> {
    let bytes = text.as_bytes();
    Text::new(bytes.get(..max).unwrap_or(bytes)).unwrap_or_default()
}

/// The longest password, in bytes of UTF-16LE, that a stock-sized message holds (T-23, T-33).
const MAX_PASSWORD: usize = 396;
