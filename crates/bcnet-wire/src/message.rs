//! Messages: everything a datagram can carry, as values.

use core::fmt;
use core::net::Ipv4Addr;

use crate::{Channel, Delivery, Kind, MessageId, PeerId, Seq, Text};

/// One message of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message<'a> {
    /// Acknowledges a reliable message.
    Ack(Ack),
    /// A sign of life, a single byte (T-32).
    Keepalive,
    /// Connections and names.
    Control(Control<'a>),
    /// A game payload or a part of one.
    Data(Data<'a>),
}

/// An acknowledgement (T-30, T-31).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack {
    /// What it acknowledges.
    pub id: MessageId,
    /// Bits 2 to 7 of the flags, in place; bits 0 and 1 are not written. Zero from stock senders.
    pub reserved: u8,
}

impl Ack {
    /// The form that stock senders use.
    #[must_use]
    pub const fn new(id: MessageId) -> Self {
        Self { id, reserved: 0 }
    }
}

/// A message of the control channel with its head (T-13, T-16).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Control<'a> {
    /// Its number.
    pub seq: Seq,
    /// Bit 15; always set by stock senders. Without it the number is there but nobody waits for an ACK.
    pub reliable: bool,
    /// Bit 14; always set by stock senders.
    pub urgent: bool,
    /// What it says.
    pub body: Body<'a>,
    /// Bytes behind the last field of the body; stock senders leave none and readers ignore them.
    pub tail: &'a [u8],
}

impl<'a> Control<'a> {
    /// The form that stock senders use.
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
        /// Whose.
        peer: PeerId,
        /// As the peer itself sees it.
        address: Ipv4Addr,
        /// The player's name.
        name: Text<'a>,
    },
    /// A client asks to join (T-33).
    ConnectRequest {
        /// The client's own address, as it sees it.
        address: Ipv4Addr,
        /// Random, the same for every repeat of one attempt.
        nonce: u32,
        /// Empty if the client knows none.
        password: Text<'a>,
    },
    /// The host lets a client in (T-34).
    ConnectReply {
        /// The client's id from now on.
        assigned: PeerId,
    },
    /// A peer is thrown out or was not let in (T-37).
    Boot {
        /// Why.
        reason: BootReason,
        /// Who; [`PeerId::UNASSIGNED`] if it has no id.
        target: PeerId,
    },
    /// A peer leaves (T-38).
    Disconnect {
        /// Who.
        peer: PeerId,
        /// As the peer itself sees it.
        address: Ipv4Addr,
    },
}

/// A game payload, or a part of one, with its head (T-12, T-15, T-20).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Data<'a> {
    /// With which promise.
    pub delivery: Delivery,
    /// Bit 14. No stock sender sets it on data.
    pub urgent: bool,
    /// The first byte of a whole payload is the game's opcode; the transport never looks.
    pub payload: &'a [u8],
}

/// Why a peer is booted; unknown values are kept (T-37).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BootReason(pub i8);

impl BootReason {
    /// No reason given.
    pub const DEFAULT: Self = Self(0);
    /// Nothing was heard of the peer for too long.
    pub const TIMED_OUT: Self = Self(1);
    /// The password is wrong or missing.
    pub const WRONG_PASSWORD: Self = Self(2);
    /// No free place.
    pub const FULL: Self = Self(3);
    /// The host threw the peer out.
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

    /// Returns the bytes it takes in a datagram, its type byte included.
    #[must_use]
    pub const fn wire_len(&self) -> usize {
        match self {
            Self::Ack(ack) => 4 + ack.id.fragment.is_some() as usize,
            Self::Keepalive => 1,
            Self::Control(control) => CONTROL_HEADER_LEN + control.body.wire_len() + control.tail.len(),
            Self::Data(data) => data.delivery.header_len() + data.payload.len(),
        }
    }

    /// Returns what identifies it if it is reliable, and what an ACK for it must name.
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
    /// Returns the type byte that announces this body.
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

    /// Returns whether it ends in text, so that everything behind it is text as well.
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

/// Type, word and sequence number of a control message.
pub(crate) const CONTROL_HEADER_LEN: usize = 5;
/// Flag bit 0 of an ACK: it names a part.
pub(crate) const ACK_FRAGMENT: u8 = 0b01;
/// Flag bit 1 of an ACK: it names a message of the control channel.
pub(crate) const ACK_CONTROL: u8 = 0b10;
/// The flag bits of an ACK that mean nothing.
pub(crate) const ACK_RESERVED: u8 = !(ACK_FRAGMENT | ACK_CONTROL);
/// Bit 15 of the word: reliable.
pub(crate) const RELIABLE: u16 = 1 << 15;
/// Bit 14 of the word: urgent.
pub(crate) const URGENT: u16 = 1 << 14;
/// Bit 13 of the word in data messages: a part.
pub(crate) const FRAGMENT: u16 = 1 << 13;
/// The size in the word of a data message (T-12).
pub(crate) const DATA_SIZE_MASK: u16 = FRAGMENT - 1;
/// The size in the word of a control message (T-13).
pub(crate) const CONTROL_SIZE_MASK: u16 = URGENT - 1;
