//! How long the server has not answered.

use std::time::Duration;

use bcnet_transport::Time;

/// Knows since when the server is silent although clients talk to it.
#[derive(Debug, Default)]
pub(super) struct UpstreamTimeout {
    /// When the first datagram left that was not answered.
    unanswered_since: Option<Time>,
    /// When the last one left.
    last_sent: Option<Time>,
}

impl UpstreamTimeout {
    /// A datagram goes to the server.
    pub(super) fn on_sent(&mut self, now: Time) {
        // What nobody asked about again, such as a browser's lost question, says nothing about the server.
        let begins =
            self.unanswered_since.is_none() || self.last_sent.is_some_and(|sent| now.since(sent) >= TIMEOUT);
        if begins {
            self.unanswered_since = Some(now);
        }
        self.last_sent = Some(now);
    }

    /// The server says something.
    pub(super) const fn on_received(&mut self) {
        self.unanswered_since = None;
    }

    /// Returns whether it has been silent for a minute; that is told once a minute.
    pub(super) fn check_expired(&mut self, now: Time) -> bool {
        let long = self.unanswered_since.is_some_and(|asked| now.since(asked) >= TIMEOUT);
        if long {
            self.unanswered_since = Some(now);
        }
        long
    }
}

/// A server sends keepalives far more often than this.
const TIMEOUT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn timeout_starts_at_first_unanswered_datagram() {
        let mut silence = UpstreamTimeout::default();
        silence.on_sent(at(0));
        silence.on_received();
        // An hour later somebody asks, and has no answer yet.
        silence.on_sent(at(3_600_000));
        assert!(!silence.check_expired(at(3_600_000)));
        silence.on_sent(at(3_630_000));
        assert!(!silence.check_expired(at(3_659_999)));
        assert!(silence.check_expired(at(3_660_000)));
        assert!(!silence.check_expired(at(3_719_999)), "told once a minute");
        assert!(silence.check_expired(at(3_720_000)));
        silence.on_received();
        assert!(!silence.check_expired(at(9_000_000)));
    }

    #[test]
    fn old_unanswered_datagram_does_not_count() {
        let mut silence = UpstreamTimeout::default();
        silence.on_sent(at(0));
        silence.on_sent(at(60_000));
        assert!(!silence.check_expired(at(60_000)));
        // Who asks now and then counts.
        silence.on_sent(at(119_999));
        assert!(silence.check_expired(at(120_000)));
    }
}
