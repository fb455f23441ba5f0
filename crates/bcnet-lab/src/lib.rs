//! A laboratory for transports: a virtual network with seeded faults, and a world of engines on it.
//!
//! Everything is deterministic: the same seed gives the same run, to the byte. Nothing here reads a clock.

mod dump;
mod engine;
mod habits;
mod link;
mod observer;
mod rng;
mod world;

pub use dump::{Dump, Owed, Waiting};
pub use engine::Engine;
pub use habits::Habits;
pub use link::{Faults, Link, Passage, Script, Tally};
pub use observer::{Observer, Passing};
pub use rng::Rng;
pub use world::World;
