//! Numbers that nobody else can know.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io;

/// Returns a number that nobody can guess: the keys of the standard library's hash are the system's random numbers.
pub(crate) fn random_u64() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Fills `bytes` with the system's random numbers, for secrets.
pub(crate) fn fill(bytes: &mut [u8]) -> io::Result<()> {
    getrandom::fill(bytes).map_err(|error| io::Error::other(format!("no random numbers: {error}")))
}
