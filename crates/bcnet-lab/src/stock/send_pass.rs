//! The send pass: fills the one datagram that each peer gets per frame.

use std::net::SocketAddrV4;
use std::time::Duration;

use bcnet_transport::cipher;
use bcnet_transport::wire::{MessageId, PeerId};

use super::counters::StockCounters;
use super::message::{ack_len, write_ack};
use super::params::{AckGate, AckPosition, Params, RetransmitsPerFrame};
use super::peer::PeerEntry;
use super::{DEFAULT_PORT, StockEngine};

impl StockEngine {
    /// Fills and sends one datagram per peer, then removes peers whose linger time has passed.
    ///
    /// A pass starts after the entry that was served last. It skips peers whose socket cannot send. While all
    /// sockets can send, every pass starts at the second entry and ends with the first.
    pub(super) fn send_pass(&mut self) {
        let (count, last) = (self.peers.len(), self.last_served);
        for turn in 1..=count {
            let place = (last + turn) % count;
            if self.is_writable(place) {
                self.send_datagram(place);
                self.last_served = place;
            }
        }
        let (now, linger) = (self.now, self.params.linger);
        self.peers.retain(|peer| peer.deleted_at.is_none_or(|deleted| now - deleted <= linger));
    }

    /// Makes the socket toward one peer, or all sockets, writable or not.
    pub fn set_writable(&mut self, peer: Option<PeerId>, writable: bool) {
        if writable {
            self.unwritable.remove(&peer);
        } else {
            self.unwritable.insert(peer);
        }
    }

    fn is_writable(&self, place: usize) -> bool {
        let id = self.peers.get(place).map(|peer| peer.id);
        !self.unwritable.contains(&None) && !self.unwritable.contains(&id)
    }

    fn send_datagram(&mut self, place: usize) {
        let Some(peer) = self.peers.get_mut(place) else { return };
        if peer.acks.is_empty() && peer.retx.is_empty() && peer.unsent.is_empty() {
            return;
        }
        let mut pass = DatagramBuilder::new(&self.params, &mut self.counters, self.now);
        pass.fill(peer);
        let DatagramBuilder { mut bytes, count, .. } = pass;
        let (id, address) = (peer.id, peer.address);
        let Ok(count @ 1..) = u8::try_from(count) else { return };
        bytes.splice(..2, [self.id.0, count]);
        self.counters.datagrams += 1;
        self.counters.bytes += bytes.len() as u64;
        let port = self.ports.get(&address).copied().unwrap_or(DEFAULT_PORT);
        let to = SocketAddrV4::new(address, port);
        // A datagram to the engine itself goes into its own receive buffer, as on a loopback interface.
        if id == self.id && address == self.own_address {
            self.socket_buffer.push_back((to, bytes));
            return;
        }
        if self.params.cipher {
            cipher::encrypt(&mut bytes);
        }
        self.outgoing_datagrams.push_back((to, bytes));
    }
}

/// A datagram under construction.
struct DatagramBuilder<'a> {
    params: &'a Params,
    counters: &'a mut StockCounters,
    now: f32,
    bytes: Vec<u8>,
    count: usize,
}

impl<'a> DatagramBuilder<'a> {
    fn new(params: &'a Params, tally: &'a mut StockCounters, now: f32) -> Self {
        Self { params, counters: tally, now, bytes: vec![0; 2], count: 0 }
    }

    fn fill(&mut self, peer: &mut PeerEntry) {
        if self.params.ack_place == AckPosition::First {
            self.put_free_acks(peer);
        }
        self.put_retransmission(peer);
        self.put_first_sends(peer);
        if self.params.ack_place == AckPosition::Last {
            self.put_free_acks(peer);
        }
        let open = match self.params.gate {
            AckGate::Traffic => self.count > 0 || !peer.is_live(),
            AckGate::Always => true,
            AckGate::Never => false,
        };
        if open {
            self.put_gated_acks(peer);
        }
    }

