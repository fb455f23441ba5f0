//! The receive phase: parses datagrams, queues their messages, and acknowledges reliable ones.

use std::net::{Ipv4Addr, SocketAddrV4};

use bcnet_transport::wire::{Channel, Kind, PeerId};
use bcnet_transport::{Event, LeaveReason};

use super::StockEngine;
use super::incoming::IncomingQueues;
use super::message::{Crash, ParseFailure, RetransmitTimer, StockMessage};
use super::params::{AckDedup, Backoff, BackoffMode, PortLearning};
use super::peer::{PeerEntry, StockPendingAck, channel_index};

impl StockEngine {
    /// Reads all datagrams from the socket. It stops at a message of an unknown type, or at a crash.
    pub(super) fn receive(&mut self) {
        while let Some((from, bytes)) = self.socket_buffer.pop_front() {
            self.counters.received += 1;
            if let Err(unreadable) = self.receive_datagram(from, &bytes) {
                match unreadable {
                    ParseFailure::UnknownType(_) => self.counters.aborted += 1,
                    ParseFailure::Crash(crash) => self.crash = Some(crash),
                }
                return;
            }
        }
    }

    fn receive_datagram(&mut self, from: SocketAddrV4, bytes: &[u8]) -> Result<(), ParseFailure> {
        if self.params.port_map == PortLearning::AnyDatagram || bytes.get(1).is_some_and(|count| *count > 0) {
            self.ports.insert(*from.ip(), from.port());
        }
        let &[sender, count, ..] = bytes else { return Ok(()) };
        let (mut at, mut peer) = (2, None);
        for _ in 0..count {
            let mut message = StockMessage::parse(bytes, at)?;
            at += message.len();
            message.sender = PeerId(sender);
            message.source = *from.ip();
            message.arrived_at = self.now;
            let known = peer.or_else(|| self.resolve_sender(&message));
            let Some(place) = known else { return Ok(()) };
            peer = known;
            if message.reliable {
                self.queue_ack(place, &message);
            }
            self.enqueue_received(place, message)?;
        }
        Ok(())
    }

    /// Returns the peer entry of the sender of a datagram, from its first message. Creates missing entries.
    ///
    /// Returns `None` if the sender has no id and the message is neither a connect nor a disconnect.
    fn resolve_sender(&mut self, message: &StockMessage) -> Option<usize> {
        let place = match message.sender {
            PeerId::UNASSIGNED => match message.kind {
                Kind::CONNECT => self.resolve_connecting_sender(message),
                Kind::DISCONNECT => self
                    .find_by_address(message.source, message.address_at(1))
                    .unwrap_or_else(|| self.create_peer(PeerId::UNASSIGNED, message.source)),
                _ => return None,
            },
            id => self.peers.find(id).unwrap_or_else(|| self.create_peer(id, message.source)),
        };
        if message.sender == PeerId::HOST {
            self.host_last_received = self.now;
        }
        self.peers.get_mut(place)?.last_received = self.now;
        Some(place)
    }

    /// Returns the entry of a connecting client: an existing one with its address and nonce, or a new one.
    ///
    /// A client with another nonce and the same claimed address replaces the old entry.
    fn resolve_connecting_sender(&mut self, message: &StockMessage) -> usize {
        let own_view = message.address_at(0);
        let nonce = u32::from_le_bytes([4, 5, 6, 7].map(|at| message.byte_at(at)));
        if let Some(place) = self.find_by_address(message.source, own_view)
            && let Some(peer) = self.peers.get(place)
        {
            if peer.nonce == nonce {
                return place;
            }
            if peer.claimed_address == own_view {
                let (id, live) = (peer.id, peer.is_live());
                self.peers.remove(place);
                if live && id != PeerId::UNASSIGNED {
                    self.push_event(Event::Left { peer: id, reason: LeaveReason::Replaced }, &[]);
                }
            }
        }
        let place = self.create_peer(PeerId::UNASSIGNED, message.source);
        if let Some(peer) = self.peers.get_mut(place) {
            (peer.claimed_address, peer.nonce) = (own_view, nonce);
        }
        place
    }

