//! A peer entry and the sorted table of them.

use std::collections::VecDeque;
use std::net::Ipv4Addr;

use bcnet_transport::wire::{Channel, Kind, MessageId, PeerId};

use super::message::{Message, Timer};

/// An ACK in the outbox.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owed {
    pub(super) id: MessageId,
    pub(super) timer: Timer,
    /// Since when it is there.
    pub(super) since: f32,
}

/// What is known of and queued for one peer.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) id: PeerId,
    /// Where its datagrams go; the port is looked up.
    pub(super) address: Ipv4Addr,
    /// Its address as it sees itself.
    pub(super) own_view: Ipv4Addr,
    pub(super) nonce: u32,
    /// It waits for the session to let it in.
    pub(super) asks: bool,
    /// UTF-16LE.
    pub(super) name: Vec<u8>,
    /// The numbers that are next to be sent and to be received, by channel.
    pub(super) sending: [u16; 2],
    pub(super) expected: [u16; 2],
    pub(super) heard: f32,
    pub(super) queued: f32,
    /// When it was deleted; it lingers from then on.
    pub(super) deleted: Option<f32>,
    pub(super) first: VecDeque<Message>,
    pub(super) retx: Vec<Message>,
    pub(super) acks: Vec<Owed>,
}

impl Peer {
    pub(super) fn new(id: PeerId, address: Ipv4Addr, now: f32) -> Self {
        Self {
            id,
            address,
            own_view: address,
            nonce: 0,
            asks: false,
            name: UNKNOWN.encode_utf16().flat_map(u16::to_le_bytes).collect(),
            sending: [0; 2],
            expected: [0; 2],
            heard: now,
            queued: now,
            deleted: None,
            first: VecDeque::new(),
            retx: Vec::new(),
            acks: Vec::new(),
        }
    }

    pub(super) const fn is_live(&self) -> bool {
        self.deleted.is_none()
    }

    /// Returns whether a message of this kind was not sent or not acknowledged yet.
    pub(super) fn has_pending(&self, kind: Kind) -> bool {
        self.first.iter().chain(&self.retx).any(|message| message.kind == kind)
    }
}

/// Returns which of a pair of counters a channel uses.
pub(super) const fn lane(channel: Channel) -> usize {
    match channel {
        Channel::Control => 0,
        Channel::Game => 1,
    }
}

/// All entries, sorted by id as signed bytes; entries without an id come first.
#[derive(Debug, Default)]
pub(super) struct Peers(Vec<Peer>);

impl Peers {
    pub(super) fn find(&self, id: PeerId) -> Option<usize> {
        let place = self.0.partition_point(|peer| key(peer.id) < key(id));
        self.0.get(place).filter(|peer| peer.id == id).map(|_| place)
    }

    /// Returns the first entry with this address, whoever sends from there.
    pub(super) fn find_address(&self, address: Ipv4Addr) -> Option<usize> {
        self.0.iter().position(|peer| peer.address == address)
    }

    /// Returns the sender of a message: by id; if it has none, by address, those without an id first.
    pub(super) fn sender_of(&self, message: &Message) -> Option<usize> {
        if message.sender != PeerId::UNASSIGNED {
            return self.find(message.sender);
        }
        let new = |peer: &Peer| peer.id == PeerId::UNASSIGNED && peer.address == message.source;
        self.0.iter().position(new).or_else(|| self.find_address(message.source))
    }

    pub(super) fn insert(&mut self, peer: Peer) -> usize {
        let place = self.0.partition_point(|other| key(other.id) <= key(peer.id));
        self.0.insert(place, peer);
        place
    }

    pub(super) fn remove(&mut self, place: usize) -> Option<Peer> {
        (place < self.0.len()).then(|| self.0.remove(place))
    }

    /// Gives an entry another id and tells its new place.
    pub(super) fn rename(&mut self, place: usize, id: PeerId) -> usize {
        let mut peer = self.0.remove(place);
        peer.id = id;
        self.insert(peer)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn get(&self, place: usize) -> Option<&Peer> {
        self.0.get(place)
    }

    pub(super) fn get_mut(&mut self, place: usize) -> Option<&mut Peer> {
        self.0.get_mut(place)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.0.iter()
    }

    pub(super) fn retain(&mut self, keep: impl FnMut(&Peer) -> bool) {
        self.0.retain(keep);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the places of all entries for which something holds.
    pub(super) fn places(&self, holds: impl Fn(&Peer) -> bool) -> Vec<usize> {
        self.0.iter().enumerate().filter(|(_, peer)| holds(peer)).map(|(place, _)| place).collect()
    }
}

const fn key(id: PeerId) -> i8 {
    id.0.cast_signed()
}

/// The name of who has not told one.
const UNKNOWN: &str = "Unknown";
