//! The UDP transport of Star Trek: Bridge Commander 1.1.
#![no_std]
#![warn(clippy::indexing_slicing, clippy::unwrap_used, clippy::cast_possible_truncation)]

extern crate alloc;

pub mod cipher;
pub mod wire;
