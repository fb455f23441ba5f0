//! The congestion window of one player: the limit of messages in flight while its link is full ([S-43]).
//!
//! [`CongestionWindow`] sets the limit from the ACKs of the player. It counts nothing itself and queues no messages.
//!
//! [S-43]: bcnet_transport::wire::protocol#s-43

use bcnet_transport::wire::Kind;
use bcnet_transport::{InFlightLimit, PeerCounters};

/// The most messages in flight to one player. The bytes are limited to those of as many small messages.
///
/// Messages in flight cannot be overtaken. So on a slow link their bytes determine how late the messages of others are.
///
/// A stock client acknowledges each message three times within 1.4 seconds. It puts these ACKs into the one datagram of
/// a frame, before its own messages. So many small messages would silence it. The window therefore follows the number
/// of messages that the client acknowledges per datagram.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CongestionWindow {
    messages: u16,
    /// The counters at the last change of the window.
    last_counters: AckCounters,
    /// True if the round-trip time has shown a queue on the path since then.
    queueing: bool,
}

/// The counters of the datagrams from a player.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct AckCounters {
    /// The number of messages that the player has acknowledged.
    acknowledged: u64,
    datagrams: u64,
}

impl Default for CongestionWindow {
    fn default() -> Self {
        Self { messages: INITIAL_WINDOW, last_counters: AckCounters::default(), queueing: false }
    }
}

impl CongestionWindow {
    /// Returns the limit of messages and bytes in flight.
    pub(crate) fn allowance(&self) -> InFlightLimit {
        let messages = usize::from(self.messages);
        InFlightLimit { messages, bytes: (messages * SMALL_MESSAGE_BYTES).max(MIN_WINDOW_BYTES) }
    }

    /// Starts to measure: the link is full from now on.
    pub(crate) const fn set_baseline(&mut self, counters: AckCounters) {
        self.last_counters = counters;
    }

    /// Records that a queue has built up on the path.
    pub(crate) const fn note_queueing_delay(&mut self) {
        self.queueing = true;
    }

    /// Adapts the window while the link is full: it grows if the player can acknowledge more.
    pub(crate) fn update(&mut self, counters: AckCounters) {
        let datagrams = counters.datagrams.saturating_sub(self.last_counters.datagrams);
        if datagrams == 0 {
            return;
        }
        let acknowledged = counters.acknowledged.saturating_sub(self.last_counters.acknowledged);
        self.messages = if self.queueing {
            (self.messages - self.messages / 4).max(MIN_WINDOW)
        } else if acknowledged > MAX_ACKED_PER_DATAGRAM * datagrams {
            (self.messages - self.messages / 8).max(MIN_WINDOW)
        } else {
            let more = u16::try_from(acknowledged.div_ceil(8)).unwrap_or(u16::MAX);
            self.messages.saturating_add(more).min(MAX_WINDOW)
        };
        (self.last_counters, self.queueing) = (counters, false);
    }
}

impl From<PeerCounters> for AckCounters {
    fn from(counters: PeerCounters) -> Self {
        let acks = counters.messages_in.count(Kind::ACK);
        Self { acknowledged: acks.saturating_sub(counters.acks_useless), datagrams: counters.datagrams_in }
    }
}

/// The initial window for every player, in messages.
///
/// It allows 100 messages per second with a round-trip time of 300 ms. A link of 96 kbit/s needs 170 ms for it.
const INITIAL_WINDOW: u16 = 32;
const MIN_WINDOW: u16 = 16;
const MAX_WINDOW: u16 = 0x2000;
/// The size of a small message in flight, in bytes: an event with its headers.
const SMALL_MESSAGE_BYTES: usize = 64;
/// Room for one of the largest messages of the stock game and many small ones.
///
/// A link of 96 kbit/s needs 170 ms for it.
const MIN_WINDOW_BYTES: usize = 2000;
/// Above this, three ACKs of four bytes for each message fill half of a stock datagram.
const MAX_ACKED_PER_DATAGRAM: u64 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the window after `datagrams` datagrams that each acknowledge `each` messages.
    fn window_after(datagrams: u64, each: u64) -> u16 {
        let mut window = CongestionWindow::default();
        let counters = |datagrams| AckCounters { acknowledged: datagrams * each, datagrams };
        for datagram in 1..=datagrams {
            window.update(counters(datagram));
            window.update(counters(datagram));
        }
        window.messages
    }

    /// S-43: the window shrinks if ACKs fill the player's datagrams, and grows if there is room for more.
    #[test]
    fn window_follows_the_ack_capacity_of_a_player() {
        assert_eq!(window_after(1, MAX_ACKED_PER_DATAGRAM + 1), INITIAL_WINDOW - INITIAL_WINDOW / 8);
        assert_eq!(window_after(100, 100), MIN_WINDOW);
        assert_eq!(window_after(1, MAX_ACKED_PER_DATAGRAM), INITIAL_WINDOW + 3);
        assert_eq!(window_after(100, 0), INITIAL_WINDOW, "no ACKs: the window stays");
        assert_eq!(window_after(10_000, 16), MAX_WINDOW);
        let mut window = CongestionWindow::default();
        window.note_queueing_delay();
        window.update(AckCounters { acknowledged: 16, datagrams: 1 });
        window.update(AckCounters { acknowledged: 32, datagrams: 2 });
        assert_eq!(window.messages, INITIAL_WINDOW - INITIAL_WINDOW / 4 + 2, "a queueing delay counts once");
    }

    /// S-43: slow links have fewer bytes in flight, but enough for one of the largest stock messages.
    #[test]
    fn window_limits_bytes_in_flight() {
        let mut window = CongestionWindow { messages: 100, ..CongestionWindow::default() };
        assert_eq!(window.allowance(), InFlightLimit { messages: 100, bytes: 6400 });
        for datagrams in 1..=10 {
            window.note_queueing_delay();
            window.update(AckCounters { acknowledged: 1, datagrams });
        }
        assert_eq!(
            window.allowance(),
            InFlightLimit { messages: MIN_WINDOW.into(), bytes: MIN_WINDOW_BYTES }
        );
    }
}
