//! The peers of an endpoint, by handle, by id and by address.

use alloc::vec::Vec;
use core::net::SocketAddrV4;

use crate::peer::Peer;
use crate::wire::PeerId;

/// Identifies a peer while it is in the table, with or without an id. Later peers reuse the handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PeerHandle(u8);

impl PeerHandle {
    /// Identifies no peer, but the replies to unverified addresses (T-75).
    pub(super) const UNVERIFIED_REPLIES: Self = Self(u8::MAX);

    /// Returns the key of the peer's deadline.
    pub(super) fn key(self) -> u32 {
        self.0.into()
    }

    /// Returns the handle whose deadline has this key.
    pub(super) fn from_key(key: u32) -> Option<Self> {
        u8::try_from(key).ok().map(Self)
    }

    fn index(self) -> usize {
        self.0.into()
    }
}

/// All peers of an endpoint.
#[derive(Debug)]
pub(super) struct EndpointPeers {
    peers: Vec<Option<Peer>>,
    by_id: [Option<PeerHandle>; 128],
}

impl EndpointPeers {
    pub(super) const fn new() -> Self {
        Self { peers: Vec::new(), by_id: [None; 128] }
    }

    pub(super) fn get(&self, handle: PeerHandle) -> Option<&Peer> {
        self.peers.get(handle.index())?.as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, handle: PeerHandle) -> Option<&mut Peer> {
        self.peers.get_mut(handle.index())?.as_mut()
    }

    #[inline]
    pub(super) fn find(&self, id: PeerId) -> Option<PeerHandle> {
        *self.by_id.get(usize::from(id.0))?
    }

    /// Returns the peers at an address: at most one that is connected, and those that have left it.
    pub(super) fn at_address(&self, address: SocketAddrV4) -> impl Iterator<Item = (PeerHandle, &Peer)> {
        let peers = self.handles().filter_map(|handle| Some((handle, self.get(handle)?)));
        peers.filter(move |(_, peer)| peer.address == address)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.peers.iter().flatten()
    }

    /// Returns all handles that may identify a peer.
    pub(super) fn handles(&self) -> impl Iterator<Item = PeerHandle> + use<> {
        (0..u8::try_from(self.peers.len()).unwrap_or(u8::MAX)).map(PeerHandle)
    }

    /// Adds a peer. Returns `None` if there are too many.
    pub(super) fn add(&mut self, peer: Peer) -> Option<PeerHandle> {
        let index = self.peers.iter().position(Option::is_none).unwrap_or(self.peers.len());
        let handle = u8::try_from(index).ok().filter(|index| *index < u8::MAX).map(PeerHandle)?;
        self.register(peer.id, Some(handle));
        match self.peers.get_mut(index) {
            Some(free) => *free = Some(peer),
            None => self.peers.push(Some(peer)),
        }
        Some(handle)
    }

    pub(super) fn remove(&mut self, handle: PeerHandle) -> Option<Peer> {
        let peer = self.peers.get_mut(handle.index())?.take()?;
        self.register(peer.id, None);
        while matches!(self.peers.last(), Some(None)) {
            self.peers.pop();
        }
        Some(peer)
    }

    /// Sets the owner of an id. A peer without an id has no entry.
    fn register(&mut self, id: PeerId, handle: Option<PeerHandle>) {
        if let Some(slot) = self.by_id.get_mut(usize::from(id.0)) {
            *slot = handle;
        }
    }
}
