//! Detects that the server does not answer.

use std::time::Duration;

use bcnet_transport::Time;

/// Tracks how long the server has been silent while clients send.
#[derive(Debug, Default)]
pub(super) struct UpstreamTimeout {
    /// The time of the first datagram without an answer, or of the last report that the server is silent.
    unanswered_since: Option<Time>,
    /// The time of the last datagram to the server.
    last_sent: Option<Time>,
}

impl UpstreamTimeout {
    /// Records a datagram to the server.
    pub(super) fn on_sent(&mut self, now: Time) {
        // After a pause of a minute, the time starts again: one unanswered datagram, such as a lost query of
        // a server browser, does not show that the server is down.
        let begins =
            self.unanswered_since.is_none() || self.last_sent.is_some_and(|sent| now.since(sent) >= TIMEOUT);
        if begins {
            self.unanswered_since = Some(now);
        }
        self.last_sent = Some(now);
    }

    /// Records a datagram from the server.
    pub(super) const fn on_received(&mut self) {
        self.unanswered_since = None;
    }

    /// Returns whether the server has answered nothing for a minute.
    ///
    /// While the server stays silent, this is `true` only once a minute.
    pub(super) fn check_expired(&mut self, now: Time) -> bool {
        let long = self.unanswered_since.is_some_and(|asked| now.since(asked) >= TIMEOUT);
        if long {
            self.unanswered_since = Some(now);
        }
        long
    }
}

/// The time limit. A server sends keepalives far more often than this.
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
        // An hour later a client sends, and the server has not answered yet.
        silence.on_sent(at(3_600_000));
        assert!(!silence.check_expired(at(3_600_000)));
        silence.on_sent(at(3_630_000));
        assert!(!silence.check_expired(at(3_659_999)));
        assert!(silence.check_expired(at(3_660_000)));
        assert!(!silence.check_expired(at(3_719_999)), "reported once a minute");
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
        // A client that sends within a minute keeps the timeout running.
        silence.on_sent(at(119_999));
        assert!(silence.check_expired(at(120_000)));
    }
}
