//! Output of a proxy: datagrams with their targets, events, and reasons of refusal.

use std::net::{Ipv4Addr, SocketAddrV4};

use bcnet_transport::wire::BootReason;

use crate::healer::{HealCounters, OutboundBytes};

/// One socket toward the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UpstreamSource {
    /// Its number. A number may be used again after [`Closed`](ProxyEvent::Closed).
    pub number: u32,
    /// The address to bind to; `None` is any.
    pub address: Option<Ipv4Addr>,
}

/// Target of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DatagramTarget {
    /// From the listening socket to a client.
    Client(SocketAddrV4),
    /// From the source with this number to the server.
    Server(u32),
}

/// The reason why a client's datagram was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RefusalReason {
    /// The address is banned.
    Banned,
    /// The client sends more than its rate.
    Flood,
    /// No source address is free for another player.
    NoSource,
    /// The address or its network has too many sources.
    ///
    /// The limits are [`MAX_PER_ADDRESS`](crate::MAX_PER_ADDRESS) and, for a /24 network,
    /// [`MAX_PER_NETWORK`](crate::MAX_PER_NETWORK).
    AddressFull,
    /// Too many join requests, or the places of clients without a proof are taken.
    ///
    /// A client that asks again may pass.
    Busy,
    /// Too many browsers wait.
    TooManyBrowsers,
    /// Too many queries, or the quota of the network is used up (S-07).
    QueryLimit,
    /// An answer without a query (S-05).
    UnsolicitedAnswer,
    /// More bytes than an unverified address may get, or a datagram of a client without a proof.
    Unverified,
    /// The sender is no player and sends no connect request.
    NotConnected,
    /// The datagram is malformed.
    Malformed,
    /// The datagram has an id that the server did not assign to the client.
    ///
    /// The id is the sender byte, or in a control message.
    ForeignId,
    /// A connect request at the address of a player who is still there.
    Active,
}

impl RefusalReason {
    /// All reasons.
    pub const ALL: [Self; 13] = [
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
        Self::ForeignId,
        Self::Active,
    ];

    /// Returns the name for logs and metrics.
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
            Self::ForeignId => "foreign_id",
            Self::Active => "active",
        }
    }

    /// Returns the boot reason for a client that asks to join, if it gets one.
    pub(crate) const fn boot_reason(self) -> Option<BootReason> {
        match self {
            Self::Banned => Some(BootReason::BANNED),
            Self::NoSource => Some(BootReason::FULL),
            // No boot reason names a limit of an address.
            Self::AddressFull => Some(BootReason::DEFAULT),
            Self::Flood
            | Self::Busy
            | Self::TooManyBrowsers
            | Self::QueryLimit
            | Self::UnsolicitedAnswer
            | Self::Unverified
            | Self::NotConnected
            | Self::Malformed
            | Self::ForeignId
            | Self::Active => None,
        }
    }
}

/// An event of the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyEvent {
    /// A socket is needed before the next datagram to [`DatagramTarget::Server`] is sent.
    Opened {
        /// The client.
        client: SocketAddrV4,
        /// Its socket toward the server.
        source: UpstreamSource,
        /// True if it is a player; otherwise it is a browser that queries the status.
        player: bool,
    },
    /// A player has verified its address.
    Verified {
        /// The player.
        client: SocketAddrV4,
        /// Its socket toward the server.
        source: UpstreamSource,
    },
    /// A socket is no longer needed.
    Closed {
        /// The client.
        client: SocketAddrV4,
        /// Its socket toward the server.
        source: UpstreamSource,
        /// True if it was a player.
        player: bool,
        /// True if it was [`Verified`](Self::Verified); otherwise its address may be forged.
        verified: bool,
        /// Healing of the client's datagrams.
        up: HealCounters,
        /// Healing of the server's datagrams.
        down: HealCounters,
    },
    /// A datagram was refused. Not reported if too many events wait.
    Refused {
        /// The client.
        client: SocketAddrV4,
        /// The reason.
        refusal: RefusalReason,
    },
}

/// The datagrams to send after one arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProxyOutput<'a> {
    /// The datagram, or what healing left of it.
    pub forward: Option<(DatagramTarget, OutboundBytes<'a>)>,
    /// An answer to its sender.
    pub answer: Option<(DatagramTarget, OutboundBytes<'a>)>,
    /// The reason if it was refused. An accepted datagram may also leave nothing to forward.
    pub refusal: Option<RefusalReason>,
}

/// A player of the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyPlayer {
    /// The real address.
    pub address: SocketAddrV4,
    /// The source address that the server sees.
    pub source: UpstreamSource,
    /// Healing of the player's datagrams.
    pub up: HealCounters,
    /// Healing of the server's datagrams to the player.
    pub down: HealCounters,
}
