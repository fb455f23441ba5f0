//! The figures of a server for Prometheus, and whether it is well.

use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bcnet_session::{Counters, SessionStatus};
use bcnet_transport::Time;

use super::control_plane::ControlPlane;
use super::requests::SelectedSessions;
use super::session_host::SessionHost;
use super::session_metrics::{LatencyHistogram, OverheadCounters, SocketCounters};
use super::workers::Workers;
use crate::metrics::{Labels, MetricValue, MetricsPage};
use crate::metrics_server::Monitored;
use crate::scores;

/// Asks a running server.
#[derive(Clone)]
pub(super) struct Monitor {
    pub(super) workers: Workers,
    pub(super) plane: Arc<ControlPlane>,
    /// How often the page has turned somebody away, if there is a page.
    pub(super) page_refusals: Option<Arc<AtomicU64>>,
    /// How often the sidecar of a fleet did not take something, if there is one.
    pub(super) agones_failures: Option<Arc<AtomicU64>>,
}

impl Monitored for Monitor {
    fn metrics(&self) -> Option<MetricsPage> {
        let sessions =
            SelectedSessions::new(&self.workers, None).map_sessions_with(|host, coalescing, now| {
                // Nothing may have happened there for long.
                host.sample_and_log(now);
                SessionSample::take(host, coalescing.cpu_share(), coalescing.window(), now)
            });
        sessions.ok().map(|sessions| {
            let mut page = render(&sessions, self.plane.capture_left_out(), self.plane.scores());
            let expected = [(Labels::new(), self.workers.sessions())];
            page.gauge("sessions", "Sessions that there should be, those that do not answer too", expected);
            self.plane.hooks().add_metrics(&mut page);
            let counts = [
                ("page_refused_requests", "Requests that the page did not answer", &self.page_refusals),
                (
                    "agones_failed_calls",
                    "Calls that the sidecar of Agones did not take",
                    &self.agones_failures,
                ),
            ];
            for (name, help, count) in counts {
                if let Some(count) = count {
                    page.counter(name, help, [(Labels::new(), count.load(Ordering::Relaxed))]);
                }
            }
            page
        })
    }

    fn is_alive(&self) -> bool {
        are_all_threads_responsive(&self.workers, THREAD_TIMEOUT)
    }

    fn is_ready(&self) -> bool {
        is_any_open(&self.workers)
    }
}

/// Returns whether every thread that plays answers in time.
fn are_all_threads_responsive(workers: &Workers, timeout: Duration) -> bool {
    workers.check_threads(timeout).are_all_responsive()
}

/// Returns whether a session takes players.
fn is_any_open(workers: &Workers) -> bool {
    workers.call_sessions(|host, _, _| !host.is_stopped()).into_iter().any(|is_open| is_open)
}

/// What one session says.
struct SessionSample {
    labels: Labels,
    is_open: bool,
    status: SessionStatus,
    socket_counters: SocketCounters,
    rejected: u64,
    overhead: OverheadCounters,
    relay_delay: LatencyHistogram,
    rtt: LatencyHistogram,
    relaying_share: f64,
    coalescing_window: Duration,
    uptime: Duration,
}

impl SessionSample {
    fn take(host: &SessionHost, relaying_share: f64, coalescing_window: Duration, now: Time) -> Self {
        Self {
            labels: vec![("port", host.address.port().to_string())],
            is_open: !host.is_stopped(),
            status: host.session.status(now),
            socket_counters: host.socket_counters,
            rejected: host.session.rejected().total(),
            overhead: host.metrics.overhead(),
            relay_delay: host.metrics.relay_delay_histogram(),
            rtt: host.metrics.rtt_histogram(),
            relaying_share,
            coalescing_window,
            uptime: now.since(Time::ZERO),
        }
    }
}

fn render(
    sessions: &[SessionSample],
    capture_left_out: Option<u64>,
    scores: Option<&scores::ScoreCounters>,
) -> MetricsPage {
    let mut page = MetricsPage::new("bcnet");
    let uptime = sessions.iter().map(|one| one.uptime.as_secs()).max().unwrap_or(0);
    page.gauge("uptime_seconds", "How long the server runs", [(Labels::new(), uptime)]);
    if let Some(count) = capture_left_out {
        page.counter(
            "capture_left_out_datagrams",
            "Datagrams that are not in the capture",
            [(Labels::new(), count)],
        );
    }
    if let Some(counts) = scores {
        page.counter("scores_kept_rounds", "Rounds whose scores were kept", [(Labels::new(), counts.kept())]);
        page.counter(
            "scores_left_out_rounds",
            "Rounds whose scores were lost",
            [(Labels::new(), counts.left_out())],
        );
        let is_well = u64::from(counts.problem().is_none());
        page.gauge(
            "scores_writable",
            "Whether the file of the scores could be written",
            [(Labels::new(), is_well)],
        );
    }
    for (name, help, figure) in GAUGES {
        page.gauge(name, help, sessions.iter().map(|one| (one.labels.clone(), figure(one))));
    }
    for (name, help, figure) in COUNTERS {
        page.counter(name, help, sessions.iter().map(|one| (one.labels.clone(), figure(one))));
    }
    let masters = sessions.iter().flat_map(|one| {
        let is_recent =
            |ago: &Option<Duration>| ago.is_some_and(|ago| ago < bcnet_session::ListServers::LOST_AFTER);
        let labels =
            |address: &SocketAddrV4| [one.labels.clone(), vec![("master", address.to_string())]].concat();
        one.status.masters.iter().map(move |(address, ago)| (labels(address), is_recent(ago)))
    });
    page.gauge("master_heard", "Whether a list server was heard of lately", masters);
    let delays = sessions.iter().map(|one| (one.labels.clone(), one.relay_delay.clone()));
    page.histogram("relay_delay", "How long after its arrival a copy of a message left", delays);
    let trips = sessions.iter().map(|one| (one.labels.clone(), one.rtt.clone()));
    page.histogram("round_trip", "Round trips to players, each looked at once a second", trips);
    page
}

