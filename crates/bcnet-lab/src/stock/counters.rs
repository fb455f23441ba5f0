//! Counters of the stock engine.

use std::time::Duration;

/// Counters since the start of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StockCounters {
    /// Datagrams sent, including those that the engine sends to itself.
    pub datagrams: u64,
    /// Bytes of the datagrams sent.
    pub bytes: u64,
    /// Datagrams read from the socket.
    pub received: u64,
    /// ACKs sent.
    pub acks_sent: u64,
    /// Bytes of the ACKs sent.
    pub ack_bytes: u64,
    /// Received ACKs that removed a message from the retransmission queue.
    pub acks_useful: u64,
    /// Received ACKs that removed no message.
    pub acks_useless: u64,
    /// Received ACKs that arrived while no message was unacknowledged; a subset of `acks_useless`.
    pub acks_on_empty: u64,
    /// Messages sent for the first time.
    pub first_sends: u64,
    /// Retransmissions.
    pub retransmits: u64,
    /// Keepalives queued.
    pub keepalives: u64,
    /// List entries compared.
    ///
    /// A reliable message that arrives is compared with the ACKs in the outbox. An ACK is compared with the
    /// retransmission queue. A fragment is compared with the queue of reliable game messages.
    pub comparisons: u64,
    /// Reliable messages that arrived outside the receive window. Nearly all of them are old.
    pub duplicates: u64,
    /// Received messages dropped when their turn came.
    ///
    /// No peer has the sender id, or the engine already expects a later sequence number.
    pub dropped: u64,
    /// Game payloads delivered.
    pub delivered: u64,
    /// Reliable messages dropped because of their age.
    pub given_up: u64,
    /// Receive phases that a message of an unknown type ended.
    pub aborted: u64,
    /// ACK entries removed after their last send.
    pub acks_expired: u64,
    /// Times that a duplicate message restarted the timer of an ACK entry.
    pub acks_restarted: u64,
    /// Longest lifetime of an ACK entry up to its last send.
    pub longest_ack: Duration,
    /// The most ACKs in the outbox of one peer.
    pub peak_acks: usize,
    /// The most unacknowledged messages for one peer.
    pub peak_retx: usize,
    /// The most unsent messages for one peer.
    pub peak_first: usize,
}
