//! The times of the stock engine that an observer counts with.

use bcnet_wire::{Body, Control, Message};

/// The time from one sending of an ACK to the next.
pub(crate) const ACK_INTERVAL: u64 = 666_600;
/// An ACK is forgotten after this many sendings.
pub(crate) const MAX_ACK_SENDS: u32 = 9;
/// An ACK that was sent this often leaves only with something else.
pub(crate) const STANDALONE_ACK_SENDS: u32 = 3;
/// A message that is this old is given up without a word.
pub(crate) const GIVE_UP_AFTER: u64 = 360 * SECOND;
/// A peer that is silent for longer is gone.
pub(crate) const PEER_TIMEOUT: u64 = 45 * SECOND;
/// A peer that has left is answered for so long.
pub(crate) const LINGER: u64 = 15 * SECOND;
/// What fits a datagram behind its header.
pub(crate) const DATAGRAM_CAPACITY: usize = 510;
/// A second in the unit of time.
pub(crate) const SECOND: u64 = 1_000_000;

/// How a stock sender spaces the repeats of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetransmitSchedule {
    /// Every second.
    EverySecond,
    /// After one second, then two, up to five, and from one again.
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

    /// Returns the time from the last sending to the next, after `repeats` repeats.
    pub(crate) const fn interval(self, repeats: u32) -> u64 {
        match self {
            Self::EverySecond => SECOND,
            Self::Sawtooth => SECOND * (1 + repeats as u64 % 5),
        }
    }
}
