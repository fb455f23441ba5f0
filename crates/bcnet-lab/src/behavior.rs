//! Behaviour of the program around an engine: tick, pauses, and defects of other implementations.
//!
//! A [`NodeBehavior`] decides when an engine is serviced, and rewrites datagrams. It does not change the engine.

use std::time::Duration;

use bcnet_transport::Time;
use bcnet_transport::wire::{Datagram, Kind, Message, MessageId, Writer};

/// Timing and datagram changes of a node.
///
/// The default services the engine whenever something is due and changes no datagram.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NodeBehavior {
    /// Interval of the ticks. Zero: the engine is serviced whenever something is due.
    pub tick: Duration,
    /// Sends ACKs of fragments without the fragment index, as another implementation did. Needs plaintext datagrams.
    pub plain_acks: bool,
    /// Ignores ACKs of fragments. Needs plaintext datagrams.
    pub deaf_to_part_acks: bool,
    /// Pauses of the program in a frame, after it has read the clock: start and length.
    pub blocked_periods: Vec<(Time, Duration)>,
    /// Time that the program takes for each list entry that its engine compares.
    pub comparison_cost: Duration,
}

impl NodeBehavior {
    /// Returns the first tick at or after `due`: a multiple of `tick`, rounded down to a microsecond.
    pub(crate) fn next_tick(&self, due: Time) -> Time {
        let tick = self.tick.as_nanos();
        if tick == 0 {
            return due;
        }
        let number = (u128::from(due.as_micros()) * 1000).div_ceil(tick);
        Time::from_micros(u64::try_from(number * tick / 1000).unwrap_or(u64::MAX))
    }

    /// Removes a pause that starts at or before `now`, and returns its length.
    pub(crate) fn take_blocked_period(&mut self, now: Time) -> Option<Duration> {
        let index = self.blocked_periods.iter().position(|(at, _)| *at <= now)?;
        Some(self.blocked_periods.swap_remove(index).1)
    }

    /// Returns the time that this number of comparisons takes.
    pub(crate) fn comparison_time(&self, comparisons: u64) -> Duration {
        self.comparison_cost.saturating_mul(u32::try_from(comparisons).unwrap_or(u32::MAX))
    }

    /// Rewrites a datagram before it is sent. Returns its new length.
    pub fn rewrite_outgoing(&self, bytes: &mut [u8]) -> usize {
        if !self.plain_acks {
            return bytes.len();
        }
        rewrite_messages(bytes, |message| match message {
            Message::Ack(mut ack) => {
                ack.id = MessageId { fragment: None, ..ack.id };
                Some(Message::Ack(ack))
            }
            Message::Keepalive | Message::Control(_) | Message::Data(_) => Some(message),
        })
    }

    /// Rewrites a datagram that was read from the socket.
    pub fn rewrite_incoming(&self, bytes: &mut Vec<u8>) {
        if self.deaf_to_part_acks {
            let acks_fragment =
                |message: &Message<'_>| matches!(message, Message::Ack(ack) if ack.id.fragment.is_some());
            let len =
                rewrite_messages(bytes, |message| Some(message).filter(|message| !acks_fragment(message)));
            bytes.truncate(len);
        }
    }
}

/// Replaces each message of a datagram by the result of `change`, or removes it. Returns the new length.
///
/// The datagram never gets longer. A malformed datagram stays unchanged.
fn rewrite_messages(bytes: &mut [u8], mut change: impl FnMut(Message<'_>) -> Option<Message<'_>>) -> usize {
    let original = bytes.to_vec();
    let Ok(datagram) = Datagram::parse(&original, None) else { return bytes.len() };
    let (sender, mut writer) =
        (datagram.sender(), Writer::with_limit(bytes, datagram.sender(), original.len()));
    for message in datagram.messages().filter_map(&mut change) {
        let fits = writer.push(&message);
        debug_assert!(fits, "a rewritten message must not be longer than before");
    }
    match writer.finish() {
        Some(written) => written.len(),
        // All messages were removed: a keepalive still shows that the sender is alive.
        None => match bytes.first_chunk_mut() {
            Some(keepalive) => {
                *keepalive = [sender.0, 1, Kind::KEEPALIVE.0];
                keepalive.len()
            }
            None => bytes.len(),
        },
    }
}
