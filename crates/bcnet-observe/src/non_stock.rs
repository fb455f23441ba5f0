//! Peculiarities of datagrams that can be parsed but that a stock sender never produces.

use core::fmt;
use core::ops::BitOr;

use bcnet_wire::{Ack, Channel, Datagram, Delivery, MAX_DATAGRAM, MAX_MESSAGE, Message, PeerId};

/// A set of peculiarities. It is empty for everything that stock senders produce.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct NonStock(u16);

macro_rules! non_stock_flags {
    ($($(#[$doc:meta])* $constant:ident = $bit:literal $name:literal,)*) => {
        impl NonStock {
            $($(#[$doc])* pub const $constant: Self = Self(1 << $bit);)*
            const ALL: &'static [(Self, &'static str)] = &[$((Self::$constant, $name),)*];
        }
    };
}

non_stock_flags! {
    /// The sender is 0x00, 0x5C or 0x7F to 0xFE (T-02).
    SENDER = 0 "sender",
    /// The datagram is larger than 512 bytes (T-04).
    LARGE_DATAGRAM = 1 "large_datagram",
    /// The message is larger than 412 bytes (T-23).
    LARGE_MESSAGE = 2 "large_message",
    /// Bits 2 to 7 of an ACK's flags are not all zero (T-31).
    ACK_SPARE_BITS = 3 "ack_spare_bits",
    /// An ACK for a fragment of a control message (T-31).
    ACK_CONTROL_PART = 4 "ack_control_part",
    /// A control message without bit 15 (T-16).
    CONTROL_UNRELIABLE = 5 "control_unreliable",
    /// A control message without bit 14 (T-16).
    CONTROL_NOT_URGENT = 6 "control_not_urgent",
    /// A data message with bit 14 (T-12).
    DATA_URGENT = 7 "data_urgent",
    /// A fragment without a sequence number (T-21).
    UNRELIABLE_PART = 8 "unreliable_part",
    /// Bytes behind the last field of a control message (T-14).
    TAIL = 9 "tail",
}

impl NonStock {
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// Returns the peculiarities of a message.
    #[must_use]
    #[inline]
    pub fn of(message: &Message<'_>) -> Self {
        let large = || Self::flag_if(message.wire_len() > MAX_MESSAGE, Self::LARGE_MESSAGE);
        match message {
            Message::Ack(Ack { id, reserved: spare }) => {
                let control_part = id.channel == Channel::Control && id.fragment.is_some();
                Self::flag_if(spare >> 2 != 0, Self::ACK_SPARE_BITS)
                    | Self::flag_if(control_part, Self::ACK_CONTROL_PART)
            }
            Message::Keepalive => Self::NONE,
            Message::Control(control) => {
                large()
                    | Self::flag_if(!control.reliable, Self::CONTROL_UNRELIABLE)
                    | Self::flag_if(!control.urgent, Self::CONTROL_NOT_URGENT)
                    | Self::flag_if(!control.tail.is_empty(), Self::TAIL)
            }
            Message::Data(data) => {
                let unreliable = matches!(data.delivery, Delivery::UnreliableFragment(_));
                large()
                    | Self::flag_if(data.urgent, Self::DATA_URGENT)
                    | Self::flag_if(unreliable, Self::UNRELIABLE_PART)
            }
        }
    }

    /// Returns the peculiarities of a datagram as a whole, without those of its messages.
    #[must_use]
    pub fn of_datagram(datagram: &Datagram<'_>) -> Self {
        let sender = datagram.sender();
        let stock = sender.is_assignable() || matches!(sender, PeerId::HOST | PeerId::UNASSIGNED);
        Self::flag_if(!stock, Self::SENDER)
            | Self::flag_if(datagram.as_bytes().len() > MAX_DATAGRAM, Self::LARGE_DATAGRAM)
    }

    /// Returns `flag` if `present`, else the empty set.
    const fn flag_if(present: bool, flag: Self) -> Self {
        if present { flag } else { Self::NONE }
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns whether all of `other` is in this set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the names of the peculiarities in the set.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::ALL.iter().filter(move |(bit, _)| self.contains(*bit)).map(|(_, name)| *name)
    }
}

impl BitOr for NonStock {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Display for NonStock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, name) in self.names().enumerate() {
            write!(f, "{}{name}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl fmt::Debug for NonStock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NonStock({self})")
    }
}
