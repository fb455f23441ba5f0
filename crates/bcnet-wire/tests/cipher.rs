//! Compares the cipher with captured bytes, stored vectors and the textbook form.

mod oracle;

use bcnet_wire::cipher::{self, portable};

type CipherFn = fn(&mut [u8]);
type BatchCipherFn = fn(&mut [&mut [u8]]);

/// The single form, the batch form and the textbook form of each direction, for both kernels.
const DIRECTIONS: [(&str, CipherFn, BatchCipherFn, CipherFn); 4] = [
    ("encrypt", cipher::encrypt, cipher::encrypt_batch, oracle::encrypt),
    ("decrypt", cipher::decrypt, cipher::decrypt_batch, oracle::decrypt),
    ("portable encrypt", portable::encrypt, portable::encrypt_batch, oracle::encrypt),
    ("portable decrypt", cipher::decrypt, portable::decrypt_batch, oracle::decrypt),
];

const CAPTURED_PLAIN: [u8; 8] = [0x01, 0x01, 0x03, 0x06, 0xC0, 0x00, 0x00, 0x02];
const CAPTURED_WIRE: [u8; 8] = [0x01, 0xD7, 0x33, 0x68, 0xC3, 0xBF, 0x76, 0xDB];

/// T-42: key and rounds are those of the game; otherwise these bytes would differ.
#[test]
fn the_captured_datagram_is_reproduced_in_both_directions() {
    assert_eq!(applied(cipher::encrypt, &CAPTURED_PLAIN), CAPTURED_WIRE);
    assert_eq!(applied(cipher::decrypt, &CAPTURED_WIRE), CAPTURED_PLAIN);
}

/// T-42: deriving all five words before the first round is a different cipher.
#[test]
fn key_words_are_derived_round_by_round() {
    let interleaved = WideTextbook { words_first: false }.encrypt(&CAPTURED_PLAIN);
    let words_first = WideTextbook { words_first: true }.encrypt(&CAPTURED_PLAIN);
    assert_eq!(interleaved, CAPTURED_WIRE);
    assert_ne!(words_first, CAPTURED_WIRE);
}

/// T-42, T-43: sums, words and accumulator of the first byte, by hand from the rule.
#[test]
fn the_first_byte_has_the_known_sums_words_and_mask() {
    let (sums, words, accumulator) = WideTextbook { words_first: false }.first_byte();
    assert_eq!(sums, [0x00586BF8, 0x063BCF2D, 0x73E29D63, 0x2D4F6146, 0xF1327582]);
    assert_eq!(words, [0x13FC735D, 0xF0688475, 0xB6E84E01, 0x988996B5, 0x987F9FA5]);
    assert_eq!(accumulator, 0xFC769D4B);
    assert_eq!(0x4B ^ 0x9D, 0xD6);
}

/// T-43: byte 0 is not encrypted because it is skipped, not because its mask is zero.
#[test]
fn the_first_mask_byte_is_d6() {
    for byte in 0..=0xFF {
        assert_eq!(applied(cipher::encrypt, &[0, byte]), [0, byte ^ 0xD6]);
        assert_eq!(applied(cipher::decrypt, &[0, byte]), [0, byte ^ 0xD6]);
    }
}

/// T-40: byte 0 is not changed and does not influence the key.
#[test]
fn byte_0_is_not_encrypted_and_has_no_influence() {
    for (name, one, batch, _) in DIRECTIONS {
        for form in [CipherForm::One(one), CipherForm::Batch(batch)] {
            let body = SplitMix(40).bytes(300);
            let [zero, high] = [0x00, 0xFF].map(|first| form.apply(&[[&[first], &body[..]].concat()]));
            assert_eq!((zero[0][0], high[0][0]), (0x00, 0xFF), "{name}");
            assert_eq!(zero[0][1..], high[0][1..], "{name}");
            assert_ne!(zero[0][1..], body, "{name}");
        }
    }
}

/// T-40: without bytes after byte 0, the cipher changes nothing.
#[test]
fn empty_and_one_byte_datagrams_are_unchanged() {
    for (_, one, batch, _) in DIRECTIONS {
        assert_eq!(applied(one, &[]), [0u8; 0]);
        assert_eq!(applied(one, &[0x5C]), [0x5C]);
        let datagrams = vec![vec![], vec![0x5C], vec![], vec![0x01]];
        assert_eq!(CipherForm::Batch(batch).apply(&datagrams), datagrams);
        batch(&mut []);
    }
}

/// T-41: no state is carried over, not even in a lane that a batch uses again.
#[test]
fn the_state_restarts_for_each_datagram() {
    for (name, one, batch, _) in DIRECTIONS {
        let datagram = SplitMix(41).bytes(200);
        let want = applied(one, &datagram);
        assert_eq!(applied(one, &datagram), want, "{name}");
        assert_eq!(CipherForm::Batch(batch).apply(&vec![datagram; 100]), vec![want; 100], "{name}");
    }
}

