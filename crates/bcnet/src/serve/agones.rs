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
use crate::http_client::Client;
use crate::log::LineLimit;

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
        let teller = Teller {
            base: format!("http://localhost:{port}"),
            client: Client::new(),
            workers: workers.clone(),
            clock,
            keeper: Keeper::new(fleet.clone()),
            failed: Arc::clone(&failed),
            lines: LineLimit::new(LINES_AT_ONCE, LINE_EVERY),
            has_ports: false,
            has_complained: false,
        };
        let run = move || {
            let _ending = ending;
            teller.run(&stopped);
        };
        thread::Builder::new().name("agones".into()).spawn(run)?;
        Ok(Some(Self { stop, ended, failed }))
    }

    /// Returns what counts the calls that have failed.
    pub(super) fn failed(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.failed)
    }

    /// Has the sidecar be told that the server is over.
    pub(super) fn stop(self) -> Ending {
        let Self { stop, ended, .. } = self;
        drop(stop);
        Ending(ended)
    }
}

/// The thread has a last thing to tell.
pub(super) struct Ending(Receiver<()>);

impl Ending {
    /// Waits for that a while.
    pub(super) fn wait(self) {
        // It says nothing but that it has ended.
        let _ = self.0.recv_timeout(FINISH);
    }
}

/// What the sidecar can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Ready,
    Allocate,
    Health,
    Count(Census),
    Shutdown,
}

/// Who is there: players, from the first answer on, and places for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Census {
    players: usize,
    places: usize,
}

/// What Agones takes the server for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Starting,
    Ready,
    Allocated,
    Over,
}

/// Decides what the sidecar is to be told.
struct Keeper {
    fleet: Fleet,
    phase: Phase,
    /// What it was told last.
    counted: Option<Census>,
    /// A counter that it does not take is tried again then.
    count_after: Time,
    /// Since when nobody is there.
    empty_since: Option<Time>,
}

impl Keeper {
    const fn new(fleet: Fleet) -> Self {
        Self { fleet, phase: Phase::Starting, counted: None, count_after: Time::ZERO, empty_since: None }
    }

    /// Returns what is to be told now; `census` is missing unless every thread plays.
    fn due(&mut self, census: Option<Census>, now: Time) -> Vec<Call> {
        // Whoever hangs says nothing, and Agones draws its conclusions.
        let Some(census) = census else { return Vec::new() };
        let mut calls = vec![Call::Health];
        let is_empty = census.players == 0;
        self.empty_since = is_empty.then(|| self.empty_since.unwrap_or(now));
        let is_left = self.empty_since.is_some_and(|since| now.since(since) >= self.fleet.empty_after);
        match (self.phase, self.fleet.when_empty) {
            (Phase::Starting, _) => calls.push(Call::Ready),
            (Phase::Ready, _) if !is_empty => calls.push(Call::Allocate),
            (Phase::Allocated, WhenEmpty::Ready) if is_left => calls.push(Call::Ready),
            (Phase::Allocated, WhenEmpty::Shutdown) if is_left => calls.push(Call::Shutdown),
            _ => {}
        }
        if self.fleet.counter.is_some() && self.counted != Some(census) && now >= self.count_after {
            calls.push(Call::Count(census));
        }
        calls
    }

    /// The sidecar was told something, and took it or not.
    fn note(&mut self, call: Call, is_taken: bool, now: Time) {
        match call {
            Call::Count(_) if !is_taken => self.count_after = now + COUNT_AGAIN,
            _ if !is_taken => {}
            Call::Health => {}
            Call::Ready => self.phase = Phase::Ready,
            Call::Allocate => self.phase = Phase::Allocated,
            Call::Shutdown => self.phase = Phase::Over,
            Call::Count(census) => self.counted = Some(census),
        }
    }

