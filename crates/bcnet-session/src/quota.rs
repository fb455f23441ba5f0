//! Quotas, recent addresses and counts per network, in memory that no flood can grow.
//!
//! [`Quotas`] limits an amount per span of time, [`BloomFilter`] remembers recent addresses, and [`AddressLimiter`]
//! counts entries per address and network.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use bcnet_transport::Time;

use crate::network::Network;

/// The amounts that each address or network has used lately, with a limit for any span of time.
///
/// The table has a fixed size. An entry is evicted only when all its use is older than the span, so a flood of other
/// addresses evicts no entry that counts. A network for which there is no free entry may use nothing.
#[derive(Debug)]
pub struct Quotas {
    prefix: u8,
    limit: u16,
    /// The length of a time slot in microseconds. The span is divided into time slots.
    slot_micros: u64,
    seed: u64,
    capacity: usize,
    networks: Vec<u32>,
    /// The number of the last time slot in which each entry was used, from 1; 0 for an unused entry.
    last_slots: Vec<u32>,
    /// The amount used in each of the last slots.
    used: Vec<[u16; SLOTS]>,
}

impl Quotas {
    /// Returns quotas of `most` in any `span` for each network of `prefix` bits.
    ///
    /// The table has about `places` entries. It is allocated at first use.
    #[must_use]
    pub const fn new(prefix: u8, most: u16, span: Duration, places: usize, seed: u64) -> Self {
        let micros = span.as_secs().saturating_mul(1_000_000).saturating_add(span.subsec_micros() as u64);
        let slot = micros.div_ceil(SLOTS as u64 - 1);
        let slot = if slot == 0 { 1 } else { slot };
        let places = places.div_ceil(WAYS) * WAYS;
        Self {
            prefix,
            limit: most,
            slot_micros: slot,
            seed,
            capacity: places,
            networks: Vec::new(),
            last_slots: Vec::new(),
            used: Vec::new(),
        }
    }

    /// Returns the amount that the network of `address` may still use now.
    #[must_use]
    pub fn remaining(&self, address: Ipv4Addr, now: Time) -> u16 {
        let slot = self.slot_at(now);
        match self.find(self.network_of(address), slot) {
            _ if self.networks.is_empty() => self.limit,
            TableLookup::Known(at) => self.limit.saturating_sub(self.used_in_span(at, slot)),
            TableLookup::Free(_) => self.limit,
            TableLookup::Full => 0,
        }
    }

    /// Uses `cost` of the quota. Returns `false` and uses nothing if less is left.
    #[must_use]
    pub fn take(&mut self, address: Ipv4Addr, cost: u16, now: Time) -> bool {
        if self.remaining(address, now) < cost {
            return false;
        }
        if self.networks.is_empty() {
            // Zeroed pages take no memory until they are written.
            self.networks = vec![0; self.capacity];
            self.last_slots = vec![0; self.capacity];
            self.used = vec![[0; SLOTS]; self.capacity];
        }
        let (network, slot) = (self.network_of(address), self.slot_at(now));
        let at = match self.find(network, slot) {
            TableLookup::Known(at) | TableLookup::Free(at) => at,
            TableLookup::Full => return false,
        };
        let (Some(owner), Some(last), Some(taken)) =
            (self.networks.get_mut(at), self.last_slots.get_mut(at), self.used.get_mut(at))
        else {
            return false;
        };
        let slot = if *owner == network { slot.max(*last) } else { slot };
        if *owner != network || slot - *last >= MAX_AGE_SLOTS {
            (*owner, *taken) = (network, [0; SLOTS]);
        } else {
            (*last + 1..=slot).for_each(|slot| *slot_mut(taken, slot) = 0);
        }
        *last = slot;
        let now_taken = slot_mut(taken, slot);
        *now_taken = now_taken.saturating_add(cost);
        true
    }

    fn network_of(&self, address: Ipv4Addr) -> u32 {
        Network::containing(address, self.prefix).first().to_bits()
    }

    fn slot_at(&self, now: Time) -> u32 {
        u32::try_from(now.as_micros() / self.slot_micros).unwrap_or(u32::MAX).saturating_add(1)
    }

