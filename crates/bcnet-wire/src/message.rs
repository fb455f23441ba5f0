//! Messages: all contents of a datagram, as values.

use core::fmt;
use core::net::Ipv4Addr;

use crate::{Channel, Delivery, Kind, MessageId, PeerId, Seq, Text};

/// One message of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message<'a> {
    /// Acknowledges a reliable message.
    Ack(Ack),
    /// Shows that the sender is still there; a single byte (T-32).
    Keepalive,
    /// A message about connections or names.
    Control(Control<'a>),
    /// A game payload or a fragment of one.
    Data(Data<'a>),
}

/// An acknowledgement ([T-30], [T-31]).
///
/// [T-30]: crate::protocol#t-30
/// [T-31]: crate::protocol#t-31
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack {
    /// The acknowledged message or fragment.
    pub id: MessageId,
    /// Bits 2 to 7 of the flags byte, not shifted. The writer ignores bits 0 and 1. Stock sends zero.
    pub reserved: u8,
}

impl Ack {
    /// Creates an ACK in the form that stock senders use.
    #[must_use]
    pub const fn new(id: MessageId) -> Self {
        Self { id, reserved: 0 }
    }
}

/// A message of the control channel with its header ([T-13], [T-16]).
///
/// [T-13]: crate::protocol#t-13
/// [T-16]: crate::protocol#t-16
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Control<'a> {
    /// The sequence number.
    pub seq: Seq,
    /// Bit 15 of the size field; stock always sets it. Without it the message expects no ACK, although it
    /// has a sequence number.
    pub reliable: bool,
    /// Bit 14 of the size field; stock always sets it.
    pub urgent: bool,
    /// The content.
    pub body: Body<'a>,
    /// Bytes behind the last field of the body; stock senders send none and readers ignore them.
    pub tail: &'a [u8],
}

impl<'a> Control<'a> {
    /// Creates a control message in the form that stock senders use.
    #[must_use]
    pub const fn new(seq: Seq, body: Body<'a>) -> Self {
        Self { seq, reliable: true, urgent: true, body, tail: &[] }
    }
}

/// The typed content of a control message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body<'a> {
    /// A peer's name and address (T-36).
    Identity {
        /// The named peer.
        peer: PeerId,
        /// The IPv4 address of that peer, as it sees itself.
        address: Ipv4Addr,
        /// The player's name.
        name: Text<'a>,
    },
    /// A client asks for a connection (T-33).
    ConnectRequest {
        /// The IPv4 address of the client, as it sees itself.
        address: Ipv4Addr,
        /// Random; the same in every retransmission of one attempt.
        nonce: u32,
        /// Empty if the client has none.
        password: Text<'a>,
    },
    /// The host accepts a client (T-34).
    ConnectReply {
        /// The client's id from now on.
        assigned: PeerId,
    },
    /// A peer is removed or refused (T-37).
    Boot {
        /// The reason.
        reason: BootReason,
        /// The removed peer; [`PeerId::UNASSIGNED`] if it has no id.
        target: PeerId,
    },
    /// A peer leaves (T-38).
    Disconnect {
        /// The peer that leaves.
        peer: PeerId,
        /// The IPv4 address of that peer, as it sees itself.
        address: Ipv4Addr,
    },
}

/// A game payload, or a fragment of one, with its header ([T-12], [T-15], [T-20]).
///
/// [T-12]: crate::protocol#t-12
/// [T-15]: crate::protocol#t-15
/// [T-20]: crate::protocol#t-20
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Data<'a> {
    /// Reliable or not, whole or a fragment.
    pub delivery: Delivery,
    /// Bit 14. No stock sender sets it on data.
    pub urgent: bool,
    /// The bytes that the game sees. The first is the game's opcode; the transport never reads it.
    pub payload: &'a [u8],
}

/// The reason of a boot ([T-37]). It can have a value that no known reason has.
///
/// [T-37]: crate::protocol#t-37
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BootReason(pub i8);

impl BootReason {
    /// No reason given.
    pub const DEFAULT: Self = Self(0);
    /// No datagram arrived from the peer for too long.
    pub const TIMED_OUT: Self = Self(1);
    /// The password is wrong or missing.
    pub const WRONG_PASSWORD: Self = Self(2);
    /// The host has no free place for a player.
    pub const FULL: Self = Self(3);
    /// The host removed the peer.
    pub const KICKED: Self = Self(4);
    /// The address is on the host's ban list.
    pub const BANNED: Self = Self(5);

    /// Returns the name of a known reason.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::DEFAULT => "default",
            Self::TIMED_OUT => "timed_out",
            Self::WRONG_PASSWORD => "wrong_password",
            Self::FULL => "full",
            Self::KICKED => "kicked",
            Self::BANNED => "banned",
            _ => return None,
        })
    }
}

