//! The UDP transport of Star Trek: Bridge Commander 1.1, without I/O.
//!
//! [`Endpoint`] is one end of a session: a host with up to 124 clients, or a client. It delivers payloads reliably and in
//! order, or unreliably and at once, to stock games and to its own kind. Below it, [`wire`] reads and writes datagrams
//! and [`cipher`] puts them into the form they are sent in; both are the crate `bcnet-wire`, for who needs no endpoint. The
//! rules that the code cites as `T-nn` are those of PROTOCOL.md.
//!
//! # Driving an endpoint
//!
//! The caller owns the socket, the buffers and the clock. In each turn of its loop it
//! 1. hands over what has arrived ([`handle_datagram`](Engine::handle_datagram)) and the time
//!    ([`handle_timeout`](Engine::handle_timeout)),
//! 2. takes out what has happened ([`poll_event`](Engine::poll_event)) and answers with
//!    [`send`](Engine::send), [`admit`](Engine::admit) and so on,
//! 3. sends what is to be sent ([`poll_transmit`](Engine::poll_transmit)) until there is nothing left,
//! 4. waits for the next datagram, or until [`next_timeout`](Engine::next_timeout), or for the next tick of its game.
//!
//! What is queued together leaves together: datagrams are packed in step 3. Many endpoints in one loop share a
//! [`Deadlines`], which finds the next one that is due without looking at the others.
//!
//! Here a host and a client talk through memory instead of a socket; `examples/echo.rs` is the same over UDP.
//!
//! ```
//! use std::net::{Ipv4Addr, SocketAddrV4};
//! use std::time::Duration;
//!
//! use bcnet_transport::wire::PeerId;
//! use bcnet_transport::{Config, Connect, Endpoint, Engine, Event, DeliveryMode, Time};
//!
//! let mut now = Time::ZERO;
//! let [host_address, client_address] = [1, 2].map(|n| SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, n), 22101));
//! let mut host = Endpoint::host(Config::default());
//! // The nonce is a random number.
//! let request = Connect { host: host_address, nonce: 0x0A5F, password: "" };
//! let mut client = Endpoint::connect(Config::default(), request, now);
//!
//! let (mut buffer, mut payload, mut heard) = ([0; 512], Vec::new(), Vec::new());
//! for _ in 0..10 {
//!     now = now + Duration::from_millis(16);
//!     host.handle_timeout(now);
//!     client.handle_timeout(now);
//!     while let Some(event) = host.poll_event(&mut payload) {
//!         match event {
//!             Event::Request { from, .. } => println!("let in: {:?}", host.admit(from, now)),
//!             Event::Joined { peer } => host.send(peer, b"welcome aboard", DeliveryMode::Reliable, now)?,
//!             _ => {}
//!         }
//!     }
//!     while let Some(event) = client.poll_event(&mut payload) {
//!         if let Event::Received { peer: PeerId::HOST, .. } = event {
//!             heard.push(payload.clone());
//!         }
//!     }
//!     while let Some(transmit) = host.poll_transmit(&mut buffer, now) {
//!         client.handle_datagram(host_address, &mut buffer[..transmit.len], now);
//!     }
//!     while let Some(transmit) = client.poll_transmit(&mut buffer, now) {
//!         host.handle_datagram(client_address, &mut buffer[..transmit.len], now);
//!     }
//! }
//! assert_eq!(client.id(), PeerId(2));
//! assert_eq!(heard, [b"welcome aboard"]);
//! # Ok::<(), bcnet_transport::SendError>(())
//! ```
//!
//! # What it promises
//!
//! - A payload sent with [`DeliveryMode::Reliable`] or [`DeliveryMode::Urgent`] arrives exactly once, in order, or the peer is
//!   [`Left`](Event::Left). A loss delays what comes after it on the same channel, never unreliable payloads.
//! - Nothing that arrives makes it panic, grow without bound or work without bound. What makes no sense is counted
//!   ([`PeerCounters`], [`RejectCounters`]) and changes nothing.
//! - Same input, same output: it reads no clock and draws no random numbers.
//! - Once it has grown to its load it allocates nothing; what a burst took is given back after a few idle seconds.
#![no_std]
#![warn(clippy::indexing_slicing, clippy::unwrap_used, clippy::cast_possible_truncation)]

extern crate alloc;

mod admission;
mod config;
mod congestion;
mod endpoint;
mod engine;
mod event;
mod fragment;
mod inbox;
#[cfg(test)]
mod lcg;
mod outbox;
mod peer;
mod queue;
mod ring;
mod snapshot;
mod stats;
mod time;

pub use bcnet_wire as wire;
pub use bcnet_wire::cipher;
pub use config::{Config, IdPolicy, ProofPolicy};
pub use endpoint::{
    AdmitError, BootError, Capacity, Connect, DeliveryMode, Endpoint, InFlightLimit, SendError, Transmit,
};
pub use engine::Engine;
pub use event::{Event, LeaveReason};
pub use snapshot::{InboxSnapshot, Snapshot, Unacknowledged};
pub use stats::{KindCounters, PeerCounters, RejectCause, RejectCounters};
pub use time::{Deadlines, Time};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
