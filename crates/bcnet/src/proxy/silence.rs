//! How long the server has not answered.

use std::time::Duration;

use bcnet_transport::Time;

/// Knows since when the server is silent although clients talk to it.
#[derive(Debug, Default)]
pub(super) struct Silence {
    /// When the first datagram left that was not answered.
    asked: Option<Time>,
    /// When the last one left.
    sent: Option<Time>,
}

impl Silence {
    /// A datagram goes to the server.
    pub(super) fn ask(&mut self, now: Time) {
        // What nobody asked about again, such as a browser's lost question, says nothing about the server.
        let begins = self.asked.is_none() || self.sent.is_some_and(|sent| now.since(sent) >= SILENT);
        if begins {
            self.asked = Some(now);
        }
        self.sent = Some(now);
    }

    /// The server says something.
    pub(super) const fn hear(&mut self) {
        self.asked = None;
    }

    /// Returns whether it has been silent for a minute; that is told once a minute.
    pub(super) fn is_long(&mut self, now: Time) -> bool {
        let long = self.asked.is_some_and(|asked| now.since(asked) >= SILENT);
        if long {
            self.asked = Some(now);
        }
        long
    }
}

/// A server sends keepalives far more often than this.
const SILENT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn it_begins_with_the_first_datagram_that_is_not_answered() {
        let mut silence = Silence::default();
        silence.ask(at(0));
        silence.hear();
        // An hour later somebody asks, and has no answer yet.
        silence.ask(at(3_600_000));
        assert!(!silence.is_long(at(3_600_000)));
        silence.ask(at(3_630_000));
        assert!(!silence.is_long(at(3_659_999)));
        assert!(silence.is_long(at(3_660_000)));
        assert!(!silence.is_long(at(3_719_999)), "told once a minute");
        assert!(silence.is_long(at(3_720_000)));
        silence.hear();
        assert!(!silence.is_long(at(9_000_000)));
    }

    #[test]
    fn a_question_that_was_lost_long_ago_does_not_count() {
        let mut silence = Silence::default();
        silence.ask(at(0));
        silence.ask(at(60_000));
        assert!(!silence.is_long(at(60_000)));
        // Who asks now and then counts.
        silence.ask(at(119_999));
        assert!(silence.is_long(at(120_000)));
    }
}
