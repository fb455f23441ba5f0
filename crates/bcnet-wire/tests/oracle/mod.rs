//! The cipher as the rule states it: five rounds per byte over ten mutated key bytes.
//!
//! It is written from the description alone and shares no code with the crate. So tests can compare the two,
//! and the benchmark has an honest baseline.

const KEY: [u8; 10] = *b"AlbyRules!";
const MULTIPLIER: u16 = 0x4E35;
const CARRY_FACTOR: u16 = 0x015A;

pub(crate) fn encrypt(datagram: &mut [u8]) {
    let mut cipher = Textbook::new();
    for byte in datagram.iter_mut().skip(1) {
        let plain = *byte;
        *byte ^= cipher.mask();
        cipher.absorb(plain);
    }
}

pub(crate) fn decrypt(datagram: &mut [u8]) {
    let mut cipher = Textbook::new();
    for byte in datagram.iter_mut().skip(1) {
        *byte ^= cipher.mask();
        cipher.absorb(*byte);
    }
}

struct Textbook {
    key: [u8; 10],
    words: [u16; 5],
    sum: u16,
    carry: u16,
}

impl Textbook {
    fn new() -> Self {
        Self { key: KEY, words: [0; 5], sum: 0, carry: 0 }
    }

    fn mask(&mut self) -> u8 {
        let mut accumulator = 0;
        for round in 0..5 {
            let mut word = u16::from_be_bytes([self.key[2 * round], self.key[2 * round + 1]]);
            if round > 0 {
                word ^= self.words[round - 1];
            }
            let carry = word.wrapping_mul(CARRY_FACTOR);
            self.sum = self
                .sum
                .wrapping_add(round as u16)
                .wrapping_mul(MULTIPLIER)
                .wrapping_add(self.carry)
                .wrapping_add(carry);
            self.carry = carry;
            self.words[round] = word.wrapping_mul(MULTIPLIER).wrapping_add(1);
            accumulator ^= self.sum ^ self.words[round];
        }
        accumulator as u8 ^ (accumulator >> 8) as u8
    }

    fn absorb(&mut self, plain: u8) {
        for byte in &mut self.key {
            *byte ^= plain;
        }
    }
}
