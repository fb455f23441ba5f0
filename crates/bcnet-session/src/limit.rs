//! How often an address or a peer may do something, in bounded memory.

use std::net::Ipv4Addr;
use std::time::Duration;

use bcnet_transport::Time;

/// How often something may happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    count: u32,
    /// In microseconds.
    per: u64,
    burst: u32,
}

impl Rate {
    /// `burst` times at once, and then `count` times a second.
    #[must_use]
    pub const fn per_second(count: u32, burst: u32) -> Self {
        Self { count, per: 1_000_000, burst }
    }

    /// `burst` times at once, and then once in this time.
    #[must_use]
    pub const fn every(time: Duration, burst: u32) -> Self {
        let per = time.as_secs().saturating_mul(1_000_000).saturating_add(time.subsec_micros() as u64);
        Self { count: 1, per, burst }
    }

    const fn full(self) -> u64 {
        self.per.saturating_mul(self.burst as u64)
    }
}

/// Counts how often something may still happen: a bucket of tokens that come back over time. Its [`Rate`] is told each
/// time, so that it may change and takes no memory.
#[derive(Debug, Clone, Copy)]
pub struct Bucket {
    /// Tokens, each as many as a rate has microseconds.
    level: u64,
    filled: Time,
}

impl Bucket {
    /// Returns a full bucket.
    #[must_use]
    pub const fn new(rate: Rate, now: Time) -> Self {
        Self { level: rate.full(), filled: now }
    }

    /// Takes `cost` tokens. Returns `false`, and takes none, if there are fewer.
    #[must_use]
    pub fn take(&mut self, cost: u32, rate: Rate, now: Time) -> bool {
        let back = now.micros_since(self.filled).saturating_mul(rate.count.into());
        self.level = self.level.saturating_add(back).min(rate.full());
        self.filled = self.filled.max(now);
        let cost = rate.per.saturating_mul(cost.into());
        let is_enough = self.level >= cost;
        if is_enough {
            self.level -= cost;
        }
        is_enough
    }

    /// Puts a token back.
    fn give(&mut self, rate: Rate) {
        self.level = self.level.saturating_add(rate.per).min(rate.full());
    }
}

/// S-13: who may ask to be let in, in a fixed table of /24 networks. While few ask, everyone may. While many do, only
/// those who have asked before, as clients do and forgers of addresses do not; whoever then proves to be real does not
/// count.
#[derive(Debug)]
pub(crate) struct ConnectLimiter {
    seed: u64,
    asked: Vec<Option<Asked>>,
    all: Bucket,
}

/// A network from which a query came.
#[derive(Debug, Clone, Copy)]
struct Asked {
    network: u32,
    since: Time,
    last: Time,
    bucket: Bucket,
}

impl ConnectLimiter {
    pub(crate) const fn new(seed: u64) -> Self {
        Self { seed, asked: Vec::new(), all: Bucket::new(ASKING, Time::ZERO) }
    }

    /// Returns whether the request of `from` is listened to.
    pub(crate) fn allow(&mut self, from: Ipv4Addr, now: Time) -> bool {
        self.asked.resize(ASKED, None);
        let before = match self.find(from) {
            Some(asked) => {
                asked.last = now;
                if !asked.bucket.take(1, ASKING_NETWORK, now) {
                    return false;
                }
                now.since(asked.since) >= ASKED_BEFORE
            }
            None => {
                self.remember(from, now);
                false
            }
        };
        self.all.take(1, ASKING, now) || before
    }

    /// An address that was let in and has answered is real.
    pub(crate) fn proven(&mut self, from: Ipv4Addr) {
        self.all.give(ASKING);
        if let Some(asked) = self.find(from) {
            asked.bucket.give(ASKING_NETWORK);
        }
    }

    fn find(&mut self, from: Ipv4Addr) -> Option<&mut Asked> {
        let network = u32::from(from) >> 8;
        self.near(network).iter_mut().flatten().find(|asked| asked.network == network)
    }