    /// Returns the amount used by an entry in the span that ends with this slot.
    fn used_in_span(&self, at: usize, slot: u32) -> u16 {
        let (Some(last), Some(taken)) = (self.last_slots.get(at), self.used.get(at)) else { return 0 };
        let first = slot.saturating_sub(MAX_AGE_SLOTS - 1);
        let mut taken = *taken;
        (first.max(1)..=*last).map(|slot| *slot_mut(&mut taken, slot)).fold(0, u16::saturating_add)
    }

    /// Returns the entry of a network, or a free one.
    fn find(&self, network: u32, slot: u32) -> TableLookup {
        let sets = (self.capacity / WAYS).max(1) as u64;
        let start = usize::try_from(mix_bits(u64::from(network) ^ self.seed) % sets).unwrap_or(0) * WAYS;
        let range = start..start + WAYS;
        let places = self.networks.get(range.clone()).into_iter().flatten();
        let last = self.last_slots.get(range).into_iter().flatten();
        let mut found = TableLookup::Full;
        for (at, (other, last)) in (start..).zip(places.zip(last)) {
            if *last != 0 && *other == network {
                return TableLookup::Known(at);
            }
            if *last == 0 || slot.saturating_sub(*last) >= MAX_AGE_SLOTS {
                found = TableLookup::Free(at);
            }
        }
        found
    }
}

/// The result of a search in the table.
enum TableLookup {
    Known(usize),
    /// An unused entry, or one whose network has its full quota again.
    Free(usize),
    Full,
}

fn slot_mut(taken: &mut [u16; SLOTS], slot: u32) -> &mut u16 {
    let [first, rest @ ..] = taken;
    match (slot as usize % SLOTS).checked_sub(1).and_then(|at| rest.get_mut(at)) {
        Some(place) => place,
        None => first,
    }
}

/// A set of recent addresses. Additional addresses never evict any.
///
/// The more addresses are in it, the more false positives there are: with 100,000 in the span, about one in 100,000.
#[derive(Debug)]
pub struct BloomFilter {
    span: Duration,
    seed: u64,
    /// The bits of the current span and of the one before.
    generations: [Vec<u64>; 2],
    /// The start of the current span.
    generation_start: Time,
}

impl BloomFilter {
    /// Returns an empty filter that remembers each address for `span`, and at most for twice as long.
    ///
    /// It is allocated at first use.
    #[must_use]
    pub const fn new(span: Duration, seed: u64) -> Self {
        Self { span, seed, generations: [Vec::new(), Vec::new()], generation_start: Time::ZERO }
    }

    /// Adds an address. Returns whether it was added recently.
    pub fn check_and_insert(&mut self, address: Ipv4Addr, now: Time) -> bool {
        self.rotate(now);
        let hash = mix_bits(u64::from(address.to_bits()) ^ self.seed);
        let [current, before] = &mut self.generations;
        if current.is_empty() {
            (*current, *before) = (vec![0; FILTER_WORDS], vec![0; FILTER_WORDS]);
        }
        let (mut in_current, mut in_before) = (true, true);
        for number in 0..HASH_COUNT {
            // An odd step gives a different bit each time.
            let bits = hash.wrapping_add((hash >> 32 | 1).wrapping_mul(number));
            let bit = usize::try_from(bits % (FILTER_WORDS as u64 * 64)).unwrap_or(0);
            let mask = 1 << (bit % 64);
            let (Some(current), Some(before)) = (current.get_mut(bit / 64), before.get(bit / 64)) else {
                return false;
            };
            in_current &= *current & mask != 0;
            in_before &= *before & mask != 0;
            *current |= mask;
        }
        in_current || in_before
    }

    fn rotate(&mut self, now: Time) {
        let passed = now.since(self.generation_start);
        if passed < self.span {
            return;
        }
        self.generation_start = now;
        self.generations.swap(0, 1);
        let [current, before] = &mut self.generations;
        current.fill(0);
        if passed >= 2 * self.span {
            before.fill(0);
        }
    }
}