    fn find_by_address(&self, source: Ipv4Addr, own_view: Ipv4Addr) -> Option<usize> {
        self.peers.find_address(source).or_else(|| self.peers.find_address(own_view))
    }

    pub(super) fn create_peer(&mut self, id: PeerId, address: Ipv4Addr) -> usize {
        if self.peers.len() >= MAX_PEERS {
            self.crash = Some(Crash::OutOfMemory);
        }
        self.peers.insert(PeerEntry::new(id, address, self.now))
    }

    /// Queues the ACK for a message. If the outbox has that ACK, restarts the ACK or its timer instead.
    fn queue_ack(&mut self, place: usize, message: &StockMessage) {
        let Some(peer) = self.peers.get_mut(place) else { return };
        let id = message.id();
        peer.last_queued = self.now;
        for ack in &mut peer.acks {
            self.counters.comparisons += 1;
            if ack.id == id {
                match self.params.dedup {
                    AckDedup::Restart => ack.timer.restart(self.now),
                    AckDedup::Refresh => ack.timer.refresh(self.now),
                }
                self.counters.acks_restarted += 1;
                return;
            }
        }
        let backoff = Backoff { mode: BackoffMode::Fixed, first: 0.0, step: self.params.ack_step };
        let mut timer = RetransmitTimer::new(backoff);
        timer.restart(self.now);
        peer.acks.push(StockPendingAck { id, timer, queued_at: self.now });
        if peer.acks.len() > MAX_PENDING_ACKS {
            self.crash = Some(Crash::OutOfMemory);
        }
        self.counters.peak_acks = self.counters.peak_acks.max(peer.acks.len());
    }

    /// Queues a message for dispatch, unless it is outside the receive window. All peers share the queues.
    fn enqueue_received(&mut self, place: usize, message: StockMessage) -> Result<(), ParseFailure> {
        let channel = message.kind.channel();
        if !message.reliable {
            self.incoming.push_unreliable(channel, message);
            return self.check_memory();
        }
        let Some(peer) = self.peers.get(place) else { return Ok(()) };
        if !in_window(message.seq, peer.expected_seq[channel_index(channel)]) {
            self.counters.duplicates += 1;
            return Ok(());
        }
        let message = if channel == Channel::Game && message.fragment.is_some() {
            self.incoming.reassemble(message, &mut self.counters).map_err(ParseFailure::Crash)?
        } else {
            message
        };
        self.incoming.reliable[channel_index(channel)].push_back(message);
        self.check_memory()
    }

    fn check_memory(&self) -> Result<(), ParseFailure> {
        let IncomingQueues { unreliable, reliable } = &self.incoming;
        let waiting: usize = unreliable.iter().chain(reliable).map(|queue| queue.len()).sum();
        if waiting > MAX_QUEUED_MESSAGES || self.crash.is_some() {
            return Err(ParseFailure::Crash(Crash::OutOfMemory));
        }
        Ok(())
    }
}

/// Returns whether a sequence number is in the window: by plain difference, without wrap-around.
fn in_window(seq: u16, expected: u16) -> bool {
    let ahead = i32::from(seq) - i32::from(expected);
    (0..WINDOW_SIZE).contains(&ahead) || ahead < -WINDOW_SIZE
}

const WINDOW_SIZE: i32 = 0x4000;
/// Limit of peer entries, which normal use never reaches. The original has no limit.
const MAX_PEERS: usize = 4096;
/// Limit of queued messages, which normal use never reaches. The original has no limit.
const MAX_QUEUED_MESSAGES: usize = 1 << 15;
/// Limit of pending ACKs for one peer, which normal use never reaches. The original has no limit.
const MAX_PENDING_ACKS: usize = 1 << 17;
