//! The byte step by table: the form for bytes that must be treated one after the other.

use super::CipherDirection;
use super::step::{ByteStep, CipherState, multiplier_power, splat};

/// Treats the rest of a datagram from `state`.
///
/// With every plaintext byte needed for the next mask, time is the latency from one key to the next. That is
/// why the products, which do not wait for the key, are 32 bits wide (the compiler would otherwise put them
/// through vector registers), and why the XORs form a tree.
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
        // The key took part above, so this is the output with the key added: when deciphering, the next key.
        let sum = (accumulator ^ accumulator >> 8) as u8;
        *byte = sum ^ key;
        key = D::plaintext(key ^ input, sum);
    }
}

/// [`Step::after`] for one sum, in the low 16 bits.
#[inline(always)]
fn sum_with_carry<const ROUNDS: u32>(carried: u32, sum: u16) -> u32 {
    carried.wrapping_mul(const { multiplier_power(ROUNDS) as u32 }).wrapping_add(sum as u32)
}

/// For every key, the five sums with nothing carried in, what is carried out, and the words. By columns, so
/// that the key indexes them without being multiplied first.
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
