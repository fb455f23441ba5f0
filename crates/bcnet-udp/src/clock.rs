//! The clocks of the system, in the form that protocols need.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bcnet_transport::Time;

/// A monotonic clock that gives the [`Time`] since its start.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    started: Instant,
    /// The sum of all jumps. `started` cannot be moved back instead: on some systems an `Instant` counts
    /// from boot and cannot be earlier.
    #[cfg(feature = "faults")]
    ahead: Duration,
}

impl Clock {
    /// Returns a clock that starts now, at zero.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "a program has to read the clock somewhere")]
    pub fn start() -> Self {
        Self {
            started: Instant::now(),
            #[cfg(feature = "faults")]
            ahead: Duration::ZERO,
        }
    }

    /// Returns the time since the start; it never goes back.
    #[must_use]
    pub fn now(&self) -> Time {
        let elapsed = self.started.elapsed();
        #[cfg(feature = "faults")]
        let elapsed = elapsed + self.ahead;
        Time::ZERO + elapsed
    }

    /// Moves the clock forward by `ahead`, for tests.
    #[cfg(feature = "faults")]
    pub fn jump(&mut self, ahead: Duration) {
        self.ahead += ahead;
    }
}

/// Returns the time since 1970 on the wall clock. An administrator may set that clock back or ahead.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "a program has to read the clock somewhere")]
pub fn wall_now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Returns whether a time service synchronizes the clock of [`wall_now`], if the system knows that.
#[must_use]
pub fn is_wall_clock_synchronized() -> Option<bool> {
    #[cfg(target_os = "linux")]
    return crate::linux::is_clock_synchronized();
    #[cfg(not(target_os = "linux"))]
    None
}
