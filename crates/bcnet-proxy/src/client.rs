//! One client of a proxy: the state of its conversation and its end.

use std::net::SocketAddrV4;

use bcnet_observe::ParsedDatagram;
use bcnet_session::TokenBucket;
use bcnet_transport::Time;
use bcnet_transport::wire::{Body, Control, Message, PeerId};

use crate::healer::{HealCounters, Healer, Inbound, ProxyDirection};
use crate::output::UpstreamSource;

/// One client and the state of its conversation.
#[derive(Debug)]
pub(crate) struct ProxyClient {
    pub(crate) address: SocketAddrV4,
    pub(crate) source: UpstreamSource,
    pub(crate) player: bool,
    pub(crate) healer: Option<Box<Healer>>,
    pub(crate) last_active: Time,
    /// The sender byte of its datagrams, which is never encrypted.
    pub(crate) id: PeerId,
    /// Time of the client's last datagram since a disconnect or boot passed; `None` if none has passed.
    pub(crate) left_at: Option<Time>,
    /// True if the server has sent it anything.
    pub(crate) answered: bool,
    /// The id that the server assigned.
    pub(crate) assigned: Option<PeerId>,
    /// True if the client has used that id, so that it must have received it.
    pub(crate) verified: bool,
    /// Bytes that may be sent to it while unverified, and the part of them that its own bytes cover.
    pub(crate) unverified_bytes_left: usize,
    pub(crate) prepaid_bytes: usize,
    pub(crate) created: Time,
    pub(crate) rate_limiter: TokenBucket,
}

impl ProxyClient {
    pub(crate) fn healed(&self, direction: ProxyDirection) -> HealCounters {
        self.healer.as_ref().map(|healer| healer.healed(direction)).unwrap_or_default()
    }

    /// Updates the byte limits of an unverified player with its datagram. Returns whether the datagram verifies it.
    ///
    /// The datagram verifies the player if it has the id that the server assigned.
    pub(crate) fn verify(&mut self, inbound: Inbound<'_>) -> bool {
        if self.verified || !self.player {
            return false;
        }
        self.unverified_bytes_left = MAX_AMPLIFICATION * inbound.wire.len();
        self.prepaid_bytes = self.unverified_bytes_left.min(self.prepaid_bytes + inbound.wire.len());
        self.verified = self.assigned.is_some() && inbound.wire.first().copied().map(PeerId) == self.assigned;
        self.verified
    }

    /// Records a forwarded datagram. Returns whether it ends the conversation.
    pub(crate) fn on_datagram(&mut self, direction: ProxyDirection, inbound: Inbound<'_>, now: Time) -> bool {
        match direction {
            ProxyDirection::ToServer => {
                self.last_active = now;
                if let Some(sender) = inbound.wire.first() {
                    self.id = PeerId(*sender);
                    // The client is gone only when it is silent: it repeats a disconnect that was lost between proxy
                    // and server.
                    self.left_at = self.left_at.filter(|_| !inbound.is_connect_request()).map(|_| now);
                }
            }
            ProxyDirection::ToClient => {
                self.answered = true;
                // The server's datagrams show that the client is there only after the client is verified.
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

/// Returns the id that the server assigns with this datagram.
pub(crate) fn assigned_id(inbound: Inbound<'_>) -> Option<PeerId> {
    let messages = inbound.content.datagram().map(ParsedDatagram::messages).unwrap_or_default();
    messages.iter().find_map(|message| match message {
        Message::Control(Control { body: Body::ConnectReply { assigned }, .. }) => Some(*assigned),
        Message::Control(_) | Message::Ack(_) | Message::Keepalive | Message::Data(_) => None,
    })
}

/// Returns whether the client `own` leaves with this datagram, or is removed (T-59). Datagrams about other clients
/// do not count.
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

/// Limit of bytes sent to an unverified client, as a multiple of its last datagram.
const MAX_AMPLIFICATION: usize = 3;
