//! Metrics of one session: relay delays, round-trip times, and byte and datagram rates.
//!
//! The server shows them in `bcnet ctl status`, on the operator page, in samples and in the log.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bcnet_transport::Time;
use bcnet_transport::wire::PeerId;

/// A histogram of durations. A range is at most one eighth as wide as its values.
pub(super) type LatencyHistogram = crate::histogram::Histogram<3>;

/// Histograms of the same values over several times: recent minutes, and all values so far.
///
/// `latest` is the current minute and `previous` the minute before. `since_taken` collects completed minutes
/// until `take_quantiles`.
#[derive(Debug, Default)]
struct RollingHistogram {
    latest: LatencyHistogram,
    previous: LatencyHistogram,
    since_taken: LatencyHistogram,
    /// All values up to the start of the current minute.
    completed: LatencyHistogram,
    /// All values at the last `take_since_sample`.
    last_sample: LatencyHistogram,
}

impl RollingHistogram {
    fn rotate(&mut self) {
        self.since_taken.merge(&self.latest);
        self.completed.merge(&self.latest);
        std::mem::swap(&mut self.previous, &mut self.latest);
        self.latest.clear();
    }

    /// Returns the histogram of all values so far.
    fn total(&self) -> LatencyHistogram {
        let mut all = self.completed.clone();
        all.merge(&self.latest);
        all
    }

    /// Returns the histogram of the values since the last call.
    fn take_since_sample(&mut self) -> LatencyHistogram {
        let all = self.total();
        let fresh = all.since(&self.last_sample);
        self.last_sample = all;
        fresh
    }

    fn recent_quantiles(&self) -> Quantiles {
        let mut both = self.previous.clone();
        both.merge(&self.latest);
        Quantiles::of(&both)
    }

    /// Returns the quantiles since the last call, for completed minutes.
    fn take_quantiles(&mut self) -> Quantiles {
        Quantiles::of(&std::mem::take(&mut self.since_taken))
    }
}

/// The median and the 99th percentile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Quantiles {
    pub(super) p50: Option<Duration>,
    pub(super) p99: Option<Duration>,
}

impl Quantiles {
    pub(super) fn of(histogram: &LatencyHistogram) -> Self {
        let [p50, p99] = [0.5, 0.99].map(|share| (histogram.count() > 0).then(|| histogram.quantile(share)));
        Self { p50, p99 }
    }
}

/// Bytes received and sent on a socket, including IPv4 and UDP headers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ByteCounts {
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
}

/// Cumulative counters of a socket.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SocketCounters {
    pub(super) datagrams_in: u64,
    pub(super) datagrams_out: u64,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
    /// Received datagrams that were longer than the protocol allows.
    pub(super) oversized: u64,
    /// Datagrams that the system refused to send.
    pub(super) unsent: u64,
    /// Datagrams that the system dropped because the receive buffer was full.
    pub(super) overflowed: u64,
}

impl SocketCounters {
    /// Returns the bytes on the wire, with IPv4 and UDP headers.
    pub(super) const fn wire_bytes(&self) -> ByteCounts {
        ByteCounts {
            bytes_in: self.bytes_in + HEADER_BYTES * self.datagrams_in,
            bytes_out: self.bytes_out + HEADER_BYTES * self.datagrams_out,
        }
    }
}

/// Messages that the transport sent besides new ones.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct OverheadCounters {
    pub(super) acks: u64,
    pub(super) retransmissions: u64,
}

/// Cumulative counters of one player's connection.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PlayerCounters {
    pub(super) overhead: OverheadCounters,
    /// Messages that the player has acknowledged.
    pub(super) delivered: u64,
}

/// Activity of one or more sessions in an interval.
#[derive(Debug, Default)]
pub(super) struct SessionActivity {
    /// Players in the game at the end of the interval.
    pub(super) players: usize,
    pub(super) datagrams_in: u64,
    pub(super) datagrams_out: u64,
    pub(super) overhead: OverheadCounters,
    pub(super) relay_delay: LatencyHistogram,
    pub(super) rtt: LatencyHistogram,
}

impl SessionActivity {
    /// Adds the activity of other sessions in the same interval.
    pub(super) fn add_concurrent(&mut self, other: &Self) {
        self.players += other.players;
        self.add_counts(other);
    }

