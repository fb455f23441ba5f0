//! The two connections to a server: one for requests, one for the log.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::Duration;

use anyhow::{anyhow, bail};
use bcnet_control::{ControlResponse, Envelope, Request};
use bcnet_udp::Clock;
use serde_json::Value;

use super::TopEvent;
use super::snapshot::{TopSnapshot, find_port};
use crate::control::ControlStream;
use crate::ctl;
use crate::server_info::{SampleList, ServerInfo, parse, parse_list};

/// A request to the polling thread.
pub(super) enum ServerRequest {
    /// Show the session with this port from now on. Plot the last hour of all sessions, or of this one.
    Select { port: u16, is_all_sessions: bool },
    /// Send a request to the server.
    Execute(Envelope),
}

/// A connection to the server's control socket.
pub(super) struct ControlConnection {
    path: PathBuf,
    stream: ControlStream,
}

impl ControlConnection {
    pub(super) fn open(paths: &[PathBuf]) -> anyhow::Result<Self> {
        let (path, stream) = ctl::connect(paths)?;
        Ok(Self { path: path.to_owned(), stream })
    }

    /// Starts a thread that polls the server's state.
    pub(super) fn spawn_poller(
        self,
        session: Option<String>,
        requests: Receiver<ServerRequest>,
        events: SyncSender<TopEvent>,
    ) -> anyhow::Result<()> {
        spawn_thread("asking", events, move |events| {
            let answers = BufReader::new(&self.stream);
            let mut asker = Poller {
                path: &self.path,
                stream: &self.stream,
                answers,
                initial_session: session,
                port: None,
                is_all_sessions: true,
                last_sample_time: None,
            };
            asker.run(&requests, events)
        })
    }

    /// Starts a thread that receives the log.
    pub(super) fn spawn_log_follower(self, events: SyncSender<TopEvent>) -> anyhow::Result<()> {
        spawn_thread("following", events, move |events| {
            let mut answers = BufReader::new(&self.stream);
            let request = Request::Events { count: INITIAL_LOG_LINES, follow: true };
            let envelope = Envelope { session: None, by: None, request };
            let ControlResponse::Ok(former) =
                ctl::send_request(&self.path, &self.stream, &mut answers, &envelope)?
            else {
                bail!("{}: the server refuses to send its log", self.path.display());
            };
            let former = former.get("events").and_then(Value::as_array).cloned().unwrap_or_default();
            if events.send(TopEvent::LogEvents(former)).is_err() {
                return Ok(());
            }
            let mut line = String::new();
            loop {
                line.clear();
                if answers.read_line(&mut line).map_err(|error| ctl::read_error(&self.path, error))? == 0 {
                    bail!("{}: the server has ended, or closed the connection", self.path.display());
                }
                // The server sends empty lines to keep the connection alive.
                if let Ok(event) = serde_json::from_str(&line)
                    && events.send(TopEvent::LogEvents(vec![event])).is_err()
                {
                    return Ok(());
                }
            }
        })
    }
}

/// Starts a thread that reports its end, also after an error.
fn spawn_thread(
    name: &str,
    events: SyncSender<TopEvent>,
    run: impl FnOnce(&SyncSender<TopEvent>) -> anyhow::Result<()> + Send + 'static,
) -> anyhow::Result<()> {
    let body = move || {
        let end_notice = NotifyOnDrop(events);
        if let Err(error) = run(&end_notice.0) {
            drop(end_notice.0.send(TopEvent::ConnectionLost(format!("{error:#}"))));
        }
    };
    thread::Builder::new().name(name.into()).spawn(body)?;
    Ok(())
}

/// Reports the end of a thread, also after a panic.
struct NotifyOnDrop(SyncSender<TopEvent>);

impl Drop for NotifyOnDrop {
    fn drop(&mut self) {
        drop(self.0.send(TopEvent::ConnectionLost("the connection to the server has ended".into())));
    }
}