    /// Returns how a call is written.
    fn request(&self, call: Call) -> (Method, String, Value) {
        let plain = |path: &str| (Method::POST, path.to_owned(), json!({}));
        match call {
            Call::Ready => plain("/ready"),
            Call::Allocate => plain("/allocate"),
            Call::Health => plain("/health"),
            Call::Shutdown => plain("/shutdown"),
            Call::Count(Census { players, places }) => {
                let name = self.fleet.counter.as_ref().map_or("", |name| &name.0);
                // Numbers of 64 bits are texts there.
                let body = json!({ "count": players.to_string(), "capacity": places.to_string() });
                (Method::PATCH, format!("/v1beta1/counters/{name}"), body)
            }
        }
    }
}

struct Teller {
    base: String,
    client: Client,
    workers: Workers,
    clock: Clock,
    keeper: Keeper,
    failed: Arc<AtomicU64>,
    lines: LineLimit,
    /// It is known by which ports players reach the sessions.
    has_ports: bool,
    has_complained: bool,
}

impl Teller {
    fn run(mut self, stopped: &Receiver<()>) {
        while matches!(stopped.recv_timeout(EVERY), Err(RecvTimeoutError::Timeout)) {
            if !self.has_ports {
                self.has_ports = self.learn_ports();
            }
            if !self.has_ports {
                continue;
            }
            let census = self.workers.ask_threads(PATIENCE).are_all_well().then(|| self.census());
            for call in self.keeper.due(census, self.clock.now()) {
                self.tell(call);
            }
        }
        // A server that ends before it was ready is started again.
        if !matches!(self.keeper.phase, Phase::Starting | Phase::Over) {
            self.tell(Call::Shutdown);
        }
    }

    fn census(&self) -> Census {
        let sessions = self.workers.ask_each(|host, _, now| {
            let status = host.session.status(now);
            (status.players, if host.is_stopped() { 0 } else { status.player_limit })
        });
        let players = sessions.iter().map(|(players, _)| players).sum();
        let places: usize = sessions.iter().map(|(_, limit)| limit).sum();
        // A limit may have been lowered since.
        Census { players, places: places.max(players) }
    }

    fn tell(&mut self, call: Call) {
        let (method, path, body) = self.keeper.request(call);
        let outcome = self.uri(&path).and_then(|uri| {
            let answer = self.client.send(method, &uri, body.to_string(), TIMEOUT);
            match answer {
                Ok(answer) if answer.is_good() => Ok(()),
                Ok(answer) => Err(format!("the sidecar answered {}", answer.status)),
                Err(failure) => Err(failure.to_string()),
            }
        });
        self.keeper.note(call, outcome.is_ok(), self.clock.now());
        if outcome.is_ok() && !matches!(call, Call::Health | Call::Count(_)) {
            tracing::info!(event = "agones", told = path.trim_start_matches('/'));
        }
        self.note(&path, outcome);
    }