    /// Adds the ACKs with free sends left: the first ACK pass.
    ///
    /// Free sends need no other message in the datagram. The ACKs stay in the outbox for the next send.
    fn put_free_acks(&mut self, peer: &mut PeerEntry) {
        let free = self.params.free_acks;
        self.put_acks(peer, |count| count < free);
    }

    /// Adds retransmissions.
    ///
    /// The search ends at the first message that is due, or with [`RetransmitsPerFrame::All`] at the first due
    /// message that does not fit. Messages before it that are older than `age_limit` are dropped. A due message
    /// is never dropped.
    fn put_retransmission(&mut self, peer: &mut PeerEntry) {
        let mut place = 0;
        while let Some(message) = peer.retx.get_mut(place).filter(|_| !self.is_full()) {
            if message.timer.is_due(self.now) {
                if self.fits(message.len()) {
                    message.write(&mut self.bytes);
                    self.count += 1;
                    self.counters.retransmits += 1;
                    message.timer.on_resend(self.now);
                    if self.params.resend == RetransmitsPerFrame::All {
                        place += 1;
                        continue;
                    }
                }
                return;
            }
            if self.now - message.timer.first_send > self.params.age_limit {
                peer.retx.remove(place);
                self.counters.given_up += 1;
            } else {
                place += 1;
            }
        }
    }

    /// Adds unsent messages. The first one that does not fit ends the search.
    ///
    /// After one message without the flag `aggregate`, others without it are skipped.
    fn put_first_sends(&mut self, peer: &mut PeerEntry) {
        let (mut place, mut alone) = (0, false);
        while let Some(message) = peer.unsent.get(place).filter(|_| !self.is_full()) {
            if !message.aggregate && alone {
                place += 1;
                continue;
            }
            if !self.fits(message.len()) {
                return;
            }
            alone |= !message.aggregate;
            message.write(&mut self.bytes);
            self.count += 1;
            self.counters.first_sends += 1;
            let Some(mut message) = peer.unsent.remove(place) else { return };
            if message.reliable && self.params.age_limit > 0.0 {
                message.timer.restart(self.now);
                peer.retx.push(message);
                self.counters.peak_retx = self.counters.peak_retx.max(peer.retx.len());
            }
        }
    }

    /// Adds the ACKs that have used their free sends: the second ACK pass. The last send removes an ACK.
    fn put_gated_acks(&mut self, peer: &mut PeerEntry) {
        let free = self.params.free_acks;
        self.put_acks(peer, |count| count >= free);
    }

    /// Adds the ACKs that are due and whose send count `wanted` accepts. The first that does not fit ends the
    /// search.
    fn put_acks(&mut self, peer: &mut PeerEntry, wanted: impl Fn(u32) -> bool) {
        let mut place = 0;
        while let Some(ack) = peer.acks.get_mut(place).filter(|_| !self.is_full()) {
            if !wanted(ack.timer.count) || !ack.timer.is_due(self.now) {
                place += 1;
                continue;
            }
            if !self.fits(ack_len(ack.id.fragment)) {
                return;
            }
            self.put_ack(ack.id);
            ack.timer.on_resend(self.now);
            if ack.timer.count >= self.params.last_ack {
                let lived = Duration::try_from_secs_f32(self.now - ack.queued_at).unwrap_or_default();
                peer.acks.remove(place);
                self.counters.acks_expired += 1;
                self.counters.longest_ack = self.counters.longest_ack.max(lived);
            } else {
                place += 1;
            }
        }
    }

    fn put_ack(&mut self, id: MessageId) {
        write_ack(id, &mut self.bytes);
        self.count += 1;
        self.counters.acks_sent += 1;
        self.counters.ack_bytes += ack_len(id.fragment) as u64;
    }

    fn fits(&self, len: usize) -> bool {
        self.bytes.len() + len <= self.params.datagram_limit()
    }

    const fn is_full(&self) -> bool {
        self.count >= MAX_MESSAGES
    }
}

/// Maximum number of messages in a datagram: the count is one byte.
const MAX_MESSAGES: usize = 255;
