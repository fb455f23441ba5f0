//! Numbers that nobody else can know.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

/// Returns a number that nobody can guess: the keys of the standard library's hash are the system's random numbers.
pub(crate) fn unguessable() -> u64 {
    RandomState::new().build_hasher().finish()
}
