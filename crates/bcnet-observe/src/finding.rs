//! The findings of an observer, each with its time and place.

use core::fmt::{self, Write};
use core::net::SocketAddrV4;
use core::time::Duration;

use crate::text_buffer::TextBuffer;
use crate::{ConversationId, NonStock, Side};
use bcnet_wire::{Channel, Kind, MessageId, Seq, Time, WireError};

/// A fault or peculiarity, with the time and place at which it was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finding {
    /// The time of the finding.
    pub at: Time,
    /// The mark that the caller gave to the datagram that shows it, or [`NO_MARK`](crate::NO_MARK).
    pub mark: u64,
    /// The conversation.
    pub conversation: ConversationId,
    /// The side that caused it.
    pub side: Side,
    /// The address of that side.
    pub by: SocketAddrV4,
    /// The address of the other side.
    pub to: SocketAddrV4,
    /// The kind of the finding, with details.
    pub kind: FindingKind,
}

/// The identity of a message that a finding is about, and its content as far as it was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageInfo {
    /// The id of the message.
    pub id: MessageId,
    /// The type of the message, if it was seen.
    pub kind: Option<Kind>,
    /// The first byte of the payload, if the message is data and that byte was seen.
    pub opcode: Option<u8>,
}

/// The kinds of findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FindingKind {
    /// An ACK for a message that was already acknowledged.
    StaleAck {
        /// The message that it acknowledges.
        about: MessageInfo,
        /// The time since the message was first acknowledged.
        age: Duration,
        /// The number of this send of the ACK.
        times: u32,
    },
    /// An ACK that was sent more than once for one arrival; reported after the last send.
    RepeatedAck {
        /// The message that it acknowledges.
        id: MessageId,
        /// The number of sends.
        times: u32,
    },
    /// The gate was closed: ACKs were due, but could not leave until another message was sent.
    ///
    /// A stock sender sends an ACK three times by itself. After that, the ACK leaves only together with another
    /// message.
    ClosedGate {
        /// Number of ACKs.
        acks: u32,
        /// The longest wait.
        waited: Duration,
    },
    /// A message was retransmitted.
    Retransmission {
        /// The message.
        about: MessageInfo,
        /// The number of this send; the first retransmission is 2.
        times: u32,
        /// The time since the first send.
        after: Duration,
        /// The cause.
        cause: RetransmitCause,
    },
    /// A message was sent to a receiver that had already acknowledged it.
    DuplicateDelivery {
        /// The message.
        about: MessageInfo,
    },
    /// Fragments of a payload are sent repeatedly.
    StuckFragments {
        /// The sequence number that they share.
        seq: Seq,
        /// Number of fragments that wait for an ACK.
        waiting: u32,
        /// The time since the first send.
        age: Duration,
        /// `true` if ACKs came that name the whole message instead of the fragment.
        wrong_form: bool,
    },
    /// Game data had to wait for the next datagram because ACKs took its room.
    Starvation {
        /// Bytes of the ACKs in front.
        ack_bytes: u32,
        /// Bytes of the message that did not fit.
        waiting_bytes: u32,
    },
    /// A sequence number was skipped, and neither its message nor an ACK for it was seen.
    SequenceGap {
        /// The channel.
        channel: Channel,
        /// The sequence number.
        seq: Seq,
    },
    /// A datagram holds a message of an unknown type. A stock receiver ignores the rest of the datagram.
    UnknownType(Kind),
    /// A datagram cannot be parsed.
    Malformed(WireError),
    /// The sender does something that stock senders do not do; reported once for each peculiarity.
    NonStock(NonStock),
    /// The sender sends each ACK once instead of nine times.
    AcksOnce,
    /// A side was silent for longer than keepalives allow.
    Silence {
        /// Duration of the silence.
        lasted: Duration,
    },
    /// A side was silent for so long that a stock peer gives up.
    Timeout {
        /// Duration of the silence.
        lasted: Duration,
    },
    /// The capture has missed something. This is no fault of either side.
    CaptureLoss(CaptureMiss),
}

/// A part of the traffic that a capture has missed, and the evidence for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaptureMiss {
    /// A message: the other side has acknowledged it.
    ///
    /// A skipped sequence number also counts as this if the capture has other losses.
    Message(MessageId),
    /// An ACK: the sender of the message has stopped its retransmissions.
    Ack(MessageId),
    /// All datagrams of this side: the other side continues as if it were answered.
    Side,
}

/// Why a message was retransmitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RetransmitCause {
    /// The receiver had acknowledged the message, but no ACK reached the sender.
    AckLost,
    /// An ACK was on its way, or the sender had not read it yet.
    AckLate,
    /// No ACK was sent: the message was lost, or the receiver does not answer.
    AckNeverSent,
    /// The ACK named the whole message for a fragment, or a fragment for a whole message.
    WrongForm,
    /// The receiver had disconnected or was booted. A stock host continues for a while: this is no fault.
    ReceiverLeft,
    /// Not known: the capture has missed datagrams that the receiver sent in the meantime.
    NotCaptured,
}

