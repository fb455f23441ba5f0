//! The behaviour of an endpoint, rule by rule: a host and clients on one explicit clock, every datagram moved by hand.

mod connection;
mod contested;
mod delivery;
mod diagnostics;
mod heap;
mod hostile;
mod latest;
mod leaving;
mod loss;
mod memory;
mod must_not_change;
mod net;
mod parts;
mod plain_acks;
mod pressure;
mod proof;
mod repeats;
mod timers;
