//! The interface between the laboratory and an engine.
//!
//! Worlds, scenarios and measurements use [`LabEngine`] only, so that they treat the bcnet endpoint and the stock model
//! alike. This module adds dumps, queue lengths and counters to [`Engine`]. [`World`](crate::World) drives engines.

use std::net::Ipv4Addr;
use std::time::Duration;

use bcnet_transport::wire::{Kind, MessageId, PeerId};
use bcnet_transport::{DeliveryMode, Endpoint, Engine, Time};

use crate::stock::{AckEntry, Backoff, PeerQueueDump, QueueLengths, RetxEntry, SendOptions, StockEngine};

/// Delivery mode and options with which a payload is passed to an engine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SendMode {
    /// A delivery mode that both engines have.
    Standard(DeliveryMode),
    /// Reliable, with the stock flag that allows only one such message per datagram.
    ///
    /// bcnet ignores the flag.
    NotAggregated,
    /// Reliable, with the sender's choice of backoff. bcnet ignores the choice: it measures its timeout.
    WithBackoff(Backoff),
    /// A keepalive, which has no payload. Stock only.
    Keepalive,
}

/// An engine that a [`World`](crate::World) can drive and measure.
pub trait LabEngine: Engine {
    /// Returns whether the engine does all its work in frames, at most one per tick, like stock.
    ///
    /// Such an engine sends a payload in the frame after the call that queued it.
    fn runs_in_frames(&self) -> bool;

    /// Returns the peers that the engine sends to.
    fn peer_ids(&self) -> Vec<PeerId>;

    /// Returns every id with queues: the peers, and removed peers with leftover entries.
    ///
    /// The engine's own id may be among them.
    fn peers_with_queues(&self) -> Vec<PeerId> {
        self.peer_ids()
    }

    /// Queues a payload. Returns `false` if the engine refuses the payload.
    #[must_use]
    fn send_with_mode(&mut self, to: PeerId, payload: &[u8], mode: SendMode, now: Time) -> bool;

    /// Queues a payload for the first peer with the address `to`; returns `false` if the engine refuses it.
    ///
    /// Only the stock engine supports this.
    #[must_use]
    fn send_to_address(&mut self, _to: Ipv4Addr, _payload: &[u8], _mode: SendMode, _now: Time) -> bool {
        false
    }

    /// Makes the socket toward one peer, or all sockets, writable or not. Only the stock engine obeys this.
    fn set_writable(&mut self, _peer: Option<PeerId>, _writable: bool) {}

    /// Returns the queue contents for a peer.
    fn dump(&self, peer: PeerId, now: Time) -> Option<PeerQueueDump>;

    /// Returns the queue lengths for a peer.
    fn queue_lengths(&self, peer: PeerId, now: Time) -> QueueLengths {
        let lengths = |dump: PeerQueueDump| QueueLengths {
            acks: dump.acks.len(),
            retx: dump.retx.len(),
            first: dump.first_count,
        };
        self.dump(peer, now).map(lengths).unwrap_or_default()
    }

    /// Returns the longest lifetime of an ACK in an outbox, if the engine measures it.
    fn longest_ack(&self, _now: Time) -> Option<Duration> {
        None
    }

    /// Resets the longest ACK lifetime to that of ACKs that are still in an outbox.
    fn reset_longest_ack(&mut self) {}

    /// Returns the reason why the modelled program crashed, if it did.
    fn crash(&self) -> Option<String> {
        None
    }

    /// Returns the number of list entries compared so far, if the engine searches lists.
    fn comparisons(&self) -> Option<u64> {
        None
    }
}

impl LabEngine for Endpoint {
    fn runs_in_frames(&self) -> bool {
        false
    }

    fn peer_ids(&self) -> Vec<PeerId> {
        self.peers().collect()
    }

    fn send_with_mode(&mut self, to: PeerId, payload: &[u8], mode: SendMode, now: Time) -> bool {
        let delivery = match mode {
            SendMode::Standard(delivery) => delivery,
            SendMode::NotAggregated | SendMode::WithBackoff(_) => DeliveryMode::Reliable,
            SendMode::Keepalive => return false,
        };
        self.send(to, payload, delivery, now).is_ok()
    }

    fn dump(&self, peer: PeerId, now: Time) -> Option<PeerQueueDump> {
        let snapshot = self.snapshot(peer, now)?;
        let interval = snapshot.rto.as_secs_f32();
        let retx = snapshot.unacknowledged.iter().map(|entry| {
            let MessageId { channel, seq, fragment: part } = entry.id;
            let (retx, age) = (u32::from(entry.sends.saturating_sub(1)), entry.age.as_secs_f32());
            RetxEntry { seq: seq.0, channel, part, retx, interval, age, handling: None }
        });
        let acks = snapshot.pending_acks.iter().map(|id| {
            let MessageId { channel, seq, fragment: part } = *id;
            AckEntry { seq: seq.0, channel, part, retx: 0 }
        });
        Some(PeerQueueDump {
            at: now,
            peer,
            retx: retx.collect(),
            acks: acks.collect(),
            first: Vec::new(),
            first_count: snapshot.unsent,
        })
    }
}

impl LabEngine for StockEngine {
    fn runs_in_frames(&self) -> bool {
        true
    }

    fn peer_ids(&self) -> Vec<PeerId> {
        self.peers()
    }

    fn peers_with_queues(&self) -> Vec<PeerId> {
        Self::peers_with_queues(self)
    }

    fn send_with_mode(&mut self, to: PeerId, payload: &[u8], mode: SendMode, now: Time) -> bool {
        self.send_with_options(to, payload, send_options_for_mode(self, mode), now).is_ok()
    }

    fn send_to_address(&mut self, to: Ipv4Addr, payload: &[u8], mode: SendMode, now: Time) -> bool {
        Self::send_to_address(self, to, payload, send_options_for_mode(self, mode), now).is_ok()
    }

    fn set_writable(&mut self, peer: Option<PeerId>, writable: bool) {
        Self::set_writable(self, peer, writable);
    }

    fn dump(&self, peer: PeerId, now: Time) -> Option<PeerQueueDump> {
        // The world skips frames that would change nothing. So the queues after the last frame are valid at `now`.
        self.dump_at(peer, now)
    }

    fn queue_lengths(&self, peer: PeerId, _: Time) -> QueueLengths {
        Self::queue_lengths(self, peer).unwrap_or_default()
    }

    fn longest_ack(&self, now: Time) -> Option<Duration> {
        Some(Self::longest_ack(self, now))
    }

    fn reset_longest_ack(&mut self) {
        Self::reset_longest_ack(self);
    }

    fn crash(&self) -> Option<String> {
        Self::crash(self).map(|crash| crash.to_string())
    }

    fn comparisons(&self) -> Option<u64> {
        Some(self.stock_counters().comparisons)
    }
}

/// Translates a send mode to options of the stock engine.
fn send_options_for_mode(stock: &StockEngine, mode: SendMode) -> SendOptions {
    let reliable = stock.send_options(DeliveryMode::Reliable);
    match mode {
        SendMode::Standard(delivery) => stock.send_options(delivery),
        SendMode::NotAggregated => SendOptions { aggregate: false, ..reliable },
        SendMode::WithBackoff(backoff) => SendOptions { backoff, ..reliable },
        SendMode::Keepalive => SendOptions { kind: Kind::KEEPALIVE, reliable: false, ..reliable },
    }
}
