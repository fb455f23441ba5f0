//! One socket's worth of peers: who is let in, under which id, what each says and when each is gone.
//!
//! Owns T-50 to T-58. Delivery is in [`peer`](crate::peer) and below.

mod admission;
mod control;
mod receive;
mod send;
mod table;

use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};
use core::time::Duration;

use crate::cipher;
use crate::config::{Config, Settings};
use crate::event::{Event, Events, Leave};
use crate::fragment::Pool;
use crate::peer::{Name, Peer, State};
use crate::queue::Queue;
use crate::snapshot::Snapshot;
use crate::stats::{Counters, Rejected};
use crate::time::{Deadlines, Time};
use crate::wire::{Body, BootReason, Channel, PeerId, Role, Text};
pub use admission::{AdmitError, BootError};
use control::MAX_NAME;
use send::check_live;
pub use send::{Quality, SendError};
use table::Table;

/// One end of any number of conversations over one UDP socket, without the socket.
///
/// Feed it with [`handle_datagram`](Self::handle_datagram) and [`handle_timeout`](Self::handle_timeout), then empty
/// [`poll_transmit`](Self::poll_transmit) and [`poll_event`](Self::poll_event), then sleep until
/// [`next_timeout`](Self::next_timeout) or the next datagram. Time is whatever the caller says it is.
#[derive(Debug)]
pub struct Endpoint {
    config: Settings,
    role: Role,
    /// The own id; a client has none until the host gives it one.
    id: PeerId,
    /// The caller said goodbye: nobody is let in any more.
    left: bool,
    /// A host's own name, if it has told one.
    name: Option<Name>,
    peers: Table,
    /// Peers to look at before anything else: something may have to be sent, or a deadline has moved.
    ready: Queue<u32>,
    deadlines: Deadlines,
    events: Events,
    pool: Pool,
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

impl Endpoint {
    /// A host, to which clients connect.
    #[must_use]
    pub fn host(config: Config) -> Self {
        Self::new(config, Role::Host, PeerId::HOST)
    }

    /// A client that asks `host` to be let in.
    ///
    /// `address` is the own address as far as it is known. `nonce` must be random and differ from attempt to attempt.
    /// `password` is UTF-16LE; see [`Text::encode`]. What does not fit one message (198 characters) is cut.
    #[must_use]
    pub fn connect(
        config: Config,
        host: SocketAddrV4,
        address: Ipv4Addr,
        nonce: u32,
        password: Text<'_>,
        now: Time,
    ) -> Self {
        let mut endpoint = Self::new(Config { address, ..config }, Role::Client, PeerId::UNASSIGNED);
        let mut peer = Peer::new(host, PeerId::HOST, State::Connecting, &endpoint.config, now);
        peer.nonce = nonce;
        let password = cut(password, MAX_PASSWORD);
        peer.queue_control(Body::ConnectRequest { address, nonce, password }, now);
        endpoint.add(peer);
        endpoint
    }

    fn new(config: Config, role: Role, id: PeerId) -> Self {
        Self {
            config: config.into(),
            role,
            id,
            left: false,
            name: None,
            peers: Table::new(),
            ready: Queue::default(),
            deadlines: Deadlines::new(),
            events: Events::default(),
            pool: Pool::default(),
            rejected: Rejected::default(),
        }
    }

    /// The own id: [`PeerId::HOST`] for a host, [`PeerId::UNASSIGNED`] for a client that was not let in yet.
    #[must_use]
    pub const fn id(&self) -> PeerId {
        self.id
    }

    /// The peers that messages can be sent to, in no particular order.
    pub fn peers(&self) -> impl Iterator<Item = PeerId> {
        self.peers.iter().filter(|peer| peer.state == State::Live).map(|peer| peer.id)
    }

    /// Where a peer's datagrams come from.
    #[must_use]
    pub fn address(&self, peer: PeerId) -> Option<SocketAddrV4> {
        self.peer(peer).map(|peer| peer.address)
    }

    /// Everything that waits for and from a peer, for logs and tools.
    #[must_use]
    pub fn snapshot(&self, peer: PeerId, now: Time) -> Option<Snapshot> {
        self.peer(peer).map(|peer| peer.snapshot(&self.config, now))
    }

    /// Whether a peer has everything that was queued for it on a channel so far, as its ACKs tell. Nothing waits for a
    /// peer that is gone, so it has.
    #[must_use]
    pub fn has_everything(&self, peer: PeerId, channel: Channel) -> bool {
        let outbox = self.peer(peer).and_then(Peer::outbox_ref);
        outbox.is_none_or(|outbox| outbox.is_settled(channel))
    }

    /// How long ago something was heard of a peer.
    #[must_use]
    pub fn silent_for(&self, peer: PeerId, now: Time) -> Option<Duration> {
        self.peer(peer).map(|peer| now.since(peer.last_heard))
    }

