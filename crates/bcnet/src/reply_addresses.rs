//! The local address that each remote address has used.
//!
//! A machine with several addresses must answer from the address that received the request: a client drops
//! answers from any other. Each player has a separate entry that no other sender can evict. Other senders
//! share a small table, in which a newer one may replace an older one. An entry there lasts long enough for
//! an answer.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::{Ipv4Addr, SocketAddrV4};

#[derive(Debug)]
pub(crate) struct ReplyAddresses {
    players: Vec<(SocketAddrV4, Ipv4Addr)>,
    recent: Box<[Option<(SocketAddrV4, Ipv4Addr)>]>,
    hasher: RandomState,
}

impl ReplyAddresses {
    pub(crate) fn new() -> Self {
        Self { players: Vec::new(), recent: vec![None; RECENT_SLOTS].into(), hasher: RandomState::new() }
    }

    /// Records that `remote` has sent to `local`.
    pub(crate) fn record(&mut self, remote: SocketAddrV4, local: Ipv4Addr) {
        if let Some(player) = self.players.iter_mut().find(|(player, _)| *player == remote) {
            player.1 = local;
            return;
        }
        let slot = self.slot(remote);
        self.recent[slot] = Some((remote, local));
    }

    /// Returns the local address that `remote` has used, if it is known.
    pub(crate) fn find(&self, remote: SocketAddrV4) -> Option<Ipv4Addr> {
        let player = self.players.iter().find(|(player, _)| *player == remote);
        player
            .or_else(|| self.recent[self.slot(remote)].as_ref().filter(|(other, _)| *other == remote))
            .map(|(_, local)| *local)
    }

    /// Sets the list of players.
    pub(crate) fn set_players(&mut self, players: impl Iterator<Item = SocketAddrV4>) {
        let known = players.filter_map(|player| Some((player, self.find(player)?))).collect();
        // An answer to a player who has just left may still be pending.
        for (leaver, local) in std::mem::replace(&mut self.players, known) {
            self.record(leaver, local);
        }
    }

    /// Returns the slot of an address. A secret hash prevents attackers from choosing a slot.
    fn slot(&self, remote: SocketAddrV4) -> usize {
        self.hasher.hash_one(remote) as usize % RECENT_SLOTS
    }
}

const RECENT_SLOTS: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn players_are_not_evicted_by_other_senders() {
        let address = |n: u32| SocketAddrV4::new(Ipv4Addr::from(n), 22101);
        let ours = |n| Ipv4Addr::new(192, 0, 2, n);
        let mut addresses = ReplyAddresses::new();
        addresses.record(address(1), ours(1));
        assert_eq!(addresses.find(address(1)), Some(ours(1)));
        addresses.set_players([address(1), address(2)].into_iter());
        for n in 3..10_000 {
            addresses.record(address(n), ours(9));
            assert_eq!(addresses.find(address(n)), Some(ours(9)));
        }
        assert_eq!(addresses.find(address(1)), Some(ours(1)));
        addresses.record(address(1), ours(2));
        assert_eq!(addresses.find(address(1)), Some(ours(2)));
        let remembered = (3..10_000).filter(|n| addresses.find(address(*n)).is_some()).count();
        assert!(remembered <= RECENT_SLOTS, "{remembered}");
        addresses.set_players(std::iter::empty());
        assert_eq!(addresses.players.len(), 0);
    }
}
