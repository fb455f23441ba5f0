//! What the laboratory asks of an engine besides driving it, so that worlds, scenarios and measurements treat any alike.

use std::net::Ipv4Addr;
use std::time::Duration;

use bcnet_transport::wire::{Kind, MessageId, PeerId};
use bcnet_transport::{Endpoint, Engine, Quality, Time};

use crate::stock::{AckEntry, Backoff, Dump, Lengths, Options, Retx, Stock};

/// How a payload is given to an engine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SendMode {
    /// As both engines can.
    Plain(Quality),
    /// Reliably, with the original's flag that keeps two such messages out of one datagram. bcnet has no such flag.
    Apart,
    /// Reliably, repeated with waits of the sender's choice. bcnet measures when to repeat.
    Paced(Backoff),
    /// As a keepalive, which has no payload. Only the original can be told to.
    Keepalive,
}

/// An engine that a [`World`](crate::World) can drive and measure.
pub trait LabEngine: Engine {
    /// Returns whether it runs in frames: at most one per tick, and what is queued after a frame leaves with the next.
    fn has_frames(&self) -> bool;

    /// Returns the peers that it would send to.
    fn peer_ids(&self) -> Vec<PeerId>;

    /// Returns for whom it has queues: its peers, and who else has something in them, itself included.
    fn entries(&self) -> Vec<PeerId> {
        self.peer_ids()
    }

    /// Queues a payload. Returns `false` if it is not taken.
    #[must_use]
    fn send_as(&mut self, to: PeerId, payload: &[u8], mode: SendMode, now: Time) -> bool;

    /// Queues a payload for the first peer with an address, which only the original can. Returns `false` if it is not taken.
    #[must_use]
    fn send_to_address(&mut self, _to: Ipv4Addr, _payload: &[u8], _mode: SendMode, _now: Time) -> bool {
        false
    }

    /// Lets the socket toward a peer, or all sockets, send or not. Only the original asks its sockets.
    fn set_writable(&mut self, _peer: Option<PeerId>, _writable: bool) {}

    /// Returns what waits for a peer.
    fn dump(&self, peer: PeerId, now: Time) -> Option<Dump>;

    /// Returns how much waits for a peer.
    fn lengths(&self, peer: PeerId, now: Time) -> Lengths {
        let lengths =
            |dump: Dump| Lengths { acks: dump.acks.len(), retx: dump.retx.len(), first: dump.first_count };
        self.dump(peer, now).map(lengths).unwrap_or_default()
    }

    /// Returns how long the ACK was in an outbox that was there longest, if it knows.
    fn longest_ack(&self, _now: Time) -> Option<Duration> {
        None
    }

    /// Forgets how long ACKs were in an outbox that are not there any more.
    fn forget_longest_ack(&mut self) {}

    /// Returns what has ended its program, if something has.
    fn crash(&self) -> Option<String> {
        None
    }

    /// Returns how many entries of its lists it has compared so far, if it searches lists.
    fn comparisons(&self) -> Option<u64> {
        None
    }
}

impl LabEngine for Endpoint {
    fn has_frames(&self) -> bool {
        false
    }

    fn peer_ids(&self) -> Vec<PeerId> {
        self.peers().collect()
    }

    fn send_as(&mut self, to: PeerId, payload: &[u8], mode: SendMode, now: Time) -> bool {
        let quality = match mode {
            SendMode::Plain(quality) => quality,
            SendMode::Apart | SendMode::Paced(_) => Quality::Reliable,
            SendMode::Keepalive => return false,
        };
        self.send(to, payload, quality, now).is_ok()
    }

    fn dump(&self, peer: PeerId, now: Time) -> Option<Dump> {
        let snapshot = self.snapshot(peer, now)?;
        let interval = snapshot.timeout.as_secs_f32();
        let retx = snapshot.unacknowledged.iter().map(|entry| {
            let MessageId { channel, seq, part } = entry.id;
            let (retx, age) = (u32::from(entry.sends.saturating_sub(1)), entry.age.as_secs_f32());
            Retx { seq: seq.0, channel, part, retx, interval, age, handling: None }
        });
        let acks = snapshot.acks.iter().map(|id| {
            let MessageId { channel, seq, part } = *id;
            AckEntry { seq: seq.0, channel, part, retx: 0 }
        });
        Some(Dump {
            at: now,
            peer,
            retx: retx.collect(),
            acks: acks.collect(),
            first: Vec::new(),
            first_count: snapshot.fresh,
        })
    }
}

impl LabEngine for Stock {
    fn has_frames(&self) -> bool {
        true
    }

    fn peer_ids(&self) -> Vec<PeerId> {
        self.peers()
    }

    fn entries(&self) -> Vec<PeerId> {
        Self::entries(self)
    }

    fn send_as(&mut self, to: PeerId, payload: &[u8], mode: SendMode, now: Time) -> bool {
        self.send_with(to, payload, options(self, mode), now).is_ok()
    }

    fn send_to_address(&mut self, to: Ipv4Addr, payload: &[u8], mode: SendMode, now: Time) -> bool {
        Self::send_to_address(self, to, payload, options(self, mode), now).is_ok()
    }

    fn set_writable(&mut self, peer: Option<PeerId>, writable: bool) {
        Self::set_writable(self, peer, writable);
    }

    fn dump(&self, peer: PeerId, now: Time) -> Option<Dump> {
        // Frames that would change nothing are left out: the queues are as the last one left them.
        self.dump_at(peer, now)
    }

    fn lengths(&self, peer: PeerId, _: Time) -> Lengths {
        Self::lengths(self, peer).unwrap_or_default()
    }

    fn longest_ack(&self, now: Time) -> Option<Duration> {
        Some(Self::longest_ack(self, now))
    }

    fn forget_longest_ack(&mut self) {
        Self::forget_longest_ack(self);
    }

    fn crash(&self) -> Option<String> {
        Self::crash(self).map(|crash| crash.to_string())
    }

    fn comparisons(&self) -> Option<u64> {
        Some(self.tally().comparisons)
    }
}

/// Returns how the original is told to send so.
fn options(stock: &Stock, mode: SendMode) -> Options {
    let reliable = stock.options(Quality::Reliable);
    match mode {
        SendMode::Plain(quality) => stock.options(quality),
        SendMode::Apart => Options { aggregate: false, ..reliable },
        SendMode::Paced(backoff) => Options { backoff, ..reliable },
        SendMode::Keepalive => Options { kind: Kind::KEEPALIVE, reliable: false, ..reliable },
    }
}
