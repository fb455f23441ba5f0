//! What the server did in the last hour, for whoever draws it.
//!
//! A thread of its own asks every session, each by a command of its own, as whoever asks for metrics does. How much is kept
//! depends neither on players nor on sessions: where there are many of these, each has fewer samples of more seconds.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bcnet_transport::Time;
use bcnet_udp::wall_now;
use serde_json::{Value, json};

use super::figures::{Quantiles, Work};
use super::session_host::millis;
use super::workers::Workers;
use crate::usage::Usage;

/// The samples of the last hour.
pub(super) struct Samples(Mutex<State>);

struct State {
    whole: Series,
    /// By the number of the session.
    sessions: Vec<Series>,
    looked: Time,
    /// What the process had taken then.
    processor: Duration,
    /// The seconds since 1970 at that time. They do not go back, whoever sets the clock.
    time: u64,
}

impl Samples {
    /// Returns none yet, for so many sessions.
    pub(super) fn new(sessions: usize) -> Self {
        let every = INTERVAL * u32::try_from(sessions.div_ceil(MAX_SERIES)).unwrap_or(u32::MAX).max(1);
        Self(Mutex::new(State {
            whole: Series::new(INTERVAL),
            sessions: (0..sessions).map(|_| Series::new(every)).collect(),
            looked: Time::ZERO,
            processor: Duration::ZERO,
            time: 0,
        }))
    }

    /// Asks all sessions what they have done since the last time.
    pub(super) fn take(&self, workers: &Workers) {
        let work = workers.ask_each(|host, _, now| {
            // Nothing may have happened there for long.
            host.sum_up(now);
            let players = host.session.players_in_game();
            (host.number, host.figures.take_work(players, host.traffic), now)
        });
        if let Some(now) = work.iter().map(|(_, _, now)| *now).max() {
            let work = work.into_iter().map(|(session, work, _)| (session, work)).collect();
            self.state().add(work, Usage::now(), wall_now().as_secs(), now);
        }
    }