type MetricDefinition<T> = (&'static str, &'static str, fn(&SessionSample) -> T);

const GAUGES: [MetricDefinition<MetricValue>; 8] = [
    ("session_open", "Whether a session takes players", |one| one.is_open.into()),
    ("players", "Players that have answered", |one| one.status.players.into()),
    ("players_in_game", "Players that take part", |one| one.status.in_game.into()),
    ("player_limit", "How many players there can be", |one| one.status.player_limit.into()),
    ("round", "The number of the round", |one| u64::from(one.status.round).into()),
    ("game_time_seconds", "The game clock", |one| one.status.game_time.as_secs_f64().into()),
    ("relaying_ratio", "The share of a core that relaying takes in its thread", |one| {
        one.relaying_share.into()
    }),
    ("coalescing_seconds", "How long state updates wait for company", |one| {
        one.coalescing_window.as_secs_f64().into()
    }),
];

fn counters(one: &SessionSample) -> &Counters {
    &one.status.counters
}

const COUNTERS: [MetricDefinition<u64>; 22] = [
    ("received_datagrams", "Datagrams that came", |one| one.socket_counters.datagrams_in),
    ("received_bytes", "Bytes of the datagrams that came", |one| one.socket_counters.bytes_in),
    ("sent_datagrams", "Datagrams that left", |one| one.socket_counters.datagrams_out),
    ("sent_bytes", "Bytes of the datagrams that left", |one| one.socket_counters.bytes_out),
    ("oversized_datagrams", "Datagrams longer than any of the protocol", |one| one.socket_counters.oversized),
    ("unsent_datagrams", "Datagrams that the system did not take", |one| one.socket_counters.unsent),
    ("overflowed_datagrams", "Datagrams dropped by a full buffer", |one| one.socket_counters.overflowed),
    ("rejected_datagrams", "Datagrams that made no sense", |one| one.rejected),
    ("sent_acks", "ACKs that left", |one| one.overhead.acks),
    ("retransmissions", "Messages that were sent again", |one| one.overhead.retransmissions),
    ("received_messages", "Messages of players in the game", |one| counters(one).messages_in),
    ("relayed_messages", "Copies that were passed on", |one| counters(one).relayed),
    ("outdated_updates", "State updates replaced before they left", |one| counters(one).superseded),
    ("unqueued_messages", "Copies that found no room", |one| counters(one).not_queued),
    ("queries", "Questions of browsers", |one| counters(one).queries),
    ("answered_queries", "Questions that were answered", |one| counters(one).queries_answered),
    ("limited_queries", "Questions that were too many", |one| counters(one).queries_limited),
    ("heartbeats", "Heartbeats to list servers", |one| counters(one).heartbeats),
    ("admitted_players", "Clients that were let in", |one| counters(one).admitted),
    ("refused_players", "Clients that were turned away", |one| counters(one).refused),
    ("ignored_requests", "Connect requests left unanswered", |one| counters(one).ignored),
    ("anomalies", "Odd things that players did", |one| counters(one).anomalies.total()),
];

/// How long a thread may take to say that it plays.
const THREAD_TIMEOUT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::serve::session_group::SessionGroup;
    use crate::serve::workers;

    /// A process whose loop hangs is there, answers nobody who plays, and must not be called alive.
    #[test]
    fn hanging_thread_is_not_alive_until_it_resumes() {
        let (worker_handle, threads) = workers::tests::test_workers(2, 2);
        let running = thread::spawn(move || workers::run(threads));
        let patience = Duration::from_secs(60);
        assert!(are_all_threads_responsive(&worker_handle, patience) && is_any_open(&worker_handle));
        let (release, held) = mpsc::channel::<()>();
        worker_handle.send_to_thread(1, move |_, _| {
            let _ = held.recv();
        });
        assert!(!are_all_threads_responsive(&worker_handle, Duration::from_millis(50)));
        drop(release);
        assert!(are_all_threads_responsive(&worker_handle, patience));
        worker_handle.send_to_threads(SessionGroup::stop);
        running.join().expect("no panic").expect("ended as told");
        assert!(
            !are_all_threads_responsive(&worker_handle, patience) && !is_any_open(&worker_handle),
            "nobody is left"
        );
    }
}
