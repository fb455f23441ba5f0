//! The datagram cipher: rules [T-40] to [T-45].
//!
//! Every byte but the first is XORed with a mask byte. The mask depends on all plaintext before it in the
//! same datagram. This module computes the masks. The caller decides which datagrams are encrypted at all
//! (GameSpy text is not).
//!
//! For each byte, the cipher runs five rounds of 16-bit arithmetic over ten key bytes. Only two small values
//! survive from byte to byte: a carry, and the XOR of the plaintext so far. That allows three
//! implementations. The tests compare all three with the algorithm as T-42 states it:
//!
//! * Decrypting one datagram is a dependency chain: each plaintext byte must be known before the next mask.
//!   A table, indexed by the XOR of the plaintext so far, has the result of the five rounds. The cost per
//!   byte is the latency of a load, an addition and a few XORs. Vectors cannot help a single datagram here.
//! * Encrypting one datagram is no chain: the plaintext is known, and the carry changes linearly. A block is
//!   cut into sixteen segments. A short scan finds the state that each segment starts with; then the
//!   segments run in parallel.
//! * A batch runs sixteen datagrams in parallel, in both directions. The fifteen multiplications per byte
//!   limit narrow vectors. Wide vectors, when decrypting, are limited by the same chain as a single
//!   datagram.
//!
//! A lane is one of the segments or datagrams that run in parallel. The lanes are plain arrays that the
//! compiler turns into vector instructions. It compiles the inner loops twice: for the instructions that the
//! target always has, and for AVX2. Therefore these functions are always inlined.
//!
//! [T-40]: crate::protocol#t-40
//! [T-45]: crate::protocol#t-45

#[cfg(target_arch = "x86_64")]
mod avx2;
mod lanes;
#[doc(hidden)]
pub mod portable;
mod segments;
mod step;
mod table;
mod transpose;

use step::{ByteStep, CipherState};

/// Encrypts one datagram in place; byte 0 is never encrypted.
#[inline(never)]
pub fn encrypt(datagram: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if let Some(avx2) = avx2::Avx2::detect() {
        return avx2.encrypt(datagram);
    }
    portable::encrypt(datagram);
}

/// Decrypts one datagram in place; byte 0 is never encrypted.
#[inline(never)]
pub fn decrypt(datagram: &mut [u8]) {
    table::run::<Decrypt>(CipherState::default(), body(datagram));
}

/// Encrypts independent datagrams in place, with the same result as [`encrypt`] on each.
pub fn encrypt_batch(datagrams: &mut [&mut [u8]]) {
    #[cfg(target_arch = "x86_64")]
    if let Some(avx2) = avx2::Avx2::detect() {
        return avx2.encrypt_batch(datagrams);
    }
    portable::encrypt_batch(datagrams);
}

/// Decrypts independent datagrams in place, with the same result as [`decrypt`] on each.
pub fn decrypt_batch(datagrams: &mut [&mut [u8]]) {
    #[cfg(target_arch = "x86_64")]
    if let Some(avx2) = avx2::Avx2::detect() {
        return avx2.decrypt_batch(datagrams);
    }
    portable::decrypt_batch(datagrams);
}

/// Returns the bytes after byte 0: the encrypted part (T-40).
fn body(datagram: &mut [u8]) -> &mut [u8] {
    datagram.get_mut(1..).unwrap_or_default()
}

/// The differences between encrypting and decrypting.
trait CipherDirection {
    /// A batch with at most this many unfinished datagrams is faster one datagram at a time.
    const SEQUENTIAL_MAX_LANES: usize;

    /// Computes the five rounds for one byte; the arguments are those of [`ByteStep::new`].
    #[inline(always)]
    fn byte_step(carried: u16, splat_key: u16) -> ByteStep {
        ByteStep::new(carried, splat_key)
    }

    /// Returns the plaintext: the input when encrypting, the output when decrypting.
    ///
    /// The key bytes are XORed with the plaintext (T-44).
    fn plaintext<T>(input: T, output: T) -> T;

    /// Processes the rest of a single datagram.
    fn finish_single(state: CipherState, bytes: &mut [u8]);
}

struct Encrypt;

impl CipherDirection for Encrypt {
    const SEQUENTIAL_MAX_LANES: usize = 8;

    #[inline(always)]
    fn plaintext<T>(input: T, _: T) -> T {
        input
    }

    #[inline(always)]
    fn finish_single(state: CipherState, bytes: &mut [u8]) {
        segments::encrypt(state, bytes);
    }
}

struct Decrypt;

impl CipherDirection for Decrypt {
    const SEQUENTIAL_MAX_LANES: usize = 4;

    #[inline(always)]
    fn plaintext<T>(_: T, output: T) -> T {
        output
    }

    #[inline(always)]
    fn finish_single(state: CipherState, bytes: &mut [u8]) {
        table::run::<Self>(state, bytes);
    }
}
