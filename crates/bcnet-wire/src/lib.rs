//! Parses, writes, encrypts and decrypts the datagrams of Star Trek: Bridge Commander 1.1.
//!
//! The crate does no I/O. [`Datagram`] parses, [`Writer`] writes, and both use [`Message`] (rules [T-01] to
//! [T-39] of PROTOCOL.md). The module [`cipher`] encrypts and decrypts datagrams ([T-40] to [T-45]). Parsing is
//! all or nothing: [`Datagram::parse`] checks every byte before it returns a value. So a caller never acts
//! on half of a malformed datagram. "Stock" is the unmodified game.
//!
//! The cipher is obfuscation, not encryption: its key is fixed and public. It hides nothing and proves nothing about
//! the sender.
//!
//! [`Time`] and [`PeerQueues`] are here because the other crates share them.
//!
//! # Contract
//! - No byte sequence makes a function of this crate panic or read outside the given slice.
//! - No byte sequence makes a function allocate, with three exceptions: [`Text::encode`], [`Text::cleaned`]
//!   and the at most 255 messages of [`Datagram::parse_into`].
//! - For every `bytes` that parse, writing the sender and the messages gives the same `bytes`, including
//!   forms that stock never sends.
//! - For every message that a [`Writer`] accepts, parsing with the right [`Role`] gives the same message.
//! - A form that stock never sends is decoded if it has a clear meaning, and the decoded value shows it. All
//!   other bytes are a [`WireError`].
//!
//! This crate does not know sequence windows, retransmission or game payloads.
//!
//! ```
//! use bcnet_wire::{Datagram, Message, Writer, cipher};
//!
//! let mut bytes = [0x01, 0xD7, 0x31, 0x78, 0xDB, 0x5B, 0x74];
//! cipher::decrypt(&mut bytes);
//! let datagram = Datagram::parse(&bytes, None)?;
//! let messages: Vec<Message> = datagram.messages().collect();
//! assert_eq!(messages[0].to_string(), "ack game seq=2 part=1");
//!
//! let mut buffer = [0; 512];
//! let mut writer = Writer::new(&mut buffer, datagram.sender());
//! assert!(writer.push(&messages[0]));
//! assert_eq!(writer.finish().as_deref(), Some(&bytes[..]));
//! # Ok::<(), bcnet_wire::WireError>(())
//! ```
//!
//! [T-01]: crate::protocol#t-01
//! [T-39]: crate::protocol#t-39
//! [T-40]: crate::protocol#t-40
//! [T-45]: crate::protocol#t-45
#![no_std]
#![warn(clippy::indexing_slicing, clippy::unwrap_used, clippy::cast_possible_truncation)]

extern crate alloc;

pub mod cipher;
mod datagram;
mod error;
mod id;
mod message;
mod parse;
/// The rules of the protocol, T-01 to R-16, which the documentation cites.
#[cfg_attr(doc, doc = "\n", doc = include_str!("../PROTOCOL.md"))]
pub mod protocol {}
mod queues;
mod text;
mod time;
mod write;

pub use datagram::{Datagram, Messages};
pub use error::{Field, WireError, WireErrorReason};
pub use id::{Channel, Delivery, Fragment, Kind, MessageId, PeerId, Role, Seq};
pub use message::{Ack, Body, BootReason, Control, Data, Message};
pub use queues::{PeerQueues, QueuedAck, QueuedMessage};
pub use text::{Text, is_printable};
pub use time::Time;
pub use write::Writer;

/// Encodes and parses the most frequent messages without building a [`Message`].
///
/// For an engine that encodes a message once and sends it often, and that has a fast path for received
/// messages.
pub mod encoded {
    pub use crate::parse::{WholeData, plain_ack as parse_plain_ack, whole_data as parse_whole_data};
    pub use crate::write::{data_header, plain_ack};
}

/// The largest datagram that a stock sender makes, in bytes ([T-04]).
///
/// [T-04]: crate::protocol#t-04
pub const MAX_DATAGRAM: usize = 512;
/// The largest message that a stock sender makes, in bytes including its header ([T-23]).
///
/// [T-23]: crate::protocol#t-23
pub const MAX_MESSAGE: usize = 412;
/// The length of the sender byte and the count byte in front of the messages ([T-01]).
///
/// [T-01]: crate::protocol#t-01
pub const DATAGRAM_HEADER: usize = 2;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
