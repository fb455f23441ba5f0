//! Bytes of many messages in one growing ring: each message in one piece, freed in order.

use alloc::vec;
use alloc::vec::Vec;

/// A ring of bytes. A place in it is named by an offset that only grows (and wraps with `u32`), so it stays valid while
/// the ring grows. No piece crosses the end of the ring, and none longer than [`MAX_PIECE`] is taken.
#[derive(Debug, Default)]
pub(crate) struct ByteRing {
    buffer: Vec<u8>,
    /// The length of the buffer: zero or a power of two.
    size: u32,
    head: u32,
    tail: u32,
}

impl ByteRing {
    /// Room for `len` bytes in one piece, and where it is. Returns `None` if `len` is more than [`MAX_PIECE`].
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

    /// Keeps `head` and `body` as one piece. Returns where it is and how long, or `None` if that is more than a message can
    /// have.
    #[inline(always)]
    pub(crate) fn store(&mut self, head: &[u8], body: &[u8]) -> Option<(u32, u16)> {
        let len = u16::try_from(head.len().saturating_add(body.len())).ok()?;
        let (at, room) = self.reserve(usize::from(len))?;
        let (front, rest) = room.split_at_mut_checked(head.len())?;
        front.copy_from_slice(head);
        rest.copy_from_slice(body);
        Some((at, len))
    }

    /// Returns the `len` bytes at `at`.
    #[inline]
    pub(crate) fn get(&self, at: u32, len: usize) -> &[u8] {
        let start = self.index(at);
        self.buffer.get(start..start + len).unwrap_or_default()
    }

    /// Returns how many bytes there are from `at` to the end of the ring, which nothing in one piece crosses.
    #[inline]
    pub(crate) const fn contiguous_from(&self, at: u32) -> usize {
        self.buffer.len().saturating_sub(self.index(at))
    }

    /// Frees everything before `at`.
    pub(crate) const fn release_to(&mut self, at: u32) {
        self.tail = at;
    }

    /// Frees everything.
    pub(crate) const fn release_all(&mut self) {
        self.tail = self.head;
    }

    /// Returns the bytes between the oldest piece and the newest.
    #[inline]
    pub(crate) const fn used(&self) -> usize {
        self.head.wrapping_sub(self.tail) as usize
    }

    /// Returns where a piece of `len` bytes would go, if there is room.
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

    /// Doubles until `len` more bytes fit. Pieces stay whole: the ends of a larger ring are ends of the smaller one too.
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

/// The longest piece: more than the largest payload there can be (255 parts).
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
            // Near the wrap of u32, so that offsets wrap as well.
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
