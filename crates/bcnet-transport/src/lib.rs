//! The UDP transport of Star Trek: Bridge Commander 1.1, without I/O.
//!
//! [`wire`] reads and writes datagrams, [`cipher`] puts them into the form they are sent in. The caller owns sockets,
//! buffers and time. The rules that the code cites as `T-nn` are those of PROTOCOL.md.
#![no_std]
#![warn(clippy::indexing_slicing, clippy::unwrap_used, clippy::cast_possible_truncation)]

extern crate alloc;

pub mod cipher;
pub mod wire;

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
