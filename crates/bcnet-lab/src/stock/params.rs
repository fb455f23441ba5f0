//! Everything about the engine that can be turned.

use std::net::Ipv4Addr;
use std::time::Duration;

/// All tunables. The defaults are the original's. When frames come, and how long they take, is up to whoever runs them.
#[derive(Debug, Clone, PartialEq)]
pub struct Params {
    /// The frame clock moves in steps of this; zero is as fine as a 32-bit float of seconds.
    pub granularity: Duration,
    /// The size of a datagram: 512, or 1024 as in the base class. Never below 128.
    pub buffer: usize,
    /// How often an ACK is sent whatever else is sent.
    pub free_acks: u32,
    /// The send after which an ACK is forgotten.
    pub last_ack: u32,
    /// Seconds between two sends of an ACK.
    pub ack_step: f32,
    /// When the second ACK pass runs.
    pub gate: AckGate,
    /// Seconds without anything queued for a peer after which a keepalive is; `None` is never.
    pub keepalive: Option<f32>,
    /// Seconds of silence after which a peer is gone; `None` is never.
    pub silence: Option<f32>,
    /// Seconds that a deleted peer is still served, and the longest a leaver waits.
    pub linger: f32,
    /// Seconds after which a reliable message is given up; none is kept at all if it is zero.
    pub age_limit: f32,
    /// Seconds after which a game message is sent again for the first time, unless its sender chooses otherwise.
    pub first_wait: f32,
    /// What a repeated message does to the ACK that is owed for it.
    pub dedup: AckDedup,
    /// Where in a datagram the ACKs go that may be sent alone.
    pub ack_place: AckPosition,
    /// How many messages are sent again in one pass.
    pub resend: RetransmitsPerFrame,
    /// How a goodbye that a host passes on is repeated. Whether the original takes that from the message or from the call
    /// that makes a goodbye is not known.
    pub relayed_goodbye: BackoffMode,
    /// Whether one that is leaving still sends keepalives.
    pub leaving_keepalives: bool,
    /// Which datagrams tell the port of an address.
    pub port_map: PortLearning,
    /// Whether datagrams are enciphered.
    pub cipher: bool,
    /// Whether dispatched ACKs are noted for [`poll_trace`](super::Stock::poll_trace).
    pub trace_acks: bool,
    /// A host's own address.
    pub address: Ipv4Addr,
    /// Whether a host asks its session who is let in, by [`Event::Request`](bcnet_transport::Event::Request). The original
    /// decides by itself, with what follows.
    pub session_decides_admission: bool,
    /// What a host asks for, UTF-16LE.
    pub password: Option<Vec<u8>>,
    /// Addresses that a host does not let in.
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
    /// Returns the size of a datagram that is really used.
    pub(super) fn datagram_limit(&self) -> usize {
        self.buffer.max(MIN_BUFFER)
    }

    /// Returns the largest message that is not split.
    pub(super) fn message_limit(&self) -> usize {
        self.datagram_limit() - SPLIT_MARGIN
    }
}

/// When ACKs that had their free sends are sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AckGate {
    /// With anything else that is sent, or to a peer that is being deleted: the original.
    #[default]
    Traffic,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// What a repeated message does to the ACK that is in the outbox for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AckDedup {
    /// It begins anew, with all its sends: the original.
    #[default]
    Restart,
    /// Only its timer begins anew; how often it was sent stays.
    Refresh,
}

/// Where in a datagram the ACKs go that may be sent alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AckPosition {
    /// Before everything else: the original.
    #[default]
    First,
    /// Behind the messages.
    Last,
}

/// How many messages are sent again to a peer in one pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RetransmitsPerFrame {
    /// The first that is due: the original.
    #[default]
    One,
    /// All that are due and fit.
    All,
}

/// Which datagrams tell the port of the address that they come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PortLearning {
    /// Any, before its messages are counted.
    #[default]
    AnyDatagram,
    /// Only one that has a message.
    WithMessages,
}

/// How the wait before the next retransmission grows. Seconds in 32-bit floats, as the original has them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backoff {
    /// The rule.
    pub mode: BackoffMode,
    /// The first wait.
    pub first: f32,
    /// What the rule adds.
    pub step: f32,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { mode: BackoffMode::Linear, first: 1.0, step: 1.0 }
    }
}

impl Backoff {
    /// Returns the wait after one more send.
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

/// The three backoff modes, by their numbers 0, 1 and 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackoffMode {
    /// 0: the same wait; one of zero becomes the step.
    Fixed,
    /// 1: a step more each time; above 5 s it falls back to the step.
    Linear,
    /// 2: the excess over the first wait doubles, without a limit.
    Exponential,
}

impl BackoffMode {
    /// Returns the original's number for it.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Fixed => 0,
            Self::Linear => 1,
            Self::Exponential => 2,
        }
    }
}

/// The smallest buffer that a split message fits.
const MIN_BUFFER: usize = 128;
/// How much smaller than a datagram a message must be.
const SPLIT_MARGIN: usize = 100;
/// Where linear backoff falls back.
const LINEAR_BACKOFF_LIMIT: f32 = 5.0;
