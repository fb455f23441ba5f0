//! Sheds load of unknown senders when datagrams arrive faster than a session handles them.
//!
//! A full socket drops the datagrams of players and of a flood alike. So before it is full, a socket filter
//! passes only a random share of the datagrams of unknown senders. The share is halved until the session can
//! handle the rest. The system applies the filter before it queues a datagram. Players are exempt. A
//! newcomer's datagram is as likely to pass the filter as it would be to find space in a full socket.
//!
//! A player's address with more datagrams than any player sends, real or forged, loses its exemption until
//! the overload ends.

use std::net::SocketAddrV4;
use std::time::Duration;

use bcnet_transport::Time;

/// Controls the share of unknown senders' datagrams that pass, for one socket.
#[derive(Debug, Default)]
pub(super) struct LoadShedder {
    /// Start of the time in which the socket could not be drained.
    overloaded_since: Option<Time>,
    /// Number of times the share was halved, and the time of the last change.
    halvings: u32,
    changed: Time,
    /// Datagrams from each exempt address since `counted_since`, the last call of `exempt_players`.
    received: Vec<(SocketAddrV4, u32)>,
    /// Players' addresses with too many datagrams.
    flooding: Vec<SocketAddrV4>,
    counted_since: Time,
}

impl LoadShedder {
    /// Records whether the socket was drained in its turn. Returns whether the passing share changed.
    pub(super) fn update(&mut self, is_empty: bool, now: Time) -> bool {
        if is_empty {
            self.overloaded_since = None;
            return self.advance(now);
        }
        let since = (*self.overloaded_since.get_or_insert(now)).max(self.changed);
        let is_overloaded = now.since(since) >= OVERLOAD_TIME && self.halvings < MAX_HALVINGS;
        if is_overloaded {
            (self.halvings, self.changed) = (self.halvings + 1, now);
        }
        is_overloaded
    }

    /// Raises the share if the overload has ended. Returns whether the share changed.
    pub(super) fn advance(&mut self, now: Time) -> bool {
        let is_over =
            self.halvings > 0 && self.overloaded_since.is_none() && now.since(self.changed) >= RECOVERY_TIME;
        if is_over {
            (self.halvings, self.changed) = (self.halvings - 1, now);
        }
        is_over
    }

    /// Returns the time at which [`advance`](Self::advance) may raise the share.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        (self.halvings > 0 && self.overloaded_since.is_none()).then(|| self.changed + RECOVERY_TIME)
    }

    /// Counts a received datagram if load is shed and its sender is exempt.
    pub(super) fn count_datagram(&mut self, from: SocketAddrV4) {
        if self.halvings > 0
            && let Some((_, count)) = self.received.iter_mut().find(|(address, _)| *address == from)
        {
            *count = count.saturating_add(1);
        }
    }

    /// Returns the players' addresses that always pass, and restarts the counts.
    pub(super) fn exempt_players(
        &mut self,
        players: impl Iterator<Item = SocketAddrV4>,
        now: Time,
    ) -> Vec<SocketAddrV4> {
        if self.halvings == 0 {
            self.flooding.clear();
        }
        let millis = u32::try_from(now.since(self.counted_since).as_millis()).unwrap_or(u32::MAX);
        let max = MAX_PLAYER_BURST.saturating_add(millis.saturating_mul(MAX_PLAYER_DATAGRAMS_PER_MS));
        let flooding = self.received.drain(..).filter(|(_, count)| *count > max).map(|(address, _)| address);
        self.flooding.extend(flooding);
        self.counted_since = now;
        let exempt: Vec<_> = players.filter(|address| !self.flooding.contains(address)).collect();
        self.received.extend(exempt.iter().map(|address| (*address, 0)));
        exempt
    }

    /// Returns how many of 2³² datagrams of unknown senders pass; `None` if all pass.
    pub(super) fn pass_threshold(&self) -> Option<u32> {
        (self.halvings > 0).then(|| 1 << (u32::BITS - self.halvings))
    }
}

