//! The behaviour of an endpoint, rule by rule.
//!
//! A host and clients share one explicit clock, and the tests move every datagram.

mod address_verification;
mod backpressure;
mod connection;
mod contested;
mod delivery;
mod departure;
mod diagnostics;
mod fragments;
mod heap;
mod hostile;
mod leaving;
mod loss;
mod memory;
mod net;
mod plain_acks;
mod retransmission;
mod superseded;
mod timers;
mod wire_compatibility;
