//! List servers are told that this server exists (S-09).

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_transport::Time;

/// The list servers of a session.
#[derive(Debug, Default)]
pub struct Masters(Vec<Master>);

#[derive(Debug)]
struct Master {
    address: SocketAddrV4,
    next: Time,
    pause: Duration,
    seen: Option<Time>,
    /// When it was told for the first time.
    since: Option<Time>,
    /// Its silence was told.
    is_lost: bool,
}

impl Masters {
    /// These are the list servers from now on. Keeps what is known of those that stay.
    pub fn set(&mut self, addresses: &[SocketAddrV4]) {
        self.0.retain(|master| addresses.contains(&master.address));
        for address in addresses {
            if !self.0.iter().any(|master| master.address == *address) {
                let (next, pause) = (Time::ZERO, OFTEN);
                self.0.push(Master {
                    address: *address,
                    next,
                    pause,
                    seen: None,
                    since: None,
                    is_lost: false,
                });
            }
        }
    }

    /// What they were told is no longer so: each is told again at once.
    pub fn hurry(&mut self) {
        for master in &mut self.0 {
            master.next = Time::ZERO;
        }
    }

    /// Returns when the next heartbeat is due.
    #[must_use]
    pub fn due(&self) -> Option<Time> {
        self.0.iter().map(|master| master.next).min()
    }

    /// Returns whose heartbeat is due. One that is never heard of is told less and less often, but for ever.
    pub fn beat(&mut self, now: Time) -> Option<SocketAddrV4> {
        let master = self.0.iter_mut().find(|master| master.next <= now)?;
        master.next = now + master.pause;
        master.since.get_or_insert(now);
        let heard = master.seen.is_some_and(|seen| now.since(seen) < FORGOTTEN);
        master.pause = if heard { OFTEN } else { (master.pause * 2).min(RARELY) };
        Some(master.address)
    }

    /// A datagram came from `from`. Returns which master that is, if nobody knew that it lives. Some ask from another
    /// port than the one they listen at.
    pub fn heard(&mut self, from: SocketAddrV4, now: Time) -> Option<SocketAddrV4> {
        let same = self.0.iter().position(|master| master.address == from);
        let near = || self.0.iter().position(|master| master.address.ip() == from.ip());
        let master = same.or_else(near).and_then(|at| self.0.get_mut(at))?;
        let news = master.is_lost || master.seen.is_none_or(|seen| now.since(seen) >= FORGOTTEN);
        (master.seen, master.is_lost) = (Some(now), false);
        master.pause = OFTEN;
        master.next = master.next.min(now + OFTEN);
        news.then_some(master.address)
    }

    /// Returns a list server that was told and is not heard of any more, or never was. Each once, until it is heard again.
    pub fn lost(&mut self, now: Time) -> Option<SocketAddrV4> {
        let is_silent = |master: &Master| {
            let heard = master.seen.max(master.since);
            !master.is_lost && heard.is_some_and(|heard| now.since(heard) >= Self::LOST)
        };
        let master = self.0.iter_mut().find(|master| is_silent(master))?;
        master.is_lost = true;
        Some(master.address)
    }

    /// A list server is lost that was not heard of for so long: it asks after each of our heartbeats, or after some.
    pub const LOST: Duration = Duration::from_secs(300);

    /// Returns whether a list server has this address.
    #[must_use]
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        self.0.iter().any(|master| *master.address.ip() == address)
    }

    /// Returns each with how long ago it was heard of.
    pub(crate) fn last_seen(&self, now: Time) -> impl Iterator<Item = (SocketAddrV4, Option<Duration>)> {
        self.0.iter().map(move |master| (master.address, master.seen.map(|seen| now.since(seen))))
    }
}

/// Returns what a list server is told: that a server is reached at `port` of the address this comes from.
#[must_use]
pub fn heartbeat(port: u16) -> Vec<u8> {
    format!("\\heartbeat\\{port}\\gamename\\bcommander").into_bytes()
}

const OFTEN: Duration = Duration::from_secs(60);
const RARELY: Duration = Duration::from_secs(600);
/// A list server forgets a server after this long; so do we forget it.
const FORGOTTEN: Duration = Duration::from_secs(1800);

#[cfg(test)]
mod tests {
    use super::*;

    /// S-09
    #[test]
    fn a_silent_list_server_is_told_less_often_but_for_ever() {
        let address = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 9), 27900);
        let mut masters = Masters::default();
        masters.set(&[address]);
        let mut times = Vec::new();
        for _ in 0..8 {
            let now = masters.due().expect("always a next one");
            assert_eq!((masters.beat(now), masters.beat(now)), (Some(address), None));
            times.push(now.as_micros() / 1_000_000);
        }
        assert_eq!(times, [0, 60, 180, 420, 900, 1500, 2100, 2700]);
        let now = Time::from_micros(2_710_000_000);
        assert_eq!((masters.heard(address, now), masters.heard(address, now)), (Some(address), None));
        assert_eq!(masters.due(), Some(Time::from_micros(2_770_000_000)));
        assert_eq!(masters.heard(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 27900), now), None);
    }

    /// S-09
    #[test]
    fn a_list_server_that_falls_silent_is_told_once() {
        let address = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 9), 27900);
        let at = |seconds: u64| Time::from_micros(seconds * 1_000_000);
        let mut masters = Masters::default();
        masters.set(&[address]);
        assert_eq!((masters.lost(at(0)), masters.beat(at(0))), (None, Some(address)));
        assert_eq!(
            (masters.lost(at(299)), masters.lost(at(300)), masters.lost(at(900))),
            (None, Some(address), None)
        );
        assert_eq!(masters.heard(address, at(1000)), Some(address), "it is back");
        assert_eq!((masters.lost(at(1299)), masters.lost(at(1300))), (None, Some(address)));
    }

    /// S-09
    #[test]
    fn list_servers_at_one_address_are_told_apart_by_their_ports() {
        let [first, second, other] =
            [27900, 27910, 27901].map(|port| SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 9), port));
        let mut masters = Masters::default();
        masters.set(&[first, second]);
        assert_eq!(masters.heard(second, Time::ZERO), Some(second));
        assert_eq!(masters.heard(second, Time::ZERO), None);
        assert_eq!(masters.last_seen(Time::ZERO).next(), Some((first, None)));
        assert_eq!(masters.heard(other, Time::ZERO), Some(first), "a port that none of them has");
    }
}