    /// The smoothed round trip to a peer, if one was measured.
    #[must_use]
    pub fn round_trip(&self, peer: PeerId) -> Option<Duration> {
        self.peer(peer)?.round_trip().smoothed().map(|micros| Duration::from_micros(micros.into()))
    }

    /// What a peer has sent and received so far.
    #[must_use]
    pub fn counters(&self, peer: PeerId) -> Option<Counters> {
        self.peer(peer).map(|peer| peer.counters)
    }

    /// What arrived from nobody in particular and had no effect.
    #[must_use]
    pub const fn rejected(&self) -> Rejected {
        self.rejected
    }

    /// Tells the host, or as a host everyone, the own name. `name` is UTF-16LE; see [`Text::encode`]. What is longer
    /// than 100 characters is cut. A host that never calls this has no name, as in stock; one that does tells it to
    /// those who join later, too.
    ///
    /// # Errors
    /// See [`SendError`]: a client has nobody to tell before it has joined, and nobody has after [`leave`](Self::leave).
    pub fn identify(&mut self, address: Ipv4Addr, name: Text<'_>, now: Time) -> Result<(), SendError> {
        match self.role {
            Role::Host if self.left => return Err(SendError::Leaving(self.id)),
            Role::Host => {}
            Role::Client => {
                let host = self.peer(PeerId::HOST).ok_or(SendError::UnknownPeer(PeerId::HOST))?;
                check_live(host)?;
            }
        }
        let name = cut(name, MAX_NAME);
        if self.role == Role::Host {
            self.name = Some(Name { address, utf16le: name.as_bytes().into() });
        }
        self.tell(Body::Identity { peer: self.id, address, name }, now);
        Ok(())
    }

    /// To a host: lets a client in that asked for it with [`Event::Request`], and tells its id.
    ///
    /// # Errors
    /// See [`AdmitError`].
    pub fn admit(&mut self, from: SocketAddrV4, now: Time) -> Result<PeerId, AdmitError> {
        let place = self.find_request(from)?;
        let id = self.peers.assign(place, self.config.peers).ok_or(AdmitError::Full(from))?;
        // T-52: the newcomer learns who is there.
        let named = |peer: &Peer| (peer.state == State::Live).then(|| Some((peer.id, peer.name.clone()?)))?;
        let own = self.name.clone().map(|name| (self.id, name));
        let known: Vec<(PeerId, Name)> = own.into_iter().chain(self.peers.iter().filter_map(named)).collect();
        let peer = self.peers.get_mut(place).ok_or(AdmitError::NoRequest(from))?;
        peer.state = State::Live;
        peer.queue_control(Body::ConnectReply { assigned: id }, now);
        for (peer_id, Name { address, utf16le }) in &known {
            let name = Text::new(utf16le).unwrap_or_default();
            peer.queue_control(Body::Identity { peer: *peer_id, address: *address, name }, now);
        }
        self.events.push(Event::Joined { peer: id }, &[]);
        self.touch(place);
        Ok(id)
    }

    /// To a host: turns a client away that asked with [`Event::Request`].
    ///
    /// # Errors
    /// See [`AdmitError`].
    pub fn refuse(&mut self, from: SocketAddrV4, reason: BootReason, now: Time) -> Result<(), AdmitError> {
        let until = now.plus(self.config.pending_timeout);
        let place = self.find_request(from)?;
        let peer = self.peers.get_mut(place).ok_or(AdmitError::NoRequest(from))?;
        peer.queue_control(Body::Boot { reason, target: PeerId::UNASSIGNED }, now);
        peer.state = State::Leaving { until };
        self.touch(place);
        Ok(())
    }

    /// Who asks to be let in from this address.
    fn find_request(&self, from: SocketAddrV4) -> Result<u32, AdmitError> {
        let asks = |place: &u32| {
            self.peers.get(*place).is_some_and(|peer| matches!(peer.state, State::Pending { .. }))
        };
        self.peers.find_address(from).filter(asks).ok_or(AdmitError::NoRequest(from))
    }

    /// To a host: throws a peer out and tells everyone.
    ///
    /// # Errors
    /// See [`BootError`].
    pub fn boot(&mut self, peer: PeerId, reason: BootReason, now: Time) -> Result<(), BootError> {
        let found = self.peers.find(peer).filter(|_| self.role == Role::Host);
        let is_live = |place: &u32| self.peers.get(*place).is_some_and(|peer| peer.state == State::Live);
        let place = found.filter(is_live).ok_or(BootError(peer))?;
        self.tell(Body::Boot { reason, target: peer }, now);
        self.start_leaving(place, now);
        self.events.push(Event::Left { peer, reason: Leave::Booted(reason) }, &[]);
        Ok(())
    }

