//! A borrowed view of one whole datagram.

use alloc::vec::Vec;
use core::fmt;
use core::iter::FusedIterator;

use crate::parse::{self, DatagramOrigin};
use crate::{DATAGRAM_HEADER, Field, Message, PeerId, Role, WireError, WireErrorReason};

/// A decrypted datagram that is well formed from its first byte to its last ([T-01]).
///
/// [T-01]: crate::protocol#t-01
#[derive(Debug, Clone, Copy)]
pub struct Datagram<'a> {
    bytes: &'a [u8],
    origin: DatagramOrigin,
}

impl<'a> Datagram<'a> {
    /// Checks every byte of a decrypted datagram.
    ///
    /// `sent_by` is the role of the sender. With `None`, the sender id and the size decide whether a
    /// connect is a request or a reply ([T-35]).
    ///
    /// # Errors
    /// The first fault, with its field and its offset. No part of a datagram with a fault is usable.
    ///
    /// [T-35]: crate::protocol#t-35
    #[inline]
    pub fn parse(bytes: &'a [u8], sent_by: Option<Role>) -> Result<Self, WireError> {
        let (sender, count) = parse_header(bytes)?;
        let origin = DatagramOrigin { role: sent_by, sender: Some(sender) };
        let mut rest = bytes.get(DATAGRAM_HEADER..).unwrap_or_default();
        for _ in 0..count {
            rest = if let Some((_, after)) = parse::whole_data(rest) {
                after
            } else if let Some((_, after)) = parse::plain_ack(rest) {
                after
            } else {
                parse::message(rest, bytes.len() - rest.len(), origin)?.1
            };
        }
        check_no_trailing_bytes(bytes, rest)?;
        Ok(Self { bytes, origin })
    }

    /// Parses like [`parse`](Self::parse) and adds the messages to `messages` in the same pass.
    ///
    /// For callers that read the messages more than once. After an error, `messages` may contain the
    /// messages before the fault.
    ///
    /// # Errors
    /// The same as [`parse`](Self::parse).
    pub fn parse_into(
        bytes: &'a [u8],
        sent_by: Option<Role>,
        messages: &mut Vec<Message<'a>>,
    ) -> Result<Self, WireError> {
        let (sender, count) = parse_header(bytes)?;
        let origin = DatagramOrigin { role: sent_by, sender: Some(sender) };
        let mut rest = bytes.get(DATAGRAM_HEADER..).unwrap_or_default();
        messages.reserve(usize::from(count));
        for _ in 0..count {
            rest = parse::add_message(rest, bytes.len() - rest.len(), origin, messages)?;
        }
        check_no_trailing_bytes(bytes, rest)?;
        Ok(Self { bytes, origin })
    }

    /// Returns the sender byte.
    #[must_use]
    #[inline]
    pub fn sender(&self) -> PeerId {
        self.origin.sender.unwrap_or(PeerId::NULL)
    }

    /// Returns the messages, in order.
    #[must_use]
    #[inline]
    pub fn messages(&self) -> Messages<'a> {
        Messages { rest: self.bytes.get(DATAGRAM_HEADER..).unwrap_or_default(), origin: self.origin }
    }

    /// Returns the number of messages, 1 to 255.
    #[must_use]
    #[inline]
    pub fn count(&self) -> u8 {
        self.bytes.get(1).copied().unwrap_or(0)
    }

    /// Returns the decrypted bytes.
    #[must_use]
    #[inline]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

impl fmt::Display for Datagram<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sender, count, len) = (self.sender(), self.count(), self.bytes.len());
        write!(f, "from {sender}: {count} message{} in {len} bytes", if count == 1 { "" } else { "s" })
    }
}

impl<'a> Message<'a> {
    /// Parses a single message that fills `bytes`, without a datagram around it.
    ///
    /// # Errors
    /// The same as [`Datagram::parse`], with offsets from the message's type byte.
    pub fn parse(bytes: &'a [u8], sent_by: Option<Role>) -> Result<Self, WireError> {
        let (message, rest) = parse::message(bytes, 0, DatagramOrigin { role: sent_by, sender: None })?;
        check_no_trailing_bytes(bytes, rest)?;
        Ok(message)
    }
}

/// Returns the sender and the number of messages from the datagram header (T-01).
#[inline(always)]
fn parse_header(bytes: &[u8]) -> Result<(PeerId, u8), WireError> {
    match bytes {
        [] => Err(WireError { at: 0, field: Field::Sender, reason: WireErrorReason::Truncated }),
        [_] => Err(WireError { at: 1, field: Field::Count, reason: WireErrorReason::Truncated }),
        [_, 0, ..] => Err(WireError { at: 1, field: Field::Count, reason: WireErrorReason::CountZero }),
        [sender, count, ..] => Ok((PeerId(*sender), *count)),
    }
}

/// Returns an error if bytes follow the last message.
#[inline(always)]
fn check_no_trailing_bytes(bytes: &[u8], rest: &[u8]) -> Result<(), WireError> {
    if rest.is_empty() {
        return Ok(());
    }
    let at = bytes.len() - rest.len();
    Err(WireError { at, field: Field::Message, reason: WireErrorReason::Trailing })
}

/// An iterator over the messages of a [`Datagram`].
#[derive(Debug, Clone)]
pub struct Messages<'a> {
    rest: &'a [u8],
    origin: DatagramOrigin,
}

impl<'a> Messages<'a> {
    /// Returns the bytes of the messages that the iterator has not returned yet.
    #[must_use]
    #[inline]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Continues with `rest`: the bytes behind one of the messages that were not returned yet.
    #[inline]
    pub const fn skip_to(&mut self, rest: &'a [u8]) {
        self.rest = rest;
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        // `Datagram::parse` has accepted the same bytes, so the only possible error is the end.
        let (message, rest) = parse::message(self.rest, 0, self.origin).ok()?;
        self.rest = rest;
        Some(message)
    }
}

impl FusedIterator for Messages<'_> {}
