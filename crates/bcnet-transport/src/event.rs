//! Events that an endpoint reports to its caller, and the queue that stores them until they are polled.

use alloc::vec::Vec;
use core::fmt;
use core::net::{Ipv4Addr, SocketAddrV4};

use crate::queue::RingQueue;
use crate::ring::ByteRing;
use crate::stats::RejectCause;
use crate::wire::{BootReason, PeerId};

/// An event that the caller polls with [`poll_event`](crate::Engine::poll_event).
///
/// Bytes that belong to an event are copied into the buffer that the caller passes to `poll_event`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A client asks this host for admission. The bytes are the password, UTF-16LE.
    ///
    /// Answer with [`challenge`](crate::Engine::challenge), [`admit`](crate::Engine::admit) or
    /// [`refuse`](crate::Engine::refuse).
    Request {
        /// The source address of the request.
        from: SocketAddrV4,
        /// The address that the client reports for itself.
        address: Ipv4Addr,
    },
    /// A client has joined.
    ///
    /// A client gets this event for itself only, with its own new id. It learns of other players by
    /// [`Identity`](Self::Identity).
    Joined {
        /// The id of the client.
        peer: PeerId,
    },
    /// A player's name, including the own one. The bytes are the name, UTF-16LE.
    ///
    /// A host relays each name to all clients, and sends all names to a new client (T-52). A player without a
    /// name is not announced. Names and payloads are on different channels, so a payload may arrive before the
    /// name of its sender. [`Text::new`](crate::wire::Text::new) reads the bytes.
    Identity {
        /// The id of the player.
        peer: PeerId,
        /// The address that the player's client reports for itself.
        address: Ipv4Addr,
        /// On a host: the name was changed before it is relayed (T-71).
        cleaned: bool,
    },
    /// A payload arrived. The bytes are the payload.
    Received {
        /// The sender.
        peer: PeerId,
        /// Tells whether the payload was sent reliably, so that it arrives once and in order.
        ///
        /// Unreliable payloads may be late, duplicated or lost. They may be relayed with
        /// [`DeliveryMode::Unreliable`](crate::DeliveryMode::Unreliable).
        reliable: bool,
    },
    /// A peer is gone. A client's session is over if `peer` is the host or the client itself.
    ///
    /// A client that is over sends no more payloads. Drive it until
    /// [`is_closed`](crate::Engine::is_closed), which takes up to 1.5 seconds. A host reports a departure up to
    /// 2.5 seconds later, because the disconnect may be forged (T-57).
    ///
    /// Events are in order of occurrence: `Left` precedes the `Joined` event of the next owner of the id.
    /// Until `Left` is polled, the endpoint may already use the id for that next owner.
    Left {
        /// The peer that is gone.
        peer: PeerId,
        /// The reason.
        reason: LeaveReason,
    },
    /// GameSpy text arrived (T-05). The bytes are the text.
    Query {
        /// The source address of the query.
        from: SocketAddrV4,
    },
    /// A datagram or message was ignored.
    ///
    /// The endpoint always counts it. It queues this event only while few events wait.
    Rejected {
        /// The source address.
        from: SocketAddrV4,
        /// The cause.
        cause: RejectCause,
    },
}

/// The reason why a peer is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LeaveReason {
    /// The peer sent a disconnect notice.
    Disconnected,
    /// The host booted the peer.
    Booted(BootReason),
    /// No datagram arrived from the peer within the idle timeout (T-56).
    Silent,
    /// The peer is alive, but has not acknowledged an old message, or has not sent one (T-64).
    Undeliverable,
    /// A new client joined from the same address.
    Replaced,
    /// This endpoint left.
    Local,
}

impl fmt::Display for LeaveReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disconnected => f.write_str("disconnected"),
            Self::Booted(reason) => write!(f, "booted: {reason}"),
            Self::Silent => f.write_str("silent"),
            Self::Undeliverable => f.write_str("undeliverable"),
            Self::Replaced => f.write_str("replaced"),
            Self::Local => f.write_str("left"),
        }
    }
}

/// Events that wait to be polled, with their bytes.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    queue: RingQueue<(Event, u32, u32)>,
    bytes: ByteRing,
}

impl EventQueue {
    #[inline(always)]
    pub(crate) fn push(&mut self, event: Event, bytes: &[u8]) {
        if let Some(space) = self.reserve(event, bytes.len()) {
            space.copy_from_slice(bytes);
        }
    }

    /// Queues `event` and returns the space for its `len` bytes.
    ///
    /// Returns `None`, without queueing the event, if `len` exceeds the maximum of a [`ByteRing`].
    #[inline(always)]
    pub(crate) fn reserve(&mut self, event: Event, len: usize) -> Option<&mut [u8]> {
        let (at, space) = self.bytes.reserve(len)?;
        self.queue.push((event, at, u32::try_from(len).unwrap_or(0)));
        Some(space)
    }

    /// Returns the number of queued bytes, including an overhead for each event.
    #[inline]
    pub(crate) const fn queued_bytes(&self) -> usize {
        self.bytes.used() + EVENT_OVERHEAD * self.queue.len()
    }

    #[inline]
    pub(crate) fn pop(&mut self, payload: &mut Vec<u8>) -> Option<Event> {
        payload.clear();
        let &(event, at, len) = self.queue.front()?;
        self.queue.drop_front(1);
        payload.extend_from_slice(self.bytes.get(at, len as usize));
        self.bytes.release_to(at.wrapping_add(len));
        Some(event)
    }

    /// Releases the memory if no event waits.
    pub(crate) fn shrink(&mut self) {
        if self.queue.is_empty() {
            *self = Self::default();
        }
    }
}

const EVENT_OVERHEAD: usize = 32;
