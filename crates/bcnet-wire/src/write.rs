//! Writes messages into a caller's buffer.

use crate::message::{
    ACK_CONTROL, ACK_FRAGMENT, ACK_RESERVED, CONTROL_SIZE_MASK, DATA_SIZE_MASK, FRAGMENT, RELIABLE, URGENT,
};
use crate::{
    Ack, Body, Channel, Control, DATAGRAM_HEADER, Data, Delivery, Kind, MAX_DATAGRAM, Message, MessageId,
    PeerId, Seq,
};

/// Writes one datagram, message by message, up to a limit.
#[derive(Debug)]
pub struct Writer<'b> {
    buffer: &'b mut [u8],
    len: usize,
    count: u8,
}

impl<'b> Writer<'b> {
    /// Starts a datagram of at most 512 bytes ([T-04]), or fewer if `buffer` is shorter.
    ///
    /// [T-04]: crate::protocol#t-04
    #[must_use]
    pub fn new(buffer: &'b mut [u8], sender: PeerId) -> Self {
        Self::with_limit(buffer, sender, MAX_DATAGRAM)
    }

    /// Starts a datagram of at most `limit` bytes, or fewer if `buffer` is shorter.
    #[must_use]
    #[inline]
    pub fn with_limit(buffer: &'b mut [u8], sender: PeerId, limit: usize) -> Self {
        let limit = limit.min(buffer.len());
        let buffer = buffer.get_mut(..limit).unwrap_or_default();
        if let Some(first) = buffer.first_mut() {
            *first = sender.0;
        }
        Self { buffer, len: DATAGRAM_HEADER, count: 0 }
    }

    /// Appends a message; returns `false` and changes nothing if it cannot.
    ///
    /// It cannot if the message does not fit, if the datagram has 255 messages already, or if the size is
    /// too large for the size field. It also refuses a tail that no parser accepts: an odd number of bytes
    /// behind text ([T-39]).
    ///
    /// [T-39]: crate::protocol#t-39
    #[must_use]
    pub fn push(&mut self, message: &Message<'_>) -> bool {
        let Some(count) = self.count.checked_add(1) else { return false };
        let size = message.wire_len();
        let Some(end) = self.len.checked_add(size) else { return false };
        let Some(out) = self.buffer.get_mut(self.len..end) else { return false };
        if !write_message(out, size, message) {
            return false;
        }
        self.len = end;
        self.count = count;
        true
    }

    /// Appends `count` ACKs with sequence numbers from that of `first` upwards. Returns how many fit.
    ///
    /// If `first` names a fragment, it appends at most one ACK.
    #[must_use]
    #[inline]
    pub fn push_acks(&mut self, first: MessageId, count: u8) -> u8 {
        if let Some(part) = first.fragment {
            let [kind, low, high, channel] = plain_ack(first.channel, first.seq);
            return u8::from(
                count > 0 && self.push_encoded(&[kind, low, high, channel | ACK_FRAGMENT, part]),
            );
        }
        let mut room = self.buffer.get_mut(self.len..).unwrap_or_default();
        let (mut written, max) = (0, count.min(u8::MAX - self.count));
        while let Some((ack, rest)) = room.split_first_chunk_mut().filter(|_| written < max) {
            *ack = plain_ack(first.channel, Seq(first.seq.0.wrapping_add(written.into())));
            (room, written) = (rest, written + 1);
        }
        self.len += 4 * usize::from(written);
        self.count += written;
        written
    }

    /// Appends an encoded message without checking it.
    ///
    /// Returns `false` and changes nothing if it does not fit.
    #[must_use]
    #[inline]
    pub fn push_encoded(&mut self, message: &[u8]) -> bool {
        self.push_run(message, 1)
    }

    /// Appends `count` encoded messages without checking them.
    ///
    /// Returns `false` and changes nothing if they do not all fit.
    #[must_use]
    #[inline]
    pub fn push_run(&mut self, messages: &[u8], count: u8) -> bool {
        let Some(count) = self.count.checked_add(count) else { return false };
        let end = self.len + messages.len();
        let Some(out) = self.buffer.get_mut(self.len..end) else { return false };
        out.copy_from_slice(messages);
        (self.len, self.count) = (end, count);
        true
    }

    /// Returns whether the datagram has no message yet.
    #[must_use]
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns how many more messages the count byte allows.
    #[must_use]
    #[inline]
    pub const fn free_messages(&self) -> u8 {
        u8::MAX - self.count
    }

    /// Returns the number of free bytes.
    #[must_use]
    #[inline]
    pub fn free_bytes(&self) -> usize {
        self.buffer.len().saturating_sub(self.len)
    }

    /// Returns the datagram, or `None` if it has no message: an empty datagram is never sent ([T-03]).
    ///
    /// [T-03]: crate::protocol#t-03
    #[must_use]
    #[inline]
    pub fn finish(self) -> Option<&'b mut [u8]> {
        let Self { buffer, len, count } = self;
        if count == 0 {
            return None;
        }
        *buffer.get_mut(1)? = count;
        buffer.get_mut(..len)
    }
}

/// Returns the encoded ACK of a whole message ([T-30], [T-31]).
///
/// [T-30]: crate::protocol#t-30
/// [T-31]: crate::protocol#t-31
#[inline]
pub const fn plain_ack(channel: Channel, seq: Seq) -> [u8; 4] {
    let [low, high] = seq.0.to_le_bytes();
    [Kind::ACK.0, low, high, if matches!(channel, Channel::Control) { ACK_CONTROL } else { 0 }]
}

