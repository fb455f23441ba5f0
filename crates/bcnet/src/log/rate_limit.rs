//! Rate limits for log lines: lines of a flood are counted instead of written.

use std::mem;
use std::time::Duration;

use bcnet_session::{Rate, TokenBucket};
use bcnet_transport::Time;

/// Allows a burst of lines, then one line per interval.
#[derive(Debug)]
pub(crate) struct LogRateLimiter {
    rate: Rate,
    bucket: TokenBucket,
    held_back: u64,
}

impl LogRateLimiter {
    /// Allows `burst` lines at once, then one per interval.
    pub(crate) const fn new(burst: u32, every: Duration) -> Self {
        let rate = Rate::every(every, burst);
        Self { rate, bucket: TokenBucket::new(rate, Time::ZERO), held_back: 0 }
    }

    /// Returns how many lines were suppressed before this one, or `None` to suppress this one too.
    pub(crate) fn allow(&mut self, now: Time) -> Option<u64> {
        if self.bucket.take(1, self.rate, now) {
            return Some(mem::take(&mut self.held_back));
        }
        self.held_back += 1;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_flood_is_limited_and_the_rest_is_counted() {
        let mut limit = LogRateLimiter::new(3, Duration::from_secs(1));
        let at = |millis| Time::ZERO + Duration::from_millis(millis);
        let passed: Vec<_> = (0..10).map(|_| limit.allow(at(10))).collect();
        assert_eq!(passed[..4], [Some(0), Some(0), Some(0), None]);
        assert_eq!(limit.allow(at(1009)), None);
        assert_eq!(limit.allow(at(1010)), Some(8));
        assert_eq!(limit.allow(at(1011)), None);
        // A long quiet time does not allow more than one burst.
        let passed = (0..10).filter_map(|_| limit.allow(at(1_000_000))).count();
        assert_eq!(passed, 3);
    }
}
