//! Who may do something how often, in bounded memory.

use std::net::Ipv4Addr;

use bcnet_transport::Time;

/// Tokens that come back over time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bucket {
    /// Millionths of a token.
    level: u64,
    filled: Time,
}

impl Bucket {
    /// A full bucket.
    pub(crate) const fn new(burst: u32, now: Time) -> Self {
        Self { level: burst as u64 * TOKEN, filled: now }
    }

    /// Takes `cost` tokens, if there are as many. `rate` come back per second, up to `burst`.
    pub(crate) fn take(&mut self, cost: u32, rate: u32, burst: u32, now: Time) -> bool {
        let elapsed = now.as_micros().saturating_sub(self.filled.as_micros());
        // A token per second is a millionth of it per microsecond.
        let back = elapsed.saturating_mul(rate.into());
        self.level = self.level.saturating_add(back).min(u64::from(burst) * TOKEN);
        self.filled = self.filled.max(now);
        let cost = u64::from(cost) * TOKEN;
        let enough = self.level >= cost;
        if enough {
            self.level -= cost;
        }
        enough
    }
}

/// S-07: how often each /24 network is answered. A fixed table: a network shares its place with the few that hash
/// alike, and whoever was heard least lately gives way.
#[derive(Debug)]
pub(crate) struct Networks {
    seed: u64,
    places: Vec<Option<(u32, Bucket)>>,
    /// All networks together, so that many spoofed ones do not add up.
    all: Bucket,
}

impl Networks {
    pub(crate) const fn new(seed: u64) -> Self {
        Self { seed, places: Vec::new(), all: Bucket::new(0, Time::ZERO) }
    }

    /// Whether `from` may be answered now.
    pub(crate) fn allow(&mut self, from: Ipv4Addr, rate: u32, now: Time) -> bool {
        if self.places.is_empty() {
            self.places.resize(PLACES, None);
            self.all = Bucket::new(rate.saturating_mul(ALL), now);
        }
        let network = u32::from(from) >> 8;
        let start = self.place(network);
        let Some(near) = self.places.get_mut(start..start + WAYS) else { return false };
        let found = near.iter().position(|place| place.is_some_and(|(other, _)| other == network));
        let at = found.unwrap_or_else(|| oldest(near));
        let Some(place) = near.get_mut(at) else { return false };
        if found.is_none() {
            *place = Some((network, Bucket::new(rate, now)));
        }
        let (_, bucket) = place.get_or_insert((network, Bucket::new(rate, now)));
        bucket.take(1, rate, rate, now)
            && self.all.take(1, rate.saturating_mul(ALL), rate.saturating_mul(ALL), now)
    }

    fn place(&self, network: u32) -> usize {
        let mixed = (u64::from(network) ^ self.seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        usize::try_from(mixed).unwrap_or(0) % (PLACES / WAYS) * WAYS
    }
}

/// The place that is free or was used least lately.
fn oldest(places: &[Option<(u32, Bucket)>]) -> usize {
    let used = |place: &Option<(u32, Bucket)>| place.map(|(_, bucket)| bucket.filled);
    (0..places.len()).min_by_key(|at| places.get(*at).and_then(used)).unwrap_or(0)
}

const TOKEN: u64 = 1_000_000;
const PLACES: usize = 1024;
const WAYS: usize = 4;
/// How many networks' worth of replies leave at most.
const ALL: u32 = 50;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_bucket_gives_back_what_time_brings() {
        let mut bucket = Bucket::new(2, Time::ZERO);
        let mut take = |now| bucket.take(1, 4, 2, Time::from_micros(now));
        assert_eq!([take(0), take(0), take(0)], [true, true, false]);
        assert_eq!([take(249_999), take(250_000), take(250_001)], [false, true, false]);
        assert_eq!([take(9_000_000), take(9_000_000), take(9_000_000)], [true, true, false]);
    }

    /// S-07
    #[test]
    fn a_network_is_answered_ten_times_a_second_whatever_others_do() {
        let mut networks = Networks::new(7);
        let mut now = Time::ZERO;
        let mut answered = 0;
        for step in 0..10_000_u32 {
            now = now + Duration::from_millis(1);
            networks.allow(Ipv4Addr::from(0x0A00_0000 + ((step % 3) << 8)), 10, now);
            answered += u32::from(networks.allow(Ipv4Addr::from(0xC000_0200 + step % 256), 10, now));
        }
        assert!((100..=110).contains(&answered), "{answered}");
    }

    /// S-07
    #[test]
    fn spoofed_networks_do_not_add_up_and_take_no_memory() {
        let mut networks = Networks::new(7);
        let answered = (0..1_000_000_u32)
            .filter(|n| networks.allow(Ipv4Addr::from(n << 8), 10, Time::from_micros(u64::from(*n))))
            .count();
        assert!((500..=1_000).contains(&answered), "{answered}");
        assert_eq!(networks.places.len(), PLACES);
    }
}
