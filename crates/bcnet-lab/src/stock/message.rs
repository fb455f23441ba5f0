//! One message: how it lies in a datagram, how it is read without any suspicion, and its retransmit timer.

use std::fmt;
use std::net::Ipv4Addr;

use bcnet_transport::wire::{Channel, Kind, MessageId, PeerId, Seq};

use super::params::Backoff;

/// A message in any of the queues.
#[derive(Debug, Clone)]
pub(super) struct StockMessage {
    pub(super) kind: Kind,
    /// What follows the header; nothing in an ACK or a keepalive.
    pub(super) payload: Vec<u8>,
    pub(super) seq: u16,
    /// The index of a part.
    pub(super) fragment: Option<u8>,
    /// How many parts there are; only in part 0.
    pub(super) fragment_count: u8,
    pub(super) reliable: bool,
    pub(super) urgent: bool,
    /// Whether it may share a datagram with others that may not.
    pub(super) aggregate: bool,
    /// In an ACK: the channel of what is acknowledged.
    pub(super) acked_channel: Channel,
    pub(super) timer: RetransmitTimer,
    /// When it was queued to be sent.
    pub(super) queued_at: f32,
    /// Set on arrival.
    pub(super) sender: PeerId,
    pub(super) source: Ipv4Addr,
    pub(super) arrived_at: f32,
}

impl StockMessage {
    /// Makes a message with the defaults of the original: reliable and urgent if it is of the low channel.
    pub(super) fn new(kind: Kind, payload: Vec<u8>) -> Self {
        let control = kind.channel() == Channel::Control && kind != Kind::KEEPALIVE && kind != Kind::ACK;
        Self {
            kind,
            payload,
            seq: 0,
            fragment: None,
            fragment_count: 0,
            reliable: control,
            urgent: control,
            aggregate: true,
            acked_channel: Channel::Control,
            timer: RetransmitTimer::new(Backoff::default()),
            queued_at: 0.0,
            sender: PeerId::NULL,
            source: Ipv4Addr::UNSPECIFIED,
            arrived_at: 0.0,
        }
    }

    /// Returns what its ACK names, or what it, an ACK, acknowledges.
    pub(super) fn id(&self) -> MessageId {
        let channel = if self.kind == Kind::ACK { self.acked_channel } else { self.kind.channel() };
        MessageId { channel, seq: Seq(self.seq), fragment: self.fragment }
    }

    /// Returns its size as the original computes it from the object, by which it also moves on after reading one.
    pub(super) fn len(&self) -> usize {
        match self.kind {
            Kind::KEEPALIVE => 1,
            Kind::ACK => ack_len(self.fragment),
            _ => self.header_len() + self.payload.len(),
        }
    }

    /// Returns the size of the header of a message with a length.
    pub(super) fn header_len(&self) -> usize {
        let sequence = if self.reliable { 2 } else { 0 };
        let part = match self.fragment {
            _ if self.kind != Kind::DATA => 0,
            None => 0,
            Some(0) => 2,
            Some(_) => 1,
        };
        3 + sequence + part
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match self.kind {
            Kind::KEEPALIVE => out.push(self.kind.0),
            Kind::ACK => write_ack(self.id(), out),
            _ => self.write_with_length(out),
        }
    }

    fn write_with_length(&self, out: &mut Vec<u8>) {
        let part = self.fragment.filter(|_| self.kind == Kind::DATA);
        let mask = if self.kind == Kind::DATA { DATA_SIZE_MASK } else { CONTROL_SIZE_MASK };
        // Sizes are below 8192 because larger messages are split.
        let mut word = u16::try_from(self.len()).unwrap_or(u16::MAX) & mask;
        for (set, bit) in
            [(self.reliable, RELIABLE_FLAG), (self.urgent, URGENT_FLAG), (part.is_some(), FRAGMENT_FLAG)]
        {
            word |= if set { bit } else { 0 };
        }
        out.push(self.kind.0);
        out.extend(word.to_le_bytes());
        if self.reliable {
            out.extend(self.seq.to_le_bytes());
        }
        match part {
            None => {}
            Some(0) => out.extend([0, self.fragment_count]),
            Some(index) => out.push(index),
        }
        out.extend(&self.payload);
    }

