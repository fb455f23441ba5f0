//! The byte step by table lookup, for bytes that must be processed one after the other.

use super::CipherDirection;
use super::step::{ByteStep, CipherState, multiplier_power, splat};

/// Encrypts or decrypts `bytes`, the rest of a datagram; `state` is the state before them.
///
/// The next mask needs every plaintext byte, so the latency from one key to the next limits the speed.
/// Therefore the XORs form a tree. The products do not depend on the key, so they are ready early. They are
/// 32 bits wide, because the compiler would put narrower ones through vector registers.
#[expect(clippy::indexing_slicing, reason = "a column has an entry for every byte")]
#[expect(clippy::cast_possible_truncation, reason = "the mask is a byte")]
pub(super) fn run<D: CipherDirection>(state: CipherState, bytes: &mut [u8]) {
    let mut carried = u32::from(state.carried);
    let mut key = state.key;
    for byte in bytes {
        let input = *byte;
        let [s0, s1, s2, s3, s4, next, words] = COLUMNS.each_ref().map(|column| column[usize::from(key)]);
        let low = sum_with_carry::<0>(carried, s0) ^ u32::from(words);
        let middle = sum_with_carry::<1>(carried, s1) ^ sum_with_carry::<2>(carried, s2);
        let high = sum_with_carry::<3>(carried, s3) ^ sum_with_carry::<4>(carried, s4);
        let accumulator = u32::from(input ^ key) ^ low ^ (middle ^ high);
        carried = sum_with_carry::<5>(carried, next);
        // The key is already part of the accumulator, so `sum` is the output XOR the key. When decrypting,
        // that is the next key.
        let sum = (accumulator ^ accumulator >> 8) as u8;
        *byte = sum ^ key;
        key = D::plaintext(key ^ input, sum);
    }
}

/// Adds the carry to one sum, like [`ByteStep::with_carry`]. Only the low 16 bits are valid.
#[inline(always)]
fn sum_with_carry<const ROUNDS: u32>(carried: u32, sum: u16) -> u32 {
    carried.wrapping_mul(const { multiplier_power(ROUNDS) as u32 }).wrapping_add(sum as u32)
}

/// The result of [`ByteStep::new`] with carry 0 for each key: a column for each of its values.
///
/// Each column is an array, so the key is the index and needs no multiplication.
#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
static COLUMNS: [[u16; 256]; 7] = {
    let mut columns = [[0; 256]; 7];
    let mut key = 0u8;
    loop {
        let ByteStep { sums: [s0, s1, s2, s3, s4], carried, words } = ByteStep::new(0, splat(key));
        let row = [s0, s1, s2, s3, s4, carried, words];
        let mut column = 0;
        while column < row.len() {
            columns[column][key as usize] = row[column];
            column += 1;
        }
        if key == 0xFF {
            break columns;
        }
        key += 1;
    }
};
