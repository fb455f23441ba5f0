//! What the laboratory asks of an engine besides driving it, so that worlds, scenarios and measurements treat any alike.

use bcnet_transport::wire::{Kind, MessageId, PeerId};
use bcnet_transport::{Endpoint, Engine, Quality, Time};

use crate::stock::{AckEntry, Dump, Options, Retx, Stock};

/// How a payload is given to an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendMode {
    /// As both engines can.
    Plain(Quality),
    /// Reliably, with the original's flag that keeps two such messages out of one datagram. bcnet has no such flag.
    Apart,
    /// As a keepalive, which has no payload. Only the original can be told to.
    Keepalive,
}

/// An engine that a [`World`](crate::World) can drive and measure.
pub trait LabEngine: Engine {
    /// Returns whether it runs in frames: at most one per tick, and what is queued after a frame leaves with the next.
    fn has_frames(&self) -> bool;

    /// Returns the peers that it would send to.
    fn peer_ids(&self) -> Vec<PeerId>;

    /// Queues a payload. Returns `false` if it is not taken.
    #[must_use]
    fn send_as(&mut self, to: PeerId, payload: &[u8], mode: SendMode, now: Time) -> bool;

    /// Returns what waits for a peer.
    fn dump(&self, peer: PeerId, now: Time) -> Option<Dump>;

    /// Returns how many ACKs are in the outbox for a peer, and how many messages wait for its ACK.
    fn lengths(&self, peer: PeerId, now: Time) -> [usize; 2] {
        self.dump(peer, now).map_or([0, 0], |dump| [dump.acks.len(), dump.retx.len()])
    }

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
            SendMode::Apart => Quality::Reliable,
            SendMode::Keepalive => return false,
        };
        self.send(to, payload, quality, now).is_ok()
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
}

impl LabEngine for Stock {
    fn has_frames(&self) -> bool {
        true
    }

    fn peer_ids(&self) -> Vec<PeerId> {
        self.peers()
    }

    fn send_as(&mut self, to: PeerId, payload: &[u8], mode: SendMode, now: Time) -> bool {
        let reliable = Options::from(Quality::Reliable);
        let options = match mode {
            SendMode::Plain(quality) => quality.into(),
            SendMode::Apart => Options { aggregate: false, ..reliable },
            SendMode::Keepalive => Options { kind: Kind::KEEPALIVE, reliable: false, ..reliable },
        };
        self.send_with(to, payload, options, now).is_ok()
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