    /// Reads the message at `at`. Nothing is checked that the original does not check; what lies behind the end of the
    /// datagram is unknown memory, taken as zeros here.
    pub(super) fn parse(datagram: &[u8], at: usize) -> Result<Self, ParseFailure> {
        let kind = Kind(byte_or_zero(datagram, at));
        let mut message = Self::new(kind, Vec::new());
        match kind {
            Kind::KEEPALIVE => {}
            Kind::ACK => {
                message.seq = u16_or_zero(datagram, at + 1);
                let flags = byte_or_zero(datagram, at + 3);
                message.acked_channel = if flags & 2 == 0 { Channel::Game } else { Channel::Control };
                message.fragment = (flags & 1 != 0).then(|| byte_or_zero(datagram, at + 4));
            }
            Kind::DATA => message.parse_data(datagram, at)?,
            Kind::IDENTITY | Kind::CONNECT | Kind::BOOT | Kind::DISCONNECT => {
                message.parse_control(datagram, at)?;
            }
            _ => return Err(ParseFailure::UnknownType(kind)),
        }
        Ok(message)
    }

    fn parse_data(&mut self, datagram: &[u8], at: usize) -> Result<(), ParseFailure> {
        let flags = u16_or_zero(datagram, at + 1);
        (self.reliable, self.urgent) = (flags & RELIABLE_FLAG != 0, flags & URGENT_FLAG != 0);
        let mut body = at + 3;
        if self.reliable {
            self.seq = u16_or_zero(datagram, body);
            body += 2;
        }
        if flags & FRAGMENT_FLAG != 0 {
            let index = byte_or_zero(datagram, body);
            self.fragment = Some(index);
            if index == 0 {
                self.fragment_count = byte_or_zero(datagram, body + 1);
            }
        }
        self.copy_payload(datagram, at, flags & DATA_SIZE_MASK, self.header_len())
    }

    /// The sequence number is read whether the message says that it has one or not.
    fn parse_control(&mut self, datagram: &[u8], at: usize) -> Result<(), ParseFailure> {
        let flags = u16_or_zero(datagram, at + 1);
        (self.reliable, self.urgent) = (flags & RELIABLE_FLAG != 0, flags & URGENT_FLAG != 0);
        self.seq = u16_or_zero(datagram, at + 3);
        let header = CONTROL_HEADER_BYTES;
        let min = if self.kind == Kind::BOOT { header + 1 } else { header };
        let size = flags & CONTROL_SIZE_MASK;
        if usize::from(size) < min {
            return Err(ParseFailure::Crash(Crash::Undersized { kind: self.kind, size }));
        }
        self.copy_payload(datagram, at, size, header)
    }

    fn copy_payload(
        &mut self,
        datagram: &[u8],
        at: usize,
        size: u16,
        header: usize,
    ) -> Result<(), ParseFailure> {
        let Some(len) = usize::from(size).checked_sub(header) else {
            return Err(ParseFailure::Crash(Crash::Undersized { kind: self.kind, size }));
        };
        let start = at + header;
        let there = datagram.get(start..).unwrap_or_default();
        self.payload.extend(there.iter().take(len));
        self.payload.resize(len, 0);
        Ok(())
    }

    /// Returns a byte of the payload; zero behind its end.
    pub(super) fn byte_at(&self, at: usize) -> u8 {
        byte_or_zero(&self.payload, at)
    }

    /// Returns an address in the payload.
    pub(super) fn address_at(&self, at: usize) -> Ipv4Addr {
        Ipv4Addr::from([0, 1, 2, 3].map(|i| self.byte_at(at + i)))
    }

