//! Byte budgets: a hard total with shares for networks and addresses, in memory of a fixed size.
//!
//! [`ByteBucket`] is a token bucket for bytes. [`ShareTable`] has a bucket for each network. [`ByteBudget`] combines a
//! total with nested shares: of a /16 network, of a /24 network in it, and of an address in that.

use std::net::Ipv4Addr;
use std::time::Duration;

use bcnet_transport::Time;

use crate::network::Network;
use crate::quota::mix_bits;

/// The size of a budget: a rate, and the bytes that may be sent at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ByteRate {
    pub(crate) per_second: u32,
    pub(crate) burst: u32,
}

impl ByteRate {
    /// Returns the time in which the rate allows these bytes, in microseconds.
    fn micros_for(self, bytes: u32) -> u64 {
        u64::from(bytes) * 1_000_000 / u64::from(self.per_second.max(1))
    }
}

/// A token bucket for bytes. It stores only the time at which it is full again.
///
/// A bucket that is not empty allows a cost of any size, and may be in debt after that. So a large reply is not refused
/// for ever, and a bucket exceeds its burst by at most one cost.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ByteBucket {
    full_at_micros: u64,
}

impl ByteBucket {
    /// Returns the used part of the burst: [`WHOLE`] for an empty bucket, more for one in debt.
    fn used(self, rate: ByteRate, now: Time) -> u64 {
        let depth = rate.micros_for(rate.burst).max(1);
        self.full_at_micros.saturating_sub(now.as_micros()).saturating_mul(WHOLE) / depth
    }

    /// Counts bytes, even into debt.
    fn charge(&mut self, bytes: u32, rate: ByteRate, now: Time) {
        self.full_at_micros = self.full_at_micros.max(now.as_micros()).saturating_add(rate.micros_for(bytes));
    }

    /// Counts bytes. The debt stays so small that the bucket has room again within `max_debt`.
    pub(crate) fn charge_up_to(&mut self, bytes: u32, rate: ByteRate, max_debt: Duration, now: Time) {
        self.charge(bytes, rate, now);
        let latest = (now + max_debt).as_micros().saturating_add(rate.micros_for(rate.burst));
        self.full_at_micros = self.full_at_micros.min(latest);
    }

    /// Returns whether the bucket is not empty.
    pub(crate) fn has_room(self, rate: ByteRate, now: Time) -> bool {
        self.full_at_micros.saturating_sub(now.as_micros()) < rate.micros_for(rate.burst).max(1)
    }

    /// Counts bytes if the bucket is not empty. Returns `false` and counts nothing otherwise.
    pub(crate) fn take(&mut self, bytes: u32, rate: ByteRate, now: Time) -> bool {
        let has_room = self.has_room(rate, now);
        if has_room {
            self.charge(bytes, rate, now);
        }
        has_room
    }
}

/// A bucket for each network of one prefix length.
///
/// A network without an entry counts as one with a full bucket. So an entry is free when its bucket is full again and
/// was not used within [`RECENT`]. If there is no free entry, a new network counts as one with an empty bucket. So a
/// flood of other addresses evicts no entry that is in use.
#[derive(Debug)]
pub(crate) struct ShareTable {
    prefix: u8,
    rate: ByteRate,
    seed: u64,
    capacity: usize,
    /// Allocated at first use.
    entries: Vec<ShareEntry>,
}

#[derive(Debug, Clone, Copy, Default)]
struct ShareEntry {
    network: u32,
    bucket: ByteBucket,
    charged_at: Time,
}

impl ShareTable {
    pub(crate) const fn new(prefix: u8, rate: ByteRate, capacity: usize, seed: u64) -> Self {
        Self { prefix, rate, seed, capacity: capacity.next_multiple_of(WAYS), entries: Vec::new() }
    }

    /// Returns the used part of the share of an address's network, of [`WHOLE`].
    fn used(&self, address: Ipv4Addr, now: Time) -> u64 {
        if self.entries.is_empty() {
            return 0;
        }
        match self.find(address, now).and_then(|at| self.entries.get(at)) {
            Some(entry) if entry.network == self.network_of(address) => entry.bucket.used(self.rate, now),
            Some(_) => 0,
            None => WHOLE,
        }
    }

    /// Returns whether bytes were sent to an address within [`RECENT`].
    fn is_recent(&self, address: Ipv4Addr, now: Time) -> bool {
        let entry = self.find(address, now).and_then(|at| self.entries.get(at));
        entry.is_some_and(|entry| entry.network == self.network_of(address) && entry.is_recent(now))
    }

    fn charge(&mut self, address: Ipv4Addr, bytes: u32, now: Time) {
        if self.entries.is_empty() {
            self.entries = vec![ShareEntry::default(); self.capacity];
        }
        let network = self.network_of(address);
        let Some(entry) = self.find(address, now).and_then(|at| self.entries.get_mut(at)) else { return };
        if entry.network != network {
            *entry = ShareEntry { network, ..ShareEntry::default() };
        }
        entry.charged_at = now;
        entry.bucket.charge(bytes, self.rate, now);
    }

    fn network_of(&self, address: Ipv4Addr) -> u32 {
        Network::containing(address, self.prefix).first().to_bits()
    }

