//! Limits the replies to queries of browsers and list servers ([S-07]).
//!
//! [`QueryLimiter`] decides whether a query gets a reply. It does not build replies; see `query`.
//!
//! [S-07]: bcnet_transport::wire::protocol#s-07

use std::net::Ipv4Addr;
use std::time::Duration;

use bcnet_transport::Time;

use crate::byte_budget::{ByteBudget, ByteRate, ShareTable, WHOLE};
use crate::quota::BloomFilter;

/// The origin of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryOrigin {
    /// An unverified address, which may be spoofed.
    Unverified,
    /// An address of a home network. It may be spoofed, too.
    Home,
    /// A list server that the operator has configured.
    ListServer,
    /// An address that the operator trusts. It has no limits.
    Trusted,
}

/// The byte budgets of replies to queries ([S-07]).
///
/// Each origin has a hard total. For unverified addresses the total has shares for each /16 network, each /24 network
/// and each address. A repeated query has priority over a first one, and the next repetition has more. People and
/// browsers repeat a query that got no reply; most attackers use another spoofed address each time.
///
/// [S-07]: bcnet_transport::wire::protocol#s-07
#[derive(Debug)]
pub struct QueryLimiter {
    unverified: ByteBudget<3>,
    home: ByteBudget<1>,
    list_servers: ByteBudget<1>,
    /// The addresses that asked once, and those that asked again.
    askers: [BloomFilter; 2],
}

impl QueryLimiter {
    /// Returns a limiter that has seen no queries.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self {
            unverified: ByteBudget::new([
                ShareTable::new(16, SHARE_OF_LARGE_NETWORK, TABLE_CAPACITY, seed),
                ShareTable::new(24, SHARE_OF_NETWORK, TABLE_CAPACITY, seed),
                ShareTable::new(32, SHARE_OF_ADDRESS, TABLE_CAPACITY, seed),
            ]),
            home: ByteBudget::new([ShareTable::new(32, SHARE_OF_HOME_ADDRESS, TABLE_CAPACITY, seed)]),
            list_servers: ByteBudget::new([ShareTable::new(
                32,
                LIST_SERVER_TOTAL,
                LIST_SERVER_CAPACITY,
                seed,
            )]),
            askers: [BloomFilter::new(REPEAT_WINDOW, seed), BloomFilter::new(REPEAT_WINDOW, seed)],
        }
    }

    /// Returns whether to answer a query of `from`, with `per_second` replies to unverified addresses.
    ///
    /// If so, the caller builds the reply and calls [`allow_reply`](Self::allow_reply) with its bytes.
    #[must_use]
    pub fn allow_query(&mut self, origin: QueryOrigin, from: Ipv4Addr, per_second: u32, now: Time) -> bool {
        match origin {
            QueryOrigin::Unverified => {
                let total = unverified_total(per_second);
                let allows = |part| self.unverified.allows(total, from, part, now);
                let [asked, asked_again] = &mut self.askers;
                // An address is recorded only if this query is refused as a first one. So the filters do not fill up in
                // quiet times.
                allows(FIRST_QUERY_PART)
                    || asked.check_and_insert(from, now)
                        && (allows(SECOND_QUERY_PART)
                            || asked_again.check_and_insert(from, now) && allows(WHOLE))
            }
            QueryOrigin::Home | QueryOrigin::ListServer | QueryOrigin::Trusted => {
                self.has_budget(origin, from, per_second, now)
            }
        }
    }

    /// Returns whether `from` may get a reply of these bytes, and deducts them from the budgets.
    ///
    /// Returns `true` right after [`allow_query`](Self::allow_query) returned `true`.
    #[must_use]
    pub fn allow_reply(
        &mut self,
        origin: QueryOrigin,
        from: Ipv4Addr,
        bytes: usize,
        per_second: u32,
        now: Time,
    ) -> bool {
        if !self.has_budget(origin, from, per_second, now) {
            return false;
        }
        let cost = u32::try_from(bytes).unwrap_or(u32::MAX).max(MIN_REPLY_COST);
        self.charge(origin, from, cost, per_second, now);
        true
    }

    /// Deducts bytes of a reply to a query that was allowed and already counted.
    ///
    /// A proxy counts a query as a reply of [`MIN_REPLY_COST`] bytes, because its server may never answer.
    pub fn charge(&mut self, origin: QueryOrigin, from: Ipv4Addr, bytes: u32, per_second: u32, now: Time) {
        match origin {
            QueryOrigin::Trusted => {}
            QueryOrigin::ListServer => self.list_servers.charge(LIST_SERVER_TOTAL, from, bytes, now),
            QueryOrigin::Home => self.home.charge(HOME_TOTAL, from, bytes, now),
            QueryOrigin::Unverified => self.unverified.charge(unverified_total(per_second), from, bytes, now),
        }
    }

    fn has_budget(&self, origin: QueryOrigin, from: Ipv4Addr, per_second: u32, now: Time) -> bool {
        match origin {
            QueryOrigin::Trusted => true,
            QueryOrigin::ListServer => self.list_servers.allows(LIST_SERVER_TOTAL, from, WHOLE, now),
            QueryOrigin::Home => self.home.allows(HOME_TOTAL, from, WHOLE, now),
            QueryOrigin::Unverified => self.unverified.allows(unverified_total(per_second), from, WHOLE, now),
        }
    }
}

