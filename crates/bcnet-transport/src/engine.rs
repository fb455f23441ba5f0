//! What a session, or a client of one, needs of the engine below it.

use alloc::vec::Vec;
use core::fmt::Debug;
use core::net::SocketAddrV4;
use core::ops::Range;
use core::time::Duration;

use crate::config::{Ids, Prove};
use crate::endpoint::{AdmitError, Allowance, BootError, Quality, Room, SendError, Transmit};
use crate::event::Event;
use crate::snapshot::Snapshot;
use crate::stats::{Counters, Rejected};
use crate::time::Time;
use crate::wire::{BootReason, Channel, PeerId, Seq, Text};

/// One end of any number of conversations over one UDP socket, without the socket: an [`Endpoint`](crate::Endpoint), or a
/// model of another engine.
///
/// Feed it with [`handle_datagram`](Self::handle_datagram) and [`handle_timeout`](Self::handle_timeout), then empty
/// [`poll_transmit`](Self::poll_transmit) and [`poll_event`](Self::poll_event), then sleep until
/// [`next_timeout`](Self::next_timeout) or the next datagram. Time is whatever the caller says it is.
pub trait Engine: Debug {
    /// Takes a datagram that arrived. It is deciphered in place.
    fn handle_datagram(&mut self, from: SocketAddrV4, bytes: &mut [u8], now: Time);

    /// To a host: returns whether a datagram can have any effect, as its sender and its first byte tell, which is never
    /// ciphered (T-40). One that cannot is counted as rejected, and need not be deciphered and handled.
    #[must_use]
    fn screen(&mut self, from: SocketAddrV4, bytes: &[u8]) -> bool {
        let _ = (from, bytes);
        true
    }

    /// Serves every timer that is due, because a deadline has passed, or any time has.
    fn handle_timeout(&mut self, now: Time);

    /// Returns when [`handle_timeout`](Self::handle_timeout) is due, or sooner. After a change this is at once, until
    /// [`poll_transmit`](Self::poll_transmit) has given the last datagram.
    #[must_use]
    fn next_timeout(&self) -> Option<Time>;

    /// Returns when something is to be sent, or a timer to be served, that must not wait for company; a time that has
    /// passed if it is so now. Unreliable messages may wait, and so may ACKs for a while (T-60): they share a datagram with
    /// what comes next.
    #[must_use]
    fn next_urgent(&self) -> Option<Time>;

    /// Writes the next datagram to send into `buffer`.
    ///
    /// # Panics
    /// If the buffer is shorter than the largest datagram there can be, which for an [`Endpoint`](crate::Endpoint) is its
    /// [`datagram_limit`](crate::Config::datagram_limit).
    fn poll_transmit(&mut self, buffer: &mut [u8], now: Time) -> Option<Transmit>;

    /// Takes the next thing that happened; its bytes, if it has any, are put into `payload`.
    fn poll_event(&mut self, payload: &mut Vec<u8>) -> Option<Event>;

    /// Returns the own id: [`PeerId::HOST`] for a host, [`PeerId::UNASSIGNED`] for a client that was not let in yet.
    #[must_use]
    fn id(&self) -> PeerId;

    /// Queues a payload for a peer. An empty payload is legal.
    ///
    /// An id means whoever has it now. Poll all events first: one that still waits may say that its owner has left, or
    /// even, after many others came, that another peer has joined under it.
    ///
    /// # Errors
    /// See [`SendError`]; nothing was queued then.
    fn send(&mut self, to: PeerId, payload: &[u8], quality: Quality, now: Time) -> Result<(), SendError>;

    /// Queues a payload as [`Quality::Unreliable`], which makes earlier ones useless. While the line to the peer is full,
    /// those that still wait are dropped where `is_outdated` says so; it is asked about the newest first. An engine may as
    /// well keep them.
    ///
    /// # Errors
    /// See [`SendError`]; nothing was queued then.
    fn send_latest(
        &mut self,
        to: PeerId,
        payload: &[u8],
        is_outdated: &mut dyn FnMut(&[u8]) -> bool,
        now: Time,
    ) -> Result<(), SendError> {
        let _ = is_outdated;
        self.send(to, payload, Quality::Unreliable, now)
    }

