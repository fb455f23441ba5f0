//! The peer entries of the stock engine, in a sorted table.

use std::collections::VecDeque;
use std::net::Ipv4Addr;

use bcnet_transport::wire::{Channel, Kind, MessageId, PeerId};

use super::message::{RetransmitTimer, StockMessage};

/// An ACK in the outbox.
#[derive(Debug, Clone, Copy)]
pub(super) struct StockPendingAck {
    pub(super) id: MessageId,
    pub(super) timer: RetransmitTimer,
    /// Time when the ACK was queued.
    pub(super) queued_at: f32,
}

/// State and queues of one peer.
#[derive(Debug)]
pub(super) struct PeerEntry {
    pub(super) id: PeerId,
    /// Destination address. The port is looked up for each datagram.
    pub(super) address: Ipv4Addr,
    /// The peer's own address, as the peer reports it.
    pub(super) claimed_address: Ipv4Addr,
    pub(super) nonce: u32,
    /// `true` while the session decides about the peer's admission.
    pub(super) awaits_admission: bool,
    /// Name of the peer, UTF-16LE.
    pub(super) name: Vec<u8>,
    /// Next sequence number to send, and next one to receive, for each channel.
    pub(super) next_seq: [u16; 2],
    pub(super) expected_seq: [u16; 2],
    pub(super) last_received: f32,
    pub(super) last_queued: f32,
    /// Time when the peer was deleted. From then on it is served for the linger time.
    pub(super) deleted_at: Option<f32>,
    pub(super) unsent: VecDeque<StockMessage>,
    pub(super) retx: Vec<StockMessage>,
    pub(super) acks: Vec<StockPendingAck>,
}

impl PeerEntry {
    pub(super) fn new(id: PeerId, address: Ipv4Addr, now: f32) -> Self {
        Self {
            id,
            address,
            claimed_address: address,
            nonce: 0,
            awaits_admission: false,
            name: UNKNOWN_NAME.encode_utf16().flat_map(u16::to_le_bytes).collect(),
            next_seq: [0; 2],
            expected_seq: [0; 2],
            last_received: now,
            last_queued: now,
            deleted_at: None,
            unsent: VecDeque::new(),
            retx: Vec::new(),
            acks: Vec::new(),
        }
    }

    pub(super) const fn is_live(&self) -> bool {
        self.deleted_at.is_none()
    }

    /// Returns whether a message of this kind is unsent or unacknowledged.
    pub(super) fn has_pending(&self, kind: Kind) -> bool {
        self.unsent.iter().chain(&self.retx).any(|message| message.kind == kind)
    }
}

/// Returns the index of a channel in arrays with one entry for each channel.
pub(super) const fn channel_index(channel: Channel) -> usize {
    match channel {
        Channel::Control => 0,
        Channel::Game => 1,
    }
}

/// All entries, sorted by id as a signed byte. Entries without an id come first.
#[derive(Debug, Default)]
pub(super) struct PeerTable(Vec<PeerEntry>);

impl PeerTable {
    pub(super) fn find(&self, id: PeerId) -> Option<usize> {
        let place = self.0.partition_point(|peer| sort_key(peer.id) < sort_key(id));
        self.0.get(place).filter(|peer| peer.id == id).map(|_| place)
    }

    /// Returns the position of the first entry with this address.
    pub(super) fn find_address(&self, address: Ipv4Addr) -> Option<usize> {
        self.0.iter().position(|peer| peer.address == address)
    }

    /// Returns the sender of a message, by id. Without an id: by address, entries without an id first.
    pub(super) fn sender_of(&self, message: &StockMessage) -> Option<usize> {
        if message.sender != PeerId::UNASSIGNED {
            return self.find(message.sender);
        }
        let new = |peer: &PeerEntry| peer.id == PeerId::UNASSIGNED && peer.address == message.source;
        self.0.iter().position(new).or_else(|| self.find_address(message.source))
    }

    pub(super) fn insert(&mut self, peer: PeerEntry) -> usize {
        let place = self.0.partition_point(|other| sort_key(other.id) <= sort_key(peer.id));
        self.0.insert(place, peer);
        place
    }

    pub(super) fn remove(&mut self, place: usize) -> Option<PeerEntry> {
        (place < self.0.len()).then(|| self.0.remove(place))
    }

    /// Changes the id of an entry and returns its new position.
    pub(super) fn set_id(&mut self, place: usize, id: PeerId) -> usize {
        let mut peer = self.0.remove(place);
        peer.id = id;
        self.insert(peer)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn get(&self, place: usize) -> Option<&PeerEntry> {
        self.0.get(place)
    }

    pub(super) fn get_mut(&mut self, place: usize) -> Option<&mut PeerEntry> {
        self.0.get_mut(place)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &PeerEntry> {
        self.0.iter()
    }

    pub(super) fn retain(&mut self, keep: impl FnMut(&PeerEntry) -> bool) {
        self.0.retain(keep);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the positions of all entries that match a condition.
    pub(super) fn positions(&self, holds: impl Fn(&PeerEntry) -> bool) -> Vec<usize> {
        self.0.iter().enumerate().filter(|(_, peer)| holds(peer)).map(|(place, _)| place).collect()
    }
}

const fn sort_key(id: PeerId) -> i8 {
    id.0.cast_signed()
}

/// Name of a peer that has not sent its name.
const UNKNOWN_NAME: &str = "Unknown";
