//! What a host wants to know of a session: how late copies leave, how far players are, how much its line carries.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bcnet_transport::Time;
use bcnet_transport::wire::PeerId;

/// How long things took, to within an eighth.
pub(super) type Histogram = crate::histogram::Histogram<3>;

/// A histogram of the last one or two minutes, and one of all since it was asked for.
#[derive(Debug, Default)]
struct Recent {
    latest: Histogram,
    before: Histogram,
    since_asked: Histogram,
    /// All up to the present minute.
    past: Histogram,
    /// All when they were last looked at for the samples.
    sampled: Histogram,
}

impl Recent {
    fn turn_over(&mut self) {
        self.since_asked.merge(&self.latest);
        self.past.merge(&self.latest);
        std::mem::swap(&mut self.before, &mut self.latest);
        self.latest.clear();
    }

    /// Returns all that there ever was.
    fn all(&self) -> Histogram {
        let mut all = self.past.clone();
        all.merge(&self.latest);
        all
    }

    /// Returns what has come since this was called last.
    fn take_fresh(&mut self) -> Histogram {
        let all = self.all();
        let fresh = all.since(&self.sampled);
        self.sampled = all;
        fresh
    }

    fn last(&self) -> Quantiles {
        let mut both = self.before.clone();
        both.merge(&self.latest);
        Quantiles::of(&both)
    }

    /// Returns what has come since this was called last, as far as whole minutes go.
    fn take(&mut self) -> Quantiles {
        Quantiles::of(&std::mem::take(&mut self.since_asked))
    }
}

/// The median, and what one of a hundred exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Quantiles {
    pub(super) p50: Option<Duration>,
    pub(super) p99: Option<Duration>,
}

impl Quantiles {
    pub(super) fn of(histogram: &Histogram) -> Self {
        let [p50, p99] = [0.5, 0.99].map(|share| (histogram.count() > 0).then(|| histogram.quantile(share)));
        Self { p50, p99 }
    }
}

/// Bytes that passed through a socket, in and out, headers of IPv4 and UDP among them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Volume {
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
}

/// What passed through a socket so far.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Traffic {
    pub(super) datagrams_in: u64,
    pub(super) datagrams_out: u64,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
    /// Datagrams that came and were longer than any of the protocol.
    pub(super) oversized: u64,
    /// Datagrams that the system did not take.
    pub(super) unsent: u64,
    /// Datagrams that the system has dropped because its buffer was full.
    pub(super) overflowed: u64,
}

impl Traffic {
    /// Returns the bytes that a line has carried for it.
    pub(super) const fn volume(&self) -> Volume {
        Volume {
            bytes_in: self.bytes_in + HEADERS * self.datagrams_in,
            bytes_out: self.bytes_out + HEADERS * self.datagrams_out,
        }
    }
}

/// What the transport has sent besides new messages.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Repeats {
    pub(super) acks: u64,
    pub(super) retransmissions: u64,
}

/// What a player's line has carried so far.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Line {
    pub(super) repeats: Repeats,
    /// Messages that the player has acknowledged.
    pub(super) delivered: u64,
}

/// What one session, or several, have done in some time.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// Who takes part at the end of it.
    pub(super) players: usize,
    pub(super) datagrams_in: u64,
    pub(super) datagrams_out: u64,
    pub(super) repeats: Repeats,
    pub(super) delay: Histogram,
    pub(super) round_trip: Histogram,
}

impl Work {
    /// Adds what others have done in the same time.
    pub(super) fn add(&mut self, other: &Self) {
        self.players += other.players;
        self.extend(other);
    }

    /// Adds what the same have done afterwards.
    pub(super) fn follow(&mut self, later: &Self) {
        self.players = later.players;
        self.extend(later);
    }

    fn extend(&mut self, other: &Self) {
        self.datagrams_in += other.datagrams_in;
        self.datagrams_out += other.datagrams_out;
        self.repeats.acks += other.repeats.acks;
        self.repeats.retransmissions += other.repeats.retransmissions;
        self.delay.merge(&other.delay);
        self.round_trip.merge(&other.round_trip);
    }
}

/// The figures of one session.
#[derive(Debug, Default)]
pub(super) struct Figures {
    delay: Recent,
    round_trip: Recent,
    /// The latest round trips of each player, one a second.
    players: BTreeMap<PeerId, VecDeque<Duration>>,
    /// What each player's line had carried when it was looked at last, a minute before and two.
    lines: BTreeMap<PeerId, (Line, [(Time, Line); 2])>,
    /// What all lines have carried.
    repeats: Repeats,
    /// What had passed when the present minute began, and the one before.
    marks: [(Time, Volume); 2],
    sampled: Time,
    /// What had passed when [`take_work`](Self::take_work) was called last.
    worked: (Traffic, Repeats),
}

impl Figures {
    /// So many datagrams were passed on so long after they had arrived.
    pub(super) fn add_delay(&mut self, delay: Duration, count: u32) {
        self.delay.latest.add(delay, count.into());
    }

