//! Rate limits for addresses and peers, in limited memory ([S-13]).
//!
//! [S-13]: bcnet_transport::wire::protocol#s-13

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::time::Duration;

use bcnet_transport::Time;

use crate::network::{NETWORK_PREFIX, Network};

/// A rate limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    count: u32,
    /// The period in microseconds.
    period_micros: u64,
    burst: u32,
}

impl Rate {
    /// Returns a rate of `count` per second, after a burst of `burst` at once.
    #[must_use]
    pub const fn per_second(count: u32, burst: u32) -> Self {
        Self { count, period_micros: 1_000_000, burst }
    }

    /// Returns a rate of one per `time`, after a burst of `burst` at once.
    #[must_use]
    pub const fn every(time: Duration, burst: u32) -> Self {
        let micros = time.as_secs().saturating_mul(1_000_000).saturating_add(time.subsec_micros() as u64);
        Self { count: 1, period_micros: micros, burst }
    }

    const fn capacity(self) -> u64 {
        self.period_micros.saturating_mul(self.burst as u64)
    }
}

/// A token bucket.
///
/// The caller passes the [`Rate`] each time, so the rate can change and takes no memory.
#[derive(Debug, Clone, Copy)]
pub struct TokenBucket {
    /// The level in units. A token has as many units as the period of the rate has microseconds.
    level: u64,
    refilled_at: Time,
}

impl TokenBucket {
    /// Returns a full bucket.
    #[must_use]
    pub const fn new(rate: Rate, now: Time) -> Self {
        Self { level: rate.capacity(), refilled_at: now }
    }

    /// Takes `cost` tokens. Returns `false` and takes none if there are fewer.
    #[must_use]
    pub fn take(&mut self, cost: u32, rate: Rate, now: Time) -> bool {
        let refill = now.micros_since(self.refilled_at).saturating_mul(rate.count.into());
        self.level = self.level.saturating_add(refill).min(rate.capacity());
        self.refilled_at = self.refilled_at.max(now);
        let cost = rate.period_micros.saturating_mul(cost.into());
        let is_enough = self.level >= cost;
        if is_enough {
            self.level -= cost;
        }
        is_enough
    }
}

/// Limits the joins of each address and its network (S-13).
///
/// Only verified addresses are recorded, so an attacker cannot fill the table with spoofed ones.
#[derive(Debug, Default)]
pub(crate) struct JoinLimiter {
    recent: VecDeque<(Network, TokenBucket)>,
}

impl JoinLimiter {
    /// Returns whether `from` may join now.
    pub(crate) fn may_join(&self, from: Ipv4Addr, now: Time) -> bool {
        join_limits(from).into_iter().all(|(network, rate)| {
            let known = self.recent.iter().find(|(other, _)| *other == network);
            known.is_none_or(|&(_, mut bucket)| bucket.take(1, rate, now))
        })
    }

    /// Records that `from` has joined.
    pub(crate) fn record_join(&mut self, from: Ipv4Addr, now: Time) {
        for (network, rate) in join_limits(from) {
            let known = self.recent.iter().position(|(other, _)| *other == network);
            let known = known.and_then(|at| self.recent.remove(at));
            let (_, mut bucket) = known.unwrap_or_else(|| (network, TokenBucket::new(rate, now)));
            let _ = bucket.take(1, rate, now);
            if self.recent.len() >= MAX_RECENT {
                self.recent.pop_front();
            }
            self.recent.push_back((network, bucket));
        }
    }
}

/// Returns the address and the network whose joins are limited, and their rates.
fn join_limits(from: Ipv4Addr) -> [(Network, Rate); 2] {
    [
        (Network::containing(from, 32), JOIN_RATE_PER_ADDRESS),
        (Network::containing(from, NETWORK_PREFIX), JOIN_RATE_PER_NETWORK),
    ]
}

/// The join rate of one address.
///
/// A household can join at once. After that the rate is that of a person who leaves and comes back.
const JOIN_RATE_PER_ADDRESS: Rate = Rate::every(Duration::from_secs(5), 16);
/// The join rate of all addresses of a network.
const JOIN_RATE_PER_NETWORK: Rate = Rate::every(Duration::from_secs(2), 32);
/// The most addresses and networks that are remembered.
const MAX_RECENT: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_bucket_refills_over_time() {
        let rate = Rate::per_second(4, 2);
        let mut bucket = TokenBucket::new(rate, Time::ZERO);
        let mut take = |now| bucket.take(1, rate, Time::from_micros(now));
        assert_eq!([take(0), take(0), take(0)], [true, true, false]);
        assert_eq!([take(249_999), take(250_000), take(250_001)], [false, true, false]);
        assert_eq!([take(9_000_000), take(9_000_000), take(9_000_000)], [true, true, false]);
    }

    #[test]
    fn rate_below_one_per_second_is_supported() {
        let rate = Rate::every(Duration::from_secs(10), 1);
        let mut bucket = TokenBucket::new(rate, Time::ZERO);
        let mut take = |now| bucket.take(1, rate, Time::from_micros(now));
        assert_eq!([take(5), take(10_000_004), take(10_000_005)], [true, false, true]);
    }

    /// S-13
    #[test]
    fn join_limit_of_one_address_does_not_affect_others() {
        let mut limiter = JoinLimiter::default();
        let [busy, near, far] = [[192, 0, 2, 1], [192, 0, 9, 9], [198, 51, 100, 1]].map(Ipv4Addr::from);
        let mut joins = |from, now| {
            let may = limiter.may_join(from, now);
            if may {
                limiter.record_join(from, now);
            }
            may
        };
        let hour = (0..3600).filter(|second| joins(busy, Time::from_micros(second * 1_000_000))).count();
        assert!((16 + 3600 / 5 - 2..=16 + 3600 / 5).contains(&hour), "{hour}");
        let now = Time::from_micros(3_600_000_000);
        assert!(joins(near, now) && joins(far, now));
    }

    /// S-13: the rate applies to all addresses of one network.
    #[test]
    fn join_limit_covers_a_whole_network() {
        let mut limiter = JoinLimiter::default();
        let joined = (0..10_000_u32).filter(|n| {
            let from = Ipv4Addr::from(0xC000_0000 + n % 0xFFFF);
            let may = limiter.may_join(from, Time::ZERO);
            if may {
                limiter.record_join(from, Time::ZERO);
            }
            may
        });
        assert_eq!(joined.count(), 32);
        assert!(limiter.recent.len() <= MAX_RECENT);
    }

    /// S-13: when the table is full, the limiter forgets the network that joined least recently.
    #[test]
    fn full_join_limiter_forgets_the_oldest_network() {
        let mut limiter = JoinLimiter::default();
        let busy = Ipv4Addr::new(192, 0, 2, 1);
        let others = (0..).map(|n: u32| Ipv4Addr::from(0x0A00_0000 + (n << 16)));
        for other in others.take(MAX_RECENT) {
            limiter.record_join(other, Time::ZERO);
        }
        (0..16).for_each(|_| limiter.record_join(busy, Time::ZERO));
        assert_eq!(limiter.recent.len(), MAX_RECENT);
        assert!(!limiter.may_join(busy, Time::ZERO), "the busy address used its burst");
        // An address and its network are one entry each, so these joins fill half of the table.
        for n in 0..64_u32 {
            limiter.record_join(Ipv4Addr::from(0x0B00_0000 + (n << 16)), Time::ZERO);
        }
        assert!(!limiter.may_join(busy, Time::ZERO), "newer entries push out older ones first");
    }
}