/// Counts the caller's entries of each address and each /24 network, with a limit for both.
///
/// An entry is a listed server or a client of a proxy, for example. The memory grows only with the entries that the
/// caller adds.
#[derive(Debug)]
pub struct AddressLimiter {
    per_address: usize,
    per_network: usize,
    counts: BTreeMap<Network, usize>,
}

impl AddressLimiter {
    /// Returns a limiter without entries.
    #[must_use]
    pub const fn new(per_address: usize, per_network: usize) -> Self {
        Self { per_address, per_network, counts: BTreeMap::new() }
    }

    /// Returns whether one more entry of this address and its network is allowed.
    #[must_use]
    pub fn has_capacity(&self, address: Ipv4Addr) -> bool {
        self.count_of_address(address) < self.per_address && self.count_of_network(address) < self.per_network
    }

    /// Adds an entry, even above the limits.
    pub fn add(&mut self, address: Ipv4Addr) {
        for network in address_and_network(address) {
            *self.counts.entry(network).or_default() += 1;
        }
    }

    /// Removes an entry that was added.
    pub fn remove(&mut self, address: Ipv4Addr) {
        for network in address_and_network(address) {
            if let Some(count) = self.counts.get_mut(&network) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(&network);
                }
            }
        }
    }

    /// Returns the number of entries of this address.
    #[must_use]
    pub fn count_of_address(&self, address: Ipv4Addr) -> usize {
        let [address, _] = address_and_network(address);
        self.counts.get(&address).copied().unwrap_or(0)
    }

    /// Returns the number of entries of this address's /24 network.
    #[must_use]
    pub fn count_of_network(&self, address: Ipv4Addr) -> usize {
        let [_, network] = address_and_network(address);
        self.counts.get(&network).copied().unwrap_or(0)
    }
}

fn address_and_network(address: Ipv4Addr) -> [Network; 2] {
    [32, 24].map(|prefix| Network::containing(address, prefix))
}

