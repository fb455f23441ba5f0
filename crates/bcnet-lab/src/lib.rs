//! A laboratory for transports: a virtual network with seeded faults, and a world of endpoints on it.
//!
//! Everything is deterministic: the same seed gives the same run, to the byte. Nothing here reads a clock.

mod link;
mod observer;
mod rng;
pub mod stock;
mod world;

pub use link::{Faults, Link, Passage, Tally};
pub use observer::{Observer, Passing};
pub use rng::Rng;
pub use world::World;
