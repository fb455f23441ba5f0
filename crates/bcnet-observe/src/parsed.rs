//! A datagram with its messages, decoded once for several readers.
//!
//! [`Datagram`] decodes its messages at each call. That is the least work for an endpoint, which reads each
//! message once. A proxy or a capture tool reads the same messages several times, so it decodes them into a
//! [`MessageBuffer`].

use alloc::vec::Vec;

use bcnet_wire::{Datagram, Message, PeerId, Role, WireError};

/// A well-formed datagram and its messages.
#[derive(Debug, Clone, Copy)]
pub struct ParsedDatagram<'a> {
    datagram: Datagram<'a>,
    messages: &'a [Message<'a>],
}

impl<'a> ParsedDatagram<'a> {
    /// Returns the sender's id.
    #[must_use]
    pub fn sender(&self) -> PeerId {
        self.datagram.sender()
    }

    /// Returns the messages, in order.
    #[must_use]
    pub const fn messages(&self) -> &'a [Message<'a>] {
        self.messages
    }

    /// Returns the deciphered bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.datagram.as_bytes()
    }

    /// Returns the datagram without its decoded messages.
    #[must_use]
    pub const fn datagram(&self) -> &Datagram<'a> {
        &self.datagram
    }
}

/// The content of a UDP datagram after deciphering.
#[derive(Debug, Clone, Copy)]
pub enum Content<'a> {
    /// A datagram of the game.
    Datagram(ParsedDatagram<'a>),
    /// GameSpy text, which is not ciphered (T-05).
    GameSpy(&'a [u8]),
    /// Neither a datagram of the game nor GameSpy text.
    Malformed(WireError),
}

impl<'a> Content<'a> {
    /// Returns the datagram of the game, if the content is one.
    #[must_use]
    pub const fn datagram(&self) -> Option<&ParsedDatagram<'a>> {
        match self {
            Self::Datagram(parsed) => Some(parsed),
            Self::GameSpy(_) | Self::Malformed(_) => None,
        }
    }
}

/// Reusable memory for the messages of one datagram. A datagram has at most 255 messages, so its size is
/// bounded.
#[derive(Debug, Default)]
pub struct MessageBuffer<'a> {
    messages: Vec<Message<'a>>,
}

impl<'a> MessageBuffer<'a> {
    /// Checks and decodes a deciphered datagram in one pass.
    ///
    /// # Errors
    /// The errors of [`Datagram::parse`]: both functions give the same result for the same bytes.
    pub fn parse(&mut self, bytes: &'a [u8], sent_by: Option<Role>) -> Result<ParsedDatagram<'_>, WireError> {
        self.messages.clear();
        let datagram = Datagram::parse_into(bytes, sent_by, &mut self.messages)?;
        Ok(ParsedDatagram { datagram, messages: &self.messages })
    }

    /// Classifies deciphered bytes, and decodes them if they are a datagram.
    pub fn read(&mut self, plain: &'a [u8], sent_by: Option<Role>) -> Content<'_> {
        if plain.first() == Some(&PeerId::GAMESPY.0) {
            return Content::GameSpy(plain);
        }
        self.parse(plain, sent_by).map_or_else(Content::Malformed, Content::Datagram)
    }

    /// Passes the allocation on to a buffer for other bytes.
    #[must_use]
    pub fn reuse<'b>(mut self) -> MessageBuffer<'b> {
        self.messages.clear();
        // The vector is empty, so nothing is borrowed. Collecting an empty iterator into the same type keeps
        // the allocation.
        MessageBuffer { messages: self.messages.into_iter().map_while(|_| None).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bcnet_wire::Kind;

    #[test]
    fn reused_buffer_keeps_its_allocation() {
        let bytes = [1, 3, Kind::KEEPALIVE.0, Kind::KEEPALIVE.0, Kind::KEEPALIVE.0];
        let mut buffer = MessageBuffer::default();
        assert_eq!(buffer.parse(&bytes, None).map(|parsed| parsed.messages().len()), Ok(3));
        let place = buffer.messages.as_ptr().addr();
        let mut buffer = buffer.reuse();
        let other = [2, 1, Kind::KEEPALIVE.0];
        assert_eq!(buffer.parse(&other, None).map(|parsed| parsed.messages().len()), Ok(1));
        assert_eq!(buffer.messages.as_ptr().addr(), place);
    }
}