impl RetransmitCause {
    /// Returns a short name for logs and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AckLost => "ack_lost",
            Self::AckLate => "ack_late",
            Self::AckNeverSent => "ack_never_sent",
            Self::WrongForm => "wrong_form",
            Self::ReceiverLeft => "receiver_left",
            Self::NotCaptured => "not_captured",
        }
    }
}

impl FindingKind {
    /// Returns a short name for logs and JSON.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::StaleAck { .. } => "stale_ack",
            Self::RepeatedAck { .. } => "repeated_ack",
            Self::ClosedGate { .. } => "closed_gate",
            Self::Retransmission { .. } => "retransmission",
            Self::DuplicateDelivery { .. } => "duplicate_delivery",
            Self::StuckFragments { .. } => "stuck_fragments",
            Self::Starvation { .. } => "starvation",
            Self::SequenceGap { .. } => "sequence_gap",
            Self::UnknownType(_) => "unknown_type",
            Self::Malformed(_) => "malformed",
            Self::NonStock(_) => "non_stock",
            Self::AcksOnce => "acks_once",
            Self::Silence { .. } => "silence",
            Self::Timeout { .. } => "timeout",
            Self::CaptureLoss(_) => "capture_loss",
        }
    }

    /// Returns the message that the finding is about, if it was seen.
    #[must_use]
    pub const fn message_info(&self) -> Option<MessageInfo> {
        match self {
            Self::StaleAck { about, .. }
            | Self::Retransmission { about, .. }
            | Self::DuplicateDelivery { about } => Some(*about),
            Self::RepeatedAck { .. }
            | Self::ClosedGate { .. }
            | Self::StuckFragments { .. }
            | Self::Starvation { .. }
            | Self::SequenceGap { .. }
            | Self::UnknownType(_)
            | Self::Malformed(_)
            | Self::NonStock(_)
            | Self::AcksOnce
            | Self::Silence { .. }
            | Self::Timeout { .. }
            | Self::CaptureLoss(_) => None,
        }
    }

    /// Returns the message that the finding is about, even if only its ACK was seen.
    #[must_use]
    pub fn message_id(&self) -> Option<MessageId> {
        match self {
            Self::RepeatedAck { id, .. }
            | Self::CaptureLoss(CaptureMiss::Message(id) | CaptureMiss::Ack(id)) => Some(*id),
            Self::CaptureLoss(CaptureMiss::Side)
            | Self::StaleAck { .. }
            | Self::ClosedGate { .. }
            | Self::Retransmission { .. }
            | Self::DuplicateDelivery { .. }
            | Self::StuckFragments { .. }
            | Self::Starvation { .. }
            | Self::SequenceGap { .. }
            | Self::UnknownType(_)
            | Self::Malformed(_)
            | Self::NonStock(_)
            | Self::AcksOnce
            | Self::Silence { .. }
            | Self::Timeout { .. } => self.message_info().map(|about| about.id),
        }
    }

    /// Returns the duration of the finding with its name, for kinds that have one.
    #[must_use]
    pub const fn named_duration(&self) -> Option<(&'static str, Duration)> {
        match self {
            Self::StaleAck { age, .. } | Self::StuckFragments { age, .. } => Some(("age", *age)),
            Self::Retransmission { after, .. } => Some(("after", *after)),
            Self::ClosedGate { waited, .. } => Some(("waited", *waited)),
            Self::Silence { lasted } | Self::Timeout { lasted } => Some(("lasted", *lasted)),
            Self::RepeatedAck { .. }
            | Self::DuplicateDelivery { .. }
            | Self::Starvation { .. }
            | Self::SequenceGap { .. }
            | Self::UnknownType(_)
            | Self::Malformed(_)
            | Self::NonStock(_)
            | Self::AcksOnce
            | Self::CaptureLoss(_) => None,
        }
    }

    /// Returns the number of the send, or the number of sends, for kinds that are about sends.
    #[must_use]
    pub const fn send_count(&self) -> Option<u32> {
        if let Self::StaleAck { times, .. }
        | Self::Retransmission { times, .. }
        | Self::RepeatedAck { times, .. } = self
        {
            Some(*times)
        } else {
            None
        }
    }

    /// Returns whether the finding is about an ACK that its side has sent.
    #[must_use]
    pub const fn is_about_ack(&self) -> bool {
        matches!(
            self,
            Self::StaleAck { .. } | Self::RepeatedAck { .. } | Self::CaptureLoss(CaptureMiss::Ack(_))
        )
    }

    /// Returns whether the finding is a fault between the two sides.
    ///
    /// These are no faults: a capture loss, a sender that sends each ACK once, a retransmission to a peer that
    /// has left, and a retransmission whose cause the capture has missed.
    #[must_use]
    pub const fn is_fault(&self) -> bool {
        !matches!(
            self,
            Self::CaptureLoss(_)
                | Self::AcksOnce
                | Self::Retransmission {
                    cause: RetransmitCause::ReceiverLeft | RetransmitCause::NotCaptured,
                    ..
                }
        )
    }
}

