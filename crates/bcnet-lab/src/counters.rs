//! Counters of a node in a run, and statistics of its queues. The values of several nodes can be added.

use std::ops::AddAssign;
use std::time::Duration;

use bcnet_transport::Time;

use crate::stock::QueueLengths;

/// Counters of one node, or the sum over all nodes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RunCounters {
    /// Datagrams sent.
    pub datagrams: u64,
    /// Bytes of the datagrams sent.
    pub bytes: u64,
    /// ACKs sent.
    pub acks: u64,
    /// Bytes of the ACKs sent.
    pub ack_bytes: u64,
    /// Bytes of ACKs received.
    pub ack_bytes_taken: u64,
    /// The most bytes of ACKs in one datagram.
    pub max_ack_bytes: u64,
    /// Datagrams whose ACKs left no space for the largest message.
    pub crowded: u64,
    /// The most ACKs in one datagram.
    pub max_acks: u64,
    /// The most messages in one datagram.
    pub max_messages: u64,
    /// Bytes of retransmissions.
    pub retransmitted_bytes: u64,
    /// Received ACKs that removed a message from the retransmission queue.
    pub useful_acks: u64,
    /// Received ACKs that removed no message.
    pub useless_acks: u64,
    /// Received ACKs that arrived while no message was unacknowledged; a subset of `useless_acks`.
    pub empty_acks: u64,
    /// Reliable messages and fragments retransmitted.
    pub retransmits: u64,
    /// Keepalives sent.
    pub keepalives: u64,
    /// Longest lifetime of an ACK in an outbox. If the engine does not measure it: the longest time with a non-empty outbox.
    pub longest_ack: Duration,
    /// List entries compared, if the engine searches lists.
    pub comparisons: Option<u64>,
    /// Payloads that the engine accepted for sending.
    pub payloads: u64,
    /// Payloads that the engine refused.
    pub refused: u64,
    /// Payloads that the engine delivered.
    pub delivered: u64,
    /// Payloads from this node, sent reliably, that no node delivered.
    pub missing: u64,
    /// Payloads that the engine delivered with changed bytes.
    pub garbled: u64,
    /// Peers that the engine removed after a timeout.
    pub silent: u64,
    /// 1 if the modelled program crashed.
    pub crashed: u64,
    /// Statistics of the queue lengths.
    pub queues: QueueStatistics,
}

impl AddAssign for RunCounters {
    fn add_assign(&mut self, other: Self) {
        self.datagrams += other.datagrams;
        self.bytes += other.bytes;
        self.acks += other.acks;
        self.ack_bytes += other.ack_bytes;
        self.ack_bytes_taken += other.ack_bytes_taken;
        self.longest_ack = self.longest_ack.max(other.longest_ack);
        self.max_ack_bytes = self.max_ack_bytes.max(other.max_ack_bytes);
        self.crowded += other.crowded;
        self.max_acks = self.max_acks.max(other.max_acks);
        self.max_messages = self.max_messages.max(other.max_messages);
        self.retransmitted_bytes += other.retransmitted_bytes;
        self.useful_acks += other.useful_acks;
        self.useless_acks += other.useless_acks;
        self.empty_acks += other.empty_acks;
        self.retransmits += other.retransmits;
        self.keepalives += other.keepalives;
        self.comparisons = match (self.comparisons, other.comparisons) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        };
        self.payloads += other.payloads;
        self.refused += other.refused;
        self.delivered += other.delivered;
        self.missing += other.missing;
        self.garbled += other.garbled;
        self.silent += other.silent;
        self.crashed += other.crashed;
        self.queues += other.queues;
    }
}

/// Queue lengths per peer: peak, and mean over time.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct QueueStatistics {
    /// The most ACKs in one outbox.
    pub peak_acks: usize,
    /// The most unacknowledged messages.
    pub peak_retx: usize,
    /// The most unsent messages.
    pub peak_first: usize,
    /// Queue lengths summed over time, in entries × microseconds.
    ack_micros: u128,
    retx_micros: u128,
    first_micros: u128,
    /// Observed time in microseconds, summed over all peers.
    observed_micros: u128,
}

impl QueueStatistics {
    /// Returns the mean number of ACKs in one outbox.
    #[must_use]
    pub fn mean_acks(&self) -> f64 {
        if self.observed_micros == 0 { 0.0 } else { self.ack_micros as f64 / self.observed_micros as f64 }
    }

    /// Returns the mean number of unacknowledged messages for one peer.
    #[must_use]
    pub fn mean_retx(&self) -> f64 {
        if self.observed_micros == 0 { 0.0 } else { self.retx_micros as f64 / self.observed_micros as f64 }
    }

    /// Returns the mean number of unsent messages for one peer.
    #[must_use]
    pub fn mean_first(&self) -> f64 {
        if self.observed_micros == 0 { 0.0 } else { self.first_micros as f64 / self.observed_micros as f64 }
    }

    pub(crate) fn add_interval(&mut self, length: &QueueLengthInterval, until: Time) {
        let time = until.since(length.since).as_micros();
        let QueueLengths { acks, retx, first } = length.lengths;
        self.ack_micros += acks as u128 * time;
        self.retx_micros += retx as u128 * time;
        self.first_micros += first as u128 * time;
        self.observed_micros += time;
    }
}

impl AddAssign for QueueStatistics {
    fn add_assign(&mut self, other: Self) {
        self.peak_acks = self.peak_acks.max(other.peak_acks);
        self.peak_retx = self.peak_retx.max(other.peak_retx);
        self.peak_first = self.peak_first.max(other.peak_first);
        self.ack_micros += other.ack_micros;
        self.retx_micros += other.retx_micros;
        self.first_micros += other.first_micros;
        self.observed_micros += other.observed_micros;
    }
}

/// The current queue lengths for one peer, and the time of their last change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueLengthInterval {
    pub(crate) since: Time,
    pub(crate) lengths: QueueLengths,
    /// Time at which the first ACK was added to the empty outbox; `None` while the outbox is empty.
    pub(crate) acks_pending_since: Option<Time>,
}
