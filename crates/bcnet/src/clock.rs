//! The one place that reads the clock.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bcnet_transport::Time;

/// Real time, as protocols want it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    started: Instant,
}

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "a program has to read the clock somewhere")]
    pub(crate) fn start() -> Self {
        Self { started: Instant::now() }
    }

    /// Since the start; it never goes back.
    pub(crate) fn now(&self) -> Time {
        Time::ZERO + self.started.elapsed()
    }

    /// Is ahead by so much from now on.
    #[cfg(test)]
    pub(crate) fn jump(&mut self, ahead: Duration) {
        self.started -= ahead;
    }
}

/// Returns the time since 1970 now, as the machine sees it now.
#[expect(clippy::disallowed_methods, reason = "a program has to read the clock somewhere")]
pub(crate) fn wall_now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