    /// Queues a reliable payload if the line to the peer has [`Room`] for it: if with it no more than `max` is under way,
    /// and that leaves some of the budget (T-63) to what cannot wait. Without room nothing is queued; when the
    /// next ACK has arrived, or a timer was served, there may be some. An engine that knows no such thing has room.
    ///
    /// # Errors
    /// See [`SendError`]; nothing was queued then.
    fn send_if_room(
        &mut self,
        to: PeerId,
        payload: &[u8],
        max: Allowance,
        now: Time,
    ) -> Result<Room, SendError> {
        let _ = max;
        self.send(to, payload, Quality::Reliable, now).map(|()| Room::Some)
    }

    /// Tells the host, or as a host everyone, the own name. `name` is UTF-16LE; see [`Text::encode`]. What is longer
    /// than 100 characters is cut. A host that never calls this has no name, as in stock; one that does tells it to
    /// those who join later, too.
    ///
    /// # Errors
    /// See [`SendError`]: a client has nobody to tell before it has joined, and nobody has after [`leave`](Self::leave).
    fn identify(&mut self, name: Text<'_>, now: Time) -> Result<(), SendError>;

    /// To a host: lets a client in at once that asked for it with [`Event::Request`], and returns the id that it is told.
    /// The address of a request may be forged, and would then be sent whatever this host tells its clients:
    /// [`challenge`](Self::challenge) is safe for any.
    ///
    /// # Errors
    /// See [`AdmitError`].
    fn admit(&mut self, from: SocketAddrV4, now: Time) -> Result<PeerId, AdmitError>;

    /// To a host: lets a client in that asked for it with [`Event::Request`] as soon as it has proved that it hears what
    /// is sent to its address (T-75), and returns the id that it is told. [`Event::Joined`] tells that it has. An engine
    /// that knows no proof lets it in at once.
    ///
    /// # Errors
    /// See [`AdmitError`].
    fn challenge(&mut self, from: SocketAddrV4, now: Time) -> Result<PeerId, AdmitError> {
        self.admit(from, now)
    }

    /// To a host: leaves a request unanswered, so that it comes again.
    fn ignore(&mut self, from: SocketAddrV4) {
        let _ = from;
    }

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

    /// Says goodbye to everyone. Keep polling until [`is_closed`](Self::is_closed): first what was queued before is
    /// delivered, then the goodbye is repeated until it is acknowledged, for
    /// [`linger`](crate::Config::linger) at most.
    fn leave(&mut self, now: Time);

    /// Returns whether nobody is left to talk to.
    #[must_use]
    fn is_closed(&self) -> bool;

    /// To a host: from now on, names and goodbyes are passed on without the addresses in them, or with them.
    fn mask_addresses(&mut self, mask: bool);

    /// To a host: what newcomers must prove from now on, which ids they get, and whether only some are let in (T-50, T-76;
    /// [`selective`](crate::Config::selective)).
    fn set_admission(&mut self, prove: Prove, ids: Ids, selective: bool);

    /// To a host: who was [challenged](Self::challenge) and has not joined yet does not join by that any more, because the
    /// caller would now decide otherwise.
    fn withdraw_offers(&mut self) {}

    /// Returns where a peer's datagrams come from.
    #[must_use]
    fn address(&self, peer: PeerId) -> Option<SocketAddrV4>;

    /// Returns the numbers of the reliable messages to a peer on a channel from the oldest that it has not acknowledged up
    /// to, not including, that of the next to be queued. The range is empty if it has everything; `None` if it is gone.
    #[must_use]
    fn awaited(&self, peer: PeerId, channel: Channel) -> Option<Range<Seq>>;

    /// Returns the smoothed round trip to a peer, if one was measured.
    #[must_use]
    fn round_trip(&self, peer: PeerId) -> Option<Duration>;

    /// Returns how long nothing was heard of a peer.
    #[must_use]
    fn silent_for(&self, peer: PeerId, now: Time) -> Option<Duration> {
        self.snapshot(peer, now).map(|snapshot| snapshot.silent_for)
    }

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
