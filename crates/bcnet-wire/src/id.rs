//! The small values inside messages: ids, kinds, sequence numbers, fragments.

use core::fmt;
use core::num::NonZeroU8;

/// The role of a sender. It decides whether a connect is a request or a reply ([T-35]).
///
/// [T-35]: crate::protocol#t-35
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// The host; a dedicated server is a host.
    Host,
    /// A client, with or without an id.
    Client,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "host",
            Self::Client => "client",
        })
    }
}

/// The id of a peer, as the sender byte carries it ([T-02]).
///
/// [T-02]: crate::protocol#t-02
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u8);

impl PeerId {
    /// Nobody; as the target of a message, everyone. Never assigned.
    pub const NULL: Self = Self(0x00);
    /// The host.
    pub const HOST: Self = Self(0x01);
    /// Never assigned: a datagram that begins with this byte is GameSpy text ([T-05]).
    ///
    /// [T-05]: crate::protocol#t-05
    pub const GAMESPY: Self = Self(0x5C);
    /// The sender has no id yet.
    pub const UNASSIGNED: Self = Self(0xFF);

    /// Returns whether a host may assign this id to a client.
    #[must_use]
    #[inline]
    pub const fn is_assignable(self) -> bool {
        matches!(self.0, 0x02..=0x7E) && self.0 != Self::GAMESPY.0
    }
}

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::HOST => f.write_str("host"),
            Self::UNASSIGNED => f.write_str("unassigned"),
            Self(id) if self.is_assignable() => write!(f, "peer {id}"),
            Self(id) => write!(f, "peer 0x{id:02X}"),
        }
    }
}

/// The type byte of a message ([T-10]). It can have a value that no known type has.
///
/// [T-10]: crate::protocol#t-10
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind(pub u8);

impl Kind {
    /// A peer's name and address.
    pub const IDENTITY: Self = Self(0x00);
    /// Acknowledges one reliable message or fragment.
    pub const ACK: Self = Self(0x01);
    /// Shows that the sender is still there; has no content.
    pub const KEEPALIVE: Self = Self(0x02);
    /// Requests a connection, or accepts the request.
    pub const CONNECT: Self = Self(0x03);
    /// Reports that a peer was removed or refused, with the reason.
    pub const BOOT: Self = Self(0x04);
    /// A peer leaves.
    pub const DISCONNECT: Self = Self(0x05);
    /// A game payload, whole or a fragment of one.
    pub const DATA: Self = Self(0x32);

    /// Returns the channel whose sequence numbers this kind uses ([T-11]).
    ///
    /// [T-11]: crate::protocol#t-11
    #[must_use]
    #[inline]
    pub const fn channel(self) -> Channel {
        if self.0 < Self::DATA.0 { Channel::Control } else { Channel::Game }
    }

    /// Returns the name of a known kind.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::IDENTITY => "identity",
            Self::ACK => "ack",
            Self::KEEPALIVE => "keepalive",
            Self::CONNECT => "connect",
            Self::BOOT => "boot",
            Self::DISCONNECT => "disconnect",
            Self::DATA => "data",
            _ => return None,
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "type 0x{:02X}", self.0),
        }
    }
}

/// One of the two reliable sequences between two peers, each with its own numbers ([T-11]).
///
/// [T-11]: crate::protocol#t-11
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Channel {
    /// Kinds below 0x32: connections and names.
    Control,
    /// Kinds from 0x32 on: game payloads.
    Game,
}

impl Channel {
    /// Returns the name of the channel in texts and in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Control => "control",
            Self::Game => "game",
        }
    }
}

impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A sequence number: 16 bits that wrap ([T-24]). Two numbers have a distance but no order.
///
/// [T-24]: crate::protocol#t-24
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Seq(pub u16);

impl Seq {
    /// Returns the next number.
    #[must_use]
    #[inline]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// Returns the distance from `earlier` to this number; negative if this number is behind.
    ///
    /// The distance is taken in the shorter direction around the wrap.
    #[must_use]
    #[inline]
    pub const fn distance_from(self, earlier: Self) -> i16 {
        self.0.wrapping_sub(earlier.0).cast_signed()
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seq={}", self.0)
    }
}