    /// Says goodbye to everyone. Keep polling until [`is_closed`](Self::is_closed), for [`linger`](Config::linger) at most:
    /// first what was queued before is delivered, then the goodbye is repeated until it is acknowledged.
    pub fn leave(&mut self, address: Ipv4Addr, now: Time) {
        self.left = true;
        for place in self.peers.places() {
            let Some(peer) = self.peers.get_mut(place) else { continue };
            let (id, state) = (peer.id, peer.state);
            match state {
                State::Live => {
                    peer.state = State::Draining { since: now, address };
                    self.touch(place);
                    self.finish_leaving(place, now);
                }
                State::Pending { .. } | State::Connecting => drop(self.remove(place)),
                // Nobody has to wait for repeats any more.
                State::Draining { .. } | State::Leaving { .. } => self.touch(place),
            }
            if matches!(state, State::Live | State::Connecting) {
                self.events.push(Event::Left { peer: id, reason: Leave::Local }, &[]);
            }
        }
    }

    /// Whether nobody is left to talk to.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.peers.iter().next().is_none()
    }

    /// A deadline has passed, or any time has: serves every timer that is due.
    #[inline]
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some((_, place)) = self.deadlines.first().filter(|(due, _)| *due <= now) {
            self.handle_alarm(place, now);
        }
    }

    #[inline(never)]
    fn handle_alarm(&mut self, place: u32, now: Time) {
        let Some(due) = self.peers.get(place).map(|peer| peer.next_timeout(&self.config)) else {
            return self.deadlines.set(place, None);
        };
        if due <= now {
            self.deadlines.set(place, None);
            self.serve(place, now);
            self.touch(place);
        } else {
            // The alarm came too early.
            let alarm = self.peers.get_mut(place).map(|peer| peer.put_off(due, now));
            self.deadlines.set(place, alarm);
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due, or sooner. After a change this is at once, until
    /// [`poll_transmit`](Self::poll_transmit) has given the last datagram.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Time> {
        if self.ready.is_empty() { self.deadlines.first().map(|(due, _)| due) } else { Some(Time::ZERO) }
    }

    /// Writes the next datagram to send into `buffer`, which must have room for
    /// [`datagram_limit`](Config::datagram_limit) bytes: a shorter one gets nothing, and nothing is lost.
    #[inline]
    pub fn poll_transmit(&mut self, buffer: &mut [u8], now: Time) -> Option<Transmit> {
        if buffer.len() < self.config.datagram_limit {
            return None;
        }
        while let Some(&place) = self.ready.front() {
            let transmit = self.transmit_to(place, buffer, now);
            if transmit.is_some() {
                return transmit;
            }
        }
        None
    }

    /// A datagram to the first peer of the list, which leaves the list if that is all.
    #[inline(never)]
    fn transmit_to(&mut self, place: u32, buffer: &mut [u8], now: Time) -> Option<Transmit> {
        let Some(peer) = self.peers.get_mut(place) else {
            self.ready.skip(1);
            return None;
        };
        let len = peer.fill(buffer, self.id, &self.config, now);
        let to = peer.address;
        if !peer.listed {
            self.ready.skip(1);
            if let Some(alarm) = peer.set_alarm(&self.config) {
                self.deadlines.set(place, Some(alarm));
            }
            if matches!(peer.state, State::Draining { .. } | State::Leaving { .. }) {
                self.finish_leaving(place, now);
            }
        }
        let len = len?;
        if self.config.cipher {
            cipher::encrypt(buffer.get_mut(..len)?);
        }
        Some(Transmit { to, len })
    }

    /// The next thing that happened; its bytes, if it has any, are put into `payload`.
    pub fn poll_event(&mut self, payload: &mut Vec<u8>) -> Option<Event> {
        self.events.pop(payload)
    }

    fn add(&mut self, peer: Peer) -> Option<u32> {
        let place = self.peers.add(peer)?;
        self.touch(place);
        Some(place)
    }

    fn remove(&mut self, place: u32) -> Option<Peer> {
        let mut peer = self.peers.remove(place)?;
        peer.inbox.iter_mut().for_each(|inbox| inbox.clear(&mut self.pool));
        self.deadlines.set(place, None);
        self.ready.remove(place);
        Some(peer)
    }

    /// Puts a peer on the list of those to look at, whatever has changed.
    fn touch(&mut self, place: u32) {
        if let Some(peer) = self.peers.get_mut(place) {
            peer.alarm = None;
            list(peer, place, &mut self.ready);
        }
    }

    pub(crate) const fn own_address(&self) -> Ipv4Addr {
        self.config.address
    }

    fn peer(&self, id: PeerId) -> Option<&Peer> {
        self.peers.find(id).and_then(|place| self.peers.get(place))
    }
}

/// Puts a peer on the list of those to look at, if it is not there.
#[inline]
fn list(peer: &mut Peer, place: u32, ready: &mut Queue<u32>) {
    if !peer.listed {
        peer.listed = true;
        ready.push(place);
    }
}

/// The first `most` bytes of a text.
fn cut(text: Text<'_>, most: usize) -> Text<'_> {
    let bytes = text.as_bytes();
    Text::new(bytes.get(..most).unwrap_or(bytes)).unwrap_or_default()
}

/// The longest password, in bytes of UTF-16LE, that a stock-sized message holds (T-23, T-33).
const MAX_PASSWORD: usize = 396;