/// Time without draining the socket after which the share is halved.
const OVERLOAD_TIME: Duration = Duration::from_millis(20);
/// Time since the last change after which the share is doubled, if the socket is drained.
const RECOVERY_TIME: Duration = Duration::from_millis(90);
/// Largest burst of datagrams from one player: several times the traffic of any game.
const MAX_PLAYER_BURST: u32 = 100;
/// Largest rate of datagrams from one player, after the burst.
const MAX_PLAYER_DATAGRAMS_PER_MS: u32 = 1;
/// At least one in 1024 datagrams of unknown senders passes.
const MAX_HALVINGS: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates a flood. `taken` is the number of datagrams handled per second.
    ///
    /// Returns the time at the end and the rate that passes.
    fn flood(
        shedder: &mut LoadShedder,
        from: Time,
        length: Duration,
        arriving: f64,
        taken: f64,
    ) -> (Time, f64) {
        let admitted = |shedder: &LoadShedder| {
            arriving * shedder.pass_threshold().map_or(1.0, |passing| f64::from(passing) / 2_f64.powi(32))
        };
        let mut now = from;
        while now < from + length {
            now = now + Duration::from_millis(1);
            shedder.update(admitted(shedder) <= taken, now);
        }
        (now, admitted(shedder))
    }

    #[test]
    fn nothing_is_shed_below_capacity() {
        let mut shedder = LoadShedder::default();
        flood(&mut shedder, Time::ZERO, Duration::from_secs(10), 1e6, 1e6);
        assert_eq!((shedder.pass_threshold(), shedder.next_timeout()), (None, None));
        // A burst does not cause shedding.
        let now = Time::from_micros(20_000_000);
        assert!(
            !shedder.update(false, now)
                && !shedder.update(false, now + OVERLOAD_TIME / 2)
                && !shedder.update(true, now + OVERLOAD_TIME)
        );
        assert!(!shedder.update(false, now + 2 * OVERLOAD_TIME));
        assert_eq!(shedder.pass_threshold(), None);
    }

    #[test]
    fn flood_is_admitted_up_to_capacity_and_fully_afterwards() {
        for arriving in [1.5e6, 1e7, 5e7] {
            let mut shedder = LoadShedder::default();
            let (now, passing) = flood(&mut shedder, Time::ZERO, Duration::from_millis(200), arriving, 1e6);
            assert!((0.3e6..=2e6).contains(&passing), "{arriving}: after 200 ms, {passing}");
            let (now, passing) = flood(&mut shedder, now, Duration::from_secs(10), arriving, 1e6);
            assert!((0.3e6..=2e6).contains(&passing), "{arriving}: after 10 s, {passing}");
            flood(&mut shedder, now, Duration::from_secs(1), 1e3, 1e6);
            assert_eq!(shedder.pass_threshold(), None, "{arriving}");
        }
    }

    #[test]
    fn some_unknown_senders_always_pass_and_idle_socket_recovers() {
        let mut shedder = LoadShedder::default();
        let (mut now, passing) = flood(&mut shedder, Time::ZERO, Duration::from_secs(10), 1e12, 1e6);
        assert!(passing > 1e8);
        assert_eq!(shedder.next_timeout(), None, "the socket is still full");
        let mut changes = u32::from(shedder.update(true, now));
        while let Some(next) = shedder.next_timeout() {
            now = now.max(next);
            assert!(shedder.advance(now));
            changes += 1;
            assert!(changes <= MAX_HALVINGS, "the share rises without end");
        }
        assert_eq!(changes, MAX_HALVINGS);
    }

    #[test]
    fn flood_from_a_player_address_loses_its_exemption() {
        let [loud, player] = [[192, 0, 2, 1], [192, 0, 2, 2]].map(|ip| SocketAddrV4::new(ip.into(), 22101));
        let mut shedder = LoadShedder::default();
        let mut now = Time::ZERO;
        let mut step = |shedder: &mut LoadShedder, flood: u32| {
            now = now + OVERLOAD_TIME;
            (0..flood).for_each(|_| shedder.count_datagram(loud));
            (0..5).for_each(|_| shedder.count_datagram(player));
            let changed = shedder.update(flood == 0, now);
            (changed, shedder.exempt_players([loud, player].into_iter(), now))
        };
        assert_eq!(step(&mut shedder, 5_000), (false, vec![loud, player]));
        assert_eq!(
            step(&mut shedder, 5_000),
            (true, vec![loud, player]),
            "counting starts with the first halving"
        );
        assert_eq!(step(&mut shedder, 5_000), (true, vec![player]));
        assert_eq!(
            step(&mut shedder, 10),
            (true, vec![player]),
            "the address stays excluded during the overload"
        );
        for steps in 0.. {
            assert!(steps < 1000, "the overload does not end");
            if shedder.pass_threshold().is_none() {
                break;
            }
            step(&mut shedder, 0);
        }
        assert_eq!(step(&mut shedder, 0), (false, vec![loud, player]));
    }
}