    /// Returns whether it is time for [`sample`](Self::sample).
    pub(super) fn is_due(&self, now: Time) -> bool {
        now.since(self.sampled) >= SAMPLE_EVERY
    }

    /// Notes what has passed so far and the present round trips.
    pub(super) fn sample(
        &mut self,
        volume: Volume,
        round_trips: impl Iterator<Item = (PeerId, Duration)>,
        now: Time,
    ) {
        self.sampled = now;
        // Who is not there any more is forgotten, so that whoever gets its id begins anew.
        let mut before = std::mem::take(&mut self.players);
        for (player, round_trip) in round_trips {
            self.round_trip.latest.add(round_trip, 1);
            let mut trips = before.remove(&player).unwrap_or_default();
            if trips.len() == MAX_TRIPS {
                trips.pop_front();
            }
            trips.push_back(round_trip);
            self.players.insert(player, trips);
        }
        let [(began, _), _] = self.marks;
        if now.since(began) >= MINUTE {
            // What is older than two minutes does not count any more.
            let times = if now.since(began) >= 2 * MINUTE { 2 } else { 1 };
            for _ in 0..times {
                self.delay.turn_over();
                self.round_trip.turn_over();
                self.marks = [(now, volume), self.marks[0]];
            }
        }
    }

    /// Notes what the lines of all players have carried so far; who has gone since the last time is not counted to its end.
    pub(super) fn note_lines(&mut self, lines: impl Iterator<Item = (PeerId, Line)>, now: Time) {
        let mut before = std::mem::take(&mut self.lines);
        for (player, line) in lines {
            let same = before.remove(&player).filter(|(then, _)| then.repeats.acks <= line.repeats.acks);
            // Who has its id now begins at zero.
            let (then, mut marks) = same.unwrap_or_else(|| (Line::default(), [(now, Line::default()); 2]));
            self.repeats.acks += line.repeats.acks - then.repeats.acks;
            self.repeats.retransmissions +=
                line.repeats.retransmissions.saturating_sub(then.repeats.retransmissions);
            if now.since(marks[0].0) >= MINUTE {
                marks = [(now, line), marks[0]];
            }
            self.lines.insert(player, (line, marks));
        }
    }

    /// Returns which part of what a player had to acknowledge was sent again, in the last one or two minutes.
    pub(super) fn loss_of(&self, player: PeerId) -> Option<f64> {
        let (now, [_, (_, then)]) = self.lines.get(&player)?;
        let again = now.repeats.retransmissions.saturating_sub(then.repeats.retransmissions);
        let sent = now.delivered.saturating_sub(then.delivered) + again;
        (sent > 0).then(|| again as f64 / sent as f64)
    }

    /// Returns what all lines have carried, as far as it was looked at.
    pub(super) const fn repeats(&self) -> Repeats {
        self.repeats
    }

    /// Returns what was done since this was called last, if `traffic` is what has passed so far.
    pub(super) fn take_work(&mut self, players: usize, traffic: Traffic) -> Work {
        let (before, repeats) = std::mem::replace(&mut self.worked, (traffic, self.repeats));
        Work {
            players,
            datagrams_in: traffic.datagrams_in - before.datagrams_in,
            // Those that the system did not take are taken back afterwards.
            datagrams_out: traffic.datagrams_out.saturating_sub(before.datagrams_out),
            repeats: Repeats {
                acks: self.repeats.acks - repeats.acks,
                retransmissions: self.repeats.retransmissions - repeats.retransmissions,
            },
            delay: self.delay.take_fresh(),
            round_trip: self.round_trip.take_fresh(),
        }
    }

    /// Returns how long after their arrival all copies left.
    pub(super) fn all_delays(&self) -> Histogram {
        self.delay.all()
    }

    /// Returns all round trips of players, each looked at once a second.
    pub(super) fn all_round_trips(&self) -> Histogram {
        self.round_trip.all()
    }

    /// Returns how long after their arrival copies left, in the last one or two minutes.
    pub(super) fn delay(&self) -> Quantiles {
        self.delay.last()
    }

    /// Returns the round trips of players in that time, each looked at once a second.
    pub(super) fn round_trip(&self) -> Quantiles {
        self.round_trip.last()
    }

    /// Returns the round trips of one player in the last minute.
    pub(super) fn round_trip_of(&self, player: PeerId) -> Quantiles {
        let mut trips: Vec<Duration> = self.players.get(&player).into_iter().flatten().copied().collect();
        trips.sort_unstable();
        let [p50, p99] =
            [50, 99].map(|share| trips.get((trips.len() * share).div_ceil(100).saturating_sub(1)).copied());
        Quantiles { p50, p99 }
    }

    /// Returns how much passed per second in that time, if `volume` is what has passed so far.
    pub(super) fn per_second(&self, volume: Volume, now: Time) -> Volume {
        let [_, (since, before)] = self.marks;
        let seconds = now.since(since).as_secs_f64().max(1.0);
        let rate = |now: u64, before: u64| (now.saturating_sub(before) as f64 / seconds).round() as u64;
        Volume {
            bytes_in: rate(volume.bytes_in, before.bytes_in),
            bytes_out: rate(volume.bytes_out, before.bytes_out),
        }
    }