    /// Those who came just now are not forgotten for newer ones, or a flood would wash away whoever asks again.
    fn remember(&mut self, from: Ipv4Addr, now: Time) {
        let network = u32::from(from) >> 8;
        let mut bucket = Bucket::new(ASKING_NETWORK, now);
        let _ = bucket.take(1, ASKING_NETWORK, now);
        let oldest = self.near(network).iter_mut().min_by_key(|place| place.map(|asked| asked.last));
        if let Some(place) = oldest.filter(|place| place.is_none_or(|it| now.since(it.last) >= REMEMBERED)) {
            *place = Some(Asked { network, since: now, last: now, bucket });
        }
    }

    /// Returns where a network may be.
    fn near(&mut self, network: u32) -> &mut [Option<Asked>] {
        let start = place(network, self.seed, ASKED);
        self.asked.get_mut(start..start + WAYS).unwrap_or_default()
    }
}

/// Returns the first of the places that a network may have.
fn place(network: u32, seed: u64, places: usize) -> usize {
    let mixed = (u64::from(network) ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    usize::try_from(mixed).unwrap_or(0) % (places / WAYS) * WAYS
}

const WAYS: usize = 4;
/// Requests to be let in at once; one more comes back per second. The transport has room for 32 in ten seconds.
const ASKING: Rate = Rate::per_second(1, 20);
/// Of them, from one network: everyone of a local network may come at once.
const ASKING_NETWORK: Rate = Rate::per_second(1, 16);
/// Networks that have asked, for how long at least they are remembered, and when asking again is another time. A stock
/// client asks every second.
const ASKED: usize = 512;
const REMEMBERED: Duration = Duration::from_millis(1500);
const ASKED_BEFORE: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_back_what_time_brings() {
        let rate = Rate::per_second(4, 2);
        let mut bucket = Bucket::new(rate, Time::ZERO);
        let mut take = |now| bucket.take(1, rate, Time::from_micros(now));
        assert_eq!([take(0), take(0), take(0)], [true, true, false]);
        assert_eq!([take(249_999), take(250_000), take(250_001)], [false, true, false]);
        assert_eq!([take(9_000_000), take(9_000_000), take(9_000_000)], [true, true, false]);
    }

    #[test]
    fn a_rate_may_be_less_than_one_a_second() {
        let rate = Rate::every(Duration::from_secs(10), 1);
        let mut bucket = Bucket::new(rate, Time::ZERO);
        let mut take = |now| bucket.take(1, rate, Time::from_micros(now));
        assert_eq!([take(5), take(10_000_004), take(10_000_005)], [true, false, true]);
    }

    /// S-13
    #[test]
    fn one_network_leaves_room_for_others() {
        let mut limiter = ConnectLimiter::new(3);
        let loud = Ipv4Addr::new(192, 0, 2, 1);
        let opened = (0..10_000).filter(|n| limiter.allow(loud, Time::from_micros(n * 1000))).count();
        assert!((16..=26).contains(&opened), "{opened} in ten seconds");
        let quiet = Ipv4Addr::new(198, 51, 100, 1);
        let now = Time::from_micros(10_000_000);
        assert!(limiter.allow(quiet, now) || limiter.allow(quiet, now + Duration::from_secs(1)));
    }

    /// S-13: a thousand forged networks a second.
    #[test]
    fn in_a_flood_who_asks_again_is_listened_to() {
        let mut limiter = ConnectLimiter::new(3);
        let (mut forged, mut tries) = (0_u32, 0);
        for step in 0..20_000_u32 {
            let now = Time::from_micros(u64::from(step) * 1000);
            forged += u32::from(limiter.allow(Ipv4Addr::from(0x0B00_0000 + (step << 8)), now));
            if step >= 5000 && step % 1000 == 0 {
                tries += 1;
                if limiter.allow(Ipv4Addr::new(198, 51, 100, 1), now) {
                    break;
                }
            }
        }
        assert!((2..=10).contains(&tries), "{tries}");
        assert!(forged <= 20 + 15, "{forged}");
    }

    #[test]
    fn whoever_is_real_does_not_count() {
        let mut limiter = ConnectLimiter::new(3);
        let from = Ipv4Addr::new(192, 0, 2, 1);
        for _ in 0..1000 {
            assert!(limiter.allow(from, Time::ZERO));
            limiter.proven(from);
        }
    }
}
