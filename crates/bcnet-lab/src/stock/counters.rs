//! What the engine did, in numbers.

use std::time::Duration;

/// Counts since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StockCounters {
    /// Datagrams sent, and their bytes; those to itself included.
    pub datagrams: u64,
    /// See [`datagrams`](Self::datagrams).
    pub bytes: u64,
    /// Datagrams taken from the socket.
    pub received: u64,
    /// ACKs sent, and their bytes.
    pub acks_sent: u64,
    /// See [`acks_sent`](Self::acks_sent).
    pub ack_bytes: u64,
    /// ACKs that arrived and cleared a message.
    pub acks_useful: u64,
    /// ACKs that arrived and cleared nothing.
    pub acks_useless: u64,
    /// Of those, the ones that found nothing waiting at all.
    pub acks_on_empty: u64,
    /// Messages sent for the first time.
    pub first_sends: u64,
    /// Messages sent again.
    pub retransmits: u64,
    /// Keepalives queued.
    pub keepalives: u64,
    /// Entries that something was compared with: in the outbox for each reliable message that arrives, in the retransmit
    /// queue for each ACK, in the queue of reliable game messages for each part.
    pub comparisons: u64,
    /// Reliable messages that arrived and were outside the window: nearly always old.
    pub duplicates: u64,
    /// Messages that were thrown away because nobody has the id of their sender, or because they became old in a queue.
    pub dropped: u64,
    /// Game payloads delivered.
    pub delivered: u64,
    /// Reliable messages that were given up for their age.
    pub given_up: u64,
    /// Receive phases that an unknown type ended.
    pub aborted: u64,
    /// ACK entries that had their last send.
    pub acks_expired: u64,
    /// ACK entries that were started again by a repeated message.
    pub acks_restarted: u64,
    /// The longest that an ACK entry stayed until its last send.
    pub longest_ack: Duration,
    /// The most ACKs that were in one peer's outbox.
    pub peak_acks: usize,
    /// The most messages that waited for an ACK of one peer.
    pub peak_retx: usize,
    /// The most messages that one peer had not been sent yet.
    pub peak_first: usize,
}