/// Sends requests one after the other.
struct Poller<'a> {
    path: &'a Path,
    stream: &'a ControlStream,
    answers: BufReader<&'a ControlStream>,
    /// The session to show first.
    initial_session: Option<String>,
    /// The port of the shown session.
    port: Option<u16>,
    /// `true` to request the last hour of all sessions instead of the shown one.
    is_all_sessions: bool,
    /// The time of the last sample.
    last_sample_time: Option<u64>,
}

impl Poller<'_> {
    fn run(
        &mut self,
        requests: &Receiver<ServerRequest>,
        events: &SyncSender<TopEvent>,
    ) -> anyhow::Result<()> {
        let clock = Clock::start();
        loop {
            let started = clock.now();
            if events.send(TopEvent::Snapshot(Box::new(self.fetch_snapshot()?))).is_err() {
                return Ok(());
            }
            // The pause grows with the time that the requests took, so polling uses a small part of the
            // server's time even with many sessions.
            let pause = (clock.now().since(started) * PAUSE_FACTOR).max(MIN_POLL_INTERVAL);
            let first = match requests.recv_timeout(pause) {
                Ok(request) => request,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            for request in std::iter::once(first).chain(requests.try_iter()) {
                match request {
                    ServerRequest::Select { port, is_all_sessions: is_whole } => {
                        if is_whole != self.is_all_sessions || (!is_whole && Some(port) != self.port) {
                            self.last_sample_time = None;
                        }
                        (self.port, self.is_all_sessions) = (Some(port), is_whole);
                    }
                    ServerRequest::Execute(envelope) => {
                        if events.send(TopEvent::RequestDone(self.execute(&envelope)?)).is_err() {
                            return Ok(());
                        }
                    }
                }
            }
        }
    }

    fn execute(&mut self, envelope: &Envelope) -> anyhow::Result<Result<String, String>> {
        Ok(match ctl::send_request(self.path, self.stream, &mut self.answers, envelope)? {
            ControlResponse::Ok(answer) => Ok(bcnet_control::render_answer(&answer).trim_end().to_owned()),
            ControlResponse::Error(reason) => Err(reason),
        })
    }

    /// Requests everything that the screen shows.
    fn fetch_snapshot(&mut self) -> anyhow::Result<TopSnapshot> {
        let to_error = |problem: String| anyhow!(problem);
        let status: ServerInfo = parse(self.query(None, Request::Status)?).map_err(to_error)?;
        let port = match (self.port, self.initial_session.take()) {
            (Some(port), _) => port,
            (None, wanted) => find_port(&status.sessions, wanted.as_deref()).map_err(to_error)?,
        };
        self.port = Some(port);
        let session = Some(port.to_string());
        let players =
            parse_list(self.query(session.clone(), Request::Players)?, "players").map_err(to_error)?;
        let queues = self.query(session.clone(), Request::Queues { player: None })?;
        let queues = parse_list(queues, "queues").map_err(to_error)?;
        let (is_new, session) = (self.last_sample_time.is_none(), session.filter(|_| !self.is_all_sessions));
        let samples: SampleList =
            parse(self.query(session, Request::Samples { since: self.last_sample_time })?)
                .map_err(to_error)?;
        let snapshot = TopSnapshot::new(status, port, players, queues).with_samples(samples, is_new);
        self.last_sample_time = snapshot.samples.last().map(|sample| sample.time).or(self.last_sample_time);
        Ok(snapshot)
    }

    /// Sends a request. A refusal is an error, because the server has no reason to refuse.
    fn query(&mut self, session: Option<String>, request: Request) -> anyhow::Result<Value> {
        let envelope = Envelope { session, by: None, request };
        match ctl::send_request(self.path, self.stream, &mut self.answers, &envelope)? {
            ControlResponse::Ok(answer) => Ok(answer),
            ControlResponse::Error(reason) => bail!("{}: {reason}", self.path.display()),
        }
    }
}

/// The minimum interval between two polls. The pause is also at least 20 times as long as the poll took.
const MIN_POLL_INTERVAL: Duration = Duration::from_secs(1);
const PAUSE_FACTOR: u32 = 20;
/// The number of earlier log lines to request at the start.
const INITIAL_LOG_LINES: usize = 200;
