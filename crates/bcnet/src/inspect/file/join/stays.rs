//! Which conversation a datagram belongs to, in one capture.
//!
//! A stay of a player begins with a connect request of its own and has an id of its own. Addresses alone
//! do not tell stays apart: a player comes back from the same port, and a proxy gives an address to one after the other.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4};

use bcnet_observe::Parsed;
use bcnet_transport::wire::{Body, Message, PeerId, Role};

use super::super::role;

/// The place of a stay in the capture's list.
pub(super) type StayId = u32;
/// Two addresses that talk to each other, in the order in which they were seen.
pub(super) type LinkId = u32;

/// One stay of a player, as far as a capture shows it.
#[derive(Debug, Clone)]
pub(super) struct Stay {
    pub(super) link: LinkId,
    pub(super) client: SocketAddrV4,
    pub(super) peer: Option<PeerId>,
    /// Nonce and address of its connect request.
    pub(super) request: Option<(u32, Ipv4Addr)>,
    /// How many messages of it were seen that can be known again.
    pub(super) messages: u64,
}

impl Stay {
    /// Returns whether both can be the same, seen at two places. What one of them does not show proves nothing.
    pub(super) fn may_be(&self, other: &Self) -> bool {
        let peers = self.peer.zip(other.peer).is_none_or(|(one, other)| one == other);
        peers && self.request.zip(other.request).is_none_or(|(one, other)| one == other)
    }

    /// Returns whether both begin with the same connect request.
    pub(super) fn begins_as(&self, other: &Self) -> bool {
        self.request.is_some() && self.request == other.request
    }
}

/// The stays of a capture.
#[derive(Debug, Default)]
pub(super) struct Stays {
    all: Vec<Stay>,
    links: HashMap<[SocketAddrV4; 2], Link>,
    by_peer: HashMap<(LinkId, PeerId), StayId>,
    /// Datagrams that found no place.
    pub(super) left_out: u64,
}

/// For a while after a new request the host still talks to the stay before it.
#[derive(Debug, Clone, Copy)]
struct Link {
    id: LinkId,
    client: SocketAddrV4,
    /// The stay of what the client sends, if its id does not tell.
    asking: StayId,
    /// The stay of what the host sends.
    answered: StayId,
}

impl Stays {
    /// Returns the stay of a datagram. None if there are too many.
    pub(super) fn of(
        &mut self,
        from: SocketAddrV4,
        to: SocketAddrV4,
        datagram: &Parsed<'_>,
    ) -> Option<StayId> {
        let sender = role(datagram.sender());
        let addresses @ [client, _] = if sender == Role::Client { [from, to] } else { [to, from] };
        let stay = self.link(addresses, client).and_then(|mut link| {
            let stay = match sender {
                Role::Client => self.of_client(&mut link, datagram),
                Role::Host => self.of_host(&mut link, datagram),
            };
            self.links.insert(addresses, link);
            stay
        });
        self.left_out += u64::from(stay.is_none());
        stay
    }

    /// A message of a stay was seen: the number of those before it.
    pub(super) fn count(&mut self, stay: StayId) -> u64 {
        let Some(stay) = self.all.get_mut(stay as usize) else { return u64::MAX };
        stay.messages += 1;
        stay.messages - 1
    }

    pub(super) fn into_all(self) -> Vec<Stay> {
        self.all
    }

    fn link(&mut self, addresses: [SocketAddrV4; 2], client: SocketAddrV4) -> Option<Link> {
        if let Some(link) = self.links.get(&addresses) {
            return Some(*link);
        }
        let id = LinkId::try_from(self.links.len()).ok()?;
        let stay = self.begin(id, client)?;
        Some(Link { id, client, asking: stay, answered: stay })
    }

    fn begin(&mut self, link: LinkId, client: SocketAddrV4) -> Option<StayId> {
        if self.all.len() >= MAX_STAYS {
            return None;
        }
        self.all.push(Stay { link, client, peer: None, request: None, messages: 0 });
        StayId::try_from(self.all.len() - 1).ok()
    }

    fn of_client(&mut self, link: &mut Link, datagram: &Parsed<'_>) -> Option<StayId> {
        let request = datagram.messages().iter().find_map(|message| match message {
            Message::Control(control) => match control.body {
                Body::ConnectRequest { address, nonce, .. } => Some((nonce, address)),
                Body::ConnectReply { .. }
                | Body::Identity { .. }
                | Body::Boot { .. }
                | Body::Disconnect { .. } => None,
            },
            Message::Ack(_) | Message::Keepalive | Message::Data(_) => None,
        });
        if let Some(request) = request {
            return self.ask(link, request);
        }
        let sender = datagram.sender();
        if sender == PeerId::UNASSIGNED {
            return Some(link.asking);
        }
        let stay = self.with_peer(link, sender)?;
        // Whoever uses its id has got the reply, even if the capture has not.
        if stay > link.answered {
            (link.asking, link.answered) = (stay, stay);
        }
        Some(stay)
    }

    fn ask(&mut self, link: &mut Link, request: (u32, Ipv4Addr)) -> Option<StayId> {
        let current = self.all.get_mut(link.asking as usize)?;
        if current.request.is_none() && current.peer.is_none() {
            current.request = Some(request);
        }
        if current.request != Some(request) {
            link.asking = self.begin(link.id, link.client)?;
            self.all.get_mut(link.asking as usize)?.request = Some(request);
        }
        Some(link.asking)
    }

    fn of_host(&mut self, link: &mut Link, datagram: &Parsed<'_>) -> Option<StayId> {
        let assigned = datagram.messages().iter().find_map(|message| match message {
            Message::Control(control) => match control.body {
                Body::ConnectReply { assigned } => Some(assigned),
                Body::ConnectRequest { .. }
                | Body::Identity { .. }
                | Body::Boot { .. }
                | Body::Disconnect { .. } => None,
            },
            Message::Ack(_) | Message::Keepalive | Message::Data(_) => None,
        });
        if let Some(assigned) = assigned {
            // An id may be one that another stay had before.
            let is_asking = self.all.get(link.asking as usize).is_some_and(|stay| stay.peer.is_none());
            link.answered = if is_asking {
                self.name(link, link.asking, assigned)?
            } else {
                self.with_peer(link, assigned)?
            };
            link.asking = link.asking.max(link.answered);
        }
        Some(link.answered)
    }

    /// Returns the stay with this id: one that is known by it, else the latest if it has none, else a new one.
    fn with_peer(&mut self, link: &Link, peer: PeerId) -> Option<StayId> {
        if let Some(stay) = self.by_peer.get(&(link.id, peer)) {
            return Some(*stay);
        }
        let is_free = self.all.get(link.asking as usize).is_some_and(|stay| stay.peer.is_none());
        let stay = if is_free { link.asking } else { self.begin(link.id, link.client)? };
        self.name(link, stay, peer)
    }

    fn name(&mut self, link: &Link, stay: StayId, peer: PeerId) -> Option<StayId> {
        self.all.get_mut(stay as usize)?.peer = Some(peer);
        self.by_peer.insert((link.id, peer), stay);
        Some(stay)
    }
}

/// As many are known of a capture.
pub(super) const MAX_STAYS: usize = 1 << 16;
