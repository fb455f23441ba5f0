//! The peers of an endpoint, by handle, by id and by address.

use alloc::vec::Vec;
use core::net::SocketAddrV4;

use crate::peer::{Peer, State};
use crate::wire::PeerId;

/// Stands for a peer as long as it is in the table, whether it has an id or not. It is used again afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Handle(u8);

impl Handle {
    /// Returns the key of its deadline.
    pub(super) fn key(self) -> u32 {
        self.0.into()
    }

    /// Returns the handle whose deadline has this key.
    pub(super) fn of_key(key: u32) -> Option<Self> {
        u8::try_from(key).ok().map(Self)
    }

    fn index(self) -> usize {
        self.0.into()
    }
}

/// All peers.
#[derive(Debug)]
pub(super) struct Table {
    peers: Vec<Option<Peer>>,
    by_id: [Option<Handle>; 128],
    /// The last id that was given away.
    last_id: u8,
}

impl Table {
    pub(super) const fn new() -> Self {
        Self { peers: Vec::new(), by_id: [None; 128], last_id: PeerId::HOST.0 }
    }

    pub(super) fn get(&self, handle: Handle) -> Option<&Peer> {
        self.peers.get(handle.index())?.as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, handle: Handle) -> Option<&mut Peer> {
        self.peers.get_mut(handle.index())?.as_mut()
    }

    #[inline]
    pub(super) fn find(&self, id: PeerId) -> Option<Handle> {
        *self.by_id.get(usize::from(id.0))?
    }

    pub(super) fn find_address(&self, address: SocketAddrV4) -> Option<Handle> {
        self.handles().find(|handle| self.get(*handle).is_some_and(|peer| peer.address == address))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.peers.iter().flatten()
    }

    /// Returns all handles that may stand for a peer.
    pub(super) fn handles(&self) -> impl Iterator<Item = Handle> + use<> {
        (0..u8::try_from(self.peers.len()).unwrap_or(u8::MAX)).map(Handle)
    }

    /// Takes a peer in. Returns `None` if there are too many.
    pub(super) fn add(&mut self, peer: Peer) -> Option<Handle> {
        let index = self.peers.iter().position(Option::is_none).unwrap_or(self.peers.len());
        let handle = u8::try_from(index).ok().filter(|index| *index < u8::MAX).map(Handle)?;
        self.register(peer.id, Some(handle));
        match self.peers.get_mut(index) {
            Some(free) => *free = Some(peer),
            None => self.peers.push(Some(peer)),
        }
        Some(handle)
    }

    pub(super) fn remove(&mut self, handle: Handle) -> Option<Peer> {
        let peer = self.peers.get_mut(handle.index())?.take()?;
        self.register(peer.id, None);
        while matches!(self.peers.last(), Some(None)) {
            self.peers.pop();
        }
        Some(peer)
    }

    /// T-50: gives a peer the next free id, upward from the last one given, without 0x5C. A peer that is leaving keeps its
    /// id but is not one of the `max` peers any more.
    pub(super) fn assign(&mut self, handle: Handle, max: usize) -> Option<PeerId> {
        if self.iter().filter(|peer| peer.state == State::Live).count() >= max {
            return None;
        }
        let upward = (self.last_id + 1..=LAST_ID).chain(FIRST_ID..=self.last_id);
        let id = upward.map(PeerId).find(|id| id.is_assignable() && self.find(*id).is_none())?;
        self.get_mut(handle)?.id = id;
        self.last_id = id.0;
        self.register(id, Some(handle));
        Some(id)
    }

    /// Notes who has an id; a peer without one is in no list.
    fn register(&mut self, id: PeerId, handle: Option<Handle>) {
        if let Some(slot) = self.by_id.get_mut(usize::from(id.0)) {
            *slot = handle;
        }
    }
}

const FIRST_ID: u8 = 2;
const LAST_ID: u8 = 0x7E;
