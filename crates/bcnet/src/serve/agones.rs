//! Reports to the Agones sidecar, for a server in a fleet, over the REST interface of the SDK.
//!
//! The reports are: ready, healthy, allocated, shut down, and the number of players. One thread queries the
//! worker threads and calls the sidecar. Failed calls are retried after a second.

use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use bcnet_transport::Time;
use bcnet_udp::Clock;
use serde_json::{Value, json};
use ureq::http::{Method, Uri};

use super::workers::Workers;
use crate::config::{Fleet, WhenEmpty};
use crate::http_client::HttpClient;
use crate::log::LogRateLimiter;

/// The thread that calls the sidecar.
pub(super) struct Agones {
    stop: Sender<()>,
    ended: Receiver<()>,
    failed: Arc<AtomicU64>,
}

impl Agones {
    /// Starts the thread, if the settings enable Agones.
    pub(super) fn start(fleet: &Fleet, workers: &Workers, clock: Clock) -> anyhow::Result<Option<Self>> {
        if !fleet.agones {
            return Ok(None);
        }
        let port = env::var("AGONES_SDK_HTTP_PORT").unwrap_or_else(|_| "9358".into());
        let port: u16 =
            port.parse().context("the environment variable AGONES_SDK_HTTP_PORT is not a port number")?;
        let (stop, stopped) = mpsc::channel();
        let (ending, ended) = mpsc::channel();
        let failed = Arc::new(AtomicU64::new(0));
        let reporter = SidecarReporter {
            base: format!("http://localhost:{port}"),
            client: HttpClient::new(),
            workers: workers.clone(),
            clock,
            scheduler: CallScheduler::new(fleet.clone()),
            failed: Arc::clone(&failed),
            log_limiter: LogRateLimiter::new(LOG_BURST, LOG_INTERVAL),
            has_ports: false,
            has_logged_failure: false,
        };
        let run = move || {
            let _ending = ending;
            reporter.run(&stopped);
        };
        thread::Builder::new().name("agones".into()).spawn(run)?;
        Ok(Some(Self { stop, ended, failed }))
    }

    /// Returns the counter of failed calls.
    pub(super) fn failed(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.failed)
    }

    /// Makes the thread report the shutdown and end.
    pub(super) fn stop(self) -> PendingShutdown {
        let Self { stop, ended, .. } = self;
        drop(stop);
        PendingShutdown(ended)
    }
}

/// The last report, which is still to be sent.
pub(super) struct PendingShutdown(Receiver<()>);

impl PendingShutdown {
    /// Waits for the last report, but not longer than the timeout.
    pub(super) fn wait(self) {
        // The thread sends nothing: dropping its sender shows that it ended.
        let _ = self.0.recv_timeout(SHUTDOWN_TIMEOUT);
    }
}

/// The calls of the Agones SDK that are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Ready,
    Allocate,
    Health,
    SetPlayerCount(PlayerCount),
    Shutdown,
}

/// The number of connected players and the player limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PlayerCount {
    players: usize,
    slots: usize,
}

/// The state of the server as Agones knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FleetPhase {
    Starting,
    Ready,
    Allocated,
    ShutDown,
}

/// Decides which calls are due.
struct CallScheduler {
    fleet: Fleet,
    phase: FleetPhase,
    /// The last count that the sidecar accepted.
    last_count: Option<PlayerCount>,
    /// Earliest time of the next attempt after a rejected count.
    next_count: Time,
    /// Start of the time without players.
    empty_since: Option<Time>,
}

impl CallScheduler {
    const fn new(fleet: Fleet) -> Self {
        Self {
            fleet,
            phase: FleetPhase::Starting,
            last_count: None,
            next_count: Time::ZERO,
            empty_since: None,
        }
    }

    /// Returns the calls that are due. `count` is `None` unless all threads respond.
    fn due_calls(&mut self, count: Option<PlayerCount>, now: Time) -> Vec<Call> {
        // A hanging server sends no health calls, so that Agones replaces it.
        let Some(count) = count else { return Vec::new() };
        let mut calls = vec![Call::Health];
        let is_empty = count.players == 0;
        self.empty_since = is_empty.then(|| self.empty_since.unwrap_or(now));
        let is_idle = self.empty_since.is_some_and(|since| now.since(since) >= self.fleet.empty_after);
        match (self.phase, self.fleet.when_empty) {
            (FleetPhase::Starting, _) => calls.push(Call::Ready),
            (FleetPhase::Ready, _) if !is_empty => calls.push(Call::Allocate),
            (FleetPhase::Allocated, WhenEmpty::Ready) if is_idle => calls.push(Call::Ready),
            (FleetPhase::Allocated, WhenEmpty::Shutdown) if is_idle => calls.push(Call::Shutdown),
            _ => {}
        }
        if self.fleet.counter.is_some() && self.last_count != Some(count) && now >= self.next_count {
            calls.push(Call::SetPlayerCount(count));
        }
        calls
    }

