//! The receive phase: datagrams become queued messages, and every reliable one is owed an ACK.

use std::net::{Ipv4Addr, SocketAddrV4};

use bcnet_transport::wire::{Channel, Kind, PeerId};
use bcnet_transport::{Event, Leave};

use super::Stock;
use super::incoming::Incoming;
use super::message::{Crash, Message, Timer, Unreadable};
use super::params::{Backoff, Dedup, Mode, PortMap};
use super::peer::{Owed, Peer, lane};

impl Stock {
    /// Empties the socket, or as much of it as comes before an unknown type.
    pub(super) fn receive(&mut self) {
        while let Some((from, bytes)) = self.socket.pop_front() {
            self.tally.received += 1;
            if let Err(unreadable) = self.receive_datagram(from, &bytes) {
                match unreadable {
                    Unreadable::Type(_) => self.tally.aborted += 1,
                    Unreadable::Crash(crash) => self.crash = Some(crash),
                }
                return;
            }
        }
    }

    fn receive_datagram(&mut self, from: SocketAddrV4, bytes: &[u8]) -> Result<(), Unreadable> {
        if self.params.port_map == PortMap::AnyDatagram || bytes.get(1).is_some_and(|count| *count > 0) {
            self.ports.insert(*from.ip(), from.port());
        }
        let &[sender, count, ..] = bytes else { return Ok(()) };
        let (mut at, mut peer) = (2, None);
        for _ in 0..count {
            let mut message = Message::read(bytes, at)?;
            at += message.len();
            message.sender = PeerId(sender);
            message.source = *from.ip();
            message.arrival = self.now;
            let known = peer.or_else(|| self.resolve(&message));
            let Some(place) = known else { return Ok(()) };
            peer = known;
            if message.reliable {
                self.owe(place, &message);
            }
            self.enqueue(place, message)?;
        }
        Ok(())
    }

    /// Returns the peer that a datagram is from, told by its first message. `None` if that is none of a stranger's.
    fn resolve(&mut self, message: &Message) -> Option<usize> {
        let place = match message.sender {
            PeerId::UNASSIGNED => match message.kind {
                Kind::CONNECT => self.resolve_connect(message),
                Kind::DISCONNECT => self
                    .find_stranger(message.source, message.address(1))
                    .unwrap_or_else(|| self.create(PeerId::UNASSIGNED, message.source)),
                _ => return None,
            },
            id => self.peers.find(id).unwrap_or_else(|| self.create(id, message.source)),
        };
        if message.sender == PeerId::HOST {
            self.host_heard = self.now;
        }
        self.peers.get_mut(place)?.heard = self.now;
        Some(place)
    }

    /// Returns who asks to be let in: known by address and nonce, or new.
    fn resolve_connect(&mut self, message: &Message) -> usize {
        let own_view = message.address(0);
        let nonce = u32::from_le_bytes([4, 5, 6, 7].map(|at| message.byte(at)));
        if let Some(place) = self.find_stranger(message.source, own_view)
            && let Some(peer) = self.peers.get(place)
        {
            if peer.nonce == nonce {
                return place;
            }
            if peer.own_view == own_view {
                let (id, live) = (peer.id, peer.is_live());
                self.peers.remove(place);
                if live && id != PeerId::UNASSIGNED {
                    self.tell(Event::Left { peer: id, reason: Leave::Replaced }, &[]);
                }
            }
        }
        let place = self.create(PeerId::UNASSIGNED, message.source);
        if let Some(peer) = self.peers.get_mut(place) {
            (peer.own_view, peer.nonce) = (own_view, nonce);
        }
        place
    }

    fn find_stranger(&self, source: Ipv4Addr, own_view: Ipv4Addr) -> Option<usize> {
        self.peers.find_address(source).or_else(|| self.peers.find_address(own_view))
    }

    pub(super) fn create(&mut self, id: PeerId, address: Ipv4Addr) -> usize {
        if self.peers.len() >= MAX_PEERS {
            self.crash = Some(Crash::Memory);
        }
        self.peers.insert(Peer::new(id, address, self.now))
    }

    /// Finds the ACK for a message in the outbox and starts it or its timer again, or appends it.
    fn owe(&mut self, place: usize, message: &Message) {
        let Some(peer) = self.peers.get_mut(place) else { return };
        let id = message.id();
        peer.queued = self.now;
        for owed in &mut peer.acks {
            self.tally.comparisons += 1;
            if owed.id == id {
                match self.params.dedup {
                    Dedup::Restart => owed.timer.restart(self.now),
                    Dedup::Refresh => owed.timer.refresh(self.now),
                }
                self.tally.acks_restarted += 1;
                return;
            }
        }
        let backoff = Backoff { mode: Mode::Fixed, first: 0.0, step: self.params.ack_step };
        let mut timer = Timer::new(backoff);
        timer.restart(self.now);
        peer.acks.push(Owed { id, timer, since: self.now });
        if peer.acks.len() > MAX_OWED {
            self.crash = Some(Crash::Memory);
        }
        self.tally.peak_acks = self.tally.peak_acks.max(peer.acks.len());
    }

    /// Puts a message into one of the four queues, which all peers share, unless it is outside its window.
    fn enqueue(&mut self, place: usize, message: Message) -> Result<(), Unreadable> {
        let channel = message.kind.channel();
        if !message.reliable {
            self.incoming.push_unreliable(channel, message);
            return self.check_memory();
        }
        let Some(peer) = self.peers.get(place) else { return Ok(()) };
        if !in_window(message.seq, peer.expected[lane(channel)]) {
            self.tally.duplicates += 1;
            return Ok(());
        }
        let message = if channel == Channel::Game && message.part.is_some() {
            self.incoming.assemble(message, &mut self.tally).map_err(Unreadable::Crash)?
        } else {
            message
        };
        self.incoming.reliable[lane(channel)].push_back(message);
        self.check_memory()
    }

    fn check_memory(&self) -> Result<(), Unreadable> {
        let Incoming { unreliable, reliable } = &self.incoming;
        let waiting: usize = unreliable.iter().chain(reliable).map(|queue| queue.len()).sum();
        if waiting > MAX_WAITING || self.crash.is_some() {
            return Err(Unreadable::Crash(Crash::Memory));
        }
        Ok(())
    }
}

/// Returns whether a number is acceptable: the difference of two numbers, not their distance around the circle.
fn in_window(seq: u16, expected: u16) -> bool {
    let ahead = i32::from(seq) - i32::from(expected);
    (0..WINDOW).contains(&ahead) || ahead < -WINDOW
}

const WINDOW: i32 = 0x4000;
/// More entries than honest use makes; the original has no limit.
const MAX_PEERS: usize = 4096;
/// More messages than honest use makes; the original has no limit.
const MAX_WAITING: usize = 1 << 15;
/// More ACKs than honest use owes one peer; the original has no limit.
const MAX_OWED: usize = 1 << 17;