    /// Returns the delays and the round trips since this was called last, as far as whole minutes go.
    pub(super) fn take(&mut self) -> (Quantiles, Quantiles) {
        (self.delay.take(), self.round_trip.take())
    }
}

/// The headers of IPv4 and UDP of each datagram, in bytes.
const HEADERS: u64 = 28;
const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// Those of a minute.
const MAX_TRIPS: usize = 60;
const MINUTE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_what_was_added() {
        let mut histogram = Histogram::default();
        assert_eq!(Quantiles::of(&histogram), Quantiles { p50: None, p99: None });
        histogram.add(Duration::from_micros(4), 980);
        histogram.add(Duration::from_millis(20), 20);
        let Quantiles { p50, p99 } = Quantiles::of(&histogram);
        assert_eq!(p50, Some(Duration::from_micros(4)));
        let p99 = p99.expect("there are some").as_secs_f64() * 1000.0;
        assert!((p99 - 20.0).abs() < 1.25, "{p99}");
    }

    #[test]
    fn figures_are_of_the_last_minutes_and_nothing_is_forgotten_for_the_log() {
        let at = |seconds: u64| Time::from_micros(seconds * 1_000_000);
        let volume = |kilobytes: u64| Volume { bytes_in: kilobytes * 100, bytes_out: kilobytes * 1000 };
        let trip = Duration::from_millis(50);
        let mut figures = Figures::default();
        for second in 1..=150 {
            assert!(figures.is_due(at(second)));
            let delay = if second < 30 { Duration::from_millis(8) } else { Duration::from_micros(6) };
            figures.add_delay(delay, 10);
            figures.sample(volume(second), [(PeerId(2), trip)].into_iter(), at(second));
            assert!(!figures.is_due(at(second)));
        }
        assert_eq!(figures.delay().p99, Some(Duration::from_micros(6)), "the slow ones are two minutes ago");
        assert!(figures.round_trip().p50.is_some_and(|p50| p50.abs_diff(trip) < trip / 8));
        assert_eq!(figures.per_second(volume(150), at(150)), Volume { bytes_in: 100, bytes_out: 1000 });
        let (delay, round_trip) = figures.take();
        assert!(delay.p99 > Some(Duration::from_millis(7)) && delay.p50 == Some(Duration::from_micros(6)));
        assert!(round_trip.p99.is_some());
        assert_eq!(figures.take().0.p50, None, "they were asked for");
        // Nothing happens for long.
        figures.sample(volume(150), std::iter::empty(), at(1000));
        assert_eq!((figures.delay().p50, figures.round_trip().p99), (None, None));
        assert_eq!(figures.per_second(volume(150), at(1010)), Volume::default());
    }

    #[test]
    fn loss_is_what_was_sent_again_in_the_last_minutes() {
        let at = |seconds: u64| Time::from_micros(seconds * 1_000_000);
        let mut figures = Figures::default();
        let mut note = |second: u64, delivered, retransmissions| {
            let line = Line { repeats: Repeats { acks: second, retransmissions }, delivered };
            figures.note_lines([(PeerId(2), line)].into_iter(), at(second));
            (figures.loss_of(PeerId(2)), figures.repeats().retransmissions)
        };
        assert_eq!(note(1, 0, 0), (None, 0));
        assert_eq!(note(2, 75, 25), (Some(0.25), 25));
        assert_eq!(note(61, 150, 50), (Some(0.25), 50));
        assert_eq!(note(120, 350, 50), (Some(0.125), 50));
        assert_eq!(note(121, 350, 50), (Some(0.0), 50), "what was lost is long ago");
        // Another one has its id.
        assert_eq!(note(0, 3, 1), (Some(0.25), 51));
        figures.note_lines(std::iter::empty(), at(200));
        assert_eq!(figures.loss_of(PeerId(2)), None);
    }

    #[test]
    fn a_player_has_the_round_trips_of_its_last_minute_and_of_nobody_before_it() {
        let at = |seconds: u64| Time::from_micros(seconds * 1_000_000);
        let mut figures = Figures::default();
        for second in 1..=100_u64 {
            let trips = [(PeerId(2), Duration::from_millis(second)), (PeerId(3), Duration::from_millis(7))];
            figures.sample(Volume::default(), trips.into_iter(), at(second));
        }
        let millis = |millis| Some(Duration::from_millis(millis));
        assert_eq!(figures.round_trip_of(PeerId(2)), Quantiles { p50: millis(70), p99: millis(100) });
        figures.sample(Volume::default(), [(PeerId(3), Duration::from_millis(7))].into_iter(), at(101));
        assert_eq!(figures.round_trip_of(PeerId(2)), Quantiles { p50: None, p99: None });
        assert_eq!(figures.round_trip_of(PeerId(3)).p99, millis(7));
    }
}
