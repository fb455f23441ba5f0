//! What a session, or a client of one, needs of the engine below it.

use alloc::vec::Vec;
use core::fmt::Debug;
use core::net::SocketAddrV4;
use core::time::Duration;

use crate::endpoint::{AdmitError, BootError, Endpoint, Quality, SendError, Transmit};
use crate::event::Event;
use crate::snapshot::Snapshot;
use crate::stats::{Counters, Rejected};
use crate::time::Time;
use crate::wire::{BootReason, Channel, PeerId, Text};

/// One end of a session, whichever engine runs it: an [`Endpoint`], or a model of another.
///
/// It is driven as an [`Endpoint`] is, whose methods of the same names say more. Whoever is generic over it costs nothing
/// with the real one.
pub trait Engine: Debug {
    /// Takes a datagram that arrived.
    fn handle_datagram(&mut self, from: SocketAddrV4, bytes: &mut [u8], now: Time);

    /// Serves every timer that is due.
    fn handle_timeout(&mut self, now: Time);

    /// Returns when [`handle_timeout`](Self::handle_timeout) is due.
    #[must_use]
    fn next_timeout(&self) -> Option<Time>;

    /// Writes the next datagram to send into `buffer`.
    fn poll_transmit(&mut self, buffer: &mut [u8], now: Time) -> Option<Transmit>;

    /// Takes the next thing that happened; its bytes, if it has any, are put into `payload`.
    fn poll_event(&mut self, payload: &mut Vec<u8>) -> Option<Event>;

    /// Returns the own id.
    #[must_use]
    fn id(&self) -> PeerId;

    /// Queues a payload for a peer.
    ///
    /// # Errors
    /// See [`SendError`]; nothing was queued then.
    fn send(&mut self, to: PeerId, payload: &[u8], quality: Quality, now: Time) -> Result<(), SendError>;

    /// Tells the host, or as a host everyone, the own name.
    ///
    /// # Errors
    /// See [`SendError`]: there may be nobody to tell.
    fn identify(&mut self, name: Text<'_>, now: Time) -> Result<(), SendError>;

    /// To a host: lets a client in that asked for it with [`Event::Request`], and returns its id.
    ///
    /// # Errors
    /// See [`AdmitError`].
    fn admit(&mut self, from: SocketAddrV4, now: Time) -> Result<PeerId, AdmitError>;

    /// To a host: turns a client away that asked with [`Event::Request`].
    ///
    /// # Errors
    /// See [`AdmitError`].
    fn refuse(&mut self, from: SocketAddrV4, reason: BootReason, now: Time) -> Result<(), AdmitError>;

    /// To a host: throws a peer out and tells everyone.
    ///
    /// # Errors
    /// See [`BootError`].
    fn boot(&mut self, peer: PeerId, reason: BootReason, now: Time) -> Result<(), BootError>;

    /// Says goodbye to everyone.
    fn leave(&mut self, now: Time);

    /// Returns whether nobody is left to talk to.
    #[must_use]
    fn is_closed(&self) -> bool;

    /// Returns whether a peer has everything that was queued for it on a channel so far, as its ACKs tell. Nothing waits
    /// for a peer that is gone, so it has.
    #[must_use]
    fn has_everything(&self, peer: PeerId, channel: Channel) -> bool;

    /// Returns how long ago something was heard of a peer.
    #[must_use]
    fn silent_for(&self, peer: PeerId, now: Time) -> Option<Duration>;

    /// Returns the smoothed round trip to a peer, if one was measured.
    #[must_use]
    fn round_trip(&self, peer: PeerId) -> Option<Duration>;

    /// Returns everything that waits for and from a peer, for logs and tools.
    #[must_use]
    fn snapshot(&self, peer: PeerId, now: Time) -> Option<Snapshot>;

    /// Returns what a peer has sent and received so far, if that is counted.
    #[must_use]
    fn counters(&self, peer: PeerId) -> Option<Counters>;

    /// Returns what arrived from nobody in particular and had no effect.
    #[must_use]
    fn rejected(&self) -> Rejected;
}

impl Engine for Endpoint {
    #[inline]
    fn handle_datagram(&mut self, from: SocketAddrV4, bytes: &mut [u8], now: Time) {
        Self::handle_datagram(self, from, bytes, now);
    }

    #[inline]
    fn handle_timeout(&mut self, now: Time) {
        Self::handle_timeout(self, now);
    }

    #[inline]
    fn next_timeout(&self) -> Option<Time> {
        Self::next_timeout(self)
    }

    #[inline]
    fn poll_transmit(&mut self, buffer: &mut [u8], now: Time) -> Option<Transmit> {
        Self::poll_transmit(self, buffer, now)
    }

    #[inline]
    fn poll_event(&mut self, payload: &mut Vec<u8>) -> Option<Event> {
        Self::poll_event(self, payload)
    }

    #[inline]
    fn id(&self) -> PeerId {
        Self::id(self)
    }

    #[inline]
    fn send(&mut self, to: PeerId, payload: &[u8], quality: Quality, now: Time) -> Result<(), SendError> {
        Self::send(self, to, payload, quality, now)
    }

    fn identify(&mut self, name: Text<'_>, now: Time) -> Result<(), SendError> {
        let address = self.own_address();
        Self::identify(self, address, name, now)
    }

    fn admit(&mut self, from: SocketAddrV4, now: Time) -> Result<PeerId, AdmitError> {
        Self::admit(self, from, now)
    }

    fn refuse(&mut self, from: SocketAddrV4, reason: BootReason, now: Time) -> Result<(), AdmitError> {
        Self::refuse(self, from, reason, now)
    }

    fn boot(&mut self, peer: PeerId, reason: BootReason, now: Time) -> Result<(), BootError> {
        Self::boot(self, peer, reason, now)
    }

    fn leave(&mut self, now: Time) {
        let address = self.own_address();
        Self::leave(self, address, now);
    }

    fn is_closed(&self) -> bool {
        Self::is_closed(self)
    }

    fn has_everything(&self, peer: PeerId, channel: Channel) -> bool {
        Self::has_everything(self, peer, channel)
    }

    fn silent_for(&self, peer: PeerId, now: Time) -> Option<Duration> {
        Self::silent_for(self, peer, now)
    }

    fn round_trip(&self, peer: PeerId) -> Option<Duration> {
        Self::round_trip(self, peer)
    }

    fn snapshot(&self, peer: PeerId, now: Time) -> Option<Snapshot> {
        Self::snapshot(self, peer, now)
    }

    fn counters(&self, peer: PeerId) -> Option<Counters> {
        Self::counters(self, peer)
    }

    fn rejected(&self) -> Rejected {
        Self::rejected(self)
    }
}
