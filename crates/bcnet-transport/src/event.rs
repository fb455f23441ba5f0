//! What an endpoint tells its caller.

use alloc::vec::Vec;
use core::fmt;
use core::net::{Ipv4Addr, SocketAddrV4};

use crate::queue::Queue;
use crate::ring::ByteRing;
use crate::stats::Cause;
use crate::wire::{BootReason, PeerId};

/// Something that happened. Bytes that belong to it are put into the buffer given to
/// [`poll_event`](crate::Engine::poll_event).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// To a host: a client asks to be let in. Answer with [`admit`](crate::Engine::admit) or
    /// [`refuse`](crate::Engine::refuse). The bytes are the password, UTF-16LE.
    Request {
        /// Where it comes from.
        from: SocketAddrV4,
        /// Its address as it sees itself.
        address: Ipv4Addr,
    },
    /// To a host: a client was let in. To a client: it was let in and has this id.
    Joined {
        /// The client.
        peer: PeerId,
    },
    /// A player's name, the own one included. The bytes are the name, UTF-16LE.
    Identity {
        /// Whose name.
        peer: PeerId,
        /// Its address as it sees itself.
        address: Ipv4Addr,
        /// To a host: what the client said was changed, as it cannot be passed on so (T-71).
        cleaned: bool,
    },
    /// A payload arrived. The bytes are the payload.
    Received {
        /// From whom.
        peer: PeerId,
        /// Whether it came reliably: once and in order. If not, it may be late or come twice, and others get lost; who
        /// passes it on may do so with [`Quality::Unreliable`](crate::Quality::Unreliable).
        reliable: bool,
    },
    /// A peer is gone. To a client whose host is gone or who was booted: the session is over if `peer` is the host or
    /// the client itself.
    ///
    /// Events come in the order in which things happened, so this one comes before the `Joined` of whoever gets the id
    /// next. As long as it is not polled, the endpoint may already mean that one by the id.
    Left {
        /// Who.
        peer: PeerId,
        /// Why.
        reason: Leave,
    },
    /// GameSpy text arrived (T-05). The bytes are the text.
    Query {
        /// From where.
        from: SocketAddrV4,
    },
    /// Something arrived and changed nothing. Counted in any case; not told if too many events wait.
    Rejected {
        /// From where.
        from: SocketAddrV4,
        /// Why.
        cause: Cause,
    },
}

/// Why a peer is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Leave {
    /// It said so.
    Disconnected,
    /// It was booted.
    Booted(BootReason),
    /// Nothing was heard of it for too long.
    Silent,
    /// It answers, but not a message that was sent to it long ago.
    Undeliverable,
    /// Its address connected anew.
    Replaced,
    /// This side left.
    Local,
}

impl fmt::Display for Leave {
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
pub(crate) struct Events {
    queue: Queue<(Event, u32, u32)>,
    bytes: ByteRing,
}

impl Events {
    #[inline(always)]
    pub(crate) fn push(&mut self, event: Event, bytes: &[u8]) {
        if let Some(room) = self.reserve(event, bytes.len()) {
            room.copy_from_slice(bytes);
        }
    }

    /// Queues `event` and gives room for its `len` bytes.
    #[inline(always)]
    pub(crate) fn reserve(&mut self, event: Event, len: usize) -> Option<&mut [u8]> {
        let (at, room) = self.bytes.reserve(len)?;
        self.queue.push((event, at, u32::try_from(len).unwrap_or(0)));
        Some(room)
    }

    /// Returns the bytes that wait, each event counted with a little for itself.
    #[inline]
    pub(crate) const fn waiting(&self) -> usize {
        self.bytes.used() + COST * self.queue.len()
    }

    #[inline]
    pub(crate) fn pop(&mut self, payload: &mut Vec<u8>) -> Option<Event> {
        payload.clear();
        let &(event, at, len) = self.queue.front()?;
        self.queue.skip(1);
        payload.extend_from_slice(self.bytes.get(at, len as usize));
        self.bytes.release_to(at.wrapping_add(len));
        Some(event)
    }

    /// Gives memory back if nothing waits.
    pub(crate) fn shrink(&mut self) {
        if self.queue.is_empty() {
            *self = Self::default();
        }
    }
}

const COST: usize = 32;
