//! Which questions of browsers and list servers are answered (S-07).

use std::net::Ipv4Addr;
use std::time::Duration;

use bcnet_transport::Time;

use crate::quota::{BloomFilter, Quotas};
use crate::rate_limit::{Rate, TokenBucket};

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryOrigin {
    /// Nobody in particular: the address may be forged.
    Unverified,
    /// A list server that the host has named.
    ListServer,
    /// Whoever the host trusts. No limit applies.
    Trusted,
}

/// S-07: what each /24 network and all of them together are answered. While few ask, everyone is answered; while many do,
/// those who ask again from the same address, as people and browsers do and forgers of addresses do not.
#[derive(Debug)]
pub struct QueryLimiter {
    /// Bytes.
    network_quotas: Quotas,
    /// Bytes, too.
    list_server_quotas: Quotas,
    all_queries: TokenBucket,
    repeated_queries: TokenBucket,
    recent_addresses: BloomFilter,
}

impl QueryLimiter {
    /// Nobody has asked yet.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        // A bucket that is fuller than it can be is full.
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

    /// Returns whether a question of `from` is to be answered, if so many are per second. The answer must still be paid
    /// for with [`spend`](Self::spend).
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

    /// Returns whether `from` may be sent these bytes. If not, its network has had its share.
    #[must_use]
    pub fn allow_reply(&mut self, origin: QueryOrigin, from: Ipv4Addr, bytes: usize, now: Time) -> bool {
        let quotas = match origin {
            QueryOrigin::Trusted => return true,
            QueryOrigin::ListServer => &mut self.list_server_quotas,
            QueryOrigin::Unverified => &mut self.network_quotas,
        };
        let is_within_quota = u16::try_from(bytes).is_ok_and(|bytes| quotas.take(from, bytes, now));
        if !is_within_quota {
            // Or every further question would be worked out in vain.
            quotas.exhaust(from, now);
        }
        is_within_quota
    }
}

/// Bytes that one /24 network is sent in any [`SPAN`].
const MAX_BYTES_PER_NETWORK: u16 = 2000;
/// The same for a list server, in whose name somebody else may ask.
const MAX_BYTES_PER_LIST_SERVER: u16 = 20_000;
const QUOTA_SPAN: Duration = Duration::from_secs(10);
/// Networks that can be told apart: more than are answered in the span.
const NETWORK_CAPACITY: usize = 1 << 14;
const LIST_SERVER_CAPACITY: usize = 64;
/// Who asks again within this time is heard even if too many ask.
const REPEAT_WINDOW: Duration = Duration::from_secs(5);
/// So many times as many of them are answered as of all others.
const REPEAT_FACTOR: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    const REPLY_LEN: usize = 420;

    struct LimitedServer(QueryLimiter);

    impl LimitedServer {
        /// Whether a question is answered.
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

    /// S-07: 20,000 questions a second from any address of 65,000 networks. In each of ten rounds ten askers come that
    /// were never there, and one that was.
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
        assert!(answered < 48, "in its name somebody else may ask: {answered}");
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