/// Returns the total for all unverified addresses. In any second it allows `per_second` of the shortest replies.
const fn unverified_total(per_second: u32) -> ByteRate {
    let part = MIN_REPLY_COST / 5;
    ByteRate { per_second: per_second.saturating_mul(3 * part), burst: per_second.saturating_mul(2 * part) }
}

/// The share of one address.
const SHARE_OF_ADDRESS: ByteRate = ByteRate { per_second: 1600, burst: 3200 };
/// The share of a /24 network.
const SHARE_OF_NETWORK: ByteRate = ByteRate { per_second: 2000, burst: 4000 };
/// The share of a /16 network.
const SHARE_OF_LARGE_NETWORK: ByteRate = ByteRate { per_second: 4000, burst: 8000 };
/// The total of the home networks. Eight machines can ask at once, every two seconds.
const HOME_TOTAL: ByteRate = ByteRate { per_second: 8000, burst: 12_000 };
/// The share of one home address. It is large: behind a container bridge, all players have one address.
///
/// It refills more slowly than the total. So an address that asks without end leaves the rest to the others.
const SHARE_OF_HOME_ADDRESS: ByteRate = ByteRate { per_second: 5000, burst: 12_000 };
/// The total of the list servers. Their addresses may be spoofed.
const LIST_SERVER_TOTAL: ByteRate = ByteRate { per_second: 2000, burst: 2000 };
/// A shorter reply counts as this many bytes. This limits the number of replies.
pub const MIN_REPLY_COST: u32 = 250;
/// Up to this used part, an address gets an answer to its first query.
const FIRST_QUERY_PART: u64 = WHOLE / 2;
/// Up to this used part, an address gets an answer to its second query.
const SECOND_QUERY_PART: u64 = WHOLE / 4 * 3;
/// The number of entries in a table. In the time in which a bucket refills, fewer addresses get replies.
const TABLE_CAPACITY: usize = 1 << 13;
const LIST_SERVER_CAPACITY: usize = 64;
/// A query has priority if its address has asked before within this time.
const REPEAT_WINDOW: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    const REPLY_LEN: usize = 420;

    struct LimitedServer(QueryLimiter);

    impl LimitedServer {
        /// Returns whether a query is answered.
        fn answers(&mut self, from: Ipv4Addr, now: Time) -> bool {
            self.0.allow_query(QueryOrigin::Unverified, from, 100, now)
                && self.0.allow_reply(QueryOrigin::Unverified, from, REPLY_LEN, 100, now)
        }
    }

    fn random_numbers(mut seed: u64) -> impl FnMut() -> u32 {
        move || {
            seed = seed.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
            (seed >> 32) as u32
        }
    }

    /// S-07: a flood of 20,000 queries per second from any address of 65,000 networks.
    ///
    /// In each of ten rounds, ten new clients ask up to three times, and one that has asked before.
    #[test]
    fn repeated_query_is_answered_during_a_flood() {
        let mut server = LimitedServer(QueryLimiter::new(0x00C0_FFEE));
        let mut random = random_numbers(1);
        let (mut forged, mut answered) = (0_u32, 0);
        let mut waiting: Vec<(u32, Ipv4Addr)> = Vec::new();
        for millis in 0..68_000_u32 {
            for n in 0..20 {
                let now = Time::from_micros(u64::from(millis) * 1000 + n * 50);
                let address = Ipv4Addr::from(0x0B00_0000 + random() % (65_000 << 8));
                forged += u32::from(server.answers(address, now));
            }
            let (round, time) = (millis / 6_800, millis % 6_800);
            if time == 0 {
                let new = (0..10).map(|n| (n * 150, Ipv4Addr::from(0x5000_0001 + ((round * 10 + n) << 8))));
                waiting = new.chain([(1500, Ipv4Addr::new(198, 51, 100, 7))]).collect();
            }
            let before = waiting.len();
            let now = Time::from_micros(u64::from(millis) * 1000 + 999);
            waiting.retain(|(start, asker)| {
                let is_due = time >= *start && (time - start) % 1_700 == 0 && (time - start) / 1_700 < 3;
                !(is_due && server.answers(*asker, now))
            });
            answered += before - waiting.len();
        }
        assert!(answered >= 108, "{answered} of 110");
        assert!(forged < 68 * 40, "{forged} in 68 seconds");
    }

    /// S-07
    #[test]
    fn network_never_exceeds_its_share() {
        let mut server = LimitedServer(QueryLimiter::new(3));
        let mut random = random_numbers(2);
        let mut sent = Vec::new();
        for step in 0..400_000_u64 {
            let now = Time::from_micros(step * 100);
            server.answers(Ipv4Addr::from(0x0B00_0000 + ((random() % 65_000) << 8)), now);
            let victim = Ipv4Addr::from(0xC000_0200 + random() % 256);
            if server.answers(victim, now) {
                sent.push(step / 10);
            }
        }
        let in_ten_seconds = |end: &u64| sent.iter().filter(|at| *at <= end && **at + 10_000 > *end).count();
        let most = sent.iter().map(in_ten_seconds).max().unwrap_or(0);
        assert!((18_000..=26_000).contains(&(most * REPLY_LEN)), "{most} in ten seconds");
    }

    /// S-07
    #[test]
    fn configured_list_servers_are_answered_during_a_flood() {
        let mut limiter = QueryLimiter::new(3);
        let master = Ipv4Addr::new(203, 0, 113, 5);
        let mut random = random_numbers(3);
        for step in 0..200_000_u64 {
            let now = Time::from_micros(step * 50);
            let _ = limiter.allow_query(QueryOrigin::Unverified, Ipv4Addr::from(random()), 100, now);
            if step % 10_000 == 0 {
                assert!(limiter.allow_query(QueryOrigin::ListServer, master, 100, now));
                assert!(limiter.allow_reply(QueryOrigin::ListServer, master, REPLY_LEN, 100, now));
            }
        }
        let now = Time::from_micros(10_000_000);
        let asked = |limiter: &mut QueryLimiter| {
            limiter.allow_query(QueryOrigin::ListServer, master, 100, now)
                && limiter.allow_reply(QueryOrigin::ListServer, master, REPLY_LEN, 100, now)
        };
        let answered = (0..1_000).filter(|_| asked(&mut limiter)).count();
        assert!(answered <= 3, "the address may be spoofed, so replies are limited: {answered}");
    }

    /// Returns the most bytes in any second.
    fn most_in_a_second(sent: &[(u64, usize)]) -> usize {
        let (mut first, mut bytes, mut most) = (0, 0, 0);
        for (end, len) in sent {
            bytes += len;
            while sent[first].0 + 1_000_000 <= *end {
                bytes -= sent[first].1;
                first += 1;
            }
            most = most.max(bytes);
        }
        most
    }

    /// S-07: replies to all origins have at most 50 kB in any second, even if every query is forged.
    #[test]
    fn hard_total_holds_if_every_address_is_forged_twice() {
        for len in [40, 420, 2000] {
            let mut limiter = QueryLimiter::new(9);
            let mut random = random_numbers(4);
            let (mut sent, mut recent) = (Vec::new(), [Ipv4Addr::UNSPECIFIED; 2000]);
            for step in 0..40_000_usize {
                let (micros, place) = (step as u64 * 500, step % recent.len());
                // Each address asks again one second later.
                let again = std::mem::replace(&mut recent[place], Ipv4Addr::from(random()));
                let home = Ipv4Addr::from(0x0A00_0000 + random() % 4);
                let master = Ipv4Addr::from(0xCB00_7100 + random() % 4);
                for (origin, from) in [
                    (QueryOrigin::Unverified, recent[place]),
                    (QueryOrigin::Unverified, again),
                    (QueryOrigin::Home, home),
                    (QueryOrigin::ListServer, master),
                ] {
                    let now = Time::from_micros(micros);
                    if limiter.allow_query(origin, from, 100, now) {
                        assert!(limiter.allow_reply(origin, from, len, 100, now));
                        sent.push((micros, len));
                    }
                }
            }
            let most = most_in_a_second(&sent);
            assert!(most <= 50_000, "{most}");
            let per_second = sent.iter().map(|(_, len)| len).sum::<usize>() / 20;
            assert!(per_second <= 28_000, "{per_second}");
            assert!(len < 250 || per_second >= 20_000, "{per_second}");
            assert!(sent.len() / 20 <= 26_500 / 250, "{}", sent.len() / 20);
        }
    }

    /// S-07: a client asks up to three times in five seconds, while others forge queries of its network.
    #[test]
    fn forged_queries_of_a_network_do_not_hide_the_server_from_it() {
        let honest = Ipv4Addr::new(198, 51, 100, 7);
        for (rate, addresses, len) in
            [(2, 256, 420), (2, 256, 700), (2, 1, 700), (2, 8, 700), (10, 8, 700), (1000, 8, 420)]
        {
            let mut limiter = QueryLimiter::new(11);
            let mut random = random_numbers(rate);
            let mut answers = |from, now| {
                limiter.allow_query(QueryOrigin::Unverified, from, 100, now)
                    && limiter.allow_reply(QueryOrigin::Unverified, from, len, 100, now)
            };
            let (mut answered, mut is_waiting) = (0, false);
            for millis in 0..1_000_000_u64 {
                let now = Time::from_micros(millis * 1000);
                if millis.is_multiple_of(1000 / rate) {
                    // The first of them is the address of the client, if it is the only one.
                    let last = if addresses == 1 { 7 } else { (random() % addresses + 8) & 0xFF };
                    let _ = answers(Ipv4Addr::from(0xC633_6400 + last), now);
                }
                if [0, 1_700, 3_400].contains(&(millis % 5_000)) {
                    is_waiting |= millis % 5_000 == 0;
                    if is_waiting && answers(honest, now) {
                        (answered, is_waiting) = (answered + 1, false);
                    }
                }
            }
            assert!(
                answered >= 190,
                "{answered} of 200: {rate} per second, {addresses} addresses, {len} bytes"
            );
        }
    }

    /// S-07: eight machines ask at once, every two seconds, and another one as fast as it can.
    #[test]
    fn home_network_is_always_answered() {
        for flood in [false, true] {
            let mut limiter = QueryLimiter::new(12);
            let mut answers = |last, now| {
                let from = Ipv4Addr::new(192, 168, 1, last);
                limiter.allow_query(QueryOrigin::Home, from, 1, now)
                    && limiter.allow_reply(QueryOrigin::Home, from, if flood { 450 } else { 1100 }, 1, now)
            };
            for millis in 0..100_000_u64 {
                let now = Time::from_micros(millis * 1000);
                if flood {
                    let _ = answers(200, now);
                }
                if millis.is_multiple_of(2000) {
                    assert_eq!((1..=8).filter(|last| answers(*last, now)).count(), 8, "at {millis} ms");
                }
            }
        }
    }

    #[test]
    fn trusted_address_is_always_answered() {
        let mut limiter = QueryLimiter::new(3);
        for _ in 0..10_000 {
            assert!(limiter.allow_query(QueryOrigin::Trusted, Ipv4Addr::LOCALHOST, 1, Time::ZERO));
            assert!(limiter.allow_reply(QueryOrigin::Trusted, Ipv4Addr::LOCALHOST, 100_000, 1, Time::ZERO));
        }
    }
}