    /// Records the result of a call.
    fn on_result(&mut self, call: Call, is_accepted: bool, now: Time) {
        match call {
            Call::SetPlayerCount(_) if !is_accepted => self.next_count = now + COUNT_RETRY_DELAY,
            _ if !is_accepted => {}
            Call::Health => {}
            Call::Ready => self.phase = FleetPhase::Ready,
            Call::Allocate => self.phase = FleetPhase::Allocated,
            Call::Shutdown => self.phase = FleetPhase::ShutDown,
            Call::SetPlayerCount(count) => self.last_count = Some(count),
        }
    }

    /// Returns the HTTP request of a call.
    fn request(&self, call: Call) -> (Method, String, Value) {
        let post = |path: &str| (Method::POST, path.to_owned(), json!({}));
        match call {
            Call::Ready => post("/ready"),
            Call::Allocate => post("/allocate"),
            Call::Health => post("/health"),
            Call::Shutdown => post("/shutdown"),
            Call::SetPlayerCount(PlayerCount { players, slots }) => {
                let name = self.fleet.counter.as_ref().map_or("", |name| &name.0);
                // The SDK encodes 64-bit numbers as strings.
                let body = json!({ "count": players.to_string(), "capacity": slots.to_string() });
                (Method::PATCH, format!("/v1beta1/counters/{name}"), body)
            }
        }
    }
}

struct SidecarReporter {
    base: String,
    client: HttpClient,
    workers: Workers,
    clock: Clock,
    scheduler: CallScheduler,
    failed: Arc<AtomicU64>,
    log_limiter: LogRateLimiter,
    /// The public ports of the sessions are known.
    has_ports: bool,
    has_logged_failure: bool,
}

impl SidecarReporter {
    fn run(mut self, stopped: &Receiver<()>) {
        while matches!(stopped.recv_timeout(REPORT_INTERVAL), Err(RecvTimeoutError::Timeout)) {
            if !self.has_ports {
                self.has_ports = self.fetch_ports();
            }
            if !self.has_ports {
                continue;
            }
            let count =
                self.workers.check_threads(THREAD_TIMEOUT).are_all_responsive().then(|| self.count_players());
            for call in self.scheduler.due_calls(count, self.clock.now()) {
                self.send(call);
            }
        }
        // If the server never was ready, Agones starts it again, so no shutdown is reported.
        if !matches!(self.scheduler.phase, FleetPhase::Starting | FleetPhase::ShutDown) {
            self.send(Call::Shutdown);
        }
    }

    fn count_players(&self) -> PlayerCount {
        let sessions = self.workers.call_sessions(|host, _, now| {
            let status = host.session.status(now);
            (status.players, if host.is_stopped() { 0 } else { status.player_limit })
        });
        let players = sessions.iter().map(|(players, _)| players).sum();
        let slots: usize = sessions.iter().map(|(_, limit)| limit).sum();
        // The limit may have been lowered below the number of players.
        PlayerCount { players, slots: slots.max(players) }
    }

    fn send(&mut self, call: Call) {
        let (method, path, body) = self.scheduler.request(call);
        let outcome = self.uri(&path).and_then(|uri| {
            let answer = self.client.send(method, &uri, body.to_string(), SIDECAR_TIMEOUT);
            match answer {
                Ok(answer) if answer.is_success() => Ok(()),
                Ok(answer) => Err(format!("the sidecar answered {}", answer.status)),
                Err(failure) => Err(failure.to_string()),
            }
        });
        self.scheduler.on_result(call, outcome.is_ok(), self.clock.now());
        if outcome.is_ok() && !matches!(call, Call::Health | Call::SetPlayerCount(_)) {
            tracing::info!(event = "agones", told = path.trim_start_matches('/'));
        }
        self.log_outcome(&path, outcome);
    }

    /// Fetches the public ports of the sessions, in their order, for the list servers.
    fn fetch_ports(&mut self) -> bool {
        let path = "/gameserver";
        let outcome = self.uri(path).and_then(|uri| {
            let body = self
                .client
                .fetch(&uri, MAX_GAME_SERVER, SIDECAR_TIMEOUT)
                .map_err(|failure| failure.to_string())?;
            let server: Value =
                serde_json::from_slice(&body).map_err(|_| "the answer is not JSON".to_owned())?;
            let ports = server["status"]["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
            let port = |one: &Value| one["port"].as_u64().and_then(|port| u16::try_from(port).ok());
            Ok(ports.iter().map(port).collect::<Vec<Option<u16>>>())
        });
        let ports = self.log_outcome(path, outcome);
        if let Some(ports) = &ports {
            self.workers.send_to_sessions(|session| {
                let port = ports.get(session).copied().flatten();
                move |host, now| {
                    if let Some(port) = port {
                        host.set_public_port(port, now);
                    }
                }
            });
        }
        ports.is_some()
    }

    fn uri(&self, path: &str) -> Result<Uri, String> {
        format!("{}{path}", self.base).parse().map_err(|_| "the URL of the sidecar is invalid".to_owned())
    }

    /// Counts a failure, and logs it rate limited.
    fn log_outcome<T>(&mut self, path: &str, outcome: Result<T, String>) -> Option<T> {
        match outcome {
            Ok(value) => {
                if std::mem::take(&mut self.has_logged_failure) {
                    tracing::info!(event = "agones_works");
                }
                Some(value)
            }
            Err(error) => {
                self.failed.fetch_add(1, Ordering::Relaxed);
                if let Some(held_back) = self.log_limiter.allow(self.clock.now()) {
                    tracing::warn!(
                        event = "agones_failed",
                        path,
                        error,
                        held_back,
                        "the call to the Agones sidecar failed; the server tries again"
                    );
                    self.has_logged_failure = true;
                }
                None
            }
        }
    }
}

/// Interval of reports. By default Agones expects a health call every five seconds.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Time for an answer of the sidecar, which is on the same machine, and for one of a worker thread.
const SIDECAR_TIMEOUT: Duration = Duration::from_secs(2);
const THREAD_TIMEOUT: Duration = Duration::from_secs(2);
/// Delay before a rejected count is sent again.
const COUNT_RETRY_DELAY: Duration = Duration::from_secs(30);
/// Largest accepted description of a game server, in bytes.
const MAX_GAME_SERVER: u64 = 1 << 20;
const LOG_BURST: u32 = 3;
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Time to wait for the last report when the server stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    fn player_count(players: usize) -> Option<PlayerCount> {
        Some(PlayerCount { players, slots: 8 })
    }

