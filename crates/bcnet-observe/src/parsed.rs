//! A datagram with its messages, decoded once for everyone who looks at them.
//!
//! [`Datagram`] decodes each time it is asked, which is least work for an endpoint that asks once and keeps nothing. Who
//! passes traffic on or shows it looks at the same messages several times, so they are decoded into a [`MessageBuffer`].

use alloc::vec::Vec;

use bcnet_wire::{Datagram, Message, PeerId, Role, WireError};

/// A well-formed datagram and its messages.
#[derive(Debug, Clone, Copy)]
pub struct ParsedDatagram<'a> {
    datagram: Datagram<'a>,
    messages: &'a [Message<'a>],
}

impl<'a> ParsedDatagram<'a> {
    /// Returns who sent it.
    #[must_use]
    pub fn sender(&self) -> PeerId {
        self.datagram.sender()
    }

    /// Returns its messages, in order.
    #[must_use]
    pub const fn messages(&self) -> &'a [Message<'a>] {
        self.messages
    }

    /// Returns its deciphered bytes.
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

/// What the bytes of a UDP datagram are, once they are deciphered.
#[derive(Debug, Clone, Copy)]
pub enum Content<'a> {
    /// A datagram of the game.
    Datagram(ParsedDatagram<'a>),
    /// GameSpy text, which is not ciphered (T-05).
    GameSpy(&'a [u8]),
    /// Neither of them.
    Malformed(WireError),
}

impl<'a> Content<'a> {
    /// Returns the datagram of the game, if it is one.
    #[must_use]
    pub const fn datagram(&self) -> Option<&ParsedDatagram<'a>> {
        match self {
            Self::Datagram(parsed) => Some(parsed),
            Self::GameSpy(_) | Self::Malformed(_) => None,
        }
    }
}

/// Room for the messages of one datagram, used for one after the other: 255 messages at most, so its size is bounded.
#[derive(Debug, Default)]
pub struct MessageBuffer<'a> {
    messages: Vec<Message<'a>>,
}

impl<'a> MessageBuffer<'a> {
    /// Checks and decodes a deciphered datagram in one pass.
    ///
    /// # Errors
    /// As [`Datagram::parse`], which gives the same answer for the same bytes.
    pub fn parse(&mut self, bytes: &'a [u8], sent_by: Option<Role>) -> Result<ParsedDatagram<'_>, WireError> {
        self.messages.clear();
        let datagram = Datagram::parse_into(bytes, sent_by, &mut self.messages)?;
        Ok(ParsedDatagram { datagram, messages: &self.messages })
    }

    /// Tells what deciphered bytes are, and decodes a datagram among them.
    pub fn read(&mut self, plain: &'a [u8], sent_by: Option<Role>) -> Content<'_> {
        if plain.first() == Some(&PeerId::GAMESPY.0) {
            return Content::GameSpy(plain);
        }
        self.parse(plain, sent_by).map_or_else(Content::Malformed, Content::Datagram)
    }

    /// Gives its memory to a buffer for other bytes.
    #[must_use]
    pub fn reuse<'b>(mut self) -> MessageBuffer<'b> {
        self.messages.clear();
        // Nothing is left that would borrow; collecting nothing into the same type keeps the memory.
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
