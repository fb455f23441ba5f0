//! Measured delays, and waiting.

use std::thread;
use std::time::Duration;

use bcnet_transport::Time;
use bcnet_udp::Clock;

/// Measured delays. It stores all samples, because there are few.
#[derive(Debug, Clone, Default)]
pub(crate) struct DelaySamples(Vec<Duration>);

impl DelaySamples {
    pub(crate) fn add(&mut self, delay: Duration) {
        self.0.push(delay);
    }

    pub(crate) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the smallest delay that this share of the samples does not exceed; zero without samples.
    pub(crate) fn quantile(&self, share: f64) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let at = ((sorted.len() as f64 * share).ceil() as usize).saturating_sub(1);
        sorted.get(at).copied().unwrap_or_default()
    }
}

/// Waits until the clock shows this time.
pub(crate) fn sleep_until(clock: Clock, time: Time) {
    thread::sleep(time.since(clock.now()));
}

/// Returns a time in milliseconds.
pub(crate) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_match_a_sorted_list() {
        let mut delays = DelaySamples::default();
        assert_eq!(delays.quantile(0.5), Duration::ZERO);
        (1..=100).rev().for_each(|millis| delays.add(Duration::from_millis(millis)));
        let found = [0.5, 0.99, 1.0].map(|share| delays.quantile(share).as_millis());
        assert_eq!(found, [50, 99, 100]);
    }
}
