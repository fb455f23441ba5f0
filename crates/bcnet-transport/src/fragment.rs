//! Splits payloads into fragments as stock does, and stores received fragments until all have arrived.
//!
//! This module implements [T-67] and [T-68].
//!
//! [T-67]: bcnet_wire::protocol#t-67
//! [T-68]: bcnet_wire::protocol#t-68

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::num::NonZeroU8;

use crate::wire::Fragment;

/// Returns the number of fragments of a payload, or `None` if it needs more than 255 (T-67).
///
/// `len` is the length of a payload that does not fit one message of `limit` bytes.
pub(crate) fn fragment_count(len: usize, limit: usize) -> Option<NonZeroU8> {
    let (first, later) = (limit.saturating_sub(FIRST_HEADER), limit.saturating_sub(LATER_HEADER));
    if later == 0 {
        return None;
    }
    NonZeroU8::new(u8::try_from(1 + len.saturating_sub(first).div_ceil(later)).ok()?)
}

/// Returns the largest payload that fits 255 fragments.
pub(crate) const fn max_payload(limit: usize) -> usize {
    limit.saturating_sub(FIRST_HEADER) + 254 * limit.saturating_sub(LATER_HEADER)
}

/// Returns the fragments of `payload` in order (T-67).
///
/// The first is one byte shorter than the others, and the last has the rest.
pub(crate) fn split(
    payload: &[u8],
    total: NonZeroU8,
    limit: usize,
) -> impl Iterator<Item = (Fragment, &[u8])> {
    let mut rest = payload;
    (0..total.get()).map(move |index| {
        let (part, header) = match NonZeroU8::new(index) {
            None => (Fragment::First { total }, FIRST_HEADER),
            Some(index) => (Fragment::Later { index }, LATER_HEADER),
        };
        let len = limit.saturating_sub(header).min(rest.len());
        let (slice, after) = rest.split_at_checked(len).unwrap_or_default();
        rest = after;
        (part, slice)
    })
}

/// A pool of reusable memory blocks for buffered messages.
#[derive(Debug, Default)]
pub(crate) struct BlockPool {
    blocks: Vec<Block>,
    /// The first free block.
    free_list: BlockLink,
    used: usize,
    /// Unused reassemblies, for reuse.
    #[expect(clippy::vec_box, reason = "a set is large and moves between here and the inboxes")]
    free_sets: Vec<Box<Reassembly>>,
}

#[derive(Debug, Clone, Copy)]
struct Block {
    next: BlockLink,
    bytes: [u8; BLOCK_LEN],
}

/// The number of a block (index plus one), or `None`.
type BlockLink = Option<core::num::NonZeroU32>;

/// Bytes that are stored in a [`BlockPool`].
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ByteChain {
    first: BlockLink,
    len: u32,
}

impl ByteChain {
    pub(crate) const fn len(self) -> usize {
        self.len as usize
    }

    /// Returns the memory that the bytes use in the pool.
    pub(crate) const fn cost(self) -> usize {
        self.len().div_ceil(BLOCK_LEN) * size_of::<Block>()
    }
}

impl BlockPool {
    /// Returns the memory that `len` bytes would use.
    pub(crate) const fn cost(len: usize) -> usize {
        len.div_ceil(BLOCK_LEN) * size_of::<Block>()
    }

    pub(crate) fn store(&mut self, bytes: &[u8]) -> ByteChain {
        let mut first = None;
        // From the last block to the first, because each block links to its successor.
        for chunk in bytes.chunks(BLOCK_LEN).rev() {
            first = self.store_block(chunk, first);
        }
        ByteChain { first, len: u32::try_from(bytes.len()).unwrap_or(u32::MAX) }
    }

    fn store_block(&mut self, chunk: &[u8], next: BlockLink) -> BlockLink {
        self.used += 1;
        let link = match self.free_list {
            Some(link) => {
                self.free_list = self.blocks.get(link.get() as usize - 1).and_then(|block| block.next);
                Some(link)
            }
            None => {
                self.blocks.push(Block { next: None, bytes: [0; BLOCK_LEN] });
                u32::try_from(self.blocks.len()).ok().and_then(core::num::NonZeroU32::new)
            }
        }?;
        let block = self.blocks.get_mut(link.get() as usize - 1)?;
        block.next = next;
        block.bytes.get_mut(..chunk.len())?.copy_from_slice(chunk);
        Some(link)
    }

    /// Copies the bytes of a chain to `out` and frees the chain. `out` must have the length of the chain.
    pub(crate) fn take_into(&mut self, chain: ByteChain, out: &mut [u8]) {
        let mut link = chain.first;
        for chunk in out.chunks_mut(BLOCK_LEN) {
            let Some(block) = link.and_then(|link| self.blocks.get(link.get() as usize - 1)) else { break };
            if let Some(bytes) = block.bytes.get(..chunk.len()) {
                chunk.copy_from_slice(bytes);
            }
            link = block.next;
        }
        self.free(chain);
    }

