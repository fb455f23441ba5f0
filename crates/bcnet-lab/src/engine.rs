//! What a transport engine is to the laboratory, so that worlds, scenarios and measurements drive any of them alike.

use std::fmt::Debug;
use std::net::{Ipv4Addr, SocketAddrV4};

use bcnet_transport::wire::{Kind, MessageId, PeerId, Text};
use bcnet_transport::{Endpoint, Event, Quality, Time, Transmit};

use crate::stock::{AckEntry, Dump, Options, Retx, Stock};

/// How a payload is given to an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// As both engines can.
    Plain(Quality),
    /// Reliably, with the original's flag that keeps two such messages out of one datagram. bcnet has no such flag.
    Apart,
    /// As a keepalive, which has no payload. Only the original can be told to.
    Keepalive,
}

/// One end of a session, driven by a [`World`](crate::World).
pub trait Engine: Debug {
    /// A datagram is taken out of the socket.
    fn handle_datagram(&mut self, from: SocketAddrV4, bytes: &mut [u8], now: Time);

    /// Its turn has come: it serves its timers, or runs one frame.
    fn service(&mut self, now: Time);

    /// The next thing that happened; its bytes are put into `payload`.
    fn poll_event(&mut self, payload: &mut Vec<u8>) -> Option<Event>;

    /// Writes the next datagram to send.
    fn poll_transmit(&mut self, buffer: &mut [u8], now: Time) -> Option<Transmit>;

    /// When it wants its turn, for its own sake.
    fn next_due(&self) -> Option<Time>;

    /// Whether it runs in frames: at most one per tick, and what is queued after a frame leaves with the next.
    fn has_frames(&self) -> bool;

    /// The own id.
    fn id(&self) -> PeerId;

    /// The peers that it would send to.
    fn peer_ids(&self) -> Vec<PeerId>;

    /// To a host: lets a client in that asked with [`Event::Request`].
    fn admit(&mut self, from: SocketAddrV4, now: Time);

    /// Queues a payload. `false` if it is not taken.
    #[must_use]
    fn send(&mut self, to: PeerId, payload: &[u8], manner: Manner, now: Time) -> bool;

    /// Tells the own name.
    fn identify(&mut self, own: Ipv4Addr, name: Text<'_>, now: Time);

    /// Says goodbye.
    fn leave(&mut self, own: Ipv4Addr, now: Time);

    /// What waits for a peer.
    fn dump(&self, peer: PeerId, now: Time) -> Option<Dump>;

    /// How many ACKs are in the outbox for a peer, and how many messages wait for its ACK.
    fn lengths(&self, peer: PeerId, now: Time) -> [usize; 2] {
        self.dump(peer, now).map_or([0, 0], |dump| [dump.acks.len(), dump.retx.len()])
    }

    /// What has ended its program, if something has.
    fn crash(&self) -> Option<String> {
        None
    }

    /// How many entries of its lists it has compared so far, if it searches lists.
    fn comparisons(&self) -> Option<u64>;
}

impl Engine for Endpoint {
    fn handle_datagram(&mut self, from: SocketAddrV4, bytes: &mut [u8], now: Time) {
        Self::handle_datagram(self, from, bytes, now);
    }

    fn service(&mut self, now: Time) {
        self.handle_timeout(now);
    }

    fn poll_event(&mut self, payload: &mut Vec<u8>) -> Option<Event> {
        Self::poll_event(self, payload)
    }

    fn poll_transmit(&mut self, buffer: &mut [u8], now: Time) -> Option<Transmit> {
        Self::poll_transmit(self, buffer, now)
    }

    fn next_due(&self) -> Option<Time> {
        self.next_timeout()
    }

    fn has_frames(&self) -> bool {
        false
    }

    fn id(&self) -> PeerId {
        Self::id(self)
    }

    fn peer_ids(&self) -> Vec<PeerId> {
        self.peers().collect()
    }

    fn admit(&mut self, from: SocketAddrV4, now: Time) {
        // It may have given up.
        let _ = Self::admit(self, from, now);
    }

    fn send(&mut self, to: PeerId, payload: &[u8], manner: Manner, now: Time) -> bool {
        let quality = match manner {
            Manner::Plain(quality) => quality,
            Manner::Apart => Quality::Reliable,
            Manner::Keepalive => return false,
        };
        Self::send(self, to, payload, quality, now).is_ok()
    }

    fn identify(&mut self, own: Ipv4Addr, name: Text<'_>, now: Time) {
        // Scenarios may say so before there is anybody to tell, as with the original.
        let _ = Self::identify(self, own, name, now);
    }

