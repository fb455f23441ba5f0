//! What several conversations have sent together.

use crate::{AckLives, Conversation, Traffic};

/// Conversations, counted together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Totals {
    /// How many.
    pub conversations: u64,
    /// What their clients have sent, and who cannot be told to be a host.
    pub clients: Traffic,
    /// What their hosts have sent.
    pub hosts: Traffic,
    /// How often clients and hosts sent the ACKs that they have dropped, and how long they kept them.
    pub dropped_acks: [AckLives; 2],
    /// The same of ACKs that they had not dropped at the end.
    pub kept_acks: [AckLives; 2],
}

impl Totals {
    pub(crate) const fn new() -> Self {
        Self {
            conversations: 0,
            clients: Traffic::new(),
            hosts: Traffic::new(),
            dropped_acks: [AckLives::new(); 2],
            kept_acks: [AckLives::new(); 2],
        }
    }

    pub(crate) fn add(&mut self, talk: &Conversation<'_>) {
        let [client, host] = talk.sides();
        self.conversations += 1;
        self.clients.add(talk.traffic(client));
        self.hosts.add(talk.traffic(host));
        for (place, side) in [client, host].into_iter().enumerate() {
            if let (Some(dropped), Some(kept)) =
                (self.dropped_acks.get_mut(place), self.kept_acks.get_mut(place))
            {
                dropped.add(talk.ack_lives(side));
                kept.add(&talk.kept_acks(side));
            }
        }
    }
}
