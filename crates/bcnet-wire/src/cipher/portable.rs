//! The cipher with the vector instructions that every processor of the target has.
//!
//! Public only for tests and benchmarks: on a processor with AVX2 they could not reach this code otherwise.

use super::step::CipherState;
use super::{Decrypt, Encrypt, body, lanes, segments};

/// Encrypts one datagram in place.
pub fn encrypt(datagram: &mut [u8]) {
    segments::encrypt(CipherState::default(), body(datagram));
}

/// Encrypts independent datagrams in place.
pub fn encrypt_batch(datagrams: &mut [&mut [u8]]) {
    lanes::run::<Encrypt>(datagrams);
}

/// Decrypts independent datagrams in place.
pub fn decrypt_batch(datagrams: &mut [&mut [u8]]) {
    lanes::run::<Decrypt>(datagrams);
}
