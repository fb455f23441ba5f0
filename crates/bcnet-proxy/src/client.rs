//! One client of a proxy: what is known of it, and when it comes and goes.

use std::net::SocketAddrV4;

use bcnet_observe::Parsed;
use bcnet_session::Bucket;
use bcnet_transport::Time;
use bcnet_transport::wire::{Body, Control, Message, PeerId};

use crate::heal::{Direction, Healed, Healer, Inbound};
use crate::output::Source;

/// The clients of one address.
#[derive(Debug)]
pub(crate) struct Neighbours {
    pub(crate) count: usize,
    pub(crate) bucket: Bucket,
}

/// One client, and what is known of its conversation.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) address: SocketAddrV4,
    pub(crate) source: Source,
    pub(crate) player: bool,
    pub(crate) healer: Option<Box<Healer>>,
    pub(crate) heard: Time,
    /// The id in its datagrams, which is never ciphered.
    pub(crate) id: PeerId,
    /// Since when it has been silent after a goodbye passed.
    pub(crate) parted: Option<Time>,
    /// Whether the server has said anything to it.
    pub(crate) answered: bool,
    pub(crate) bucket: Bucket,
}

impl Client {
    pub(crate) fn healed(&self, direction: Direction) -> Healed {
        self.healer.as_ref().map(|healer| healer.healed(direction)).unwrap_or_default()
    }

    /// A datagram passes. Returns whether it is the one that ends the conversation.
    pub(crate) fn note(&mut self, direction: Direction, inbound: Inbound<'_>, now: Time) -> bool {
        self.heard = now;
        self.answered |= direction == Direction::Down;
        if let (Direction::Up, Some(sender)) = (direction, inbound.wire.first()) {
            self.id = PeerId(*sender);
            // It is gone only when it falls silent: a goodbye that is lost behind the proxy comes again.
            self.parted = self.parted.filter(|_| !inbound.asks_to_join()).map(|_| now);
        }
        let parts = self.player && self.parted.is_none() && says_goodbye(self.id, direction, inbound);
        if parts {
            self.parted = Some(now);
        }
        parts
    }
}

/// Returns whether the client `own` leaves with this datagram, or is told to (T-59). Others hear of it too when
/// a client goes.
fn says_goodbye(own: PeerId, direction: Direction, inbound: Inbound<'_>) -> bool {
    let ends = |who| direction == Direction::Up || [own, PeerId::HOST, PeerId::UNASSIGNED].contains(&who);
    let messages = inbound.content.datagram().map(Parsed::messages).unwrap_or_default();
    messages.iter().any(|message| match message {
        Message::Control(Control { body: Body::Disconnect { peer, .. }, .. }) => ends(*peer),
        Message::Control(Control { body: Body::Boot { target, .. }, .. }) => {
            direction == Direction::Down && ends(*target)
        }
        Message::Control(_) | Message::Ack(_) | Message::Keepalive | Message::Data(_) => false,
    })
}