/// Mixes the bits of a number, so that similar numbers give different hashes.
pub(crate) const fn mix_bits(number: u64) -> u64 {
    let mixed = (number ^ number >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ mixed >> 31
}

/// The number of time slots in an entry: seven for the span, and the current one, which is incomplete.
const SLOTS: usize = 8;
/// The age in time slots at which use no longer counts.
const MAX_AGE_SLOTS: u32 = 8;
/// The number of entries that a network can be in (set associativity).
const WAYS: usize = 8;
/// The size of a filter generation: four million bits.
const FILTER_WORDS: usize = 1 << 16;
const HASH_COUNT: u64 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Duration = Duration::from_secs(10);

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    fn quotas(places: usize) -> Quotas {
        Quotas::new(24, 2000, SPAN, places, 7)
    }

    #[test]
    fn quota_holds_in_any_sliding_window() {
        let mut quotas = quotas(64);
        let address = Ipv4Addr::new(192, 0, 2, 1);
        let mut taken: Vec<(u64, u32)> = Vec::new();
        // Steps of all lengths, so that each slot of the ring is used at various times.
        let mut millis = 0;
        for step in 0..20_000_u32 {
            millis += u64::from(step * 7919 % 997);
            let cost = 50 + u16::try_from(step * 31 % 700).expect("a small number");
            if quotas.take(Ipv4Addr::from(address.to_bits() + step % 250), cost, at(millis)) {
                taken.push((millis, cost.into()));
            }
        }
        let most = taken.iter().map(|(end, _)| {
            let inside = |(time, _): &&(u64, u32)| *time <= *end && *time + 10_000 > *end;
            taken.iter().filter(inside).map(|(_, cost)| cost).sum::<u32>()
        });
        assert_eq!(most.max().map(|most| (1900..=2000).contains(&most)), Some(true));
        let all: u32 = taken.iter().map(|(_, cost)| cost).sum();
        let spans = u32::try_from(millis / 10_000).expect("a small number");
        assert!(all > spans * 1500, "{all} in {spans} spans");
    }

    #[test]
    fn quota_refills_after_its_span() {
        let mut quotas = quotas(64);
        let [address, neighbour, other] =
            [[192, 0, 2, 1], [192, 0, 2, 200], [192, 0, 3, 1]].map(Ipv4Addr::from);
        assert!(quotas.take(address, 1500, at(0)));
        assert_eq!((quotas.remaining(neighbour, at(0)), quotas.remaining(other, at(0))), (500, 2000));
        assert!(!quotas.take(neighbour, 501, at(9_999)) && quotas.take(neighbour, 500, at(9_999)));
        assert_eq!((quotas.remaining(address, at(10_000)), quotas.remaining(address, at(12_000))), (0, 1500));
        assert_eq!(quotas.remaining(address, at(22_000)), 2000);
        assert_eq!(quotas.remaining(address, at(0)), 0, "the quota does not refill if time goes back");
    }

    #[test]
    fn exhausted_network_is_not_evicted_by_a_flood() {
        let mut quotas = quotas(1024);
        let victim = Ipv4Addr::new(192, 0, 2, 1);
        assert!(quotas.take(victim, 2000, at(0)));
        let forged = |n: u32| Ipv4Addr::from(0x0B00_0000 + (n << 8));
        let served = (0..65_000).filter(|n| quotas.take(forged(*n), 1, at(u64::from(n / 20)))).count();
        assert!((900..=1024).contains(&served), "{served}");
        assert_eq!((quotas.remaining(victim, at(9_999)), quotas.networks.len()), (0, 1024));
        // Networks that have their full quota again are evicted.
        let served = (0..65_000).filter(|n| quotas.take(forged(*n), 1, at(20_000))).count();
        assert!(served >= 900, "{served}");
        assert!(quotas.take(victim, 2000, at(40_000)));
    }

    #[test]
    fn bloom_filter_remembers_for_a_span_during_a_flood() {
        let mut recent = BloomFilter::new(Duration::from_secs(5), 7);
        let mut false_positives = 0;
        for second in 0..20_u32 {
            let honest = Ipv4Addr::from(0xC000_0200 + second);
            assert!(!recent.check_and_insert(honest, at(u64::from(second) * 1000)));
            for n in 0..20_000 {
                let micros = u64::from(second) * 1_000_000 + u64::from(n) * 50;
                let forged = Ipv4Addr::from(0x0B00_0000 + second * 20_000 + n);
                false_positives += u32::from(recent.check_and_insert(forged, Time::from_micros(micros)));
            }
            if let Some(before) = second.checked_sub(4) {
                let again = Ipv4Addr::from(0xC000_0200 + before);
                assert!(recent.check_and_insert(again, at(u64::from(second) * 1000 + 999)), "{second}");
            }
        }
        assert!(false_positives < 400_000 / 10_000, "{false_positives}");
        assert_eq!(recent.generations.each_ref().map(Vec::len), [FILTER_WORDS, FILTER_WORDS]);
    }

    #[test]
    fn bloom_filter_forgets_after_two_spans() {
        let mut recent = BloomFilter::new(Duration::from_secs(5), 7);
        let address = Ipv4Addr::new(192, 0, 2, 1);
        assert_eq!(
            [0, 4_999, 9_998].map(|millis| recent.check_and_insert(address, at(millis))),
            [false, true, true]
        );
        assert!(!recent.check_and_insert(address, at(19_998)), "after two spans");
        assert!(!recent.check_and_insert(address, at(90_000)));
    }

    #[test]
    fn address_limiter_counts_addresses_and_networks() {
        let mut limiter = AddressLimiter::new(2, 3);
        let [one, neighbour, other] = [[192, 0, 2, 1], [192, 0, 2, 2], [192, 0, 3, 1]].map(Ipv4Addr::from);
        assert!(limiter.has_capacity(one));
        limiter.add(one);
        limiter.add(one);
        assert!(!limiter.has_capacity(one) && limiter.has_capacity(neighbour));
        limiter.add(neighbour);
        assert!(!limiter.has_capacity(neighbour) && limiter.has_capacity(other), "the network is full");
        assert_eq!((limiter.count_of_address(one), limiter.count_of_network(one)), (2, 3));
        limiter.remove(one);
        assert!(limiter.has_capacity(one) && limiter.has_capacity(neighbour));
        limiter.remove(one);
        limiter.remove(neighbour);
        limiter.remove(other);
        assert!(limiter.counts.is_empty(), "removing an unknown address has no effect");
    }
}
