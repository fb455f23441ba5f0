//! The functions of [`portable`](super::portable), compiled for AVX2: half as many instructions.
#![expect(
    unsafe_code,
    reason = "a function compiled for AVX2 may only be called where it is known to be there"
)]

use core::arch::x86_64::{__cpuid_count, _xgetbv, CpuidResult};
use core::sync::atomic::{AtomicU8, Ordering};

use super::step::{ByteStep, CipherState};
use super::{CipherDirection, Decrypt, Encrypt, body, lanes, segments};

/// Proof that the processor and the operating system support AVX2.
#[derive(Clone, Copy)]
pub(super) struct Avx2(());

impl Avx2 {
    pub(super) fn detect() -> Option<Self> {
        const UNKNOWN: u8 = 0;
        const ABSENT: u8 = 1;
        const PRESENT: u8 = 2;
        static STATUS: AtomicU8 = AtomicU8::new(UNKNOWN);
        let mut status = STATUS.load(Ordering::Relaxed);
        if status == UNKNOWN {
            // Threads that get here at the same time all find the same result.
            status = if is_supported() { PRESENT } else { ABSENT };
            STATUS.store(status, Ordering::Relaxed);
        }
        (status == PRESENT).then_some(Self(()))
    }

    pub(super) fn encrypt(self, datagram: &mut [u8]) {
        // SAFETY: `self` proves that AVX2 is supported.
        unsafe { encrypt(datagram) }
    }

    pub(super) fn encrypt_batch(self, datagrams: &mut [&mut [u8]]) {
        // SAFETY: `self` proves that AVX2 is supported.
        unsafe { encrypt_batch(datagrams) }
    }

    pub(super) fn decrypt_batch(self, datagrams: &mut [&mut [u8]]) {
        // SAFETY: `self` proves that AVX2 is supported.
        unsafe { decrypt_batch(datagrams) }
    }
}

#[target_feature(enable = "avx2")]
fn encrypt(datagram: &mut [u8]) {
    segments::encrypt(CipherState::default(), body(datagram));
}

#[target_feature(enable = "avx2")]
fn encrypt_batch(datagrams: &mut [&mut [u8]]) {
    lanes::run::<EncryptInParallel>(datagrams);
}

#[target_feature(enable = "avx2")]
fn decrypt_batch(datagrams: &mut [&mut [u8]]) {
    lanes::run::<Decrypt>(datagrams);
}

/// [`Encrypt`] for wide vectors, where the latency of a byte step limits the speed.
///
/// It computes the step with carry 0 and adds the carry afterwards. That costs more multiplications, but
/// the carry to the next byte depends on only one of them instead of five.
struct EncryptInParallel;

impl CipherDirection for EncryptInParallel {
    const SEQUENTIAL_MAX_LANES: usize = Encrypt::SEQUENTIAL_MAX_LANES;

    #[inline(always)]
    fn byte_step(carried: u16, splat_key: u16) -> ByteStep {
        ByteStep::new(0, splat_key).with_carry(carried)
    }

    #[inline(always)]
    fn plaintext<T>(input: T, output: T) -> T {
        Encrypt::plaintext(input, output)
    }

    #[inline(always)]
    fn finish_single(state: CipherState, bytes: &mut [u8]) {
        Encrypt::finish_single(state, bytes);
    }
}

/// Returns whether the processor and the operating system support AVX2.
///
/// `std::is_x86_feature_detected` is not available in a `no_std` crate.
fn is_supported() -> bool {
    const OSXSAVE: u32 = 1 << 27;
    const AVX: u32 = 1 << 28;
    const AVX2: u32 = 1 << 5;
    const XMM_AND_YMM: u64 = 0b110;
    if cpuid(0).eax < 7 || cpuid(1).ecx & (OSXSAVE | AVX) != OSXSAVE | AVX {
        return false;
    }
    // SAFETY: the OSXSAVE bit means that the `xgetbv` instruction is available.
    let enabled_state = unsafe { enabled_registers() };
    enabled_state & XMM_AND_YMM == XMM_AND_YMM && cpuid(7).ebx & AVX2 != 0
}

/// Returns a leaf of the processor's description of itself.
#[allow(unused_unsafe, reason = "newer versions of Rust have it as a safe function")]
fn cpuid(leaf: u32) -> CpuidResult {
    // SAFETY: every processor of this architecture has the instruction.
    unsafe { __cpuid_count(leaf, 0) }
}

#[target_feature(enable = "xsave")]
fn enabled_registers() -> u64 {
    // SAFETY: the extended control register 0 always exists.
    unsafe { _xgetbv(0) }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::Avx2;

    #[test]
    fn detection_matches_std_and_is_stable() {
        let present = std::is_x86_feature_detected!("avx2");
        assert_eq!(Avx2::detect().is_some(), present);
        assert_eq!(Avx2::detect().is_some(), present);
    }
}
