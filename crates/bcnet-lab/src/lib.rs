//! A laboratory for transports: a virtual network with seeded faults, a world of engines on it, the original engine as a
//! model, experiments as files, and what comes out of them.
//!
//! Everything is deterministic: the same seed gives the same run, to the byte. Nothing here reads a clock.

mod battle;
mod behavior;
mod engine;
mod link;
mod measurement;
mod meter;
mod middle;
mod observer;
mod outcome;
mod rng;
mod run;
pub mod scenario;
pub mod stock;
mod totals;
mod world;

pub use battle::GameMessage;
pub use behavior::NodeBehavior;
pub use engine::{LabEngine, SendMode};
pub use link::{Arrival, Faults, Link, LinkStats, Script};
pub use measurement::{
    CountMetric, DelayMetric, LogMetric, Measurement, Metric, QueueMetric, TotalMetric, Value,
};
pub use meter::{Delay, SeenDatagram};
pub use observer::{DatagramMeta, Observer};
pub use outcome::{CheckedExpectation, DumpRecord, NodeOutcome, NodeSample, Outcome, ProxyOutcome, Sample};
pub use rng::Rng;
pub use run::{NodeSetup, Options, capture, run, watch};
pub use scenario::Scenario;
pub use totals::{QueueStatistics, Totals};
pub use world::World;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
