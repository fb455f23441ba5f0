//! Samples of the last hour, for the plots of `bcnet top` and the operator page.
//!
//! A separate thread queries every session with a separate command, like the metrics do. The memory does not
//! depend on the number of players or sessions: with many sessions, each session has fewer samples with a
//! longer interval.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bcnet_transport::Time;
use bcnet_udp::wall_now;
use serde_json::{Value, json};

use super::session_host::millis;
use super::session_metrics::{Quantiles, SessionActivity};
use super::workers::Workers;
use crate::usage::ResourceUsage;

/// The samples of the last hour.
pub(super) struct SampleHistory(Mutex<SampleState>);

struct SampleState {
    server: SampleSeries,
    /// By the number of the session.
    sessions: Vec<SampleSeries>,
    last_taken: Time,
    /// CPU time of the process at the last sample.
    cpu_time: Duration,
    /// Unix time of the last sample. It never decreases, even if somebody sets the clock.
    time: u64,
}

impl SampleHistory {
    /// Creates an empty history for this number of sessions.
    pub(super) fn new(sessions: usize) -> Self {
        let interval =
            INTERVAL * u32::try_from(sessions.div_ceil(MAX_FULL_SERIES)).unwrap_or(u32::MAX).max(1);
        Self(Mutex::new(SampleState {
            server: SampleSeries::new(INTERVAL),
            sessions: (0..sessions).map(|_| SampleSeries::new(interval)).collect(),
            last_taken: Time::ZERO,
            cpu_time: Duration::ZERO,
            time: 0,
        }))
    }

    /// Queries the activity of all sessions since the last call.
    pub(super) fn take(&self, workers: &Workers) {
        let work = workers.call_sessions(|host, _, now| {
            // An idle session may not have taken a sample for a long time.
            host.sample_and_log(now);
            let players = host.session.players_in_game();
            (host.number, host.metrics.take_activity(players, host.socket_counters), now)
        });
        if let Some(now) = work.iter().map(|(_, _, now)| *now).max() {
            let work = work.into_iter().map(|(session, work, _)| (session, work)).collect();
            self.state().add(work, ResourceUsage::now(), wall_now().as_secs(), now);
        }
    }

    /// Returns the samples of one session, or of the server, that are later than `since`.
    pub(super) fn to_json(&self, session: Option<usize>, since: Option<u64>) -> Value {
        let state = self.state();
        let series = session.map_or(Some(&state.server), |session| state.sessions.get(session));
        let samples = series.into_iter().flat_map(|series| &series.samples);
        let samples = samples.filter(|sample| since.is_none_or(|since| sample.time > since));
        json!({
            "interval_s": series.map_or(INTERVAL, |series| series.interval).as_secs(),
            "samples": samples.map(ActivitySample::json).collect::<Vec<_>>(),
        })
    }

    fn state(&self) -> MutexGuard<'_, SampleState> {
        // A panic may have lost one sample, which does no harm.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SampleState {
    fn add(&mut self, activity: Vec<(usize, SessionActivity)>, usage: ResourceUsage, time: u64, now: Time) {
        let elapsed = now.since(std::mem::replace(&mut self.last_taken, now));
        self.time = time.max(self.time + 1);
        if let Some(processor) = usage.cpu_time {
            let busy = processor.saturating_sub(std::mem::replace(&mut self.cpu_time, processor));
            *self.server.cpu_time.get_or_insert_default() += busy;
        }
        let mut all = SessionActivity::default();
        for (session, work) in activity {
            all.add_concurrent(&work);
            if let Some(series) = self.sessions.get_mut(session) {
                series.add(&work, elapsed, self.time);
            }
        }
        self.server.memory = usage.memory_bytes;
        self.server.add(&all, elapsed, self.time);
    }
}

/// The samples of one session, or of the server.
struct SampleSeries {
    interval: Duration,
    /// Activity since the last sample.
    activity: SessionActivity,
    elapsed: Duration,
    /// CPU time of the process since the last sample, if known.
    cpu_time: Option<Duration>,
    memory: Option<u64>,
    samples: VecDeque<ActivitySample>,
}

impl SampleSeries {
    fn new(interval: Duration) -> Self {
        let (activity, elapsed, samples) = (SessionActivity::default(), Duration::ZERO, VecDeque::new());
        Self { interval, activity, elapsed, cpu_time: None, memory: None, samples }
    }