    /// Adds the activity of the same sessions in the following interval.
    pub(super) fn add_later(&mut self, later: &Self) {
        self.players = later.players;
        self.add_counts(later);
    }

    fn add_counts(&mut self, other: &Self) {
        self.datagrams_in += other.datagrams_in;
        self.datagrams_out += other.datagrams_out;
        self.overhead.acks += other.overhead.acks;
        self.overhead.retransmissions += other.overhead.retransmissions;
        self.relay_delay.merge(&other.relay_delay);
        self.rtt.merge(&other.rtt);
    }
}

/// All metrics of one session.
#[derive(Debug, Default)]
pub(super) struct SessionMetrics {
    relay_delay: RollingHistogram,
    rtt: RollingHistogram,
    /// The latest round-trip times of each player, one per second.
    player_rtts: BTreeMap<PeerId, VecDeque<Duration>>,
    /// For each player: the latest counters, and those one and two minutes ago.
    player_counters: BTreeMap<PeerId, (PlayerCounters, [(Time, PlayerCounters); 2])>,
    /// Overhead of all players, including those who left.
    overhead: OverheadCounters,
    /// Byte counts at the start of this minute, and at the start of the minute before.
    minute_marks: [(Time, ByteCounts); 2],
    last_sample: Time,
    /// Counters at the last [`take_activity`](Self::take_activity).
    last_activity: (SocketCounters, OverheadCounters),
}

impl SessionMetrics {
    /// Adds `count` datagrams that were relayed with this delay.
    pub(super) fn add_relay_delay(&mut self, delay: Duration, count: u32) {
        self.relay_delay.latest.add(delay, count.into());
    }

    /// Returns whether [`sample`](Self::sample) is due.
    pub(super) fn is_sample_due(&self, now: Time) -> bool {
        now.since(self.last_sample) >= SAMPLE_INTERVAL
    }

    /// Records the byte counts so far and the current round-trip times.
    pub(super) fn sample(
        &mut self,
        bytes: ByteCounts,
        rtts: impl Iterator<Item = (PeerId, Duration)>,
        now: Time,
    ) {
        self.last_sample = now;
        // Players who left are removed: a new player with the same id must start without samples.
        let mut before = std::mem::take(&mut self.player_rtts);
        for (player, rtt) in rtts {
            self.rtt.latest.add(rtt, 1);
            let mut recent = before.remove(&player).unwrap_or_default();
            if recent.len() == MAX_RTT_SAMPLES {
                recent.pop_front();
            }
            recent.push_back(rtt);
            self.player_rtts.insert(player, recent);
        }
        let [(began, _), _] = self.minute_marks;
        if now.since(began) >= MINUTE {
            // Values older than two minutes are dropped.
            let times = if now.since(began) >= 2 * MINUTE { 2 } else { 1 };
            for _ in 0..times {
                self.relay_delay.rotate();
                self.rtt.rotate();
                self.minute_marks = [(now, bytes), self.minute_marks[0]];
            }
        }
    }

    /// Records the counters of all players.
    ///
    /// Traffic of a departed player after the last call is not counted.
    pub(super) fn update_player_counters(
        &mut self,
        counters: impl Iterator<Item = (PeerId, PlayerCounters)>,
        now: Time,
    ) {
        let mut before = std::mem::take(&mut self.player_counters);
        for (player, current) in counters {
            let previous =
                before.remove(&player).filter(|(then, _)| then.overhead.acks <= current.overhead.acks);
            // A new player has the same id: start at zero.
            let (then, mut marks) = previous
                .unwrap_or_else(|| (PlayerCounters::default(), [(now, PlayerCounters::default()); 2]));
            self.overhead.acks += current.overhead.acks - then.overhead.acks;
            self.overhead.retransmissions +=
                current.overhead.retransmissions.saturating_sub(then.overhead.retransmissions);
            if now.since(marks[0].0) >= MINUTE {
                marks = [(now, current), marks[0]];
            }
            self.player_counters.insert(player, (current, marks));
        }
    }

