//! One client of a proxy: what is known of it, and when it comes and goes.

use std::net::SocketAddrV4;

use bcnet_observe::Parsed;
use bcnet_session::Bucket;
use bcnet_transport::Time;
use bcnet_transport::wire::{Body, Control, Message, PeerId};

use crate::heal::{Direction, Healed, Healer, Inbound};
use crate::output::Source;

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
    /// The id that the server gave it.
    pub(crate) assigned: Option<PeerId>,
    /// Whether it has used that id, so that it must have heard of it.
    pub(crate) proved: bool,
    /// Bytes that it may be sent before that, and those of them that it has paid for with its own.
    pub(crate) room: usize,
    pub(crate) credit: usize,
    pub(crate) since: Time,
    pub(crate) bucket: Bucket,
}

impl Client {
    pub(crate) fn healed(&self, direction: Direction) -> Healed {
        self.healer.as_ref().map(|healer| healer.healed(direction)).unwrap_or_default()
    }

    /// Returns whether a player proves with this datagram that it hears the server.
    pub(crate) fn proves_itself(&mut self, inbound: Inbound<'_>) -> bool {
        if self.proved || !self.player {
            return false;
        }
        self.room = MAX_FACTOR * inbound.wire.len();
        self.credit = self.room.min(self.credit + inbound.wire.len());
        self.proved = self.assigned.is_some() && inbound.wire.first().copied().map(PeerId) == self.assigned;
        self.proved
    }

    /// A datagram passes. Returns whether it is the one that ends the conversation.
    pub(crate) fn note(&mut self, direction: Direction, inbound: Inbound<'_>, now: Time) -> bool {
        match direction {
            Direction::Up => {
                self.heard = now;
                if let Some(sender) = inbound.wire.first() {
                    self.id = PeerId(*sender);
                    // It is gone only when it falls silent: a goodbye that is lost behind the proxy comes again.
                    self.parted = self.parted.filter(|_| !inbound.asks_to_join()).map(|_| now);
                }
            }
            Direction::Down => {
                self.answered = true;
                // What the server says shows that the client is there only once it has shown it itself.
                if self.proved || !self.player {
                    self.heard = now;
                } else {
                    self.assigned = assigned(inbound).or(self.assigned);
                }
            }
        }
        let parts = self.player && self.parted.is_none() && says_goodbye(self.id, direction, inbound);
        if parts {
            self.parted = Some(now);
        }
        parts
    }
}

/// Returns the id that the server gives a client with this datagram.
pub(crate) fn assigned(inbound: Inbound<'_>) -> Option<PeerId> {
    let messages = inbound.content.datagram().map(Parsed::messages).unwrap_or_default();
    messages.iter().find_map(|message| match message {
        Message::Control(Control { body: Body::ConnectReply { assigned }, .. }) => Some(*assigned),
        Message::Control(_) | Message::Ack(_) | Message::Keepalive | Message::Data(_) => None,
    })
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

/// How many times the bytes of its last datagram a client is sent that has proved nothing.
const MAX_FACTOR: usize = 3;
