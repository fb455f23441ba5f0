//! How often a thing may be logged: floods are counted, not written.

use std::time::Duration;

use bcnet_transport::Time;

/// Lets a few through at once, and then one at a time.
#[derive(Debug)]
pub(crate) struct LineLimit {
    burst: u32,
    every: Duration,
    left: u32,
    since: Time,
    held_back: u64,
}

impl LineLimit {
    pub(crate) const fn new(burst: u32, every: Duration) -> Self {
        Self { burst, every, left: burst, since: Time::ZERO, held_back: 0 }
    }

    /// Whether this one may pass; if so, how many before it did not.
    pub(crate) fn pass(&mut self, now: Time) -> Option<u64> {
        // Asked often, answered seldom: the division waits.
        if now >= self.since + self.every {
            let turns = now.since(self.since).as_micros() / self.every.as_micros().max(1);
            self.left = self.burst.min(self.left.saturating_add(u32::try_from(turns).unwrap_or(u32::MAX)));
            self.since = now;
        }
        if self.left == 0 {
            self.held_back += 1;
            return None;
        }
        self.left -= 1;
        Some(std::mem::take(&mut self.held_back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_passes_at_its_rate_and_the_rest_is_counted() {
        let mut limit = LineLimit::new(3, Duration::from_secs(1));
        let at = |millis| Time::ZERO + Duration::from_millis(millis);
        let passed: Vec<_> = (0..10).map(|_| limit.pass(at(10))).collect();
        assert_eq!(passed[..4], [Some(0), Some(0), Some(0), None]);
        assert_eq!(limit.pass(at(999)), None);
        assert_eq!(limit.pass(at(1000)), Some(8));
        assert_eq!(limit.pass(at(1001)), None);
        // After a long quiet time no more than the burst.
        let passed = (0..10).filter_map(|_| limit.pass(at(1_000_000))).count();
        assert_eq!(passed, 3);
    }
}
