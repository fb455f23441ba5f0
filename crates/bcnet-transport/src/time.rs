//! The earliest of many deadlines, at points in time that the caller gives.

use alloc::vec::Vec;

pub use bcnet_wire::Time;

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
}