    /// Returns the share of retransmissions among the messages to a player in the last one or two minutes.
    pub(super) fn loss_of(&self, player: PeerId) -> Option<f64> {
        let (now, [_, (_, then)]) = self.player_counters.get(&player)?;
        let retransmitted = now.overhead.retransmissions.saturating_sub(then.overhead.retransmissions);
        let sent = now.delivered.saturating_sub(then.delivered) + retransmitted;
        (sent > 0).then(|| retransmitted as f64 / sent as f64)
    }

    /// Returns the overhead of all players up to the last sample.
    pub(super) const fn overhead(&self) -> OverheadCounters {
        self.overhead
    }

    /// Returns the activity since the last call. `socket_counters` are the current counters.
    pub(super) fn take_activity(
        &mut self,
        players: usize,
        socket_counters: SocketCounters,
    ) -> SessionActivity {
        let (before, overhead) = std::mem::replace(&mut self.last_activity, (socket_counters, self.overhead));
        SessionActivity {
            players,
            datagrams_in: socket_counters.datagrams_in - before.datagrams_in,
            // `count_unsent` lowers the counter later, for datagrams that the system refused.
            datagrams_out: socket_counters.datagrams_out.saturating_sub(before.datagrams_out),
            overhead: OverheadCounters {
                acks: self.overhead.acks - overhead.acks,
                retransmissions: self.overhead.retransmissions - overhead.retransmissions,
            },
            relay_delay: self.relay_delay.take_since_sample(),
            rtt: self.rtt.take_since_sample(),
        }
    }

    /// Returns the histogram of all relay delays.
    pub(super) fn relay_delay_histogram(&self) -> LatencyHistogram {
        self.relay_delay.total()
    }

    /// Returns the histogram of all round-trip times, one value per player and second.
    pub(super) fn rtt_histogram(&self) -> LatencyHistogram {
        self.rtt.total()
    }

    /// Returns the relay delays of the last one or two minutes.
    pub(super) fn relay_delay(&self) -> Quantiles {
        self.relay_delay.recent_quantiles()
    }

    /// Returns the round-trip times of the last one or two minutes, one value per player and second.
    pub(super) fn rtt(&self) -> Quantiles {
        self.rtt.recent_quantiles()
    }

    /// Returns the round-trip times of one player in the last minute.
    pub(super) fn rtt_of(&self, player: PeerId) -> Quantiles {
        let mut rtts: Vec<Duration> = self.player_rtts.get(&player).into_iter().flatten().copied().collect();
        rtts.sort_unstable();
        let [p50, p99] =
            [50, 99].map(|share| rtts.get((rtts.len() * share).div_ceil(100).saturating_sub(1)).copied());
        Quantiles { p50, p99 }
    }

    /// Returns the bytes per second of the last one or two minutes. `bytes` are the current counts.
    pub(super) fn bytes_per_second(&self, bytes: ByteCounts, now: Time) -> ByteCounts {
        let [_, (since, before)] = self.minute_marks;
        let seconds = now.since(since).as_secs_f64().max(1.0);
        let rate = |now: u64, before: u64| (now.saturating_sub(before) as f64 / seconds).round() as u64;
        ByteCounts {
            bytes_in: rate(bytes.bytes_in, before.bytes_in),
            bytes_out: rate(bytes.bytes_out, before.bytes_out),
        }
    }

    /// Returns relay delays and round-trip times since the last call, for completed minutes.
    pub(super) fn take_quantiles(&mut self) -> (Quantiles, Quantiles) {
        (self.relay_delay.take_quantiles(), self.rtt.take_quantiles())
    }
}

