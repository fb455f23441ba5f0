//! What an observer has to tell, each with its place.

use core::fmt::{self, Write};
use core::net::SocketAddrV4;
use core::time::Duration;

use crate::text_buffer::TextBuffer;
use crate::{ConversationId, NonStock, Side};
use bcnet_wire::{Channel, Kind, MessageId, Seq, Time, WireError};

/// Something worth telling, with when and where it was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finding {
    /// When.
    pub at: Time,
    /// The mark that the caller gave to the datagram that shows it, or [`NO_MARK`](crate::NO_MARK).
    pub mark: u64,
    /// In which conversation.
    pub conversation: ConversationId,
    /// Which side did it.
    pub side: Side,
    /// The address of that side.
    pub by: SocketAddrV4,
    /// The address of the other.
    pub to: SocketAddrV4,
    /// What.
    pub kind: FindingKind,
}

/// A message that a finding is about: its identity and what it carried, as far as that was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageInfo {
    /// Which.
    pub id: MessageId,
    /// Its type, if it was seen.
    pub kind: Option<Kind>,
    /// The first byte of its payload, if it is data and that byte was seen.
    pub opcode: Option<u8>,
}

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FindingKind {
    /// An ACK that had nothing left to clear.
    StaleAck {
        /// What it once acknowledged.
        about: MessageInfo,
        /// How long ago that was done.
        age: Duration,
        /// Which sending of the ACK this is.
        times: u32,
    },
    /// An ACK that was sent more than once for one arrival; told when the last sending is over.
    RepeatedAck {
        /// What it acknowledges.
        id: MessageId,
        /// How often it was sent.
        times: u32,
    },
    /// ACKs that had been sent three times were due, and waited until something else left: the gate was closed.
    ClosedGate {
        /// How many.
        acks: u32,
        /// How long the one that waited longest.
        waited: Duration,
    },
    /// A message was sent again.
    Retransmission {
        /// Which.
        about: MessageInfo,
        /// Which sending this is; the first repeat is 2.
        times: u32,
        /// How long after the first.
        after: Duration,
        /// Why.
        cause: RetransmitCause,
    },
    /// A message went to a receiver that had acknowledged it.
    DuplicateDelivery {
        /// Which.
        about: MessageInfo,
    },
    /// Parts of a split payload are sent again and again.
    StuckFragments {
        /// The number that they share.
        seq: Seq,
        /// How many parts wait for an ACK.
        waiting: u32,
        /// How long after the first sending.
        age: Duration,
        /// Whether ACKs came that name the whole message instead of the part.
        wrong_form: bool,
    },
    /// Game data had to wait for the next datagram because ACKs took its place.
    Starvation {
        /// The bytes of ACKs in front.
        ack_bytes: u32,
        /// The bytes that did not fit.
        waiting_bytes: u32,
    },
    /// A number was left out, and neither it nor an ACK for it was seen.
    SequenceGap {
        /// In which stream.
        channel: Channel,
        /// The number.
        seq: Seq,
    },
    /// A datagram holds a message of a type that does not exist. A stock receiver reads nothing behind it.
    UnknownType(Kind),
    /// A datagram cannot be read.
    Malformed(WireError),
    /// The sender does what stock senders do not; told once for each oddity.
    NonStock(NonStock),
    /// The sender acknowledges once instead of nine times.
    AcksOnce,
    /// Nothing was heard for longer than keepalives allow.
    Silence {
        /// How long.
        lasted: Duration,
    },
    /// Nothing was heard for so long that a stock peer gives up.
    Timeout {
        /// How long.
        lasted: Duration,
    },
    /// The capture has missed something. This is no fault of either side.
    CaptureLoss(CaptureMiss),
}

/// What a capture has missed, and how that shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaptureMiss {
    /// A message: the other side has acknowledged it.
    Message(MessageId),
    /// An ACK: the sender has stopped repeating.
    Ack(MessageId),
    /// Everything of this side: the other goes on as if answered.
    Side,
}

