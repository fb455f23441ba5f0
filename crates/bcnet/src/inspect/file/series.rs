//! Numbers over time, in as many steps as fit a plot: the longer the capture, the longer the steps.

/// What happened in one step of time, on one side.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Step {
    pub(super) bytes: u64,
    pub(super) ack_bytes: u64,
    pub(super) retransmissions: u64,
    /// The most messages that waited for an ACK.
    pub(super) waiting: u64,
    /// The most ACKs in the outbox.
    pub(super) owed: u64,
    /// The fullest datagram, in bytes.
    pub(super) fullest: u64,
    /// The last round trip, in microseconds.
    pub(super) round_trip: Option<u64>,
}

impl Step {
    fn join(self, later: Self) -> Self {
        Self {
            bytes: self.bytes + later.bytes,
            ack_bytes: self.ack_bytes + later.ack_bytes,
            retransmissions: self.retransmissions + later.retransmissions,
            waiting: self.waiting.max(later.waiting),
            owed: self.owed.max(later.owed),
            fullest: self.fullest.max(later.fullest),
            round_trip: later.round_trip.or(self.round_trip),
        }
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
        Self { start, width: 1_000_000, steps: Vec::new() }
    }

    pub(super) const fn width(&self) -> u64 {
        self.width
    }

    pub(super) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The step that a time belongs to.
    pub(super) fn at(&mut self, micros: u64) -> &mut Step {
        let since = micros.saturating_sub(self.start);
        while since / self.width >= MOST_STEPS as u64 {
            self.widen();
        }
        let place = usize::try_from(since / self.width).unwrap_or(0);
        if self.steps.len() <= place {
            self.steps.resize(place + 1, Step::default());
        }
        &mut self.steps[place]
    }

    /// Makes one step of every two.
    fn widen(&mut self) {
        self.width *= 2;
        let joined = self.steps.chunks(2).map(|pair| pair.iter().copied().fold(Step::default(), Step::join));
        self.steps = joined.collect();
    }

    /// Makes the steps at least this long.
    pub(super) fn widen_to(&mut self, width: u64) {
        while self.width < width {
            self.widen();
        }
    }
}

const MOST_STEPS: usize = 240;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_capture_has_longer_steps_and_loses_nothing() {
        let mut series = Series::new(5_000_000);
        for second in 0..1000 {
            series.at(5_000_000 + second * 1_000_000).bytes += 3;
            series.at(5_000_000 + second * 1_000_000).owed = second;
        }
        assert_eq!(series.width(), 8_000_000);
        assert_eq!(series.steps().len(), 125);
        assert_eq!(series.steps().iter().map(|step| step.bytes).sum::<u64>(), 3000);
        assert_eq!((series.steps()[0].bytes, series.steps()[0].owed), (24, 7));
    }
}
