//! The peers of an endpoint, by place, by id and by address.

use alloc::vec::Vec;
use core::net::SocketAddrV4;

use crate::peer::{Peer, State};
use crate::wire::PeerId;

/// All peers. A place is used again only after its peer was removed.
#[derive(Debug)]
pub(super) struct Table {
    peers: Vec<Option<Peer>>,
    /// The place of each peer that has an id.
    by_id: [u8; 128],
    /// The last id that was given away.
    last_id: u8,
}

impl Table {
    pub(super) const fn new() -> Self {
        Self { peers: Vec::new(), by_id: [NOBODY; 128], last_id: PeerId::HOST.0 }
    }

    pub(super) fn get(&self, place: u32) -> Option<&Peer> {
        self.peers.get(place as usize)?.as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, place: u32) -> Option<&mut Peer> {
        self.peers.get_mut(place as usize)?.as_mut()
    }

    #[inline]
    pub(super) fn find(&self, id: PeerId) -> Option<u32> {
        self.by_id.get(usize::from(id.0)).copied().filter(|place| *place != NOBODY).map(u32::from)
    }

    pub(super) fn find_address(&self, address: SocketAddrV4) -> Option<u32> {
        let is_there = |peer: &Option<Peer>| peer.as_ref().is_some_and(|peer| peer.address == address);
        u32::try_from(self.peers.iter().position(is_there)?).ok()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.peers.iter().flatten()
    }

    /// The places that may have a peer.
    pub(super) fn places(&self) -> core::ops::Range<u32> {
        0..u32::try_from(self.peers.len()).unwrap_or(0)
    }

    /// Puts a peer into a free place. `None` if there are too many.
    pub(super) fn add(&mut self, peer: Peer) -> Option<u32> {
        let place = self.peers.iter().position(Option::is_none).unwrap_or(self.peers.len());
        let short = u8::try_from(place).ok().filter(|place| *place != NOBODY)?;
        let id = peer.id;
        match self.peers.get_mut(place) {
            Some(free) => *free = Some(peer),
            None => self.peers.push(Some(peer)),
        }
        self.register(id, short);
        Some(u32::from(short))
    }

    pub(super) fn remove(&mut self, place: u32) -> Option<Peer> {
        let peer = self.peers.get_mut(place as usize)?.take()?;
        self.register(peer.id, NOBODY);
        while matches!(self.peers.last(), Some(None)) {
            self.peers.pop();
        }
        Some(peer)
    }

    /// T-50: gives a peer the next free id, upward from the last one given, without 0x5C. Who is leaving keeps its id but
    /// is not one of the `most` peers any more.
    pub(super) fn assign(&mut self, place: u32, most: usize) -> Option<PeerId> {
        if self.iter().filter(|peer| peer.state == State::Live).count() >= most {
            return None;
        }
        let upward = (self.last_id + 1..=LAST_ID).chain(FIRST_ID..=self.last_id);
        let id = upward.map(PeerId).find(|id| id.is_assignable() && self.find(*id).is_none())?;
        self.get_mut(place)?.id = id;
        self.last_id = id.0;
        self.register(id, u8::try_from(place).unwrap_or(NOBODY));
        Some(id)
    }

    /// Notes where an id is; a peer without one is in no list.
    fn register(&mut self, id: PeerId, place: u8) {
        if let Some(slot) = self.by_id.get_mut(usize::from(id.0)) {
            *slot = place;
        }
    }
}

/// The place of an id that nobody has.
const NOBODY: u8 = u8::MAX;
const FIRST_ID: u8 = 2;
const LAST_ID: u8 = 0x7E;
