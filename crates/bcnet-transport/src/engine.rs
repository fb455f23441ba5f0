//! The interface of a transport engine, which a session or a client uses.
//!
//! [`Endpoint`](crate::Endpoint) implements it. The laboratory's model of the stock engine implements it,
//! too.

use alloc::vec::Vec;
use core::fmt::Debug;
use core::net::SocketAddrV4;
use core::ops::Range;
use core::time::Duration;

use crate::config::{IdPolicy, ProofPolicy};
use crate::endpoint::{AdmitError, BootError, Capacity, DeliveryMode, InFlightLimit, SendError, Transmit};
use crate::event::Event;
use crate::snapshot::Snapshot;
use crate::stats::{PeerCounters, RejectCounters};
use crate::time::Time;
use crate::wire::{BootReason, Channel, PeerId, Seq, Text};

/// One end of any number of connections over one UDP socket, without the socket.
///
/// The caller drives it in a loop:
/// 1. Pass datagrams and the time with [`handle_datagram`](Self::handle_datagram) and
///    [`handle_timeout`](Self::handle_timeout).
/// 2. Call [`poll_event`](Self::poll_event) and [`poll_transmit`](Self::poll_transmit) until both return
///    `None`.
/// 3. Sleep until [`next_timeout`](Self::next_timeout) or until the next datagram arrives.
///
/// The engine reads no clock. All methods use the time that the caller passes.
pub trait Engine: Debug {
    /// Handles a received datagram. Decrypts it in place.
    fn handle_datagram(&mut self, from: SocketAddrV4, bytes: &mut [u8], now: Time);

    /// Returns whether a datagram to this host can have any effect, judged by its sender.
    ///
    /// This method reads only the source address and the first byte, which is never encrypted (T-40). A
    /// datagram without effect is counted as rejected. The caller need not decrypt and handle it.
    #[must_use]
    fn prefilter(&mut self, from: SocketAddrV4, bytes: &[u8]) -> bool {
        let _ = (from, bytes);
        true
    }

    /// Handles all timers that are due. May be called at any time.
    fn handle_timeout(&mut self, now: Time);

    /// Returns the time at which [`handle_timeout`](Self::handle_timeout) is due, or an earlier one.
    ///
    /// After a change, the result is in the past until [`poll_transmit`](Self::poll_transmit) has returned
    /// the last datagram.
    #[must_use]
    fn next_timeout(&self) -> Option<Time>;

    /// Returns the time at which a datagram or a timer is due that must not be delayed.
    ///
    /// The result is in the past if that time is now. Unreliable messages may be delayed, and ACKs for a
    /// while (T-60): they share a datagram with later messages.
    #[must_use]
    fn next_urgent_timeout(&self) -> Option<Time>;

    /// Writes the next datagram to send into `buffer`.
    ///
    /// # Panics
    /// If the buffer is shorter than the largest possible datagram. For an [`Endpoint`](crate::Endpoint) that
    /// is its [`datagram_limit`](crate::Config::datagram_limit).
    fn poll_transmit(&mut self, buffer: &mut [u8], now: Time) -> Option<Transmit>;

    /// Returns the next event and copies its bytes, if it has any, into `payload`.
    fn poll_event(&mut self, payload: &mut Vec<u8>) -> Option<Event>;

    /// Returns the own id.
    ///
    /// A host has [`PeerId::HOST`]. A client has [`PeerId::UNASSIGNED`] before it is admitted.
    #[must_use]
    fn id(&self) -> PeerId;

    /// Queues a payload for a peer. The payload may be empty. The only peer of a client is the host.
    ///
    /// An id names its current owner. Poll all events first: a waiting event may report that the peer has
    /// left, and that another peer has joined under the same id.
    ///
    /// # Errors
    /// See [`SendError`]. The payload was not queued then.
    fn send(&mut self, to: PeerId, payload: &[u8], quality: DeliveryMode, now: Time)
    -> Result<(), SendError>;

    /// Queues an unreliable payload that supersedes earlier ones.
    ///
    /// While the congestion window blocks the send queue of the peer, the engine drops queued unreliable
    /// payloads for which `is_superseded` returns `true`. It checks the newest payload first. An engine may
    /// also retain them.
    ///
    /// # Errors
    /// See [`SendError`]. The payload was not queued then.
    fn send_latest(
        &mut self,
        to: PeerId,
        payload: &[u8],
        is_superseded: &mut dyn FnMut(&[u8]) -> bool,
        now: Time,
    ) -> Result<(), SendError> {
        let _ = is_superseded;
        self.send(to, payload, DeliveryMode::Unreliable, now)
    }

    /// Queues a reliable payload if the connection has [`Capacity`] for it.
    ///
    /// With the payload, at most `limit` may be in flight, and a part of the congestion window (T-63) must
    /// remain for urgent messages. Without capacity the payload is not queued. Capacity may become available
    /// with each received ACK and each timer. An engine without such limits always has capacity.
    ///
    /// # Errors
    /// See [`SendError`]. The payload was not queued then.
    fn send_if_capacity(
        &mut self,
        to: PeerId,
        payload: &[u8],
        limit: InFlightLimit,
        now: Time,
    ) -> Result<Capacity, SendError> {
        let _ = limit;
        self.send(to, payload, DeliveryMode::Reliable, now).map(|()| Capacity::Available)
    }