    /// Returns the index of a network's entry, or of a free one.
    fn find(&self, address: Ipv4Addr, now: Time) -> Option<usize> {
        let network = self.network_of(address);
        let sets = (self.capacity / WAYS).max(1) as u64;
        let start = usize::try_from(mix_bits(u64::from(network) ^ self.seed) % sets).unwrap_or(0) * WAYS;
        let set = self.entries.get(start..start + WAYS)?;
        let is_free =
            |entry: &ShareEntry| entry.bucket.full_at_micros <= now.as_micros() && !entry.is_recent(now);
        let known = set.iter().position(|entry| entry.network == network);
        known.or_else(|| set.iter().position(is_free)).map(|at| start + at)
    }
}

impl ShareEntry {
    fn is_recent(&self, now: Time) -> bool {
        self.bucket.full_at_micros > 0 && now < self.charged_at + RECENT
    }
}

/// A total of bytes, and nested shares of it: each network in the list contains the networks after it.
#[derive(Debug)]
pub(crate) struct ByteBudget<const LEVELS: usize> {
    total: ByteBucket,
    shares: [ShareTable; LEVELS],
}

impl<const LEVELS: usize> ByteBudget<LEVELS> {
    pub(crate) const fn new(shares: [ShareTable; LEVELS]) -> Self {
        Self { total: ByteBucket { full_at_micros: 0 }, shares }
    }

    /// Returns whether bytes may be sent to an address.
    ///
    /// The total and the shares of the address form a chain. Any two neighbours in this chain may together be used up
    /// to `limit`, of [`WHOLE`]. So a busy address stops before its network's share is used up, and an address that
    /// used nothing still gets bytes. From [`RESERVED_FROM`] on, the network's share is reserved for addresses that got
    /// nothing within [`RECENT`].
    pub(crate) fn allows(&self, total: ByteRate, address: Ipv4Addr, limit: u64, now: Time) -> bool {
        let [mut outer, mut network] = [self.total.used(total, now), 0];
        outer < limit
            && self.shares.iter().all(|share| {
                let used = share.used(address, now);
                let is_allowed = used.saturating_add(outer) < limit;
                (network, outer) = (outer, used);
                is_allowed
            })
            && (LEVELS < 2
                || network < RESERVED_FROM
                || !self.shares.last().is_some_and(|share| share.is_recent(address, now)))
    }

    /// Counts bytes that were sent to an address.
    pub(crate) fn charge(&mut self, total: ByteRate, address: Ipv4Addr, bytes: u32, now: Time) {
        self.total.charge(bytes, total, now);
        for share in &mut self.shares {
            share.charge(address, bytes, now);
        }
    }
}

/// A used part that means: all of it.
pub(crate) const WHOLE: u64 = 1000;
/// From this used part of a network's share on, the rest is for addresses that got no bytes recently.
const RESERVED_FROM: u64 = WHOLE / 2;
/// The time after a charge in which an address counts as recently served.
const RECENT: Duration = Duration::from_secs(4);
/// The number of entries in which a network can be stored (set associativity).
const WAYS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: ByteRate = ByteRate { per_second: 1000, burst: 2000 };

    fn at(millis: u64) -> Time {
        Time::from_micros(millis * 1000)
    }

    #[test]
    fn bucket_refills_and_may_go_into_debt_once() {
        let mut bucket = ByteBucket::default();
        bucket.charge(1000, RATE, at(5000));
        assert_eq!((bucket.used(RATE, at(5000)), bucket.used(RATE, at(5500))), (500, 250));
        bucket.charge(2000, RATE, at(5000));
        assert_eq!((bucket.used(RATE, at(5000)), bucket.used(RATE, at(6001))), (1500, 999));
        assert_eq!(bucket.used(RATE, at(60_000)), 0);
    }

    #[test]
    fn busy_address_leaves_a_part_to_its_neighbours() {
        let share = |prefix, rate| ShareTable::new(prefix, rate, 64, 7);
        let mut budget = ByteBudget::new([share(24, RATE), share(32, RATE)]);
        let total = ByteRate { per_second: 100_000, burst: 100_000 };
        let [busy, other, far] = [[192, 0, 2, 1], [192, 0, 2, 2], [192, 0, 3, 1]].map(Ipv4Addr::from);
        for charges in 0.. {
            assert!(charges < 1000, "the busy address has no limit");
            if !budget.allows(total, busy, WHOLE, at(0)) {
                break;
            }
            budget.charge(total, busy, 100, at(0));
        }
        assert_eq!(budget.shares[0].used(busy, at(0)), 500);
        assert!(budget.allows(total, other, WHOLE, at(0)) && budget.allows(total, far, WHOLE, at(0)));
        assert!(!budget.allows(total, other, WHOLE / 2, at(0)));
    }

    /// A table has a fixed size, and a flood of other networks evicts no used bucket.
    #[test]
    fn flood_evicts_no_used_bucket() {
        let mut table = ShareTable::new(24, RATE, 64, 7);
        let victim = Ipv4Addr::new(192, 0, 2, 1);
        table.charge(victim, 2000, at(0));
        for n in 0..65_000_u32 {
            table.charge(Ipv4Addr::from(0x0B00_0000 + (n << 8)), 1, at(0));
        }
        assert_eq!((table.used(victim, at(0)), table.entries.len()), (WHOLE, 64));
        assert_eq!(table.used(Ipv4Addr::new(203, 0, 113, 1), at(0)), WHOLE, "there is no free entry");
        assert_eq!(table.used(Ipv4Addr::new(203, 0, 113, 1), at(4000)), 0);
    }
}