    fn add(&mut self, activity: &SessionActivity, elapsed: Duration, time: u64) {
        self.activity.add_later(activity);
        self.elapsed += elapsed;
        // The first call comes right after the start, too early for a sample. Later calls may be a little early, so
        // half of `INTERVAL` is tolerated.
        if self.elapsed + INTERVAL / 2 < self.interval {
            return;
        }
        let sample = ActivitySample::new(&self.activity, self.elapsed, time);
        let core_share = self.cpu_time.map(|busy| busy.as_secs_f32() / self.elapsed.as_secs_f32());
        self.samples.push_back(ActivitySample { core_share, memory: self.memory, ..sample });
        while self.samples.front().is_some_and(|first| first.time + HOUR.as_secs() < time) {
            self.samples.pop_front();
        }
        // This happens only if the clock was set back.
        if self.samples.len() > MAX_SAMPLES {
            self.samples.pop_front();
        }
        *self = Self { samples: std::mem::take(&mut self.samples), ..Self::new(self.interval) };
    }
}

/// Activity in the interval up to a time.
#[derive(Debug, Clone, Copy)]
struct ActivitySample {
    /// Unix time in seconds.
    time: u64,
    players: u32,
    /// Rate per second; the next three fields too.
    datagrams_in: f32,
    datagrams_out: f32,
    acks: f32,
    retransmissions: f32,
    /// The median and the 99th percentile in milliseconds; the next field too.
    rtt: [Option<f32>; 2],
    relay_delay: [Option<f32>; 2],
    core_share: Option<f32>,
    memory: Option<u64>,
}

impl ActivitySample {
    fn new(activity: &SessionActivity, elapsed: Duration, time: u64) -> Self {
        let rate = |count: u64| (count as f64 / elapsed.as_secs_f64()) as f32;
        let quantiles = |Quantiles { p50, p99 }| [p50, p99].map(|time| time.map(|time| millis(time) as f32));
        Self {
            time,
            players: u32::try_from(activity.players).unwrap_or(u32::MAX),
            datagrams_in: rate(activity.datagrams_in),
            datagrams_out: rate(activity.datagrams_out),
            acks: rate(activity.overhead.acks),
            retransmissions: rate(activity.overhead.retransmissions),
            rtt: quantiles(Quantiles::of(&activity.rtt)),
            relay_delay: quantiles(Quantiles::of(&activity.relay_delay)),
            core_share: None,
            memory: None,
        }
    }

    fn json(&self) -> Value {
        let tenths = |value: f32| (f64::from(value) * 10.0).round() / 10.0;
        let thousandths = |value: f32| (f64::from(value) * 1000.0).round() / 1000.0;
        json!({
            "time": self.time,
            "players": self.players,
            "datagrams_in_per_second": tenths(self.datagrams_in),
            "datagrams_out_per_second": tenths(self.datagrams_out),
            "ack_bytes_per_second": tenths(self.acks * ACK_SIZE),
            "retransmissions_per_second": tenths(self.retransmissions),
            "round_trip_p50_ms": self.rtt[0].map(tenths),
            "round_trip_p99_ms": self.rtt[1].map(tenths),
            "relay_p50_ms": self.relay_delay[0].map(thousandths),
            "relay_p99_ms": self.relay_delay[1].map(thousandths),
            "core_share": self.core_share.map(thousandths),
            "memory_bytes": self.memory,
        })
    }
}

