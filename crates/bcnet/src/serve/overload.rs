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
pub(super) struct Overload {
    /// Since when it could not be emptied.
    full_since: Option<Time>,
    /// How often the share of strangers was halved, and when it changed last.
    halvings: u32,
    changed: Time,
    /// How many datagrams were taken of each player's address since the share changed last.
    taken: Vec<(SocketAddrV4, u32)>,
    /// The addresses of players of which too many came.
    loud: Vec<SocketAddrV4>,
    counted_since: Time,
}

impl Overload {
    /// The socket was emptied, or could not be in its share of the time. Returns whether the share of strangers has changed.
    pub(super) fn note(&mut self, is_empty: bool, now: Time) -> bool {
        if is_empty {
            self.full_since = None;
            return self.advance(now);
        }
        let since = (*self.full_since.get_or_insert(now)).max(self.changed);
        let is_too_much = now.since(since) >= FULL_FOR && self.halvings < MAX_HALVINGS;
        if is_too_much {
            (self.halvings, self.changed) = (self.halvings + 1, now);
        }
        is_too_much
    }

    /// Time has passed. Returns whether the share of strangers has changed.
    pub(super) fn advance(&mut self, now: Time) -> bool {
        let is_over = self.halvings > 0 && self.full_since.is_none() && now.since(self.changed) >= EMPTY_FOR;
        if is_over {
            (self.halvings, self.changed) = (self.halvings - 1, now);
        }
        is_over
    }

    /// Returns when [`advance`](Self::advance) may change something.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        (self.halvings > 0 && self.full_since.is_none()).then(|| self.changed + EMPTY_FOR)
    }

    /// A datagram was taken.
    pub(super) fn count(&mut self, from: SocketAddrV4) {
        if self.halvings > 0
            && let Some((_, count)) = self.taken.iter_mut().find(|(address, _)| *address == from)
        {
            *count = count.saturating_add(1);
        }
    }

    /// Returns those of the players' addresses that are let in whatever comes, and counts anew.
    pub(super) fn known(
        &mut self,
        players: impl Iterator<Item = SocketAddrV4>,
        now: Time,
    ) -> Vec<SocketAddrV4> {
        if self.halvings == 0 {
            self.loud.clear();
        }
        let millis = u32::try_from(now.since(self.counted_since).as_millis()).unwrap_or(u32::MAX);
        let max = MAX_AT_ONCE.saturating_add(millis.saturating_mul(MAX_PER_MILLI));
        let loud = self.taken.drain(..).filter(|(_, count)| *count > max).map(|(address, _)| address);
        self.loud.extend(loud);
        self.counted_since = now;
        let known: Vec<_> = players.filter(|address| !self.loud.contains(address)).collect();
        self.taken.extend(known.iter().map(|address| (*address, 0)));
        known
    }

    /// Returns how many of 2³² datagrams of strangers are let in, unless it is all.
    pub(super) fn passing(&self) -> Option<u32> {
        (self.halvings > 0).then(|| 1 << (u32::BITS - self.halvings))
    }
}

/// A socket that could not be emptied for so long is full soon; one that could be for so long has time for more.
const FULL_FOR: Duration = Duration::from_millis(20);
const EMPTY_FOR: Duration = Duration::from_millis(90);
/// What may come of a player's address at once, and in a millisecond after that: several times what any game sends.
const MAX_AT_ONCE: u32 = 100;
const MAX_PER_MILLI: u32 = 1;
/// One of a thousand strangers is always heard.
const MAX_HALVINGS: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets a flood come for a while, of which so many per second can be taken. Returns when it is, and what is let in.
    fn flood(law: &mut Overload, from: Time, length: Duration, arriving: f64, taken: f64) -> (Time, f64) {
        let let_in = |law: &Overload| {
            arriving * law.passing().map_or(1.0, |passing| f64::from(passing) / 2_f64.powi(32))
        };
        let mut now = from;
        while now < from + length {
            now = now + Duration::from_millis(1);
            law.note(let_in(law) <= taken, now);
        }
        (now, let_in(law))
    }

    #[test]
    fn all_are_heard_while_they_can_be() {
        let mut law = Overload::default();
        flood(&mut law, Time::ZERO, Duration::from_secs(10), 1e6, 1e6);
        assert_eq!((law.passing(), law.next_timeout()), (None, None));
        // A burst is no flood.
        let now = Time::from_micros(20_000_000);
        assert!(
            !law.note(false, now) && !law.note(false, now + FULL_FOR / 2) && !law.note(true, now + FULL_FOR)
        );
        assert!(!law.note(false, now + 2 * FULL_FOR));
        assert_eq!(law.passing(), None);
    }

    #[test]
    fn of_a_flood_as_many_are_let_in_as_can_be_taken_and_all_again_within_a_second() {
        for arriving in [1.5e6, 1e7, 5e7] {
            let mut law = Overload::default();
            let (now, let_in) = flood(&mut law, Time::ZERO, Duration::from_millis(200), arriving, 1e6);
            assert!((0.3e6..=2e6).contains(&let_in), "{arriving}: soon, {let_in}");
            let (now, let_in) = flood(&mut law, now, Duration::from_secs(10), arriving, 1e6);
            assert!((0.3e6..=2e6).contains(&let_in), "{arriving}: and for long, {let_in}");
            flood(&mut law, now, Duration::from_secs(1), 1e3, 1e6);
            assert_eq!(law.passing(), None, "{arriving}");
        }
    }

    #[test]
    fn some_are_heard_whatever_comes_and_a_socket_that_falls_silent_is_open_again() {
        let mut law = Overload::default();
        let (mut now, let_in) = flood(&mut law, Time::ZERO, Duration::from_secs(10), 1e12, 1e6);
        assert!(let_in > 1e8);
        assert_eq!(law.next_timeout(), None, "it is full");
        let mut changes = u32::from(law.note(true, now));
        while let Some(next) = law.next_timeout() {
            now = now.max(next);
            assert!(law.advance(now));
            changes += 1;
        }
        assert_eq!(changes, MAX_HALVINGS);
    }

    #[test]
    fn a_flood_from_a_players_address_is_a_strangers_and_other_players_stay_known() {
        let [loud, player] = [[192, 0, 2, 1], [192, 0, 2, 2]].map(|ip| SocketAddrV4::new(ip.into(), 22101));
        let mut law = Overload::default();
        let mut now = Time::ZERO;
        let mut step = |law: &mut Overload, flood: u32| {
            now = now + FULL_FOR;
            (0..flood).for_each(|_| law.count(loud));
            (0..5).for_each(|_| law.count(player));
            let changed = law.note(flood == 0, now);
            (changed, law.known([loud, player].into_iter(), now))
        };
        assert_eq!(step(&mut law, 5_000), (false, vec![loud, player]));
        assert_eq!(step(&mut law, 5_000), (true, vec![loud, player]), "counted from now on");
        assert_eq!(step(&mut law, 5_000), (true, vec![player]));
        assert_eq!(step(&mut law, 10), (true, vec![player]), "it stays one while there is too much");
        while law.passing().is_some() {
            step(&mut law, 0);
        }
        assert_eq!(step(&mut law, 0), (false, vec![loud, player]));
    }
}