/// Returns a buffer that begins with a data header, and the header's length ([T-12], [T-15], [T-20]).
///
/// `word` is the size field with the size of the whole message and the urgent flag. The function adds the
/// other flags.
///
/// [T-12]: crate::protocol#t-12
/// [T-15]: crate::protocol#t-15
/// [T-20]: crate::protocol#t-20
#[inline(always)]
pub const fn data_header(delivery: Delivery, word: u16) -> ([u8; 7], usize) {
    let kind = Kind::DATA.0;
    match delivery {
        Delivery::Unreliable => {
            let [low, high] = word.to_le_bytes();
            ([kind, low, high, 0, 0, 0, 0], 3)
        }
        Delivery::Reliable(Seq(seq)) => {
            let ([low, high], [a, b]) = ((word | RELIABLE).to_le_bytes(), seq.to_le_bytes());
            ([kind, low, high, a, b, 0, 0], 5)
        }
        Delivery::Fragment(Seq(seq), part) => {
            let ([low, high], [a, b]) = ((word | RELIABLE | FRAGMENT).to_le_bytes(), seq.to_le_bytes());
            let [index, total] = part.to_bytes();
            ([kind, low, high, a, b, index, total], 5 + part.wire_len())
        }
        Delivery::UnreliableFragment(part) => {
            let ([low, high], [index, total]) = ((word | FRAGMENT).to_le_bytes(), part.to_bytes());
            ([kind, low, high, index, total, 0, 0], 3 + part.wire_len())
        }
    }
}

/// Writes `message` into `out`, which has exactly `size` bytes, the length of the message.
///
/// Returns `false` if the size does not fit the size field, or if no parser would accept the tail.
fn write_message(out: &mut [u8], size: usize, message: &Message<'_>) -> bool {
    let kind = message.kind().0;
    let mut out = MessageCursor { rest: out };
    match message {
        Message::Ack(ack) => out.ack(kind, *ack),
        Message::Keepalive => out.put([kind]),
        Message::Control(control) => {
            let Some(size) = size_within(size, CONTROL_SIZE_MASK) else { return false };
            if control.body.has_text() && !control.tail.len().is_multiple_of(2) {
                return false;
            }
            out.control(kind, size, control);
        }
        Message::Data(data) => {
            let Some(size) = size_within(size, DATA_SIZE_MASK) else { return false };
            out.data(size, data);
        }
    }
    true
}

fn size_within(size: usize, max: u16) -> Option<u16> {
    u16::try_from(size).ok().filter(|size| *size <= max)
}

const fn flag(set: bool, bit: u16) -> u16 {
    if set { bit } else { 0 }
}

/// The unwritten part of the space for one message, which has exactly [`Message::wire_len`] bytes.
struct MessageCursor<'b> {
    rest: &'b mut [u8],
}

impl MessageCursor<'_> {
    #[inline]
    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        if let Some((head, rest)) = core::mem::take(&mut self.rest).split_first_chunk_mut() {
            *head = bytes;
            self.rest = rest;
        }
    }

    #[inline]
    fn put_slice(&mut self, bytes: &[u8]) {
        if let Some((head, rest)) = core::mem::take(&mut self.rest).split_at_mut_checked(bytes.len()) {
            head.copy_from_slice(bytes);
            self.rest = rest;
        }
    }

    fn ack(&mut self, kind: u8, Ack { id, reserved: spare }: Ack) {
        let [_, low, high, channel] = plain_ack(id.channel, id.seq);
        let flags = channel | (spare & ACK_RESERVED);
        match id.fragment {
            None => self.put([kind, low, high, flags]),
            Some(part) => self.put([kind, low, high, flags | ACK_FRAGMENT, part]),
        }
    }

    fn control(&mut self, kind: u8, size: u16, control: &Control<'_>) {
        let word = size | flag(control.reliable, RELIABLE) | flag(control.urgent, URGENT);
        let ([low, high], seq) = (word.to_le_bytes(), control.seq.0.to_le_bytes());
        self.put([kind, low, high]);
        self.put(seq);
        match control.body {
            Body::Identity { peer, address, name } => {
                self.put([peer.0]);
                self.put(address.octets());
                self.put_slice(name.as_bytes());
                self.put([0, 0]);
            }
            Body::ConnectRequest { address, nonce, password } => {
                self.put(address.octets());
                self.put(nonce.to_le_bytes());
                self.put_slice(password.as_bytes());
                self.put([0, 0]);
            }
            Body::ConnectReply { assigned } => self.put([assigned.0]),
            Body::Boot { reason, target } => self.put([reason.0.cast_unsigned(), target.0]),
            Body::Disconnect { peer, address } => {
                self.put([peer.0]);
                self.put(address.octets());
            }
        }
        self.put_slice(control.tail);
    }

    fn data(&mut self, size: u16, data: &Data<'_>) {
        let (head, len) = data_header(data.delivery, size | flag(data.urgent, URGENT));
        let rest = core::mem::take(&mut self.rest);
        match rest.first_chunk_mut() {
            // Copies all 7 bytes in one piece, even if the header is shorter: the payload overwrites the
            // rest.
            Some(front) => *front = head,
            None => rest.iter_mut().zip(head).for_each(|(byte, head)| *byte = head),
        }
        self.rest = rest.get_mut(len..).unwrap_or_default();
        self.put_slice(data.payload);
    }
}
