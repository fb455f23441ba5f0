//! The socket at which `bcnet ctl` reaches a running server.
//!
//! Clients may be slow, so each has a thread of its own, which hands the event loop commands.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow};
use bcnet_control::{ControlResponse, Envelope, MAX_REQUEST, Request, RequestError};

use super::control_plane::ControlPlane;
use crate::control::{self, ControlListener, ControlStream};

/// The control socket. It is gone when this is dropped.
pub(super) struct ControlSocket {
    path: PathBuf,
}

impl ControlSocket {
    /// Listens at the first of `places` where the system lets it, for this user only.
    pub(super) fn start(places: &[PathBuf], plane: Arc<ControlPlane>) -> anyhow::Result<Self> {
        let (path, listener) = bind_first(places)?;
        let serve = move || accept_clients(&listener, &plane);
        thread::Builder::new().name("control".into()).spawn(serve)?;
        Ok(Self { path: path.to_owned() })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        control::remove(&self.path);
    }
}

/// If there is no place, the reason is that of the usual one.
fn bind_first(places: &[PathBuf]) -> anyhow::Result<(&Path, ControlListener)> {
    let mut first = None;
    for path in places {
        match ControlListener::bind(path).with_context(|| format!("control socket {}", path.display())) {
            Ok(listener) => return Ok((path, listener)),
            // What is there is somebody's, and `bcnet ctl` would ask it. What the system does not allow is tried elsewhere.
            Err(error) if !error.root_cause().is::<io::Error>() => return Err(error),
            Err(error) => first = first.or(Some(error)),
        }
    }
    Err(first.unwrap_or_else(|| anyhow!("there is no place for a control socket")))
}

fn accept_clients(listener: &ControlListener, plane: &Arc<ControlPlane>) {
    let (clients, followers) = (Arc::default(), Arc::default());
    loop {
        let Ok(stream) = listener.accept() else {
            // Too many open files, say: it passes, and must not burn a core until then.
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        let Some(permit) = ClientPermit::take(&clients, MAX_CLIENTS) else {
            drop(send_answer(
                &stream,
                &refusal(format!("{MAX_CLIENTS} control connections are open already")),
            ));
            continue;
        };
        let (plane, followers) = (Arc::clone(plane), Arc::clone(&followers));
        let talk = move || drop(serve_client(&stream, &plane, permit, &followers));
        if thread::Builder::new().name("control client".into()).spawn(talk).is_err() {
            tracing::warn!(event = "control_failed", "no thread for a control connection");
        }
    }
}

/// Room for one client. It is free again when this is dropped, even if the client never got a thread.
struct ClientPermit(Arc<AtomicUsize>);

impl ClientPermit {
    fn take(clients: &Arc<AtomicUsize>, max: usize) -> Option<Self> {
        let permit = Self(Arc::clone(clients));
        (clients.fetch_add(1, Ordering::Relaxed) < max).then_some(permit)
    }

    /// Takes room among others instead, if there is some.
    fn move_to_pool(&mut self, others: &Arc<AtomicUsize>, max: usize) -> bool {
        Self::take(others, max).is_some_and(|permit| {
            *self = permit;
            true
        })
    }
}

impl Drop for ClientPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Answers requests until the client has no more, says something too long, or does not read its answers.
fn serve_client(
    stream: &ControlStream,
    plane: &ControlPlane,
    mut permit: ClientPermit,
    followers: &Arc<AtomicUsize>,
) -> io::Result<()> {
    stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
    stream.set_read_timeout(Some(IDLE_TIMEOUT))?;
    let mut input = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        (&mut input).take(MAX_REQUEST).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(());
        }
        if line.len() as u64 == MAX_REQUEST {
            send_answer(stream, &refusal(format!("a request has less than {MAX_REQUEST} bytes")))?;
            return Err(ErrorKind::InvalidData.into());
        }
        let (reply, after) = match Envelope::parse(&line) {
            Ok(envelope) => match FollowUp::of(&envelope) {
                // Whoever listens for hours takes no room from those who ask.
                FollowUp::Follow if !permit.move_to_pool(followers, MAX_FOLLOWERS) => {
                    (refusal(format!("{MAX_FOLLOWERS} clients follow events already")), FollowUp::Nothing)
                }
                after => (plane.dispatch(envelope).into(), after),
            },
            Err(error) => (refusal(format!("not a request: {error}")), FollowUp::Nothing),
        };
        let answered = send_answer(stream, &reply);
        match (after, reply) {
            // Only now, for the end of the process does not wait for answers.
            (FollowUp::Stop, ControlResponse::Ok(_)) => plane.stop(),
            (FollowUp::Follow, ControlResponse::Ok(events)) => {
                answered?;
                return follow(stream, plane, events["next"].as_u64().unwrap_or(0));
            }
            _ => {}
        }
        answered?;
    }
}

