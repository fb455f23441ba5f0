//! What a proxy says: what to send and where, what happened, and why a player was turned away.

use std::net::{Ipv4Addr, SocketAddrV4};

use bcnet_transport::wire::BootReason;

use crate::heal::{Bytes, Healed};

/// One socket toward the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Source {
    /// Its number. It may be used again once it was [`Closed`](Event::Closed).
    pub number: u32,
    /// The address to bind to; `None` is any.
    pub address: Option<Ipv4Addr>,
}

/// Where a datagram goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Leg {
    /// From the listening socket to a client.
    Client(SocketAddrV4),
    /// From the source with this number to the server.
    Server(u32),
}

/// Why a datagram of a client was turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// Its address is banned.
    Banned,
    /// It sends more than it may.
    Flood,
    /// There is no source address left for another player.
    NoSource,
    /// Its address has [`MAX_PER_ADDRESS`](crate::MAX_PER_ADDRESS) sources already, or its /24 network
    /// [`MAX_PER_NETWORK`](crate::MAX_PER_NETWORK).
    AddressFull,
    /// Too many ask to be let in. Who asks again is heard.
    Busy,
    /// Too many browsers wait.
    Crowded,
    /// Too many questions are asked, or its network has been answered enough (S-07).
    Queries,
    /// It is an answer to a question that nobody asked (S-05).
    Answer,
    /// It would be more than an address is sent that has proved nothing.
    Unproved,
    /// It is not a player and does not ask to become one.
    Stranger,
    /// It is not well formed.
    Malformed,
}

impl Refusal {
    /// Every reason there is.
    pub const ALL: [Self; 11] = [
        Self::Banned,
        Self::Flood,
        Self::NoSource,
        Self::AddressFull,
        Self::Busy,
        Self::Crowded,
        Self::Queries,
        Self::Answer,
        Self::Unproved,
        Self::Stranger,
        Self::Malformed,
    ];

    /// Returns a short name for logs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Banned => "banned",
            Self::Flood => "flood",
            Self::NoSource => "no_source",
            Self::AddressFull => "address_full",
            Self::Busy => "busy",
            Self::Crowded => "crowded",
            Self::Queries => "queries",
            Self::Answer => "answer",
            Self::Unproved => "unproved",
            Self::Stranger => "stranger",
            Self::Malformed => "malformed",
        }
    }

    /// Returns what a client that asks to be let in is told.
    pub(crate) const fn boot(self) -> Option<BootReason> {
        match self {
            Self::Banned => Some(BootReason::BANNED),
            Self::NoSource | Self::AddressFull => Some(BootReason::FULL),
            Self::Flood
            | Self::Busy
            | Self::Crowded
            | Self::Queries
            | Self::Answer
            | Self::Unproved
            | Self::Stranger
            | Self::Malformed => None,
        }
    }
}

/// Something that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A socket is needed before the next datagram to [`Leg::Server`] is sent.
    Opened {
        /// Whose.
        client: SocketAddrV4,
        /// Which.
        source: Source,
        /// Whether it is a player; otherwise it is a browser that asks for the status.
        player: bool,
    },
    /// A player uses the id that the server gave it, so it is where it says.
    Proved {
        /// Who.
        client: SocketAddrV4,
        /// From which source.
        source: Source,
    },
    /// A socket is not needed any more.
    Closed {
        /// Whose.
        client: SocketAddrV4,
        /// Which.
        source: Source,
        /// Whether it was a player.
        player: bool,
        /// Whether it has [`Proved`](Self::Proved) itself; otherwise its address may have been forged.
        proved: bool,
        /// What was healed of what the client sent.
        up: Healed,
        /// What was healed of what the server sent.
        down: Healed,
    },
    /// A datagram was turned away. Not told if too many events wait.
    Refused {
        /// Whose.
        client: SocketAddrV4,
        /// Why.
        refusal: Refusal,
    },
}

/// What to send after a datagram came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Output<'a> {
    /// The datagram itself, or what is left of it.
    pub forward: Option<(Leg, Bytes<'a>)>,
    /// An answer to its sender.
    pub answer: Option<(Leg, Bytes<'a>)>,
    /// Why it was turned away, if it was. One that was not may still have nothing left to forward.
    pub refusal: Option<Refusal>,
}

/// A player, as the proxy knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Player {
    /// Its real address.
    pub address: SocketAddrV4,
    /// Where the server sees it.
    pub source: Source,
    /// What was healed of what it sent.
    pub up: Healed,
    /// What was healed of what it was sent.
    pub down: Healed,
}
