//! The model of the original engine: the predictions that follow from its rules, every quirk by name, a second model of
//! its queues, and frames that may be left out.

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
