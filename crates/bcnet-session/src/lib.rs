//! The game session of Star Trek: Bridge Commander 1.1, without I/O: what is said on top of [`bcnet_transport`].
//!
//! [`Session`] is a dedicated server that simulates nothing: stock clients find it, join, chat, and see each other fight
//! by what it passes on. [`Client`] is the other end, for bots and tools; its [module](client) has a whole one. [`game`]
//! reads and writes what both say. The rules that the code cites as `S-nn` are those of PROTOCOL.md.
//!
//! The caller owns socket, clock and log. Here a browser asks what is played:
//!
//! ```
//! use std::net::{Ipv4Addr, SocketAddrV4};
//!
//! use bcnet_session::{Config, Session};
//! use bcnet_transport::Time;
//!
//! let mut session = Session::new(Config { name: "Utopia Planitia".into(), ..Config::default() }, 1701);
//! let browser = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 7), 6500);
//! session.handle_datagram(browser, &mut b"\\status\\".to_owned(), Time::ZERO);
//!
//! let mut buffer = [0; 2048];
//! let reply = session.poll_transmit(&mut buffer, Time::ZERO).expect("a reply");
//! assert_eq!(reply.to, browser);
//! assert!(String::from_utf8_lossy(&buffer[..reply.len]).contains("\\hostname\\Utopia Planitia\\"));
//! ```
//!
//! # What it promises
//!
//! - Nothing that arrives makes it panic, grow without bound or work without bound. What makes no sense is counted
//!   ([`Counters`], [`Anomaly`]) and has no other effect; events about it come at a bounded rate.
//! - Same seed, same input, same output: it reads no clock and has no chance of its own.
//! - Once it has grown to its load, passing messages on allocates nothing.
#![warn(clippy::indexing_slicing, clippy::unwrap_used, clippy::cast_possible_truncation)]

pub mod browser;
pub mod client;
mod config;
mod congestion_window;
mod event;
pub mod game;
mod heartbeats;
pub mod list_server;
mod manifest;
mod member;
mod message;
mod network;
mod query;
mod query_limiter;
mod quota;
mod rate_limit;
mod send_queue;
mod session;
mod stats;
mod text;

pub use client::Client;
pub use config::{Checksums, Config, Mission, SayAs, System};
pub use event::{EndReason, Event, Participant, RoundSummary};
pub use heartbeats::{ListServers, heartbeat};
pub use manifest::{Manifest, ManifestError, Mismatch, MismatchKind};
pub use message::Score;
pub use network::{Network, any_contains};
pub use query::{answer_challenge, challenge_response, is_reply};
pub use query_limiter::{QueryLimiter, QueryOrigin};
pub use quota::{AddressLimiter, BloomFilter, Quotas};
pub use rate_limit::{Rate, TokenBucket};
pub use session::{PlayerState, PlayerStatus, Session, SessionStatus};
pub use stats::{Anomalies, Anomaly, Counters};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
