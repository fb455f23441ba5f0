//! The frame clock: seconds in a 32-bit float, read once per frame.

use std::time::Duration;

use bcnet_transport::Time;

/// Converts between virtual time and the reading of the frame clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct FrameClock {
    /// Step of the clock, in microseconds.
    granularity: u64,
}

impl FrameClock {
    pub(super) fn new(granularity: Duration) -> Self {
        Self { granularity: u64::try_from(granularity.as_micros()).unwrap_or(u64::MAX).max(1) }
    }

    /// Returns the reading of the clock, in seconds.
    pub(super) fn reading_at(&self, now: Time) -> f32 {
        let micros = now.as_micros() / self.granularity * self.granularity;
        (micros as f64 / 1e6) as f32
    }

    /// Returns the first time at which the reading exceeds `seconds`.
    pub(super) fn first_time_after(&self, seconds: f32) -> Time {
        let mut low = micros(seconds.next_down()).saturating_sub(self.granularity);
        let mut high =
            micros(seconds.max(0.0).next_up().next_up()).saturating_add(self.granularity).saturating_add(1);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.reading_at(Time::from_micros(middle)) > seconds {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Time::from_micros(low)
    }
}

fn micros(seconds: f32) -> u64 {
    // The conversion saturates: a negative reading becomes 0, the start.
    (f64::from(seconds) * 1e6) as u64
}

/// Returns a clock reading a little before `start + wait`, for a deadline that must not be late.
///
/// The model tests `now - start > wait`, which rounds differently from `start + wait`.
pub(super) fn shortly_before(start: f32, wait: f32) -> f32 {
    let end = start + wait;
    end - end.abs() * 5e-7
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_time_after_is_the_first_microsecond_above() {
        for granularity in [0, 1000, 15_625] {
            let clock = FrameClock::new(Duration::from_micros(granularity));
            for seconds in [0.0, 0.6666, 1.0, 44.999, 359.97, 4096.5, 86_400.01] {
                let first = clock.first_time_after(seconds);
                assert!(clock.reading_at(first) > seconds, "{granularity} {seconds}");
                let before = Time::from_micros(first.as_micros() - 1);
                assert!(clock.reading_at(before) <= seconds, "{granularity} {seconds}");
            }
        }
        assert_eq!(FrameClock::new(Duration::ZERO).first_time_after(-1.0), Time::ZERO);
    }
}