    /// Sends the own name to the host or, as a host, to every client.
    ///
    /// The host relays the name of a client to all clients; see [`Event::Identity`].
    /// `name` is UTF-16LE; see [`Text::encode`]. It is truncated after 100 characters. A host that never
    /// calls this method has no name, as in stock. A host with a name also sends it to clients that join
    /// later.
    ///
    /// # Errors
    /// See [`SendError`]: a client must have joined, and no name can be sent after [`leave`](Self::leave).
    fn announce_name(&mut self, name: Text<'_>, now: Time) -> Result<(), SendError>;

    /// Admits a client of an [`Event::Request`] at once, and returns its id.
    ///
    /// Use this method only for addresses that cannot be spoofed: an admitted address gets all messages of
    /// the host. [`challenge`](Self::challenge) is safe for any address.
    ///
    /// # Errors
    /// See [`AdmitError`].
    fn admit(&mut self, from: SocketAddrV4, now: Time) -> Result<PeerId, AdmitError>;

    /// Offers an id to a client of an [`Event::Request`], and returns the id.
    ///
    /// The client joins when its address is verified (T-75); [`Event::Joined`] reports that. An engine
    /// without address verification admits the client at once.
    ///
    /// # Errors
    /// See [`AdmitError`].
    fn challenge(&mut self, from: SocketAddrV4, now: Time) -> Result<PeerId, AdmitError> {
        self.admit(from, now)
    }

    /// Returns whether a peer may have left: its disconnect is not verified yet ([T-57]).
    ///
    /// [T-57]: bcnet_wire::protocol#t-57
    fn has_departing_peers(&self) -> bool {
        false
    }

    /// Leaves a request unanswered, so that the client retransmits it.
    fn ignore(&mut self, from: SocketAddrV4) {
        let _ = from;
    }

    /// Refuses a client of an [`Event::Request`].
    ///
    /// # Errors
    /// See [`AdmitError`].
    fn refuse(&mut self, from: SocketAddrV4, reason: BootReason, now: Time) -> Result<(), AdmitError>;

    /// Boots a peer of this host, and informs the clients.
    ///
    /// # Errors
    /// See [`BootError`].
    fn boot(&mut self, peer: PeerId, reason: BootReason, now: Time) -> Result<(), BootError>;

    /// Starts a graceful shutdown of all connections. Keep polling until [`is_closed`](Self::is_closed).
    ///
    /// The engine first delivers the queued messages, for half of [`linger`](crate::Config::linger) at most.
    /// Then it sends a disconnect notice and retransmits it until it is acknowledged or `linger` has passed.
    fn leave(&mut self, now: Time);

    /// Returns whether no peer is left.
    ///
    /// A host keeps a client that has left for [`linger`](crate::Config::linger), and acknowledges repeated
    /// disconnects. A client keeps its host for up to 1.5 seconds.
    #[must_use]
    fn is_closed(&self) -> bool;

    /// Sets whether a host removes the clients' addresses from relayed identities and disconnects (S-03).
    fn mask_addresses(&mut self, mask: bool);

    /// Sets how a host verifies new clients and chooses their ids, and whether it admits only some of them.
    ///
    /// See T-50, T-76 and [`selective_admission`](crate::Config::selective_admission).
    fn set_admission(&mut self, prove: ProofPolicy, ids: IdPolicy, selective: bool);

    /// Withdraws all offers to clients that were [challenged](Self::challenge) and have not joined.
    ///
    /// Call it when the caller would now decide otherwise, for example after a change of the password.
    fn withdraw_offers(&mut self) {}

    /// Returns the source address of a peer's datagrams.
    #[must_use]
    fn address(&self, peer: PeerId) -> Option<SocketAddrV4>;

    /// Returns the sequence numbers from the oldest unacknowledged reliable message to the next new one.
    ///
    /// The end is not included. The range is empty if the peer has acknowledged everything. The result is
    /// `None` if the peer is gone.
    #[must_use]
    fn unacked_range(&self, peer: PeerId, channel: Channel) -> Option<Range<Seq>>;

    /// Returns the smoothed round-trip time of a peer, if it was measured.
    #[must_use]
    fn rtt(&self, peer: PeerId) -> Option<Duration>;

    /// Returns the time since the last datagram from a peer.
    #[must_use]
    fn idle_for(&self, peer: PeerId, now: Time) -> Option<Duration> {
        self.snapshot(peer, now).map(|snapshot| snapshot.idle_for)
    }

    /// Returns a snapshot of all queues of a peer, for logs and tools.
    #[must_use]
    fn snapshot(&self, peer: PeerId, now: Time) -> Option<Snapshot>;

    /// Returns the counters of a peer, if the engine has them.
    #[must_use]
    fn counters(&self, peer: PeerId) -> Option<PeerCounters>;

    /// Returns the counters of ignored datagrams that belong to no peer.
    #[must_use]
    fn rejected(&self) -> RejectCounters;
}
