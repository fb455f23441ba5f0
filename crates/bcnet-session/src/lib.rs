//! The game session of Star Trek: Bridge Commander 1.1 on top of [`bcnet_transport`], without I/O.
//!
//! [`Session`] is a dedicated server that simulates nothing. Stock clients find it, join and chat, and it relays their
//! messages so that they see each other fight. A [`GamePolicy`] can decide more; see the module [`policy`]. The other end
//! is [`Client`], for bots and tools; its [module](client) has a complete example. The module [`game`] reads and writes the messages of both. The code cites rules of
//! PROTOCOL.md as `S-nn`.
//!
//! The caller owns the socket, the clock and the log. In this example, a browser queries a server:
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
//! # Guarantees
//!
//! - No input makes a session panic, grow without bound or work without bound. Malformed messages are counted
//!   ([`Counters`], [`Anomaly`]) and have no other effect. Events about them have a limited rate.
//! - A session is deterministic: it reads no clock, and its random numbers depend on the seed. The same seed and input
//!   give the same output.
//! - Relaying a message allocates nothing once the buffers have grown to the load.
#![warn(clippy::indexing_slicing, clippy::unwrap_used, clippy::cast_possible_truncation)]

pub mod browser;
mod byte_budget;
pub mod client;
mod config;
mod congestion_window;
mod driven;
mod event;
pub mod game;
mod heartbeats;
pub mod list_server;
mod manifest;
mod member;
mod message;
mod network;
pub mod policy;
mod query;
mod query_limiter;
mod quota;
mod rate_limit;
mod refusal;
mod send_queue;
mod session;
mod stats;
mod text;
mod uplink;

pub use client::Client;
pub use config::{Checksums, Config, Mission, SayAs, System};
pub use event::{EndReason, Event, Participant, RoundSummary};
pub use heartbeats::{ListServers, heartbeat};
pub use manifest::{Manifest, ManifestError, Mismatch, MismatchKind};
pub use message::Score;
pub use network::{Network, any_contains};
pub use policy::GamePolicy;
pub use query::{answer_challenge, challenge_response, is_reply};
pub use query_limiter::{MIN_REPLY_COST, QueryLimiter, QueryOrigin};
pub use quota::{AddressLimiter, BloomFilter, Quotas};
pub use rate_limit::{Rate, TokenBucket};
pub use refusal::{JoinRefusal, REFUSAL_PREFIX, Refusals};
pub use session::{PlayerState, PlayerStatus, Session, SessionStatus};
pub use stats::{Anomalies, Anomaly, Counters};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
