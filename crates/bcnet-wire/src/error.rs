//! Parse errors: the fault, its field, its byte.

use core::fmt;

use crate::Kind;

/// The reason why a datagram, or a single message, was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WireError {
    /// The offset of the field, or the end of the bytes for [`WireErrorReason::Truncated`].
    ///
    /// It counts from byte 0 of the bytes that were given to the parser.
    pub at: usize,
    /// The field that could not be read.
    pub field: Field,
    /// The fault.
    pub reason: WireErrorReason,
}

/// The faults that a datagram can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireErrorReason {
    /// The datagram ends inside the field, or before it.
    Truncated,
    /// A size, or the number of fragments, is below its minimum (T-14, T-17, T-22).
    BadSize {
        /// The value in the datagram.
        found: u16,
        /// The smallest valid value.
        least: u16,
    },
    /// No message of this type exists (T-10).
    UnknownType(Kind),
    /// Bytes follow the last message (T-01).
    Trailing,
    /// The count byte is 0 (T-03).
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
            /// Returns the name of the field in PROTOCOL.md, logs and JSON.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

fields! {
    /// The sender byte of the datagram.
    Sender "sender",
    /// The number of messages in the datagram.
    Count "count",
    /// A message as a whole.
    Message "message",
    /// The type byte.
    Type "type",
    /// The 16-bit field with flags and size.
    Size "size",
    /// The sequence number.
    Sequence "sequence",
    /// The flag byte of an ACK.
    Flags "flags",
    /// The index of a fragment.
    Part "part",
    /// The number of fragments of a payload.
    Total "total",
    /// A game payload.
    Payload "payload",
    /// An IPv4 address.
    Address "address",
    /// The number that distinguishes connect attempts.
    Nonce "nonce",
    /// The password of a connect request.
    Password "password",
    /// The id that a connect reply assigns.
    Assigned "assigned",
    /// The peer that an identity or a disconnect names.
    Peer "peer",
    /// The name in an identity.
    Name "name",
    /// The reason of a boot.
    BootReason "reason",
    /// The peer that a boot names.
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
                write!(f, "{field} {found} at byte {at} is too small; the minimum is {least}")
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
