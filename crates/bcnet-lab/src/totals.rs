//! What a node did in a run, in numbers that can be added up.

use std::ops::AddAssign;
use std::time::Duration;

use bcnet_transport::Time;

use crate::stock::Lengths;

/// What one node did, or all together.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Totals {
    /// Datagrams sent.
    pub datagrams: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// ACKs sent.
    pub acks: u64,
    /// Bytes of those.
    pub ack_bytes: u64,
    /// Bytes of ACKs that came.
    pub ack_bytes_taken: u64,
    /// The most bytes of ACKs in one datagram.
    pub max_ack_bytes: u64,
    /// Datagrams in which ACKs left no room for the largest message.
    pub crowded: u64,
    /// The most ACKs in one datagram.
    pub max_acks: u64,
    /// The most messages in one datagram.
    pub max_messages: u64,
    /// Bytes of messages that were sent again.
    pub again_bytes: u64,
    /// ACKs that came and cleared a message.
    pub useful_acks: u64,
    /// ACKs that came and cleared nothing.
    pub useless_acks: u64,
    /// Of those, the ones that found nothing waiting at all.
    pub empty_acks: u64,
    /// Reliable messages and parts sent again.
    pub retransmits: u64,
    /// Keepalives sent.
    pub keepalives: u64,
    /// How long the ACK was in an outbox that was there longest. Of an engine that does not tell, how long there was any.
    pub longest_ack: Duration,
    /// Entries of lists compared, if it searches lists.
    pub comparisons: Option<u64>,
    /// Payloads that were given to the engine and taken.
    pub payloads: u64,
    /// Payloads that it refused.
    pub refused: u64,
    /// Payloads that it delivered.
    pub delivered: u64,
    /// Payloads that it was given, reliable in the end, and that nobody delivered.
    pub missing: u64,
    /// Payloads that it delivered, but not as they were sent.
    pub garbled: u64,
    /// Peers that it lost because nothing was heard of them.
    pub silent: u64,
    /// 1 if its program would have ended.
    pub crashed: u64,
    /// The lengths of its queues.
    pub queues: QueueStatistics,
}

impl AddAssign for Totals {
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
        self.again_bytes += other.again_bytes;
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

/// How long queues were, per peer: at most, and on average over time.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct QueueStatistics {
    /// The most ACKs in one outbox.
    pub peak_acks: usize,
    /// The most messages that waited for their ACK.
    pub peak_retx: usize,
    /// The most messages that were not sent yet.
    pub peak_first: usize,
    /// Entries times microseconds.
    acks: u128,
    retx: u128,
    first: u128,
    /// Microseconds, of all peers together.
    time: u128,
}

impl QueueStatistics {
    /// Returns how many ACKs were in one outbox on average.
    #[must_use]
    pub fn mean_acks(&self) -> f64 {
        if self.time == 0 { 0.0 } else { self.acks as f64 / self.time as f64 }
    }

    /// Returns how many messages waited for the ACK of one peer on average.
    #[must_use]
    pub fn mean_retx(&self) -> f64 {
        if self.time == 0 { 0.0 } else { self.retx as f64 / self.time as f64 }
    }

    /// Returns how many messages for one peer were not sent yet on average.
    #[must_use]
    pub fn mean_first(&self) -> f64 {
        if self.time == 0 { 0.0 } else { self.first as f64 / self.time as f64 }
    }

    pub(crate) fn add(&mut self, length: &QueueLength, until: Time) {
        let time = until.since(length.since).as_micros();
        let Lengths { acks, retx, first } = length.lengths;
        self.acks += acks as u128 * time;
        self.retx += retx as u128 * time;
        self.first += first as u128 * time;
        self.time += time;
    }
}

impl AddAssign for QueueStatistics {
    fn add_assign(&mut self, other: Self) {
        self.peak_acks = self.peak_acks.max(other.peak_acks);
        self.peak_retx = self.peak_retx.max(other.peak_retx);
        self.peak_first = self.peak_first.max(other.peak_first);
        self.acks += other.acks;
        self.retx += other.retx;
        self.first += other.first;
        self.time += other.time;
    }
}

/// How long the queues for a peer are, and since when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueLength {
    pub(crate) since: Time,
    pub(crate) lengths: Lengths,
    /// Since when there are ACKs in the outbox, if there are.
    pub(crate) owing: Option<Time>,
}
