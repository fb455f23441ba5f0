//! Collects values over time in a bounded number of intervals.
//!
//! The longer the capture, the longer the intervals.

/// The values of one side in one interval.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct SeriesInterval {
    pub(super) bytes: u64,
    pub(super) ack_bytes: u64,
    pub(super) retransmissions: u64,
    /// Messages that waited for an ACK.
    pub(super) unacknowledged: IntervalGauge,
    /// ACKs in the outbox.
    pub(super) pending_acks: IntervalGauge,
    /// The size of the largest datagram in bytes.
    pub(super) largest_datagram: u64,
    /// The round-trip time in microseconds, if one was measured.
    pub(super) round_trip_micros: Option<IntervalGauge>,
}

impl SeriesInterval {
    fn merge(self, later: Self) -> Self {
        Self {
            bytes: self.bytes + later.bytes,
            ack_bytes: self.ack_bytes + later.ack_bytes,
            retransmissions: self.retransmissions + later.retransmissions,
            unacknowledged: self.unacknowledged.merge(later.unacknowledged),
            pending_acks: self.pending_acks.merge(later.pending_acks),
            largest_datagram: self.largest_datagram.max(later.largest_datagram),
            round_trip_micros: match (self.round_trip_micros, later.round_trip_micros) {
                (Some(one), Some(other)) => Some(one.merge(other)),
                (one, other) => other.or(one),
            },
        }
    }

    /// Returns the next interval if nothing happens in it: gauges keep their last value.
    fn carry_over(self) -> Self {
        let (unacknowledged, pending_acks) =
            (self.unacknowledged.carry_over(), self.pending_acks.carry_over());
        Self {
            unacknowledged,
            pending_acks,
            round_trip_micros: self.round_trip_micros.map(IntervalGauge::carry_over),
            ..Self::default()
        }
    }
}

/// The maximum and the last value of a gauge in an interval.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct IntervalGauge {
    pub(super) max: u64,
    last: u64,
}

impl IntervalGauge {
    pub(super) fn set(&mut self, count: u64) {
        *self = Self { max: self.max.max(count), last: count };
    }

    fn merge(self, later: Self) -> Self {
        Self { max: self.max.max(later.max), last: later.last }
    }

    const fn carry_over(self) -> Self {
        Self { max: self.last, last: self.last }
    }
}

/// The intervals of one side.
#[derive(Debug, Clone)]
pub(super) struct ReportSeries {
    start: u64,
    /// The length of an interval in microseconds.
    width: u64,
    intervals: Vec<SeriesInterval>,
}

impl ReportSeries {
    pub(super) const fn new(start: u64) -> Self {
        Self { start, width: MIN_WIDTH, intervals: Vec::new() }
    }

    pub(super) const fn width(&self) -> u64 {
        self.width
    }

    pub(super) fn intervals(&self) -> &[SeriesInterval] {
        &self.intervals
    }

    /// Returns the interval of a time.
    pub(super) fn interval_at(&mut self, micros: u64) -> &mut SeriesInterval {
        let since = micros.saturating_sub(self.start);
        while since / self.width >= MAX_INTERVALS as u64 {
            self.widen();
        }
        let place = usize::try_from(since / self.width).unwrap_or(0);
        if self.intervals.len() <= place {
            let next = self.intervals.last().copied().map(SeriesInterval::carry_over).unwrap_or_default();
            self.intervals.resize(place + 1, next);
        }
        &mut self.intervals[place]
    }

    /// Merges every two intervals into one.
    fn widen(&mut self) {
        self.width *= 2;
        self.intervals = self
            .intervals
            .chunks(2)
            .filter_map(|pair| pair.iter().copied().reduce(SeriesInterval::merge))
            .collect();
    }

    /// Makes the intervals at least this long.
    pub(super) fn widen_to(&mut self, width: u64) {
        while self.width < width {
            self.widen();
        }
    }
}

/// The shortest interval in microseconds. Doubling it gives short numbers: 0.1 s, 0.2 s, 0.4 s.
const MIN_WIDTH: u64 = 50_000;
const MAX_INTERVALS: usize = 600;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_capture_widens_intervals_without_losing_counts() {
        let mut series = ReportSeries::new(5_000_000);
        for second in 0..1000 {
            series.interval_at(5_000_000 + second * 1_000_000).bytes += 3;
            series.interval_at(5_000_000 + second * 1_000_000).pending_acks.set(second);
        }
        assert_eq!(series.width(), 3_200_000);
        assert_eq!(series.intervals().len(), 313);
        assert_eq!(series.intervals().iter().map(|step| step.bytes).sum::<u64>(), 3000);
        assert_eq!((series.intervals()[0].bytes, series.intervals()[0].pending_acks.max), (12, 3));
    }

    #[test]
    fn gauges_carry_over_while_nothing_is_sent() {
        let mut series = ReportSeries::new(0);
        let step = series.interval_at(0);
        step.bytes = 100;
        step.round_trip_micros.get_or_insert_default().set(30_000);
        // Eight messages waited, then three.
        step.unacknowledged.set(8);
        step.unacknowledged.set(3);
        series.interval_at(175_000).unacknowledged.set(0);
        series.interval_at(275_000).bytes = 1;
        let most: Vec<u64> = series.intervals().iter().map(|step| step.unacknowledged.max).collect();
        assert_eq!(most, [8, 3, 3, 3, 0, 0]);
        let bytes: Vec<u64> = series.intervals().iter().map(|step| step.bytes).collect();
        assert_eq!(bytes, [100, 0, 0, 0, 0, 1]);
        assert!(
            series
                .intervals()
                .iter()
                .all(|step| step.round_trip_micros.is_some_and(|trip| trip.max == 30_000))
        );
        series.widen_to(100_000);
        let most: Vec<u64> = series.intervals().iter().map(|step| step.unacknowledged.max).collect();
        assert_eq!(most, [8, 3, 0]);
    }
}
