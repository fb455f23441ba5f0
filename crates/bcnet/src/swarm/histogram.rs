//! How often which time was measured, in bounded memory.

use std::time::Duration;

use serde_json::{Value, json};

/// Counts of times, to within three in a hundred: each power of two of microseconds has so many buckets of one width.
#[derive(Debug, Clone)]
pub(super) struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    max: Duration,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: vec![0; place(u64::MAX) + 1], count: 0, max: Duration::ZERO }
    }
}

impl Histogram {
    pub(super) fn add(&mut self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.buckets.get_mut(place(micros)).into_iter().for_each(|count| *count += 1);
        self.count += 1;
        self.max = self.max.max(time);
    }

    /// Adds all that another has counted.
    pub(super) fn merge(&mut self, other: &Self) {
        for (count, others) in self.buckets.iter_mut().zip(&other.buckets) {
            *count += others;
        }
        self.count += other.count;
        self.max = self.max.max(other.max);
    }

    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    pub(super) const fn max(&self) -> Duration {
        self.max
    }

    /// Returns the time that this share of all did not exceed; zero if there is none.
    pub(super) fn quantile(&self, share: f64) -> Duration {
        let wanted = ((self.count as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        let place = self.buckets.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        place.map_or(Duration::ZERO, |place| Duration::from_micros(upper(place)).min(self.max))
    }

    /// For scripts: microseconds.
    pub(super) fn json(&self) -> Value {
        let micros = |time: Duration| time.as_micros() as u64;
        json!({
            "count": self.count,
            "p50": micros(self.quantile(0.5)),
            "p95": micros(self.quantile(0.95)),
            "p99": micros(self.quantile(0.99)),
            "max": micros(self.max),
        })
    }
}

/// Returns the bucket of a number: itself if it is small, otherwise its length in bits and its leading ones.
const fn place(micros: u64) -> usize {
    let shift = (u64::BITS - micros.leading_zeros()).saturating_sub(STEP_BITS + 1);
    ((shift as u64) << STEP_BITS) as usize + (micros >> shift) as usize
}

/// Returns the largest number of a bucket.
const fn upper(place: usize) -> u64 {
    let place = place as u64;
    let shift = (place >> STEP_BITS).saturating_sub(1);
    let lead = place - (shift << STEP_BITS);
    (lead << shift) + ((1 << shift) - 1)
}

/// Buckets per power of two, as a power of two.
const STEP_BITS: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_a_bucket_that_is_not_far_from_it() {
        let large = (13..64).flat_map(|bits| [(1 << bits) - 1, 1 << bits, 3 << (bits - 1)]);
        let mut last = 0;
        for micros in (0..5000).chain(large) {
            let place = place(micros);
            assert!(place >= last, "{micros}");
            last = place;
            let upper = upper(place);
            assert!(
                upper >= micros && upper - micros <= micros / 32,
                "{micros} is in a bucket up to {upper}"
            );
        }
        assert_eq!(upper(place(u64::MAX)), u64::MAX);
    }

    #[test]
    fn quantiles_are_those_of_a_sorted_list() {
        let mut histogram = Histogram::default();
        assert_eq!((histogram.quantile(0.5), histogram.max()), (Duration::ZERO, Duration::ZERO));
        (1..=1000).for_each(|millis| histogram.add(Duration::from_millis(millis)));
        for (share, millis) in [(0.5, 500.0), (0.95, 950.0), (0.99, 990.0), (1.0, 1000.0)] {
            let found = histogram.quantile(share).as_secs_f64() * 1e3;
            assert!((millis..=millis * 1.032).contains(&found), "{share}: {found}");
        }
        let mut both = Histogram::default();
        both.add(Duration::from_secs(3));
        both.merge(&histogram);
        assert_eq!((both.count(), both.max()), (1001, Duration::from_secs(3)));
        assert_eq!(both.quantile(1.0), Duration::from_secs(3));
    }
}
