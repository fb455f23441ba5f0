//! One byte step of the cipher: the five rounds that give one mask byte ([T-42], [T-45]).
//!
//! T-42 names the values: S is a sum, C a carry, V a word before its round and W the word after it.
//!
//! [T-42]: crate::protocol#t-42
//! [T-45]: crate::protocol#t-45

/// The values that are carried over from byte to byte.
#[derive(Clone, Copy, Default)]
pub(super) struct CipherState {
    /// C + S * 0x4E35 after the last round: the next byte needs neither S nor C alone.
    pub(super) carried: u16,
    /// XOR of the plaintext so far. Each of the ten key bytes is XORed with it.
    pub(super) key: u8,
}

/// The results of one byte step. `sums` has S after each round.
#[derive(Clone, Copy)]
pub(super) struct ByteStep {
    pub(super) sums: [u16; 5],
    /// XOR of the five W.
    pub(super) words: u16,
    /// [`CipherState::carried`] for the next byte.
    pub(super) carried: u16,
}

impl ByteStep {
    /// Runs the five rounds. `splat_key` is [`splat`] of [`CipherState::key`].
    #[inline(always)]
    pub(super) const fn new(carried: u16, splat_key: u16) -> Self {
        let [k0, k1, k2, k3, k4] = KEY;
        // T-42: each word is XORed with W of the round before it.
        let (p0, w0) = word_round(k0 ^ splat_key);
        let (p1, w1) = word_round(k1 ^ splat_key ^ w0);
        let (p2, w2) = word_round(k2 ^ splat_key ^ w1);
        let (p3, w3) = word_round(k3 ^ splat_key ^ w2);
        let (p4, w4) = word_round(k4 ^ splat_key ^ w3);
        let s0 = carried.wrapping_add(p0);
        let s1 = carry_into_round(s0, 1, p0).wrapping_add(p1);
        let s2 = carry_into_round(s1, 2, p1).wrapping_add(p2);
        let s3 = carry_into_round(s2, 3, p2).wrapping_add(p3);
        let s4 = carry_into_round(s3, 4, p3).wrapping_add(p4);
        Self {
            sums: [s0, s1, s2, s3, s4],
            words: w0 ^ w1 ^ w2 ^ w3 ^ w4,
            carried: carry_into_round(s4, 0, p4),
        }
    }

    /// Adds `carried` to a step that was computed with carry 0: every sum is linear in the carry.
    #[inline(always)]
    pub(super) const fn with_carry(self, carried: u16) -> Self {
        let [s0, s1, s2, s3, s4] = self.sums;
        Self {
            sums: [
                s0.wrapping_add(carried),
                s1.wrapping_add(carried.wrapping_mul(multiplier_power(1))),
                s2.wrapping_add(carried.wrapping_mul(multiplier_power(2))),
                s3.wrapping_add(carried.wrapping_mul(multiplier_power(3))),
                s4.wrapping_add(carried.wrapping_mul(multiplier_power(4))),
            ],
            words: self.words,
            carried: self.carried.wrapping_add(carried.wrapping_mul(multiplier_power(5))),
        }
    }

    /// Returns the mask byte in both halves of a word, like [`splat`].
    #[inline(always)]
    pub(super) const fn mask(self) -> u16 {
        let [s0, s1, s2, s3, s4] = self.sums;
        let accumulator = self.words ^ s0 ^ s1 ^ s2 ^ s3 ^ s4;
        accumulator ^ accumulator.rotate_left(8)
    }
}

/// Returns `byte` in both halves of a word, to XOR a pair of key bytes with it.
#[inline(always)]
pub(super) const fn splat(byte: u8) -> u16 {
    u16::from_ne_bytes([byte; 2])
}

/// Returns the factor by which `rounds` rounds multiply a carry; a byte step has five rounds.
pub(super) const fn multiplier_power(rounds: u32) -> u16 {
    MULTIPLIER.wrapping_pow(rounds)
}

/// Returns C and W of the word V.
#[inline(always)]
const fn word_round(word: u16) -> (u16, u16) {
    (word.wrapping_mul(CARRY_FACTOR), word.wrapping_mul(MULTIPLIER).wrapping_add(1))
}

/// Returns C + (S + `round`) * 0x4E35: S of round `round` without its own C.
#[inline(always)]
const fn carry_into_round(sum: u16, round: u16, carry: u16) -> u16 {
    sum.wrapping_mul(MULTIPLIER).wrapping_add(carry.wrapping_add(round.wrapping_mul(MULTIPLIER)))
}

/// The key `AlbyRules!`, as big-endian pairs.
const KEY: [u16; 5] = [0x416C, 0x6279, 0x5275, 0x6C65, 0x7321];
const MULTIPLIER: u16 = 0x4E35;
const CARRY_FACTOR: u16 = 0x015A;
