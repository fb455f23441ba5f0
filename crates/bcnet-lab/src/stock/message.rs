//! One message of the stock engine: its wire format, its parser, and its retransmission timer.
//!
//! The parser checks only what the original checks.

use std::fmt;
use std::net::Ipv4Addr;

use bcnet_transport::wire::{Channel, Kind, MessageId, PeerId, Seq};

use super::params::Backoff;

/// A message in any of the queues.
#[derive(Debug, Clone)]
pub(super) struct StockMessage {
    pub(super) kind: Kind,
    /// Bytes after the header. Empty for an ACK or a keepalive.
    pub(super) payload: Vec<u8>,
    pub(super) seq: u16,
    /// Fragment number, for a fragment.
    pub(super) fragment: Option<u8>,
    /// Number of fragments. Only fragment 0 has it.
    pub(super) fragment_count: u8,
    pub(super) reliable: bool,
    pub(super) urgent: bool,
    /// `false` if a datagram may have only one such message.
    pub(super) aggregate: bool,
    /// Channel of the acknowledged message, for an ACK.
    pub(super) acked_channel: Channel,
    pub(super) timer: RetransmitTimer,
    /// Time when the message was queued for sending.
    pub(super) queued_at: f32,
    /// Id of the sender, set on arrival.
    pub(super) sender: PeerId,
    pub(super) source: Ipv4Addr,
    pub(super) arrived_at: f32,
}

impl StockMessage {
    /// Creates a message with the defaults of the original: control messages are reliable and urgent.
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

    /// Returns the id of the message. For an ACK: the id of the message that it acknowledges.
    pub(super) fn id(&self) -> MessageId {
        let channel = if self.kind == Kind::ACK { self.acked_channel } else { self.kind.channel() };
        MessageId { channel, seq: Seq(self.seq), fragment: self.fragment }
    }

    /// Returns the size that the original computes from the parsed fields, not from the size field.
    ///
    /// The parser advances by this size.
    pub(super) fn len(&self) -> usize {
        match self.kind {
            Kind::KEEPALIVE => 1,
            Kind::ACK => ack_len(self.fragment),
            _ => self.header_len() + self.payload.len(),
        }
    }

    /// Returns the header size of a message that has a size field.
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
        // Sizes are below 8192, because larger messages are split into fragments.
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

    /// Parses the message at `at`.
    ///
    /// The parser checks only what the original checks. The original reads unknown memory after the end of a
    /// datagram; the model reads zeros.
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

    /// Parses a control message. It reads a sequence number even if the flags say that there is none.
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

    /// Returns a byte of the payload, or zero after its end.
    pub(super) fn byte_at(&self, at: usize) -> u8 {
        byte_or_zero(&self.payload, at)
    }

    /// Returns the address at `at` in the payload.
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

/// Returns the wire size of an ACK.
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

/// Timer for the next send of a message or an ACK.
#[derive(Debug, Clone, Copy)]
pub(super) struct RetransmitTimer {
    pub(super) backoff: Backoff,
    /// Number of retransmissions; for an ACK, number of sends.
    pub(super) count: u32,
    pub(super) interval: f32,
    pub(super) last_send: f32,
    pub(super) first_send: f32,
}

impl RetransmitTimer {
    pub(super) const fn new(backoff: Backoff) -> Self {
        Self { backoff, count: 0, interval: backoff.first, last_send: 0.0, first_send: 0.0 }
    }

    /// Returns whether the wait is over. The comparison is strict: a timer is never due in the frame that
    /// started it.
    pub(super) fn is_due(&self, now: f32) -> bool {
        self.last_send + self.interval < now
    }

    /// Starts the current wait again and keeps the count and the interval.
    pub(super) const fn refresh(&mut self, now: f32) {
        self.last_send = now;
    }

    /// Resets the timer to its initial state.
    pub(super) const fn restart(&mut self, now: f32) {
        self.count = 0;
        self.interval = self.backoff.first;
        (self.first_send, self.last_send) = (now, now);
    }

    /// Counts one more send and starts the next wait.
    pub(super) fn on_resend(&mut self, now: f32) {
        self.last_send = now;
        self.count += 1;
        self.interval = self.backoff.next_wait(self.interval);
    }
}

/// Reason why a message could not be parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ParseFailure {
    /// The message type is unknown.
    UnknownType(Kind),
    /// The original program would crash.
    Crash(Crash),
}

/// Cause of a crash of the original program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// The size field is smaller than the header: the original copies four gigabytes.
    Undersized {
        /// Message type.
        kind: Kind,
        /// Value of the size field.
        size: u16,
    },
    /// The fragment count is reached, but this fragment is missing: the original follows a null pointer.
    MissingFragment {
        /// Sequence number of the message.
        seq: Seq,
        /// Number of the missing fragment.
        index: u8,
    },
    /// The queues exceed a limit of the model. The original would continue until memory is exhausted.
    OutOfMemory,
}

impl fmt::Display for Crash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Undersized { kind, size } => {
                write!(f, "the size field of a {kind} message says {size} bytes, less than its header")
            }
            Self::MissingFragment { seq, index } => {
                write!(
                    f,
                    "the fragments of game message {} were joined, but fragment {index} is missing",
                    seq.0
                )
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
/// Type, flags with size, and sequence number.
const CONTROL_HEADER_BYTES: usize = 5;