impl Message<'_> {
    /// Returns the type byte.
    #[must_use]
    #[inline]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Ack(_) => Kind::ACK,
            Self::Keepalive => Kind::KEEPALIVE,
            Self::Control(control) => control.body.kind(),
            Self::Data(_) => Kind::DATA,
        }
    }

    /// Returns the length of the message in a datagram, including its type byte.
    #[must_use]
    pub const fn wire_len(&self) -> usize {
        match self {
            Self::Ack(ack) => 4 + ack.id.fragment.is_some() as usize,
            Self::Keepalive => 1,
            Self::Control(control) => CONTROL_HEADER_LEN + control.body.wire_len() + control.tail.len(),
            Self::Data(data) => data.delivery.header_len() + data.payload.len(),
        }
    }

    /// Returns the id that an ACK for the message must name, if the message is reliable.
    #[must_use]
    #[inline]
    pub fn id(&self) -> Option<MessageId> {
        match self {
            Self::Ack(_) | Self::Keepalive => None,
            Self::Control(Control { reliable, seq, .. }) => {
                reliable.then_some(MessageId { channel: Channel::Control, seq: *seq, fragment: None })
            }
            Self::Data(Data { delivery, .. }) => {
                let part = delivery.fragment().map(crate::Fragment::index);
                delivery.seq().map(|seq| MessageId { channel: Channel::Game, seq, fragment: part })
            }
        }
    }
}

impl Body<'_> {
    /// Returns the type byte of this body.
    #[must_use]
    #[inline]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Identity { .. } => Kind::IDENTITY,
            Self::ConnectRequest { .. } | Self::ConnectReply { .. } => Kind::CONNECT,
            Self::Boot { .. } => Kind::BOOT,
            Self::Disconnect { .. } => Kind::DISCONNECT,
        }
    }

    /// Returns whether the body ends in text. Then the tail must have an even number of bytes (T-39).
    pub(crate) const fn has_text(&self) -> bool {
        matches!(self, Self::Identity { .. } | Self::ConnectRequest { .. })
    }

    const fn wire_len(&self) -> usize {
        match self {
            Self::Identity { name, .. } => 1 + 4 + name.wire_len(),
            Self::ConnectRequest { password, .. } => 4 + 4 + password.wire_len(),
            Self::ConnectReply { .. } => 1,
            Self::Boot { .. } => 2,
            Self::Disconnect { .. } => 1 + 4,
        }
    }
}

impl fmt::Display for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ack(ack) => ack.fmt(f),
            Self::Keepalive => f.write_str("keepalive"),
            Self::Control(control) => control.fmt(f),
            Self::Data(data) => data.fmt(f),
        }
    }
}

impl fmt::Display for Ack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ack {}", self.id)
    }
}

impl fmt::Display for Control<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let form = match self.body {
            Body::ConnectRequest { .. } => " request",
            Body::ConnectReply { .. } => " reply",
            Body::Identity { .. } | Body::Boot { .. } | Body::Disconnect { .. } => "",
        };
        write!(f, "{}{form} {}: {}", self.body.kind(), self.seq, self.body)
    }
}

impl fmt::Display for Body<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Identity { peer, address, name } => write!(f, "{peer} at {address} is {}", name.quoted()),
            Self::ConnectRequest { address, nonce, password } => {
                write!(f, "from {address} nonce=0x{nonce:08X} password={}", password.quoted())
            }
            Self::ConnectReply { assigned } => write!(f, "you are {assigned}"),
            Self::Boot { reason, target } => write!(f, "{target}, {reason}"),
            Self::Disconnect { peer, address } => write!(f, "{peer} at {address}"),
        }
    }
}

impl fmt::Display for Data<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { delivery, urgent, payload } = self;
        let (urgent, len) = (if *urgent { " urgent" } else { "" }, payload.len());
        write!(f, "data {delivery}{urgent} {len} byte{}", if len == 1 { "" } else { "s" })
    }
}

impl fmt::Display for BootReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "reason {}", self.0),
        }
    }
}

/// The length of type, size field and sequence number of a control message.
pub(crate) const CONTROL_HEADER_LEN: usize = 5;
/// Flag bit 0 of an ACK: it names a fragment.
pub(crate) const ACK_FRAGMENT: u8 = 0b01;
/// Flag bit 1 of an ACK: it names a message of the control channel.
pub(crate) const ACK_CONTROL: u8 = 0b10;
/// The flag bits of an ACK that have no meaning.
pub(crate) const ACK_RESERVED: u8 = !(ACK_FRAGMENT | ACK_CONTROL);
/// Bit 15 of the size field: reliable.
pub(crate) const RELIABLE: u16 = 1 << 15;
/// Bit 14 of the size field: urgent.
pub(crate) const URGENT: u16 = 1 << 14;
/// Bit 13 of the size field of data messages: a fragment.
pub(crate) const FRAGMENT: u16 = 1 << 13;
/// The size in the size field of a data message (T-12).
pub(crate) const DATA_SIZE_MASK: u16 = FRAGMENT - 1;
/// The size in the size field of a control message (T-13).
pub(crate) const CONTROL_SIZE_MASK: u16 = URGENT - 1;
