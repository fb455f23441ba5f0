//! Assigns each datagram of a capture to an interval: the time from a player's joining to its leaving.
//!
//! An interval begins with its own connect request and has its own peer id. Addresses alone do not identify it: a
//! player may rejoin from the same port, and a proxy reuses an address for different players.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4};

use bcnet_observe::ParsedDatagram;
use bcnet_transport::wire::{Body, Message, PeerId, Role};

use super::super::sender_role;

/// The index of an interval in the list of the capture.
pub(super) type IntervalId = u32;
/// The number of an [`AddressPair`], in the order in which the pairs appear in the capture.
pub(super) type AddressPairId = u32;

/// One player from joining to leaving, as far as a capture shows it.
#[derive(Debug, Clone)]
pub(super) struct PlayerInterval {
    pub(super) address_pair: AddressPairId,
    pub(super) client: SocketAddrV4,
    pub(super) peer: Option<PeerId>,
    /// Nonce and address of the connect request.
    pub(super) connect_request: Option<(u32, Ipv4Addr)>,
    /// The number of messages that can be matched.
    pub(super) messages: u64,
}

impl PlayerInterval {
    /// Returns whether both may be the same interval, seen at two ends. Missing data does not exclude it.
    pub(super) fn may_equal(&self, other: &Self) -> bool {
        let peers = self.peer.zip(other.peer).is_none_or(|(one, other)| one == other);
        peers && self.connect_request.zip(other.connect_request).is_none_or(|(one, other)| one == other)
    }

    /// Returns whether both begin with the same connect request.
    pub(super) fn has_same_request(&self, other: &Self) -> bool {
        self.connect_request.is_some() && self.connect_request == other.connect_request
    }
}

/// The intervals of a capture.
#[derive(Debug, Default)]
pub(super) struct PlayerIntervals {
    all: Vec<PlayerInterval>,
    address_pairs: HashMap<[SocketAddrV4; 2], AddressPair>,
    by_peer: HashMap<(AddressPairId, PeerId), IntervalId>,
    /// Datagrams without an interval, because [`MAX_INTERVALS`] was reached.
    pub(super) omitted_datagrams: u64,
}

/// Two addresses that communicate.
///
/// For a while after a new connect request, the host still sends to the previous interval. So each direction has its
/// own current interval.
#[derive(Debug, Clone, Copy)]
struct AddressPair {
    id: AddressPairId,
    client: SocketAddrV4,
    /// The interval of datagrams from the client, unless their peer id names another.
    requesting: IntervalId,
    /// The interval of datagrams from the host.
    answered: IntervalId,
}

impl PlayerIntervals {
    /// Returns the interval of a datagram. Returns `None` if it needs a new one beyond [`MAX_INTERVALS`].
    pub(super) fn interval_of(
        &mut self,
        from: SocketAddrV4,
        to: SocketAddrV4,
        datagram: &ParsedDatagram<'_>,
    ) -> Option<IntervalId> {
        let sender = sender_role(datagram.sender());
        let addresses @ [client, _] = if sender == Role::Client { [from, to] } else { [to, from] };
        let interval = self.address_pair(addresses, client).and_then(|mut address_pair| {
            let interval = match sender {
                Role::Client => self.client_interval(&mut address_pair, datagram),
                Role::Host => self.host_interval(&mut address_pair, datagram),
            };
            self.address_pairs.insert(addresses, address_pair);
            interval
        });
        self.omitted_datagrams += u64::from(interval.is_none());
        interval
    }

    /// Counts a message of an interval. Returns the number of messages before it.
    pub(super) fn count_message(&mut self, interval: IntervalId) -> u64 {
        let Some(interval) = self.all.get_mut(interval as usize) else { return u64::MAX };
        interval.messages += 1;
        interval.messages - 1
    }

    pub(super) fn into_all(self) -> Vec<PlayerInterval> {
        self.all
    }

    fn address_pair(&mut self, addresses: [SocketAddrV4; 2], client: SocketAddrV4) -> Option<AddressPair> {
        if let Some(address_pair) = self.address_pairs.get(&addresses) {
            return Some(*address_pair);
        }
        let id = AddressPairId::try_from(self.address_pairs.len()).ok()?;
        let interval = self.start_interval(id, client)?;
        Some(AddressPair { id, client, requesting: interval, answered: interval })
    }

    fn start_interval(&mut self, address_pair: AddressPairId, client: SocketAddrV4) -> Option<IntervalId> {
        if self.all.len() >= MAX_INTERVALS {
            return None;
        }
        self.all.push(PlayerInterval {
            address_pair,
            client,
            peer: None,
            connect_request: None,
            messages: 0,
        });
        IntervalId::try_from(self.all.len() - 1).ok()
    }

    fn client_interval(
        &mut self,
        address_pair: &mut AddressPair,
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
            return self.on_connect_request(address_pair, request);
        }
        let sender = datagram.sender();
        if sender == PeerId::UNASSIGNED {
            return Some(address_pair.requesting);
        }
        let interval = self.interval_with_peer(address_pair, sender)?;
        // A client that uses its id has received the connect reply, even if the capture does not contain it.
        if interval > address_pair.answered {
            (address_pair.requesting, address_pair.answered) = (interval, interval);
        }
        Some(interval)
    }

    fn on_connect_request(
        &mut self,
        address_pair: &mut AddressPair,
        request: (u32, Ipv4Addr),
    ) -> Option<IntervalId> {
        let current = self.all.get_mut(address_pair.requesting as usize)?;
        if current.connect_request.is_none() && current.peer.is_none() {
            current.connect_request = Some(request);
        }
        if current.connect_request != Some(request) {
            address_pair.requesting = self.start_interval(address_pair.id, address_pair.client)?;
            self.all.get_mut(address_pair.requesting as usize)?.connect_request = Some(request);
        }
        Some(address_pair.requesting)
    }

    fn host_interval(
        &mut self,
        address_pair: &mut AddressPair,
        datagram: &ParsedDatagram<'_>,
    ) -> Option<IntervalId> {
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
            // The id may have belonged to an earlier interval.
            let is_asking = self
                .all
                .get(address_pair.requesting as usize)
                .is_some_and(|interval| interval.peer.is_none());
            address_pair.answered = if is_asking {
                self.set_peer(address_pair, address_pair.requesting, assigned)?
            } else {
                self.interval_with_peer(address_pair, assigned)?
            };
            address_pair.requesting = address_pair.requesting.max(address_pair.answered);
        }
        Some(address_pair.answered)
    }

    /// Returns the interval with this peer id.
    ///
    /// If there is none, the requesting interval gets the id. If that one already has an id, a new interval starts.
    fn interval_with_peer(&mut self, address_pair: &AddressPair, peer: PeerId) -> Option<IntervalId> {
        if let Some(interval) = self.by_peer.get(&(address_pair.id, peer)) {
            return Some(*interval);
        }
        let is_free =
            self.all.get(address_pair.requesting as usize).is_some_and(|interval| interval.peer.is_none());
        let interval = if is_free {
            address_pair.requesting
        } else {
            self.start_interval(address_pair.id, address_pair.client)?
        };
        self.set_peer(address_pair, interval, peer)
    }

    fn set_peer(
        &mut self,
        address_pair: &AddressPair,
        interval: IntervalId,
        peer: PeerId,
    ) -> Option<IntervalId> {
        self.all.get_mut(interval as usize)?.peer = Some(peer);
        self.by_peer.insert((address_pair.id, peer), interval);
        Some(interval)
    }
}

/// The most intervals of a capture.
pub(super) const MAX_INTERVALS: usize = 1 << 16;
