//! A laboratory for transports: a virtual network with seeded faults, a world of engines on it, the original engine as a
//! model, experiments as files, and what comes out of them.
//!
//! Everything is deterministic: the same seed gives the same run, to the byte. Nothing here reads a clock.

mod battle;
mod engine;
mod figure;
mod habits;
mod link;
mod meter;
mod observer;
mod outcome;
mod rng;
mod run;
pub mod scenario;
pub mod stock;
mod world;

pub use battle::{Battle, Shot};
pub use engine::{LabEngine, Manner};
pub use figure::{Figure, Measure, Value};
pub use habits::Habits;
pub use link::{Faults, Link, Passage, Script, Tally};
pub use meter::{Queues, Totals};
pub use observer::{Observer, Passing};
pub use outcome::{Missed, NodeOutcome, Outcome, Sample, Taken};
pub use rng::Rng;
pub use run::{Options, capture, run};
pub use scenario::Scenario;
pub use world::World;