impl fmt::Display for MessageInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kind, self.opcode) {
            (Some(kind), None) if kind != Kind::DATA => write!(f, "{kind} {}", self.id),
            _ => f.write_str(self.write_to(&mut TextBuffer::new()).as_str()),
        }
    }
}

impl MessageInfo {
    /// Appends the message's sequence number and opcode.
    fn write_to<'a>(&self, text: &'a mut TextBuffer) -> &'a mut TextBuffer {
        text.push_message_id(self.id);
        if let Some(opcode) = self.opcode {
            text.push_str(" opcode=0x").push_hex(opcode);
        }
        text
    }
}

/// Formats a stale ACK without `write!`: this is by far the most frequent finding.
fn stale_ack_text(about: &MessageInfo, age: Duration, times: u32) -> TextBuffer {
    let mut text = TextBuffer::new();
    text.push_str("stale ACK of ");
    match (about.kind, about.opcode) {
        (Some(kind), None) if kind != Kind::DATA => drop(write!(text, "{kind} {}", about.id)),
        _ => drop(about.write_to(&mut text)),
    }
    text.push_str(", sent ")
        .push_number(times.into())
        .push_str(" times, cleared ")
        .push_seconds(age)
        .push_str(" s ago");
    text
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StaleAck { about, age, times } => f.write_str(stale_ack_text(about, *age, *times).as_str()),
            Self::RepeatedAck { id, times } => write!(f, "ACK of {id} was sent {times} times"),
            Self::ClosedGate { acks, waited } => {
                let s = if *acks == 1 { "" } else { "s" };
                write!(
                    f,
                    "{acks} ACK{s} waited {} s for another message to leave with",
                    SecondsWithMillis(*waited)
                )
            }
            Self::Retransmission { about, times, after, cause } => {
                write!(
                    f,
                    "{about} sent for the {} after {} s: {cause}",
                    Ordinal(*times),
                    SecondsWithMillis(*after)
                )
            }
            Self::DuplicateDelivery { about } => write!(f, "{about} was delivered again"),
            Self::StuckFragments { seq, waiting, age, wrong_form } => {
                let age = age.as_secs_f32();
                write!(f, "{waiting} fragments of game {seq} have been stuck for {age:.1} s")?;
                f.write_str(if *wrong_form { ": the ACKs name no fragment" } else { "" })
            }
            Self::Starvation { ack_bytes, waiting_bytes } => {
                write!(f, "{waiting_bytes} bytes of game data waited behind {ack_bytes} bytes of ACKs")
            }
            Self::SequenceGap { channel, seq } => write!(f, "{channel} {seq} was never sent"),
            Self::UnknownType(kind) => write!(f, "unknown {kind}"),
            Self::Malformed(error) => write!(f, "malformed: {error}"),
            Self::NonStock(flags) => write!(f, "not a stock sender: {flags}"),
            Self::AcksOnce => f.write_str("sends each ACK once: not a stock sender"),
            Self::Silence { lasted } => write!(f, "silent for {:.1} s", lasted.as_secs_f32()),
            Self::Timeout { lasted } => write!(f, "timed out: silent for {:.1} s", lasted.as_secs_f32()),
            Self::CaptureLoss(missed) => write!(f, "not in the capture: {missed}"),
        }
    }
}

impl fmt::Display for CaptureMiss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message(id) => write!(f, "{id} (the other side has acknowledged it)"),
            Self::Ack(id) => write!(f, "the ACK of {id} (its sender has stopped retransmitting)"),
            Self::Side => f.write_str("all datagrams of this side"),
        }
    }
}

impl fmt::Display for RetransmitCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AckLost => "its ACK was lost",
            Self::AckLate => "its ACK was late",
            Self::AckNeverSent => "no ACK was sent",
            Self::WrongForm => "its ACK has the wrong form",
            Self::ReceiverLeft => "the receiver had left",
            Self::NotCaptured => "the capture has missed datagrams of the receiver",
        })
    }
}

struct Ordinal(u32);

impl fmt::Display for Ordinal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ending = match (self.0 % 10, self.0 % 100) {
            (1, rest) if rest != 11 => "st",
            (2, rest) if rest != 12 => "nd",
            (3, rest) if rest != 13 => "rd",
            _ => "th",
        };
        write!(f, "{}{ending} time", self.0)
    }
}

/// Formats seconds with three digits after the decimal point.
struct SecondsWithMillis(Duration);

impl fmt::Display for SecondsWithMillis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(TextBuffer::new().push_seconds(self.0).as_str())
    }
}
