//! A laboratory for transports: virtual network, seeded faults, engines, scenarios, measurements.
//!
//! [`World`] drives engines in virtual time. [`stock`] models the transport of the original game. A [`Scenario`] is an
//! experiment that a file describes; [`run`](fn@run) runs it and returns a [`RunSummary`].
//!
//! Every run is deterministic: the same seed gives the same run, byte for byte. The crate reads no clock and does no I/O.

mod battle;
mod behavior;
mod counters;
mod engine;
mod measurement;
mod meter;
mod observer;
mod proxy_node;
mod run;
mod run_summary;
pub mod scenario;
pub mod stock;
mod world;

pub use battle::GameMessage;
pub use bcnet_transport::link::{FaultScript, Faults, Link, LinkArrival, LinkStats, Rng};
pub use behavior::NodeBehavior;
pub use counters::{QueueStatistics, RunCounters};
pub use engine::{LabEngine, SendMode};
pub use measurement::{
    CountMetric, DelayMetric, LogMetric, MeasuredValue, Measurement, Metric, QueueMetric, TotalMetric,
};
pub use meter::{DeliveryDelay, ObservedDatagram};
pub use observer::{DatagramMeta, WorldObserver};
pub use run::{NodeSetup, RunOptions, capture_datagrams, run, run_observed};
pub use run_summary::{
    CheckedExpectation, DumpRecord, NodeSample, NodeSummary, ProxySummary, RunSample, RunSummary,
};
pub use scenario::Scenario;
pub use world::World;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
