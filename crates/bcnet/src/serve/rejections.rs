//! Logs rejected datagrams, rate limited: a flood gives a few lines.

use std::time::Duration;

use bcnet_session::Session;
use bcnet_transport::{RejectCause, Time};

use crate::log::LogRateLimiter;

/// Rejected datagrams that were already logged, by cause, and the rate limit of the log lines.
#[derive(Debug)]
pub(super) struct Rejections {
    logged: RejectionCounts,
    log_limiter: LogRateLimiter,
}

/// Rejected datagrams by cause: those of the transport, then [`OTHER_CAUSES`].
type RejectionCounts = [u64; RejectCause::ALL.len() + OTHER_CAUSES.len()];

impl Rejections {
    pub(super) fn new() -> Self {
        Self { logged: RejectionCounts::default(), log_limiter: LogRateLimiter::new(LOG_BURST, LOG_INTERVAL) }
    }

    /// Logs the datagrams rejected since the last report. `oversized` is the count of overlong datagrams.
    pub(super) fn report(&mut self, port: u16, session: &Session, oversized: u64, now: Time) {
        let counts = rejection_counts(session, oversized);
        if counts == self.logged || self.log_limiter.allow(now).is_none() {
            return;
        }
        let causes = RejectCause::ALL.iter().map(|cause| cause.name()).chain(OTHER_CAUSES);
        for ((cause, count), logged) in causes.zip(counts).zip(self.logged) {
            if count > logged {
                let datagrams = count - logged;
                tracing::warn!(event = "rejected", port, cause, datagrams);
            }
        }
        self.logged = counts;
    }

    /// Marks the present counts as logged, because a new session starts with other counts.
    pub(super) fn reset(&mut self, session: &Session, oversized: u64) {
        self.logged = rejection_counts(session, oversized);
    }
}

fn rejection_counts(session: &Session, oversized: u64) -> RejectionCounts {
    let (rejected, counters) = (session.rejected(), session.counters());
    let others = [oversized, counters.ignored, counters.queries_limited];
    let all = RejectCause::ALL.map(|cause| rejected.count(cause)).into_iter().chain(others);
    let mut counts = RejectionCounts::default();
    counts.iter_mut().zip(all).for_each(|(place, count)| *place = count);
    counts
}

/// Datagrams longer than the protocol allows; connect requests and queries above the rate limit.
const OTHER_CAUSES: [&str; 3] = ["oversized", "too_many_requests", "too_many_queries"];
const LOG_BURST: u32 = 5;
const LOG_INTERVAL: Duration = Duration::from_secs(10);