    /// Asks at which ports players reach the sessions, in their order, and has list servers told so.
    fn learn_ports(&mut self) -> bool {
        let path = "/gameserver";
        let outcome = self.uri(path).and_then(|uri| {
            let body =
                self.client.fetch(&uri, MAX_GAME_SERVER, TIMEOUT).map_err(|failure| failure.to_string())?;
            let server: Value = serde_json::from_slice(&body).map_err(|_| "no JSON".to_owned())?;
            let ports = server["status"]["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
            let port = |one: &Value| one["port"].as_u64().and_then(|port| u16::try_from(port).ok());
            Ok(ports.iter().map(port).collect::<Vec<Option<u16>>>())
        });
        let ports = self.note(path, outcome);
        if let Some(ports) = &ports {
            self.workers.give_each(|session| {
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
    fn note<T>(&mut self, path: &str, outcome: Result<T, String>) -> Option<T> {
        match outcome {
            Ok(value) => {
                if std::mem::take(&mut self.has_complained) {
                    tracing::info!(event = "agones_works");
                }
                Some(value)
            }
            Err(error) => {
                self.failed.fetch_add(1, Ordering::Relaxed);
                if let Some(held_back) = self.lines.pass(self.clock.now()) {
                    tracing::warn!(event = "agones_failed", path, error, held_back, "it is told again");
                    self.has_complained = true;
                }
                None
            }
        }
    }
}

/// How often the sidecar is told something; Agones wants to hear every five seconds unless the fleet says otherwise.
const EVERY: Duration = Duration::from_secs(1);
/// How long the sidecar may take, which is on the same machine, and a thread to say that it plays.
const TIMEOUT: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(2);
/// When a counter that was not taken is tried again.
const COUNT_AGAIN: Duration = Duration::from_secs(30);
/// The longest description of a game server.
const MAX_GAME_SERVER: u64 = 1 << 20;
const LINES_AT_ONCE: u32 = 3;
const LINE_EVERY: Duration = Duration::from_secs(60);
/// How long the end waits for the sidecar.
const FINISH: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    fn census(players: usize) -> Option<Census> {
        Some(Census { players, places: 8 })
    }

    /// Returns what is told, and all of it is taken.
    fn told(keeper: &mut Keeper, players: usize, seconds: u64) -> Vec<String> {
        let calls = keeper.due(census(players), at(seconds));
        calls.iter().for_each(|call| keeper.note(*call, true, at(seconds)));
        let is_life = |path: &String| path == "/health";
        let paths: Vec<String> = calls.into_iter().map(|call| keeper.request(call).1).collect();
        assert!(paths.first().is_some_and(is_life), "well comes first");
        paths.into_iter().skip(1).collect()
    }

    #[test]
    fn who_hangs_says_nothing() {
        let mut keeper = Keeper::new(Fleet::default());
        assert!(keeper.due(None, at(0)).is_empty());
        assert_eq!(keeper.phase, Phase::Starting);
    }

    #[test]
    fn a_server_is_in_use_until_nobody_was_there_for_a_while() {
        let mut keeper = Keeper::new(Fleet { counter: None, ..Fleet::default() });
        assert_eq!(told(&mut keeper, 0, 0), ["/ready"]);
        assert!(told(&mut keeper, 0, 100).is_empty());
        assert_eq!(told(&mut keeper, 1, 101), ["/allocate"]);
        assert!(told(&mut keeper, 0, 110).is_empty() && told(&mut keeper, 0, 139).is_empty());
        assert!(told(&mut keeper, 2, 139).is_empty(), "somebody has come back");
        assert!(told(&mut keeper, 0, 140).is_empty() && told(&mut keeper, 0, 169).is_empty());
        assert_eq!(told(&mut keeper, 0, 170), ["/ready"]);
        assert_eq!(told(&mut keeper, 1, 171), ["/allocate"]);
        keeper.fleet.when_empty = WhenEmpty::Allocated;
        assert!(told(&mut keeper, 0, 180).is_empty() && told(&mut keeper, 0, 1_000).is_empty());
        keeper.fleet.when_empty = WhenEmpty::Shutdown;
        assert_eq!(told(&mut keeper, 0, 1_001), ["/shutdown"]);
        assert!(
            told(&mut keeper, 0, 1_002).is_empty() && told(&mut keeper, 1, 1_003).is_empty(),
            "it is over"
        );
    }

    #[test]
    fn what_was_not_taken_is_told_again_and_a_counter_only_after_a_while() {
        let mut keeper = Keeper::new(Fleet::default());
        let count = Call::Count(Census { players: 0, places: 8 });
        assert_eq!(keeper.due(census(0), at(0)), [Call::Health, Call::Ready, count]);
        for call in [Call::Health, Call::Ready, count] {
            keeper.note(call, false, at(0));
        }
        assert_eq!(keeper.due(census(0), at(1)), [Call::Health, Call::Ready]);
        keeper.note(Call::Ready, true, at(1));
        assert_eq!(keeper.due(census(0), at(29)), [Call::Health]);
        assert_eq!(keeper.due(census(0), at(30)), [Call::Health, count]);
        keeper.note(count, true, at(30));
        assert_eq!(keeper.due(census(0), at(31)), [Call::Health]);
        let (method, path, body) = keeper.request(count);
        assert_eq!((method, path.as_str()), (Method::PATCH, "/v1beta1/counters/players"));
        assert_eq!(body, json!({ "count": "0", "capacity": "8" }));
    }
}
