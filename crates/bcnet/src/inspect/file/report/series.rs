//! Numbers over time, in as many steps as fit a plot: the longer the capture, the longer the steps.

/// What happened in one step of time, on one side.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Step {
    pub(super) bytes: u64,
    pub(super) ack_bytes: u64,
    pub(super) retransmissions: u64,
    /// Messages that waited for an ACK.
    pub(super) waiting: Gauge,
    /// ACKs in the outbox.
    pub(super) owed: Gauge,
    /// The fullest datagram, in bytes.
    pub(super) fullest: u64,
    /// The round trip in microseconds, once there was one.
    pub(super) round_trip: Option<Gauge>,
}

impl Step {
    fn join(self, later: Self) -> Self {
        Self {
            bytes: self.bytes + later.bytes,
            ack_bytes: self.ack_bytes + later.ack_bytes,
            retransmissions: self.retransmissions + later.retransmissions,
            waiting: self.waiting.join(later.waiting),
            owed: self.owed.join(later.owed),
            fullest: self.fullest.max(later.fullest),
            round_trip: match (self.round_trip, later.round_trip) {
                (Some(one), Some(other)) => Some(one.join(other)),
                (one, other) => other.or(one),
            },
        }
    }

    /// Returns the step behind this one, if nothing happens in it: what waits goes on waiting.
    fn next(self) -> Self {
        let (waiting, owed) = (self.waiting.next(), self.owed.next());
        Self { waiting, owed, round_trip: self.round_trip.map(Gauge::next), ..Self::default() }
    }
}

/// How many there are of something.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Gauge {
    pub(super) most: u64,
    last: u64,
}

impl Gauge {
    pub(super) fn note(&mut self, count: u64) {
        *self = Self { most: self.most.max(count), last: count };
    }

    fn join(self, later: Self) -> Self {
        Self { most: self.most.max(later.most), last: later.last }
    }

    const fn next(self) -> Self {
        Self { most: self.last, last: self.last }
    }
}

/// The steps of one side.
#[derive(Debug, Clone)]
pub(super) struct Series {
    start: u64,
    /// The length of a step in microseconds.
    width: u64,
    steps: Vec<Step>,
}

impl Series {
    pub(super) const fn new(start: u64) -> Self {
        Self { start, width: MIN_WIDTH, steps: Vec::new() }
    }

    pub(super) const fn width(&self) -> u64 {
        self.width
    }

    pub(super) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Returns the step that a time belongs to.
    pub(super) fn at(&mut self, micros: u64) -> &mut Step {
        let since = micros.saturating_sub(self.start);
        while since / self.width >= MAX_STEPS as u64 {
            self.widen();
        }
        let place = usize::try_from(since / self.width).unwrap_or(0);
        if self.steps.len() <= place {
            let next = self.steps.last().copied().map(Step::next).unwrap_or_default();
            self.steps.resize(place + 1, next);
        }
        &mut self.steps[place]
    }

    /// Makes one step of every two.
    fn widen(&mut self) {
        self.width *= 2;
        self.steps =
            self.steps.chunks(2).filter_map(|pair| pair.iter().copied().reduce(Step::join)).collect();
    }

    /// Makes the steps at least this long.
    pub(super) fn widen_to(&mut self, width: u64) {
        while self.width < width {
            self.widen();
        }
    }
}

/// A length in microseconds that doubles to lengths that are easy to read for long.
const MIN_WIDTH: u64 = 50_000;
const MAX_STEPS: usize = 600;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_capture_has_longer_steps_and_loses_nothing() {
        let mut series = Series::new(5_000_000);
        for second in 0..1000 {
            series.at(5_000_000 + second * 1_000_000).bytes += 3;
            series.at(5_000_000 + second * 1_000_000).owed.note(second);
        }
        assert_eq!(series.width(), 3_200_000);
        assert_eq!(series.steps().len(), 313);
        assert_eq!(series.steps().iter().map(|step| step.bytes).sum::<u64>(), 3000);
        assert_eq!((series.steps()[0].bytes, series.steps()[0].owed.most), (12, 3));
    }

    #[test]
    fn what_waits_goes_on_waiting_while_nothing_is_sent() {
        let mut series = Series::new(0);
        let step = series.at(0);
        step.bytes = 100;
        step.round_trip.get_or_insert_default().note(30_000);
        // Eight waited, then three.
        step.waiting.note(8);
        step.waiting.note(3);
        series.at(175_000).waiting.note(0);
        series.at(275_000).bytes = 1;
        let most: Vec<u64> = series.steps().iter().map(|step| step.waiting.most).collect();
        assert_eq!(most, [8, 3, 3, 3, 0, 0]);
        let bytes: Vec<u64> = series.steps().iter().map(|step| step.bytes).collect();
        assert_eq!(bytes, [100, 0, 0, 0, 0, 1]);
        assert!(series.steps().iter().all(|step| step.round_trip.is_some_and(|trip| trip.most == 30_000)));
        series.widen_to(100_000);
        let most: Vec<u64> = series.steps().iter().map(|step| step.waiting.most).collect();
        assert_eq!(most, [8, 3, 0]);
    }
}
