//! A server of a fleet that Agones keeps: tells the sidecar that it is ready, whether it is well, whether it is in use and
//! how many play, by the REST interface of Agones' SDK.
//!
//! One thread asks the threads that play and tells the sidecar. What the sidecar does not take is told again a second later.

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

/// The thread that talks to the sidecar.
pub(super) struct Agones {
    stop: Sender<()>,
    ended: Receiver<()>,
    failed: Arc<AtomicU64>,
}

impl Agones {
    /// Starts it, if the settings want it.
    pub(super) fn start(fleet: &Fleet, workers: &Workers, clock: Clock) -> anyhow::Result<Option<Self>> {
        if !fleet.agones {
            return Ok(None);
        }
        let port = env::var("AGONES_SDK_HTTP_PORT").unwrap_or_else(|_| "9358".into());
        let port: u16 = port.parse().context("AGONES_SDK_HTTP_PORT is no port")?;
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

    /// Returns what counts the calls that have failed.
    pub(super) fn failed(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.failed)
    }

    /// Has the sidecar be told that the server is over.
    pub(super) fn stop(self) -> PendingShutdown {
        let Self { stop, ended, .. } = self;
        drop(stop);
        PendingShutdown(ended)
    }
}

/// The thread has a last thing to tell.
pub(super) struct PendingShutdown(Receiver<()>);

impl PendingShutdown {
    /// Waits for that a while.
    pub(super) fn wait(self) {
        // It says nothing but that it has ended.
        let _ = self.0.recv_timeout(SHUTDOWN_TIMEOUT);
    }
}

/// What the sidecar can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Ready,
    Allocate,
    Health,
    SetPlayerCount(PlayerCount),
    Shutdown,
}

/// Who is there: players, from the first answer on, and places for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PlayerCount {
    players: usize,
    slots: usize,
}

/// What Agones takes the server for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FleetPhase {
    Starting,
    Ready,
    Allocated,
    ShutDown,
}

/// Decides what the sidecar is to be told.
struct CallScheduler {
    fleet: Fleet,
    phase: FleetPhase,
    /// What it was told last.
    last_count: Option<PlayerCount>,
    /// A counter that it does not take is tried again then.
    next_count: Time,
    /// Since when nobody is there.
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

    /// Returns what is to be told now; `census` is missing unless every thread plays.
    fn due_calls(&mut self, count: Option<PlayerCount>, now: Time) -> Vec<Call> {
        // Whoever hangs says nothing, and Agones draws its conclusions.
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

    /// The sidecar was told something, and took it or not.
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

    /// Returns how a call is written.
    fn request(&self, call: Call) -> (Method, String, Value) {
        let post = |path: &str| (Method::POST, path.to_owned(), json!({}));
        match call {
            Call::Ready => post("/ready"),
            Call::Allocate => post("/allocate"),
            Call::Health => post("/health"),
            Call::Shutdown => post("/shutdown"),
            Call::SetPlayerCount(PlayerCount { players, slots }) => {
                let name = self.fleet.counter.as_ref().map_or("", |name| &name.0);
                // Numbers of 64 bits are texts there.
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
    /// It is known by which ports players reach the sessions.
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
        // A server that ends before it was ready is started again.
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
        // A limit may have been lowered since.
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

    /// Asks at which ports players reach the sessions, in their order, and has list servers told so.
    fn fetch_ports(&mut self) -> bool {
        let path = "/gameserver";
        let outcome = self.uri(path).and_then(|uri| {
            let body = self
                .client
                .fetch(&uri, MAX_GAME_SERVER, SIDECAR_TIMEOUT)
                .map_err(|failure| failure.to_string())?;
            let server: Value = serde_json::from_slice(&body).map_err(|_| "no JSON".to_owned())?;
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
        format!("{}{path}", self.base).parse().map_err(|_| "no address".to_owned())
    }

    /// Counts what went wrong, and logs it, but not each time.
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
                    tracing::warn!(event = "agones_failed", path, error, held_back, "it is told again");
                    self.has_logged_failure = true;
                }
                None
            }
        }
    }
}

/// How often the sidecar is told something; Agones wants to hear every five seconds unless the fleet says otherwise.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// How long the sidecar may take, which is on the same machine, and a thread to say that it plays.
const SIDECAR_TIMEOUT: Duration = Duration::from_secs(2);
const THREAD_TIMEOUT: Duration = Duration::from_secs(2);
/// When a counter that was not taken is tried again.
const COUNT_RETRY_DELAY: Duration = Duration::from_secs(30);
/// The longest description of a game server.
const MAX_GAME_SERVER: u64 = 1 << 20;
const LOG_BURST: u32 = 3;
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// How long the end waits for the sidecar.
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

    /// Returns what is told, and all of it is taken.
    fn sent_paths(scheduler: &mut CallScheduler, players: usize, seconds: u64) -> Vec<String> {
        let calls = scheduler.due_calls(player_count(players), at(seconds));
        calls.iter().for_each(|call| scheduler.on_result(*call, true, at(seconds)));
        let is_health = |path: &String| path == "/health";
        let paths: Vec<String> = calls.into_iter().map(|call| scheduler.request(call).1).collect();
        assert!(paths.first().is_some_and(is_health), "well comes first");
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
        assert!(sent_paths(&mut scheduler, 2, 139).is_empty(), "somebody has come back");
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
            "it is over"
        );
    }

    #[test]
    fn rejected_calls_are_retried_and_counters_after_a_delay() {
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
