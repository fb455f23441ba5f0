//! How much may be under way to a player whose line is full (S-43).

use bcnet_transport::wire::Kind;
use bcnet_transport::{InFlightLimit, PeerCounters};

/// The most messages that may be under way to one player, and no more bytes than so many small ones have.
///
/// What is under way cannot be overtaken, so on a slow line its bytes decide how late the words of others are. And a stock client acknowledges every message three times within 1.4 seconds, in the one datagram of a frame and ahead of all
/// that it has to say itself. Whoever sends it many small messages silences it, so what counts is how many messages it
/// acknowledges per datagram.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CongestionWindow {
    messages: u16,
    /// What it was set by.
    last_counters: AckCounters,
    /// A queue was seen on the way since then.
    queueing: bool,
}

/// What was heard of a player so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct AckCounters {
    /// Messages that it has acknowledged.
    acknowledged: u64,
    datagrams: u64,
}

impl Default for CongestionWindow {
    fn default() -> Self {
        Self { messages: INITIAL_WINDOW, last_counters: AckCounters::default(), queueing: false }
    }
}

impl CongestionWindow {
    /// Returns how much may be under way.
    pub(crate) fn allowance(&self) -> InFlightLimit {
        let messages = usize::from(self.messages);
        InFlightLimit { messages, bytes: (messages * SMALL_MESSAGE_BYTES).max(MIN_WINDOW_BYTES) }
    }

    /// The line is full from now on.
    pub(crate) const fn set_baseline(&mut self, counters: AckCounters) {
        self.last_counters = counters;
    }

    /// A queue has built up on the way.
    pub(crate) const fn note_queueing_delay(&mut self) {
        self.queueing = true;
    }

    /// The line is still full: it takes more if the player can acknowledge more.
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

/// How many may be under way to anyone at first: 100 a second on a round trip of 300 ms, and on a line of 96 kbit/s what
/// it takes in 170 ms.
const INITIAL_WINDOW: u16 = 32;
const MIN_WINDOW: u16 = 16;
const MAX_WINDOW: u16 = 0x2000;
/// What a small message takes on the way, in bytes: an event, with its headers.
const SMALL_MESSAGE_BYTES: usize = 64;
/// One of the largest messages that the stock game has and many small ones: on a line of 96 kbit/s they take 170 ms.
const MIN_WINDOW_BYTES: usize = 2000;
/// Three ACKs of four bytes for each fill half of a stock datagram.
const MAX_ACKED_PER_DATAGRAM: u64 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// After so many datagrams that each acknowledge so many messages.
    fn window_after(datagrams: u64, each: u64) -> u16 {
        let mut window = CongestionWindow::default();
        let counters = |datagrams| AckCounters { acknowledged: datagrams * each, datagrams };
        for datagram in 1..=datagrams {
            window.update(counters(datagram));
            window.update(counters(datagram));
        }
        window.messages
    }

    /// S-43: a player whose datagrams are filled with ACKs gets less, one that has room for more gets more.
    #[test]
    fn window_follows_the_ack_capacity_of_a_player() {
        assert_eq!(window_after(1, MAX_ACKED_PER_DATAGRAM + 1), INITIAL_WINDOW - INITIAL_WINDOW / 8);
        assert_eq!(window_after(100, 100), MIN_WINDOW);
        assert_eq!(window_after(1, MAX_ACKED_PER_DATAGRAM), INITIAL_WINDOW + 3);
        assert_eq!(window_after(100, 0), INITIAL_WINDOW, "who acknowledges nothing has told nothing");
        assert_eq!(window_after(10_000, 16), MAX_WINDOW);
        let mut window = CongestionWindow::default();
        window.note_queueing_delay();
        window.update(AckCounters { acknowledged: 16, datagrams: 1 });
        window.update(AckCounters { acknowledged: 32, datagrams: 2 });
        assert_eq!(window.messages, INITIAL_WINDOW - INITIAL_WINDOW / 4 + 2, "a queue counts once");
    }

    /// S-43: on a slow line less is under way, but always one of the largest messages that the stock game has, and more.
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