    /// Returns the paths of the due calls, all of which succeed.
    fn sent_paths(scheduler: &mut CallScheduler, players: usize, seconds: u64) -> Vec<String> {
        let calls = scheduler.due_calls(player_count(players), at(seconds));
        calls.iter().for_each(|call| scheduler.on_result(*call, true, at(seconds)));
        let is_health = |path: &String| path == "/health";
        let paths: Vec<String> = calls.into_iter().map(|call| scheduler.request(call).1).collect();
        assert!(paths.first().is_some_and(is_health), "the health call comes first");
        paths.into_iter().skip(1).collect()
    }

    #[test]
    fn hanging_server_sends_no_calls() {
        let mut scheduler = CallScheduler::new(Fleet::default());
        assert!(scheduler.due_calls(None, at(0)).is_empty());
        assert_eq!(scheduler.phase, FleetPhase::Starting);
    }

    #[test]
    fn server_stays_allocated_until_empty_for_a_while() {
        let mut scheduler = CallScheduler::new(Fleet { counter: None, ..Fleet::default() });
        assert_eq!(sent_paths(&mut scheduler, 0, 0), ["/ready"]);
        assert!(sent_paths(&mut scheduler, 0, 100).is_empty());
        assert_eq!(sent_paths(&mut scheduler, 1, 101), ["/allocate"]);
        assert!(
            sent_paths(&mut scheduler, 0, 110).is_empty() && sent_paths(&mut scheduler, 0, 139).is_empty()
        );
        assert!(sent_paths(&mut scheduler, 2, 139).is_empty(), "a player came back");
        assert!(
            sent_paths(&mut scheduler, 0, 140).is_empty() && sent_paths(&mut scheduler, 0, 169).is_empty()
        );
        assert_eq!(sent_paths(&mut scheduler, 0, 170), ["/ready"]);
        assert_eq!(sent_paths(&mut scheduler, 1, 171), ["/allocate"]);
        scheduler.fleet.when_empty = WhenEmpty::Allocated;
        assert!(
            sent_paths(&mut scheduler, 0, 180).is_empty() && sent_paths(&mut scheduler, 0, 1_000).is_empty()
        );
        scheduler.fleet.when_empty = WhenEmpty::Shutdown;
        assert_eq!(sent_paths(&mut scheduler, 0, 1_001), ["/shutdown"]);
        assert!(
            sent_paths(&mut scheduler, 0, 1_002).is_empty()
                && sent_paths(&mut scheduler, 1, 1_003).is_empty(),
            "the server is shut down"
        );
    }

    #[test]
    fn rejected_calls_are_retried_at_once_but_counts_after_a_delay() {
        let mut scheduler = CallScheduler::new(Fleet::default());
        let count = Call::SetPlayerCount(PlayerCount { players: 0, slots: 8 });
        assert_eq!(scheduler.due_calls(player_count(0), at(0)), [Call::Health, Call::Ready, count]);
        for call in [Call::Health, Call::Ready, count] {
            scheduler.on_result(call, false, at(0));
        }
        assert_eq!(scheduler.due_calls(player_count(0), at(1)), [Call::Health, Call::Ready]);
        scheduler.on_result(Call::Ready, true, at(1));
        assert_eq!(scheduler.due_calls(player_count(0), at(29)), [Call::Health]);
        assert_eq!(scheduler.due_calls(player_count(0), at(30)), [Call::Health, count]);
        scheduler.on_result(count, true, at(30));
        assert_eq!(scheduler.due_calls(player_count(0), at(31)), [Call::Health]);
        let (method, path, body) = scheduler.request(count);
        assert_eq!((method, path.as_str()), (Method::PATCH, "/v1beta1/counters/players"));
        assert_eq!(body, json!({ "count": "0", "capacity": "8" }));
    }
}
