//! The datagram cipher: rules T-40 to T-45.
//!
//! Every byte but the first is XORed with a mask byte, and the mask depends on all plaintext before it in the
//! same datagram. This module owns the masks and nothing else: which datagrams are enciphered at all (GameSpy
//! text is not) is the caller's decision.
//!
//! The rule runs five rounds of 16-bit arithmetic over ten key bytes, but only two small values survive from
//! byte to byte. That allows three forms of the same step, all held against the textbook form by the tests:
//!
//! * Deciphering one datagram is a chain: a plaintext byte must be known before the next mask. The step is
//!   looked up in a table by the one byte that the key has changed by, and what remains is the latency of a
//!   load, an addition and a few XORs per byte. Vectors cannot help a single datagram here.
//! * Enciphering one datagram is no chain: the plaintext is known and the rest is linear. A block is cut into
//!   sixteen segments that run side by side once a short scan has found the state each of them starts in.
//! * A batch runs sixteen datagrams side by side, in both directions. Narrow vectors are limited by the
//!   fifteen multiplications per byte; wide ones, when deciphering, by the same chain as a single datagram.
//!
//! The lanes are plain arrays that the compiler turns into vector instructions: those that the target always
//! has, and a second time AVX2. For that the kernels are always inlined.

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

/// Enciphers one datagram in place; byte 0 stays clear.
#[inline(never)]
pub fn encrypt(datagram: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if let Some(avx2) = avx2::Avx2::detect() {
        return avx2.encrypt(datagram);
    }
    portable::encrypt(datagram);
}

/// Deciphers one datagram in place; byte 0 was never enciphered.
#[inline(never)]
pub fn decrypt(datagram: &mut [u8]) {
    table::run::<Decrypt>(CipherState::default(), body(datagram));
}

/// Enciphers independent datagrams in place, with the result of [`encrypt`] on each.
pub fn encrypt_batch(datagrams: &mut [&mut [u8]]) {
    #[cfg(target_arch = "x86_64")]
    if let Some(avx2) = avx2::Avx2::detect() {
        return avx2.encrypt_batch(datagrams);
    }
    portable::encrypt_batch(datagrams);
}

/// Deciphers independent datagrams in place, with the result of [`decrypt`] on each.
pub fn decrypt_batch(datagrams: &mut [&mut [u8]]) {
    #[cfg(target_arch = "x86_64")]
    if let Some(avx2) = avx2::Avx2::detect() {
        return avx2.decrypt_batch(datagrams);
    }
    portable::decrypt_batch(datagrams);
}

/// T-40: returns what follows byte 0.
fn body(datagram: &mut [u8]) -> &mut [u8] {
    datagram.get_mut(1..).unwrap_or_default()
}

/// What enciphering and deciphering do differently.
trait CipherDirection {
    /// With this many lanes busy or fewer, one datagram at a time is faster.
    const SEQUENTIAL_MAX_LANES: usize;

    /// One byte step of a lane.
    #[inline(always)]
    fn byte_step(carried: u16, splat_key: u16) -> ByteStep {
        ByteStep::new(carried, splat_key)
    }

    /// T-44: the key changes by the plaintext, whichever side of the mask that is.
    fn plaintext<T>(input: T, output: T) -> T;

    /// Treats what is left of a single datagram.
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
