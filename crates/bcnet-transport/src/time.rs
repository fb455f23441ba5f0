//! Points in time, given by the caller, and the earliest of many deadlines.
//!
//! Nothing in this crate reads a clock. [`Time`] counts from wherever the caller likes: the start of a program, of a
//! capture or of a simulation.

use alloc::vec::Vec;
use core::fmt;
use core::ops::Add;
use core::time::Duration;

/// A point on an arbitrary clock, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

impl Time {
    /// Where the clock starts.
    pub const ZERO: Self = Self(0);

    /// `micros` after the start.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Microseconds since the start.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Returns how long ago `earlier` was; nothing if it is still to come.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.micros_since(earlier))
    }

    /// Returns how many microseconds ago `earlier` was; none if it is still to come.
    #[must_use]
    pub const fn micros_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the earlier of two times that need not exist.
    #[inline]
    pub(crate) fn earliest(a: Option<Self>, b: Option<Self>) -> Option<Self> {
        match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// So many microseconds later; the end of time at most.
    #[must_use]
    pub const fn plus(self, micros: u64) -> Self {
        Self(self.0.saturating_add(micros))
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        self.plus(micros(duration))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

/// Returns a duration in the unit of [`Time`]; one that does not fit is forever.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// The deadlines of many things, each known by a small number, and always the earliest of them.
///
/// One loop that drives many endpoints keeps their [`next_timeout`](crate::Engine::next_timeout)s here: setting one
/// costs O(log n), finding the earliest O(1), and a thing that does not change costs nothing.
#[derive(Debug, Clone, Default)]
pub struct Deadlines {
    /// A binary heap of (deadline, key).
    heap: Vec<(Time, u32)>,
    /// Where each key stands in the heap.
    places: Vec<u32>,
}

impl Deadlines {
    /// No deadline at all.
    #[must_use]
    pub const fn new() -> Self {
        Self { heap: Vec::new(), places: Vec::new() }
    }

    /// Returns the earliest deadline and whose it is.
    #[must_use]
    pub fn first(&self) -> Option<(Time, u32)> {
        self.heap.first().copied()
    }

    /// Gives `key` a deadline, or none. Keys should be small: memory grows with the largest.
    pub fn set(&mut self, key: u32, deadline: Option<Time>) {
        let index = key as usize;
        if self.places.len() <= index {
            if deadline.is_none() {
                return;
            }
            self.places.resize(index + 1, ABSENT);
        }
        let place = self.places.get(index).copied().unwrap_or(ABSENT);
        match (place, deadline) {
            (ABSENT, None) => {}
            (ABSENT, Some(time)) => {
                self.heap.push((time, key));
                self.rise(self.heap.len() - 1, (time, key));
            }
            (place, Some(time)) => {
                let place = place as usize;
                let old = self.heap.get(place).map(|(time, _)| *time);
                if old == Some(time) {
                    return;
                }
                if old.is_some_and(|old| time < old) {
                    self.rise(place, (time, key));
                } else {
                    self.sink(place, (time, key));
                }
            }
            (place, None) => self.remove(place as usize, index),
        }
    }

    fn remove(&mut self, place: usize, index: usize) {
        if let Some(slot) = self.places.get_mut(index) {
            *slot = ABSENT;
        }
        let Some(last) = self.heap.pop() else { return };
        if place < self.heap.len() {
            let parent = self.heap.get((place.saturating_sub(1)) / 2).copied();
            if place > 0 && parent.is_some_and(|parent| last < parent) {
                self.rise(place, last);
            } else {
                self.sink(place, last);
            }
        }
    }

    /// Puts `entry` at `place` or above, moving later ones down.
    fn rise(&mut self, mut place: usize, entry: (Time, u32)) {
        while place > 0 {
            let parent = (place - 1) / 2;
            match self.heap.get(parent).copied() {
                Some(above) if entry < above => self.put(place, above),
                _ => break,
            }
            place = parent;
        }
        self.put(place, entry);
    }

    /// Puts `entry` at `place` or below, moving earlier ones up.
    fn sink(&mut self, mut place: usize, entry: (Time, u32)) {
        loop {
            let left = 2 * place + 1;
            let Some(mut below) = self.heap.get(left).copied() else { break };
            let mut child = left;
            if let Some(right) = self.heap.get(left + 1).copied()
                && right < below
            {
                (child, below) = (left + 1, right);
            }
            if entry <= below {
                break;
            }
            self.put(place, below);
            place = child;
        }
        self.put(place, entry);
    }

    fn put(&mut self, place: usize, entry: (Time, u32)) {
        if let Some(slot) = self.heap.get_mut(place) {
            *slot = entry;
        }
        if let Some(slot) = self.places.get_mut(entry.1 as usize) {
            // The heap has as many entries as there are keys, which are u32.
            *slot = u32::try_from(place).unwrap_or(ABSENT);
        }
    }
}

/// The place of a key that has no deadline.
const ABSENT: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lcg::Lcg;
    use alloc::collections::BTreeMap;

    #[test]
    fn the_earliest_deadline_is_always_first() {
        let mut random = Lcg(7);
        let mut deadlines = Deadlines::new();
        let mut model = BTreeMap::new();
        for _ in 0..20_000 {
            let key = u32::try_from(random.below(60)).expect("small");
            let deadline = (random.below(4) > 0).then(|| Time::from_micros(random.below(50)));
            deadlines.set(key, deadline);
            model.remove(&key);
            if let Some(time) = deadline {
                model.insert(key, time);
            }
            assert_eq!(deadlines.first(), model.iter().map(|(key, time)| (*time, *key)).min());
        }
        for key in 0..60 {
            deadlines.set(key, None);
        }
        assert_eq!(deadlines.first(), None);
    }

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
