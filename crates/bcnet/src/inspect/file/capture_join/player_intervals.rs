//! Which conversation a datagram belongs to, in one capture.
//!
//! A stay of a player begins with a connect request of its own and has an id of its own. Addresses alone
//! do not tell stays apart: a player comes back from the same port, and a proxy gives an address to one after the other.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4};

use bcnet_observe::ParsedDatagram;
use bcnet_transport::wire::{Body, Message, PeerId, Role};

use super::super::sender_role;

/// The place of a stay in the capture's list.
pub(super) type IntervalId = u32;
/// Two addresses that talk to each other, in the order in which they were seen.
pub(super) type AddressPairId = u32;

/// One stay of a player, as far as a capture shows it.
#[derive(Debug, Clone)]
pub(super) struct PlayerInterval {
    pub(super) address_pair: AddressPairId,
    pub(super) client: SocketAddrV4,
    pub(super) peer: Option<PeerId>,
    /// Nonce and address of its connect request.
    pub(super) connect_request: Option<(u32, Ipv4Addr)>,
    /// How many messages of it were seen that can be known again.
    pub(super) messages: u64,
}

impl PlayerInterval {
    /// Returns whether both can be the same, seen at two places. What one of them does not show proves nothing.
    pub(super) fn may_equal(&self, other: &Self) -> bool {
        let peers = self.peer.zip(other.peer).is_none_or(|(one, other)| one == other);
        peers && self.connect_request.zip(other.connect_request).is_none_or(|(one, other)| one == other)
    }

    /// Returns whether both begin with the same connect request.
    pub(super) fn has_same_request(&self, other: &Self) -> bool {
        self.connect_request.is_some() && self.connect_request == other.connect_request
    }
}

/// The stays of a capture.
#[derive(Debug, Default)]
pub(super) struct PlayerIntervals {
    all: Vec<PlayerInterval>,
    address_pairs: HashMap<[SocketAddrV4; 2], AddressPair>,
    by_peer: HashMap<(AddressPairId, PeerId), IntervalId>,
    /// Datagrams that found no place.
    pub(super) omitted_datagrams: u64,
}

/// For a while after a new request the host still talks to the stay before it.
#[derive(Debug, Clone, Copy)]
struct AddressPair {
    id: AddressPairId,
    client: SocketAddrV4,
    /// The stay of what the client sends, if its id does not tell.
    requesting: IntervalId,
    /// The stay of what the host sends.
    answered: IntervalId,
}

impl PlayerIntervals {
    /// Returns the stay of a datagram. None if there are too many.
    pub(super) fn interval_of(
        &mut self,
        from: SocketAddrV4,
        to: SocketAddrV4,
        datagram: &ParsedDatagram<'_>,
    ) -> Option<IntervalId> {
        let sender = sender_role(datagram.sender());
        let addresses @ [client, _] = if sender == Role::Client { [from, to] } else { [to, from] };
        let stay = self.address_pair(addresses, client).and_then(|mut link| {
            let stay = match sender {
                Role::Client => self.client_interval(&mut link, datagram),
                Role::Host => self.host_interval(&mut link, datagram),
            };
            self.address_pairs.insert(addresses, link);
            stay
        });
        self.omitted_datagrams += u64::from(stay.is_none());
        stay
    }

    /// A message of a stay was seen: the number of those before it.
    pub(super) fn count_message(&mut self, stay: IntervalId) -> u64 {
        let Some(stay) = self.all.get_mut(stay as usize) else { return u64::MAX };
        stay.messages += 1;
        stay.messages - 1
    }

    pub(super) fn into_all(self) -> Vec<PlayerInterval> {
        self.all
    }

    fn address_pair(&mut self, addresses: [SocketAddrV4; 2], client: SocketAddrV4) -> Option<AddressPair> {
        if let Some(link) = self.address_pairs.get(&addresses) {
            return Some(*link);
        }
        let id = AddressPairId::try_from(self.address_pairs.len()).ok()?;
        let stay = self.start_interval(id, client)?;
        Some(AddressPair { id, client, requesting: stay, answered: stay })
    }

    fn start_interval(&mut self, link: AddressPairId, client: SocketAddrV4) -> Option<IntervalId> {
        if self.all.len() >= MAX_INTERVALS {
            return None;
        }
        self.all.push(PlayerInterval {
            address_pair: link,
            client,
            peer: None,
            connect_request: None,
            messages: 0,
        });
        IntervalId::try_from(self.all.len() - 1).ok()
    }

    fn client_interval(
        &mut self,
        link: &mut AddressPair,
        datagram: &ParsedDatagram<'_>,
    ) -> Option<IntervalId> {
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
            return self.on_connect_request(link, request);
        }
        let sender = datagram.sender();
        if sender == PeerId::UNASSIGNED {
            return Some(link.requesting);
        }
        let stay = self.interval_with_peer(link, sender)?;
        // Whoever uses its id has got the reply, even if the capture has not.
        if stay > link.answered {
            (link.requesting, link.answered) = (stay, stay);
        }
        Some(stay)
    }

    fn on_connect_request(&mut self, link: &mut AddressPair, request: (u32, Ipv4Addr)) -> Option<IntervalId> {
        let current = self.all.get_mut(link.requesting as usize)?;
        if current.connect_request.is_none() && current.peer.is_none() {
            current.connect_request = Some(request);
        }
        if current.connect_request != Some(request) {
            link.requesting = self.start_interval(link.id, link.client)?;
            self.all.get_mut(link.requesting as usize)?.connect_request = Some(request);
        }
        Some(link.requesting)
    }

    fn host_interval(&mut self, link: &mut AddressPair, datagram: &ParsedDatagram<'_>) -> Option<IntervalId> {
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
            let is_asking = self.all.get(link.requesting as usize).is_some_and(|stay| stay.peer.is_none());
            link.answered = if is_asking {
                self.set_peer(link, link.requesting, assigned)?
            } else {
                self.interval_with_peer(link, assigned)?
            };
            link.requesting = link.requesting.max(link.answered);
        }
        Some(link.answered)
    }

    /// Returns the stay with this id: one that is known by it, else the latest if it has none, else a new one.
    fn interval_with_peer(&mut self, link: &AddressPair, peer: PeerId) -> Option<IntervalId> {
        if let Some(stay) = self.by_peer.get(&(link.id, peer)) {
            return Some(*stay);
        }
        let is_free = self.all.get(link.requesting as usize).is_some_and(|stay| stay.peer.is_none());
        let stay = if is_free { link.requesting } else { self.start_interval(link.id, link.client)? };
        self.set_peer(link, stay, peer)
    }

    fn set_peer(&mut self, link: &AddressPair, stay: IntervalId, peer: PeerId) -> Option<IntervalId> {
        self.all.get_mut(stay as usize)?.peer = Some(peer);
        self.by_peer.insert((link.id, peer), stay);
        Some(stay)
    }
}

/// As many are known of a capture.
pub(super) const MAX_INTERVALS: usize = 1 << 16;
