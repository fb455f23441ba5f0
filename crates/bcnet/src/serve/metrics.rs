//! The Prometheus metrics of the server, and its health checks.

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

/// Collects the metrics of a running server.
#[derive(Clone)]
pub(super) struct Monitor {
    pub(super) workers: Workers,
    pub(super) plane: Arc<ControlPlane>,
    /// Requests that the operator page refused, if there is a page.
    pub(super) page_refusals: Option<Arc<AtomicU64>>,
    /// Failed calls to the Agones sidecar, if there is one.
    pub(super) agones_failures: Option<Arc<AtomicU64>>,
}

impl Monitored for Monitor {
    fn metrics(&self) -> Option<MetricsPage> {
        let sessions =
            SelectedSessions::new(&self.workers, None).map_sessions_with(|host, coalescing, now| {
                // An idle session may not have taken a sample for a long time.
                host.sample_and_log(now);
                SessionSample::take(host, coalescing.cpu_share(), coalescing.window(), now)
            });
        sessions.ok().map(|sessions| {
            let mut page = render(&sessions, self.plane.capture_left_out(), self.plane.scores());
            let expected = [(Labels::new(), self.workers.sessions())];
            page.gauge("sessions", "Configured sessions, including those that do not respond", expected);
            self.plane.hooks().add_metrics(&mut page);
            let counts = [
                ("page_refused_requests", "Requests that the operator page refused", &self.page_refusals),
                ("agones_failed_calls", "Failed calls to the Agones sidecar", &self.agones_failures),
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

/// Returns whether every worker thread answers in time.
fn are_all_threads_responsive(workers: &Workers, timeout: Duration) -> bool {
    workers.check_threads(timeout).are_all_responsive()
}

/// Returns whether at least one session admits players.
fn is_any_open(workers: &Workers) -> bool {
    workers.call_sessions(|host, _, _| !host.is_stopped()).into_iter().any(|is_open| is_open)
}

/// The values of one session.
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
    page.gauge("uptime_seconds", "Time since the server started", [(Labels::new(), uptime)]);
    if let Some(count) = capture_left_out {
        page.counter(
            "capture_left_out_datagrams",
            "Datagrams missing from the capture",
            [(Labels::new(), count)],
        );
    }
    if let Some(counts) = scores {
        page.counter("scores_kept_rounds", "Rounds with stored scores", [(Labels::new(), counts.kept())]);
        page.counter(
            "scores_left_out_rounds",
            "Rounds with lost scores",
            [(Labels::new(), counts.left_out())],
        );
        let is_well = u64::from(counts.problem().is_none());
        page.gauge(
            "scores_writable",
            "1 if the last write to the scores file succeeded",
            [(Labels::new(), is_well)],
        );
    }
    for (name, help, figure) in GAUGES {
        page.gauge(name, help, sessions.iter().map(|one| (one.labels.clone(), figure(one))));
    }
    for (name, help, figure) in COUNTERS {
        page.counter(name, help, sessions.iter().map(|one| (one.labels.clone(), figure(one))));
    }
    let refused = sessions.iter().flat_map(|one| {
        let labels = |reason: &str| [one.labels.clone(), vec![("reason", reason.to_string())]].concat();
        counters(one).refused.by_reason().map(move |(reason, count)| (labels(reason), count))
    });
    page.counter("refused_players", "Clients refused, by reason", refused);
    let masters = sessions.iter().flat_map(|one| {
        let is_recent =
            |ago: &Option<Duration>| ago.is_some_and(|ago| ago < bcnet_session::ListServers::LOST_AFTER);
        let labels =
            |address: &SocketAddrV4| [one.labels.clone(), vec![("master", address.to_string())]].concat();
        one.status.masters.iter().map(move |(address, ago)| (labels(address), is_recent(ago)))
    });
    page.gauge("master_heard", "1 if the list server answered recently", masters);
    let delays = sessions.iter().map(|one| (one.labels.clone(), one.relay_delay.clone()));
    page.histogram(
        "relay_delay",
        "Time from the arrival of a message to the departure of its copies",
        delays,
    );
    let rtts = sessions.iter().map(|one| (one.labels.clone(), one.rtt.clone()));
    page.histogram("round_trip", "Round-trip times of players, one value per player and second", rtts);
    page
}

type MetricDefinition<T> = (&'static str, &'static str, fn(&SessionSample) -> T);

const GAUGES: [MetricDefinition<MetricValue>; 8] = [
    ("session_open", "1 if the session admits players", |one| one.is_open.into()),
    ("players", "Connected players", |one| one.status.players.into()),
    ("players_in_game", "Players in the game", |one| one.status.in_game.into()),
    ("player_limit", "Player limit", |one| one.status.player_limit.into()),
    ("round", "Number of the round", |one| u64::from(one.status.round).into()),
    ("game_time_seconds", "Game clock", |one| one.status.game_time.as_secs_f64().into()),
    ("relaying_ratio", "Share of a core that relaying uses in its thread", |one| one.relaying_share.into()),
    ("coalescing_seconds", "Time that state updates are held back", |one| {
        one.coalescing_window.as_secs_f64().into()
    }),
];

fn counters(one: &SessionSample) -> &Counters {
    &one.status.counters
}

const COUNTERS: [MetricDefinition<u64>; 22] = [
    ("received_datagrams", "Datagrams received", |one| one.socket_counters.datagrams_in),
    ("received_bytes", "Bytes received in datagrams", |one| one.socket_counters.bytes_in),
    ("sent_datagrams", "Datagrams sent", |one| one.socket_counters.datagrams_out),
    ("sent_bytes", "Bytes sent in datagrams", |one| one.socket_counters.bytes_out),
    ("oversized_datagrams", "Datagrams longer than the protocol allows", |one| one.socket_counters.oversized),
    ("unsent_datagrams", "Datagrams that the system refused to send", |one| one.socket_counters.unsent),
    ("overflowed_datagrams", "Datagrams dropped by a full receive buffer", |one| {
        one.socket_counters.overflowed
    }),
    ("rejected_datagrams", "Datagrams that were rejected as invalid", |one| one.rejected),
    ("sent_acks", "ACKs sent", |one| one.overhead.acks),
    ("retransmissions", "Messages retransmitted", |one| one.overhead.retransmissions),
    ("received_messages", "Messages received from players in the game", |one| counters(one).messages_in),
    ("relayed_messages", "Copies of messages relayed", |one| counters(one).relayed),
    ("outdated_updates", "State updates superseded before they were sent", |one| counters(one).superseded),
    ("unqueued_messages", "Copies dropped because a send queue was full", |one| counters(one).not_queued),
    ("uplink_dropped_messages", "State updates dropped because of the uplink limit", |one| {
        counters(one).uplink_dropped
    }),
    ("queries", "Queries received", |one| counters(one).queries),
    ("answered_queries", "Queries answered", |one| counters(one).queries_answered),
    ("limited_queries", "Queries above the rate limit", |one| counters(one).queries_limited),
    ("heartbeats", "Heartbeats sent to list servers", |one| counters(one).heartbeats),
    ("admitted_players", "Clients admitted", |one| counters(one).admitted),
    ("ignored_requests", "Connect requests not answered", |one| counters(one).ignored),
    ("anomalies", "Anomalies of players", |one| counters(one).anomalies.total()),
];

/// Time for a worker thread to answer.
const THREAD_TIMEOUT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::serve::session_group::SessionGroup;
    use crate::serve::workers;

    /// A process with a hanging event loop serves no players, so it must not count as alive.
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
        running.join().expect("no panic").expect("stopped by request");
        assert!(
            !are_all_threads_responsive(&worker_handle, patience) && !is_any_open(&worker_handle),
            "no thread is left"
        );
    }
}
