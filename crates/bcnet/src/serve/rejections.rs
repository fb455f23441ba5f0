//! Datagrams that had no effect: floods become a few lines of the log.

use std::time::Duration;

use bcnet_session::Session;
use bcnet_transport::{Cause, Time};

use crate::log::LineLimit;

/// What the log has told of datagrams without effect.
#[derive(Debug)]
pub(super) struct Rejections {
    told: Counts,
    lines: LineLimit,
}

/// Datagrams that had no effect so far, by the causes of the transport and then [`OTHER_CAUSES`].
type Counts = [u64; Cause::ALL.len() + OTHER_CAUSES.len()];

impl Rejections {
    pub(super) fn new() -> Self {
        Self { told: Counts::default(), lines: LineLimit::new(LINES_AT_ONCE, LINES_EVERY) }
    }

    /// Tells what had no effect since the last time, now and then; so many datagrams were too long so far.
    pub(super) fn report(&mut self, port: u16, session: &Session, oversized: u64, now: Time) {
        let counts = counts(session, oversized);
        if counts == self.told || self.lines.pass(now).is_none() {
            return;
        }
        let causes = Cause::ALL.iter().map(|cause| cause.name()).chain(OTHER_CAUSES);
        for ((cause, count), told) in causes.zip(counts).zip(self.told) {
            if count > told {
                let datagrams = count - told;
                tracing::warn!(event = "rejected", port, cause, datagrams);
            }
        }
        self.told = counts;
    }

    /// Another session begins, which has its own counts.
    pub(super) fn skip_to(&mut self, session: &Session, oversized: u64) {
        self.told = counts(session, oversized);
    }
}

fn counts(session: &Session, oversized: u64) -> Counts {
    let (rejected, counters) = (session.rejected(), session.counters());
    let others = [oversized, counters.ignored, counters.queries_limited];
    let all = Cause::ALL.map(|cause| rejected.count(cause)).into_iter().chain(others);
    let mut counts = Counts::default();
    counts.iter_mut().zip(all).for_each(|(place, count)| *place = count);
    counts
}

/// Longer than any of the protocol; too many who ask to be let in; too many questions of browsers.
const OTHER_CAUSES: [&str; 3] = ["oversized", "too_many_requests", "too_many_queries"];
const LINES_AT_ONCE: u32 = 5;
const LINES_EVERY: Duration = Duration::from_secs(10);
