//! How much may be under way to a player whose line is full (S-43).

use bcnet_transport::wire::Kind;
use bcnet_transport::{Allowance, Counters};

/// The most messages that may be under way to one player, and no more bytes than so many small ones have.
///
/// What is under way cannot be overtaken, so on a slow line its bytes decide how late the words of others are. And a stock client acknowledges every message three times within 1.4 seconds, in the one datagram of a frame and ahead of all
/// that it has to say itself. Whoever sends it many small messages silences it, so what counts is how many messages it
/// acknowledges per datagram.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    messages: u16,
    /// What it was set by.
    heard: Heard,
    /// A queue was seen on the way since then.
    queueing: bool,
}

/// What was heard of a player so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Heard {
    /// Messages that it has acknowledged.
    acknowledged: u64,
    datagrams: u64,
}

impl Default for Window {
    fn default() -> Self {
        Self { messages: FIRST_WINDOW, heard: Heard::default(), queueing: false }
    }
}

impl Window {
    /// Returns how much may be under way.
    pub(crate) fn allowance(&self) -> Allowance {
        let messages = usize::from(self.messages);
        Allowance { messages, bytes: (messages * SMALL).max(MIN_BYTES) }
    }

    /// The line is full from now on.
    pub(crate) const fn start(&mut self, heard: Heard) {
        self.heard = heard;
    }

    /// A queue has built up on the way.
    pub(crate) const fn note_queue(&mut self) {
        self.queueing = true;
    }

    /// The line is still full: it takes more if the player can acknowledge more.
    pub(crate) fn learn(&mut self, heard: Heard) {
        let datagrams = heard.datagrams.saturating_sub(self.heard.datagrams);
        if datagrams == 0 {
            return;
        }
        let acknowledged = heard.acknowledged.saturating_sub(self.heard.acknowledged);
        self.messages = if self.queueing {
            (self.messages - self.messages / 4).max(MIN_WINDOW)
        } else if acknowledged > MAX_PER_DATAGRAM * datagrams {
            (self.messages - self.messages / 8).max(MIN_WINDOW)
        } else {
            let more = u16::try_from(acknowledged.div_ceil(8)).unwrap_or(u16::MAX);
            self.messages.saturating_add(more).min(MAX_WINDOW)
        };
        (self.heard, self.queueing) = (heard, false);
    }
}

impl From<Counters> for Heard {
    fn from(counters: Counters) -> Self {
        let acks = counters.messages_in.count(Kind::ACK);
        Self { acknowledged: acks.saturating_sub(counters.acks_useless), datagrams: counters.datagrams_in }
    }
}

/// How many may be under way to anyone at first: 100 a second on a round trip of 300 ms, and on a line of 96 kbit/s what
/// it takes in 170 ms.
const FIRST_WINDOW: u16 = 32;
const MIN_WINDOW: u16 = 16;
const MAX_WINDOW: u16 = 0x2000;
/// What a small message takes on the way, in bytes: an event, with its headers.
const SMALL: usize = 64;
/// One of the largest messages that the stock game has and many small ones: on a line of 96 kbit/s they take 170 ms.
const MIN_BYTES: usize = 2000;
/// Three ACKs of four bytes for each fill half of a stock datagram.
const MAX_PER_DATAGRAM: u64 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// After so many datagrams that each acknowledge so many messages.
    fn after(datagrams: u64, each: u64) -> u16 {
        let mut window = Window::default();
        let heard = |datagrams| Heard { acknowledged: datagrams * each, datagrams };
        for datagram in 1..=datagrams {
            window.learn(heard(datagram));
            window.learn(heard(datagram));
        }
        window.messages
    }

    /// S-43: a player whose datagrams are filled with ACKs gets less, one that has room for more gets more.
    #[test]
    fn the_window_follows_what_a_player_can_acknowledge() {
        assert_eq!(after(1, MAX_PER_DATAGRAM + 1), FIRST_WINDOW - FIRST_WINDOW / 8);
        assert_eq!(after(100, 100), MIN_WINDOW);
        assert_eq!(after(1, MAX_PER_DATAGRAM), FIRST_WINDOW + 3);
        assert_eq!(after(100, 0), FIRST_WINDOW, "who acknowledges nothing has told nothing");
        assert_eq!(after(10_000, 16), MAX_WINDOW);
        let mut window = Window::default();
        window.note_queue();
        window.learn(Heard { acknowledged: 16, datagrams: 1 });
        window.learn(Heard { acknowledged: 32, datagrams: 2 });
        assert_eq!(window.messages, FIRST_WINDOW - FIRST_WINDOW / 4 + 2, "a queue counts once");
    }

    /// S-43: on a slow line less is under way, but always one of the largest messages that the stock game has, and more.
    #[test]
    fn what_is_under_way_is_limited_by_its_bytes() {
        let mut window = Window { messages: 100, ..Window::default() };
        assert_eq!(window.allowance(), Allowance { messages: 100, bytes: 6400 });
        for datagrams in 1..=10 {
            window.note_queue();
            window.learn(Heard { acknowledged: 1, datagrams });
        }
        assert_eq!(window.allowance(), Allowance { messages: MIN_WINDOW.into(), bytes: MIN_BYTES });
    }
}
