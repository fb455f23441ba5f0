//! Limits the replies to queries of browsers and list servers ([S-07]).
//!
//! [`QueryLimiter`] decides whether a query gets a reply. It does not build replies; see `query`.
//!
//! [S-07]: bcnet_transport::wire::protocol#s-07

use std::net::Ipv4Addr;
use std::time::Duration;

use bcnet_transport::Time;

use crate::quota::{BloomFilter, Quotas};
use crate::rate_limit::{Rate, TokenBucket};

/// The origin of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryOrigin {
    /// An unverified address, which may be spoofed.
    Unverified,
    /// A list server that the operator has configured.
    ListServer,
    /// An address that the operator trusts. It has no limits.
    Trusted,
}

/// The limits of replies for each /24 network, and for all networks together ([S-07]).
///
/// While the queries of all networks are below the configured rate, every query is answered. Above it, only queries
/// that are repeated from the same address within five seconds are answered. People and browsers repeat queries;
/// attackers use another spoofed address each time. In both cases, the reply must fit into the byte quota of its
/// network.
///
/// [S-07]: bcnet_transport::wire::protocol#s-07
#[derive(Debug)]
pub struct QueryLimiter {
    /// In bytes.
    network_quotas: Quotas,
    /// In bytes.
    list_server_quotas: Quotas,
    all_queries: TokenBucket,
    repeated_queries: TokenBucket,
    recent_addresses: BloomFilter,
}

impl QueryLimiter {
    /// Returns a limiter that has seen no queries.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        // The first call of `take` lowers the level of this bucket to the burst of the configured rate.
        let full = TokenBucket::new(Rate::per_second(0, u32::MAX), Time::ZERO);
        Self {
            network_quotas: Quotas::new(24, MAX_BYTES_PER_NETWORK, QUOTA_SPAN, NETWORK_CAPACITY, seed),
            list_server_quotas: Quotas::new(
                32,
                MAX_BYTES_PER_LIST_SERVER,
                QUOTA_SPAN,
                LIST_SERVER_CAPACITY,
                seed,
            ),
            all_queries: full,
            repeated_queries: full,
            recent_addresses: BloomFilter::new(REPEAT_WINDOW, seed),
        }
    }

    /// Returns whether to answer a query of `from`, with a limit of `per_second` for all queries.
    ///
    /// The caller must then ask [`allow_reply`](Self::allow_reply) for the bytes of the reply.
    #[must_use]
    pub fn allow_query(&mut self, origin: QueryOrigin, from: Ipv4Addr, per_second: u32, now: Time) -> bool {
        match origin {
            QueryOrigin::Trusted => true,
            QueryOrigin::ListServer => self.list_server_quotas.remaining(from, now) > 0,
            QueryOrigin::Unverified => {
                let again = per_second.saturating_mul(REPEAT_FACTOR);
                let [all, again] = [per_second, again].map(|count| Rate::per_second(count, count));
                self.network_quotas.remaining(from, now) > 0
                    && (self.all_queries.take(1, all, now)
                        || self.recent_addresses.check_and_insert(from, now)
                            && self.repeated_queries.take(1, again, now))
            }
        }
    }

    /// Returns whether `from` may get a reply of these bytes, and deducts them from its quota.
    #[must_use]
    pub fn allow_reply(&mut self, origin: QueryOrigin, from: Ipv4Addr, bytes: usize, now: Time) -> bool {
        let quotas = match origin {
            QueryOrigin::Trusted => return true,
            QueryOrigin::ListServer => &mut self.list_server_quotas,
            QueryOrigin::Unverified => &mut self.network_quotas,
        };
        let is_within_quota = u16::try_from(bytes).is_ok_and(|bytes| quotas.take(from, bytes, now));
        if !is_within_quota {
            // No further query of this network is processed until the quota refills, because its reply would be dropped
            // too.
            quotas.exhaust(from, now);
        }
        is_within_quota
    }
}