/// Size of the IPv4 and UDP headers of a datagram.
const HEADER_BYTES: u64 = 28;
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// One minute of samples.
const MAX_RTT_SAMPLES: usize = 60;
const MINUTE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_match_the_added_values() {
        let mut histogram = LatencyHistogram::default();
        assert_eq!(Quantiles::of(&histogram), Quantiles { p50: None, p99: None });
        histogram.add(Duration::from_micros(4), 980);
        histogram.add(Duration::from_millis(20), 20);
        let Quantiles { p50, p99 } = Quantiles::of(&histogram);
        assert_eq!(p50, Some(Duration::from_micros(4)));
        let p99 = p99.expect("not empty").as_secs_f64() * 1000.0;
        assert!((p99 - 20.0).abs() < 1.25, "{p99}");
    }

    #[test]
    fn metrics_cover_recent_minutes_and_log_gets_everything() {
        let at = |seconds: u64| Time::from_micros(seconds * 1_000_000);
        let volume = |kilobytes: u64| ByteCounts { bytes_in: kilobytes * 100, bytes_out: kilobytes * 1000 };
        let rtt = Duration::from_millis(50);
        let mut metrics = SessionMetrics::default();
        for second in 1..=150 {
            assert!(metrics.is_sample_due(at(second)));
            let delay = if second < 30 { Duration::from_millis(8) } else { Duration::from_micros(6) };
            metrics.add_relay_delay(delay, 10);
            metrics.sample(volume(second), [(PeerId(2), rtt)].into_iter(), at(second));
            assert!(!metrics.is_sample_due(at(second)));
        }
        assert_eq!(
            metrics.relay_delay().p99,
            Some(Duration::from_micros(6)),
            "the slow values are older than two minutes"
        );
        assert!(metrics.rtt().p50.is_some_and(|p50| p50.abs_diff(rtt) < rtt / 8));
        assert_eq!(
            metrics.bytes_per_second(volume(150), at(150)),
            ByteCounts { bytes_in: 100, bytes_out: 1000 }
        );
        let (delay, round_trip) = metrics.take_quantiles();
        assert!(delay.p99 > Some(Duration::from_millis(7)) && delay.p50 == Some(Duration::from_micros(6)));
        assert!(round_trip.p99.is_some());
        assert_eq!(metrics.take_quantiles().0.p50, None, "the first call took all values");
        // A long time passes without activity.
        metrics.sample(volume(150), std::iter::empty(), at(1000));
        assert_eq!((metrics.relay_delay().p50, metrics.rtt().p99), (None, None));
        assert_eq!(metrics.bytes_per_second(volume(150), at(1010)), ByteCounts::default());
    }

    #[test]
    fn loss_is_the_share_of_recent_retransmissions() {
        let at = |seconds: u64| Time::from_micros(seconds * 1_000_000);
        let mut metrics = SessionMetrics::default();
        let mut update = |second: u64, delivered, retransmissions| {
            let counters =
                PlayerCounters { overhead: OverheadCounters { acks: second, retransmissions }, delivered };
            metrics.update_player_counters([(PeerId(2), counters)].into_iter(), at(second));
            (metrics.loss_of(PeerId(2)), metrics.overhead().retransmissions)
        };
        assert_eq!(update(1, 0, 0), (None, 0));
        assert_eq!(update(2, 75, 25), (Some(0.25), 25));
        assert_eq!(update(61, 150, 50), (Some(0.25), 50));
        assert_eq!(update(120, 350, 50), (Some(0.125), 50));
        assert_eq!(update(121, 350, 50), (Some(0.0), 50), "the retransmissions are older than two minutes");
        // A new player has the same id.
        assert_eq!(update(0, 3, 1), (Some(0.25), 51));
        metrics.update_player_counters(std::iter::empty(), at(200));
        assert_eq!(metrics.loss_of(PeerId(2)), None);
    }

    #[test]
    fn rtts_cover_the_last_minute_of_the_same_player() {
        let at = |seconds: u64| Time::from_micros(seconds * 1_000_000);
        let mut metrics = SessionMetrics::default();
        for second in 1..=100_u64 {
            let trips = [(PeerId(2), Duration::from_millis(second)), (PeerId(3), Duration::from_millis(7))];
            metrics.sample(ByteCounts::default(), trips.into_iter(), at(second));
        }
        let millis = |millis| Some(Duration::from_millis(millis));
        assert_eq!(metrics.rtt_of(PeerId(2)), Quantiles { p50: millis(70), p99: millis(100) });
        metrics.sample(ByteCounts::default(), [(PeerId(3), Duration::from_millis(7))].into_iter(), at(101));
        assert_eq!(metrics.rtt_of(PeerId(2)), Quantiles { p50: None, p99: None });
        assert_eq!(metrics.rtt_of(PeerId(3)).p99, millis(7));
    }
}
