//! The [`Engine`] interface of the stock model.

use std::net::SocketAddrV4;
use std::ops::Range;
use std::time::Duration;

use bcnet_transport::wire::{BootReason, Channel, PeerId, Seq, Text};
use bcnet_transport::{
    AdmitError, BootError, DeliveryMode, Engine, Event, IdPolicy, InboxSnapshot, PeerCounters, ProofPolicy,
    RejectCounters, SendError, Snapshot, Time, Transmit, Unacknowledged,
};

use super::peer::{PeerEntry, channel_index};
use super::{StockEngine, send};

impl Engine for StockEngine {
    fn handle_datagram(&mut self, from: SocketAddrV4, bytes: &mut [u8], now: Time) {
        Self::handle_datagram(self, from, bytes, now);
    }

    /// Runs one frame.
    fn handle_timeout(&mut self, now: Time) {
        self.run_frame(now);
    }

    fn next_timeout(&self) -> Option<Time> {
        self.next_due()
    }

    /// Returns the time of the next frame: urgent messages are sent only in a frame, too.
    fn next_urgent_timeout(&self) -> Option<Time> {
        self.next_due()
    }

    fn poll_transmit(&mut self, buffer: &mut [u8], _: Time) -> Option<Transmit> {
        Self::poll_transmit(self, buffer)
    }

    fn poll_event(&mut self, payload: &mut Vec<u8>) -> Option<Event> {
        Self::poll_event(self, payload)
    }

    fn id(&self) -> PeerId {
        Self::id(self)
    }

    fn send(&mut self, to: PeerId, payload: &[u8], mode: DeliveryMode, now: Time) -> Result<(), SendError> {
        Self::send(self, to, payload, mode, now).map_err(|error| match error {
            send::StockSendError::NotConnected => SendError::Leaving(to),
            send::StockSendError::UnknownPeer(peer) => SendError::UnknownPeer(peer),
            send::StockSendError::TooManyPending => {
                let (messages, bytes) = self.peer_entry(to).map_or((0, 0), queue_size);
                SendError::QueueFull { messages, bytes }
            }
        })
    }

    fn announce_name(&mut self, name: Text<'_>, now: Time) -> Result<(), SendError> {
        Self::identify(self, name.as_bytes(), now);
        Ok(())
    }

    fn admit(&mut self, from: SocketAddrV4, now: Time) -> Result<PeerId, AdmitError> {
        let place = self.find_request(from).ok_or(AdmitError::NoRequest(from))?;
        self.now = self.clock.reading_at(now);
        // Without a free id the original still answers, with the id `UNASSIGNED`.
        Some(self.admit_peer(place)).filter(|id| *id != PeerId::UNASSIGNED).ok_or(AdmitError::Full(from))
    }

    fn refuse(&mut self, from: SocketAddrV4, reason: BootReason, now: Time) -> Result<(), AdmitError> {
        let place = self.find_request(from).ok_or(AdmitError::NoRequest(from))?;
        self.now = self.clock.reading_at(now);
        self.refuse_peer(place, reason);
        Ok(())
    }

    fn boot(&mut self, peer: PeerId, reason: BootReason, now: Time) -> Result<(), BootError> {
        if Self::boot(self, peer, reason, now) { Ok(()) } else { Err(BootError(peer)) }
    }

    fn leave(&mut self, now: Time) {
        Self::leave(self, now);
    }

    fn is_closed(&self) -> bool {
        Self::is_closed(self)
    }

    fn mask_addresses(&mut self, mask: bool) {
        self.masks_addresses = mask;
    }

    /// Does nothing: the original verifies no address and assigns ids in ascending order.
    fn set_admission(&mut self, _: ProofPolicy, _: IdPolicy, _: bool) {}

    fn address(&self, peer: PeerId) -> Option<SocketAddrV4> {
        let address = self.peer_entry(peer)?.address;
        Some(SocketAddrV4::new(address, self.ports.get(&address).copied().unwrap_or(super::DEFAULT_PORT)))
    }

    fn unacked_range(&self, peer: PeerId, channel: Channel) -> Option<Range<Seq>> {
        let peer = self.peer_entry(peer)?;
        let next = Seq(peer.next_seq[channel_index(channel)]);
        let waiting = peer.unsent.iter().chain(&peer.retx);
        let reliable = waiting.filter(|message| message.reliable && message.kind.channel() == channel);
        let oldest = reliable.map(|message| Seq(message.seq)).min_by_key(|seq| seq.distance_from(next));
        Some(oldest.unwrap_or(next)..next)
    }

    /// Returns `None`: the original measures no round-trip time.
    fn rtt(&self, _: PeerId) -> Option<Duration> {
        None
    }

    fn snapshot(&self, peer: PeerId, now: Time) -> Option<Snapshot> {
        let entry = self.peer_entry(peer)?;
        let clock = self.clock.reading_at(now);
        let unacknowledged = entry.retx.iter().map(|message| Unacknowledged {
            id: message.id(),
            sends: u8::try_from(message.timer.count + 1).unwrap_or(u8::MAX),
            age: to_duration(clock - message.timer.first_send),
            interval: to_duration(message.timer.interval),
        });
        // Messages out of order are in a queue that all peers share, so none is counted here.
        let receiving = |channel| InboxSnapshot {
            channel,
            expected: Seq(entry.expected_seq[channel_index(channel)]),
            out_of_order: 0,
            out_of_order_bytes: 0,
            reassemblies: Vec::new(),
        };
        let in_flight = entry.retx.iter().map(|message| message.len()).sum();
        Some(Snapshot {
            peer,
            pending_acks: entry.acks.iter().map(|ack| ack.id).collect(),
            unacknowledged: unacknowledged.collect(),
            unsent: entry.unsent.len(),
            queued_bytes: queue_size(entry).1,
            inboxes: [receiving(Channel::Control), receiving(Channel::Game)],
            rtt: None,
            rtt_variation: Duration::ZERO,
            rto: Duration::from_secs(1),
            congestion_window: usize::MAX,
            in_flight,
            idle_for: to_duration(clock - entry.last_received),
        })
    }

    /// Returns `None`: the original has no counters.
    fn counters(&self, _: PeerId) -> Option<PeerCounters> {
        None
    }

    /// Returns zeros: the original has no counters.
    fn rejected(&self) -> RejectCounters {
        RejectCounters::default()
    }
}

impl StockEngine {
    fn peer_entry(&self, peer: PeerId) -> Option<&PeerEntry> {
        self.peers.get(self.peers.find(peer)?)
    }

    /// Returns the entry of the client at this address that waits for admission.
    fn find_request(&self, from: SocketAddrV4) -> Option<usize> {
        let asks = |peer: &PeerEntry| {
            peer.awaits_admission
                && peer.is_live()
                && peer.id == PeerId::UNASSIGNED
                && peer.address == *from.ip()
        };
        self.peers.iter().position(asks)
    }
}

/// Returns the number of messages queued for a peer, and their bytes.
fn queue_size(peer: &PeerEntry) -> (usize, usize) {
    let waiting = || peer.unsent.iter().chain(&peer.retx);
    (waiting().count(), waiting().map(|message| message.len()).sum())
}

/// Converts a difference of two clock readings. A negative difference becomes zero.
fn to_duration(length: f32) -> Duration {
    Duration::try_from_secs_f32(length).unwrap_or_default()
}