/// The most bytes for one /24 network in any [`QUOTA_SPAN`].
const MAX_BYTES_PER_NETWORK: u16 = 2000;
/// The most bytes for a list server in any [`QUOTA_SPAN`]. Its address may be spoofed.
const MAX_BYTES_PER_LIST_SERVER: u16 = 20_000;
const QUOTA_SPAN: Duration = Duration::from_secs(10);
/// The number of networks in the table: more than can get replies within [`QUOTA_SPAN`].
const NETWORK_CAPACITY: usize = 1 << 14;
const LIST_SERVER_CAPACITY: usize = 64;
/// A repeated query within this time is answered above the rate, too.
const REPEAT_WINDOW: Duration = Duration::from_secs(5);
/// The limit for repeated queries, as a multiple of the rate.
const REPEAT_FACTOR: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    const REPLY_LEN: usize = 420;

    struct LimitedServer(QueryLimiter);

    impl LimitedServer {
        /// Returns whether a query is answered.
        fn answers(&mut self, from: Ipv4Addr, now: Time) -> bool {
            self.0.allow_query(QueryOrigin::Unverified, from, 100, now)
                && self.0.allow_reply(QueryOrigin::Unverified, from, REPLY_LEN, now)
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
    /// In each of ten rounds, ten new clients ask, and one that has asked before.
    #[test]
    fn repeated_query_is_answered_during_a_flood() {
        let mut server = LimitedServer(QueryLimiter::new(0x00C0_FFEE));
        let mut random = random_numbers(1);
        let (mut forged, mut answered) = (0_u32, 0);
        let mut waiting: Vec<Ipv4Addr> = Vec::new();
        for millis in 0..68_000_u32 {
            for n in 0..20 {
                let now = Time::from_micros(u64::from(millis) * 1000 + n * 50);
                let address = Ipv4Addr::from(0x0B00_0000 + random() % (65_000 << 8));
                forged += u32::from(server.answers(address, now));
            }
            let (round, attempt) = (millis / 6_800, millis % 6_800 / 1_700);
            if millis % 1_700 != 0 || attempt == 3 {
                continue;
            }
            if attempt == 0 {
                waiting = (0..10).map(|n| Ipv4Addr::from(0x5000_0001 + ((round * 10 + n) << 8))).collect();
                waiting.push(Ipv4Addr::new(198, 51, 100, 7));
            }
            let before = waiting.len();
            let now = Time::from_micros(u64::from(millis) * 1000 + 999);
            waiting.retain(|asker| !server.answers(*asker, now));
            answered += before - waiting.len();
        }
        assert!(answered >= 108, "{answered} of 110");
        assert!(forged < 68 * 500, "{forged} in 68 seconds");
    }

    /// S-07
    #[test]
    fn network_never_exceeds_its_byte_quota() {
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
        assert!(most * REPLY_LEN <= 2000 && most * REPLY_LEN > 1500, "{most} in ten seconds");
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
                assert!(limiter.allow_reply(QueryOrigin::ListServer, master, REPLY_LEN, now));
            }
        }
        let now = Time::from_micros(10_000_000);
        let asked = |limiter: &mut QueryLimiter| {
            limiter.allow_query(QueryOrigin::ListServer, master, 100, now)
                && limiter.allow_reply(QueryOrigin::ListServer, master, REPLY_LEN, now)
        };
        let answered = (0..1_000).filter(|_| asked(&mut limiter)).count();
        assert!(answered < 48, "the address may be spoofed, so replies are limited: {answered}");
    }

    #[test]
    fn trusted_address_is_always_answered() {
        let mut limiter = QueryLimiter::new(3);
        for _ in 0..10_000 {
            assert!(limiter.allow_query(QueryOrigin::Trusted, Ipv4Addr::LOCALHOST, 1, Time::ZERO));
            assert!(limiter.allow_reply(QueryOrigin::Trusted, Ipv4Addr::LOCALHOST, 100_000, Time::ZERO));
        }
    }
}
