//! Datagrams that had no effect: floods become a few lines of the log.

use std::time::Duration;

use bcnet_session::Session;
use bcnet_transport::{RejectCause, Time};

use crate::log::LogRateLimiter;

/// What the log has told of datagrams without effect.
#[derive(Debug)]
pub(super) struct Rejections {
    logged: RejectionCounts,
    log_limiter: LogRateLimiter,
}

/// Datagrams that had no effect so far, by the causes of the transport and then [`OTHER_CAUSES`].
type RejectionCounts = [u64; RejectCause::ALL.len() + OTHER_CAUSES.len()];

impl Rejections {
    pub(super) fn new() -> Self {
        Self { logged: RejectionCounts::default(), log_limiter: LogRateLimiter::new(LOG_BURST, LOG_INTERVAL) }
    }

    /// Tells what had no effect since the last time, now and then; so many datagrams were too long so far.
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

    /// Another session begins, which has its own counts.
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

/// Longer than any of the protocol; too many who ask to be let in; too many questions of browsers.
const OTHER_CAUSES: [&str; 3] = ["oversized", "too_many_requests", "too_many_queries"];
const LOG_BURST: u32 = 5;
const LOG_INTERVAL: Duration = Duration::from_secs(10);
