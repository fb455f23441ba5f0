//! The one place that reads the clock.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bcnet_transport::Time;

/// Real time, as protocols and files want it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    started: Instant,
    wall: Duration,
}

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "a program has to read the clock somewhere")]
    pub(crate) fn start() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { started: Instant::now(), wall }
    }

    /// Since the start; it never goes back.
    pub(crate) fn now(&self) -> Time {
        Time::ZERO + self.started.elapsed()
    }

    /// Returns the time since 1970 that `time` was, if nobody has set the clock since the start.
    pub(crate) fn wall(&self, time: Time) -> Duration {
        self.wall + time.since(Time::ZERO)
    }
}

/// Returns the time since 1970 now, as the machine sees it now.
#[expect(clippy::disallowed_methods, reason = "a program has to read the clock somewhere")]
pub(crate) fn wall_now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
