//! What a proxy says: what to send and where, what happened, and why a player was turned away.

use std::net::{Ipv4Addr, SocketAddrV4};

use bcnet_transport::wire::BootReason;

use crate::healer::{HealCounters, OutboundBytes};

/// One socket toward the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UpstreamSource {
    /// Its number. It may be used again once it was [`Closed`](Event::Closed).
    pub number: u32,
    /// The address to bind to; `None` is any.
    pub address: Option<Ipv4Addr>,
}

/// Where a datagram goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DatagramTarget {
    /// From the listening socket to a client.
    Client(SocketAddrV4),
    /// From the source with this number to the server.
    Server(u32),
}

/// Why a datagram of a client was turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RefusalReason {
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
    TooManyBrowsers,
    /// Too many questions are asked, or its network has been answered enough (S-07).
    QueryLimit,
    /// It is an answer to a question that nobody asked (S-05).
    UnsolicitedAnswer,
    /// It would be more than an address is sent that has proved nothing.
    Unverified,
    /// It is not a player and does not ask to become one.
    NotConnected,
    /// It is not well formed.
    Malformed,
}

impl RefusalReason {
    /// Every reason there is.
    pub const ALL: [Self; 11] = [
        Self::Banned,
        Self::Flood,
        Self::NoSource,
        Self::AddressFull,
        Self::Busy,
        Self::TooManyBrowsers,
        Self::QueryLimit,
        Self::UnsolicitedAnswer,
        Self::Unverified,
        Self::NotConnected,
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
            Self::TooManyBrowsers => "crowded",
            Self::QueryLimit => "queries",
            Self::UnsolicitedAnswer => "answer",
            Self::Unverified => "unproved",
            Self::NotConnected => "stranger",
            Self::Malformed => "malformed",
        }
    }

    /// Returns what a client that asks to be let in is told.
    pub(crate) const fn boot_reason(self) -> Option<BootReason> {
        match self {
            Self::Banned => Some(BootReason::BANNED),
            Self::NoSource | Self::AddressFull => Some(BootReason::FULL),
            Self::Flood
            | Self::Busy
            | Self::TooManyBrowsers
            | Self::QueryLimit
            | Self::UnsolicitedAnswer
            | Self::Unverified
            | Self::NotConnected
            | Self::Malformed => None,
        }
    }
}

/// Something that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyEvent {
    /// A socket is needed before the next datagram to [`Leg::Server`] is sent.
    Opened {
        /// Whose.
        client: SocketAddrV4,
        /// Which.
        source: UpstreamSource,
        /// Whether it is a player; otherwise it is a browser that asks for the status.
        player: bool,
    },
    /// A player uses the id that the server gave it, so it is where it says.
    Verified {
        /// Who.
        client: SocketAddrV4,
        /// From which source.
        source: UpstreamSource,
    },
    /// A socket is not needed any more.
    Closed {
        /// Whose.
        client: SocketAddrV4,
        /// Which.
        source: UpstreamSource,
        /// Whether it was a player.
        player: bool,
        /// Whether it has [`Proved`](Self::Proved) itself; otherwise its address may have been forged.
        verified: bool,
        /// What was healed of what the client sent.
        up: HealCounters,
        /// What was healed of what the server sent.
        down: HealCounters,
    },
    /// A datagram was turned away. Not told if too many events wait.
    Refused {
        /// Whose.
        client: SocketAddrV4,
        /// Why.
        refusal: RefusalReason,
    },
}

/// What to send after a datagram came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProxyOutput<'a> {
    /// The datagram itself, or what is left of it.
    pub forward: Option<(DatagramTarget, OutboundBytes<'a>)>,
    /// An answer to its sender.
    pub answer: Option<(DatagramTarget, OutboundBytes<'a>)>,
    /// Why it was turned away, if it was. One that was not may still have nothing left to forward.
    pub refusal: Option<RefusalReason>,
}

/// A player, as the proxy knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyPlayer {
    /// Its real address.
    pub address: SocketAddrV4,
    /// Where the server sees it.
    pub source: UpstreamSource,
    /// What was healed of what it sent.
    pub up: HealCounters,
    /// What was healed of what it was sent.
    pub down: HealCounters,
}
