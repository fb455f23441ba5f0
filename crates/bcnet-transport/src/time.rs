//! A priority queue of deadlines. The caller passes all times; this module reads no clock.

use alloc::vec::Vec;

pub use bcnet_wire::Time;

/// The deadlines of many keys, and the earliest of them.
///
/// A loop that drives many endpoints stores their [`next_timeout`](crate::Engine::next_timeout)s here.
/// Setting a deadline takes O(log n), and finding the earliest one O(1). A key whose deadline does not change
/// costs nothing.
#[derive(Debug, Clone, Default)]
pub struct Deadlines {
    /// A binary heap of (deadline, key).
    heap: Vec<(Time, u32)>,
    /// The heap index of each key.
    heap_positions: Vec<u32>,
}

impl Deadlines {
    /// Creates an empty set of deadlines.
    #[must_use]
    pub const fn new() -> Self {
        Self { heap: Vec::new(), heap_positions: Vec::new() }
    }

    /// Returns the earliest deadline and its key.
    #[must_use]
    pub fn first(&self) -> Option<(Time, u32)> {
        self.heap.first().copied()
    }

    /// Sets the deadline of `key`, or removes it. Memory grows with the largest key, so keys should be small.
    pub fn set(&mut self, key: u32, deadline: Option<Time>) {
        let index = key as usize;
        if self.heap_positions.len() <= index {
            if deadline.is_none() {
                return;
            }
            self.heap_positions.resize(index + 1, ABSENT);
        }
        let place = self.heap_positions.get(index).copied().unwrap_or(ABSENT);
        match (place, deadline) {
            (ABSENT, None) => {}
            (ABSENT, Some(time)) => {
                self.heap.push((time, key));
                self.sift_up(self.heap.len() - 1, (time, key));
            }
            (place, Some(time)) => {
                let place = place as usize;
                let old = self.heap.get(place).map(|(time, _)| *time);
                if old == Some(time) {
                    return;
                }
                if old.is_some_and(|old| time < old) {
                    self.sift_up(place, (time, key));
                } else {
                    self.sift_down(place, (time, key));
                }
            }
            (place, None) => self.remove(place as usize, index),
        }
    }

    fn remove(&mut self, place: usize, index: usize) {
        if let Some(slot) = self.heap_positions.get_mut(index) {
            *slot = ABSENT;
        }
        let Some(last) = self.heap.pop() else { return };
        if place < self.heap.len() {
            let parent = self.heap.get((place.saturating_sub(1)) / 2).copied();
            if place > 0 && parent.is_some_and(|parent| last < parent) {
                self.sift_up(place, last);
            } else {
                self.sift_down(place, last);
            }
        }
    }

    /// Inserts `entry` at `place` or above, moving later deadlines down.
    fn sift_up(&mut self, mut place: usize, entry: (Time, u32)) {
        while place > 0 {
            let parent = (place - 1) / 2;
            match self.heap.get(parent).copied() {
                Some(above) if entry < above => self.place_entry(place, above),
                _ => break,
            }
            place = parent;
        }
        self.place_entry(place, entry);
    }

    /// Inserts `entry` at `place` or below, moving earlier deadlines up.
    fn sift_down(&mut self, mut place: usize, entry: (Time, u32)) {
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
            self.place_entry(place, below);
            place = child;
        }
        self.place_entry(place, entry);
    }

    fn place_entry(&mut self, place: usize, entry: (Time, u32)) {
        if let Some(slot) = self.heap.get_mut(place) {
            *slot = entry;
        }
        if let Some(slot) = self.heap_positions.get_mut(entry.1 as usize) {
            // The heap has at most one entry per key, and keys are u32.
            *slot = u32::try_from(place).unwrap_or(ABSENT);
        }
    }
}

/// The heap index of a key without a deadline.
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
}
