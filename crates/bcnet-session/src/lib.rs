//! The game session of Star Trek: Bridge Commander 1.1, without I/O: what is said on top of [`bcnet_transport`].

pub mod payload;
