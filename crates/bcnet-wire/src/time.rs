//! Points in time, given by the caller.
//!
//! The protocol crates never read a clock. The caller chooses the start of [`Time`]: the start of a
//! program, of a capture or of a simulation.

use core::fmt;
use core::ops::Add;
use core::time::Duration;

/// A point in time: microseconds since the start that the caller chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

impl Time {
    /// The start of the clock.
    pub const ZERO: Self = Self(0);

    /// Returns the time `micros` microseconds after the start.
    #[must_use]
    #[inline]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Returns the microseconds since the start.
    #[must_use]
    #[inline]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Returns the time since `earlier`; zero if `earlier` is in the future.
    #[must_use]
    #[inline]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.micros_since(earlier))
    }

    /// Returns the microseconds since `earlier`; 0 if `earlier` is in the future.
    #[must_use]
    #[inline]
    pub const fn micros_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the earlier of two optional times.
    #[must_use]
    #[inline]
    pub fn earliest(a: Option<Self>, b: Option<Self>) -> Option<Self> {
        match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Returns the time `micros` microseconds later; saturates at the largest time.
    #[must_use]
    #[inline]
    pub const fn plus(self, micros: u64) -> Self {
        Self(self.0.saturating_add(micros))
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    #[inline]
    fn add(self, duration: Duration) -> Self {
        self.plus(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_saturates_and_never_goes_back() {
        let (early, late) = (Time::from_micros(5), Time::from_micros(2_000_007));
        assert_eq!(
            (late.since(early), early.since(late)),
            (Duration::from_micros(2_000_002), Duration::ZERO)
        );
        assert_eq!(late + Duration::MAX, Time::from_micros(u64::MAX));
        assert_eq!(early + Duration::from_millis(3), Time::from_micros(3005));
        assert_eq!(alloc::format!("{late}"), "2.000007");
    }
}
