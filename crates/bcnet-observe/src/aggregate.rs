//! What several conversations have sent together.

use crate::{AckLifetimes, Conversation, SideCounters};

/// Conversations, counted together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AggregateCounters {
    /// How many.
    pub conversations: u64,
    /// What their clients have sent, and who cannot be told to be a host.
    pub clients: SideCounters,
    /// What their hosts have sent.
    pub hosts: SideCounters,
    /// How often clients and hosts sent the ACKs that they have dropped, and how long they kept them.
    pub dropped_ack_lifetimes: [AckLifetimes; 2],
    /// The same of ACKs that they had not dropped at the end.
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
