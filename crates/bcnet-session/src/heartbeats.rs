//! Heartbeats: announces a server to list servers ([S-09]).
//!
//! [`ListServers`] decides when a heartbeat is due, and which list servers are lost. It sends nothing itself.
//!
//! [S-09]: bcnet_transport::wire::protocol#s-09

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_transport::Time;

/// The list servers of a session.
#[derive(Debug, Default)]
pub struct ListServers(Vec<ListServerEntry>);

#[derive(Debug)]
struct ListServerEntry {
    address: SocketAddrV4,
    next_heartbeat: Time,
    interval: Duration,
    last_seen: Option<Time>,
    /// The time of the first heartbeat.
    first_heartbeat: Option<Time>,
    /// True if the loss was reported.
    is_lost: bool,
}

impl ListServers {
    /// Replaces the list servers. The state of those that stay is kept.
    pub fn set_addresses(&mut self, addresses: &[SocketAddrV4]) {
        self.0.retain(|master| addresses.contains(&master.address));
        for address in addresses {
            if !self.0.iter().any(|master| master.address == *address) {
                let (next, interval) = (Time::ZERO, MIN_INTERVAL);
                self.0.push(ListServerEntry {
                    address: *address,
                    next_heartbeat: next,
                    interval,
                    last_seen: None,
                    first_heartbeat: None,
                    is_lost: false,
                });
            }
        }
    }

    /// Makes all heartbeats due at once, for example when the port has changed.
    pub fn send_now(&mut self) {
        for master in &mut self.0 {
            master.next_heartbeat = Time::ZERO;
        }
    }

    /// Returns the time at which the next heartbeat is due.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        self.0.iter().map(|master| master.next_heartbeat).min()
    }

    /// Returns a list server whose heartbeat is due.
    ///
    /// For a list server that never sends anything, the interval grows to its maximum. The heartbeats never stop.
    pub fn poll_heartbeat(&mut self, now: Time) -> Option<SocketAddrV4> {
        let master = self.0.iter_mut().find(|master| master.next_heartbeat <= now)?;
        master.next_heartbeat = now + master.interval;
        master.first_heartbeat.get_or_insert(now);
        let is_alive = master.last_seen.is_some_and(|seen| now.since(seen) < FORGET_AFTER);
        master.interval = if is_alive { MIN_INTERVAL } else { (master.interval * 2).min(MAX_INTERVAL) };
        Some(master.address)
    }

    /// Handles a datagram from `from`. Returns the list server that sent it, if it was new or lost.
    ///
    /// Some list servers send queries from another port than their own. So the address alone is enough.
    pub fn on_datagram(&mut self, from: SocketAddrV4, now: Time) -> Option<SocketAddrV4> {
        let same = self.0.iter().position(|master| master.address == from);
        let near = || self.0.iter().position(|master| master.address.ip() == from.ip());
        let master = same.or_else(near).and_then(|at| self.0.get_mut(at))?;
        let is_new = master.is_lost || master.last_seen.is_none_or(|seen| now.since(seen) >= FORGET_AFTER);
        (master.last_seen, master.is_lost) = (Some(now), false);
        master.interval = MIN_INTERVAL;
        master.next_heartbeat = master.next_heartbeat.min(now + MIN_INTERVAL);
        is_new.then_some(master.address)
    }

    /// Returns a list server that got heartbeats but is silent for too long. Reports each loss only once.
    pub fn poll_lost(&mut self, now: Time) -> Option<SocketAddrV4> {
        let is_silent = |master: &ListServerEntry| {
            let last_contact = master.last_seen.max(master.first_heartbeat);
            !master.is_lost && last_contact.is_some_and(|at| now.since(at) >= Self::LOST_AFTER)
        };
        let master = self.0.iter_mut().find(|master| is_silent(master))?;
        master.is_lost = true;
        Some(master.address)
    }

    /// A list server is lost after this silence. It sends a query after some or all heartbeats.
    pub const LOST_AFTER: Duration = Duration::from_secs(300);

    /// Returns whether a list server has this address.
    #[must_use]
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        self.0.iter().any(|master| *master.address.ip() == address)
    }

    /// Returns each list server with the time since its last datagram.
    pub(crate) fn last_seen(&self, now: Time) -> impl Iterator<Item = (SocketAddrV4, Option<Duration>)> {
        self.0.iter().map(move |master| (master.address, master.last_seen.map(|seen| now.since(seen))))
    }
}

/// Returns a heartbeat: it announces a server at `port` of the address that sends it.
#[must_use]
pub fn heartbeat(port: u16) -> Vec<u8> {
    format!("\\heartbeat\\{port}\\gamename\\bcommander").into_bytes()
}

const MIN_INTERVAL: Duration = Duration::from_secs(60);
const MAX_INTERVAL: Duration = Duration::from_secs(600);
/// List servers forget a server after this time, and bcnet forgets a list server likewise.
const FORGET_AFTER: Duration = Duration::from_secs(1800);

#[cfg(test)]
mod tests {
    use super::*;

    /// S-09
    #[test]
    fn heartbeats_to_a_silent_list_server_back_off() {
        let address = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 9), 27900);
        let mut masters = ListServers::default();
        masters.set_addresses(&[address]);
        let mut times = Vec::new();
        for _ in 0..8 {
            let now = masters.next_deadline().expect("a heartbeat is always due");
            assert_eq!((masters.poll_heartbeat(now), masters.poll_heartbeat(now)), (Some(address), None));
            times.push(now.as_micros() / 1_000_000);
        }
        assert_eq!(times, [0, 60, 180, 420, 900, 1500, 2100, 2700]);
        let now = Time::from_micros(2_710_000_000);
        assert_eq!(
            (masters.on_datagram(address, now), masters.on_datagram(address, now)),
            (Some(address), None)
        );
        assert_eq!(masters.next_deadline(), Some(Time::from_micros(2_770_000_000)));
        assert_eq!(masters.on_datagram(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 27900), now), None);
    }

    /// S-09
    #[test]
    fn silent_list_server_is_reported_lost_once() {
        let address = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 9), 27900);
        let at = |seconds: u64| Time::from_micros(seconds * 1_000_000);
        let mut masters = ListServers::default();
        masters.set_addresses(&[address]);
        assert_eq!((masters.poll_lost(at(0)), masters.poll_heartbeat(at(0))), (None, Some(address)));
        assert_eq!(
            (masters.poll_lost(at(299)), masters.poll_lost(at(300)), masters.poll_lost(at(900))),
            (None, Some(address), None)
        );
        assert_eq!(masters.on_datagram(address, at(1000)), Some(address), "the list server is back");
        assert_eq!((masters.poll_lost(at(1299)), masters.poll_lost(at(1300))), (None, Some(address)));
    }

    /// S-09
    #[test]
    fn list_servers_on_one_address_differ_by_port() {
        let [first, second, other] =
            [27900, 27910, 27901].map(|port| SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 9), port));
        let mut masters = ListServers::default();
        masters.set_addresses(&[first, second]);
        assert_eq!(masters.on_datagram(second, Time::ZERO), Some(second));
        assert_eq!(masters.on_datagram(second, Time::ZERO), None);
        assert_eq!(masters.last_seen(Time::ZERO).next(), Some((first, None)));
        assert_eq!(masters.on_datagram(other, Time::ZERO), Some(first), "a port of no list server");
    }
}