    /// Returns the samples of one session or, without one, of the whole server, as far as they are of later than `since`.
    pub(super) fn describe(&self, session: Option<usize>, since: Option<u64>) -> Value {
        let state = self.state();
        let series = session.map_or(Some(&state.whole), |session| state.sessions.get(session));
        let samples = series.into_iter().flat_map(|series| &series.samples);
        let samples = samples.filter(|sample| since.is_none_or(|since| sample.time > since));
        json!({
            "interval_s": series.map_or(INTERVAL, |series| series.every).as_secs(),
            "samples": samples.map(Sample::describe).collect::<Vec<_>>(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Whoever panicked may have lost a sample, which harms nobody.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn add(&mut self, work: Vec<(usize, Work)>, usage: Usage, time: u64, now: Time) {
        let passed = now.since(std::mem::replace(&mut self.looked, now));
        self.time = time.max(self.time + 1);
        if let Some(processor) = usage.processor {
            let busy = processor.saturating_sub(std::mem::replace(&mut self.processor, processor));
            *self.whole.busy.get_or_insert_default() += busy;
        }
        let mut all = Work::default();
        for (session, work) in work {
            all.add(&work);
            if let Some(series) = self.sessions.get_mut(session) {
                series.add(&work, passed, self.time);
            }
        }
        self.whole.memory = usage.memory;
        self.whole.add(&all, passed, self.time);
    }
}

/// The samples of one session, or of all.
struct Series {
    every: Duration,
    /// What the next sample is of, so far.
    work: Work,
    passed: Duration,
    /// What the process took of all processors, if anybody knows.
    busy: Option<Duration>,
    memory: Option<u64>,
    samples: VecDeque<Sample>,
}

impl Series {
    fn new(every: Duration) -> Self {
        let (work, passed, samples) = (Work::default(), Duration::ZERO, VecDeque::new());
        Self { every, work, passed, busy: None, memory: None, samples }
    }

    fn add(&mut self, work: &Work, passed: Duration, time: u64) {
        self.work.follow(work);
        self.passed += passed;
        // The first look comes too soon for a sample, others come early or late by a little.
        if self.passed + INTERVAL / 2 < self.every {
            return;
        }
        let sample = Sample::new(&self.work, self.passed, time);
        let core_share = self.busy.map(|busy| busy.as_secs_f32() / self.passed.as_secs_f32());
        self.samples.push_back(Sample { core_share, memory: self.memory, ..sample });
        while self.samples.front().is_some_and(|first| first.time + HOUR.as_secs() < time) {
            self.samples.pop_front();
        }
        // More only if the clock of the machine was set back.
        if self.samples.len() > MAX_SAMPLES {
            self.samples.pop_front();
        }
        *self = Self { samples: std::mem::take(&mut self.samples), ..Self::new(self.every) };
    }
}

/// What was done in the seconds up to a time.
#[derive(Debug, Clone, Copy)]
struct Sample {
    /// Since 1970.
    time: u64,
    players: u32,
    /// Per second, as the next three.
    datagrams_in: f32,
    datagrams_out: f32,
    acks: f32,
    retransmissions: f32,
    /// In milliseconds, half of all and 99 of a hundred, as the next.
    round_trip: [Option<f32>; 2],
    relay: [Option<f32>; 2],
    core_share: Option<f32>,
    memory: Option<u64>,
}

impl Sample {
    fn new(work: &Work, passed: Duration, time: u64) -> Self {
        let rate = |count: u64| (count as f64 / passed.as_secs_f64()) as f32;
        let quantiles = |Quantiles { p50, p99 }| [p50, p99].map(|time| time.map(|time| millis(time) as f32));
        Self {
            time,
            players: u32::try_from(work.players).unwrap_or(u32::MAX),
            datagrams_in: rate(work.datagrams_in),
            datagrams_out: rate(work.datagrams_out),
            acks: rate(work.repeats.acks),
            retransmissions: rate(work.repeats.retransmissions),
            round_trip: quantiles(Quantiles::of(&work.round_trip)),
            relay: quantiles(Quantiles::of(&work.delay)),
            core_share: None,
            memory: None,
        }
    }

    fn describe(&self) -> Value {
        let tenths = |value: f32| (f64::from(value) * 10.0).round() / 10.0;
        let thousandths = |value: f32| (f64::from(value) * 1000.0).round() / 1000.0;
        json!({
            "time": self.time,
            "players": self.players,
            "datagrams_in_per_second": tenths(self.datagrams_in),
            "datagrams_out_per_second": tenths(self.datagrams_out),
            "ack_bytes_per_second": tenths(self.acks * ACK_BYTES),
            "retransmissions_per_second": tenths(self.retransmissions),
            "round_trip_p50_ms": self.round_trip[0].map(tenths),
            "round_trip_p99_ms": self.round_trip[1].map(tenths),
            "relay_p50_ms": self.relay[0].map(thousandths),
            "relay_p99_ms": self.relay[1].map(thousandths),
            "core_share": self.core_share.map(thousandths),
            "memory_bytes": self.memory,
        })
    }
}

/// How often sessions are asked.
pub(super) const INTERVAL: Duration = Duration::from_secs(5);
const HOUR: Duration = Duration::from_secs(3600);
/// Those of an hour.
const MAX_SAMPLES: usize = (HOUR.as_secs() / INTERVAL.as_secs()) as usize;
/// As many sessions have all samples of an hour; where there are more, each has its part of as many.
const MAX_SERIES: usize = 64;
/// Of an ACK; that of a part has one more, and is rare.
const ACK_BYTES: f32 = 4.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::figures::{Histogram, Repeats};

    fn work(players: usize, datagrams: u64, relayed: Duration) -> Work {
        let mut delay = Histogram::default();
        delay.add(relayed, datagrams);
        Work {
            players,
            datagrams_in: datagrams,
            datagrams_out: 7 * datagrams,
            repeats: Repeats { acks: 10 * datagrams, retransmissions: datagrams / 100 },
            delay,
            round_trip: Histogram::default(),
        }
    }

    fn usage(processor: u64) -> Usage {
        Usage { processor: Some(Duration::from_millis(processor)), memory: Some(12 << 20) }
    }

    fn at(seconds: u64) -> Time {
        Time::from_micros(seconds * 1_000_000)
    }

    #[test]
    fn a_sample_is_of_all_sessions_since_the_one_before() {
        let samples = Samples::new(2);
        let (fast, slow) = (Duration::from_micros(8), Duration::from_millis(4));
        // The first look is too soon for a rate.
        samples.state().add(vec![(0, work(0, 0, fast)), (1, work(0, 0, fast))], usage(100), 1000, at(0));
        samples.state().add(vec![(0, work(2, 400, fast)), (1, work(3, 100, slow))], usage(350), 1005, at(5));
        let sample = json!({
            "time": 1005, "players": 5, "datagrams_in_per_second": 100.0, "datagrams_out_per_second": 700.0,
            "ack_bytes_per_second": 4000.0, "retransmissions_per_second": 1.0,
            "round_trip_p50_ms": null, "round_trip_p99_ms": null, "relay_p50_ms": 0.008, "relay_p99_ms": 4.0,
            // With what came before the first look.
            "core_share": 0.07, "memory_bytes": 12 << 20,
        });
        assert_eq!(samples.describe(None, None), json!({ "interval_s": 5, "samples": [sample] }));
        let one = samples.describe(Some(1), None);
        let one = &one["samples"][0];
        assert_eq!([&one["players"], &one["datagrams_in_per_second"]], [&json!(3), &json!(20.0)]);
        assert_eq!([&one["core_share"], &one["memory_bytes"]], [&Value::Null; 2], "nobody knows whose it is");
        assert_eq!(samples.describe(Some(2), None)["samples"], json!([]));

        samples.state().add(vec![(1, work(1, 0, fast))], usage(350), 1010, at(10));
        let later = samples.describe(None, Some(1005));
        assert_eq!(later["samples"].as_array().map(Vec::len), Some(1));
        let later = &later["samples"][0];
        assert_eq!([&later["time"], &later["players"]], [1010, 1], "and the thread of the other is gone");
        assert_eq!(later["relay_p50_ms"], Value::Null);
    }

    #[test]
    fn an_hour_is_kept_and_no_more_whoever_sets_the_clock() {
        let samples = Samples::new(1);
        let add = |second: u64, time: u64| {
            samples.state().add(vec![(0, work(1, 5, Duration::ZERO))], usage(second), time, at(second));
        };
        let times = || -> Vec<u64> {
            let all = samples.describe(None, None);
            let times = all["samples"].as_array().expect("a list").iter().map(|one| &one["time"]);
            times.map(|time| time.as_u64().expect("a number")).collect()
        };
        (1..=1000).for_each(|look| add(5 * look, 100_000 + 5 * look));
        assert_eq!((times().len(), times()[0], times()[MAX_SAMPLES - 1]), (MAX_SAMPLES, 101_405, 105_000));
        // Back: the order stays.
        (1001..=1010).for_each(|look| add(5 * look, 5 * look));
        assert_eq!((times().len(), times()[MAX_SAMPLES - 1]), (MAX_SAMPLES, 105_010));
        assert!(times().is_sorted());
        // Ahead, as after a sleep: what is older than an hour is gone.
        add(5055, 200_000);
        assert_eq!(times(), [200_000]);
    }

    #[test]
    fn many_sessions_have_fewer_samples_each() {
        let sessions = 1000;
        let samples = Samples::new(sessions);
        let every = 16;
        for look in 0..=2 * every {
            let work = (0..sessions).map(|session| (session, work(1, 80, Duration::ZERO))).collect();
            samples.state().add(work, usage(look), 1000 + 5 * look, at(5 * look));
        }
        let one = samples.describe(Some(999), None);
        assert_eq!(one["interval_s"], 5 * every);
        let rows = one["samples"].as_array().expect("a list");
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[1]["datagrams_in_per_second"], 16.0, "all that was done in that time");
        let whole = samples.describe(None, None);
        assert_eq!(whole["samples"].as_array().map(Vec::len), Some(2 * 16));
        assert_eq!(whole["samples"][0]["players"], 1000);
    }
}
