//! Who is heard when more arrives at a socket than can be taken.
//!
//! A socket that is full drops whatever comes next, players' datagrams as well as those of a flood. So before it is full,
//! strangers are let in by chance only, as many as can be taken: the system decides that before it queues a datagram. Players
//! do not notice, and a newcomer has the odds that it would have had anyway. A player's address from which more comes than any
//! player sends, itself or forged, counts as a stranger's until there is time for all.

use std::net::SocketAddrV4;
use std::time::Duration;

use bcnet_transport::Time;

/// The law of one socket: from whether it can be emptied to the share of strangers that are let in.
#[derive(Debug, Default)]
pub(super) struct LoadShedder {
    /// Since when it could not be emptied.
    overloaded_since: Option<Time>,
    /// How often the share of strangers was halved, and when it changed last.
    halvings: u32,
    changed: Time,
    /// How many datagrams were taken of each player's address since the share changed last.
    received: Vec<(SocketAddrV4, u32)>,
    /// The addresses of players of which too many came.
    flooding: Vec<SocketAddrV4>,
    counted_since: Time,
}

impl LoadShedder {
    /// The socket was emptied, or could not be in its share of the time. Returns whether the share of strangers has changed.
    pub(super) fn update(&mut self, is_empty: bool, now: Time) -> bool {
        if is_empty {
            self.overloaded_since = None;
            return self.advance(now);
        }
        let since = (*self.overloaded_since.get_or_insert(now)).max(self.changed);
        let is_too_much = now.since(since) >= OVERLOAD_TIME && self.halvings < MAX_HALVINGS;
        if is_too_much {
            (self.halvings, self.changed) = (self.halvings + 1, now);
        }
        is_too_much
    }

    /// Time has passed. Returns whether the share of strangers has changed.
    pub(super) fn advance(&mut self, now: Time) -> bool {
        let is_over =
            self.halvings > 0 && self.overloaded_since.is_none() && now.since(self.changed) >= RECOVERY_TIME;
        if is_over {
            (self.halvings, self.changed) = (self.halvings - 1, now);
        }
        is_over
    }

    /// Returns when [`advance`](Self::advance) may change something.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        (self.halvings > 0 && self.overloaded_since.is_none()).then(|| self.changed + RECOVERY_TIME)
    }

    /// A datagram was taken.
    pub(super) fn count_datagram(&mut self, from: SocketAddrV4) {
        if self.halvings > 0
            && let Some((_, count)) = self.received.iter_mut().find(|(address, _)| *address == from)
        {
            *count = count.saturating_add(1);
        }
    }

    /// Returns those of the players' addresses that are let in whatever comes, and counts anew.
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

    /// Returns how many of 2³² datagrams of strangers are let in, unless it is all.
    pub(super) fn pass_threshold(&self) -> Option<u32> {
        (self.halvings > 0).then(|| 1 << (u32::BITS - self.halvings))
    }
}

/// A socket that could not be emptied for so long is full soon; one that could be for so long has time for more.
const OVERLOAD_TIME: Duration = Duration::from_millis(20);
const RECOVERY_TIME: Duration = Duration::from_millis(90);
/// What may come of a player's address at once, and in a millisecond after that: several times what any game sends.
const MAX_PLAYER_BURST: u32 = 100;
const MAX_PLAYER_DATAGRAMS_PER_MS: u32 = 1;
/// One of a thousand strangers is always heard.
const MAX_HALVINGS: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets a flood come for a while, of which so many per second can be taken. Returns when it is, and what is let in.
    fn flood(
        shedder: &mut LoadShedder,
        from: Time,
        length: Duration,
        arriving: f64,
        taken: f64,
    ) -> (Time, f64) {
        let admitted = |law: &LoadShedder| {
            arriving * law.pass_threshold().map_or(1.0, |passing| f64::from(passing) / 2_f64.powi(32))
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
        // A burst is no flood.
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
            let (now, let_in) = flood(&mut shedder, Time::ZERO, Duration::from_millis(200), arriving, 1e6);
            assert!((0.3e6..=2e6).contains(&let_in), "{arriving}: soon, {let_in}");
            let (now, let_in) = flood(&mut shedder, now, Duration::from_secs(10), arriving, 1e6);
            assert!((0.3e6..=2e6).contains(&let_in), "{arriving}: and for long, {let_in}");
            flood(&mut shedder, now, Duration::from_secs(1), 1e3, 1e6);
            assert_eq!(shedder.pass_threshold(), None, "{arriving}");
        }
    }

    #[test]
    fn some_unknown_senders_always_pass_and_idle_socket_recovers() {
        let mut shedder = LoadShedder::default();
        let (mut now, let_in) = flood(&mut shedder, Time::ZERO, Duration::from_secs(10), 1e12, 1e6);
        assert!(let_in > 1e8);
        assert_eq!(shedder.next_timeout(), None, "it is full");
        let mut changes = u32::from(shedder.update(true, now));
        while let Some(next) = shedder.next_timeout() {
            now = now.max(next);
            assert!(shedder.advance(now));
            changes += 1;
        }
        assert_eq!(changes, MAX_HALVINGS);
    }

    #[test]
    fn flood_from_a_player_address_loses_its_exemption() {
        let [loud, player] = [[192, 0, 2, 1], [192, 0, 2, 2]].map(|ip| SocketAddrV4::new(ip.into(), 22101));
        let mut shedder = LoadShedder::default();
        let mut now = Time::ZERO;
        let mut step = |law: &mut LoadShedder, flood: u32| {
            now = now + OVERLOAD_TIME;
            (0..flood).for_each(|_| law.count_datagram(loud));
            (0..5).for_each(|_| law.count_datagram(player));
            let changed = law.update(flood == 0, now);
            (changed, law.exempt_players([loud, player].into_iter(), now))
        };
        assert_eq!(step(&mut shedder, 5_000), (false, vec![loud, player]));
        assert_eq!(step(&mut shedder, 5_000), (true, vec![loud, player]), "counted from now on");
        assert_eq!(step(&mut shedder, 5_000), (true, vec![player]));
        assert_eq!(step(&mut shedder, 10), (true, vec![player]), "it stays one while there is too much");
        while shedder.pass_threshold().is_some() {
            step(&mut shedder, 0);
        }
        assert_eq!(step(&mut shedder, 0), (false, vec![loud, player]));
    }
}
