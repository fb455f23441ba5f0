//! What is wrong with a datagram, in which field, at which byte.

use core::fmt;

use crate::Kind;

/// Why a datagram was refused. Offsets count from byte 0 of the datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WireError {
    /// Where the bytes ran out if the reason is [`Reason::Truncated`], else where the field begins.
    pub at: usize,
    /// The field that could not be read.
    pub field: Field,
    /// What is wrong with it.
    pub reason: WireErrorReason,
}

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireErrorReason {
    /// The datagram ends inside the field, or before it.
    Truncated,
    /// A size or number is smaller than its kind allows (T-14, T-17, T-22).
    BadSize {
        /// What the wire says.
        found: u16,
        /// What it must at least be.
        least: u16,
    },
    /// No message of this type exists (T-10).
    UnknownType(Kind),
    /// Bytes follow the last message (T-01).
    Trailing,
    /// The datagram says that it holds no message (T-03).
    CountZero,
    /// Text of odd length or without its terminator (T-39).
    BadText,
}

impl WireErrorReason {
    /// Returns a short name for logs, counters and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Truncated => "truncated",
            Self::BadSize { .. } => "bad_size",
            Self::UnknownType(_) => "unknown_type",
            Self::Trailing => "trailing",
            Self::CountZero => "count_zero",
            Self::BadText => "bad_text",
        }
    }
}

macro_rules! fields {
    ($($(#[$doc:meta])* $variant:ident $name:literal,)*) => {
        /// The fields of a datagram and its messages.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Field { $($(#[$doc])* $variant,)* }

        impl Field {
            /// Returns its name in PROTOCOL.md, logs and JSON.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

fields! {
    /// Who sent the datagram.
    Sender "sender",
    /// How many messages it holds.
    Count "count",
    /// A message as a whole.
    Message "message",
    /// The type byte.
    Type "type",
    /// The word with flags and size.
    Size "size",
    /// The sequence number.
    Sequence "sequence",
    /// The flag byte of an ACK.
    Flags "flags",
    /// The index of a part.
    Part "part",
    /// How many parts there are.
    Total "total",
    /// A game payload.
    Payload "payload",
    /// An IPv4 address.
    Address "address",
    /// The number that tells connect attempts apart.
    Nonce "nonce",
    /// The password of a connect request.
    Password "password",
    /// The id that a connect reply gives.
    Assigned "assigned",
    /// The peer that an identity or a disconnect speaks of.
    Peer "peer",
    /// The name in an identity.
    Name "name",
    /// Why a peer is booted.
    BootReason "reason",
    /// Who is booted.
    Target "target",
    /// Bytes behind the last known field of a message.
    Tail "tail",
}

impl fmt::Display for WireErrorReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, field, reason } = self;
        match reason {
            WireErrorReason::Truncated => write!(f, "truncated {field} at byte {at}"),
            WireErrorReason::BadSize { found, least } => {
                write!(f, "{field} {found} at byte {at} is too small, it is at least {least}")
            }
            WireErrorReason::UnknownType(kind) => write!(f, "unknown {kind} at byte {at}"),
            WireErrorReason::Trailing => write!(f, "bytes after the last message, from byte {at}"),
            WireErrorReason::CountZero => {
                write!(f, "count 0 at byte {at}: a datagram holds at least one message")
            }
            WireErrorReason::BadText => {
                write!(f, "{field} at byte {at} is not UTF-16LE text that ends in a zero unit")
            }
        }
    }
}

impl core::error::Error for WireError {}
