//! The one place that reads the clock.

use std::thread;
use std::time::{Duration, Instant};

use bcnet_transport::Time;

/// Real time, the same for everyone in this process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    started: Instant,
}

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "a program has to read the clock somewhere")]
    pub(crate) fn start() -> Self {
        Self { started: Instant::now() }
    }

    /// Returns the time since the start; it never goes back.
    pub(crate) fn now(self) -> Time {
        Time::ZERO + self.started.elapsed()
    }

    pub(crate) fn sleep_until(self, time: Time) {
        thread::sleep(time.since(self.now()));
    }
}

/// Returns a time in milliseconds.
pub(crate) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
