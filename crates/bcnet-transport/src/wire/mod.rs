//! The wire format of one datagram, after the cipher is removed and before it is applied.
//!
//! Owns rules T-01 to T-39: [`Datagram`] reads, [`Writer`] writes, and both speak [`Message`]. Reading is
//! whole-or-error: [`Datagram::parse`] looks at every byte before it gives anything out, so a caller never acts
//! on half of a malformed datagram.
//!
//! # Contract
//! - No byte sequence makes any function here panic, allocate (but for [`Text::encode`] and the 255 places of
//!   [`Datagram::parse_into`]), or read outside the slice it was given.
//! - For every `bytes` that parse, writing the sender and the messages gives `bytes` again, odd forms included.
//! - For every message a [`Writer`] accepts, parsing gives it back to a reader that knows who sent it.
//! - What stock senders never produce but a reader can make sense of is decoded, and its value tells;
//!   what makes no sense is a [`WireError`].
//!
//! It does not know sequence windows, retransmission or game payloads.
//!
//! ```
//! use bcnet_transport::wire::{Datagram, Message, Writer};
//!
//! let plain = [0x01, 0x01, 0x01, 0x02, 0x00, 0x01, 0x01];
//! let datagram = Datagram::parse(&plain, None)?;
//! let messages: Vec<Message> = datagram.messages().collect();
//! assert_eq!(messages[0].to_string(), "ack game seq=2 part=1");
//!
//! let mut buffer = [0; 512];
//! let mut writer = Writer::new(&mut buffer, datagram.sender());
//! assert!(writer.push(&messages[0]));
//! assert_eq!(writer.finish().as_deref(), Some(&plain[..]));
//! # Ok::<(), bcnet_transport::wire::WireError>(())
//! ```

mod datagram;
mod error;
mod id;
mod message;
mod parse;
mod text;
mod write;

pub use datagram::{Datagram, Messages};
pub use error::{Field, Reason, WireError};
pub use id::{Channel, Delivery, Kind, MessageId, Part, PeerId, Role, Seq};
pub use message::{Ack, Body, BootReason, Control, Data, Message};
pub(crate) use parse::{Whole, plain_ack as parse_plain_ack, whole_data as parse_whole_data};
pub use text::Text;
pub use write::Writer;
pub(crate) use write::{data_header, plain_ack};

/// The largest datagram a stock sender makes, in bytes (T-04).
pub const MAX_DATAGRAM: usize = 512;
/// The largest message a stock sender makes, in bytes with its header (T-23).
pub const MAX_MESSAGE: usize = 412;
/// Sender and count, in front of the messages (T-01).
pub(crate) const DATAGRAM_HEADER: usize = 2;
