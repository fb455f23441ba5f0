//! The core, without I/O, of a proxy in front of a Bridge Commander server that nobody can patch.
//!
//! [`Proxy`] manages the clients. It verifies their addresses, binds each to the id that the server assigned, and gives each a separate source address toward the server, because a stock server
//! distinguishes players by IPv4 address only. [`Healer`] handles one conversation and removes the two faults of
//! the stock transport: repeated ACKs, and messages that are retransmitted after they arrived. All other bytes pass
//! unchanged.
#![warn(clippy::indexing_slicing, clippy::unwrap_used, clippy::cast_possible_truncation)]

mod admission;
mod client;
mod forward;
mod gate;
mod goodbye;
mod healer;
mod loss;
mod output;
mod proxy;
mod retransmitter;
mod sources;
mod tracker;

pub use admission::{MAX_PER_ADDRESS, MAX_PER_NETWORK};
pub use healer::{HealCounters, HealOutput, Healer, Inbound, OutboundBytes, ProxyDirection};
pub use output::{DatagramTarget, ProxyEvent, ProxyOutput, ProxyPlayer, RefusalReason, UpstreamSource};
pub use proxy::{Proxy, ProxyConfig};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
