//! Sums of the counters of several conversations.

use crate::{AckLifetimes, Conversation, SideCounters};

/// The summed counters of several conversations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AggregateCounters {
    /// Number of conversations.
    pub conversations: u64,
    /// Messages sent by clients, and by sides that are not known to be hosts.
    pub clients: SideCounters,
    /// Messages sent by hosts.
    pub hosts: SideCounters,
    /// Send counts and lifetimes of ACKs that were dropped: of clients, then of hosts.
    pub dropped_ack_lifetimes: [AckLifetimes; 2],
    /// Send counts and lifetimes of ACKs that were still pending at the end: of clients, then of hosts.
    pub pending_ack_lifetimes: [AckLifetimes; 2],
}

impl AggregateCounters {
    pub(crate) const fn new() -> Self {
        Self {
            conversations: 0,
            clients: SideCounters::new(),
            hosts: SideCounters::new(),
            dropped_ack_lifetimes: [AckLifetimes::new(); 2],
            pending_ack_lifetimes: [AckLifetimes::new(); 2],
        }
    }

    pub(crate) fn add(&mut self, conversation: &Conversation<'_>) {
        let [client, host] = conversation.client_and_host();
        self.conversations += 1;
        self.clients.merge(conversation.counters(client));
        self.hosts.merge(conversation.counters(host));
        for (place, side) in [client, host].into_iter().enumerate() {
            if let (Some(dropped), Some(kept)) =
                (self.dropped_ack_lifetimes.get_mut(place), self.pending_ack_lifetimes.get_mut(place))
            {
                dropped.add(conversation.dropped_ack_lifetimes(side));
                kept.add(&conversation.pending_ack_lifetimes(side));
            }
        }
    }
}
