//! The game session of Star Trek: Bridge Commander 1.1, without I/O: what is said on top of [`bcnet_transport`].
//!
//! [`Session`] is a dedicated server that simulates nothing: stock clients find it, join, chat, and see each other fight
//! by what it passes on. The rules that the code cites as `S-nn` are those of PROTOCOL.md.
#![warn(clippy::indexing_slicing, clippy::unwrap_used, clippy::cast_possible_truncation)]

mod config;
mod event;
mod limit;
mod manifest;
mod master;
mod member;
mod message;
pub mod payload;
mod query;
mod read;
mod relay;
mod session;
mod stats;
mod text;

pub use config::{Checksums, Config, Mission, SayAs, System};
pub use event::{EndReason, Event, Summary};
pub use manifest::{Difference, Manifest, ManifestError, Mismatch};
pub use message::Score;
pub use query::validate;
pub use session::{Player, PlayerState, Session, Status};
pub use stats::{Anomalies, Anomaly, Counters};
