//! Random numbers that nobody can predict.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io;

/// Returns an unpredictable number.
///
/// The keys of the standard library's hash come from the system's random numbers.
pub(crate) fn random_u64() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Fills `bytes` with the system's random numbers, for secrets.
pub(crate) fn fill(bytes: &mut [u8]) -> io::Result<()> {
    getrandom::fill(bytes)
        .map_err(|error| io::Error::other(format!("the system gave no random numbers: {error}")))
}
