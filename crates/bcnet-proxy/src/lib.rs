//! The core of a proxy between Bridge Commander clients and a server that nobody can patch, without I/O.
//!
//! [`Proxy`] knows the clients and gives each a source address of its own toward the server, because a stock server tells
//! players apart by their IPv4 address alone. [`Healer`] knows one conversation and takes the two faults of the stock
//! transport out of it: ACKs that say nothing new, and messages that are sent again although they have arrived. What it
//! does not have to change passes as it came, to the byte.
#![warn(clippy::indexing_slicing, clippy::unwrap_used, clippy::cast_possible_truncation)]

mod admission;
mod client;
mod healer;
mod loss;
mod output;
mod proxy;
mod retransmitter;
mod tracker;

pub use admission::{MAX_PER_ADDRESS, MAX_PER_NETWORK};
pub use healer::{HealCounters, HealOutput, Healer, Inbound, OutboundBytes, ProxyDirection};
pub use output::{DatagramTarget, ProxyEvent, ProxyOutput, ProxyPlayer, RefusalReason, UpstreamSource};
pub use proxy::{Proxy, ProxyConfig};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
