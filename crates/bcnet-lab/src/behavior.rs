//! What a node does around its engine: its rhythm, and the oddities of programs that were seen or claimed.

use std::time::Duration;

use bcnet_transport::Time;
use bcnet_transport::wire::{Datagram, Kind, Message, MessageId, Writer};

/// How a node drives its engine and what it does to datagrams. The default drives it whenever something is due and
/// changes nothing.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NodeBehavior {
    /// Ticks are at multiples of this; zero is whenever something is due.
    pub tick: Duration,
    /// It answers parts of split messages with plain ACKs, as one reimplementation did. Needs datagrams in the clear.
    pub plain_acks: bool,
    /// It does not see ACKs for parts. Needs datagrams in the clear.
    pub deaf_to_part_acks: bool,
    /// When its program is blocked after it has looked at the clock, and for how long.
    pub blocks: Vec<(Time, Duration)>,
    /// How long one comparison of list entries takes it.
    pub comparison_cost: Duration,
}

impl NodeBehavior {
    /// Returns the first tick at or after `due`. Ticks are exact multiples, rounded down to a microsecond.
    pub(crate) fn next_tick(&self, due: Time) -> Time {
        let tick = self.tick.as_nanos();
        if tick == 0 {
            return due;
        }
        let number = (u128::from(due.as_micros()) * 1000).div_ceil(tick);
        Time::from_micros(u64::try_from(number * tick / 1000).unwrap_or(u64::MAX))
    }

    /// Returns how long the frame at `now` is held up, if it is.
    pub(crate) fn block(&mut self, now: Time) -> Option<Duration> {
        let place = self.blocks.iter().position(|(at, _)| *at <= now)?;
        Some(self.blocks.swap_remove(place).1)
    }

    /// Returns how long so many comparisons take.
    pub(crate) fn search_time(&self, comparisons: u64) -> Duration {
        self.comparison_cost.saturating_mul(u32::try_from(comparisons).unwrap_or(u32::MAX))
    }

    /// Changes a datagram that is about to leave; tells its length.
    pub fn rewrite_outgoing(&self, bytes: &mut [u8]) -> usize {
        if !self.plain_acks {
            return bytes.len();
        }
        rewrite(bytes, |message| match message {
            Message::Ack(mut ack) => {
                ack.id = MessageId { part: None, ..ack.id };
                Some(Message::Ack(ack))
            }
            Message::Keepalive | Message::Control(_) | Message::Data(_) => Some(message),
        })
    }

    /// Changes a datagram that was taken out of the socket.
    pub fn rewrite_incoming(&self, bytes: &mut Vec<u8>) {
        if self.deaf_to_part_acks {
            let is_of_part =
                |message: &Message<'_>| matches!(message, Message::Ack(ack) if ack.id.part.is_some());
            let len = rewrite(bytes, |message| Some(message).filter(|message| !is_of_part(message)));
            bytes.truncate(len);
        }
    }
}

/// Writes a datagram anew with each message changed or left out. It never gets longer. What cannot be read stays.
fn rewrite(bytes: &mut [u8], mut change: impl FnMut(Message<'_>) -> Option<Message<'_>>) -> usize {
    let original = bytes.to_vec();
    let Ok(datagram) = Datagram::parse(&original, None) else { return bytes.len() };
    let (sender, mut writer) =
        (datagram.sender(), Writer::with_limit(bytes, datagram.sender(), original.len()));
    for message in datagram.messages().filter_map(&mut change) {
        let fits = writer.push(&message);
        debug_assert!(fits, "no message gets longer");
    }
    match writer.finish() {
        Some(written) => written.len(),
        // Nothing is left of it but that the sender is there.
        None => match bytes.first_chunk_mut() {
            Some(alive) => {
                *alive = [sender.0, 1, Kind::KEEPALIVE.0];
                alive.len()
            }
            None => bytes.len(),
        },
    }
}