/// What comes after an answer.
enum FollowUp {
    Nothing,
    /// The end of the server.
    Stop,
    /// Whatever happens, until the client goes.
    Follow,
}

impl FollowUp {
    fn of(Envelope { session, request, .. }: &Envelope) -> Self {
        match request {
            Request::Stop if session.is_none() => Self::Stop,
            Request::Events { follow: true, .. } => Self::Follow,
            _ => Self::Nothing,
        }
    }
}

/// Writes the lines of the log as they come, and an empty one now and then: only so is it known that the client is gone.
fn follow(mut stream: &ControlStream, plane: &ControlPlane, mut next: u64) -> io::Result<()> {
    loop {
        let news = plane.log.feed.wait(next, KEEPALIVE_INTERVAL);
        next = news.next;
        let mut text = String::new();
        if news.missed > 0 {
            text = format!("{{\"event\":\"missed\",\"lines\":{}}}\n", news.missed);
        }
        for line in &news.lines {
            text.push_str(line);
            text.push('\n');
        }
        if text.is_empty() {
            text.push('\n');
        }
        stream.write_all(text.as_bytes())?;
    }
}

fn send_answer(mut stream: &ControlStream, answer: &ControlResponse) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    stream.write_all(&line)
}

fn refusal(reason: String) -> ControlResponse {
    Err(RequestError(reason)).into()
}

const MAX_CLIENTS: usize = 16;
/// How many may follow the log besides.
const MAX_FOLLOWERS: usize = 16;
/// How often a client that follows the log hears something.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// How long a client may take to read its answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a client may say nothing.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    /// A user without a runtime directory (su, cron, containers) has a socket all the same.
    #[cfg(unix)]
    #[test]
    fn next_path_is_used_if_a_socket_cannot_be_created() {
        let base = std::env::temp_dir().join(format!("bcnet-places-{}", std::process::id()));
        // Nobody can make directories there, not even root.
        let places = [PathBuf::from("/proc/bcnet/bcnet.sock"), base.join("bcnet.sock")];
        let taken = bind_first(&places).expect("a place");
        assert_eq!(taken.0, places[1]);
        // Where another server listens is no reason to go elsewhere.
        let more = [places[1].clone(), base.join("other.sock")];
        let error = format!("{:#}", bind_first(&more).expect_err("taken"));
        let none = format!("{:#}", bind_first(&places[..1]).expect_err("no place"));
        drop(std::fs::remove_dir_all(&base));
        assert!(error.contains("another server listens there"), "{error}");
        assert!(none.starts_with("control socket /proc/bcnet/bcnet.sock: "), "{none}");
    }

    #[test]
    fn client_without_a_thread_returns_its_permit() {
        let clients = Arc::default();
        let take = || ClientPermit::take(&clients, MAX_CLIENTS);
        let mut permits: Vec<_> = (0..MAX_CLIENTS).map(|_| take().expect("room")).collect();
        assert!(take().is_none() && take().is_none());
        let permit = permits.pop();
        let never_run = move || drop(permit);
        assert!(take().is_none());
        drop(never_run);
        assert!(take().is_some());
    }
}
