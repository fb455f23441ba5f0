//! One client of a proxy: what is known of it, and when it comes and goes.

use std::net::SocketAddrV4;

use bcnet_observe::ParsedDatagram;
use bcnet_session::TokenBucket;
use bcnet_transport::Time;
use bcnet_transport::wire::{Body, Control, Message, PeerId};

use crate::healer::{HealCounters, Healer, Inbound, ProxyDirection};
use crate::output::UpstreamSource;

/// One client, and what is known of its conversation.
#[derive(Debug)]
pub(crate) struct ProxyClient {
    pub(crate) address: SocketAddrV4,
    pub(crate) source: UpstreamSource,
    pub(crate) player: bool,
    pub(crate) healer: Option<Box<Healer>>,
    pub(crate) last_active: Time,
    /// The id in its datagrams, which is never ciphered.
    pub(crate) id: PeerId,
    /// Since when it has been silent after a goodbye passed.
    pub(crate) left_at: Option<Time>,
    /// Whether the server has said anything to it.
    pub(crate) answered: bool,
    /// The id that the server gave it.
    pub(crate) assigned: Option<PeerId>,
    /// Whether it has used that id, so that it must have heard of it.
    pub(crate) verified: bool,
    /// Bytes that it may be sent before that, and those of them that it has paid for with its own.
    pub(crate) unverified_bytes_left: usize,
    pub(crate) prepaid_bytes: usize,
    pub(crate) created: Time,
    pub(crate) rate_limiter: TokenBucket,
}

impl ProxyClient {
    pub(crate) fn healed(&self, direction: ProxyDirection) -> HealCounters {
        self.healer.as_ref().map(|healer| healer.healed(direction)).unwrap_or_default()
    }

    /// Returns whether a player proves with this datagram that it hears the server.
    pub(crate) fn verify(&mut self, inbound: Inbound<'_>) -> bool {
        if self.verified || !self.player {
            return false;
        }
        self.unverified_bytes_left = MAX_AMPLIFICATION * inbound.wire.len();
        self.prepaid_bytes = self.unverified_bytes_left.min(self.prepaid_bytes + inbound.wire.len());
        self.verified = self.assigned.is_some() && inbound.wire.first().copied().map(PeerId) == self.assigned;
        self.verified
    }

    /// A datagram passes. Returns whether it is the one that ends the conversation.
    pub(crate) fn on_datagram(&mut self, direction: ProxyDirection, inbound: Inbound<'_>, now: Time) -> bool {
        match direction {
            ProxyDirection::ToServer => {
                self.last_active = now;
                if let Some(sender) = inbound.wire.first() {
                    self.id = PeerId(*sender);
                    // It is gone only when it falls silent: a goodbye that is lost behind the proxy comes again.
                    self.left_at = self.left_at.filter(|_| !inbound.is_connect_request()).map(|_| now);
                }
            }
            ProxyDirection::ToClient => {
                self.answered = true;
                // What the server says shows that the client is there only once it has shown it itself.
                if self.verified || !self.player {
                    self.last_active = now;
                } else {
                    self.assigned = assigned_id(inbound).or(self.assigned);
                }
            }
        }
        let parts = self.player && self.left_at.is_none() && ends_session(self.id, direction, inbound);
        if parts {
            self.left_at = Some(now);
        }
        parts
    }
}

/// Returns the id that the server gives a client with this datagram.
pub(crate) fn assigned_id(inbound: Inbound<'_>) -> Option<PeerId> {
    let messages = inbound.content.datagram().map(ParsedDatagram::messages).unwrap_or_default();
    messages.iter().find_map(|message| match message {
        Message::Control(Control { body: Body::ConnectReply { assigned }, .. }) => Some(*assigned),
        Message::Control(_) | Message::Ack(_) | Message::Keepalive | Message::Data(_) => None,
    })
}

/// Returns whether the client `own` leaves with this datagram, or is told to (T-59). Others hear of it too when
/// a client goes.
fn ends_session(own: PeerId, direction: ProxyDirection, inbound: Inbound<'_>) -> bool {
    let ends =
        |who| direction == ProxyDirection::ToServer || [own, PeerId::HOST, PeerId::UNASSIGNED].contains(&who);
    let messages = inbound.content.datagram().map(ParsedDatagram::messages).unwrap_or_default();
    messages.iter().any(|message| match message {
        Message::Control(Control { body: Body::Disconnect { peer, .. }, .. }) => ends(*peer),
        Message::Control(Control { body: Body::Boot { target, .. }, .. }) => {
            direction == ProxyDirection::ToClient && ends(*target)
        }
        Message::Control(_) | Message::Ack(_) | Message::Keepalive | Message::Data(_) => false,
    })
}

/// How many times the bytes of its last datagram a client is sent that has proved nothing.
const MAX_AMPLIFICATION: usize = 3;
