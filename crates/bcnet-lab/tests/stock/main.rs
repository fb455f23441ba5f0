//! Tests of the stock model.
//!
//! They cover the predictions that follow from its rules, every quirk by name, an independent reference model
//! of its queues, and the skipping of frames without effect.

mod arrivals;
mod checks;
mod connection;
mod harness;
mod predictions;
mod quirks;
mod reference_model;
mod robust;
mod skipping;
mod timelines;
