//! A FIFO of small values in a ring.
//!
//! It differs from `VecDeque` in two ways that matter on the hot path. A slot is found by a mask instead of
//! a comparison, and values that leave the front are not moved out.

use alloc::vec::Vec;

#[derive(Debug)]
pub(crate) struct RingQueue<T> {
    /// The length is zero or a power of two.
    slots: Vec<T>,
    /// The index of the first value; only its lower bits count.
    first: usize,
    len: usize,
}

impl<T> Default for RingQueue<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), first: 0, len: 0 }
    }
}

impl<T: Copy> RingQueue<T> {
    #[inline]
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the value at `index`, counted from the front.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        if index >= self.len {
            return None;
        }
        self.slots.get(self.slot_index(index))
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        if index >= self.len {
            return None;
        }
        let place = self.slot_index(index);
        self.slots.get_mut(place)
    }

    #[inline]
    pub(crate) fn front(&self) -> Option<&T> {
        self.get(0)
    }

    #[inline]
    pub(crate) fn front_mut(&mut self) -> Option<&mut T> {
        self.get_mut(0)
    }

    #[inline]
    pub(crate) fn back_mut(&mut self) -> Option<&mut T> {
        self.get_mut(self.len.wrapping_sub(1))
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, value: T) {
        if self.len == self.slots.len() {
            self.grow(value);
        }
        let place = self.slot_index(self.len);
        if let Some(slot) = self.slots.get_mut(place) {
            *slot = value;
            self.len += 1;
        }
    }

    /// Drops the first `count` values; there must be that many.
    #[inline]
    pub(crate) const fn drop_front(&mut self, count: usize) {
        self.first = self.first.wrapping_add(count);
        self.len -= count;
    }

    /// Drops every value that equals `value`.
    pub(crate) fn remove(&mut self, value: T)
    where
        T: PartialEq,
    {
        for _ in 0..self.len {
            let Some(&first) = self.front() else { return };
            self.drop_front(1);
            if first != value {
                self.push(first);
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        (0..self.len).filter_map(|index| self.get(index))
    }

    #[inline]
    const fn slot_index(&self, index: usize) -> usize {
        self.first.wrapping_add(index) & self.slots.len().wrapping_sub(1)
    }

    /// Doubles the ring. The new slots contain `filler` until they are used.
    #[cold]
    fn grow(&mut self, filler: T) {
        let size = (2 * self.slots.len()).max(MIN_SIZE);
        let mut slots = Vec::with_capacity(size);
        slots.extend(self.iter().copied());
        slots.resize(size, filler);
        (self.slots, self.first) = (slots, 0);
    }
}

const MIN_SIZE: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lcg::Lcg;
    use alloc::collections::VecDeque;

    #[test]
    fn queue_matches_vecdeque_while_wrapping_and_growing() {
        let mut random = Lcg(3);
        let mut queue = RingQueue { first: usize::MAX - 5, ..RingQueue::default() };
        let mut model = VecDeque::new();
        for step in 0..20_000_u64 {
            match random.below(if step % 4000 < 2000 { 5 } else { 3 }) {
                0 => {
                    let count = random.index(3).min(model.len());
                    queue.drop_front(count);
                    model.drain(..count);
                }
                2 if random.below(20) == 0 => {
                    let value = model.get(model.len() / 2).copied().unwrap_or(0);
                    queue.remove(value);
                    model.retain(|other| *other != value);
                }
                1 if random.below(2) == 0 => {
                    if let (Some(ours), Some(theirs)) = (queue.back_mut(), model.back_mut()) {
                        (*ours, *theirs) = (step, step);
                    }
                }
                _ => {
                    queue.push(step);
                    model.push_back(step);
                }
            }
            assert_eq!((queue.len(), queue.is_empty()), (model.len(), model.is_empty()));
            assert_eq!((queue.front(), queue.get(model.len())), (model.front(), None));
            if step % 64 == 0 {
                assert!(queue.iter().eq(&model), "step {step}");
            }
        }
        assert!(queue.slots.len().is_power_of_two());
    }
}
