//! The datagrams of Star Trek: Bridge Commander 1.1: what lies in them, and the cipher they travel in. No I/O.
//!
//! [`Datagram`] reads, [`Writer`] writes, and both speak [`Message`] (rules T-01 to T-39 of PROTOCOL.md); [`cipher`] turns
//! what they read and write into what is sent (T-40 to T-45). Reading is whole-or-error: [`Datagram::parse`] looks at every
//! byte before it gives anything out, so a caller never acts on half of a malformed datagram.
//!
//! [`Time`] and [`PeerQueues`] are how those who send datagrams and those who watch them tell when something was, and what waits.
//!
//! # Contract
//! - No byte sequence makes any function here panic, allocate (but for [`Text::encode`], [`Text::cleaned`] and the 255 places of
//!   [`Datagram::parse_into`]), or read outside the slice it was given.
//! - For every `bytes` that parse, writing the sender and the messages gives `bytes` again, odd forms included.
//! - For every message a [`Writer`] accepts, parsing gives it back to a reader that knows who sent it.
//! - What stock senders never produce but a reader can make sense of is decoded, and its value tells;
//!   what makes no sense is a [`WireError`].
//!
//! It does not know sequence windows, retransmission or game payloads.
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
#![no_std]
#![warn(clippy::indexing_slicing, clippy::unwrap_used, clippy::cast_possible_truncation)]

extern crate alloc;

pub mod cipher;
mod datagram;
mod error;
mod id;
mod message;
mod parse;
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

/// The most frequent messages as bytes, for an engine that encodes a message once and sends it often, and that asks as few
/// questions as it can of what arrives.
pub mod encoded {
    pub use crate::parse::{WholeData, plain_ack as parse_plain_ack, whole_data as parse_whole_data};
    pub use crate::write::{data_header, plain_ack};
}

/// The largest datagram a stock sender makes, in bytes (T-04).
pub const MAX_DATAGRAM: usize = 512;
/// The largest message a stock sender makes, in bytes with its header (T-23).
pub const MAX_MESSAGE: usize = 412;
/// Sender and count, in front of the messages (T-01).
pub const DATAGRAM_HEADER: usize = 2;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
