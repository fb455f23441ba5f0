//! A growing ring buffer for the bytes of many messages: each contiguous, freed in order.

use alloc::vec;
use alloc::vec::Vec;

/// A ring of bytes.
///
/// An offset identifies a place. Offsets only grow (and wrap with `u32`), so they stay valid while the ring
/// grows. No piece crosses the end of the ring, and pieces longer than [`MAX_PIECE`] are refused.
#[derive(Debug, Default)]
pub(crate) struct ByteRing {
    buffer: Vec<u8>,
    /// The length of the buffer: zero or a power of two.
    size: u32,
    head: u32,
    tail: u32,
}

impl ByteRing {
    /// Reserves `len` contiguous bytes and returns their offset.
    ///
    /// Returns `None` if `len` is more than [`MAX_PIECE`].
    #[inline(always)]
    pub(crate) fn reserve(&mut self, len: usize) -> Option<(u32, &mut [u8])> {
        if len > MAX_PIECE as usize {
            return None;
        }
        let len = u32::try_from(len).ok()?;
        let at = match self.fit(len) {
            Some(at) => at,
            None => {
                self.grow(len);
                self.fit(len)?
            }
        };
        self.head = at.wrapping_add(len);
        let start = self.index(at);
        Some((at, self.buffer.get_mut(start..start + len as usize)?))
    }

    /// Stores `head` and `body` as one piece.
    ///
    /// Returns its offset and length, or `None` if it is longer than a message can be.
    #[inline(always)]
    pub(crate) fn store(&mut self, head: &[u8], body: &[u8]) -> Option<(u32, u16)> {
        let len = u16::try_from(head.len().saturating_add(body.len())).ok()?;
        let (at, room) = self.reserve(usize::from(len))?;
        let (front, rest) = room.split_at_mut_checked(head.len())?;
        front.copy_from_slice(head);
        rest.copy_from_slice(body);
        Some((at, len))
    }

    /// Returns the `len` bytes at offset `at`.
    #[inline]
    pub(crate) fn get(&self, at: u32, len: usize) -> &[u8] {
        let start = self.index(at);
        self.buffer.get(start..start + len).unwrap_or_default()
    }

    /// Returns the number of bytes from `at` to the end of the ring, which no piece crosses.
    #[inline]
    pub(crate) const fn contiguous_from(&self, at: u32) -> usize {
        self.buffer.len().saturating_sub(self.index(at))
    }

    /// Frees all pieces before `at`.
    pub(crate) const fn release_to(&mut self, at: u32) {
        self.tail = at;
    }

    /// Frees all pieces.
    pub(crate) const fn release_all(&mut self) {
        self.tail = self.head;
    }

    /// Returns the number of bytes from the oldest piece to the newest.
    #[inline]
    pub(crate) const fn used(&self) -> usize {
        self.head.wrapping_sub(self.tail) as usize
    }

    /// Returns the offset for a new piece of `len` bytes, if there is space.
    #[inline(always)]
    fn fit(&self, len: u32) -> Option<u32> {
        let size = self.size;
        if size == 0 {
            return None;
        }
        let left = size - (self.head & (size - 1));
        let at = if left < len { self.head.wrapping_add(left) } else { self.head };
        (at.wrapping_add(len).wrapping_sub(self.tail) <= size).then_some(at)
    }

    /// Doubles the size until `len` more bytes fit.
    ///
    /// Pieces stay contiguous: the ends of the larger ring are also ends of the smaller one.
    #[cold]
    fn grow(&mut self, len: u32) {
        let (old_size, mut size) = (self.size, self.size.max(MIN_SIZE));
        let used = self.head.wrapping_sub(self.tail);
        while size - used.min(size) < 2 * len {
            size *= 2;
        }
        let old = core::mem::replace(&mut self.buffer, vec![0; size as usize]);
        self.size = size;
        let mut at = self.tail;
        while at != self.head && old_size != 0 {
            let here = at & (old_size - 1);
            let run = (old_size - here).min(self.head.wrapping_sub(at));
            let target = self.index(at);
            let from = old.get(here as usize..(here + run) as usize);
            let to = self.buffer.get_mut(target..target + run as usize);
            if let (Some(from), Some(to)) = (from, to) {
                to.copy_from_slice(from);
            }
            at = at.wrapping_add(run);
        }
    }

    #[inline]
    const fn index(&self, at: u32) -> usize {
        (at & self.size.wrapping_sub(1)) as usize
    }
}

/// The longest piece: more than the largest possible payload (255 fragments).
pub(crate) const MAX_PIECE: u32 = 1 << 21;
const MIN_SIZE: u32 = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lcg::Lcg;
    use alloc::collections::VecDeque;

    #[test]
    fn pieces_stay_whole_while_the_ring_wraps_and_grows() {
        for seed in 1..20_u64 {
            let mut random = Lcg(seed);
            // Starts near the wrap of `u32`, so that offsets wrap as well.
            let mut ring = ByteRing { head: 0xFFFF_F000, tail: 0xFFFF_F000, ..ByteRing::default() };
            let mut model: VecDeque<(u32, Vec<u8>)> = VecDeque::new();
            for step in 0..3000_u64 {
                if random.below(100) < 48 || model.is_empty() {
                    let len = random.index(700);
                    let piece = vec![u8::try_from(step % 251).expect("small"); len];
                    let (at, _) = ring.store(&[], &piece).expect("short enough");
                    model.push_back((at, piece));
                } else {
                    model.pop_front();
                    match model.front() {
                        Some((at, _)) => ring.release_to(*at),
                        None => ring.release_all(),
                    }
                }
                for (at, piece) in &model {
                    assert_eq!(ring.get(*at, piece.len()), piece, "seed {seed} step {step}");
                }
            }
            assert!(ring.buffer.len() <= 1 << 19, "seed {seed}: {}", ring.buffer.len());
        }
    }

    #[test]
    fn steady_use_does_not_grow_the_ring() {
        let mut ring = ByteRing::default();
        for _ in 0..10_000 {
            let (at, len) = ring.store(&[37, 0], &[1; 35]).expect("short enough");
            assert_eq!((len, ring.get(at, 3)), (37, &[37, 0, 1][..]));
            ring.release_to(at);
        }
        assert_eq!(ring.buffer.len(), 256);
        assert_eq!(ring.store(&[], &[0; 0x1_0000]), None, "no message is as long");
        assert!(ring.reserve(MAX_PIECE as usize + 1).is_none());
    }
}
