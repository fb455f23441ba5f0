//! The model as the engine of a session.

use std::net::SocketAddrV4;
use std::ops::Range;
use std::time::Duration;

use bcnet_transport::wire::{BootReason, Channel, PeerId, Seq, Text};
use bcnet_transport::{
    AdmitError, BootError, Counters, Engine, Event, Ids, Prove, Quality, Receiving, Rejected, SendError,
    Snapshot, Time, Transmit, Unacknowledged,
};

use super::peer::{Peer, lane};
use super::{Stock, send};

impl Engine for Stock {
    fn handle_datagram(&mut self, from: SocketAddrV4, bytes: &mut [u8], now: Time) {
        Self::handle_datagram(self, from, bytes, now);
    }

    /// Runs one frame.
    fn handle_timeout(&mut self, now: Time) {
        self.service(now);
    }

    fn next_timeout(&self) -> Option<Time> {
        self.next_due()
    }

    /// It sends when its frame comes, whatever it is.
    fn next_urgent(&self) -> Option<Time> {
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

    fn send(&mut self, to: PeerId, payload: &[u8], quality: Quality, now: Time) -> Result<(), SendError> {
        Self::send(self, to, payload, quality, now).map_err(|error| match error {
            send::SendError::NotConnected => SendError::Leaving(to),
            send::SendError::UnknownPeer(peer) => SendError::UnknownPeer(peer),
            send::SendError::TooManyPending => {
                let (messages, bytes) = self.entry(to).map_or((0, 0), queued);
                SendError::QueueFull { messages, bytes }
            }
        })
    }

    fn identify(&mut self, name: Text<'_>, now: Time) -> Result<(), SendError> {
        Self::identify(self, name.as_bytes(), now);
        Ok(())
    }

    fn admit(&mut self, from: SocketAddrV4, now: Time) -> Result<PeerId, AdmitError> {
        let place = self.find_request(from).ok_or(AdmitError::NoRequest(from))?;
        self.now = self.clock.at(now);
        // Without a free id it answers all the same, with none.
        Some(self.let_in(place)).filter(|id| *id != PeerId::UNASSIGNED).ok_or(AdmitError::Full(from))
    }

    fn refuse(&mut self, from: SocketAddrV4, reason: BootReason, now: Time) -> Result<(), AdmitError> {
        let place = self.find_request(from).ok_or(AdmitError::NoRequest(from))?;
        self.now = self.clock.at(now);
        self.turn_away(place, reason);
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
        self.masks = mask;
    }

    /// The original asks for no proof, and counts its ids up.
    fn set_admission(&mut self, _: Prove, _: Ids, _: bool) {}

    fn address(&self, peer: PeerId) -> Option<SocketAddrV4> {
        let address = self.entry(peer)?.address;
        Some(SocketAddrV4::new(address, self.ports.get(&address).copied().unwrap_or(super::DEFAULT_PORT)))
    }

    fn awaited(&self, peer: PeerId, channel: Channel) -> Option<Range<Seq>> {
        let peer = self.entry(peer)?;
        let next = Seq(peer.sending[lane(channel)]);
        let waiting = peer.first.iter().chain(&peer.retx);
        let reliable = waiting.filter(|message| message.reliable && message.kind.channel() == channel);
        let oldest = reliable.map(|message| Seq(message.seq)).min_by_key(|seq| seq.distance_from(next));
        Some(oldest.unwrap_or(next)..next)
    }

    /// The original measures none.
    fn round_trip(&self, _: PeerId) -> Option<Duration> {
        None
    }

    fn snapshot(&self, peer: PeerId, now: Time) -> Option<Snapshot> {
        let entry = self.entry(peer)?;
        let clock = self.clock.at(now);
        let unacknowledged = entry.retx.iter().map(|message| Unacknowledged {
            id: message.id(),
            sends: u8::try_from(message.timer.count + 1).unwrap_or(u8::MAX),
            age: seconds(clock - message.timer.first),
            interval: seconds(message.timer.interval),
        });
        // What waits for an earlier message waits in a queue that all peers share.
        let receiving = |channel| Receiving {
            channel,
            expected: Seq(entry.expected[lane(channel)]),
            held: 0,
            held_bytes: 0,
            sets: Vec::new(),
        };
        let in_flight = entry.retx.iter().map(|message| message.len()).sum();
        Some(Snapshot {
            peer,
            acks: entry.acks.iter().map(|owed| owed.id).collect(),
            unacknowledged: unacknowledged.collect(),
            fresh: entry.first.len(),
            queued_bytes: queued(entry).1,
            receiving: [receiving(Channel::Control), receiving(Channel::Game)],
            round_trip: None,
            variation: Duration::ZERO,
            timeout: Duration::from_secs(1),
            budget: usize::MAX,
            in_flight,
            silent_for: seconds(clock - entry.heard),
        })
    }

    /// The original counts nothing.
    fn counters(&self, _: PeerId) -> Option<Counters> {
        None
    }

    /// The original counts nothing.
    fn rejected(&self) -> Rejected {
        Rejected::default()
    }
}

impl Stock {
    fn entry(&self, peer: PeerId) -> Option<&Peer> {
        self.peers.get(self.peers.find(peer)?)
    }

    /// Returns the entry of whoever waits at this address to be let in.
    fn find_request(&self, from: SocketAddrV4) -> Option<usize> {
        let asks = |peer: &Peer| {
            peer.asks && peer.is_live() && peer.id == PeerId::UNASSIGNED && peer.address == *from.ip()
        };
        self.peers.iter().position(asks)
    }
}

/// Returns how many messages wait for a peer, and their bytes.
fn queued(peer: &Peer) -> (usize, usize) {
    let waiting = || peer.first.iter().chain(&peer.retx);
    (waiting().count(), waiting().map(|message| message.len()).sum())
}

/// Returns a difference of two times of the model's clock.
fn seconds(length: f32) -> Duration {
    Duration::try_from_secs_f32(length).unwrap_or_default()
}