/// Why a message was sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RetransmitCause {
    /// It had been received and acknowledged, but no ACK reached the sender.
    AckLost,
    /// An ACK was under way, or waited to be read.
    AckLate,
    /// No ACK was sent: the message was lost, or the receiver does not answer.
    AckNeverSent,
    /// The ACK named the whole message for a part, or a part for a whole message.
    WrongForm,
    /// The receiver had said goodbye, or was told to go. A stock host goes on for a while: that is no fault.
    ReceiverLeft,
    /// Nothing tells: the capture has missed what the receiver sent meanwhile.
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

    /// Returns the message that it is about, if it was seen.
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

    /// Returns the message that it is about, whether it was seen or only its ACK was.
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

    /// Returns how long it took or lasted and how that time is called, if it is of a kind that takes time.
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

    /// Returns which sending it is about, or how many there were, if it is about sendings.
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

    /// Returns whether the message that it names is that of an ACK which its side has sent.
    #[must_use]
    pub const fn is_about_ack(&self) -> bool {
        matches!(
            self,
            Self::StaleAck { .. } | Self::RepeatedAck { .. } | Self::CaptureLoss(CaptureMiss::Ack(_))
        )
    }

    /// Returns whether it tells of something wrong between the two sides. What a capture missed is not, nor is a sender
    /// that acknowledges once, nor what is sent again to a peer that has left.
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
    /// Adds its number and its opcode.
    fn write_to<'a>(&self, text: &'a mut TextBuffer) -> &'a mut TextBuffer {
        text.push_message_id(self.id);
        if let Some(opcode) = self.opcode {
            text.push_str(" opcode=0x").push_hex(opcode);
        }
        text
    }
}

/// By far the commonest finding.
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
                write!(f, "{acks} ACK{s} waited {} s for something to leave with", SecondsWithMillis(*waited))
            }
            Self::Retransmission { about, times, after, cause } => {
                write!(
                    f,
                    "{about} sent for the {} after {} s: {cause}",
                    Ordinal(*times),
                    SecondsWithMillis(*after)
                )
            }
            Self::DuplicateDelivery { about } => write!(f, "{about} was delivered before"),
            Self::StuckFragments { seq, waiting, age, wrong_form } => {
                let age = age.as_secs_f32();
                write!(f, "{waiting} parts of game {seq} are stuck for {age:.1} s")?;
                f.write_str(if *wrong_form { ": their ACKs name no part" } else { "" })
            }
            Self::Starvation { ack_bytes, waiting_bytes } => {
                write!(f, "{waiting_bytes} bytes of game data waited behind {ack_bytes} bytes of ACKs")
            }
            Self::SequenceGap { channel, seq } => write!(f, "{channel} {seq} was never sent"),
            Self::UnknownType(kind) => write!(f, "unknown {kind}"),
            Self::Malformed(error) => write!(f, "malformed: {error}"),
            Self::NonStock(oddities) => write!(f, "not a stock sender: {oddities}"),
            Self::AcksOnce => f.write_str("acknowledges once: not a stock sender"),
            Self::Silence { lasted } => write!(f, "silent for {:.1} s", lasted.as_secs_f32()),
            Self::Timeout { lasted } => write!(f, "timed out: silent for {:.1} s", lasted.as_secs_f32()),
            Self::CaptureLoss(missed) => write!(f, "not in the capture: {missed}"),
        }
    }
}

impl fmt::Display for CaptureMiss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message(id) => write!(f, "{id}, which was acknowledged"),
            Self::Ack(id) => write!(f, "the ACK of {id}, which is not repeated any more"),
            Self::Side => f.write_str("everything this side sent"),
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
            Self::NotCaptured => "what the receiver sent is not in the capture",
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

/// Seconds with three digits behind the point.
struct SecondsWithMillis(Duration);

impl fmt::Display for SecondsWithMillis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(TextBuffer::new().push_seconds(self.0).as_str())
    }
}
