//! The times and limits of the stock engine that the observer assumes.

use bcnet_wire::{Body, Control, Message};

/// The time from one send of an ACK to the next.
pub(crate) const ACK_INTERVAL: u64 = 666_600;
/// A stock sender drops an ACK after this many sends.
pub(crate) const MAX_ACK_SENDS: u32 = 9;
/// After this many sends an ACK leaves only together with another message.
pub(crate) const STANDALONE_ACK_SENDS: u32 = 3;
/// A stock sender silently drops a message of this age.
pub(crate) const GIVE_UP_AFTER: u64 = 360 * SECOND;
/// A peer that is silent for longer is gone.
pub(crate) const PEER_TIMEOUT: u64 = 45 * SECOND;
/// For this long, a stock node still answers a peer that has left.
pub(crate) const LINGER: u64 = 15 * SECOND;
/// The room for messages in a datagram, without its header.
pub(crate) const DATAGRAM_CAPACITY: usize = 510;
/// One second in microseconds, the unit of time.
pub(crate) const SECOND: u64 = 1_000_000;

/// The intervals at which a stock sender retransmits a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetransmitSchedule {
    /// One second each.
    EverySecond,
    /// One second, then two, up to five, then from one second again.
    Sawtooth,
}

impl RetransmitSchedule {
    pub(crate) const fn of(message: &Message<'_>) -> Self {
        match message {
            Message::Control(Control {
                body: Body::ConnectRequest { .. } | Body::Disconnect { .. }, ..
            }) => Self::EverySecond,
            Message::Control(_) | Message::Ack(_) | Message::Keepalive | Message::Data(_) => Self::Sawtooth,
        }
    }

    /// Returns the time from the last send to the next, after `repeats` retransmissions.
    pub(crate) const fn interval(self, repeats: u32) -> u64 {
        match self {
            Self::EverySecond => SECOND,
            Self::Sawtooth => SECOND * (1 + repeats as u64 % 5),
        }
    }
}
