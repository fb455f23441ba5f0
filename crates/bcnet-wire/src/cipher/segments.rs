//! Encrypts one datagram as segments that run in parallel.
//!
//! The cipher XORs each byte with a mask. The mask depends on a key and on a carry, which both change with
//! every byte. The key is the XOR of the plaintext so far, so the key at the start of each segment is known in
//! advance. The carry out of a segment is a constant times the carry into it, plus a value that depends only
//! on the segment.
//!
//! So the work has three passes. The first pass computes all segments with carry 0. The second pass goes over
//! the segments in order and finds the real carries. The third pass adds the real carries and applies the
//! masks.

use super::step::{ByteStep, CipherState, multiplier_power, splat};
use super::transpose::transpose;
use super::{Encrypt, table};

/// Encrypts `bytes`, the rest of a datagram; `state` is the state before them.
#[inline(always)]
pub(super) fn encrypt(state: CipherState, bytes: &mut [u8]) {
    if bytes.len() > BLOCK_LEN / 2 {
        encrypt_blocks(state, bytes);
    } else {
        table::run::<Encrypt>(state, bytes);
    }
}

#[inline(always)]
fn encrypt_blocks(mut state: CipherState, bytes: &mut [u8]) {
    let mut rows = [SegmentRow::default(); SEGMENT_LEN];
    let (whole, rest) = bytes.split_at_mut(bytes.len() - bytes.len() % BLOCK_LEN);
    let (segments, _) = whole.as_chunks_mut::<SEGMENT_LEN>();
    let (blocks, _) = segments.as_chunks_mut::<SEGMENTS>();
    for block in blocks {
        state = encrypt_block(state, block, &mut rows);
    }
    if rest.len() > BLOCK_LEN / 2 {
        let mut padded = [[0; SEGMENT_LEN]; SEGMENTS];
        padded.as_flattened_mut().iter_mut().zip(&*rest).for_each(|(to, from)| *to = *from);
        encrypt_block(state, &mut padded, &mut rows);
        rest.iter_mut().zip(padded.as_flattened()).for_each(|(to, from)| *to = *from);
    } else {
        table::run::<Encrypt>(state, rest);
    }
}

/// Encrypts a whole block and returns the state after it.
#[inline(always)]
fn encrypt_block(
    state: CipherState,
    block: &mut [[u8; SEGMENT_LEN]; SEGMENTS],
    rows: &mut [SegmentRow; SEGMENT_LEN],
) -> CipherState {
    let mut bytes = transpose(block);
    let (mut keys, key) = starting_keys(state.key, &bytes);
    let mut carried = [0; SEGMENTS];
    for (row, bytes) in rows.iter_mut().zip(&bytes) {
        row.prepare(&mut keys, &mut carried, bytes);
    }
    let mut into = state.carried;
    for own in &mut carried {
        let out = into.wrapping_mul(SEGMENT_CARRY_FACTOR).wrapping_add(*own);
        *own = into;
        into = out;
    }
    for (row, bytes) in rows.iter().zip(&mut bytes) {
        row.finish(&mut carried, bytes);
    }
    *block = transpose(&bytes);
    CipherState { carried: into, key }
}

/// Returns the key that each segment starts with, as [`splat`] gives it, and the key after the block.
#[inline(always)]
fn starting_keys(key: u8, bytes: &[[u8; SEGMENTS]; SEGMENT_LEN]) -> ([u16; SEGMENTS], u8) {
    // One byte per segment: first the XOR of the segment, then the XOR of all segments up to it.
    let mut ends = bytes.iter().fold(0, |xor, bytes| xor ^ u128::from_le_bytes(*bytes));
    ends ^= ends << 8;
    ends ^= ends << 16;
    ends ^= ends << 32;
    ends ^= ends << 64;
    ends ^= u128::from_le_bytes([key; SEGMENTS]);
    let starts = ends << 8 | u128::from(key);
    let [.., last] = ends.to_le_bytes();
    (starts.to_le_bytes().map(splat), last)
}

/// Intermediate values of the cipher for one byte of every segment: the bytes at the same offset.
#[derive(Clone, Copy, Default)]
struct SegmentRow {
    sums: [[u16; SEGMENTS]; 5],
    words: [u16; SEGMENTS],
    carried: [u16; SEGMENTS],
}

impl SegmentRow {
    /// Computes the values as if the carry into every segment were 0, and advances by one byte.
    #[expect(clippy::indexing_slicing, reason = "all arrays have an element for every segment")]
    #[inline(always)]
    fn prepare(&mut self, keys: &mut [u16; SEGMENTS], carried: &mut [u16; SEGMENTS], bytes: &[u8; SEGMENTS]) {
        let [s0, s1, s2, s3, s4] = &mut self.sums;
        for i in 0..SEGMENTS {
            let step = ByteStep::new(0, keys[i]);
            [s0[i], s1[i], s2[i], s3[i], s4[i]] = step.sums;
            self.words[i] = step.words;
            self.carried[i] = step.carried;
            carried[i] = step.with_carry(carried[i]).carried;
            keys[i] ^= splat(bytes[i]);
        }
    }

    /// Adds the real carries to the values, and XORs the bytes with the masks.
    #[expect(clippy::indexing_slicing, reason = "all arrays have an element for every segment")]
    #[inline(always)]
    fn finish(&self, carried: &mut [u16; SEGMENTS], bytes: &mut [u8; SEGMENTS]) {
        let [s0, s1, s2, s3, s4] = &self.sums;
        for i in 0..SEGMENTS {
            let sums = [s0[i], s1[i], s2[i], s3[i], s4[i]];
            let step =
                ByteStep { sums, words: self.words[i], carried: self.carried[i] }.with_carry(carried[i]);
            carried[i] = step.carried;
            let [mask, _] = step.mask().to_ne_bytes();
            bytes[i] ^= mask;
        }
    }
}

/// The number of segments: `starting_keys` needs one byte of a `u128` for each.
const SEGMENTS: usize = 16;
const SEGMENT_LEN: usize = 8;
const BLOCK_LEN: usize = SEGMENTS * SEGMENT_LEN;
/// The factor by which a segment multiplies the carry into it.
#[expect(clippy::cast_possible_truncation, reason = "a small constant")]
const SEGMENT_CARRY_FACTOR: u16 = multiplier_power(5 * SEGMENT_LEN as u32);