/// T-44: the masks depend on the plaintext, in both directions.
#[test]
fn the_key_changes_with_the_plaintext_in_both_directions() {
    // The plaintext is equal after a difference, but the masks still differ.
    let [one, two] = [[0, 1, 0, 0], [0, 2, 0, 0]].map(|plain| applied(cipher::encrypt, &plain));
    assert_ne!(one[2..], two[2..]);
    // Decryption keyed by its input would be encryption again, which does not return the plaintext.
    assert_ne!(applied(cipher::encrypt, &CAPTURED_WIRE), CAPTURED_PLAIN);
    assert_eq!(applied(cipher::decrypt, &CAPTURED_WIRE), CAPTURED_PLAIN);
}

/// T-45: the game's 32-bit arithmetic on sign-extended bytes gives the same bytes as 16 bits.
#[test]
fn sixteen_bit_arithmetic_is_enough() {
    let mut random = SplitMix(45);
    for length in 0..300 {
        let plain = random.bytes(length);
        let wide = WideTextbook { words_first: false }.encrypt(&plain);
        assert_eq!(applied(oracle::encrypt, &plain), wide, "{length} bytes");
        assert_eq!(applied(cipher::encrypt, &plain), wide, "{length} bytes");
    }
}

/// T-42: bodies computed by hand from the rule.
#[test]
fn worked_examples_are_reproduced() {
    let connect_request =
        [0x01, 0x03, 0x0F, 0xC0, 0x00, 0x00, 0x0A, 0x0A, 0x0A, 0xEF, 0x5F, 0x0A, 0x00, 0x00, 0x00, 0x00];
    let connect_request_wire =
        [0xD7, 0x33, 0x61, 0x38, 0xB3, 0x5B, 0x46, 0x54, 0x35, 0xD1, 0x4F, 0xC5, 0xE2, 0x55, 0x71, 0x66];
    let worked: [(&[u8], &[u8]); 5] = [
        (&[0; 8], &[0xD6, 0xFE, 0x17, 0xF1, 0x86, 0x49, 0xBC, 0x51]),
        (&[0xFF; 4], &[0x29, 0x97, 0x5E, 0x7E]),
        (&[0x80, 0x7F, 0x01], &[0x56, 0x7C, 0x41]),
        (&connect_request, &connect_request_wire),
        (&[0x01, 0x02], &[0xD7, 0x32]),
    ];
    for (plain, wire) in worked {
        let [plain, wire] = [plain, wire].map(|body| [&[0xFF], body].concat());
        assert_eq!(applied(cipher::encrypt, &plain), wire);
        assert_eq!(applied(cipher::decrypt, &wire), plain);
    }
}

/// T-40, T-42: the vectors in `captures/cipher.json`, one by one and as a batch.
#[test]
fn the_stored_vectors_are_reproduced_in_both_directions() {
    let stored: serde_json::Value =
        serde_json::from_str(include_str!("../../../captures/cipher.json")).expect("valid JSON");
    let vectors = stored["vectors"].as_array().expect("a list of vectors");
    assert_eq!(vectors.len(), 12);
    let side = |name: &str| vectors.iter().map(|v| unhex(&v[name])).collect::<Vec<_>>();
    let (plain, wire) = (side("plain_hex"), side("wire_hex"));
    for form in [CipherForm::One(cipher::encrypt), CipherForm::Batch(cipher::encrypt_batch)] {
        assert_eq!(form.apply(&plain), wire);
    }
    for form in [CipherForm::One(cipher::decrypt), CipherForm::Batch(cipher::decrypt_batch)] {
        assert_eq!(form.apply(&wire), plain);
    }
}

/// T-42, T-44: every length around every block size, on random bytes.
#[test]
fn all_lengths_agree_with_the_textbook_and_return_to_the_plaintext() {
    let mut random = SplitMix(42);
    for length in 0..=600 {
        let plain = random.bytes(length);
        let wire = applied(oracle::encrypt, &plain);
        assert_eq!(applied(cipher::encrypt, &plain), wire, "{length} bytes");
        assert_eq!(applied(portable::encrypt, &plain), wire, "{length} bytes");
        assert_eq!(applied(cipher::decrypt, &wire), plain, "{length} bytes");
        assert_eq!(applied(cipher::encrypt, &applied(cipher::decrypt, &plain)), plain, "{length} bytes");
    }
}

/// T-41: a batch gives the same result as its datagrams one by one, for every count and mix of lengths.
#[test]
fn a_batch_equals_its_datagrams_one_by_one() {
    let mut random = SplitMix(43);
    for count in 0..=40 {
        for longest in [1, 2, 3, 9, 18, 40, 70, 200, 600] {
            let lengths: Vec<_> = (0..count).map(|_| random.below(longest + 1)).collect();
            assert_batch(&mut random, &lengths);
        }
    }
}