    fn leave(&mut self, own: Ipv4Addr, now: Time) {
        Self::leave(self, own, now);
    }

    fn dump(&self, peer: PeerId, now: Time) -> Option<Dump> {
        let snapshot = self.snapshot(peer, now)?;
        let interval = snapshot.timeout.as_secs_f32();
        let retx = snapshot.unacknowledged.iter().map(|entry| {
            let MessageId { channel, seq, part } = entry.id;
            Retx { seq: seq.0, channel, part, retx: u32::from(entry.sends.saturating_sub(1)), interval }
        });
        let acks = snapshot.acks.iter().map(|id| {
            let MessageId { channel, seq, part } = *id;
            AckEntry { seq: seq.0, channel, part, retx: 0 }
        });
        Some(Dump { at: now, peer, retx: retx.collect(), acks: acks.collect(), first: snapshot.fresh })
    }

    fn comparisons(&self) -> Option<u64> {
        None
    }
}

impl Engine for Stock {
    fn handle_datagram(&mut self, from: SocketAddrV4, bytes: &mut [u8], now: Time) {
        Self::handle_datagram(self, from, bytes, now);
    }

    fn service(&mut self, now: Time) {
        Self::service(self, now);
    }

    fn poll_event(&mut self, payload: &mut Vec<u8>) -> Option<Event> {
        Self::poll_event(self, payload)
    }

    fn poll_transmit(&mut self, buffer: &mut [u8], _: Time) -> Option<Transmit> {
        Self::poll_transmit(self, buffer)
    }

    fn next_due(&self) -> Option<Time> {
        Self::next_due(self)
    }

    fn has_frames(&self) -> bool {
        true
    }

    fn id(&self) -> PeerId {
        Self::id(self)
    }

    fn peer_ids(&self) -> Vec<PeerId> {
        self.peers()
    }

    fn admit(&mut self, _: SocketAddrV4, _: Time) {}

    fn send(&mut self, to: PeerId, payload: &[u8], manner: Manner, now: Time) -> bool {
        let reliable = Options::from(Quality::Reliable);
        let options = match manner {
            Manner::Plain(quality) => quality.into(),
            Manner::Apart => Options { aggregate: false, ..reliable },
            Manner::Keepalive => Options { kind: Kind::KEEPALIVE, reliable: false, ..reliable },
        };
        self.send_with(to, payload, options, now).is_ok()
    }

    fn identify(&mut self, _: Ipv4Addr, name: Text<'_>, now: Time) {
        Self::identify(self, name.as_bytes(), now);
    }

    fn leave(&mut self, _: Ipv4Addr, now: Time) {
        Self::leave(self, now);
    }

    fn dump(&self, peer: PeerId, now: Time) -> Option<Dump> {
        // Frames that would change nothing are left out: the queues are as the last one left them.
        Self::dump(self, peer).map(|dump| Dump { at: now, ..dump })
    }

    fn lengths(&self, peer: PeerId, _: Time) -> [usize; 2] {
        Self::lengths(self, peer).map_or([0, 0], |lengths| [lengths.acks, lengths.retx])
    }

    fn crash(&self) -> Option<String> {
        Self::crash(self).map(|crash| crash.to_string())
    }

    fn comparisons(&self) -> Option<u64> {
        Some(self.tally().comparisons)
    }
}

/// An address at which nobody is: it takes everything and says nothing.
#[derive(Debug)]
pub(crate) struct Nobody;

impl Engine for Nobody {
    fn handle_datagram(&mut self, _: SocketAddrV4, _: &mut [u8], _: Time) {}

    fn service(&mut self, _: Time) {}

    fn poll_event(&mut self, _: &mut Vec<u8>) -> Option<Event> {
        None
    }

    fn poll_transmit(&mut self, _: &mut [u8], _: Time) -> Option<Transmit> {
        None
    }

    fn next_due(&self) -> Option<Time> {
        None
    }

    fn has_frames(&self) -> bool {
        false
    }

    fn id(&self) -> PeerId {
        PeerId::UNASSIGNED
    }

    fn peer_ids(&self) -> Vec<PeerId> {
        Vec::new()
    }

    fn admit(&mut self, _: SocketAddrV4, _: Time) {}

    fn send(&mut self, _: PeerId, _: &[u8], _: Manner, _: Time) -> bool {
        false
    }

    fn identify(&mut self, _: Ipv4Addr, _: Text<'_>, _: Time) {}

    fn leave(&mut self, _: Ipv4Addr, _: Time) {}

    fn dump(&self, _: PeerId, _: Time) -> Option<Dump> {
        None
    }

    fn comparisons(&self) -> Option<u64> {
        None
    }
}
