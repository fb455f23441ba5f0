//! The UDP transport of Star Trek: Bridge Commander 1.1, without I/O.
//!
//! [`Endpoint`] is one end of a session: a host with up to 124 clients, or a client. It delivers payloads
//! reliably and in order, or unreliably and at once. Its peers are stock games and other endpoints of this
//! crate. Below it, [`wire`] parses and writes datagrams, and [`cipher`] encrypts and decrypts them. Both
//! are the crate `bcnet-wire`, which is usable without an endpoint. The code cites the rules of PROTOCOL.md
//! as `T-nn`.
//!
//! The game's cipher is obfuscation, not encryption: everyone knows the key. A third
//! party that sees datagrams can read and forge them.
//!
//! # Driving an endpoint
//!
//! The crate `bcnet-udp` has a driver with a socket and a clock; its examples are complete programs. A program with
//! its own socket does these steps in each turn of its loop:
//! 1. It passes received datagrams ([`handle_datagram`](Engine::handle_datagram)) and the time
//!    ([`handle_timeout`](Engine::handle_timeout)).
//! 2. It polls events ([`poll_event`](Engine::poll_event)) and answers with [`send`](Engine::send),
//!    [`challenge`](Engine::challenge) and so on.
//! 3. It sends datagrams ([`poll_transmit`](Engine::poll_transmit)) until there are no more.
//! 4. It waits for the next datagram, or until [`next_timeout`](Engine::next_timeout), or for the next tick
//!    of its game.
//!
//! Datagrams are filled in step 3, so messages that were queued together share datagrams. Many endpoints in
//! one loop share a [`Deadlines`], which finds the next due endpoint without checking the others.
//!
//! In this example a host and a client exchange datagrams in memory.
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
//! let (mut buffer, mut payload, mut received) = ([0; 512], Vec::new(), Vec::new());
//! for _ in 0..10 {
//!     now = now + Duration::from_millis(16);
//!     host.handle_timeout(now);
//!     client.handle_timeout(now);
//!     while let Some(event) = host.poll_event(&mut payload) {
//!         match event {
//!             Event::Request { from, .. } => println!("answered: {:?}", host.challenge(from, now)),
//!             Event::Joined { peer } => host.send(peer, b"welcome aboard", DeliveryMode::Reliable, now)?,
//!             _ => {}
//!         }
//!     }
//!     while let Some(event) = client.poll_event(&mut payload) {
//!         if let Event::Received { peer: PeerId::HOST, .. } = event {
//!             received.push(payload.clone());
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
//! assert_eq!(received, [b"welcome aboard"]);
//! # Ok::<(), bcnet_transport::SendError>(())
//! ```
//!
//! # Guarantees
//!
//! - A payload sent with [`DeliveryMode::Reliable`] or [`DeliveryMode::Urgent`] arrives exactly once and in
//!   order, or the peer is [`Left`](Event::Left). A loss delays later messages on the same channel, never
//!   unreliable payloads.
//! - No received datagram makes the endpoint panic, grow without bound or work without bound. Invalid
//!   datagrams and messages are counted (see [`PeerCounters`] and [`RejectCounters`]) and have no other effect.
//! - The same input gives the same output: the endpoint reads no clock and draws no random numbers.
//! - An endpoint that has grown to its load does not allocate. Memory for a burst is released after a few
//!   idle seconds.
#![no_std]
#![warn(clippy::indexing_slicing, clippy::unwrap_used, clippy::cast_possible_truncation)]

extern crate alloc;

mod admission;
mod config;
mod congestion;
mod driven;
mod endpoint;
mod engine;
mod event;
mod fragment;
mod inbox;
#[cfg(test)]
mod lcg;
pub mod link;
mod outbox;
mod peer;
mod queue;
mod ring;
mod snapshot;
mod stats;
mod time;

pub use admission::{AddressVerifier, acks_a_cookie, cookie_in, cookie_message};
pub use bcnet_wire as wire;
pub use bcnet_wire::cipher;
pub use config::{Config, IdPolicy, ProofPolicy};
pub use driven::Driven;
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
