//! The local address that each remote address has used.
//!
//! A machine with several addresses must answer from the address that received the request: a client drops
//! answers from any other. Each player has a separate entry that no other sender can evict. Other senders
//! share a small table, in which a newer one may replace an older one. An entry there lasts long enough for
//! an answer, also if all players of a session connect at once.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::{Ipv4Addr, SocketAddrV4};

/// A remote address and the local address that it has used.
type Entry = (SocketAddrV4, Ipv4Addr);
type Bucket = [Option<Entry>; BUCKET_SIZE];

#[derive(Debug)]
pub(crate) struct ReplyAddresses {
    players: Vec<(SocketAddrV4, Ipv4Addr)>,
    /// Buckets of entries with equal hash, the newest entry first.
    recent: Box<[Bucket]>,
    hasher: RandomState,
}

impl ReplyAddresses {
    pub(crate) fn new() -> Self {
        Self {
            players: Vec::new(),
            recent: vec![[None; BUCKET_SIZE]; BUCKETS].into(),
            hasher: RandomState::new(),
        }
    }

    /// Records that `remote` has sent to `local`.
    pub(crate) fn record(&mut self, remote: SocketAddrV4, local: Ipv4Addr) {
        if let Some(player) = self.players.iter_mut().find(|(player, _)| *player == remote) {
            player.1 = local;
            return;
        }
        let number = self.bucket_number(remote);
        let bucket = &mut self.recent[number];
        let is_same = |entry: &Option<Entry>| entry.is_some_and(|(other, _)| other == remote);
        let replaced = bucket.iter().position(is_same).unwrap_or(BUCKET_SIZE - 1);
        bucket[..=replaced].rotate_right(1);
        bucket[0] = Some((remote, local));
    }

    /// Returns the local address that `remote` has used, if it is known.
    pub(crate) fn find(&self, remote: SocketAddrV4) -> Option<Ipv4Addr> {
        let recent = self.recent[self.bucket_number(remote)].iter().flatten();
        let entry = self.players.iter().chain(recent).find(|(other, _)| *other == remote);
        entry.map(|(_, local)| *local)
    }

    /// Sets the list of players.
    pub(crate) fn set_players(&mut self, players: impl Iterator<Item = SocketAddrV4>) {
        let known = players.filter_map(|player| Some((player, self.find(player)?))).collect();
        // An answer to a player who has just left may still be pending.
        for (leaver, local) in std::mem::replace(&mut self.players, known) {
            self.record(leaver, local);
        }
    }

    /// Returns the bucket of an address. A secret hash prevents attackers from choosing a bucket.
    fn bucket_number(&self, remote: SocketAddrV4) -> usize {
        self.hasher.hash_one(remote) as usize % BUCKETS
    }
}

const BUCKETS: usize = 64;
/// More entries than addresses that get answers in one turn are likely to have the same hash.
const BUCKET_SIZE: usize = 8;

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
        assert!(remembered <= BUCKETS * BUCKET_SIZE, "{remembered}");
        addresses.set_players(std::iter::empty());
        assert_eq!(addresses.players.len(), 0);
    }

    #[test]
    fn players_who_connect_at_once_do_not_evict_each_other() {
        let mut addresses = ReplyAddresses::new();
        for round in 0..1000 {
            let group = (0..16).map(|n| SocketAddrV4::new(Ipv4Addr::from(16 * round + n), 22101));
            group.clone().for_each(|address| addresses.record(address, Ipv4Addr::LOCALHOST));
            let found = group.filter(|address| addresses.find(*address).is_some()).count();
            assert_eq!(found, 16, "round {round}");
        }
    }
}
