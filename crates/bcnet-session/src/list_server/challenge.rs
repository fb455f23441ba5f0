//! Address verification of servers, without state for unverified addresses.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddrV4;
use std::time::Duration;

use bcnet_transport::Time;

use super::text::Challenge;

/// The challenges of a list server. Each address gets an unpredictable challenge, a new one every minute.
#[derive(Debug)]
pub(super) struct Challenges {
    secret: u64,
}

impl Challenges {
    pub(super) const fn new(secret: u64) -> Self {
        Self { secret }
    }

    /// Returns the current challenge for `from`.
    pub(super) fn current(&self, from: SocketAddrV4, now: Time) -> Challenge {
        self.at_minute(from, minute(now))
    }

    /// Returns the challenges that `from` may have got within the last minute.
    pub(super) fn recent(&self, from: SocketAddrV4, now: Time) -> impl Iterator<Item = Challenge> + use<> {
        let current = minute(now);
        [Some(current), current.checked_sub(1)]
            .map(|minute| minute.map(|minute| self.at_minute(from, minute)))
            .into_iter()
            .flatten()
    }

    fn at_minute(&self, from: SocketAddrV4, minute: u64) -> Challenge {
        Challenge::new(hash((self.secret, from, minute)))
    }
}

/// The ports that heartbeats announce, in a table of fixed size. New entries overwrite old ones.
///
/// If an entry was overwritten, the list server uses the UDP source port of the server's datagrams instead. Nearly all
/// servers announce that port.
#[derive(Debug)]
pub(super) struct PortHints {
    secret: u64,
    entries: Vec<Option<(SocketAddrV4, u16)>>,
}

impl PortHints {
    pub(super) fn new(secret: u64) -> Self {
        Self { secret, entries: vec![None; PORT_HINT_CAPACITY] }
    }

    pub(super) fn record(&mut self, from: SocketAddrV4, port: u16) {
        let index = self.index_of(from);
        if let Some(entry) = self.entries.get_mut(index) {
            *entry = Some((from, port));
        }
    }

    pub(super) fn find(&self, from: SocketAddrV4) -> Option<u16> {
        self.entries.get(self.index_of(from))?.filter(|(owner, _)| *owner == from).map(|(_, port)| port)
    }

    fn index_of(&self, from: SocketAddrV4) -> usize {
        usize::try_from(hash((self.secret, from)) % PORT_HINT_CAPACITY as u64).unwrap_or(0)
    }
}

fn minute(now: Time) -> u64 {
    now.since(Time::ZERO).as_secs() / CHALLENGE_PERIOD.as_secs()
}

fn hash(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

const CHALLENGE_PERIOD: Duration = Duration::from_secs(60);
const PORT_HINT_CAPACITY: usize = 1 << 15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenge_is_per_address_and_expires() {
        let challenges = Challenges::new(7);
        let [one, other] = [1, 2].map(|port| SocketAddrV4::new([192, 0, 2, 1].into(), port));
        let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
        let asked = challenges.current(one, at(59));
        let is_known =
            |from, seconds| challenges.recent(from, at(seconds)).any(|challenge| challenge == asked);
        assert_eq!([59, 60, 119, 120].map(|seconds| is_known(one, seconds)), [true, true, true, false]);
        assert!(!is_known(other, 59));
        assert_ne!(Challenges::new(8).current(one, at(59)), asked);
    }

    #[test]
    fn port_hints_evict_older_entries() {
        let mut hints = PortHints::new(7);
        let address = |n: u32| SocketAddrV4::new((0x0B00_0000 + n).into(), 40_000);
        hints.record(address(0), 22_150);
        assert_eq!((hints.find(address(0)), hints.find(address(1))), (Some(22_150), None));
        (1..200_000).for_each(|n| hints.record(address(n), 1));
        assert_eq!(hints.find(address(0)), None);
    }
}
