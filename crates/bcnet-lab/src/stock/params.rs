//! All tunable parameters of the stock engine.

use std::net::Ipv4Addr;
use std::time::Duration;

/// Parameters of the stock engine. The defaults are those of the original.
///
/// The time and the length of frames are not parameters: the caller of the engine decides them.
#[derive(Debug, Clone, PartialEq)]
pub struct Params {
    /// Step of the frame clock. Zero means the precision of a 32-bit float in seconds.
    pub granularity: Duration,
    /// Maximum size of a datagram in bytes: 512, or 1024 as in the original's base class. At least 128.
    pub buffer: usize,
    /// Number of sends of an ACK that do not depend on `gate`: the free sends.
    pub free_acks: u32,
    /// Number of sends after which an ACK is removed.
    pub last_ack: u32,
    /// Seconds between two sends of an ACK.
    pub ack_step: f32,
    /// Condition for sending ACKs again after their free sends.
    pub gate: AckGate,
    /// Seconds without queued messages for a peer until a keepalive is queued; `None` means never.
    pub keepalive: Option<f32>,
    /// Seconds of silence after which a peer is deleted; `None` means never.
    pub silence: Option<f32>,
    /// Seconds for which a deleted peer is still served, and the longest wait of a node that leaves.
    pub linger: f32,
    /// Seconds after which a reliable message is dropped. With zero, no message is kept for retransmission.
    pub age_limit: f32,
    /// Seconds to the first retransmission of a game message, unless its sender chooses otherwise.
    pub first_wait: f32,
    /// Effect of a duplicate message on its pending ACK.
    pub dedup: AckDedup,
    /// Position in a datagram of ACKs that have free sends left.
    pub ack_place: AckPosition,
    /// Number of messages that are retransmitted in one pass.
    pub resend: RetransmitsPerFrame,
    /// Backoff of a disconnect that a host relays.
    ///
    /// It is unknown whether the original takes it from the message or from the call that creates a
    /// disconnect.
    pub relayed_goodbye: BackoffMode,
    /// `true` if a node that leaves still sends keepalives.
    pub leaving_keepalives: bool,
    /// Datagrams from which the engine learns the port of an address.
    pub port_map: PortLearning,
    /// `true` if datagrams are encrypted.
    pub cipher: bool,
    /// `true` if handled ACKs are recorded for [`poll_ack_trace`](super::StockEngine::poll_ack_trace).
    pub trace_acks: bool,
    /// Own address of a host.
    pub address: Ipv4Addr,
    /// `true` if the session decides about admission.
    ///
    /// The engine then reports [`Event::Request`](bcnet_transport::Event::Request). The original decides by itself, with `password` and `banned`.
    pub session_decides_admission: bool,
    /// Password that a host requires, UTF-16LE.
    pub password: Option<Vec<u8>>,
    /// Addresses that a host refuses.
    pub banned: Vec<Ipv4Addr>,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            granularity: Duration::ZERO,
            buffer: 512,
            free_acks: 3,
            last_ack: 9,
            ack_step: 0.6666,
            gate: AckGate::Traffic,
            keepalive: Some(5.0),
            silence: Some(45.0),
            linger: 15.0,
            age_limit: 360.0,
            first_wait: 1.0,
            dedup: AckDedup::Restart,
            ack_place: AckPosition::First,
            resend: RetransmitsPerFrame::One,
            relayed_goodbye: BackoffMode::Linear,
            leaving_keepalives: true,
            port_map: PortLearning::AnyDatagram,
            cipher: true,
            trace_acks: false,
            address: Ipv4Addr::LOCALHOST,
            session_decides_admission: false,
            password: None,
            banned: Vec::new(),
        }
    }
}

impl Params {
    /// Returns the effective maximum size of a datagram.
    pub(super) fn datagram_limit(&self) -> usize {
        self.buffer.max(MIN_BUFFER)
    }

    /// Returns the size of the largest message that is not split.
    pub(super) fn message_limit(&self) -> usize {
        self.datagram_limit() - SPLIT_MARGIN
    }
}

/// Condition for sending ACKs again after their free sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AckGate {
    /// If the datagram has another message, or the peer is deleted. The original does this.
    #[default]
    Traffic,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Effect of a duplicate message on its ACK in the outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AckDedup {
    /// The ACK starts again with all its sends. The original does this.
    #[default]
    Restart,
    /// Only the timer starts again; the send count stays.
    Refresh,
}

/// Position in a datagram of ACKs that have free sends left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AckPosition {
    /// Before all other messages. The original does this.
    #[default]
    First,
    /// After the other messages.
    Last,
}

/// Number of messages that are retransmitted to a peer in one pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RetransmitsPerFrame {
    /// The first message that is due. The original does this.
    #[default]
    One,
    /// All messages that are due and fit.
    All,
}

/// Datagrams from which the engine learns the port of their source address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PortLearning {
    /// Any datagram, even without messages.
    #[default]
    AnyDatagram,
    /// Only a datagram with a message.
    WithMessages,
}

/// Growth of the wait between retransmissions, in seconds as 32-bit floats like the original.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backoff {
    /// The backoff mode.
    pub mode: BackoffMode,
    /// The first wait.
    pub first: f32,
    /// Increment of the wait.
    pub step: f32,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { mode: BackoffMode::Linear, first: 1.0, step: 1.0 }
    }
}

impl Backoff {
    /// Returns the wait after the next send.
    pub(super) fn next_wait(&self, wait: f32) -> f32 {
        match self.mode {
            BackoffMode::Fixed if wait == 0.0 => self.step,
            BackoffMode::Fixed => wait,
            BackoffMode::Linear if wait + self.step > LINEAR_BACKOFF_LIMIT => self.step,
            BackoffMode::Linear => wait + self.step,
            BackoffMode::Exponential if wait == self.first => self.first + self.step,
            BackoffMode::Exponential => self.first + (wait - self.first) * 2.0,
        }
    }
}

/// The three backoff modes, numbered 0, 1 and 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackoffMode {
    /// 0: the wait stays the same. A wait of zero becomes the step.
    Fixed,
    /// 1: each wait is longer by one step. A wait above 5 s becomes the step again.
    Linear,
    /// 2: the excess over the first wait doubles, without a limit.
    Exponential,
}

impl BackoffMode {
    /// Returns the original's number of the mode.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Fixed => 0,
            Self::Linear => 1,
            Self::Exponential => 2,
        }
    }
}

/// Smallest buffer in which a fragment fits.
const MIN_BUFFER: usize = 128;
/// Difference between the datagram size and the largest message that is not split.
const SPLIT_MARGIN: usize = 100;
/// Longest wait of linear backoff, in seconds. A longer wait becomes the step again.
const LINEAR_BACKOFF_LIMIT: f32 = 5.0;