    /// Returns the UTF-16LE text that starts at `at`, up to its terminator or the end.
    pub(super) fn text_at(&self, at: usize) -> &[u8] {
        let bytes = self.payload.get(at..).unwrap_or_default();
        let (units, _) = bytes.as_chunks::<2>();
        let len = units.iter().position(|unit| *unit == [0, 0]).unwrap_or(units.len());
        bytes.get(..2 * len).unwrap_or_default()
    }
}

/// Returns the size of an ACK.
pub(super) fn ack_len(part: Option<u8>) -> usize {
    4 + usize::from(part.is_some())
}

pub(super) fn write_ack(id: MessageId, out: &mut Vec<u8>) {
    let channel = if id.channel == Channel::Control { 2 } else { 0 };
    out.push(Kind::ACK.0);
    out.extend(id.seq.0.to_le_bytes());
    out.push(channel | u8::from(id.fragment.is_some()));
    out.extend(id.fragment);
}

fn byte_or_zero(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or(0)
}

fn u16_or_zero(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([byte_or_zero(bytes, at), byte_or_zero(bytes, at + 1)])
}

/// When a message is sent again.
#[derive(Debug, Clone, Copy)]
pub(super) struct RetransmitTimer {
    pub(super) backoff: Backoff,
    /// How often it was sent again; for an ACK, how often it was sent.
    pub(super) count: u32,
    pub(super) interval: f32,
    pub(super) last_send: f32,
    pub(super) first_send: f32,
}

impl RetransmitTimer {
    pub(super) const fn new(backoff: Backoff) -> Self {
        Self { backoff, count: 0, interval: backoff.first, last_send: 0.0, first_send: 0.0 }
    }

    /// Strictly later: in the frame that started the timer nothing is due.
    pub(super) fn is_due(&self, now: f32) -> bool {
        self.last_send + self.interval < now
    }

    /// The wait begins anew, and nothing else.
    pub(super) const fn refresh(&mut self, now: f32) {
        self.last_send = now;
    }

    /// From the beginning.
    pub(super) const fn restart(&mut self, now: f32) {
        self.count = 0;
        self.interval = self.backoff.first;
        (self.first_send, self.last_send) = (now, now);
    }

    /// Once more.
    pub(super) fn on_resend(&mut self, now: f32) {
        self.last_send = now;
        self.count += 1;
        self.interval = self.backoff.next_wait(self.interval);
    }
}

/// Why a message could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ParseFailure {
    /// There is no such type.
    UnknownType(Kind),
    /// Reading it ends the program.
    Crash(Crash),
}

/// What would have ended the original program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// A message that says to be smaller than its header: four gigabytes are copied.
    Undersized {
        /// Its type.
        kind: Kind,
        /// What it says.
        size: u16,
    },
    /// Enough parts are there to be put together, but not this one: a null pointer is followed.
    MissingFragment {
        /// The number of the message.
        seq: Seq,
        /// The part.
        index: u8,
    },
    /// More waits than the model is ready to hold; the original would go on until memory ends.
    OutOfMemory,
}

impl fmt::Display for Crash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Undersized { kind, size } => {
                write!(f, "a {kind} message of {size} bytes is smaller than its header")
            }
            Self::MissingFragment { seq, index } => {
                write!(f, "the parts of game message {} are joined without part {index}", seq.0)
            }
            Self::OutOfMemory => f.write_str("out of memory"),
        }
    }
}

const RELIABLE_FLAG: u16 = 0x8000;
const URGENT_FLAG: u16 = 0x4000;
const FRAGMENT_FLAG: u16 = 0x2000;
const DATA_SIZE_MASK: u16 = 0x1FFF;
const CONTROL_SIZE_MASK: u16 = 0x3FFF;
/// Type, word and sequence number.
const CONTROL_HEADER_BYTES: usize = 5;
