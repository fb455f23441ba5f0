//! What several conversations have sent together.

use crate::{Conversation, Traffic};

/// Conversations, counted together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Totals {
    /// How many.
    pub conversations: u64,
    /// What their clients have sent, and who cannot be told to be a host.
    pub clients: Traffic,
    /// What their hosts have sent.
    pub hosts: Traffic,
}

impl Totals {
    pub(crate) const fn new() -> Self {
        Self { conversations: 0, clients: Traffic::new(), hosts: Traffic::new() }
    }

    pub(crate) fn add(&mut self, talk: &Conversation<'_>) {
        let [client, host] = talk.sides();
        self.conversations += 1;
        self.clients.add(talk.traffic(client));
        self.hosts.add(talk.traffic(host));
    }
}