/// The position of a fragment. Only the first fragment has the total ([T-20], [T-22]).
///
/// [T-20]: crate::protocol#t-20
/// [T-22]: crate::protocol#t-22
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fragment {
    /// Fragment 0.
    First {
        /// The number of fragments, including this one.
        total: NonZeroU8,
    },
    /// Any fragment but the first.
    Later {
        /// The index, counted from 0.
        index: NonZeroU8,
    },
}

impl Fragment {
    /// Returns the index, counted from 0.
    #[must_use]
    #[inline]
    pub const fn index(self) -> u8 {
        match self {
            Self::First { .. } => 0,
            Self::Later { index } => index.get(),
        }
    }

    /// Returns the number of fragments, if this is the first fragment.
    #[must_use]
    #[inline]
    pub const fn total(self) -> Option<NonZeroU8> {
        match self {
            Self::First { total } => Some(total),
            Self::Later { .. } => None,
        }
    }

    /// Returns the bytes of the fragment header. If the header has one byte, the second byte is zero.
    #[inline]
    pub(crate) const fn to_bytes(self) -> [u8; 2] {
        match self {
            Self::First { total } => [0, total.get()],
            Self::Later { index } => [index.get(), 0],
        }
    }

    /// Returns the length of the fragment header in bytes.
    #[inline]
    pub(crate) const fn wire_len(self) -> usize {
        match self {
            Self::First { .. } => 2,
            Self::Later { .. } => 1,
        }
    }
}

impl fmt::Display for Fragment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::First { total } => write!(f, "part=0/{total}"),
            Self::Later { index } => write!(f, "part={index}"),
        }
    }
}

/// The delivery of a data message: reliable or not, whole or a fragment ([T-15], [T-20], [T-21]).
///
/// [T-15]: crate::protocol#t-15
/// [T-20]: crate::protocol#t-20
/// [T-21]: crate::protocol#t-21
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Delivery {
    /// Sent once, without a sequence number; it may be lost.
    Unreliable,
    /// Retransmitted until acknowledged, delivered in order.
    Reliable(Seq),
    /// One fragment of a reliable payload; all fragments share the sequence number.
    Fragment(Seq, Fragment),
    /// A fragment without a sequence number. The format allows it, but no stock sender uses it.
    UnreliableFragment(Fragment),
}

impl Delivery {
    /// Returns the sequence number, if there is one.
    #[must_use]
    #[inline]
    pub const fn seq(self) -> Option<Seq> {
        match self {
            Self::Reliable(seq) | Self::Fragment(seq, _) => Some(seq),
            Self::Unreliable | Self::UnreliableFragment(_) => None,
        }
    }

    /// Returns the fragment, if the message is one.
    #[must_use]
    #[inline]
    pub const fn fragment(self) -> Option<Fragment> {
        match self {
            Self::Fragment(_, part) | Self::UnreliableFragment(part) => Some(part),
            Self::Unreliable | Self::Reliable(_) => None,
        }
    }

    /// Returns the length of a data header with this delivery in bytes.
    #[must_use]
    #[inline]
    pub const fn header_len(self) -> usize {
        match self {
            Self::Unreliable => 3,
            Self::Reliable(_) => 5,
            Self::Fragment(_, part) => 5 + part.wire_len(),
            Self::UnreliableFragment(part) => 3 + part.wire_len(),
        }
    }
}

impl fmt::Display for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreliable => f.write_str("unreliable"),
            Self::Reliable(seq) => write!(f, "{seq}"),
            Self::Fragment(seq, part) => write!(f, "{seq} {part}"),
            Self::UnreliableFragment(part) => write!(f, "unreliable {part}"),
        }
    }
}

/// The identity of a reliable message or fragment between two peers, as an ACK names it ([T-30]).
///
/// [T-30]: crate::protocol#t-30
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MessageId {
    /// The channel of the message.
    pub channel: Channel,
    /// The sequence number on that channel.
    pub seq: Seq,
    /// The index of the fragment, if the payload is split.
    pub fragment: Option<u8>,
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} seq={}", self.channel.name(), self.seq.0)?;
        match self.fragment {
            Some(part) => write!(f, " part={part}"),
            None => Ok(()),
        }
    }
}
