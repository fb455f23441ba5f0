//! Round-trip estimate, retransmission timeout and congestion window.
//!
//! This module implements [T-61] and [T-63]. Times are in microseconds.
//!
//! [T-61]: bcnet_wire::protocol#t-61
//! [T-63]: bcnet_wire::protocol#t-63

use crate::config::Config;
use crate::time::Time;

/// The round-trip time estimate of one peer (RFC 6298), and the retransmission timeout.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RttEstimator {
    /// Zero before the first sample.
    smoothed: u32,
    variation: u32,
    min: u32,
}

impl RttEstimator {
    /// Adds a measured round-trip time.
    ///
    /// Only messages that were sent once are measured, so that a sample is never ambiguous (T-61, Karn's
    /// rule).
    pub(crate) fn add_sample(&mut self, micros: u64) {
        let sample = u32::try_from(micros).unwrap_or(u32::MAX).clamp(1, MAX_SAMPLE);
        if self.smoothed == 0 {
            *self = Self { smoothed: sample, variation: sample / 2, min: sample };
            return;
        }
        let error = self.smoothed.abs_diff(sample);
        self.variation = self.variation - self.variation / 4 + error / 4;
        self.smoothed = self.smoothed - self.smoothed / 8 + sample / 8;
        self.min = self.min.min(sample);
    }

    /// Raises the minimum round-trip time a little, so that a change of route is detected.
    const fn drift_min(&mut self) {
        // Limited to the largest sample, even if no sample arrives for long.
        let least = self.min + self.min / 1024;
        self.min = if least < MAX_SAMPLE { least } else { MAX_SAMPLE };
    }

    pub(crate) const fn smoothed(&self) -> Option<u32> {
        if self.smoothed == 0 { None } else { Some(self.smoothed) }
    }

    pub(crate) const fn variation(&self) -> u32 {
        self.variation
    }

    pub(crate) const fn min(&self) -> u32 {
        self.min
    }

    /// Returns whether the round-trip time shows that a queue builds up on the path or at the peer.
    pub(crate) fn is_queue_building(&self) -> bool {
        let queued = self.smoothed.saturating_sub(self.min);
        u64::from(queued) > u64::from(self.min).max(SHRINK_QUEUE_DELAY)
    }

    /// Returns whether the queue on the path delays urgent messages too much.
    pub(crate) fn delays_urgent_messages(&self) -> bool {
        u64::from(self.smoothed.saturating_sub(self.min))
            > u64::from(self.min).clamp(SHRINK_QUEUE_DELAY, MAX_URGENT_DELAY)
    }

    /// Returns the retransmission timeout.
    pub(crate) fn rto(&self, config: &Config<u64>) -> u64 {
        if self.smoothed == 0 {
            return config.initial_rto;
        }
        let margin = u64::from(self.smoothed / 16).clamp(MIN_MARGIN, MAX_MARGIN);
        let timeout = u64::from(self.smoothed) + (4 * u64::from(self.variation)).max(margin);
        timeout.max(config.min_rto).min(config.max_rto)
    }
}

/// The congestion window of one peer: the maximum of unacknowledged bytes in flight (T-63).
///
/// The window grows while the round-trip time stays near its minimum. It shrinks when the round-trip time
/// shows that a queue builds up on the path, or when most sent bytes are lost. Loss alone does not shrink
/// it: on a lossy link that would starve the game without any benefit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CongestionController {
    window: u32,
    /// Bytes that were acknowledged and lost since `review_start`.
    acked: u32,
    lost: u32,
    review_start: Time,
}

impl CongestionController {
    pub(crate) fn new(config: &Config<u64>) -> Self {
        let bytes = u32::try_from(config.initial_window).unwrap_or(u32::MAX);
        Self { window: bytes, acked: 0, lost: 0, review_start: Time::ZERO }
    }

    pub(crate) const fn window(&self) -> usize {
        self.window as usize
    }

    /// Handles an ACK of `bytes`, with `in_flight` bytes before it and a round-trip time `sample`.
    pub(crate) fn on_ack(
        &mut self,
        bytes: usize,
        in_flight: usize,
        sample: Option<u64>,
        rtt: &RttEstimator,
        config: &Config<u64>,
    ) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.acked = self.acked.saturating_add(bytes);
        let Some(sample) = sample else { return };
        let least = u64::from(rtt.min);
        let waited = sample.saturating_sub(least);
        let used = 2 * in_flight >= self.window();
        if used && waited < (least / 4).max(GROWTH_QUEUE_DELAY) {
            let max = u32::try_from(config.max_window).unwrap_or(u32::MAX);
            self.window = self.window.saturating_add(bytes).min(max);
        }
    }

    /// Counts `bytes` as lost.
    pub(crate) fn on_loss(&mut self, bytes: usize) {
        self.lost = self.lost.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
    }

    /// Checks once per round-trip time whether the window must shrink.
    #[inline]
    pub(crate) fn review(&mut self, rtt: &mut RttEstimator, config: &Config<u64>, now: Time) {
        if now.micros_since(self.review_start) < u64::from(rtt.smoothed).max(MIN_REVIEW_INTERVAL) {
            return;
        }
        self.review_now(rtt, config, now);
    }

    fn review_now(&mut self, rtt: &mut RttEstimator, config: &Config<u64>, now: Time) {
        let total = self.acked.saturating_add(self.lost);
        let mostly_lost = total >= MIN_LOSS_SAMPLE && self.lost > total / 2;
        if rtt.is_queue_building() || mostly_lost {
            let least = u32::try_from(MIN_WINDOW_DATAGRAMS * config.datagram_limit).unwrap_or(u32::MAX);
            self.window = (self.window - self.window / 4).max(least.min(self.window));
        }
        if total > 0 {
            rtt.drift_min();
        }
        (self.acked, self.lost, self.review_start) = (0, 0, now);
    }
}

/// The minimum margin of a timeout if the round-trip time does not vary.
const MIN_MARGIN: u64 = 1_000;
const MAX_MARGIN: u64 = 5_000;
const MAX_SAMPLE: u32 = 60_000_000;
/// The queueing delay from which on the window does not grow.
const GROWTH_QUEUE_DELAY: u64 = 10_000;
/// The queueing delay from which on the window shrinks.
const SHRINK_QUEUE_DELAY: u64 = 40_000;
/// The maximum queueing delay for urgent messages, even on a long path.
const MAX_URGENT_DELAY: u64 = 80_000;
const MIN_REVIEW_INTERVAL: u64 = 20_000;
const MIN_LOSS_SAMPLE: u32 = 8 * 512;
const MIN_WINDOW_DATAGRAMS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    /// T-63: the minimum round-trip time rises at most to the largest sample, even without any sample.
    #[test]
    fn min_rtt_drift_is_bounded() {
        let mut estimator = RttEstimator::default();
        estimator.add_sample(50_000);
        for _ in 0..100_000 {
            estimator.drift_min();
        }
        assert_eq!((estimator.min(), estimator.smoothed()), (MAX_SAMPLE, Some(50_000)));
        estimator.add_sample(40_000);
        assert_eq!(estimator.min(), 40_000);
    }
}
