//! When to send again, and how much may be under way: round-trip estimate, timeout, budget.
//!
//! Owns T-61 and T-63. Times are microseconds.

use crate::config::Config;
use crate::time::Time;

/// The measured round trip to one peer (RFC 6298), and the timeout that follows from it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RoundTrip {
    /// Zero before the first sample.
    smoothed: u32,
    variation: u32,
    least: u32,
}

impl RoundTrip {
    /// T-61: only messages that were sent once are measured, so that a sample is never ambiguous (Karn's rule).
    pub(crate) fn sample(&mut self, micros: u64) {
        let sample = u32::try_from(micros).unwrap_or(u32::MAX).clamp(1, MAX_SAMPLE);
        if self.smoothed == 0 {
            *self = Self { smoothed: sample, variation: sample / 2, least: sample };
            return;
        }
        let error = self.smoothed.abs_diff(sample);
        self.variation = self.variation - self.variation / 4 + error / 4;
        self.smoothed = self.smoothed - self.smoothed / 8 + sample / 8;
        self.least = self.least.min(sample);
    }

    /// Lets the least round trip rise a little, so that a change of route is found.
    const fn drift(&mut self) {
        // Not beyond the longest there can be, however long nothing is measured.
        let least = self.least + self.least / 1024;
        self.least = if least < MAX_SAMPLE { least } else { MAX_SAMPLE };
    }

    pub(crate) const fn smoothed(&self) -> Option<u32> {
        if self.smoothed == 0 { None } else { Some(self.smoothed) }
    }

    pub(crate) const fn variation(&self) -> u32 {
        self.variation
    }

    pub(crate) const fn least(&self) -> u32 {
        self.least
    }

    /// Returns whether round trips are so long that a queue must have built up on the way, or at the peer.
    pub(crate) fn is_queueing(&self) -> bool {
        let queued = self.smoothed.saturating_sub(self.least);
        u64::from(queued) > u64::from(self.least).max(QUEUE_HURTS)
    }

    /// Returns whether they are so long that what cannot wait is late for what can.
    pub(crate) fn delays_words(&self) -> bool {
        u64::from(self.smoothed.saturating_sub(self.least))
            > u64::from(self.least).clamp(QUEUE_HURTS, MAX_QUEUE)
    }

    /// Returns how long to wait for an ACK.
    pub(crate) fn timeout(&self, config: &Config<u64>) -> u64 {
        if self.smoothed == 0 {
            return config.first_timeout;
        }
        let margin = u64::from(self.smoothed / 16).clamp(MIN_MARGIN, MAX_MARGIN);
        let timeout = u64::from(self.smoothed) + (4 * u64::from(self.variation)).max(margin);
        timeout.max(config.min_timeout).min(config.max_timeout)
    }
}

/// How many unacknowledged bytes may be under way to one peer (T-63).
///
/// It grows while the round trip stays near its least, and shrinks when the round trip shows that a queue builds up
/// on the way, or when most of what was sent is lost. Loss alone does not shrink it: on a lossy link that would
/// starve the game without helping anyone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    bytes: u32,
    /// Bytes that were acknowledged and lost since `since`.
    delivered: u32,
    lost: u32,
    since: Time,
}

impl Budget {
    pub(crate) fn new(config: &Config<u64>) -> Self {
        let bytes = u32::try_from(config.first_budget).unwrap_or(u32::MAX);
        Self { bytes, delivered: 0, lost: 0, since: Time::ZERO }
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes as usize
    }

    /// `bytes` arrived of `in_flight`, and the round trip was measured as `sample`.
    pub(crate) fn acknowledged(
        &mut self,
        bytes: usize,
        in_flight: usize,
        sample: Option<u64>,
        trip: &RoundTrip,
        config: &Config<u64>,
    ) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.delivered = self.delivered.saturating_add(bytes);
        let Some(sample) = sample else { return };
        let least = u64::from(trip.least);
        let waited = sample.saturating_sub(least);
        let used = 2 * in_flight >= self.bytes();
        if used && waited < (least / 4).max(QUEUE_BEGINS) {
            let max = u32::try_from(config.max_budget).unwrap_or(u32::MAX);
            self.bytes = self.bytes.saturating_add(bytes).min(max);
        }
    }

    /// `bytes` did not arrive.
    pub(crate) fn lost(&mut self, bytes: usize) {
        self.lost = self.lost.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
    }

    /// Once per round trip: is what is under way too much?
    #[inline]
    pub(crate) fn review(&mut self, trip: &mut RoundTrip, config: &Config<u64>, now: Time) {
        if now.micros_since(self.since) < u64::from(trip.smoothed).max(MIN_REVIEW) {
            return;
        }
        self.review_now(trip, config, now);
    }

    fn review_now(&mut self, trip: &mut RoundTrip, config: &Config<u64>, now: Time) {
        let total = self.delivered.saturating_add(self.lost);
        let mostly_lost = total >= ENOUGH_TO_JUDGE && self.lost > total / 2;
        if trip.is_queueing() || mostly_lost {
            let least = u32::try_from(MIN_DATAGRAMS * config.datagram_limit).unwrap_or(u32::MAX);
            self.bytes = (self.bytes - self.bytes / 4).max(least.min(self.bytes));
        }
        if total > 0 {
            trip.drift();
        }
        (self.delivered, self.lost, self.since) = (0, 0, now);
    }
}

/// What a timeout adds to a round trip that never varies.
const MIN_MARGIN: u64 = 1_000;
const MAX_MARGIN: u64 = 5_000;
const MAX_SAMPLE: u32 = 60_000_000;
/// Extra round trip from which on nothing more is added.
const QUEUE_BEGINS: u64 = 10_000;
/// Extra round trip from which on less is sent.
const QUEUE_HURTS: u64 = 40_000;
/// However long the way is, words are late by no more.
const MAX_QUEUE: u64 = 80_000;
const MIN_REVIEW: u64 = 20_000;
const ENOUGH_TO_JUDGE: u32 = 8 * 512;
const MIN_DATAGRAMS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    /// T-63: the least round trip rises only as far as a sample can be, however long there is none.
    #[test]
    fn the_least_round_trip_does_not_rise_without_end() {
        let mut trip = RoundTrip::default();
        trip.sample(50_000);
        for _ in 0..100_000 {
            trip.drift();
        }
        assert_eq!((trip.least(), trip.smoothed()), (MAX_SAMPLE, Some(50_000)));
        trip.sample(40_000);
        assert_eq!(trip.least(), 40_000);
    }
}