/// T-41: the same for lengths that random tests do not reach.
#[test]
fn batches_of_extreme_lengths_equal_their_datagrams_one_by_one() {
    let mut random = SplitMix(44);
    for length in [0, 1, 2, 16, 17, 18, 33, 511, 512] {
        for count in [1, 4, 5, 8, 9, 15, 16, 17, 32, 33, 64] {
            assert_batch(&mut random, &vec![length; count]);
        }
    }
    for position in [0, 7, 39] {
        let mut lengths: Vec<_> = (0..40).map(|i| i * 3).collect();
        lengths[position] = 65_535;
        assert_batch(&mut random, &lengths);
    }
    let alternating: Vec<_> = (0..60).map(|i| [0, 600, 1, 17, 2][i % 5]).collect();
    assert_batch(&mut random, &alternating);
}

/// Compares both directions of a batch of random bytes with the textbook form.
fn assert_batch(random: &mut SplitMix, lengths: &[usize]) {
    let datagrams: Vec<_> = lengths.iter().map(|&length| random.bytes(length)).collect();
    for (name, _, batch, textbook) in DIRECTIONS {
        let got = CipherForm::Batch(batch).apply(&datagrams);
        let want = CipherForm::One(textbook).apply(&datagrams);
        // Not assert_eq: the output of forty datagrams would hide the lengths.
        assert!(got == want, "{name} of lengths {lengths:?}");
    }
}

/// Returns `datagram` after `cipher`.
fn applied(cipher: CipherFn, datagram: &[u8]) -> Vec<u8> {
    let mut datagram = datagram.to_vec();
    cipher(&mut datagram);
    datagram
}

enum CipherForm {
    One(CipherFn),
    Batch(BatchCipherFn),
}

impl CipherForm {
    fn apply(&self, datagrams: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut datagrams = datagrams.to_vec();
        match self {
            Self::One(cipher) => datagrams.iter_mut().for_each(|datagram| cipher(datagram)),
            Self::Batch(cipher) => {
                cipher(&mut datagrams.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>())
            }
        }
        datagrams
    }
}

/// The rule as the game computes it, in 32 bits on sign-extended bytes.
///
/// With `words_first`, a misreading of the rule that derives all words before the first round.
struct WideTextbook {
    words_first: bool,
}

impl WideTextbook {
    const KEY: [u8; 10] = *b"AlbyRules!";

    fn encrypt(&self, plain: &[u8]) -> Vec<u8> {
        let mut key = Self::KEY.map(u32::from);
        let (mut sum, mut carry) = (0, 0);
        let mut wire = plain.to_vec();
        for byte in wire.iter_mut().skip(1) {
            let rounds = self.rounds(&key, &mut sum, &mut carry);
            let accumulator = rounds.iter().fold(0, |xor, (sum, word)| xor ^ sum ^ word);
            let input = *byte as i8 as u32;
            *byte = (input ^ accumulator ^ accumulator >> 8) as u8;
            key = key.map(|key| key ^ input);
        }
        wire
    }

    /// Returns sums, words and accumulator of the first byte.
    fn first_byte(&self) -> ([u32; 5], [u32; 5], u32) {
        let rounds = self.rounds(&Self::KEY.map(u32::from), &mut 0, &mut 0);
        let accumulator = rounds.iter().fold(0, |xor, (sum, word)| xor ^ sum ^ word);
        (rounds.map(|(sum, _)| sum), rounds.map(|(_, word)| word), accumulator)
    }

    /// Returns sum and word after each round.
    fn rounds(&self, key: &[u32; 10], sum: &mut u32, carry: &mut u32) -> [(u32, u32); 5] {
        let mut words: [u32; 5] = std::array::from_fn(|i| key[2 * i] << 8 | key[2 * i + 1] & 0xFF);
        if self.words_first {
            (1..5).for_each(|i| words[i] ^= words[i - 1]);
        }
        std::array::from_fn(|i| {
            if i > 0 && !self.words_first {
                words[i] ^= words[i - 1];
            }
            let product = words[i].wrapping_mul(0x015A);
            *sum = sum.wrapping_add(i as u32).wrapping_mul(0x4E35).wrapping_add(*carry).wrapping_add(product);
            *carry = product;
            words[i] = words[i].wrapping_mul(0x4E35).wrapping_add(1);
            (*sum, words[i])
        })
    }
}

/// SplitMix64, seeded, so that a failure can be repeated.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }
}

fn unhex(value: &serde_json::Value) -> Vec<u8> {
    let digits = value.as_str().expect("a string").as_bytes();
    let digit = |d: u8| char::from(d).to_digit(16).expect("a hexadecimal digit") as u8;
    digits.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}