    pub(crate) fn free(&mut self, chain: ByteChain) {
        let mut link = chain.first;
        while let Some(here) = link {
            let Some(block) = self.blocks.get_mut(here.get() as usize - 1) else { break };
            link = block.next;
            block.next = self.free_list;
            self.free_list = Some(here);
            self.used -= 1;
        }
    }

    pub(crate) fn new_set(&mut self) -> Box<Reassembly> {
        self.free_sets.pop().unwrap_or_default()
    }

    /// Frees a reassembly with all its fragments.
    pub(crate) fn free_set(&mut self, mut set: Box<Reassembly>) {
        for slot in &mut set.fragments {
            if let Some(chain) = slot.take() {
                self.free(chain);
            }
        }
        *set = Reassembly { total: None, count: 0, len: 0, fragments: set.fragments };
        self.free_sets.push(set);
    }

    /// Returns the number of used blocks.
    #[cfg(test)]
    pub(crate) const fn used(&self) -> usize {
        self.used
    }

    /// Releases the memory if no block is used.
    pub(crate) fn shrink(&mut self) {
        if self.used == 0 {
            *self = Self::default();
        }
    }
}

/// The received fragments of one payload.
#[derive(Debug)]
pub(crate) struct Reassembly {
    total: Option<NonZeroU8>,
    count: u8,
    len: usize,
    fragments: [Option<ByteChain>; MAX_FRAGMENTS],
}

impl Default for Reassembly {
    fn default() -> Self {
        Self { total: None, count: 0, len: 0, fragments: [None; MAX_FRAGMENTS] }
    }
}

/// The reason why a fragment does not fit a reassembly (T-68).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FragmentError {
    /// The fragment has arrived before.
    Duplicate,
    /// The index or the total contradicts other fragments.
    Contradiction,
}

impl Reassembly {
    /// Checks whether `fragment` fits this reassembly (T-68).
    pub(crate) fn check(&self, fragment: Fragment) -> Result<(), FragmentError> {
        let index = fragment.index();
        let total = match (self.total, fragment.total()) {
            (Some(known), Some(claimed)) if known != claimed => return Err(FragmentError::Contradiction),
            (known, claimed) => known.or(claimed),
        };
        if total.is_some_and(|total| index >= total.get()) {
            return Err(FragmentError::Contradiction);
        }
        if let Some(total) = fragment.total()
            && self.fragments.iter().skip(usize::from(total.get())).any(Option::is_some)
        {
            return Err(FragmentError::Contradiction);
        }
        match self.fragments.get(usize::from(index)) {
            Some(None) => Ok(()),
            Some(Some(_)) => Err(FragmentError::Duplicate),
            None => Err(FragmentError::Contradiction),
        }
    }

    /// Stores a fragment that [`check`](Self::check) has accepted.
    pub(crate) fn insert(&mut self, fragment: Fragment, chain: ByteChain) {
        self.total = self.total.or_else(|| fragment.total());
        if let Some(slot) = self.fragments.get_mut(usize::from(fragment.index())) {
            *slot = Some(chain);
            self.count += 1;
            self.len += chain.len();
        }
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.total.is_some_and(|total| total.get() == self.count)
    }

    /// Returns the length of the payload, as far as it has arrived.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) const fn count(&self) -> u8 {
        self.count
    }

    pub(crate) const fn total(&self) -> Option<NonZeroU8> {
        self.total
    }

    /// Copies all fragments to `out`, which must have [`len`](Self::len) bytes, and frees the reassembly.
    pub(crate) fn take_into(mut self: Box<Self>, out: &mut [u8], pool: &mut BlockPool) {
        let mut rest = out;
        for slot in &mut self.fragments {
            let Some(chain) = slot.take() else { break };
            let (here, after) = rest.split_at_mut_checked(chain.len()).unwrap_or_default();
            pool.take_into(chain, here);
            rest = after;
        }
        pool.free_set(self);
    }

    /// Returns the memory that the reassembly uses.
    pub(crate) fn cost(&self) -> usize {
        self.fragments.iter().flatten().map(|chain| chain.cost()).sum::<usize>() + size_of::<Self>()
    }
}

/// The header lengths of reliable fragments (T-20).
const FIRST_HEADER: usize = 7;
const LATER_HEADER: usize = 6;
const BLOCK_LEN: usize = 412;
/// The maximum number of fragments: the total is one byte (T-20).
pub(crate) const MAX_FRAGMENTS: usize = 255;

#[cfg(test)]
#[path = "fragment_model.rs"]
mod model;