/// Interval between two queries of the sessions.
pub(super) const INTERVAL: Duration = Duration::from_secs(5);
const HOUR: Duration = Duration::from_secs(3600);
/// Samples of one hour.
const MAX_SAMPLES: usize = (HOUR.as_secs() / INTERVAL.as_secs()) as usize;
/// Number of sessions that can have all samples of an hour. With more sessions, the same total is divided.
const MAX_FULL_SERIES: usize = 64;
/// Size of an ACK in bytes. An ACK of a fragment has one byte more, and is rare.
const ACK_SIZE: f32 = 4.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::session_metrics::{LatencyHistogram, OverheadCounters};

    fn activity(players: usize, datagrams: u64, relayed: Duration) -> SessionActivity {
        let mut delay = LatencyHistogram::default();
        delay.add(relayed, datagrams);
        SessionActivity {
            players,
            datagrams_in: datagrams,
            datagrams_out: 7 * datagrams,
            overhead: OverheadCounters { acks: 10 * datagrams, retransmissions: datagrams / 100 },
            relay_delay: delay,
            rtt: LatencyHistogram::default(),
        }
    }

    fn usage(processor: u64) -> ResourceUsage {
        ResourceUsage { cpu_time: Some(Duration::from_millis(processor)), memory_bytes: Some(12 << 20) }
    }

    fn at(seconds: u64) -> Time {
        Time::from_micros(seconds * 1_000_000)
    }

    #[test]
    fn sample_covers_all_sessions_since_the_previous_one() {
        let samples = SampleHistory::new(2);
        let (fast, slow) = (Duration::from_micros(8), Duration::from_millis(4));
        // The first call is too early for a rate.
        samples.state().add(
            vec![(0, activity(0, 0, fast)), (1, activity(0, 0, fast))],
            usage(100),
            1000,
            at(0),
        );
        samples.state().add(
            vec![(0, activity(2, 400, fast)), (1, activity(3, 100, slow))],
            usage(350),
            1005,
            at(5),
        );
        let sample = json!({
            "time": 1005, "players": 5, "datagrams_in_per_second": 100.0, "datagrams_out_per_second": 700.0,
            "ack_bytes_per_second": 4000.0, "retransmissions_per_second": 1.0,
            "round_trip_p50_ms": null, "round_trip_p99_ms": null, "relay_p50_ms": 0.008, "relay_p99_ms": 4.0,
            // This includes CPU time before the first call.
            "core_share": 0.07, "memory_bytes": 12 << 20,
        });
        assert_eq!(samples.to_json(None, None), json!({ "interval_s": 5, "samples": [sample] }));
        let one = samples.to_json(Some(1), None);
        let one = &one["samples"][0];
        assert_eq!([&one["players"], &one["datagrams_in_per_second"]], [&json!(3), &json!(20.0)]);
        assert_eq!(
            [&one["core_share"], &one["memory_bytes"]],
            [&Value::Null; 2],
            "the process has no CPU time per session"
        );
        assert_eq!(samples.to_json(Some(2), None)["samples"], json!([]));

        samples.state().add(vec![(1, activity(1, 0, fast))], usage(350), 1010, at(10));
        let later = samples.to_json(None, Some(1005));
        assert_eq!(later["samples"].as_array().map(Vec::len), Some(1));
        let later = &later["samples"][0];
        assert_eq!(
            [&later["time"], &later["players"]],
            [1010, 1],
            "the thread of the other session has ended"
        );
        assert_eq!(later["relay_p50_ms"], Value::Null);
    }

    #[test]
    fn one_hour_is_kept_even_if_the_wall_clock_jumps() {
        let samples = SampleHistory::new(1);
        let add = |second: u64, time: u64| {
            samples.state().add(vec![(0, activity(1, 5, Duration::ZERO))], usage(second), time, at(second));
        };
        let times = || -> Vec<u64> {
            let all = samples.to_json(None, None);
            let times = all["samples"].as_array().expect("list").iter().map(|one| &one["time"]);
            times.map(|time| time.as_u64().expect("time")).collect()
        };
        (1..=1000).for_each(|look| add(5 * look, 100_000 + 5 * look));
        assert_eq!((times().len(), times()[0], times()[MAX_SAMPLES - 1]), (MAX_SAMPLES, 101_405, 105_000));
        // The clock goes back: the order stays.
        (1001..=1010).for_each(|look| add(5 * look, 5 * look));
        assert_eq!((times().len(), times()[MAX_SAMPLES - 1]), (MAX_SAMPLES, 105_010));
        assert!(times().is_sorted());
        // The clock jumps forward, as after a suspend: samples older than an hour are dropped.
        add(5055, 200_000);
        assert_eq!(times(), [200_000]);
    }

    #[test]
    fn many_sessions_get_fewer_samples_each() {
        let sessions = 1000;
        let samples = SampleHistory::new(sessions);
        let every = 16;
        for look in 0..=2 * every {
            let work = (0..sessions).map(|session| (session, activity(1, 80, Duration::ZERO))).collect();
            samples.state().add(work, usage(look), 1000 + 5 * look, at(5 * look));
        }
        let one = samples.to_json(Some(999), None);
        assert_eq!(one["interval_s"], 5 * every);
        let rows = one["samples"].as_array().expect("list");
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[1]["datagrams_in_per_second"], 16.0, "the sample covers the whole interval");
        let whole = samples.to_json(None, None);
        assert_eq!(whole["samples"].as_array().map(Vec::len), Some(2 * 16));
        assert_eq!(whole["samples"][0]["players"], 1000);
    }
}
