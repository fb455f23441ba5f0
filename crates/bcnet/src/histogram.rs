//! Log-linear latency histograms in bounded memory.

use std::time::Duration;

use serde_json::{Value, json};

/// Counts of durations, in microseconds. Each range from `2^n` to `2^(n+1)` has `2^BITS` equal buckets.
///
/// The list of buckets ends at the longest duration so far. Its length grows with the logarithm of that
/// duration.
#[derive(Debug, Clone, Default)]
pub(crate) struct Histogram<const BITS: u32> {
    buckets: Vec<u64>,
    count: u64,
    max: Duration,
    sum: Duration,
}

impl<const BITS: u32> Histogram<BITS> {
    /// Adds `count` measurements of `time`.
    pub(crate) fn add(&mut self, time: Duration, count: u64) {
        let index = bucket_index(u64::try_from(time.as_micros()).unwrap_or(u64::MAX), BITS);
        if self.buckets.len() <= index {
            self.buckets.resize(index + 1, 0);
        }
        self.buckets[index] += count;
        self.count += count;
        self.max = self.max.max(time);
        self.sum += time.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
    }

    /// Adds all counts of another histogram.
    pub(crate) fn merge(&mut self, other: &Self) {
        if self.buckets.len() < other.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        for (count, others) in self.buckets.iter_mut().zip(&other.buckets) {
            *count += others;
        }
        self.count += other.count;
        self.max = self.max.max(other.max);
        self.sum += other.sum;
    }

    /// Returns the counts since `earlier`, which is an older copy of this histogram.
    ///
    /// The maximum is exact to the width of a bucket.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let mut since = self.clone();
        for (count, before) in since.buckets.iter_mut().zip(&earlier.buckets) {
            *count -= before;
        }
        let longest = since.buckets.iter().rposition(|count| *count > 0);
        since.max = longest.map_or(Duration::ZERO, |index| {
            Duration::from_micros(bucket_upper_bound(index, BITS)).min(self.max)
        });
        since.count -= earlier.count;
        since.sum = since.sum.saturating_sub(earlier.sum);
        since
    }

    /// Sets all counts to zero, and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.buckets.fill(0);
        (self.count, self.max, self.sum) = (0, Duration::ZERO, Duration::ZERO);
    }

    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    pub(crate) const fn max(&self) -> Duration {
        self.max
    }

    /// Returns the sum of all durations.
    pub(crate) const fn sum(&self) -> Duration {
        self.sum
    }

    /// Returns how many durations were at most `most`.
    ///
    /// Leaves out the bucket that contains `most`, unless the bucket ends there.
    pub(crate) fn count_up_to(&self, most: Duration) -> u64 {
        let most = u64::try_from(most.as_micros()).unwrap_or(u64::MAX);
        let is_within = |index: &usize| bucket_upper_bound(*index, BITS) <= most;
        self.buckets
            .iter()
            .enumerate()
            .take_while(|(index, _)| is_within(index))
            .map(|(_, count)| count)
            .sum()
    }

    /// Returns the duration that the fraction `share` of all durations did not exceed. Zero without any.
    ///
    /// The result is the upper end of a bucket, so it can be too long by the width of that bucket.
    pub(crate) fn quantile(&self, share: f64) -> Duration {
        let wanted = ((self.count as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        let index = self.buckets.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        index.map_or(Duration::ZERO, |index| {
            Duration::from_micros(bucket_upper_bound(index, BITS)).min(self.max)
        })
    }

    /// Returns the histogram as JSON, in microseconds.
    pub(crate) fn json(&self) -> Value {
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

/// Returns the index of the bucket that contains a number.
///
/// Numbers below `2^(bits + 1)` have a bucket each. For other numbers, the bit length and the first
/// `bits + 1` bits determine the bucket.
const fn bucket_index(micros: u64, bits: u32) -> usize {
    let shift = (u64::BITS - micros.leading_zeros()).saturating_sub(bits + 1);
    ((shift as u64) << bits) as usize + (micros >> shift) as usize
}

/// Returns the largest number of a bucket.
const fn bucket_upper_bound(index: usize, bits: u32) -> u64 {
    let index = index as u64;
    let shift = (index >> bits).saturating_sub(1);
    let lead = index - (shift << bits);
    (lead << shift) + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_bounds_are_close_to_every_value() {
        let large = (13..64).flat_map(|bits| [(1 << bits) - 1, 1 << bits, 3 << (bits - 1)]);
        let numbers: Vec<u64> = (0..5000).chain(large).collect();
        for bits in [3, 5] {
            let mut last = 0;
            for &micros in &numbers {
                let index = bucket_index(micros, bits);
                assert!(index >= last, "{micros}");
                last = index;
                let upper = bucket_upper_bound(index, bits);
                assert!(
                    upper >= micros && upper - micros <= micros >> bits,
                    "{micros} is in a bucket up to {upper}"
                );
            }
            assert_eq!(bucket_upper_bound(bucket_index(u64::MAX, bits), bits), u64::MAX);
        }
    }

    #[test]
    fn quantiles_match_a_sorted_list() {
        let mut histogram = Histogram::<5>::default();
        assert_eq!((histogram.quantile(0.5), histogram.max()), (Duration::ZERO, Duration::ZERO));
        (1..=1000).for_each(|millis| histogram.add(Duration::from_millis(millis), 1));
        for (share, millis) in [(0.5, 500.0), (0.95, 950.0), (0.99, 990.0), (1.0, 1000.0)] {
            let found = histogram.quantile(share).as_secs_f64() * 1e3;
            assert!((millis..=millis * 1.032).contains(&found), "{share}: {found}");
        }
        assert_eq!(histogram.sum(), Duration::from_millis(500_500));
        assert!((480..=500).contains(&histogram.count_up_to(Duration::from_millis(500))));
        assert_eq!(histogram.count_up_to(Duration::from_secs(2)), 1000);
        let mut both = Histogram::<5>::default();
        both.add(Duration::from_secs(3), 1);
        both.merge(&histogram);
        assert_eq!((both.count(), both.max()), (1001, Duration::from_secs(3)));
        assert_eq!(both.quantile(1.0), Duration::from_secs(3));
        let since = both.since(&histogram);
        assert_eq!((since.count(), since.sum()), (1, Duration::from_secs(3)));
        assert_eq!((since.quantile(0.5), both.since(&both).max()), (Duration::from_secs(3), Duration::ZERO));
        both.clear();
        assert_eq!((both.count(), both.quantile(0.5)), (0, Duration::ZERO));
    }
}
