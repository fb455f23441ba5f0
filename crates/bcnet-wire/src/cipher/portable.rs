//! The cipher with the vectors that every processor of the target has. Public for tests and benchmarks only,
//! which otherwise would not reach it on a processor that has more.

use super::step::CipherState;
use super::{Decrypt, Encrypt, body, lanes, segments};

/// Enciphers one datagram in place.
pub fn encrypt(datagram: &mut [u8]) {
    segments::encrypt(CipherState::default(), body(datagram));
}

/// Enciphers independent datagrams in place.
pub fn encrypt_batch(datagrams: &mut [&mut [u8]]) {
    lanes::run::<Encrypt>(datagrams);
}

/// Deciphers independent datagrams in place.
pub fn decrypt_batch(datagrams: &mut [&mut [u8]]) {
    lanes::run::<Decrypt>(datagrams);
}
