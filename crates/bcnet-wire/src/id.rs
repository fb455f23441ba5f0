//! The small values that messages are made of: ids, kinds, sequence numbers, parts.

use core::fmt;
use core::num::NonZeroU8;

/// Which end of a conversation sent a datagram. A connect is read as a reply or a request by it (T-35).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// The host, which a dedicated server is.
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

/// The id of a peer as the wire carries it (T-02).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u8);

impl PeerId {
    /// Never assigned; as a target it means everyone.
    pub const NULL: Self = Self(0x00);
    /// The host.
    pub const HOST: Self = Self(0x01);
    /// Kept free, because a datagram that begins with this byte is GameSpy text (T-05).
    pub const GAMESPY: Self = Self(0x5C);
    /// The sender has no id yet.
    pub const UNASSIGNED: Self = Self(0xFF);

    /// Returns whether a host gives this id to a client.
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

/// The type byte of a message; unknown values are kept (T-10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind(pub u8);

impl Kind {
    /// A peer's name and address.
    pub const IDENTITY: Self = Self(0x00);
    /// Acknowledges one reliable message or part.
    pub const ACK: Self = Self(0x01);
    /// Nothing but a sign of life.
    pub const KEEPALIVE: Self = Self(0x02);
    /// Asks for a connection, or grants it.
    pub const CONNECT: Self = Self(0x03);
    /// Tells that a peer was thrown out, and why.
    pub const BOOT: Self = Self(0x04);
    /// A peer leaves.
    pub const DISCONNECT: Self = Self(0x05);
    /// A game payload, whole or in parts.
    pub const DATA: Self = Self(0x32);

    /// Returns the channel whose sequence numbers this kind uses (T-11).
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

/// One of the two independently numbered streams between two peers (T-11).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Channel {
    /// Kinds below 0x32: connections and names.
    Control,
    /// Kinds from 0x32 on: game payloads.
    Game,
}

impl Channel {
    /// Returns its name in texts and in JSON.
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

/// A sequence number: 16 bits that wrap (T-24). It has no order, only a distance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Seq(pub u16);

impl Seq {
    /// Returns the number after this one.
    #[must_use]
    #[inline]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// Returns how far this number is ahead of `earlier` (negative: behind), by the shorter way round.
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

/// Where a piece of a split payload belongs; only the first piece tells how many there are (T-20, T-22).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fragment {
    /// Part 0.
    First {
        /// How many parts there are, this one included.
        total: NonZeroU8,
    },
    /// Any part but the first.
    Later {
        /// Its place, counted from 0.
        index: NonZeroU8,
    },
}

impl Fragment {
    /// Returns its place, counted from 0.
    #[must_use]
    #[inline]
    pub const fn index(self) -> u8 {
        match self {
            Self::First { .. } => 0,
            Self::Later { index } => index.get(),
        }
    }

    /// Returns how many parts there are, if this one tells.
    #[must_use]
    #[inline]
    pub const fn total(self) -> Option<NonZeroU8> {
        match self {
            Self::First { total } => Some(total),
            Self::Later { .. } => None,
        }
    }

    /// Returns what it adds to a header, and a zero behind it if that is one byte.
    #[inline]
    pub(crate) const fn to_bytes(self) -> [u8; 2] {
        match self {
            Self::First { total } => [0, total.get()],
            Self::Later { index } => [index.get(), 0],
        }
    }

    /// Returns the bytes it adds to a header.
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

/// How a data message is delivered (T-15, T-20, T-21).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Delivery {
    /// Once or not at all, without a number.
    Unreliable,
    /// Repeated until acknowledged, in order.
    Reliable(Seq),
    /// One part of a reliable payload; all parts share the number.
    Fragment(Seq, Fragment),
    /// A part without a number. The format can express it, no stock sender does.
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

    /// Returns the part, if it is one.
    #[must_use]
    #[inline]
    pub const fn fragment(self) -> Option<Fragment> {
        match self {
            Self::Fragment(_, part) | Self::UnreliableFragment(part) => Some(part),
            Self::Unreliable | Self::Reliable(_) => None,
        }
    }

    /// Returns the bytes of a data header with this delivery.
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

/// What identifies a reliable message between two peers, and what an ACK names (T-30).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MessageId {
    /// The stream that numbered it.
    pub channel: Channel,
    /// Its number there.
    pub seq: Seq,
    /// Which part of it, if it is split.
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
