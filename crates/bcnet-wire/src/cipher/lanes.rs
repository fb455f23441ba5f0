//! Encrypts or decrypts a batch of datagrams in parallel.
//!
//! Each lane works on one datagram and takes the next from the queue when it ends. So the datagrams may
//! have different lengths.

use core::{array, mem};

use super::step::{CipherState, splat};
use super::transpose::transpose;
use super::{CipherDirection, body};

/// Processes every datagram of the batch, each from a fresh state (T-41).
#[inline(always)]
pub(super) fn run<D: CipherDirection>(datagrams: &mut [&mut [u8]]) {
    let mut queue = datagrams.iter_mut().map(|datagram| body(datagram)).filter(|body| !body.is_empty());
    let mut bodies: [&mut [u8]; LANES] = array::from_fn(|_| queue.next().unwrap_or_default());
    let mut lanes = Lanes { carried: [0; LANES], keys: [0; LANES] };
    let mut busy = bodies.iter().filter(|body| !body.is_empty()).count();
    while busy > D::SEQUENTIAL_MAX_LANES {
        let mut block = [[0; BYTES_PER_BLOCK]; LANES];
        for (bytes, body) in block.iter_mut().zip(&bodies) {
            match body.first_chunk() {
                Some(whole) => *bytes = *whole,
                // The lane also computes bytes past the end of its datagram; they are discarded.
                None => bytes.iter_mut().zip(body.iter()).for_each(|(to, from)| *to = *from),
            }
        }
        lanes.run::<D>(&mut block);
        for (lane, (body, bytes)) in bodies.iter_mut().zip(&block).enumerate() {
            let rest = mem::take(body);
            if rest.len() > BYTES_PER_BLOCK {
                let (done, rest) = rest.split_at_mut(BYTES_PER_BLOCK);
                done.copy_from_slice(bytes);
                *body = rest;
            } else if !rest.is_empty() {
                rest.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
                lanes.reset(lane);
                match queue.next() {
                    Some(next) => *body = next,
                    None => busy -= 1,
                }
            }
        }
    }
    for (state, body) in lanes.states().zip(bodies) {
        D::finish_single(state, body);
    }
}

/// The [`CipherState`] of every lane; the key is stored as [`splat`] returns it.
struct Lanes {
    carried: [u16; LANES],
    keys: [u16; LANES],
}

impl Lanes {
    #[inline(always)]
    fn run<D: CipherDirection>(&mut self, block: &mut [[u8; BYTES_PER_BLOCK]; LANES]) {
        let mut rows = transpose(block);
        for row in &mut rows {
            for ((carried, key), byte) in self.carried.iter_mut().zip(&mut self.keys).zip(row) {
                let step = D::byte_step(*carried, *key);
                let input = splat(*byte);
                let output = input ^ step.mask();
                *carried = step.carried;
                *key ^= D::plaintext(input, output);
                [*byte, _] = output.to_ne_bytes();
            }
        }
        *block = transpose(&rows);
    }

    fn reset(&mut self, lane: usize) {
        if let (Some(carried), Some(key)) = (self.carried.get_mut(lane), self.keys.get_mut(lane)) {
            (*carried, *key) = (0, 0);
        }
    }

    fn states(&self) -> impl Iterator<Item = CipherState> {
        self.carried.iter().zip(&self.keys).map(|(&carried, key)| {
            let [key, _] = key.to_ne_bytes();
            CipherState { carried, key }
        })
    }
}

/// Two 128-bit vectors of words: the processor works on one while the other waits for its results.
const LANES: usize = 16;
/// Bytes of each lane that are transposed and processed together.
const BYTES_PER_BLOCK: usize = 16;
